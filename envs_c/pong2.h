/* Pong for two: the court of pong.h with a player on either side, first to 21 points.
 *
 * The rules are those of pong.h but for these. Both sides are agents, with paddles half as fast as the player's of
 * pong.h: no paddle reaches every ball, wherever it waits. Both aim: the further from its paddle's centre a ball is
 * hit, the steeper it leaves. A little chance is added to each return, so that no rally repeats itself endlessly. The
 * first serve flies to a side by chance, and each further one to the other side than the serve before it.
 *
 * Sides: agent 0 and agent 1. Each sees the court as if its own paddle were on the line x = +1, so one policy plays
 * both sides. Exchange the actions of the two and the side of the first serve, and the whole game is exchanged,
 * exactly. The observation is that of pong.h, index by index: a policy of the one game can play the other.
 *
 * Observation (float32 x 8), for each agent:
 *   0  own paddle, y of its centre           [-0.8125, 0.8125]
 *   1  other paddle, y of its centre         [-0.8125, 0.8125]
 *   2  ball x, +1 on the own line            [-1, 1]
 *   3  ball y                                [-1, 1]
 *   4  ball direction along x                -1 to the other side, +1 to oneself
 *   5  ball slope, vy / PONG_BALL_VY_MAX     [-1, 1]
 *   6  own points / 21                       [0, 1]
 *   7  other side's points / 21              [0, 1]
 * Actions, for each agent: 0 stay, 1 up (+y), 2 down (-y), held for `frame_skip` frames. Any other value is the
 *   caller's error.
 * Reward: +1 for a point won, -1 for a point lost, summed over the frames of a step. The two rewards sum to 0.
 * Ends: both agents together. Terminal when one side has 21 points; truncated after PONG2_MAX_FRAMES frames that did
 *   not end it. A step stops at the frame that ends the episode. Score of an episode: own points minus the other
 *   side's, in [-21, 21]. Against oneself it is 0 on average, so no score counts as solved.
 * Scripts (pong2_script; they see the state and change nothing):
 *   0 random    any action
 *   1 beginner  half of the follower's decisions, else any action
 *   2 follower  keeps its paddle level with the ball
 *   3 aimer     goes to where the ball will arrive, and meets it with the end of its paddle that sends it away from the
 *               other paddle
 * Call order: pong2_seed once, pong2_reset, then pong2_step until it ends, pong2_episode if wanted, pong2_reset,
 * pong2_step ... RNG draws (state in the struct): one per reset (side of the first serve, bit 31), one per serve
 * (slope), one per return (slope). Buffers are borrowed for the call; every call writes every element of each output
 * that it is given. No allocation, no output, no exit. Arithmetic is +, -, * and comparison on float32, so a trajectory
 * repeats bit for bit on every IEEE machine, given a compiler that does not contract (-ffp-contract=off).
 */
#ifndef PROTEIN_PONG2_H
#define PROTEIN_PONG2_H

#include <assert.h>
#include <stdint.h>

#include "pcg32.h"
#include "pong.h" /* the court's measures */

#define PONG2_DESCRIPTION "pong for two, who see the court alike; first to 21 points"
#define PONG2_OBSERVATION_SIZE PONG_OBSERVATION_SIZE
#define PONG2_ACTION_SIZES {3}
#define PONG2_AGENTS_PER_ENV 2
#define PONG2_SIDES 2
#define PONG2_SCORE_LOW (-21.0)
#define PONG2_SCORE_HIGH 21.0
#define PONG2_SOLVED_SCORE 21.0
#define PONG2_MAX_FRAMES PONG_MAX_FRAMES

#define PONG2_SCRIPTS {"random", "beginner", "follower", "aimer"}
#define PONG2_SCRIPT_RATINGS {0.0, 90.0, 210.0, 485.0} /* held by tests/envs_c/test_sides.py */

#define PONG2_SPEED 0.0078125f /* of a paddle, per frame; 2^-7, so that sums of it are exact */
#define PONG2_CHANCE_VY 0.004f /* per frame, the most that chance adds to a return */

typedef struct pong2_t {
    uint64_t rng;
    float paddle_y[2];
    float ball_y;
    float ball_vy;         /* per frame */
    int32_t to;            /* the side that the ball flies to */
    int32_t frames_to_hit; /* until the ball is on that side's line */
    int32_t points[2];
    int32_t first;     /* the side that the episode's first serve flew to */
    int32_t frames;    /* since the episode began */
    int32_t decisions; /* steps since the episode began */
} pong2_t;

/* What a page draws. */
#define PONG2_SHOWN(field, each) \
    field(paddle_y) field(ball_y) field(ball_vy) field(to) field(frames_to_hit) field(points) field(frames)

static inline void pong2_observe(const pong2_t *env, float *observations) {
    const float travelled = 1.0f - (float)env->frames_to_hit * (2.0f / PONG_CROSSING);
    for (int side = 0; side < 2; ++side) {
        const float direction = env->to == side ? 1.0f : -1.0f;
        float *o = observations + side * PONG2_OBSERVATION_SIZE;
        o[0] = env->paddle_y[side];
        o[1] = env->paddle_y[1 - side];
        o[2] = direction * travelled;
        o[3] = env->ball_y;
        o[4] = direction;
        o[5] = env->ball_vy * (1.0f / PONG_BALL_VY_MAX);
        o[6] = (float)env->points[side] * (1.0f / PONG_POINTS);
        o[7] = (float)env->points[1 - side] * (1.0f / PONG_POINTS);
    }
}

static inline void pong2_serve(pong2_t *env) {
    env->paddle_y[0] = 0.0f;
    env->paddle_y[1] = 0.0f;
    env->ball_y = 0.0f;
    env->ball_vy = pcg32_symmetric(pcg32_next(&env->rng)) * PONG_SERVE_VY_MAX;
    env->to = env->first ^ ((env->points[0] + env->points[1]) & 1);
    env->frames_to_hit = PONG_CROSSING / 2;
}

/* The ball is on a paddle's line: it is returned, or a point is scored and the next point is served. */
static inline void pong2_hit_or_score(pong2_t *env) {
    const float offset = env->ball_y - env->paddle_y[env->to];
    if (offset > PONG_PADDLE_HALF || offset < -PONG_PADDLE_HALF) {
        env->points[1 - env->to] += 1;
        pong2_serve(env);
        return;
    }
    const float aimed = offset * (PONG_BALL_VY_MAX / PONG_PADDLE_HALF);
    const float chance = pcg32_symmetric(pcg32_next(&env->rng)) * PONG2_CHANCE_VY;
    env->ball_vy = pong_clamp(aimed + chance, PONG_BALL_VY_MAX);
    env->to = 1 - env->to;
    env->frames_to_hit = PONG_CROSSING;
}

/* Moves paddles and ball for `frames` frames, 1 <= frames <= frames_to_hit. */
static inline void pong2_fly(pong2_t *env, const float *paddle_vy, int32_t frames) {
    float y = env->ball_y, vy = env->ball_vy;
    for (int32_t frame = 0; frame < frames; ++frame) {
        y += vy;
        if (y > 1.0f || y < -1.0f) {
            y = (y > 0.0f ? 2.0f : -2.0f) - y;
            vy = -vy;
        }
    }
    env->ball_y = y;
    env->ball_vy = vy;
    /* Speed and limit are multiples of 2^-7, so this equals frame by frame exactly. */
    for (int side = 0; side < 2; ++side)
        env->paddle_y[side] = pong_clamp(env->paddle_y[side] + paddle_vy[side] * (float)frames, PONG_PADDLE_LIMIT);
    env->frames_to_hit -= frames;
}

/* Seeds the environment's generator: the same (seed, index) replays the same games. */
static inline void pong2_seed(pong2_t *env, uint64_t seed, uint64_t index) {
    assert(env);
    env->rng = pcg32_seed(seed, index);
}

static inline void pong2_reset(pong2_t *env, float *observations) {
    assert(env && observations);
    env->points[0] = 0;
    env->points[1] = 0;
    env->frames = 0;
    env->decisions = 0;
    env->first = (int32_t)(pcg32_next(&env->rng) >> 31);
    pong2_serve(env);
    pong2_observe(env, observations);
}

static inline void pong2_step(pong2_t *env, const int32_t *actions, int32_t frame_skip, float *observations,
                              float *rewards, uint8_t *terminals, uint8_t *truncations) {
    assert(env && actions && observations && rewards && terminals && truncations && frame_skip >= 1);
    assert(actions[0] >= 0 && actions[0] < 3 && actions[1] >= 0 && actions[1] < 3);
    assert(env->frames < PONG2_MAX_FRAMES); /* an episode that has ended is followed by reset */
    static const float velocity[] = {0.0f, PONG2_SPEED, -PONG2_SPEED};
    const float paddle_vy[2] = {velocity[actions[0]], velocity[actions[1]]};
    const int32_t lead = env->points[0] - env->points[1];
    int32_t left = PONG2_MAX_FRAMES - env->frames;
    int over = 0;
    left = frame_skip < left ? frame_skip : left;
    while (left > 0 && !over) {
        const int32_t frames = left < env->frames_to_hit ? left : env->frames_to_hit;
        pong2_fly(env, paddle_vy, frames);
        env->frames += frames;
        left -= frames;
        if (env->frames_to_hit == 0) {
            pong2_hit_or_score(env);
            over = env->points[0] == PONG_POINTS || env->points[1] == PONG_POINTS;
        }
    }
    env->decisions += 1;
    pong2_observe(env, observations);
    const int32_t won = env->points[0] - env->points[1] - lead;
    for (int side = 0; side < 2; ++side) {
        rewards[side] = (float)(side ? -won : won);
        terminals[side] = (uint8_t)over;
        truncations[side] = (uint8_t)(!over && env->frames >= PONG2_MAX_FRAMES);
    }
}

/* Writes, for each agent, score, undiscounted return and length in steps of the episode that the last step ended. */
static inline void pong2_episode(const pong2_t *env, float *scores, float *returns, int32_t *lengths) {
    assert(env && scores && returns && lengths);
    for (int side = 0; side < 2; ++side) {
        scores[side] = (float)(env->points[side] - env->points[1 - side]);
        returns[side] = scores[side];
        lengths[side] = env->decisions;
    }
}

/* Returns where the ball will be when it arrives at the line that it flies to. */
static inline float pong2_arrival(const pong2_t *env) {
    float y = env->ball_y + env->ball_vy * (float)env->frames_to_hit; /* at most 2.4 beyond a wall */
    while (y > 1.0f || y < -1.0f) y = (y > 0.0f ? 2.0f : -2.0f) - y;
    return y;
}

/* Writes the action that a script takes for an agent. */
static inline void pong2_script(const pong2_t *env, int32_t script, int32_t agent, int32_t *action) {
    assert(env && action && script >= 0 && script < 4 && agent >= 0 && agent < 2);
    /* No draw: what is random here is made from the state, which it leaves as it is. */
    const uint32_t chance = (uint32_t)(pcg32_mix(env->rng + (uint64_t)(2 * env->decisions + agent)) >> 32);
    const float own = env->paddle_y[agent], other = env->paddle_y[1 - agent];
    float target = env->ball_y, near = 0.5f * PONG_PADDLE_HALF;
    if (script == 0 || (script == 1 && (chance & 1u))) {
        *action = (int32_t)((chance >> 1) % 3u);
        return;
    }
    if (script == 3) {
        target = 0.0f;
        near = 0.25f * PONG_PADDLE_HALF;
        /* A ball that is met above the centre leaves upwards. */
        if (env->to == agent) target = pong2_arrival(env) + (other > 0.0f ? 0.5f : -0.5f) * PONG_PADDLE_HALF;
    }
    *action = target > own + near ? 1 : target < own - near ? 2 : 0;
}

#endif
