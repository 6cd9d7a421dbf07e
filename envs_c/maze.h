/* Maze: find the goal of a maze that is new in every episode, from a view of what is near and of one's own trail.
 *
 * The maze is MAZE_ROOMS x MAZE_ROOMS rooms on a grid of MAZE_SIDE x MAZE_SIDE cells: cell (r, c) is a room where r and
 * c are odd, and a wall or a passage where one of them is. Its passages are a spanning tree, carved at random depth
 * first from the start: exactly one way leads from any room to any other. Start and goal are rooms, all pairs equally
 * likely. A move into a wall leaves the player where it is.
 *
 * Observation (float32 x 147, shape 3 x 7 x 7: plane, row, column), a window whose middle, row 3 and column 3, is the
 * player's cell; north is row 0. Cells further than 3 away are not seen:
 *     0 + 7 i + j   1 where the cell is a wall or outside the maze, else 0
 *    49 + 7 i + j   1 where it is the goal, else 0
 *    98 + 7 i + j   the trail: 0 where the player has not been, 1/3 where it has entered once (or started), 2/3 where
 *                   more often, and 1 for the cell that it has left last
 * Actions: 0 up (north), 1 right, 2 down, 3 left, repeated for `frame_skip` moves. Any other value is the caller's
 *   error.
 * Reward: 1 at the goal, 0 before.
 * Ends: terminal at the goal; truncated after MAZE_MAX_FRAMES moves that did not lead there. A step stops at the move
 *   that ends the episode. Score of an episode: 1 or 0, as the reward. The time until the goal does not count in the
 *   score, but it is the episode's length.
 *
 * What is possible: 1, without any memory but the trail. A policy that always goes to the open neighbouring cell with
 *   the least trail explores depth first: into new cells, else back along cells that it entered once, and never twice
 *   into a dead end. It walks each of the 48 passages, of two cells each, at most twice, so MAZE_MAX_FRAMES moves
 *   always suffice. Random actions find about 12 goals of 100, mostly near ones.
 * Solved: MAZE_SOLVED_SCORE: all goals, except those missed by the remaining randomness of a policy in training.
 * Call order: maze_seed once, maze_reset, then maze_step until it ends, maze_episode if wanted, maze_reset, maze_step
 *   ...
 * RNG draws (state in the struct), all in reset: the start, the goal, and one for each of the 48 passages, in the order
 *   in which they are carved. Buffers are borrowed for the call; every call writes every element of each output that it
 *   is given. No allocation, no output, no exit. All numbers are integers and constants: a trajectory repeats bit for
 *   bit on every machine.
 *
 * Source: depth-first search of a maze by marks on the floor is C. P. Tremaux's, in E. Lucas, "Recreations
 * mathematiques" I, 1882.
 */
#ifndef PROTEIN_MAZE_H
#define PROTEIN_MAZE_H

#include <assert.h>
#include <stdint.h>
#include <string.h>

#include "pcg32.h"

#define MAZE_DESCRIPTION "find the goal of a new maze, seeing 3 cells far"
#define MAZE_OBSERVATION_SIZE 147
#define MAZE_OBSERVATION_SHAPE {3, 7, 7}
#define MAZE_ACTION_SIZES {4}
#define MAZE_AGENTS_PER_ENV 1
#define MAZE_SCORE_LOW 0.0
#define MAZE_SCORE_HIGH 1.0
#define MAZE_SOLVED_SCORE 0.95
#define MAZE_MAX_FRAMES 192 /* 2 * 2 * (MAZE_ROOMS * MAZE_ROOMS - 1) */

#define MAZE_ROOMS 7
#define MAZE_SIDE 15 /* 2 * MAZE_ROOMS + 1 */
#define MAZE_SIGHT 3
#define MAZE_WINDOW 7  /* 2 * MAZE_SIGHT + 1 */
#define MAZE_MARGIN 2  /* MAZE_SIGHT - 1 cells around the maze, so that no window leaves the array */
#define MAZE_STRIDE 19 /* MAZE_SIDE + 2 * MAZE_MARGIN */

/* What a cell is: how often it was entered, at most 2, or that it cannot be. */
enum { MAZE_OPEN = 0, MAZE_OFTEN = 2, MAZE_WALL = 3, MAZE_OUTSIDE = 4 };

typedef struct maze_t {
    uint64_t rng;
    int32_t at;        /* the player's cell; cells count row by row, the margin included */
    int32_t goal;      /* cell */
    int32_t back;      /* the action that leads to the cell that was left last; 4 before the first move */
    int32_t found;     /* whether the player is at the goal */
    int32_t frames;    /* since the episode began */
    int32_t decisions; /* steps since the episode began */
    uint8_t cells[MAZE_STRIDE * MAZE_STRIDE];
    uint8_t unused[7]; /* no padding is left uninitialised */
} maze_t;

/* What a page draws. */
#define MAZE_SHOWN(field, each) field(at) field(goal) field(found) field(cells) field(frames)

static const int32_t maze_moves[4] = {-MAZE_STRIDE, 1, MAZE_STRIDE, -1};

/* Returns an integer from 0 to `count` - 1, uniform to count / 2^32. */
static inline int32_t maze_draw(maze_t *env, int32_t count) {
    return (int32_t)(((uint64_t)pcg32_next(&env->rng) * (uint32_t)count) >> 32);
}

/* Returns the cell of room `room`. Rooms count row by row. */
static inline int32_t maze_room(int32_t room) {
    const int32_t first = MAZE_MARGIN + 1;
    return (first + 2 * (room / MAZE_ROOMS)) * MAZE_STRIDE + first + 2 * (room % MAZE_ROOMS);
}

static inline void maze_carve(maze_t *env, int32_t start) {
    int32_t path[MAZE_ROOMS * MAZE_ROOMS]; /* from the start to the room that is carved from */
    int32_t depth = 0;
    memset(env->cells, MAZE_OUTSIDE, sizeof env->cells);
    for (int32_t r = MAZE_MARGIN; r < MAZE_MARGIN + MAZE_SIDE; ++r)
        memset(&env->cells[r * MAZE_STRIDE + MAZE_MARGIN], MAZE_WALL, MAZE_SIDE);
    env->cells[start] = MAZE_OPEN;
    path[0] = start;
    while (depth >= 0) {
        const int32_t room = path[depth];
        int32_t moves[4], num_moves = 0;
        for (int32_t i = 0; i < 4; ++i) {
            moves[num_moves] = maze_moves[i];
            num_moves += env->cells[room + 2 * maze_moves[i]] == MAZE_WALL;
        }
        if (num_moves == 0) {
            --depth;
            continue;
        }
        const int32_t move = moves[maze_draw(env, num_moves)];
        env->cells[room + move] = MAZE_OPEN;
        env->cells[room + 2 * move] = MAZE_OPEN;
        path[++depth] = room + 2 * move;
    }
}

static inline void maze_observe(const maze_t *env, float *observation) {
    static const float wall[5] = {0.0f, 0.0f, 0.0f, 1.0f, 1.0f};
    static const float trail[5] = {0.0f, 1.0f / 3.0f, 2.0f / 3.0f, 0.0f, 0.0f};
    static const int32_t beside[5] = {-MAZE_WINDOW, 1, MAZE_WINDOW, -1, 0};
    const int32_t plane = MAZE_WINDOW * MAZE_WINDOW, middle = MAZE_SIGHT * MAZE_WINDOW + MAZE_SIGHT;
    const uint8_t *corner = &env->cells[env->at - MAZE_SIGHT * MAZE_STRIDE - MAZE_SIGHT];
    float *walls = observation, *goals = observation + plane, *trails = observation + 2 * plane;
    for (int32_t i = 0; i < MAZE_WINDOW; ++i) {
        for (int32_t j = 0; j < MAZE_WINDOW; ++j) {
            const uint8_t cell = corner[i * MAZE_STRIDE + j];
            walls[i * MAZE_WINDOW + j] = wall[cell];
            trails[i * MAZE_WINDOW + j] = trail[cell];
        }
    }
    if (env->back < 4) trails[middle + beside[env->back]] = 1.0f;
    for (int32_t k = 0; k < plane; ++k) goals[k] = 0.0f;
    const int32_t down = env->goal / MAZE_STRIDE - env->at / MAZE_STRIDE;
    const int32_t right = env->goal % MAZE_STRIDE - env->at % MAZE_STRIDE;
    if (down >= -MAZE_SIGHT && down <= MAZE_SIGHT && right >= -MAZE_SIGHT && right <= MAZE_SIGHT)
        goals[middle + down * MAZE_WINDOW + right] = 1.0f;
}

/* Seeds the environment's generator: the same (seed, index) replays the same games. */
static inline void maze_seed(maze_t *env, uint64_t seed, uint64_t index) {
    assert(env);
    env->rng = pcg32_seed(seed, index);
}

static inline void maze_reset(maze_t *env, float *observation) {
    assert(env && observation);
    const int32_t rooms = MAZE_ROOMS * MAZE_ROOMS;
    const int32_t start = maze_draw(env, rooms), after = maze_draw(env, rooms - 1) + 1;
    env->at = maze_room(start);
    env->goal = maze_room((start + after) % rooms);
    env->back = 4;
    env->found = 0;
    env->frames = 0;
    env->decisions = 0;
    memset(env->unused, 0, sizeof env->unused);
    maze_carve(env, env->at);
    env->cells[env->at] = 1;
    maze_observe(env, observation);
}

static inline void maze_step(maze_t *env, const int32_t *action, int32_t frame_skip, float *observation, float *reward,
                             uint8_t *terminal, uint8_t *truncation) {
    assert(env && action && observation && reward && terminal && truncation && frame_skip >= 1);
    assert(*action >= 0 && *action < 4);
    assert(env->frames < MAZE_MAX_FRAMES); /* an episode that has ended is followed by reset */
    const int32_t rest = MAZE_MAX_FRAMES - env->frames;
    for (int32_t left = frame_skip < rest ? frame_skip : rest; left > 0 && !env->found; --left) {
        const int32_t to = env->at + maze_moves[*action];
        env->frames += 1;
        if (env->cells[to] >= MAZE_WALL) continue;
        env->at = to;
        env->back = (*action + 2) & 3;
        env->cells[to] = (uint8_t)(env->cells[to] < MAZE_OFTEN ? env->cells[to] + 1 : MAZE_OFTEN);
        env->found = to == env->goal;
    }
    env->decisions += 1;
    maze_observe(env, observation);
    *reward = (float)env->found;
    *terminal = (uint8_t)env->found;
    *truncation = (uint8_t)(!env->found && env->frames >= MAZE_MAX_FRAMES);
}

/* Writes score, undiscounted return and length in steps of the episode that the last step ended. */
static inline void maze_episode(const maze_t *env, float *score, float *return_, int32_t *length) {
    assert(env && score && return_ && length);
    *score = (float)env->found;
    *return_ = *score;
    *length = env->decisions;
}

#endif
