/* 2048: slide numbered tiles over a 4 x 4 board; two equal tiles that meet become one of twice the value.
 *
 * A move slides every tile as far as it goes in one direction. In each line, the pair of tiles nearest to the wall in
 * that direction merges first. A merged tile does not merge again in the same move. After a move that changes the
 * board, a new tile appears on an empty cell, all equally likely: a 2 with probability 0.9, else a 4. Where an action
 * would change nothing, the next direction clockwise that changes something is taken instead. So every step is a move,
 * no policy can stand still endlessly, and each possible move can still be chosen. The game continues past the tile
 * 2048 and is lost when no move is possible.
 *
 * Notation: a tile's exponent e stands for its value 2^e; 0 is an empty cell. Row 0 is at the top, column 0 at the
 * left.
 *
 * Observation (uint8 x 256, shape 16 x 4 x 4: plane, row, column), one-hot in each cell:
 *   16 p + 4 r + c   1 where the exponent of cell (r, c) is p, else 0; plane 0 marks empty cells, plane 15 the tiles of
 *                    32,768 and more
 * Actions: 0 up, 1 right, 2 down, 3 left, repeated for `frame_skip` moves (1 is the game). Any other value is the
 *   caller's error.
 * Reward: the values of the tiles that merges made, times G2048_REWARD_SCALE, summed over the moves of a step.
 * Ends: terminal when no move is possible; truncated after G2048_MAX_FRAMES moves that did not end it. A step stops
 *   at the move that ends the episode.
 * Score of an episode: the sum of the values of the tiles that merges made, as players count it, in [0, 3,932,164]
 *   (a 131,072 and one of each tile below it, all built of 2s). Random actions make about 1,100.
 * Solved: G2048_SOLVED_SCORE, at which the average game makes a 1,024 and continues. The merges up to that tile are
 *   worth 8,192 (if built only of 4s) to 9,216 (only of 2s; nine in ten new tiles are 2s). The merges up to the tile
 *   2048 are worth more than twice as much, 18,432 to 20,480.
 * Call order: g2048_seed once, g2048_reset, then g2048_step until it ends, g2048_episode if wanted, g2048_reset,
 *   g2048_step ...
 * RNG draws (state in the struct): one for each new tile (cell and value), so two per reset and one per move that
 *   changes the board. Buffers are borrowed for the call; every call writes every element of each output that it is
 *   given. No allocation, no output, no exit. All numbers are integers, except the reward's scale, a power of two: a
 *   trajectory repeats bit for bit on every machine.
 *
 * Speed: a row is one 32-bit word of four bytes, and a move works on all four lines at once, byte by byte within words,
 * without a branch ("SIMD within a register").
 *
 * Source: the game is G. Cirulli's, 2014. Bytes within a word: H. S. Warren, "Hacker's Delight", 2nd edition, 2013,
 * sections 2-18 and 6-1.
 */
#ifndef PROTEIN_G2048_H
#define PROTEIN_G2048_H

#include <assert.h>
#include <stdint.h>
#include <string.h>

#include "pcg32.h"

#define G2048_DESCRIPTION "slide and merge tiles on a 4 x 4 board"
#define G2048_OBSERVATION_SIZE 256
#define G2048_OBSERVATION_SHAPE {16, 4, 4}
#define G2048_OBSERVATION_BYTES 1 /* the largest; observations are bytes */
#define G2048_ACTION_SIZES {4}
#define G2048_AGENTS_PER_ENV 1
#define G2048_SCORE_LOW 0.0
#define G2048_SCORE_HIGH 3932164.0
#define G2048_SOLVED_SCORE 10000.0
#define G2048_MAX_FRAMES 20000

#define G2048_PLANES 16
#define G2048_EACH UINT32_C(0x01010101) /* a one in each of the four bytes of a word */
#define G2048_REWARD_SCALE 0.00390625f  /* 1 / 256 */

typedef struct g2048_t {
    uint64_t rng;
    uint32_t rows[4];  /* byte c of word r: the exponent in cell (r, c) */
    int32_t points;    /* since the episode began */
    int32_t frames;    /* since the episode began */
    int32_t decisions; /* steps since the episode began */
    int32_t unused;    /* no padding is left uninitialised */
} g2048_t;

/* What a page draws. */
#define G2048_SHOWN(field, each) field(rows) field(points) field(frames)

/* Returns 0xff in each byte of `cells` that is 0, and 0 in the others. Bytes are below 0x80, so no sum carries over. */
static inline uint32_t g2048_zeros(uint32_t cells) {
    const uint32_t top_bits = (cells + UINT32_C(0x7f7f7f7f)) & UINT32_C(0x80808080);
    return ((top_bits ^ UINT32_C(0x80808080)) >> 7) * UINT32_C(0xff);
}

/* Where `near` is empty, what is in `far` moves there. */
static inline void g2048_pull(uint32_t *near, uint32_t *far) {
    const uint32_t empty = g2048_zeros(*near);
    *near |= *far & empty;
    *far &= ~empty;
}

/* Merges `far` into `near` where they are equal tiles, and returns the sum of the values of the new ones. */
static inline uint32_t g2048_merge(uint32_t *near, uint32_t *far) {
    const uint32_t equal = g2048_zeros(*near ^ *far) & ~g2048_zeros(*near) & G2048_EACH;
    uint32_t points = 0;
    *near += equal;
    *far &= ~(equal * 0xffu);
    for (int shift = 0; shift < 32; shift += 8) points += ((equal >> shift) & 1u) << ((*near >> shift) & 31u);
    return points;
}

/* Slides the four lines that cross the words, byte k of each word being line k, towards word 0. Returns the points. */
static inline uint32_t g2048_slide(uint32_t words[4]) {
    uint32_t points;
    g2048_pull(&words[2], &words[3]);
    g2048_pull(&words[1], &words[2]);
    g2048_pull(&words[0], &words[1]);
    g2048_pull(&words[2], &words[3]);
    g2048_pull(&words[1], &words[2]);
    g2048_pull(&words[2], &words[3]);
    points = g2048_merge(&words[0], &words[1]);
    g2048_pull(&words[1], &words[2]);
    g2048_pull(&words[2], &words[3]);
    points += g2048_merge(&words[1], &words[2]);
    g2048_pull(&words[2], &words[3]);
    points += g2048_merge(&words[2], &words[3]);
    return points;
}

/* Transposes: byte k of word i changes places with byte i of word k. */
static inline void g2048_transpose(uint32_t words[4]) {
    const uint32_t even = UINT32_C(0x00ff00ff), odd = UINT32_C(0xff00ff00), low = UINT32_C(0xffff);
    const uint32_t a = (words[0] & even) | ((words[1] & even) << 8), b = ((words[0] & odd) >> 8) | (words[1] & odd);
    const uint32_t c = (words[2] & even) | ((words[3] & even) << 8), d = ((words[2] & odd) >> 8) | (words[3] & odd);
    words[0] = (a & low) | (c << 16);
    words[1] = (b & low) | (d << 16);
    words[2] = (a >> 16) | (c & ~low);
    words[3] = (b >> 16) | (d & ~low);
}

static inline int g2048_can_move(const uint32_t rows[4]) {
    uint32_t found = 0;
    for (int r = 0; r < 4; ++r) {
        found |= g2048_zeros(rows[r]);
        found |= g2048_zeros(rows[r] ^ (rows[r] >> 8)); /* the last column is compared with 0, as above */
        if (r < 3) found |= g2048_zeros(rows[r] ^ rows[r + 1]);
    }
    return found != 0;
}

/* Puts a new tile on an empty cell, of which there must be one. */
static inline void g2048_add_tile(g2048_t *env) {
    uint32_t until[4]; /* byte c: empty cells in the row up to column c, that one included; its sum in the top byte */
    uint32_t num_empty = 0;
    for (int r = 0; r < 4; ++r) {
        until[r] = (g2048_zeros(env->rows[r]) & G2048_EACH) * G2048_EACH;
        num_empty += until[r] >> 24;
    }
    /* Uniform over (empty cell, one of ten chances), to 2^-24. */
    const uint32_t draw = (uint32_t)(((uint64_t)pcg32_next(&env->rng) * (10 * num_empty)) >> 32);
    const uint32_t exponent = draw % 10 == 0 ? 2 : 1;
    uint32_t chosen = draw / 10 + 1; /* which of the empty cells, counted from 1 on through the rows that are left */
    for (int r = 0; r < 4; ++r) {
        const uint32_t here = g2048_zeros(until[r] ^ ((chosen & 0x7fu) * G2048_EACH)) & g2048_zeros(env->rows[r]);
        env->rows[r] |= here & (exponent * G2048_EACH);
        chosen -= until[r] >> 24; /* once below 1, its lowest seven bits are no empty cell's count */
    }
}

static inline void g2048_observe(const g2048_t *env, uint8_t *observation) {
    memset(observation, 0, G2048_OBSERVATION_SIZE * sizeof *observation);
    for (uint32_t cell = 0; cell < 16; ++cell) {
        const uint32_t exponent = (env->rows[cell / 4] >> (8 * (cell % 4))) & 0xffu;
        observation[16 * (exponent < G2048_PLANES ? exponent : G2048_PLANES - 1) + cell] = 1;
    }
}

/* Slides the board if that changes it. Returns whether it does; then `points` is what the merges scored. Directions are
 * hard to predict, so masks select them: a mispredicted branch costs as much as half a move. */
static inline int g2048_move(uint32_t rows[4], int32_t action, int32_t *points) {
    const uint32_t sideways = 0u - ((uint32_t)action & 1u);               /* right and left: all ones */
    const uint32_t backwards = 0u - (((uint32_t)(action + 1) >> 1) & 1u); /* right and down: all ones */
    uint32_t turned[4], words[4], lines[4], changed = 0;
    memcpy(turned, rows, sizeof turned);
    g2048_transpose(turned);
    for (int i = 0; i < 4; ++i) words[i] = rows[i] ^ ((rows[i] ^ turned[i]) & sideways);
    for (int i = 0; i < 4; ++i) lines[i] = words[i] ^ ((words[i] ^ words[3 - i]) & backwards);
    *points = (int32_t)g2048_slide(lines);
    for (int i = 0; i < 4; ++i) {
        const uint32_t word = lines[i] ^ ((lines[i] ^ lines[3 - i]) & backwards);
        changed |= word ^ words[i];
        words[i] = word;
    }
    memcpy(turned, words, sizeof turned);
    g2048_transpose(turned);
    for (int i = 0; i < 4; ++i) rows[i] = words[i] ^ ((words[i] ^ turned[i]) & sideways);
    return changed != 0;
}

/* Seeds the environment's generator: the same (seed, index) replays the same games. */
static inline void g2048_seed(g2048_t *env, uint64_t seed, uint64_t index) {
    assert(env);
    env->rng = pcg32_seed(seed, index);
}

static inline void g2048_reset(g2048_t *env, uint8_t *observation) {
    assert(env && observation);
    memset(env->rows, 0, sizeof env->rows);
    env->points = 0;
    env->frames = 0;
    env->decisions = 0;
    env->unused = 0;
    g2048_add_tile(env);
    g2048_add_tile(env);
    g2048_observe(env, observation);
}

static inline void g2048_step(g2048_t *env, const int32_t *action, int32_t frame_skip, uint8_t *observation,
                              float *reward, uint8_t *terminal, uint8_t *truncation) {
    assert(env && action && observation && reward && terminal && truncation && frame_skip >= 1);
    assert(*action >= 0 && *action < 4);
    assert(env->frames < G2048_MAX_FRAMES); /* an episode that has ended is followed by reset */
    const int32_t before = env->points;
    int32_t left = G2048_MAX_FRAMES - env->frames;
    int over = 0;
    for (left = frame_skip < left ? frame_skip : left; left > 0 && !over; --left) {
        int32_t points;
        for (int32_t move = *action; !g2048_move(env->rows, move, &points);) move = (move + 1) & 3;
        g2048_add_tile(env);
        env->points += points;
        env->frames += 1;
        over = !g2048_can_move(env->rows);
    }
    env->decisions += 1;
    g2048_observe(env, observation);
    *reward = (float)(env->points - before) * G2048_REWARD_SCALE;
    *terminal = (uint8_t)over;
    *truncation = (uint8_t)(!over && env->frames >= G2048_MAX_FRAMES);
}

/* Writes score, undiscounted return and length in steps of the episode that the last step ended. */
static inline void g2048_episode(const g2048_t *env, float *score, float *return_, int32_t *length) {
    assert(env && score && return_ && length);
    *score = (float)env->points;
    *return_ = *score * G2048_REWARD_SCALE;
    *length = env->decisions;
}

#endif
