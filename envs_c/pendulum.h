/* Pendulum: swing a rod up and hold it upright, with a motor too weak to lift it in one go.
 *
 * The classic task, in its usual form: a rod of 1 m and 1 kg on a pivot at its end, gravity 10 m/s^2, torque up to
 * 2 N m, frames of 0.05 s (spin first, then the angle with the new spin), spin limited to 8 rad/s, no friction.
 *
 * Observation (float32 x 3):
 *   0  cos(angle): 1 upright, -1 hanging    [-1, 1]
 *   1  sin(angle): 1 at a quarter turn      [-1, 1]
 *   2  spin, rad/s                          [-8, 8]
 * Action (one float, continuous): the torque in units of 2 N m, held for `frame_skip` frames; clipped to [-1, 1], where
 *   positive turns towards positive angles. One that is not finite is the caller's error.
 * Reward: -(angle^2 + 0.1 spin^2 + 0.001 torque^2) for each frame, of angle (in [-pi, pi)) and spin before it, summed
 *   over the frames of a step.
 * Ends: never terminal; truncated after PENDULUM_MAX_FRAMES frames. A step stops at the frame that ends the episode.
 *   Score of an episode: the sum of its rewards, in [-3255, 0]. A rod that hangs at the beginning costs about 300 until
 *   it stands. A rod that stands costs almost nothing. A good controller averages about -150 over episodes, random
 *   actions about -1200. At a mean of PENDULUM_SOLVED_SCORE all rods are swung up and held.
 * Call order: pendulum_seed once, pendulum_reset, then pendulum_step until it ends, pendulum_episode if wanted,
 *   pendulum_reset, pendulum_step ...
 * RNG draws (state in the struct): two per reset, the angle, uniform in [-pi, pi), and the spin, in [-1, 1).
 * Buffers are borrowed for the call; every call writes every element of each output that it is given. No allocation,
 * no output, no exit. Arithmetic is +, -, * and comparison on float32, so a trajectory repeats bit for bit on every
 * IEEE machine, given a compiler that does not contract (-ffp-contract=off).
 *
 * Source: equations and reward as Gymnasium documents its Pendulum-v1, whose action is the torque in N m itself.
 */
#ifndef PROTEIN_PENDULUM_H
#define PROTEIN_PENDULUM_H

#include <assert.h>
#include <stdint.h>

#include "pcg32.h"

#define PENDULUM_DESCRIPTION "swing a rod up and hold it, with a continuous torque"
#define PENDULUM_OBSERVATION_SIZE 3
#define PENDULUM_CONTINUOUS_ACTIONS 1
#define PENDULUM_AGENTS_PER_ENV 1
#define PENDULUM_SCORE_LOW (-3255.0)
#define PENDULUM_SCORE_HIGH 0.0
#define PENDULUM_SOLVED_SCORE (-200.0)
#define PENDULUM_MAX_FRAMES 200

#define PENDULUM_PI 3.14159265f
#define PENDULUM_FRAME_SECONDS 0.05f
#define PENDULUM_TORQUE_MAX 2.0f    /* N m */
#define PENDULUM_SPIN_MAX 8.0f      /* rad/s */
#define PENDULUM_GRAVITY_GAIN 15.0f /* 3 g / (2 length): rad/s^2 at a quarter turn */
#define PENDULUM_TORQUE_GAIN 3.0f   /* 3 / (mass length^2): rad/s^2 for 1 N m */

typedef struct pendulum_t {
    uint64_t rng;
    float angle;   /* from upright, rad, in [-pi, pi) */
    float spin;    /* rad/s */
    float return_; /* since the episode began */
    int32_t frames;
    int32_t decisions;
} pendulum_t;

/* What a page draws. */
#define PENDULUM_SHOWN(field, each) field(angle) field(spin) field(frames)

static inline float pendulum_clamp(float value, float limit) {
    const float below = value < limit ? value : limit;
    return below > -limit ? below : -limit;
}

/* Taylor series to the 11th power on [-pi/2, pi/2], error below 3e-7; the C library's functions differ between
 * machines.
 */
static inline float pendulum_quarter_sin(float x) {
    const float square = x * x;
    return x *
           (1.0f - square * (1.0f / 6.0f) *
                       (1.0f - square * (1.0f / 20.0f) *
                                   (1.0f - square * (1.0f / 42.0f) *
                                               (1.0f - square * (1.0f / 72.0f) * (1.0f - square * (1.0f / 110.0f))))));
}

/* Of an angle in [-pi, pi], folded into the series' range. */
static inline float pendulum_sin(float angle) {
    const float half = 0.5f * PENDULUM_PI;
    const float folded = angle > half ? PENDULUM_PI - angle : angle < -half ? -PENDULUM_PI - angle : angle;
    return pendulum_quarter_sin(folded);
}

static inline float pendulum_cos(float angle) {
    return pendulum_quarter_sin(0.5f * PENDULUM_PI - (angle < 0.0f ? -angle : angle));
}

static inline void pendulum_observe(const pendulum_t *env, float *observation) {
    observation[0] = pendulum_clamp(pendulum_cos(env->angle), 1.0f);
    observation[1] = pendulum_clamp(pendulum_sin(env->angle), 1.0f);
    observation[2] = env->spin;
}

/* Returns the frame's reward. */
static inline float pendulum_frame(pendulum_t *env, float torque) {
    const float cost = env->angle * env->angle + 0.1f * env->spin * env->spin + 0.001f * torque * torque;
    const float gain = PENDULUM_GRAVITY_GAIN * pendulum_sin(env->angle) + PENDULUM_TORQUE_GAIN * torque;
    env->spin = pendulum_clamp(env->spin + PENDULUM_FRAME_SECONDS * gain, PENDULUM_SPIN_MAX);
    env->angle += PENDULUM_FRAME_SECONDS * env->spin;
    if (env->angle >= PENDULUM_PI) env->angle -= 2.0f * PENDULUM_PI;
    if (env->angle < -PENDULUM_PI) env->angle += 2.0f * PENDULUM_PI;
    return -cost;
}

/* Seeds the environment's generator: the same (seed, index) replays the same games. */
static inline void pendulum_seed(pendulum_t *env, uint64_t seed, uint64_t index) {
    assert(env);
    env->rng = pcg32_seed(seed, index);
}

static inline void pendulum_reset(pendulum_t *env, float *observation) {
    assert(env && observation);
    env->angle = pcg32_symmetric(pcg32_next(&env->rng)) * PENDULUM_PI;
    env->spin = pcg32_symmetric(pcg32_next(&env->rng));
    env->return_ = 0.0f;
    env->frames = 0;
    env->decisions = 0;
    pendulum_observe(env, observation);
}

static inline void pendulum_step(pendulum_t *env, const float *action, int32_t frame_skip, float *observation,
                                 float *reward, uint8_t *terminal, uint8_t *truncation) {
    assert(env && action && observation && reward && terminal && truncation && frame_skip >= 1);
    assert(*action - *action == 0.0f);         /* finite */
    assert(env->frames < PENDULUM_MAX_FRAMES); /* an episode that has ended is followed by reset */
    const float torque = pendulum_clamp(*action, 1.0f) * PENDULUM_TORQUE_MAX;
    const int32_t rest = PENDULUM_MAX_FRAMES - env->frames;
    const int32_t frames = frame_skip < rest ? frame_skip : rest;
    float sum = 0.0f;
    for (int32_t frame = 0; frame < frames; ++frame) sum += pendulum_frame(env, torque);
    env->frames += frames;
    env->decisions += 1;
    env->return_ += sum;
    pendulum_observe(env, observation);
    *reward = sum;
    *terminal = 0;
    *truncation = (uint8_t)(env->frames >= PENDULUM_MAX_FRAMES);
}

/* Writes score, undiscounted return and length in steps of the episode that the last step ended. */
static inline void pendulum_episode(const pendulum_t *env, float *score, float *return_, int32_t *length) {
    assert(env && score && return_ && length);
    *score = env->return_;
    *return_ = env->return_;
    *length = env->decisions;
}

#endif
