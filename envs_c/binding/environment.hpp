// What the binding knows of an environment: its constants and three functions over a range of its instances.
//
// Each header's table of type Environment is made from environment.cpp.in; registry.cpp.in lists them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace envs_c {

struct Episode {
    std::int32_t env;
    float score;
    float return_;
    std::int32_t length;  // decisions
};

// One vectorised step. Rows are agents: environment i owns rows [i * agents_per_env, (i + 1) * agents_per_env).
struct StepArrays {
    const std::int32_t *actions;
    float *observations;
    float *rewards;
    std::uint8_t *terminals;
    std::uint8_t *truncations;
    float *final_observations;  // may be null; only rows of truncated episodes are written
    std::int32_t frame_skip;
};

struct Environment {
    const char *name;
    const char *description;
    std::int32_t observation_size;
    std::int32_t num_actions;
    std::int32_t agents_per_env;
    double score_low;
    double score_high;
    double solved_score;
    std::int32_t max_frames;
    std::size_t state_size;

    void (*reset)(void *states, std::size_t begin, std::size_t end, std::uint64_t seed, float *observations);
    void (*step)(void *states, std::size_t begin, std::size_t end, const StepArrays &arrays, std::vector<Episode> &log);
};

// All environments that were built in, by name.
const std::vector<const Environment *> &environments();

}  // namespace envs_c
