/* Snake: 256 snakes on one map. Each is an agent that eats, grows and dies independently of the others.
 *
 * The map has SNAKE_SIDE x SNAKE_SIDE cells with walls around it. The snakes move one cell a frame, one after the other
 * in the order of their index: the tail leaves its cell, unless the snake grows, and the head enters the next cell.
 * Food in that cell is eaten and makes the snake one cell longer, up to SNAKE_LENGTH_MAX. A wall or any snake's cell,
 * its own included, kills it: it is taken off the map, and every second of its cells turns into food. When there is
 * less food than SNAKE_FOOD, more appears at random. A snake begins as one cell that grows to SNAKE_LENGTH_START as it
 * moves.
 *
 * Observation (uint8 x 363, shape 3 x 11 x 11): the surroundings of the head, turned so that the snake faces row 0.
 *   Its head is in the middle, row 5, column 5; each number is 1 where the cell holds such a thing, else 0:
 *   channel 0 (  0..120)  food
 *   channel 1 (121..241)  a cell of a snake, its own included, heads included, or a wall and what is behind it
 *   channel 2 (242..362)  the head of a snake, its own included: that cell's neighbours may be entered next
 * Actions: 0 straight on, 1 turn left, 2 turn right. The turn is taken in the step's first frame; in the others of
 *   `frame_skip` the snake goes straight on. Any other value is the caller's error.
 * Reward: +1 for each food, -1 for dying, summed over the frames of a step.
 * Ends: each agent alone. Terminal when the snake dies; it stays off the map for the rest of the step. Truncated after
 *   SNAKE_MAX_FRAMES frames of its own; the snake then dies too, but it is not punished and its last observation is
 *   from before. Score of an episode: food eaten, in [0, 1000]. Among snakes that play alike, a policy that goes to the
 *   nearest food and avoids cells that other heads may enter reaches SNAKE_SOLVED_SCORE on average. One that also plans
 *   for free space reaches 26, random actions 2.
 * Call order: snake_seed once, snake_reset, then snake_step; after each step snake_episode if wanted and snake_respawn
 *   for every agent that has ended, in order. The others see respawned snakes from the next step on.
 * RNG draws (state in the struct): one for each attempt to place food (row from the upper 16 bits, column from the
 *   lower) or a snake (the same), and one more for the placed snake's heading (the upper two bits).
 * Buffers are borrowed for the call; every call writes every element of each output that it is given. No allocation,
 * no output, no exit. Arithmetic is on integers, so a trajectory repeats bit for bit on every machine.
 */
#ifndef PROTEIN_SNAKE_H
#define PROTEIN_SNAKE_H

#include <assert.h>
#include <stdint.h>
#include <string.h>

#include "pcg32.h"

#define SNAKE_VISION 5 /* cells seen in each direction */
#define SNAKE_WINDOW (2 * SNAKE_VISION + 1)
#define SNAKE_WINDOW_CELLS (SNAKE_WINDOW * SNAKE_WINDOW)
#define SNAKE_CHANNELS 3

#define SNAKE_DESCRIPTION "256 snakes on one map: eat, grow, do not collide"
#define SNAKE_OBSERVATION_SIZE (SNAKE_CHANNELS * SNAKE_WINDOW_CELLS)
#define SNAKE_OBSERVATION_SHAPE {SNAKE_CHANNELS, SNAKE_WINDOW, SNAKE_WINDOW}
#define SNAKE_OBSERVATION_BYTES 1 /* the largest; observations are bytes */
#define SNAKE_ACTION_SIZES {3}
#define SNAKE_AGENTS_PER_ENV 256
#define SNAKE_AGENTS_END_ALONE
#define SNAKE_SCORE_LOW 0.0
#define SNAKE_SCORE_HIGH 1000.0
#define SNAKE_SOLVED_SCORE 20.0
#define SNAKE_MAX_FRAMES 1000

#define SNAKE_SIDE 192
#define SNAKE_FOOD 1024
#define SNAKE_LENGTH_START 4
#define SNAKE_LENGTH_MAX 128 /* a power of two; all snakes together leave some of the map free */
#define SNAKE_STRIDE (SNAKE_SIDE + 2 * SNAKE_VISION) /* a window never leaves the array */
#define SNAKE_CELLS (SNAKE_STRIDE * SNAKE_STRIDE)

/* What a cell holds: bit k set is channel k of the observation. */
#define SNAKE_EMPTY 0
#define SNAKE_IS_FOOD 1
#define SNAKE_IS_BODY 2 /* or a wall */
#define SNAKE_IS_HEAD 6 /* a head is deadly, too */

typedef struct snake_body_t {
    uint16_t head;    /* index of the newest cell in `cells`, a ring */
    uint16_t length;  /* cells on the map; 0: dead */
    uint16_t target;  /* length that it grows to, one cell a frame */
    uint16_t heading; /* 0 up, 1 right, 2 down, 3 left */
    int32_t eaten;    /* since the episode began, as the rest */
    int32_t frames;
    int32_t decisions;
    uint16_t cells[SNAKE_LENGTH_MAX]; /* of the map, the tail is `length - 1` before the head */
} snake_body_t;

typedef struct snake_t {
    uint64_t rng;
    int32_t food; /* on the map */
    snake_body_t bodies[SNAKE_AGENTS_PER_ENV];
    uint8_t map[SNAKE_CELLS];
} snake_t;

/* What a page draws. */
#define SNAKE_SHOWN(field, each)                                                                             \
    field(food) field(map) each(bodies, head) each(bodies, length) each(bodies, heading) each(bodies, eaten) \
        each(bodies, cells)

static const int32_t snake_ahead[4] = {-SNAKE_STRIDE, 1, SNAKE_STRIDE, -1}; /* by heading */

/* Returns a cell within the walls, all equally likely. */
static inline int32_t snake_random_cell(snake_t *env) {
    const uint32_t bits = pcg32_next(&env->rng);
    const uint32_t row = ((bits >> 16) * SNAKE_SIDE) >> 16, column = ((bits & 0xffffu) * SNAKE_SIDE) >> 16;
    return (int32_t)((row + SNAKE_VISION) * SNAKE_STRIDE + column + SNAKE_VISION);
}

static inline void snake_observe(const snake_t *env, int32_t agent, uint8_t *observation) {
    const snake_body_t *body = &env->bodies[agent];
    const int32_t ahead = snake_ahead[body->heading], right = snake_ahead[(body->heading + 1) & 3];
    const uint8_t *corner = env->map + body->cells[body->head] + SNAKE_VISION * (ahead - right);
    uint8_t window[SNAKE_WINDOW_CELLS];
    for (int row = 0; row < SNAKE_WINDOW; ++row)
        for (int column = 0; column < SNAKE_WINDOW; ++column)
            window[row * SNAKE_WINDOW + column] = corner[column * right - row * ahead];
    for (int channel = 0; channel < SNAKE_CHANNELS; ++channel)
        for (int i = 0; i < SNAKE_WINDOW_CELLS; ++i)
            observation[channel * SNAKE_WINDOW_CELLS + i] = (uint8_t)((window[i] >> channel) & 1);
}

/* Places the missing food. If an attempt finds no empty cell, a later frame tries again. */
static inline void snake_feed(snake_t *env) {
    for (int32_t missing = SNAKE_FOOD - env->food; missing > 0; --missing) {
        uint8_t *cell = &env->map[snake_random_cell(env)];
        if (*cell != SNAKE_EMPTY) continue;
        *cell = SNAKE_IS_FOOD;
        env->food += 1;
    }
}

/* Takes a snake off the map and leaves food in every second of its cells, the head's first. */
static inline void snake_die(snake_t *env, snake_body_t *body) {
    for (uint32_t i = 0; i < body->length; ++i) {
        const uint32_t cell = body->cells[(body->head - i) & (SNAKE_LENGTH_MAX - 1)];
        env->map[cell] = (i & 1u) ? SNAKE_EMPTY : SNAKE_IS_FOOD;
        env->food += (i & 1u) ? 0 : 1;
    }
    body->length = 0;
}

/* A new snake in a cell without one. Such a cell exists: even with all snakes at their longest the map is not full. */
static inline void snake_spawn(snake_t *env, snake_body_t *body) {
    int32_t cell = snake_random_cell(env);
    while (env->map[cell] & SNAKE_IS_BODY) cell = snake_random_cell(env);
    env->food -= env->map[cell] == SNAKE_IS_FOOD;
    env->map[cell] = SNAKE_IS_HEAD;
    body->head = 0;
    body->cells[0] = (uint16_t)cell;
    body->length = 1;
    body->target = SNAKE_LENGTH_START;
    body->heading = (uint16_t)(pcg32_next(&env->rng) >> 30);
    body->eaten = 0;
    body->frames = 0;
    body->decisions = 0;
}

/* Moves a living snake one cell; returns the reward. */
static inline int32_t snake_move(snake_t *env, snake_body_t *body) {
    const int32_t from = body->cells[body->head], to = from + snake_ahead[body->heading];
    int32_t ate;
    body->frames += 1;
    if (body->length < body->target)
        body->length = (uint16_t)(body->length + 1);
    else
        env->map[body->cells[(body->head - body->length + 1u) & (SNAKE_LENGTH_MAX - 1)]] = SNAKE_EMPTY;
    if (env->map[to] & SNAKE_IS_BODY) {
        /* The tail has left and the head has not arrived: one cell fewer is on the map. */
        body->length = (uint16_t)(body->length - 1);
        snake_die(env, body);
        return -1;
    }
    ate = env->map[to] & SNAKE_IS_FOOD;
    env->food -= ate;
    body->eaten += ate;
    if (body->target < SNAKE_LENGTH_MAX) body->target = (uint16_t)(body->target + ate);
    if (body->length > 1) env->map[from] = SNAKE_IS_BODY;
    env->map[to] = SNAKE_IS_HEAD;
    body->head = (body->head + 1) & (SNAKE_LENGTH_MAX - 1);
    body->cells[body->head] = (uint16_t)to;
    return ate;
}

/* Seeds the environment's generator: the same (seed, index) replays the same games. */
static inline void snake_seed(snake_t *env, uint64_t seed, uint64_t index) {
    assert(env);
    env->rng = pcg32_seed(seed, index);
}

static inline void snake_reset(snake_t *env, uint8_t *observations) {
    assert(env && observations);
    memset(env->map, SNAKE_IS_BODY, sizeof env->map);
    for (int row = SNAKE_VISION; row < SNAKE_VISION + SNAKE_SIDE; ++row)
        memset(env->map + row * SNAKE_STRIDE + SNAKE_VISION, SNAKE_EMPTY, SNAKE_SIDE);
    env->food = 0;
    for (int32_t agent = 0; agent < SNAKE_AGENTS_PER_ENV; ++agent) snake_spawn(env, &env->bodies[agent]);
    snake_feed(env);
    for (int32_t agent = 0; agent < SNAKE_AGENTS_PER_ENV; ++agent)
        snake_observe(env, agent, observations + agent * SNAKE_OBSERVATION_SIZE);
}

static inline void snake_step(snake_t *env, const int32_t *actions, int32_t frame_skip, uint8_t *observations,
                              float *rewards, uint8_t *terminals, uint8_t *truncations) {
    assert(env && actions && observations && rewards && terminals && truncations && frame_skip >= 1);
    static const uint16_t turn[] = {0, 3, 1}; /* by action, to the heading */
    int32_t alive = SNAKE_AGENTS_PER_ENV;
    for (int32_t agent = 0; agent < SNAKE_AGENTS_PER_ENV; ++agent) {
        snake_body_t *body = &env->bodies[agent];
        assert(actions[agent] >= 0 && actions[agent] < 3);
        assert(body->length > 0 && body->frames < SNAKE_MAX_FRAMES); /* an agent that has ended was respawned */
        body->heading = (uint16_t)((body->heading + turn[actions[agent]]) & 3);
        body->decisions += 1;
        rewards[agent] = 0.0f;
    }
    for (int32_t frame = 0; frame < frame_skip && alive > 0; ++frame) {
        alive = 0;
        for (int32_t agent = 0; agent < SNAKE_AGENTS_PER_ENV; ++agent) {
            snake_body_t *body = &env->bodies[agent];
            if (body->length == 0 || body->frames >= SNAKE_MAX_FRAMES) continue;
            rewards[agent] += (float)snake_move(env, body);
            alive += 1;
        }
        snake_feed(env);
    }
    for (int32_t agent = 0; agent < SNAKE_AGENTS_PER_ENV; ++agent) {
        const snake_body_t *body = &env->bodies[agent];
        snake_observe(env, agent, observations + agent * SNAKE_OBSERVATION_SIZE);
        terminals[agent] = body->length == 0;
        truncations[agent] = body->length > 0 && body->frames >= SNAKE_MAX_FRAMES;
    }
}

/* Writes score, undiscounted return and length in steps of an agent's episode that the last step ended. */
static inline void snake_episode(const snake_t *env, int32_t agent, float *score, float *return_, int32_t *length) {
    assert(env && agent >= 0 && agent < SNAKE_AGENTS_PER_ENV && score && return_ && length);
    const snake_body_t *body = &env->bodies[agent];
    *score = (float)body->eaten;
    *return_ = (float)(body->eaten - (body->length == 0));
    *length = body->decisions;
}

/* Begins the next episode of an agent that has ended. */
static inline void snake_respawn(snake_t *env, int32_t agent, uint8_t *observation) {
    assert(env && agent >= 0 && agent < SNAKE_AGENTS_PER_ENV && observation);
    snake_body_t *body = &env->bodies[agent];
    snake_die(env, body);
    snake_spawn(env, body);
    snake_observe(env, agent, observation);
}

#endif
