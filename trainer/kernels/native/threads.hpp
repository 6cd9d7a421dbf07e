// The instruction set that is used, and the threads that share a kernel's work.
#pragma once

#include <algorithm>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <vector>

#include "kernels.hpp"
#include "thread_pool.hpp"

namespace protein {

inline std::vector<const Kernels *> usable() {
    std::vector<const Kernels *> found{&baseline_kernels};
#ifdef PROTEIN_X86
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) found.push_back(&avx2_kernels);
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl"))
        found.push_back(&avx512_kernels);
#endif
    return found;
}

inline const Kernels *kernels = usable().back();

// Chunks of a call. There are more of them than threads, so that a delayed thread does not delay all. Their number is
// fixed, so that sums over chunks do not depend on the number of threads.
constexpr size_t chunks = 16;

inline std::mutex mutex;  // guards everything below: one call at a time uses the threads
inline size_t num_threads = 1;
inline envs_c::ThreadPool *pool = nullptr;  // leaked at exit and in a forked child: see thread_pool.hpp

inline void set_threads(size_t threads) {
    if (threads < 1) throw std::invalid_argument("threads must be at least 1");
    const std::lock_guard<std::mutex> lock(mutex);
    if (threads == num_threads) return;
    if (pool && !pool->forked()) delete pool;
    pool = nullptr;
    num_threads = 1;
    if (threads > 1) pool = new envs_c::ThreadPool(threads, chunks);
    num_threads = threads;
}

// The least number of multiply-adds for which threads are worth waking: about 0.2 ms of one thread. Where processors
// are shared, a call lasts until the last thread has run, so one thread does small calls faster.
inline bool worth_threads(size_t products) { return products >= 16'000'000; }

// Whether several threads share work that is worth waking them.
inline bool shared(bool threaded) { return threaded && num_threads > 1; }

// Calls work(chunk) for 0 .. used - 1, at most `chunks`; `threaded`: waking the other threads is worth it.
template <typename Work>
void run(size_t used, bool threaded, const Work &work) {
    if (used < 2 || !shared(threaded)) {
        for (size_t chunk = 0; chunk < used; ++chunk) work(chunk);
        return;
    }
    const std::lock_guard<std::mutex> lock(mutex);
    pool->run([&](size_t chunk) {
        if (chunk < used) work(chunk);
    });
}

// Calls work(begin, end, chunk) on parts of 0 .. size, all but the last multiples of 16 in length. Where `size` is less
// than `grain`, waking other threads is not worth it, and one thread does everything.
template <typename Work>
void split(size_t size, size_t grain, const Work &work) {
    if (size < grain || num_threads == 1) {
        work(size_t{0}, size, size_t{0});
        return;
    }
    const size_t part = ((size + chunks - 1) / chunks + 15) / 16 * 16;
    run((size + part - 1) / part, true,
        [&](size_t chunk) { work(chunk * part, std::min(size, chunk * part + part), chunk); });
}

using Floats = std::unique_ptr<float[]>;  // not zeroed

// As `split`, but the parts depend only on the size, so that a sum over them is the same for any number of threads.
// Returns the number of parts.
template <typename Work>
size_t parts(size_t size, bool threaded, const Work &work) {
    constexpr size_t least = 96;
    const size_t part = std::max(least, (size + chunks - 1) / chunks), used = (size + part - 1) / part;
    run(used, threaded, [&](size_t chunk) { work(chunk * part, std::min(size, chunk * part + part), chunk); });
    return used;
}

// Sums `used` parts of `size` floats each, which follow each other, into the first.
inline void sum_parts(float *sums, size_t used, size_t size) {
    split(size, 65536, [&](size_t begin, size_t end, size_t) {
        for (size_t part = 1; part < used; ++part) {
            const float *more = sums + part * size;
            for (size_t i = begin; i < end; ++i) sums[i] += more[i];
        }
    });
}

}  // namespace protein
