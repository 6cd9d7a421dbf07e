// A pool that splits one call into numbered chunks. Every thread has a lane of chunks, the same in every call, so that
// its part of the data stays in its cache. A thread that has finished its lane takes chunks from other lanes, but first
// it waits as long as its own lane took. The reason: a stolen chunk's data moves to another cache and, in the next
// call, back. That costs more than waiting for a thread that is a little late, and less than waiting for a thread that
// does not run. The caller is one of the threads, so a call never waits for another thread to wake up. Any thread may
// run a chunk, so what a chunk does must not depend on the thread.
//
// Workers spin for a moment after a call and then sleep, so that a tight loop of calls pays no wake-up and an idle pool
// uses no processor. A forked child has no workers. There run() does every chunk itself, and the pool must be leaked
// instead of destroyed, because it holds handles of threads that do not exist.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#if defined(__x86_64__) || defined(_M_X64)
#include <immintrin.h>
#endif

namespace envs_c {

inline void pause_briefly() {
#if defined(__x86_64__) || defined(_M_X64)
    _mm_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

class ThreadPool {
   public:
    using Work = std::function<void(std::size_t chunk)>;

    // `threads` counts the caller.
    ThreadPool(std::size_t threads, std::size_t chunks) : chunks_(chunks), lanes_(threads) {
        for (std::size_t i = 0; i < threads; ++i) {
            lanes_[i].begin = chunks * i / threads;
            lanes_[i].end = chunks * (i + 1) / threads;
            lanes_[i].next.store(lanes_[i].end);
        }
        try {
            for (std::size_t i = 1; i < threads; ++i) workers_.emplace_back([this, i] { loop(i); });
        } catch (...) {  // the system gave no more threads
            end();
            throw;
        }
    }

    ThreadPool(const ThreadPool &) = delete;
    ThreadPool &operator=(const ThreadPool &) = delete;

    ~ThreadPool() { end(); }

    // Whether this process is a child of the one that started the workers.
    bool forked() const { return getpid() != owner_; }

    // Runs work(0) .. work(chunks - 1), each exactly once, and returns when all are done. `work` must not throw.
    void run(const Work &work) {
        if (workers_.empty() || forked()) {
            for (std::size_t chunk = 0; chunk < chunks_; ++chunk) work(chunk);
            return;
        }
        // Every chunk of the previous call is done here, so no thread reads `work_`. A worker that is late for that
        // call finds empty lanes, or takes chunks of this call, which is fine.
        work_ = &work;
        done_.store(0, std::memory_order_relaxed);
        for (Lane &lane : lanes_) lane.next.store(lane.begin, std::memory_order_release);
        epoch_.fetch_add(1);     // sequentially consistent, as is the read of sleepers_: either we see the sleeper,
        if (sleepers_.load()) {  // or it sees the new epoch
            const std::lock_guard<std::mutex> lock(mutex_);
            wake_.notify_all();
        }
        take_chunks(0);
        for (int spin = 0; !all_done(); ++spin) wait_briefly(spin);
    }

   private:
    static constexpr int spins = 2000;          // about ten microseconds, of a caller before it yields
    static constexpr int worker_spins = 20000;  // about 0.1 ms: in a tight loop the next call comes soon

    struct alignas(64) Lane {
        std::atomic<std::size_t> next{0};
        std::size_t begin = 0;
        std::size_t end = 0;
    };

    void end() {
        {
            const std::lock_guard<std::mutex> lock(mutex_);
            stop_ = true;
            epoch_.fetch_add(1);
        }
        wake_.notify_all();
        for (auto &worker : workers_) worker.join();
    }

    using Clock = std::chrono::steady_clock;

    bool all_done() const { return done_.load(std::memory_order_acquire) == chunks_; }

    // Lets another thread run from time to time: there may be more threads than free cores.
    static void wait_briefly(int spin) {
        if (spin % spins != spins - 1)
            pause_briefly();
        else
            std::this_thread::yield();
    }

    void take_chunks(std::size_t own) {
        const Clock::time_point start = Clock::now();
        take_chunks_of(lanes_[own]);
        const Clock::time_point end = Clock::now();
        for (int spin = 0; !all_done() && Clock::now() - end < end - start; ++spin) wait_briefly(spin);
        for (std::size_t k = 1; k < lanes_.size() && !all_done(); ++k)
            take_chunks_of(lanes_[(own + k) % lanes_.size()]);
    }

    void take_chunks_of(Lane &lane) {
        std::size_t taken = 0;
        while (lane.next.load(std::memory_order_relaxed) < lane.end) {
            const std::size_t chunk = lane.next.fetch_add(1, std::memory_order_acq_rel);
            if (chunk >= lane.end) break;
            (*work_)(chunk);
            ++taken;
        }
        if (taken != 0) done_.fetch_add(taken, std::memory_order_release);
    }

    void loop(std::size_t own) {
        std::uint64_t seen = 0;
        for (;;) {
            for (int spin = 0; spin < worker_spins && epoch_.load(std::memory_order_acquire) == seen; ++spin)
                pause_briefly();
            if (epoch_.load() == seen) {
                std::unique_lock<std::mutex> lock(mutex_);
                sleepers_.fetch_add(1);
                wake_.wait(lock, [&] { return epoch_.load() != seen; });
                sleepers_.fetch_sub(1);
            }
            seen = epoch_.load();
            if (stop_) return;
            take_chunks(own);
        }
    }

    const pid_t owner_ = getpid();
    const std::size_t chunks_;
    const Work *work_ = nullptr;
    std::vector<Lane> lanes_;
    alignas(64) std::atomic<std::size_t> done_{0};
    alignas(64) std::atomic<std::uint64_t> epoch_{0};
    std::atomic<int> sleepers_{0};
    std::atomic<bool> stop_{false};
    std::mutex mutex_;
    std::condition_variable wake_;
    std::vector<std::thread> workers_;
};

}  // namespace envs_c
