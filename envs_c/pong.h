/* Pong: first to 21 points against a scripted opponent.
 *
 * Court: x and y in [-1, 1]. The player's paddle moves on the line x = +1, the opponent's on x = -1. The ball is a
 * point that crosses the court in PONG_CROSSING frames, whatever its slope, and bounces off y = -1 and y = +1. A paddle
 * whose centre is within PONG_PADDLE_HALF of the ball returns it; otherwise the other side scores and the next point
 * begins with both paddles in the middle and a serve from the centre. The player aims: the further from its paddle's
 * centre the ball is hit, the steeper it leaves. The opponent follows the ball, but more slowly than a steep ball
 * moves. It returns the ball at a random slope, so that no rally repeats itself endlessly. All of this state is in the
 * observation: the game is Markov. The rules are our own, and the game is easier than Atari's Pong: the observation is
 * eight numbers instead of pixels, the ball always crosses at one speed, actions are never repeated by chance, and the
 * opponent is too slow for a steep ball. Scores of the two games cannot be compared.
 *
 * Observation (float32 x 8):
 *   0  player's paddle, y of its centre      [-0.8125, 0.8125]
 *   1  opponent's paddle, y of its centre    [-0.8125, 0.8125]
 *   2  ball x                                [-1, 1]
 *   3  ball y                                [-1, 1]
 *   4  ball direction along x                -1 to the opponent, +1 to the player
 *   5  ball slope, vy / PONG_BALL_VY_MAX     [-1, 1]
 *   6  player's points / 21                  [0, 1]
 *   7  opponent's points / 21                [0, 1]
 * Actions: 0 stay, 1 up (+y), 2 down (-y), held for `frame_skip` frames. Any other value is the caller's error.
 * Reward: +1 for a point won, -1 for a point lost, summed over the frames of a step.
 * Ends: terminal when one side has 21 points; truncated after PONG_MAX_FRAMES frames that did not end it. A step stops
 *   at the frame that ends the episode. Score of an episode: player's points minus opponent's, in [-21, 21].
 * Solved: PONG_SOLVED_SCORE, at which the opponent scores at most one point a game on average.
 * Call order: pong_seed once, pong_reset, then pong_step until it ends, pong_episode if wanted, pong_reset, pong_step
 * ... RNG draws (state in the struct): one per serve (slope from the upper 24 bits, side from bit 0), one per
 * opponent's return (slope). Buffers are borrowed for the call; every call writes every element of each output that it
 * is given. No allocation, no output, no exit. Arithmetic is +, -, * and comparison on float32, so a trajectory repeats
 * bit for bit on every IEEE machine, given a compiler that does not contract (-ffp-contract=off).
 */
#ifndef PROTEIN_PONG_H
#define PROTEIN_PONG_H

#include <assert.h>
#include <stdint.h>

#include "pcg32.h"

#define PONG_DESCRIPTION "first to 21 points against a scripted opponent"
#define PONG_OBSERVATION_SIZE 8
#define PONG_ACTION_SIZES {3}
#define PONG_AGENTS_PER_ENV 1
#define PONG_SCORE_LOW (-21.0)
#define PONG_SCORE_HIGH 21.0
#define PONG_SOLVED_SCORE 20.0
#define PONG_MAX_FRAMES 16000

#define PONG_POINTS 21
#define PONG_CROSSING 60                /* frames from one paddle's line to the other's */
#define PONG_PADDLE_HALF 0.1875f        /* half a paddle's length */
#define PONG_PADDLE_LIMIT 0.8125f       /* 1 - PONG_PADDLE_HALF: a paddle never leaves the court */
#define PONG_PLAYER_SPEED 0.015625f     /* per frame; 2^-6, so that sums of it are exact */
#define PONG_OPPONENT_SPEED 0.01171875f /* per frame */
#define PONG_BALL_VY_MAX 0.04f          /* per frame, off the edge of the player's paddle */
#define PONG_RETURN_VY_MAX 0.03f        /* per frame, the opponent's steepest return */
#define PONG_SERVE_VY_MAX 0.015f        /* per frame */

typedef struct pong_t {
    uint64_t rng;
    float player_y;
    float opponent_y;
    float ball_y;
    float ball_vy;         /* per frame */
    int32_t direction;     /* of the ball along x: -1 or +1 */
    int32_t frames_to_hit; /* until the ball is on the line of the paddle that it flies to */
    int32_t player_points;
    int32_t opponent_points;
    int32_t frames;    /* since the episode began */
    int32_t decisions; /* steps since the episode began */
} pong_t;

/* What a page draws. */
#define PONG_SHOWN(field, each)                                                                          \
    field(player_y) field(opponent_y) field(ball_y) field(ball_vy) field(direction) field(frames_to_hit) \
        field(player_points) field(opponent_points) field(frames)

static inline float pong_clamp(float value, float limit) {
    const float below = value < limit ? value : limit;
    return below > -limit ? below : -limit;
}

static inline void pong_observe(const pong_t *env, float *observation) {
    const float direction = (float)env->direction;
    observation[0] = env->player_y;
    observation[1] = env->opponent_y;
    observation[2] = direction * (1.0f - (float)env->frames_to_hit * (2.0f / PONG_CROSSING));
    observation[3] = env->ball_y;
    observation[4] = direction;
    observation[5] = env->ball_vy * (1.0f / PONG_BALL_VY_MAX);
    observation[6] = (float)env->player_points * (1.0f / PONG_POINTS);
    observation[7] = (float)env->opponent_points * (1.0f / PONG_POINTS);
}

static inline void pong_serve(pong_t *env) {
    const uint32_t bits = pcg32_next(&env->rng);
    env->player_y = 0.0f;
    env->opponent_y = 0.0f;
    env->ball_y = 0.0f;
    env->ball_vy = pcg32_symmetric(bits) * PONG_SERVE_VY_MAX;
    env->direction = (bits & 1u) ? 1 : -1;
    env->frames_to_hit = PONG_CROSSING / 2;
}

/* The ball is on a paddle's line: it is returned, or a point is scored and the next point is served. */
static inline void pong_hit_or_score(pong_t *env) {
    const int to_player = env->direction > 0;
    const float offset = env->ball_y - (to_player ? env->player_y : env->opponent_y);
    if (offset > PONG_PADDLE_HALF || offset < -PONG_PADDLE_HALF) {
        env->player_points += !to_player;
        env->opponent_points += to_player;
        pong_serve(env);
        return;
    }
    env->ball_vy = to_player ? offset * (PONG_BALL_VY_MAX / PONG_PADDLE_HALF)
                             : pcg32_symmetric(pcg32_next(&env->rng)) * PONG_RETURN_VY_MAX;
    env->direction = -env->direction;
    env->frames_to_hit = PONG_CROSSING;
}

/* Moves paddles and ball for `frames` frames, 1 <= frames <= frames_to_hit. */
static inline void pong_fly(pong_t *env, float player_vy, int32_t frames) {
    float opponent_y = env->opponent_y, y = env->ball_y, vy = env->ball_vy;
    for (int32_t frame = 0; frame < frames; ++frame) {
        opponent_y += pong_clamp(pong_clamp(y, PONG_PADDLE_LIMIT) - opponent_y, PONG_OPPONENT_SPEED);
        y += vy;
        if (y > 1.0f || y < -1.0f) {
            y = (y > 0.0f ? 2.0f : -2.0f) - y;
            vy = -vy;
        }
    }
    env->opponent_y = opponent_y;
    env->ball_y = y;
    env->ball_vy = vy;
    /* Speed and limit are multiples of 2^-7, so this equals frame by frame exactly. */
    env->player_y = pong_clamp(env->player_y + player_vy * (float)frames, PONG_PADDLE_LIMIT);
    env->frames_to_hit -= frames;
}

/* Seeds the environment's generator: the same (seed, index) replays the same games. */
static inline void pong_seed(pong_t *env, uint64_t seed, uint64_t index) {
    assert(env);
    env->rng = pcg32_seed(seed, index);
}

static inline void pong_reset(pong_t *env, float *observation) {
    assert(env && observation);
    env->player_points = 0;
    env->opponent_points = 0;
    env->frames = 0;
    env->decisions = 0;
    pong_serve(env);
    pong_observe(env, observation);
}

static inline void pong_step(pong_t *env, const int32_t *action, int32_t frame_skip, float *observation, float *reward,
                             uint8_t *terminal, uint8_t *truncation) {
    assert(env && action && observation && reward && terminal && truncation && frame_skip >= 1);
    assert(*action >= 0 && *action < 3);
    assert(env->frames < PONG_MAX_FRAMES); /* an episode that has ended is followed by reset */
    static const float velocity[] = {0.0f, PONG_PLAYER_SPEED, -PONG_PLAYER_SPEED};
    const float player_vy = velocity[*action];
    const int32_t lead = env->player_points - env->opponent_points;
    int32_t left = PONG_MAX_FRAMES - env->frames;
    int over = 0;
    left = frame_skip < left ? frame_skip : left;
    while (left > 0 && !over) {
        const int32_t frames = left < env->frames_to_hit ? left : env->frames_to_hit;
        pong_fly(env, player_vy, frames);
        env->frames += frames;
        left -= frames;
        if (env->frames_to_hit == 0) {
            pong_hit_or_score(env);
            over = env->player_points == PONG_POINTS || env->opponent_points == PONG_POINTS;
        }
    }
    env->decisions += 1;
    pong_observe(env, observation);
    *reward = (float)(env->player_points - env->opponent_points - lead);
    *terminal = (uint8_t)over;
    *truncation = (uint8_t)(!over && env->frames >= PONG_MAX_FRAMES);
}

/* Writes score, undiscounted return and length in steps of the episode that the last step ended. */
static inline void pong_episode(const pong_t *env, float *score, float *return_, int32_t *length) {
    assert(env && score && return_ && length);
    *score = (float)(env->player_points - env->opponent_points);
    *return_ = *score;
    *length = env->decisions;
}

#endif
