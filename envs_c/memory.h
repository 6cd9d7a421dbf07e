/* Memory: a symbol is shown once, meaningless others follow, and at the end the first one is asked for.
 *
 * Frame 0 shows the cue, one of MEMORY_SYMBOLS symbols, all equally likely. Then come between MEMORY_DELAY_MIN and
 * MEMORY_DELAY_MAX frames of distractors, each length equally likely: each shows, with equal probability, nothing or
 * any symbol, without the cue's mark. Then comes the question, which looks the same in every episode. The action at the
 * question is the answer and ends the episode. All other actions do nothing.
 *
 * Observation (float32 x 6), each 0 or 1:
 *   0-3  the symbol that is shown, one-hot; all 0 where none is
 *   4    mark of the cue: 1 in an episode's first observation alone
 *   5    mark of the question: 1 in an episode's last observation alone
 * Actions: 0 to 3, a symbol, held for `frame_skip` frames; only the one at the question counts. Any other value is the
 *   caller's error.
 * Reward: 1 for the right answer, 0 for a wrong one and for every step before it.
 * Ends: terminal with the answer, MEMORY_DELAY_MAX + 2 frames after the beginning at the latest; never truncated. A
 *   step stops at the frame that shows the question, so it is seen and answered at any frame skip. Score of an episode:
 *   1 or 0, as the reward.
 *
 * What is possible: 1 for a policy that remembers. A policy whose action depends only on the time and on the last
 *   MEMORY_DELAY_MIN + 1 observations or fewer (at frame skip 1), random or not, expects exactly 1 / MEMORY_SYMBOLS. At
 *   the question it sees only distractors and the question. These are drawn independently of the cue, and no action
 *   changes them. So its answer is independent of the cue, and the cue is uniform. No action leaves a trace that a
 *   policy could read later: only memory helps.
 * Solved: MEMORY_SOLVED_SCORE, which a policy that remembers reaches although it still explores: answers drawn from a
 *   policy that is 96 % sure are right 96 % of the time.
 * Call order: memory_seed once, memory_reset, then memory_step until it ends, memory_episode if wanted, memory_reset,
 *   memory_step ...
 * RNG draws (state in the struct): one per reset (cue and delay), one per frame of distractors. Buffers are borrowed
 *   for the call; every call writes every element of each output that it is given. No allocation, no output, no exit. A
 *   trajectory repeats bit for bit on every machine.
 *
 * Source: the task is the shortest form of the delayed match to a cue; with a corridor in place of the delay it is the
 * T-maze of B. Bakker, "Reinforcement learning with long short-term memory", NIPS 2001. There a policy without memory
 * could store the cue in the position that it walks to; here it cannot.
 */
#ifndef PROTEIN_MEMORY_H
#define PROTEIN_MEMORY_H

#include <assert.h>
#include <stdint.h>

#include "pcg32.h"

#define MEMORY_DESCRIPTION "recall a symbol that was shown up to 30 frames ago"
#define MEMORY_OBSERVATION_SIZE 6
#define MEMORY_ACTION_SIZES {4}
#define MEMORY_AGENTS_PER_ENV 1
#define MEMORY_SCORE_LOW 0.0
#define MEMORY_SCORE_HIGH 1.0
#define MEMORY_SOLVED_SCORE 0.95
#define MEMORY_MAX_FRAMES 32 /* MEMORY_DELAY_MAX + 2 */

#define MEMORY_SYMBOLS 4
#define MEMORY_DELAY_MIN 10
#define MEMORY_DELAY_MAX 30

typedef struct memory_t {
    uint64_t rng;
    int32_t cue;
    int32_t shown;         /* the symbol that the observation shows; MEMORY_SYMBOLS is none */
    int32_t frames_to_ask; /* until the question is shown; 0 while it is */
    int32_t frames;        /* since the episode began */
    int32_t decisions;     /* steps since the episode began */
    int32_t right;         /* whether the answer was */
} memory_t;

/* What a page draws. */
#define MEMORY_SHOWN(field, each) field(cue) field(shown) field(frames_to_ask) field(right) field(frames)

/* Returns an integer from 0 to `count` - 1, uniform to count / 2^32. */
static inline int32_t memory_draw(memory_t *env, uint32_t count) {
    return (int32_t)(((uint64_t)pcg32_next(&env->rng) * count) >> 32);
}

static inline void memory_observe(const memory_t *env, float *observation) {
    for (int32_t symbol = 0; symbol < MEMORY_SYMBOLS; ++symbol) observation[symbol] = (float)(env->shown == symbol);
    observation[4] = (float)(env->frames == 0);
    observation[5] = (float)(env->frames_to_ask == 0);
}

/* Seeds the environment's generator: the same (seed, index) replays the same games. */
static inline void memory_seed(memory_t *env, uint64_t seed, uint64_t index) {
    assert(env);
    env->rng = pcg32_seed(seed, index);
}

static inline void memory_reset(memory_t *env, float *observation) {
    assert(env && observation);
    const int32_t delays = MEMORY_DELAY_MAX - MEMORY_DELAY_MIN + 1;
    const int32_t draw = memory_draw(env, (uint32_t)(MEMORY_SYMBOLS * delays));
    env->cue = draw / delays;
    env->shown = env->cue;
    env->frames_to_ask = MEMORY_DELAY_MIN + draw % delays + 1;
    env->frames = 0;
    env->decisions = 0;
    env->right = 0;
    memory_observe(env, observation);
}

static inline void memory_step(memory_t *env, const int32_t *action, int32_t frame_skip, float *observation,
                               float *reward, uint8_t *terminal, uint8_t *truncation) {
    assert(env && action && observation && reward && terminal && truncation && frame_skip >= 1);
    assert(*action >= 0 && *action < 4);
    assert(env->frames < MEMORY_MAX_FRAMES); /* an episode that has ended is followed by reset */
    const int over = env->frames_to_ask == 0;
    env->right = over && *action == env->cue;
    env->decisions += 1;
    if (over) {
        env->frames += 1;
    } else {
        for (int32_t left = frame_skip; left > 0 && env->frames_to_ask > 0; --left) {
            env->frames += 1;
            env->frames_to_ask -= 1;
            env->shown = env->frames_to_ask > 0 ? memory_draw(env, MEMORY_SYMBOLS + 1) : MEMORY_SYMBOLS;
        }
    }
    memory_observe(env, observation);
    *reward = (float)env->right;
    *terminal = (uint8_t)over;
    *truncation = 0;
}

/* Writes score, undiscounted return and length in steps of the episode that the last step ended. */
static inline void memory_episode(const memory_t *env, float *score, float *return_, int32_t *length) {
    assert(env && score && return_ && length);
    *score = (float)env->right;
    *return_ = *score;
    *length = env->decisions;
}

#endif
