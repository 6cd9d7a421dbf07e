/* Template: walk along a line of cells to a target. (State the task here in one sentence.)
 *
 * Then all rules, so that the same game could be written from this comment alone. Here: a line of TEMPLATE_CELLS cells.
 * The player starts in the middle. The target is any other cell, all equally likely. A step beyond the line's end does
 * nothing.
 *
 * Observation (float32 x 2):
 *   0  the player's cell, from -1 at the left end to 1   [-1, 1]
 *   1  the target's cell, in the same way                [-1, 1]
 * Actions: 0 left, 1 right, repeated for `frame_skip` frames. Any other value is the caller's error.
 * Reward: 1 at the target, 0 before.
 * Ends: terminal at the target; truncated after TEMPLATE_MAX_FRAMES frames that did not lead there. A step stops at the
 *   frame that ends the episode. Score of an episode: 1 or 0, as the reward; random actions score about 0.7.
 * Solved: TEMPLATE_SOLVED_SCORE: (why this figure? Here: the target is never more than half a line away, so every walk
 *   towards it arrives. A twentieth is left for the randomness of a policy in training.)
 * Call order: template_seed once, template_reset, then template_step until it ends, template_episode if wanted,
 *   template_reset, template_step ...
 * RNG draws (state in the struct): one per reset, the target. Buffers are borrowed for the call; every call writes
 *   every element of each output that it is given. No allocation, no output, no exit. Arithmetic is +, -, * and
 *   comparison, so a trajectory repeats bit for bit on every IEEE machine.
 *
 * Source: (where the game is from, if it is not yours.)
 */
#ifndef PROTEIN_TEMPLATE_H
#define PROTEIN_TEMPLATE_H

#include <assert.h>
#include <stdint.h>

#include "pcg32.h"

/* What the binding and `envs_c.spec` read. The description is one line of `protein envs`. */
#define TEMPLATE_DESCRIPTION "walk along a line of cells to a target"
#define TEMPLATE_OBSERVATION_SIZE 2
#define TEMPLATE_ACTION_SIZES {2} /* one component of two choices; {5, 3} would be two components */
#define TEMPLATE_AGENTS_PER_ENV 1
#define TEMPLATE_SCORE_LOW 0.0
#define TEMPLATE_SCORE_HIGH 1.0
#define TEMPLATE_SOLVED_SCORE 0.95
#define TEMPLATE_MAX_FRAMES 20

/* The game's own constants, with their units. */
#define TEMPLATE_CELLS 9
#define TEMPLATE_MIDDLE 4 /* (TEMPLATE_CELLS - 1) / 2 */

/* The whole state of the game: no pointers, nothing outside it. Order members by size, so that there are no padding
 * bytes between or behind them: checkpoints store the struct's bytes, and states are compared by them. */
typedef struct template_t {
    uint64_t rng;
    int32_t player;    /* cell, counted from the left */
    int32_t target;    /* cell */
    int32_t frames;    /* since the episode began */
    int32_t decisions; /* steps since the episode began */
} template_t;

/* What a page draws; `each(array, member)` is for members of structs. */
#define TEMPLATE_SHOWN(field, each) field(player) field(target) field(frames)

/* Writes every element, directly into the caller's row: numbers of order 1, which suit a network. */
static inline void template_observe(const template_t *env, float *observation) {
    observation[0] = (float)(env->player - TEMPLATE_MIDDLE) * (1.0f / TEMPLATE_MIDDLE);
    observation[1] = (float)(env->target - TEMPLATE_MIDDLE) * (1.0f / TEMPLATE_MIDDLE);
}

/* One frame of the game. */
static inline void template_frame(template_t *env, int32_t move) {
    const int32_t to = env->player + move;
    env->player = to >= 0 && to < TEMPLATE_CELLS ? to : env->player;
    env->frames += 1;
}

/* Seeds the environment's generator: the same (seed, index) replays the same games. */
static inline void template_seed(template_t *env, uint64_t seed, uint64_t index) {
    assert(env);
    env->rng = pcg32_seed(seed, index);
}

/* Begins an episode. It may be called in any state, so it sets every member except `rng`, which continues. */
static inline void template_reset(template_t *env, float *observation) {
    assert(env && observation);
    /* An integer below n from 32 bits: multiply and take the upper half. */
    const uint32_t draw = (uint32_t)(((uint64_t)pcg32_next(&env->rng) * (TEMPLATE_CELLS - 1)) >> 32);
    env->player = TEMPLATE_MIDDLE;
    env->target = (int32_t)draw + ((int32_t)draw >= TEMPLATE_MIDDLE);
    env->frames = 0;
    env->decisions = 0;
    template_observe(env, observation);
}

/* One decision: `frame_skip` frames, at least 1, or fewer where the episode ends. The binding has checked the action.
 * If the episode ends, the observation is its last one; the binding keeps it and calls reset. */
static inline void template_step(template_t *env, const int32_t *action, int32_t frame_skip, float *observation,
                                 float *reward, uint8_t *terminal, uint8_t *truncation) {
    assert(env && action && observation && reward && terminal && truncation && frame_skip >= 1);
    assert(*action >= 0 && *action < 2);
    assert(env->frames < TEMPLATE_MAX_FRAMES); /* an episode that has ended is followed by reset */
    const int32_t move = *action == 0 ? -1 : 1;
    const int32_t rest = TEMPLATE_MAX_FRAMES - env->frames;
    int over = 0;
    for (int32_t left = frame_skip < rest ? frame_skip : rest; left > 0 && !over; --left) {
        template_frame(env, move);
        over = env->player == env->target;
    }
    env->decisions += 1;
    template_observe(env, observation);
    *reward = (float)over;
    *terminal = (uint8_t)over;
    /* The time limit is not part of the game: a state at which it ends the episode is not worth 0, so it is not
     * terminal. */
    *truncation = (uint8_t)(!over && env->frames >= TEMPLATE_MAX_FRAMES);
}

/* Writes score, undiscounted return and length in steps of the episode that the last step ended. */
static inline void template_episode(const template_t *env, float *score, float *return_, int32_t *length) {
    assert(env && score && return_ && length);
    *score = (float)(env->player == env->target);
    *return_ = *score;
    *length = env->decisions;
}

#endif
