/* Cartpole: keep a pole upright on a cart by pushing the cart to the left or to the right.
 *
 * The classic task, in its usual form: Euler steps of 0.02 s, a push of 10 N, gravity 9.8 m/s^2, a cart of 1 kg, a pole
 * of 0.1 kg whose centre is 0.5 m from the pivot, no friction.
 *
 * Observation (float32 x 4), with the ranges while the episode continues:
 *   0  cart's position, m                 [-2.4, 2.4]
 *   1  cart's velocity, m/s               unbounded; the episode ends before it reaches 10
 *   2  pole's angle, rad, right positive  [-0.20943951, 0.20943951] (12 degrees)
 *   3  pole's angular velocity, rad/s     unbounded; the episode ends before it reaches 10
 * Actions: 0 push left, 1 push right, for `frame_skip` frames. Any other value is the caller's error.
 * Reward: +1 for each frame, the last included, summed over the frames of a step.
 * Ends: terminal when position or angle leaves its range; truncated after CARTPOLE_MAX_FRAMES frames that did not end
 * it. A step stops at the frame that ends the episode. Score of an episode: frames that it lasted, in [1, 500].
 * Solved: CARTPOLE_SOLVED_SCORE, the threshold of Gymnasium's CartPole-v1, which is this task.
 * Call order: cartpole_seed once, cartpole_reset, then cartpole_step until it ends, cartpole_episode if wanted,
 *   cartpole_reset, cartpole_step ...
 * RNG draws (state in the struct): four per reset, one a component in their order, each uniform in [-0.05, 0.05).
 * Buffers are borrowed for the call; every call writes every element of each output that it is given. No allocation,
 * no output, no exit. Arithmetic is +, -, *, / and comparison on float32, so a trajectory repeats bit for bit on every
 * IEEE machine, given a compiler that does not contract (-ffp-contract=off).
 *
 * Source: A. G. Barto, R. S. Sutton, C. W. Anderson, "Neuronlike adaptive elements that can solve difficult learning
 * control problems", IEEE Transactions on Systems, Man, and Cybernetics 13(5), 1983, appendix; without its friction.
 */
#ifndef PROTEIN_CARTPOLE_H
#define PROTEIN_CARTPOLE_H

#include <assert.h>
#include <stdint.h>

#include "pcg32.h"

#define CARTPOLE_DESCRIPTION "keep a pole upright on a cart for 500 frames"
#define CARTPOLE_OBSERVATION_SIZE 4
#define CARTPOLE_ACTION_SIZES {2}
#define CARTPOLE_AGENTS_PER_ENV 1
#define CARTPOLE_SCORE_LOW 1.0
#define CARTPOLE_SCORE_HIGH 500.0
#define CARTPOLE_SOLVED_SCORE 475.0
#define CARTPOLE_MAX_FRAMES 500

#define CARTPOLE_POSITION_LIMIT 2.4f     /* m */
#define CARTPOLE_ANGLE_LIMIT 0.20943951f /* rad */
#define CARTPOLE_FRAME_SECONDS 0.02f
#define CARTPOLE_FORCE 10.0f     /* N */
#define CARTPOLE_GRAVITY 9.8f    /* m/s^2 */
#define CARTPOLE_POLE_MASS 0.1f  /* kg */
#define CARTPOLE_TOTAL_MASS 1.1f /* kg */
#define CARTPOLE_POLE_HALF 0.5f  /* m, from the pivot to the pole's centre */
#define CARTPOLE_START_MAX 0.05f /* of each component */

typedef struct cartpole_t {
    uint64_t rng;
    float position;
    float velocity;
    float angle;
    float spin;        /* angular velocity */
    int32_t frames;    /* since the episode began */
    int32_t decisions; /* steps since the episode began */
} cartpole_t;

/* What a page draws. */
#define CARTPOLE_SHOWN(field, each) field(position) field(velocity) field(angle) field(spin) field(frames)

static inline void cartpole_observe(const cartpole_t *env, float *observation) {
    observation[0] = env->position;
    observation[1] = env->velocity;
    observation[2] = env->angle;
    observation[3] = env->spin;
}

/* Taylor series, error below 1e-10 for angles up to 0.25; the C library's functions differ between machines. */
static inline float cartpole_sin(float angle) {
    const float square = angle * angle;
    return angle *
           (1.0f - square * (1.0f / 6.0f) * (1.0f - square * (1.0f / 20.0f) * (1.0f - square * (1.0f / 42.0f))));
}

static inline float cartpole_cos(float angle) {
    const float square = angle * angle;
    return 1.0f - square * 0.5f * (1.0f - square * (1.0f / 12.0f) * (1.0f - square * (1.0f / 30.0f)));
}

static inline void cartpole_frame(cartpole_t *env, float force) {
    const float sine = cartpole_sin(env->angle), cosine = cartpole_cos(env->angle);
    const float moment = CARTPOLE_POLE_MASS * CARTPOLE_POLE_HALF;
    const float push = (force + moment * env->spin * env->spin * sine) * (1.0f / CARTPOLE_TOTAL_MASS);
    const float spin_rate =
        (CARTPOLE_GRAVITY * sine - cosine * push) /
        (CARTPOLE_POLE_HALF * (4.0f / 3.0f - (CARTPOLE_POLE_MASS / CARTPOLE_TOTAL_MASS) * cosine * cosine));
    const float acceleration = push - (moment / CARTPOLE_TOTAL_MASS) * spin_rate * cosine;
    env->position += CARTPOLE_FRAME_SECONDS * env->velocity;
    env->velocity += CARTPOLE_FRAME_SECONDS * acceleration;
    env->angle += CARTPOLE_FRAME_SECONDS * env->spin;
    env->spin += CARTPOLE_FRAME_SECONDS * spin_rate;
}

static inline int cartpole_fell(const cartpole_t *env) {
    return env->position > CARTPOLE_POSITION_LIMIT || env->position < -CARTPOLE_POSITION_LIMIT ||
           env->angle > CARTPOLE_ANGLE_LIMIT || env->angle < -CARTPOLE_ANGLE_LIMIT;
}

/* Seeds the environment's generator: the same (seed, index) replays the same games. */
static inline void cartpole_seed(cartpole_t *env, uint64_t seed, uint64_t index) {
    assert(env);
    env->rng = pcg32_seed(seed, index);
}

static inline void cartpole_reset(cartpole_t *env, float *observation) {
    assert(env && observation);
    env->position = pcg32_symmetric(pcg32_next(&env->rng)) * CARTPOLE_START_MAX;
    env->velocity = pcg32_symmetric(pcg32_next(&env->rng)) * CARTPOLE_START_MAX;
    env->angle = pcg32_symmetric(pcg32_next(&env->rng)) * CARTPOLE_START_MAX;
    env->spin = pcg32_symmetric(pcg32_next(&env->rng)) * CARTPOLE_START_MAX;
    env->frames = 0;
    env->decisions = 0;
    cartpole_observe(env, observation);
}

static inline void cartpole_step(cartpole_t *env, const int32_t *action, int32_t frame_skip, float *observation,
                                 float *reward, uint8_t *terminal, uint8_t *truncation) {
    assert(env && action && observation && reward && terminal && truncation && frame_skip >= 1);
    assert(*action >= 0 && *action < 2);
    assert(env->frames < CARTPOLE_MAX_FRAMES); /* an episode that has ended is followed by reset */
    const float force = (float)(2 * *action - 1) * CARTPOLE_FORCE;
    const int32_t before = env->frames;
    int32_t left = CARTPOLE_MAX_FRAMES - env->frames;
    int over = 0;
    for (left = frame_skip < left ? frame_skip : left; left > 0 && !over; --left) {
        cartpole_frame(env, force);
        env->frames += 1;
        over = cartpole_fell(env);
    }
    env->decisions += 1;
    cartpole_observe(env, observation);
    *reward = (float)(env->frames - before);
    *terminal = (uint8_t)over;
    *truncation = (uint8_t)(!over && env->frames >= CARTPOLE_MAX_FRAMES);
}

/* Writes score, undiscounted return and length in steps of the episode that the last step ended. */
static inline void cartpole_episode(const cartpole_t *env, float *score, float *return_, int32_t *length) {
    assert(env && score && return_ && length);
    *score = (float)env->frames;
    *return_ = *score;
    *length = env->decisions;
}

#endif
