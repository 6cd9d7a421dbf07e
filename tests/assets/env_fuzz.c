/* Plays one environment with random actions, each buffer in a block of its exact size, for the sanitizers to watch.
 *
 * Compile with -DENV=pong -DENV_UPPER=PONG -DENV_HEADER='"pong.h"', as C11 or C++17, and -DENV_CONTINUOUS or
 * -DENV_AGENTS_END_ALONE, -DENV_AGENTS_COME_AND_GO where the header says so; arguments: seed, frame skip, steps. Every output is filled with a
 * value that no environment writes before each call. Prints a hash of all outputs and the number of episodes; exits
 * with 1 where an output was left or is not what the contract allows, or where actions were changed.
 *
 * With -DFENCE=0 or 1 each block lies between pages that nobody may touch, at the beginning (0) or the end (1) of its
 * own pages, and the rest of these must stay as it was: so stray accesses of the optimised code are seen as well, which
 * no sanitizer looks at.
 */
#ifdef FENCE
#define _DEFAULT_SOURCE 1 /* MAP_ANONYMOUS */
#endif

#include ENV_HEADER

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef FENCE
#include <sys/mman.h>
#include <unistd.h>
#endif

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
#define STATE JOIN(ENV, _t)
#define AGENTS JOIN(ENV_UPPER, _AGENTS_PER_ENV)
#define VALUES (AGENTS * JOIN(ENV_UPPER, _OBSERVATION_SIZE))

#ifdef ENV_BYTES
typedef uint8_t value_t; /* of an observation; the environment says the largest, and what it left unwritten is larger */
#else
typedef float value_t;
#endif

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

enum { MAX_BLOCKS = 8, RUBBISH = 0xa5 };

#ifdef FENCE
static struct {
    unsigned char *pages, *block;
    size_t room, size;
} blocks[MAX_BLOCKS];
static int num_blocks = 0;

static void *exact(size_t size) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), room = (size + page - 1) / page * page;
    unsigned char *fence = (unsigned char *)mmap(NULL, room + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (fence == MAP_FAILED || mprotect(fence + page, room, PROT_READ | PROT_WRITE) != 0) abort();
    unsigned char *block = fence + page + (FENCE ? room - size : 0);
    memset(fence + page, RUBBISH, room);
    blocks[num_blocks].pages = fence + page;
    blocks[num_blocks].block = block;
    blocks[num_blocks].room = room;
    blocks[num_blocks].size = size;
    ++num_blocks;
    return block;
}

static int rest_is_untouched(void) {
    for (int i = 0; i < num_blocks; ++i)
        for (unsigned char *byte = blocks[i].pages; byte < blocks[i].pages + blocks[i].room; ++byte)
            if ((byte < blocks[i].block || byte >= blocks[i].block + blocks[i].size) && *byte != RUBBISH) return 0;
    return 1;
}

static void release(void *block) { (void)block; }
#else
static void *exact(size_t size) {
    void *block = malloc(size);
    if (block == NULL) abort();
    memset(block, RUBBISH, size);
    return block;
}

static int rest_is_untouched(void) { return 1; }

static void release(void *block) { free(block); }
#endif

/* FNV-1a over words of 32 bits, the last one filled up. */
static uint64_t hash(uint64_t sum, const void *data, size_t size) {
    const unsigned char *bytes = (const unsigned char *)data;
    for (size_t i = 0; i < size; i += 4) {
        uint32_t word = 0;
        memcpy(&word, bytes + i, size - i < 4 ? size - i : 4);
        sum = (sum ^ word) * UINT64_C(1099511628211);
    }
    return sum;
}

static void rub_out(float *values, size_t count) {
    for (size_t i = 0; i < count; ++i) values[i] = NAN;
}

static int finite_floats(const float *values, size_t count) {
    for (size_t i = 0; i < count; ++i)
        if (!isfinite(values[i]) || fabsf(values[i]) > 1e6f) return 0;
    return 1;
}

#ifdef ENV_BYTES
static void rub_out_values(value_t *values, size_t count) { memset(values, UINT8_MAX, count); }

static int written(const value_t *values, size_t count) {
    for (size_t i = 0; i < count; ++i)
        if (values[i] > JOIN(ENV_UPPER, _OBSERVATION_BYTES)) return 0;
    return 1;
}
#else
static void rub_out_values(value_t *values, size_t count) { rub_out(values, count); }

static int written(const value_t *values, size_t count) { return finite_floats(values, count); }
#endif

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
    value_t *observations = (value_t *)exact(VALUES * sizeof(value_t));
    float *rewards = (float *)exact(AGENTS * sizeof(float));
    uint8_t *terminals = (uint8_t *)exact(AGENTS);
    uint8_t *truncations = (uint8_t *)exact(AGENTS);
    action_t given[AGENTS * COMPONENTS];
    uint8_t playing[AGENTS];
    memset(env, 0, sizeof(STATE));
    rub_out_values(observations, VALUES);
    JOIN(ENV, _seed)(env, seed, 0);
    JOIN(ENV, _reset)(env, observations);
    if (!written(observations, VALUES)) return 1;

    uint64_t sum = hash(UINT64_C(14695981039346656037), observations, VALUES * sizeof(value_t));
    uint64_t random = pcg32_seed(seed, 1);
    long episodes = 0;
    for (long step = 0; step < steps; ++step) {
        /* Each action is kept for a while, so that walls and corners are reached. */
        for (int i = 0; i < AGENTS * COMPONENTS; ++i)
            if (step == 0 || pcg32_next(&random) % 8u == 0u) actions[i] = random_action(&random, i % COMPONENTS);
        memcpy(given, actions, sizeof given);
        memset(playing, 1, sizeof playing);
#ifdef ENV_AGENTS_COME_AND_GO
        for (int i = 0; i < AGENTS; ++i) playing[i] = JOIN(ENV, _playing)(env, i);
#endif
        rub_out_values(observations, VALUES);
        rub_out(rewards, AGENTS);
        memset(terminals, RUBBISH, AGENTS);
        memset(truncations, RUBBISH, AGENTS);
        JOIN(ENV, _step)(env, actions, frame_skip, observations, rewards, terminals, truncations);
        if (!written(observations, VALUES) || !finite_floats(rewards, AGENTS)) return 1;
        if (memcmp(given, actions, sizeof given) != 0) return 1;
        for (int i = 0; i < AGENTS; ++i)
            if (terminals[i] + truncations[i] > 1 || (!playing[i] && rewards[i] != 0.0f)) return 1;
        sum = hash(sum, observations, VALUES * sizeof(value_t));
        sum = hash(sum, rewards, AGENTS * sizeof(float));
        sum = hash(sum, terminals, AGENTS);
        sum = hash(sum, truncations, AGENTS);
#ifdef ENV_AGENTS_END_ALONE
        for (int i = 0; i < AGENTS; ++i) {
            float score = NAN, return_ = NAN;
            int32_t length = 0;
            value_t *observation = observations + i * JOIN(ENV_UPPER, _OBSERVATION_SIZE);
            if ((!terminals[i] && !truncations[i]) || !playing[i]) continue;
            JOIN(ENV, _episode)(env, i, &score, &return_, &length);
            if (!allowed_episode(score, return_, length)) return 1;
            ++episodes;
            rub_out_values(observation, JOIN(ENV_UPPER, _OBSERVATION_SIZE));
            JOIN(ENV, _respawn)(env, i, observation);
            if (!written(observation, JOIN(ENV_UPPER, _OBSERVATION_SIZE))) return 1;
            sum = hash(sum, observation, JOIN(ENV_UPPER, _OBSERVATION_SIZE) * sizeof(value_t));
        }
#else
        for (int i = 1; i < AGENTS; ++i)
            if (terminals[i] != terminals[0] || truncations[i] != truncations[0]) return 1;
        if (terminals[0] || truncations[0]) {
            float scores[AGENTS], returns[AGENTS];
            int32_t lengths[AGENTS];
            rub_out(scores, AGENTS);
            rub_out(returns, AGENTS);
            memset(lengths, 0, sizeof lengths);
            JOIN(ENV, _episode)(env, scores, returns, lengths);
            for (int i = 0; i < AGENTS; ++i)
                if (!allowed_episode(scores[i], returns[i], lengths[i])) return 1;
            episodes += AGENTS;
            rub_out_values(observations, VALUES);
            JOIN(ENV, _reset)(env, observations);
            if (!written(observations, VALUES)) return 1;
            sum = hash(sum, observations, VALUES * sizeof(value_t));
        }
#endif
    }
    if (!rest_is_untouched()) return 1;
    printf("%016llx %ld\n", (unsigned long long)sum, episodes);
    release(env);
    release(actions);
    release(observations);
    release(rewards);
    release(terminals);
    release(truncations);
    return 0;
}
