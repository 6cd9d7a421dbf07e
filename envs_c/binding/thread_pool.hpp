// A pool that splits one call into numbered chunks. The caller works too, so that a call never waits for a thread to
// wake up: whoever is free takes the next chunk. Which thread runs a chunk is open; what a chunk does must not depend
// on it.
//
// Workers spin for a moment after a call and then sleep, so that a tight loop of calls pays no wake-up and an idle pool
// uses no processor. After a fork the child has no workers, and its caller does every chunk itself.
#pragma once

#include <atomic>
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
    ThreadPool(std::size_t threads, std::size_t chunks) : chunks_(chunks), ticket_(chunks) {
        for (std::size_t i = 1; i < threads; ++i) workers_.emplace_back([this] { loop(); });
    }

    ThreadPool(const ThreadPool &) = delete;
    ThreadPool &operator=(const ThreadPool &) = delete;

    ~ThreadPool() {
        {
            const std::lock_guard<std::mutex> lock(mutex_);
            stop_ = true;
            epoch_.fetch_add(1);
        }
        wake_.notify_all();
        for (auto &worker : workers_) worker.join();
    }

    // Runs work(0) .. work(chunks - 1), each exactly once, and returns when all are done. `work` must not throw.
    void run(const Work &work) {
        if (workers_.empty()) {
            for (std::size_t chunk = 0; chunk < chunks_; ++chunk) work(chunk);
            return;
        }
        // Every chunk of the call before is done here, so nobody holds a ticket and reads `work_`.
        work_ = &work;
        done_.store(0, std::memory_order_relaxed);
        ticket_.store(0, std::memory_order_release);
        epoch_.fetch_add(1);     // sequentially consistent, as is the read of sleepers_: either we see the sleeper,
        if (sleepers_.load()) {  // or it sees the new epoch
            const std::lock_guard<std::mutex> lock(mutex_);
            wake_.notify_all();
        }
        take_chunks();
        while (done_.load(std::memory_order_acquire) != chunks_) pause_briefly();
    }

   private:
    static constexpr int spins = 2000;  // some ten microseconds

    void take_chunks() {
        for (;;) {
            const std::size_t chunk = ticket_.fetch_add(1, std::memory_order_acq_rel);
            if (chunk >= chunks_) return;
            (*work_)(chunk);
            done_.fetch_add(1, std::memory_order_release);
        }
    }

    void loop() {
        std::uint64_t seen = 0;
        for (;;) {
            for (int spin = 0; spin < spins && epoch_.load(std::memory_order_acquire) == seen; ++spin) pause_briefly();
            if (epoch_.load() == seen) {
                std::unique_lock<std::mutex> lock(mutex_);
                sleepers_.fetch_add(1);
                wake_.wait(lock, [&] { return epoch_.load() != seen; });
                sleepers_.fetch_sub(1);
            }
            seen = epoch_.load();
            if (stop_) return;
            take_chunks();
        }
    }

    const std::size_t chunks_;
    const Work *work_ = nullptr;
    alignas(64) std::atomic<std::size_t> ticket_;
    alignas(64) std::atomic<std::size_t> done_{0};
    alignas(64) std::atomic<std::uint64_t> epoch_{0};
    std::atomic<int> sleepers_{0};
    std::atomic<bool> stop_{false};
    std::mutex mutex_;
    std::condition_variable wake_;
    std::vector<std::thread> workers_;
};

}  // namespace envs_c
