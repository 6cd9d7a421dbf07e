// What the binding knows about an environment: its constants, and three functions over many of its instances.
//
// Each header's table of type Environment is made from environment.cpp.in; registry.cpp.in lists them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace envs_c {

struct Episode {
    std::int32_t agent;  // its row
    float score;
    float return_;
    std::int32_t length;  // decisions
};

// One vectorised step. Rows are agents: environment i owns rows [i * agents_per_env, (i + 1) * agents_per_env).
struct StepArrays {
    const void *actions;  // rows x action_components: int32 where actions are discrete, else float
    void *observations;   // rows x observation_size: float, or bytes where observation_high is not 0
    float *rewards;
    std::uint8_t *terminals;
    std::uint8_t *truncations;
    void *final_observations;  // may be null; only rows of truncated agents are written ...
    bool all_finals;           // ... and, where this is true, those of agents that are terminal
    std::int32_t frame_skip;
    std::uint8_t *playing = nullptr;  // whose agents act in this step, then in the next; null: always all of them
};

struct Environment {
    const char *name;
    const char *description;
    std::size_t observation_size;  // the product of the shape
    const std::int32_t *observation_shape;
    std::size_t observation_dimensions;
    std::int32_t observation_high;  // the largest byte of an observation; 0: observations are floats
    std::size_t action_components;
    const std::int32_t *action_sizes;  // choices of each component; null where actions are continuous
    std::size_t agents_per_env;
    std::size_t sides;           // that play against each other; agent k is of side k * sides / agents_per_env
    const char *const *scripts;  // players that are part of the environment, the weakest first; null: there are none
    std::size_t num_scripts;
    const double *script_ratings;  // Elo's, fixed; null: scripts cannot be compared by who wins
    double score_low;
    double score_high;
    double solved_score;
    std::int32_t max_frames;
    std::size_t state_size;

    // Whether the environment accepts every action of `rows` agents: in range, or finite.
    bool (*takes)(const void *actions, std::size_t rows);
    // Instance i draws its randomness from (seed, first_index + i).
    void (*reset)(void *states, std::size_t begin, std::size_t end, std::uint64_t seed, std::uint64_t first_index,
                  void *observations);
    void (*step)(void *states, std::size_t begin, std::size_t end, const StepArrays &arrays, std::vector<Episode> &log);
    // Writes the next action of every agent whose script is not -1; null where there are no scripts.
    void (*act)(const void *states, std::size_t num_envs, const std::int32_t *scripts, void *actions);
    // Writes whose agents act in the next step, a row each; null where agents do not come and go.
    void (*playing)(const void *states, std::size_t begin, std::size_t end, std::uint8_t *rows);
};

// All environments that were built in, by name.
const std::vector<const Environment *> &environments();

}  // namespace envs_c
