// N instances of one environment, stepped together over the caller's buffers. Knows no Python.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "environment.hpp"
#include "thread_pool.hpp"

namespace envs_c {

class VecEnv {
   public:
    VecEnv(const Environment &environment, std::size_t num_envs, std::uint64_t seed, std::int32_t frame_skip,
           std::size_t threads, std::uint64_t first_index);
    ~VecEnv();

    const Environment &environment() const { return environment_; }
    std::size_t num_envs() const { return num_envs_; }
    std::size_t num_agents() const { return num_envs_ * environment_.agents_per_env; }
    std::int32_t frame_skip() const { return frame_skip_; }
    std::size_t threads() const { return threads_; }

    // Seeds every instance anew, starts its first episode and forgets the episodes that were not drained.
    void reset(std::uint64_t seed, void *observations);

    // Steps every instance. Throws std::invalid_argument, before anything has moved, where an action is out of range
    // or not finite.
    void step(StepArrays arrays);

    // Writes the next action of every agent whose script, of `scripts`, is not -1. Changes no instance. Throws
    // std::invalid_argument, before anything is written, for a script that there is none of.
    void act(const std::int32_t *scripts, void *actions);

    // Returns the episodes that have finished since the last call, in order of (step, agent).
    std::vector<Episode> drain_episodes();

    // Whose agents act in the next step, a row each, which every call writes anew; null: always all of them.
    const std::uint8_t *playing() const { return playing_.empty() ? nullptr : playing_.data(); }

    // The whole state, and the episodes that were not drained; valid for this build of the library.
    std::string get_state();
    // Throws std::invalid_argument where the bytes are not a state of this environment, size and frame skip.
    void set_state(const std::string &bytes);

   private:
    void write_playing();

    const Environment &environment_;
    const std::size_t num_envs_;
    const std::int32_t frame_skip_;
    const std::size_t threads_;
    const std::uint64_t first_index_;
    const std::size_t chunk_envs_;
    const std::size_t num_chunks_;
    std::vector<std::uint64_t> storage_;      // the instances; 64-bit words give the alignment
    std::vector<std::vector<Episode>> logs_;  // one a chunk, empty between steps
    std::vector<Episode> episodes_;
    std::vector<std::uint8_t> playing_;  // empty where agents do not come and go
    std::mutex mutex_;                   // one call at a time; others wait
    std::unique_ptr<ThreadPool> pool_;
};

}  // namespace envs_c
