/* Breakout: a wall of 6 x 12 bricks, a paddle, three balls.
 *
 * Court: x and y in [-1, 1]. The paddle moves on the line y = -1. The ball is a point. Each frame it moves one line
 * (1/32) up or down, and sideways by its slope. The further from the paddle's centre it is hit, the flatter it leaves.
 * It bounces off the side walls, the top and the bricks, and breaks the bricks that it hits. A brick that it enters
 * through its top or bottom turns it up or down; one that it enters through its side turns it left or right. In that
 * frame the ball does not move. A ball that the paddle misses is lost, and the next one is served from y = 0,
 * downwards, with the paddle in the middle. The rules are our own, and the game is easier than Atari's Breakout: the
 * observation is numbers instead of pixels, the ball keeps its speed up and down, the paddle its length, every brick
 * counts 1, the wall is broken once and not twice, and actions are never repeated by chance. Scores of the two games
 * cannot be compared.
 *
 * Observation (float32 x 78):
 *   0       paddle, x of its centre                  [-0.84375, 0.84375]
 *   1       ball x                                   [-1, 1]
 *   2       ball y                                   [-1, 1]
 *   3       ball slope, vx / BREAKOUT_BALL_VX_MAX    [-1, 1]
 *   4       ball direction along y                   -1 down, +1 up
 *   5       balls left, this one included, / 3       [0, 1]
 *   6..77   bricks, row by row from the lowest, each from left to right: 1 stands, 0 is broken
 * Actions: 0 stay, 1 left, 2 right, held for `frame_skip` frames. Any other value is the caller's error.
 * Reward: +1 for each brick, summed over the frames of a step.
 * Ends: terminal when the last ball is lost or the last brick broken; truncated after BREAKOUT_MAX_FRAMES frames that
 * did not end it. A step stops at the frame that ends the episode. Score of an episode: bricks broken, in [0, 72].
 * Solved: BREAKOUT_SOLVED_SCORE, at which on average at most four of the 72 bricks stand at the end of a game. Random
 *   actions break one or two.
 * Call order: breakout_seed once, breakout_reset, then breakout_step until it ends, breakout_episode if wanted,
 *   breakout_reset, breakout_step ...
 * RNG draws (state in the struct): one per serve (slope from the upper 24 bits, x from the lower 8).
 * Buffers are borrowed for the call; every call writes every element of each output that it is given. No allocation,
 * no output, no exit. Arithmetic is +, -, * and comparison on float32, so a trajectory repeats bit for bit on every
 * IEEE machine, given a compiler that does not contract (-ffp-contract=off).
 */
#ifndef PROTEIN_BREAKOUT_H
#define PROTEIN_BREAKOUT_H

#include <assert.h>
#include <stdint.h>

#include "pcg32.h"

#define BREAKOUT_ROWS 6
#define BREAKOUT_COLUMNS 12
#define BREAKOUT_BRICKS (BREAKOUT_ROWS * BREAKOUT_COLUMNS)

#define BREAKOUT_DESCRIPTION "break a wall of 72 bricks with three balls"
#define BREAKOUT_OBSERVATION_SIZE (6 + BREAKOUT_BRICKS)
#define BREAKOUT_ACTION_SIZES {3}
#define BREAKOUT_AGENTS_PER_ENV 1
#define BREAKOUT_SCORE_LOW 0.0
#define BREAKOUT_SCORE_HIGH 72.0
#define BREAKOUT_SOLVED_SCORE 68.0
#define BREAKOUT_MAX_FRAMES 20000

#define BREAKOUT_BALLS 3
#define BREAKOUT_LINES 32              /* from y = 0 to the top, and to the paddle */
#define BREAKOUT_WALL_LINE 8           /* the lowest line of the lowest row */
#define BREAKOUT_ROW_LINES 2           /* a row's height */
#define BREAKOUT_PADDLE_HALF 0.15625f  /* half a paddle's length */
#define BREAKOUT_PADDLE_LIMIT 0.84375f /* 1 - BREAKOUT_PADDLE_HALF */
#define BREAKOUT_PADDLE_SPEED 0.03125f /* per frame; 2^-5, so that sums of it are exact */
#define BREAKOUT_BALL_VX_MAX 0.03f     /* per frame, off the edge of the paddle */
#define BREAKOUT_SERVE_VX_MAX 0.015f   /* per frame */

typedef struct breakout_t {
    uint64_t rng;
    float paddle_x;
    float ball_x;
    float ball_vx;      /* per frame */
    int32_t ball_line;  /* y * BREAKOUT_LINES */
    int32_t ball_climb; /* lines per frame: -1 or +1 */
    int32_t balls;
    int32_t broken;
    int32_t frames;                  /* since the episode began */
    int32_t decisions;               /* steps since the episode began */
    uint8_t bricks[BREAKOUT_BRICKS]; /* 1 stands, 0 is broken */
} breakout_t;

/* What a page draws. */
#define BREAKOUT_SHOWN(field, each)                                                                            \
    field(paddle_x) field(ball_x) field(ball_vx) field(ball_line) field(ball_climb) field(balls) field(broken) \
        field(bricks) field(frames)

static inline float breakout_clamp(float value, float limit) {
    const float below = value < limit ? value : limit;
    return below > -limit ? below : -limit;
}

static inline void breakout_observe(const breakout_t *env, float *observation) {
    observation[0] = env->paddle_x;
    observation[1] = env->ball_x;
    observation[2] = (float)env->ball_line * (1.0f / BREAKOUT_LINES);
    observation[3] = env->ball_vx * (1.0f / BREAKOUT_BALL_VX_MAX);
    observation[4] = (float)env->ball_climb;
    observation[5] = (float)env->balls * (1.0f / BREAKOUT_BALLS);
    for (int i = 0; i < BREAKOUT_BRICKS; ++i) observation[6 + i] = (float)env->bricks[i];
}

static inline void breakout_serve(breakout_t *env) {
    const uint32_t bits = pcg32_next(&env->rng);
    env->paddle_x = 0.0f;
    env->ball_x = ((float)(bits & 255u) - 127.5f) * (1.0f / 256.0f);
    env->ball_vx = pcg32_symmetric(bits) * BREAKOUT_SERVE_VX_MAX;
    env->ball_line = 0;
    env->ball_climb = -1;
}

/* The ball is on the paddle's line: it is returned, or it is lost and the next one, if any, is served. */
static inline void breakout_return_or_lose(breakout_t *env) {
    const float offset = env->ball_x - env->paddle_x;
    if (offset <= BREAKOUT_PADDLE_HALF && offset >= -BREAKOUT_PADDLE_HALF) {
        env->ball_vx = offset * (BREAKOUT_BALL_VX_MAX / BREAKOUT_PADDLE_HALF);
        env->ball_climb = 1;
        return;
    }
    env->balls -= 1;
    if (env->balls > 0) breakout_serve(env);
}

/* The ball would move to (x, line), within the wall: it breaks the brick there and turns, or flies on through a gap. */
static inline void breakout_enter(breakout_t *env, float x, int32_t line) {
    const int32_t row = (line - BREAKOUT_WALL_LINE) / BREAKOUT_ROW_LINES;
    const int32_t from = env->ball_line - BREAKOUT_WALL_LINE; /* negative below the wall: no row */
    int32_t column = (int32_t)((x + 1.0f) * (0.5f * BREAKOUT_COLUMNS));
    uint8_t *brick;
    column = column < BREAKOUT_COLUMNS ? column : BREAKOUT_COLUMNS - 1; /* x = 1 belongs to the last */
    brick = &env->bricks[row * BREAKOUT_COLUMNS + column];
    if (*brick == 0) {
        env->ball_x = x;
        env->ball_line = line;
        return;
    }
    *brick = 0;
    env->broken += 1;
    if (from >= 0 && from / BREAKOUT_ROW_LINES == row)
        env->ball_vx = -env->ball_vx;
    else
        env->ball_climb = -env->ball_climb;
}

static inline void breakout_frame(breakout_t *env, float paddle_vx) {
    const int32_t line = env->ball_line + env->ball_climb;
    float x = env->ball_x + env->ball_vx;
    env->paddle_x = breakout_clamp(env->paddle_x + paddle_vx, BREAKOUT_PADDLE_LIMIT);
    if (x > 1.0f || x < -1.0f) {
        x = (x > 0.0f ? 2.0f : -2.0f) - x;
        env->ball_vx = -env->ball_vx;
    }
    if (line >= BREAKOUT_WALL_LINE && line < BREAKOUT_WALL_LINE + BREAKOUT_ROWS * BREAKOUT_ROW_LINES) {
        breakout_enter(env, x, line);
        return;
    }
    env->ball_x = x;
    env->ball_line = line;
    if (line == BREAKOUT_LINES) env->ball_climb = -1;
    if (line == -BREAKOUT_LINES) breakout_return_or_lose(env);
}

/* Seeds the environment's generator: the same (seed, index) replays the same games. */
static inline void breakout_seed(breakout_t *env, uint64_t seed, uint64_t index) {
    assert(env);
    env->rng = pcg32_seed(seed, index);
}

static inline void breakout_reset(breakout_t *env, float *observation) {
    assert(env && observation);
    env->balls = BREAKOUT_BALLS;
    env->broken = 0;
    env->frames = 0;
    env->decisions = 0;
    for (int i = 0; i < BREAKOUT_BRICKS; ++i) env->bricks[i] = 1;
    breakout_serve(env);
    breakout_observe(env, observation);
}

static inline void breakout_step(breakout_t *env, const int32_t *action, int32_t frame_skip, float *observation,
                                 float *reward, uint8_t *terminal, uint8_t *truncation) {
    assert(env && action && observation && reward && terminal && truncation && frame_skip >= 1);
    assert(*action >= 0 && *action < 3);
    assert(env->frames < BREAKOUT_MAX_FRAMES); /* an episode that has ended is followed by reset */
    static const float velocity[] = {0.0f, -BREAKOUT_PADDLE_SPEED, BREAKOUT_PADDLE_SPEED};
    const float paddle_vx = velocity[*action];
    const int32_t broken = env->broken;
    int32_t left = BREAKOUT_MAX_FRAMES - env->frames;
    int over = 0;
    for (left = frame_skip < left ? frame_skip : left; left > 0 && !over; --left) {
        breakout_frame(env, paddle_vx);
        env->frames += 1;
        over = env->balls == 0 || env->broken == BREAKOUT_BRICKS;
    }
    env->decisions += 1;
    breakout_observe(env, observation);
    *reward = (float)(env->broken - broken);
    *terminal = (uint8_t)over;
    *truncation = (uint8_t)(!over && env->frames >= BREAKOUT_MAX_FRAMES);
}

/* Writes score, undiscounted return and length in steps of the episode that the last step ended. */
static inline void breakout_episode(const breakout_t *env, float *score, float *return_, int32_t *length) {
    assert(env && score && return_ && length);
    *score = (float)env->broken;
    *return_ = *score;
    *length = env->decisions;
}

#endif
