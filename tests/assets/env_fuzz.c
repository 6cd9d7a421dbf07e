/* Plays one environment with random actions, each buffer in a block of its exact size, for the sanitizers to watch.
 *
 * Compile with -DENV=pong -DENV_UPPER=PONG -DENV_HEADER='"pong.h"', as C11 or C++17, and -DENV_CONTINUOUS or
 * -DENV_AGENTS_END_ALONE where the header says so; arguments: seed, frame skip, steps. Every output is filled with a
 * value that no environment writes before each step. Prints a hash of all outputs and the number of episodes; exits
 * with 1 where an output was left or is not what the contract allows.
 */
#include ENV_HEADER

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
#define STATE JOIN(ENV, _t)
#define AGENTS JOIN(ENV_UPPER, _AGENTS_PER_ENV)
#define FLOATS (AGENTS * JOIN(ENV_UPPER, _OBSERVATION_SIZE))

#ifdef ENV_CONTINUOUS
typedef float action_t;
enum { COMPONENTS = JOIN(ENV_UPPER, _CONTINUOUS_ACTIONS) };
#else
typedef int32_t action_t;
static const int32_t sizes[] = JOIN(ENV_UPPER, _ACTION_SIZES);
enum { COMPONENTS = (int)(sizeof sizes / sizeof *sizes) };
#endif

static action_t random_action(uint64_t *random, int component) {
#ifdef ENV_CONTINUOUS
    (void)component;
    return pcg32_symmetric(pcg32_next(random)) * 1.5f; /* some are to be clipped */
#else
    return (int32_t)(pcg32_next(random) % (uint32_t)sizes[component]);
#endif
}

static void *exact(size_t size) {
    void *block = malloc(size);
    if (block == NULL) abort();
    memset(block, 0xa5, size);
    return block;
}

static uint64_t hash(uint64_t sum, const void *data, size_t size) {
    const unsigned char *bytes = (const unsigned char *)data;
    for (size_t i = 0; i < size; ++i) sum = (sum ^ bytes[i]) * UINT64_C(1099511628211);
    return sum;
}

static int finite_floats(const float *values, size_t count) {
    for (size_t i = 0; i < count; ++i)
        if (!isfinite(values[i]) || fabsf(values[i]) > 1e6f) return 0;
    return 1;
}

static int allowed_episode(float score, float return_, int32_t length) {
    return score >= (float)JOIN(ENV_UPPER, _SCORE_LOW) && score <= (float)JOIN(ENV_UPPER, _SCORE_HIGH) &&
           isfinite(return_) && length > 0;
}

int main(int argc, char **argv) {
    if (argc != 4) return 2;
    const uint64_t seed = strtoull(argv[1], NULL, 10);
    const int32_t frame_skip = (int32_t)strtol(argv[2], NULL, 10);
    const long steps = strtol(argv[3], NULL, 10);

    STATE *env = (STATE *)exact(sizeof(STATE));
    action_t *actions = (action_t *)exact(AGENTS * COMPONENTS * sizeof(action_t));
    float *observations = (float *)exact(FLOATS * sizeof(float));
    float *rewards = (float *)exact(AGENTS * sizeof(float));
    uint8_t *terminals = (uint8_t *)exact(AGENTS);
    uint8_t *truncations = (uint8_t *)exact(AGENTS);
    memset(env, 0, sizeof(STATE));
    JOIN(ENV, _seed)(env, seed, 0);
    JOIN(ENV, _reset)(env, observations);

    uint64_t sum = hash(UINT64_C(14695981039346656037), observations, FLOATS * sizeof(float));
    uint64_t random = pcg32_seed(seed, 1);
    long episodes = 0;
    for (long step = 0; step < steps; ++step) {
        /* Each action is kept for a while, so that walls and corners are reached. */
        for (int i = 0; i < AGENTS * COMPONENTS; ++i)
            if (step == 0 || pcg32_next(&random) % 8u == 0u) actions[i] = random_action(&random, i % COMPONENTS);
        for (int i = 0; i < FLOATS; ++i) observations[i] = NAN;
        for (int i = 0; i < AGENTS; ++i) rewards[i] = NAN;
        memset(terminals, 0xa5, AGENTS);
        memset(truncations, 0xa5, AGENTS);
        JOIN(ENV, _step)(env, actions, frame_skip, observations, rewards, terminals, truncations);
        if (!finite_floats(observations, FLOATS) || !finite_floats(rewards, AGENTS)) return 1;
        for (int i = 0; i < AGENTS; ++i)
            if (terminals[i] + truncations[i] > 1) return 1;
        sum = hash(sum, observations, FLOATS * sizeof(float));
        sum = hash(sum, rewards, AGENTS * sizeof(float));
        sum = hash(sum, terminals, AGENTS);
        sum = hash(sum, truncations, AGENTS);
#ifdef ENV_AGENTS_END_ALONE
        for (int i = 0; i < AGENTS; ++i) {
            float score = NAN, return_ = NAN;
            int32_t length = 0;
            float *observation = observations + i * JOIN(ENV_UPPER, _OBSERVATION_SIZE);
            if (!terminals[i] && !truncations[i]) continue;
            JOIN(ENV, _episode)(env, i, &score, &return_, &length);
            if (!allowed_episode(score, return_, length)) return 1;
            ++episodes;
            JOIN(ENV, _respawn)(env, i, observation);
        }
#else
        for (int i = 1; i < AGENTS; ++i)
            if (terminals[i] != terminals[0] || truncations[i] != truncations[0]) return 1;
        if (terminals[0] || truncations[0]) {
            float scores[AGENTS], returns[AGENTS];
            int32_t lengths[AGENTS];
            JOIN(ENV, _episode)(env, scores, returns, lengths);
            for (int i = 0; i < AGENTS; ++i)
                if (!allowed_episode(scores[i], returns[i], lengths[i])) return 1;
            episodes += AGENTS;
            JOIN(ENV, _reset)(env, observations);
        }
#endif
        if (!finite_floats(observations, FLOATS)) return 1;
        sum = hash(sum, observations, FLOATS * sizeof(float));
    }
    printf("%016llx %ld\n", (unsigned long long)sum, episodes);
    free(env);
    free(actions);
    free(observations);
    free(rewards);
    free(terminals);
    free(truncations);
    return 0;
}
