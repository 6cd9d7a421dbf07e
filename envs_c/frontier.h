/* Frontier: four tribes live off one land. Agents are born, gather, eat, build, trade, strike and die; new ones come.
 *
 * The land is FRONTIER_SIDE x FRONTIER_SIDE tiles. Up to FRONTIER_AGENTS agents live on it at the same time, each on a
 * tile of its own; each tribe has FRONTIER_PER_TRIBE slots for them. A slot that nobody holds is idle. The first
 * FRONTIER_LEARNERS tribes (one, unless it is compiled with another number) are the caller's: their slots are the rows
 * of every array. The other tribes play by scripts: tribe 1 at random, tribe 2 gathers, tribe 3 gathers and defends.
 *
 * Land: a tile is bare or bears one good, 0 to FRONTIER_PLENTY units of food, water, wood or ore. All tiles are visited
 *   once in FRONTIER_SEASON frames, some in each frame: a unit grows back, water fills up, a wall loses
 *   FRONTIER_WEAR of its strength. Goods lie in patches of 5 x 5 tiles, FRONTIER_PATCHES for each slot, so a larger
 *   land for as many is poorer. At first each tile with a good has one unit.
 * Birth: in FRONTIER_BIRTH_FRAMES frames each tribe that has an idle slot tries as many tiles as it has slots, evenly
 *   spread, each at most FRONTIER_HOME_REACH away from its home along each axis. An agent is born there if the tile is
 *   free and one of the 5 x 5 tiles around it has food. Births come at the end of a step, in slots that were idle
 *   before, each in the first one after the last birth's, so that all slots are used alike.
 * Body: `fed` and `watered` fall by one each frame. Every 8th frame of its life an agent loses one health for each of
 *   the two that is 0. Where it loses none and both are at least half full, it gains one, but away from home (more than
 *   FRONTIER_NEAR tiles along an axis) only every 16th frame. Without health it falls. At FRONTIER_MAX_FRAMES it
 *   leaves.
 * Skills: gathering, building and striking each grow by one with each use that has an effect, and have the level 1, 2
 *   or 3 from 16, 64 and 192 uses on.
 *
 * Observation (uint8 x 968, shape 8 x 11 x 11, 16 is the largest): the window around the agent, which is in its middle,
 *   row 5, column 5; north is row 0. All zero for an idle slot. Planes:
 *   0 food, 1 water, 2 wood, 3 ore     8 + 2 x the units on the tile, 0 where there are none
 *   4 barrier                          16 the land's edge and beyond, 1 to 13 a wall's strength
 *   5 own tribe, 6 other tribes        2 x the health of the agent on the tile, oneself included
 *   7 oneself, cell k in the place of the k-th number, the rest 0:
 *      0 fed / 8   1 watered / 8   2 2 x health   3..6 2 x the food, water, wood and ore that it carries
 *      7..9 4 x level of gathering, building, striking   10 age / 64
 *     11 12 home's place: (rows down, then columns right) / 8, rounded down, cut to [-8, 8], plus 8
 *     13 frames since it was struck last: 16 less that many, at least 0   14 16 if the last act had an effect
 *     15 16 if the last move was blocked   16 16 times the share of the tribe's slots that are held
 *     17 + 5 k: of good k, 16 if it is on the own tile; then how far north, east, south and west of here, times 3, its
 *        nearest tile in the window is (by rows and columns together; of equals the first, row by row)
 *     37 16 if a stranger, an agent of another tribe, is beside it   38..41 the same way to the nearest stranger
 *     42..45 16 for the direction of the last frame's move: north, east, south, west
 * Actions (three components, held for `frame_skip` frames; any other value is the caller's error; those of idle slots
 *   are ignored):
 *   0  move: 0 stay, 1 north, 2 east, 3 south, 4 west. Barriers and agents block.
 *   1  act, after the move: 0 nothing
 *      1 gather: takes 1 + level units from the target, or from its own tile if none are there, as far as they are
 *        there and can be carried (8 of each good)
 *      2 consume one carried unit of food or water, the need that is lower (if only one is carried, that): it gains
 *        FRONTIER_UNIT, as far as there is room for it
 *      3 build a wall of strength 4 + 3 x level on the target, which must be bare and free, for 2 wood
 *      4 strike the stranger on the target, or else the first one beside it in the order of the targets, or else the
 *        wall on the target: 1 + level damage, one more with ore. It costs one of `fed`. Who fells an agent takes what
 *        it carried, as far as it can carry it; the rest is lost
 *      5 trade with the agent on the target: one unit of the good that each has most of (of equals the first), if
 *        these differ and each has at least two
 *   2  target of the act: 0 its own tile, 1 north, 2 east, 3 south, 4 west. Acts 3 and 5 need a neighbour.
 * A frame: the land grows; agents move and act one after the other, beginning at a slot that shifts by
 *   FRONTIER_PER_TRIBE + 1 each frame; then bodies change, by slot. Scripts decide once for a step, from what was there
 *   at its beginning, as the caller does.
 * Scripts (frontier_script; they see what the agent sees, and change nothing):
 *   random    every action alike
 *   gatherer  consumes where a unit would be used up whole; walks to the nearest tile of food or water, whichever it
 *             has less of, and gathers it on arrival; without one in sight it wanders
 *   defender  the same, but it first strikes a stranger beside it that has less health, or any if it was struck within
 *             the last 16 frames; and with plenty of both it looks for ore
 * Reward: .01 for each frame lived, .1 for each unit of food or water that it gathers or takes from whom it fells, .05
 *   for FRONTIER_UNIT that these restored, -.1 for FRONTIER_UNIT that they could have restored to a fuller body and did
 *   not, .1 for each health that it takes from a stranger, -1 for falling. What it gathers it can only carry, eat or
 *   trade away, so nothing is earned in a circle.
 * Ends: each agent alone. Terminal when it falls, truncated when it leaves; its slot is then idle. `frontier_playing`
 *   says who acts in the next step. In the step in which an agent is born to an idle slot, that row is terminal too, so
 *   that memory begins anew: it ends no episode, and its observation is the newborn's first. Idle rows are rewarded
 *   with 0. Score of an episode: frames lived, in [1, FRONTIER_MAX_FRAMES].
 * Solved: FRONTIER_SOLVED_SCORE, a quarter more than the best of the three scripts lives in the same place.
 * Call order: frontier_seed once, frontier_reset, then frontier_step; after each step frontier_episode if wanted and
 *   frontier_respawn for every row that was playing and has ended, in order.
 * RNG draws (state in the struct): at a reset one for the homes and two for each patch; then, as at the end of a step,
 *   one for each tile that a birth tries (row from the upper 16 bits, column from the lower). Scripts draw none.
 * Cost: tiles hold who stands on them, so a step's cost per agent does not depend on how many there are. A world takes
 *   sizeof(frontier_t): 5 bytes a tile, a margin of 5 tiles included, and 48 an agent: 28 kB for 16 agents on
 *   64 x 64 tiles, 101 kB for 128 on 128 x 128, 403 kB for 1,024 on 256 x 256.
 * Buffers are borrowed for the call; every call writes every element of each output that it is given. No allocation,
 * no output, no exit. Arithmetic is on integers but for the reward, a sum of products of small integers and constants.
 */
#ifndef PROTEIN_FRONTIER_H
#define PROTEIN_FRONTIER_H

#include <assert.h>
#include <stdint.h>
#include <string.h>

#include "pcg32.h"

/* What a variant may define before: slots and side are powers of two, the side from 64 to 256. */
#ifndef FRONTIER_AGENTS
#define FRONTIER_AGENTS 128
#endif
#ifndef FRONTIER_SIDE
#define FRONTIER_SIDE 128
#endif
#ifndef FRONTIER_LEARNERS
#define FRONTIER_LEARNERS 1
#endif

#define FRONTIER_TRIBES 4
#define FRONTIER_PER_TRIBE (FRONTIER_AGENTS / FRONTIER_TRIBES)
#define FRONTIER_VISION 5 /* tiles seen in each direction */
#define FRONTIER_WINDOW 11
#define FRONTIER_WINDOW_CELLS 121
#define FRONTIER_PLANES 8

#define FRONTIER_TEXT_(number) #number
#define FRONTIER_TEXT(number) FRONTIER_TEXT_(number)
#define FRONTIER_DESCRIPTION                                                                                      \
    "four tribes of agents that come and go, at most " FRONTIER_TEXT(FRONTIER_AGENTS) " of them; " FRONTIER_TEXT( \
        FRONTIER_LEARNERS) " of the tribes learns"
#define FRONTIER_OBSERVATION_SIZE 968
#define FRONTIER_OBSERVATION_SHAPE {FRONTIER_PLANES, FRONTIER_WINDOW, FRONTIER_WINDOW}
#define FRONTIER_OBSERVATION_BYTES 16 /* the largest; observations are bytes */
#define FRONTIER_ACTION_SIZES {5, 6, 5}
#define FRONTIER_COMPONENTS 3
#define FRONTIER_AGENTS_PER_ENV (FRONTIER_LEARNERS * FRONTIER_PER_TRIBE)
#if FRONTIER_LEARNERS > 1
#define FRONTIER_SIDES FRONTIER_LEARNERS /* each tribe is one */
#endif
#define FRONTIER_AGENTS_END_ALONE
#define FRONTIER_AGENTS_COME_AND_GO
#define FRONTIER_SCRIPTS {"random", "gatherer", "defender"}
#define FRONTIER_SCORE_LOW 1.0
#define FRONTIER_SCORE_HIGH 1024.0
#ifndef FRONTIER_SOLVED_SCORE
#define FRONTIER_SOLVED_SCORE 580.0
#endif
#define FRONTIER_MAX_FRAMES 1024

#define FRONTIER_STRIDE (FRONTIER_SIDE + 2 * FRONTIER_VISION) /* a window never leaves the array */
#define FRONTIER_CELLS (FRONTIER_STRIDE * FRONTIER_STRIDE)
#define FRONTIER_TILES (FRONTIER_SIDE * FRONTIER_SIDE)
#define FRONTIER_PLENTY 4   /* units of a good on a tile */
#define FRONTIER_SEASON 512 /* frames in which every tile is visited once */
#define FRONTIER_WEAR 2     /* strength that a wall loses then */
#define FRONTIER_PATCHES 4  /* for each slot */
#define FRONTIER_BIRTH_FRAMES 24
#define FRONTIER_HOME_REACH 15
#define FRONTIER_NEAR 4 /* tiles from home where agents recover sooner */
#define FRONTIER_HEALTH 8
#define FRONTIER_FULL 128 /* `fed` and `watered` at most, */
#define FRONTIER_BORN 96  /* and at birth */
#define FRONTIER_UNIT 24  /* what one unit restores */
#define FRONTIER_PACK 8   /* units of each good that an agent carries */
#define FRONTIER_WALL_WOOD 2
#define FRONTIER_EDGE 16 /* barrier outside the land */
#define FRONTIER_STRUCK 16

enum { FRONTIER_FOOD, FRONTIER_WATER, FRONTIER_WOOD, FRONTIER_ORE, FRONTIER_GOODS };
enum { FRONTIER_GATHERING, FRONTIER_BUILDING, FRONTIER_STRIKING, FRONTIER_SKILLS };
enum { FRONTIER_GATHER = 1, FRONTIER_CONSUME, FRONTIER_BUILD, FRONTIER_STRIKE, FRONTIER_TRADE };
enum { FRONTIER_RANDOM, FRONTIER_GATHERER, FRONTIER_DEFENDER }; /* scripts */
/* Of a slot. What has fallen or left in a step is so until `frontier_respawn`, or the next step of a scripted one. */
enum { FRONTIER_IDLE, FRONTIER_LIVES, FRONTIER_FELL, FRONTIER_LEFT };

typedef struct frontier_agent_t {
    int32_t at; /* cell; cells count row by row, the margin included */
    int32_t age;
    int32_t decisions;
    int32_t restored; /* by food and water, since it was born */
    int32_t gathered; /* of food and water, loot included, since it was born */
    int32_t wasted;   /* of what these could have restored, since it was born */
    int32_t dealt;    /* health taken from strangers, since it was born */
    uint16_t uses[FRONTIER_SKILLS];
    int16_t fed, watered;
    uint8_t pack[FRONTIER_GOODS];
    uint8_t state, health;
    uint8_t struck;  /* FRONTIER_STRUCK when it is struck, then one less each frame */
    uint8_t did;     /* the last frame's act, if it had an effect */
    uint8_t blocked; /* whether the last frame's move was */
    uint8_t moved;   /* the last frame's move, 0 if it was blocked */
} frontier_agent_t;

typedef struct frontier_t {
    uint64_t rng;
    int32_t frames; /* since the reset */
    int32_t held[FRONTIER_TRIBES];
    int32_t home[FRONTIER_TRIBES]; /* cells */
    int32_t next[FRONTIER_TRIBES]; /* slot after the last one that was born to, of the tribe's */
    frontier_agent_t agents[FRONTIER_AGENTS];
    uint16_t holder[FRONTIER_CELLS]; /* slot of who stands there, plus 1; 0: nobody */
    uint8_t ground[FRONTIER_CELLS];  /* 0 bare, or 16 x (good + 1) + units */
    uint8_t barrier[FRONTIER_CELLS]; /* strength of a wall, FRONTIER_EDGE outside the land, 0: none */
    uint8_t folk[FRONTIER_CELLS];    /* 16 x (tribe + 1) + health of who stands there, 0: nobody */
} frontier_t;

/* What a page draws. */
#define FRONTIER_SHOWN(field, each)                                                                        \
    field(frames) field(held) field(home) field(ground) field(barrier) field(folk) each(agents, at)        \
        each(agents, state) each(agents, health) each(agents, fed) each(agents, watered) each(agents, age) \
            each(agents, did) each(agents, pack)

/* By target: here, north, east, south, west. */
static const int32_t frontier_ahead[5] = {0, -FRONTIER_STRIDE, 1, FRONTIER_STRIDE, -1};

static inline int32_t frontier_cell(int32_t row, int32_t column) {
    return (row + FRONTIER_VISION) * FRONTIER_STRIDE + column + FRONTIER_VISION;
}

static inline int32_t frontier_tribe(int32_t slot) { return slot / FRONTIER_PER_TRIBE; }

static inline int32_t frontier_level(const frontier_agent_t *agent, int32_t skill) {
    const int32_t uses = agent->uses[skill];
    return (uses >= 16) + (uses >= 64) + (uses >= 192);
}

static inline int32_t frontier_least(int32_t a, int32_t b) { return a < b ? a : b; }

static inline int32_t frontier_cut(int32_t value, int32_t limit) {
    return value < -limit ? -limit : (value > limit ? limit : value);
}

/* Units of a good on a tile. */
static inline int32_t frontier_units(const frontier_t *env, int32_t cell, int32_t good) {
    return (env->ground[cell] >> 4) == good + 1 ? env->ground[cell] & 15 : 0;
}

static inline void frontier_stand(frontier_t *env, int32_t slot) {
    const frontier_agent_t *agent = &env->agents[slot];
    env->holder[agent->at] = (uint16_t)(slot + 1);
    env->folk[agent->at] = (uint8_t)(16 * (frontier_tribe(slot) + 1) + agent->health);
}

/* Takes an agent off the land: it fell, or it left. */
static inline void frontier_end(frontier_t *env, int32_t slot, int32_t state) {
    frontier_agent_t *agent = &env->agents[slot];
    env->holder[agent->at] = 0;
    env->folk[agent->at] = 0;
    env->held[frontier_tribe(slot)] -= 1;
    agent->state = (uint8_t)state;
}

/* What grows and wears out in a frame. The tiles' order jumps over the land. */
static inline void frontier_grow(frontier_t *env) {
    const uint32_t visits = FRONTIER_TILES / FRONTIER_SEASON, first = (uint32_t)env->frames * visits;
    for (uint32_t visit = first; visit < first + visits; ++visit) {
        const uint32_t tile = (visit * 40503u) & (FRONTIER_TILES - 1u);
        const int32_t cell = frontier_cell((int32_t)(tile / FRONTIER_SIDE), (int32_t)(tile % FRONTIER_SIDE));
        const int32_t ground = env->ground[cell], water = (ground >> 4) == FRONTIER_WATER + 1;
        if (ground != 0 && (ground & 15) < FRONTIER_PLENTY)
            env->ground[cell] = (uint8_t)(water ? (ground & 0xf0) | FRONTIER_PLENTY : ground + 1);
        env->barrier[cell] = (uint8_t)(env->barrier[cell] - frontier_least(env->barrier[cell], FRONTIER_WEAR));
    }
}

static inline int32_t frontier_gather(frontier_t *env, frontier_agent_t *agent, int32_t target) {
    const int32_t cell = (env->ground[target] & 15) != 0 ? target : agent->at;
    const int32_t good = (env->ground[cell] >> 4) - 1;
    if (good < 0) return 0;
    int32_t taken = frontier_least(env->ground[cell] & 15, 1 + frontier_level(agent, FRONTIER_GATHERING));
    taken = frontier_least(taken, FRONTIER_PACK - agent->pack[good]);
    env->ground[cell] = (uint8_t)(env->ground[cell] - taken);
    agent->pack[good] = (uint8_t)(agent->pack[good] + taken);
    agent->gathered += good <= FRONTIER_WATER ? taken : 0;
    return taken > 0;
}

static inline int32_t frontier_consume(frontier_agent_t *agent) {
    const int32_t food = agent->pack[FRONTIER_FOOD], water = agent->pack[FRONTIER_WATER];
    const int32_t good = food > 0 && (water == 0 || agent->fed <= agent->watered) ? FRONTIER_FOOD : FRONTIER_WATER;
    int16_t *need = good == FRONTIER_FOOD ? &agent->fed : &agent->watered;
    const int32_t restored = frontier_least(FRONTIER_UNIT, FRONTIER_FULL - *need);
    if (agent->pack[good] == 0 || restored == 0) return 0;
    agent->pack[good] = (uint8_t)(agent->pack[good] - 1);
    *need = (int16_t)(*need + restored);
    agent->restored += restored;
    agent->wasted += FRONTIER_UNIT - restored;
    return 1;
}

static inline int32_t frontier_build(frontier_t *env, frontier_agent_t *agent, int32_t cell) {
    if (env->ground[cell] | env->barrier[cell] | env->holder[cell]) return 0;
    if (agent->pack[FRONTIER_WOOD] < FRONTIER_WALL_WOOD) return 0;
    agent->pack[FRONTIER_WOOD] = (uint8_t)(agent->pack[FRONTIER_WOOD] - FRONTIER_WALL_WOOD);
    env->barrier[cell] = (uint8_t)(4 + 3 * frontier_level(agent, FRONTIER_BUILDING));
    return 1;
}

/* Whether the agent on a cell, if there is one, is of another tribe than a slot. */
static inline int32_t frontier_strange(const frontier_t *env, int32_t slot, int32_t cell) {
    return env->holder[cell] != 0 && frontier_tribe(env->holder[cell] - 1) != frontier_tribe(slot);
}

static inline int32_t frontier_strike(frontier_t *env, int32_t slot, int32_t cell) {
    frontier_agent_t *agent = &env->agents[slot];
    for (int32_t target = 1; target < 5 && !frontier_strange(env, slot, cell); ++target) {
        const int32_t beside = agent->at + frontier_ahead[target];
        if (frontier_strange(env, slot, beside)) cell = beside;
    }
    const int32_t struck = env->holder[cell] - 1, wall = env->barrier[cell];
    const int32_t damage = 1 + frontier_level(agent, FRONTIER_STRIKING) + (agent->pack[FRONTIER_ORE] > 0);
    if (struck >= 0 ? !frontier_strange(env, slot, cell) : wall == 0 || wall == FRONTIER_EDGE) return 0;
    if (agent->fed > 0) agent->fed = (int16_t)(agent->fed - 1);
    if (struck < 0) {
        env->barrier[cell] = (uint8_t)(wall - frontier_least(wall, damage));
        return 1;
    }
    frontier_agent_t *other = &env->agents[struck];
    const int32_t dealt = frontier_least(other->health, damage);
    other->health = (uint8_t)(other->health - dealt);
    agent->dealt += dealt;
    other->struck = FRONTIER_STRUCK;
    if (other->health > 0) {
        frontier_stand(env, struck);
        return 1;
    }
    for (int32_t good = 0; good < FRONTIER_GOODS; ++good) {
        const int32_t taken = frontier_least(other->pack[good], FRONTIER_PACK - agent->pack[good]);
        agent->pack[good] = (uint8_t)(agent->pack[good] + taken);
        agent->gathered += good <= FRONTIER_WATER ? taken : 0;
    }
    frontier_end(env, struck, FRONTIER_FELL);
    return 1;
}

static inline int32_t frontier_most(const frontier_agent_t *agent) {
    int32_t most = 0;
    for (int32_t good = 1; good < FRONTIER_GOODS; ++good)
        if (agent->pack[good] > agent->pack[most]) most = good;
    return most;
}

static inline int32_t frontier_trade(frontier_t *env, frontier_agent_t *agent, int32_t cell) {
    if (env->holder[cell] == 0) return 0;
    frontier_agent_t *other = &env->agents[env->holder[cell] - 1];
    const int32_t gives = frontier_most(agent), takes = frontier_most(other);
    if (gives == takes || agent->pack[gives] < 2 || other->pack[takes] < 2) return 0;
    if (agent->pack[takes] == FRONTIER_PACK || other->pack[gives] == FRONTIER_PACK) return 0;
    agent->pack[gives] = (uint8_t)(agent->pack[gives] - 1);
    agent->pack[takes] = (uint8_t)(agent->pack[takes] + 1);
    other->pack[takes] = (uint8_t)(other->pack[takes] - 1);
    other->pack[gives] = (uint8_t)(other->pack[gives] + 1);
    return 1;
}

/* One agent's move and act. */
static inline void frontier_act(frontier_t *env, int32_t slot, const int32_t *action) {
    static const int8_t skills[6] = {-1, FRONTIER_GATHERING, -1, FRONTIER_BUILDING, FRONTIER_STRIKING, -1};
    frontier_agent_t *agent = &env->agents[slot];
    const int32_t to = agent->at + frontier_ahead[action[0]], act = action[1];
    agent->blocked = action[0] != 0 && (env->holder[to] != 0 || env->barrier[to] != 0);
    if (action[0] != 0 && !agent->blocked) {
        env->holder[agent->at] = 0;
        env->folk[agent->at] = 0;
        agent->at = to;
        frontier_stand(env, slot);
    }
    agent->moved = (uint8_t)(agent->blocked ? 0 : action[0]);
    const int32_t cell = agent->at + frontier_ahead[action[2]], beside = action[2] != 0;
    int32_t effect = 0;
    if (act == FRONTIER_GATHER) effect = frontier_gather(env, agent, cell);
    if (act == FRONTIER_CONSUME) effect = frontier_consume(agent);
    if (act == FRONTIER_BUILD && beside) effect = frontier_build(env, agent, cell);
    if (act == FRONTIER_STRIKE) effect = frontier_strike(env, slot, cell);
    if (act == FRONTIER_TRADE && beside) effect = frontier_trade(env, agent, cell);
    agent->did = (uint8_t)(effect ? act : 0);
    if (effect && skills[act] >= 0 && agent->uses[skills[act]] < UINT16_MAX)
        agent->uses[skills[act]] = (uint16_t)(agent->uses[skills[act]] + 1);
}

/* Whether two cells are at most `reach` apart along each axis. */
static inline int32_t frontier_near(int32_t a, int32_t b, int32_t reach) {
    const int32_t rows = a / FRONTIER_STRIDE - b / FRONTIER_STRIDE, columns = a % FRONTIER_STRIDE - b % FRONTIER_STRIDE;
    return rows <= reach && rows >= -reach && columns <= reach && columns >= -reach;
}

/* What a frame does to an agent's body. */
static inline void frontier_age(frontier_t *env, int32_t slot) {
    frontier_agent_t *agent = &env->agents[slot];
    agent->age += 1;
    agent->fed = (int16_t)(agent->fed - (agent->fed > 0));
    agent->watered = (int16_t)(agent->watered - (agent->watered > 0));
    agent->struck = (uint8_t)(agent->struck - (agent->struck > 0));
    if (agent->age % 8 == 0) {
        const int32_t loss = (agent->fed == 0) + (agent->watered == 0);
        const int32_t well = 2 * agent->fed >= FRONTIER_FULL && 2 * agent->watered >= FRONTIER_FULL;
        if (loss > 0)
            agent->health = (uint8_t)(agent->health - frontier_least(agent->health, loss));
        else if (well && agent->health < FRONTIER_HEALTH)
            agent->health =
                (uint8_t)(agent->health + (agent->age % 16 == 0 ||
                                           frontier_near(agent->at, env->home[frontier_tribe(slot)], FRONTIER_NEAR)));
        frontier_stand(env, slot);
    }
    if (agent->health == 0)
        frontier_end(env, slot, FRONTIER_FELL);
    else if (agent->age >= FRONTIER_MAX_FRAMES)
        frontier_end(env, slot, FRONTIER_LEFT);
}

/* One attempt at a birth; returns the newborn's slot, or -1. */
static inline int32_t frontier_birth(frontier_t *env, int32_t tribe) {
    const int32_t side = 2 * FRONTIER_HOME_REACH + 1;
    const int32_t slots = FRONTIER_PER_TRIBE, first = tribe * slots;
    int32_t slot = -1, food = 0;
    for (int32_t k = 0; k < slots && slot < 0; ++k) {
        const int32_t other = first + ((env->next[tribe] + k) & (slots - 1));
        if (env->agents[other].state == FRONTIER_IDLE) slot = other;
    }
    if (slot < 0) return -1;
    const uint32_t bits = pcg32_next(&env->rng);
    const int32_t down = (int32_t)(((bits >> 16) * (uint32_t)side) >> 16) - FRONTIER_HOME_REACH;
    const int32_t right = (int32_t)(((bits & 0xffffu) * (uint32_t)side) >> 16) - FRONTIER_HOME_REACH;
    const int32_t cell = env->home[tribe] + down * FRONTIER_STRIDE + right;
    if (env->holder[cell] != 0 || env->barrier[cell] != 0) return -1;
    for (int32_t row = -2; row <= 2; ++row)
        for (int32_t column = -2; column <= 2; ++column)
            food |= frontier_units(env, cell + row * FRONTIER_STRIDE + column, FRONTIER_FOOD);
    if (food == 0) return -1;
    frontier_agent_t *agent = &env->agents[slot];
    memset(agent, 0, sizeof *agent);
    agent->at = cell;
    agent->fed = agent->watered = FRONTIER_BORN;
    agent->health = FRONTIER_HEALTH;
    agent->state = FRONTIER_LIVES;
    env->held[tribe] += 1;
    env->next[tribe] = (slot + 1 - first) & (slots - 1);
    frontier_stand(env, slot);
    return slot;
}

/* Writes a row's observation: an agent's, also the last of one that has left; or of an idle slot. */
static inline void frontier_observe(const frontier_t *env, int32_t slot, uint8_t *observation) {
    const frontier_agent_t *agent = &env->agents[slot];
    const int32_t tribe = frontier_tribe(slot), corner = agent->at - FRONTIER_VISION * (FRONTIER_STRIDE + 1);
    uint8_t ground[FRONTIER_WINDOW_CELLS], folk[FRONTIER_WINDOW_CELLS];
    uint8_t *planes = observation, *own = observation + 7 * FRONTIER_WINDOW_CELLS;
    if (agent->state == FRONTIER_IDLE) {
        memset(observation, 0, FRONTIER_OBSERVATION_SIZE);
        return;
    }
    for (int32_t row = 0; row < FRONTIER_WINDOW; ++row) {
        const int32_t from = corner + row * FRONTIER_STRIDE, to = row * FRONTIER_WINDOW;
        memcpy(ground + to, env->ground + from, FRONTIER_WINDOW);
        memcpy(folk + to, env->folk + from, FRONTIER_WINDOW);
        memcpy(planes + 4 * FRONTIER_WINDOW_CELLS + to, env->barrier + from, FRONTIER_WINDOW);
    }
    for (int32_t good = 0; good < FRONTIER_GOODS; ++good, planes += FRONTIER_WINDOW_CELLS)
        for (int32_t i = 0; i < FRONTIER_WINDOW_CELLS; ++i)
            planes[i] = (uint8_t)((ground[i] >> 4) == good + 1 && (ground[i] & 15) != 0 ? 8 + 2 * (ground[i] & 15) : 0);
    planes += FRONTIER_WINDOW_CELLS;
    for (int32_t i = 0; i < FRONTIER_WINDOW_CELLS; ++i) {
        const uint8_t health = (uint8_t)((folk[i] & 15) * 2), kin = (folk[i] >> 4) == tribe + 1;
        planes[i] = kin ? health : 0;
        planes[i + FRONTIER_WINDOW_CELLS] = kin ? 0 : health;
    }
    const int32_t home = env->home[tribe];
    const int32_t down = home / FRONTIER_STRIDE - agent->at / FRONTIER_STRIDE + FRONTIER_SIDE;
    const int32_t right = home % FRONTIER_STRIDE - agent->at % FRONTIER_STRIDE + FRONTIER_SIDE;
    memset(own, 0, FRONTIER_WINDOW_CELLS);
    own[0] = (uint8_t)(agent->fed / 8);
    own[1] = (uint8_t)(agent->watered / 8);
    own[2] = (uint8_t)(2 * agent->health);
    for (int32_t good = 0; good < FRONTIER_GOODS; ++good) own[3 + good] = (uint8_t)(2 * agent->pack[good]);
    for (int32_t skill = 0; skill < FRONTIER_SKILLS; ++skill)
        own[7 + skill] = (uint8_t)(4 * frontier_level(agent, skill));
    own[10] = (uint8_t)(agent->age / 64);
    own[11] = (uint8_t)(frontier_cut(down / 8 - FRONTIER_SIDE / 8, 8) + 8);
    own[12] = (uint8_t)(frontier_cut(right / 8 - FRONTIER_SIDE / 8, 8) + 8);
    own[13] = agent->struck;
    own[14] = agent->did ? 16 : 0;
    own[15] = agent->blocked ? 16 : 0;
    own[16] = (uint8_t)(env->held[tribe] * 16 / FRONTIER_PER_TRIBE);
    /* The nearest of each good and, as a fifth kind, of strangers. */
    int32_t nearest[FRONTIER_GOODS + 1] = {99, 99, 99, 99, 99}, rows[FRONTIER_GOODS + 1] = {0};
    int32_t columns[FRONTIER_GOODS + 1] = {0};
    for (int32_t i = 0; i < FRONTIER_WINDOW_CELLS; ++i) {
        const int32_t stranger = folk[i] != 0 && (folk[i] >> 4) != tribe + 1, units = (ground[i] & 15) != 0;
        if (!stranger && !units) continue;
        const int32_t row = i / FRONTIER_WINDOW - FRONTIER_VISION, column = i % FRONTIER_WINDOW - FRONTIER_VISION;
        const int32_t distance = (row < 0 ? -row : row) + (column < 0 ? -column : column);
        const int32_t kinds[2] = {units ? (ground[i] >> 4) - 1 : -1, stranger ? FRONTIER_GOODS : -1};
        for (int32_t k = 0; k < 2; ++k) {
            if (kinds[k] < 0 || distance >= nearest[kinds[k]]) continue;
            nearest[kinds[k]] = distance;
            rows[kinds[k]] = row;
            columns[kinds[k]] = column;
        }
    }
    for (int32_t kind = 0; kind <= FRONTIER_GOODS; ++kind) {
        uint8_t *way = own + 17 + 5 * kind;
        way[0] = nearest[kind] == (kind == FRONTIER_GOODS) ? 16 : 0;
        way[rows[kind] < 0 ? 1 : 3] = (uint8_t)(3 * (rows[kind] < 0 ? -rows[kind] : rows[kind]));
        way[columns[kind] < 0 ? 4 : 2] = (uint8_t)(3 * (columns[kind] < 0 ? -columns[kind] : columns[kind]));
    }
    if (agent->moved != 0) own[41 + agent->moved] = 16;
}

/* Returns where the nearest units of a good are in an agent's window (of equals the first, row by row), or -1. */
static inline int32_t frontier_find(const frontier_t *env, int32_t at, int32_t good) {
    const int32_t kind = good + 1;
    int32_t best = -1, nearest = 2 * FRONTIER_VISION + 1;
    for (int32_t down = -FRONTIER_VISION; down <= FRONTIER_VISION; ++down) {
        const int32_t rows = down < 0 ? -down : down, row = at + down * FRONTIER_STRIDE;
        if (rows >= nearest) continue;
        for (int32_t right = -FRONTIER_VISION; right <= FRONTIER_VISION; ++right) {
            const uint8_t ground = env->ground[row + right];
            const int32_t distance = rows + (right < 0 ? -right : right);
            if ((ground >> 4) != kind || (ground & 15) == 0 || distance >= nearest) continue;
            if (env->holder[row + right] != 0 && distance > 0) continue; /* another is there already */
            best = row + right;
            nearest = distance;
        }
    }
    return best;
}

/* Returns a step from one cell towards another: along the longer axis, or the other one where that is blocked. */
static inline int32_t frontier_towards(const frontier_t *env, int32_t from, int32_t to) {
    const int32_t down = to / FRONTIER_STRIDE - from / FRONTIER_STRIDE;
    const int32_t right = to % FRONTIER_STRIDE - from % FRONTIER_STRIDE;
    const int32_t along = down < 0 ? 1 : 3, across = right < 0 ? 4 : 2;
    const int32_t longer = down * down >= right * right;
    const int32_t first = longer ? along : across, second = longer ? across : along;
    const int32_t ahead = from + frontier_ahead[first];
    if (down == 0 && right == 0) return 0;
    if (env->holder[ahead] == 0 && env->barrier[ahead] == 0) return first;
    return down == 0 || right == 0 ? 1 + (first & 3) : second; /* round what is in the way */
}

/* Writes the action that a script takes for an agent, of any tribe; none for an idle slot. */
static inline void frontier_script(const frontier_t *env, int32_t script, int32_t slot, int32_t *action) {
    assert(env && action && script >= 0 && script < 3 && slot >= 0 && slot < FRONTIER_AGENTS);
    const frontier_agent_t *agent = &env->agents[slot];
    const uint64_t chance = pcg32_mix(env->rng + ((uint64_t)(uint32_t)env->frames << 16) + (uint64_t)slot);
    const int32_t food = agent->fed + FRONTIER_UNIT * agent->pack[FRONTIER_FOOD];
    const int32_t water = agent->watered + FRONTIER_UNIT * agent->pack[FRONTIER_WATER];
    int32_t good = food <= water ? FRONTIER_FOOD : FRONTIER_WATER, found;
    action[0] = action[1] = action[2] = 0;
    if (agent->state != FRONTIER_LIVES) return;
    if (script == FRONTIER_RANDOM) {
        action[0] = (int32_t)((chance & 0xffffu) * 5u >> 16);
        action[1] = (int32_t)((chance >> 16 & 0xffffu) * 6u >> 16);
        action[2] = (int32_t)((chance >> 32 & 0xffffu) * 5u >> 16);
        return;
    }
    if (script == FRONTIER_DEFENDER) /* strikes back, and who is weaker */
        for (int32_t target = 1; target < 5; ++target) {
            const int32_t other = env->holder[agent->at + frontier_ahead[target]] - 1;
            if (other < 0 || frontier_tribe(other) == frontier_tribe(slot)) continue;
            if (agent->struck == 0 && env->agents[other].health >= agent->health) continue;
            action[1] = FRONTIER_STRIKE;
            action[2] = target;
            return;
        }
    if ((agent->fed <= FRONTIER_FULL - FRONTIER_UNIT && agent->pack[FRONTIER_FOOD] > 0) ||
        (agent->watered <= FRONTIER_FULL - FRONTIER_UNIT && agent->pack[FRONTIER_WATER] > 0))
        action[1] = FRONTIER_CONSUME;
    /* The scarcer of the two; with enough of both the defender looks for ore. */
    if (script == FRONTIER_DEFENDER && agent->pack[FRONTIER_ORE] == 0 && food >= 2 * FRONTIER_FULL &&
        water >= 2 * FRONTIER_FULL)
        good = FRONTIER_ORE;
    found = agent->pack[good] < FRONTIER_PACK ? frontier_find(env, agent->at, good) : -1;
    if (found < 0 && good <= FRONTIER_WATER && agent->pack[1 - good] < FRONTIER_PACK)
        found = frontier_find(env, agent->at, good = 1 - good);
    if (found >= 0) {
        action[0] = frontier_towards(env, agent->at, found);
        if (action[1] == 0 && agent->at + frontier_ahead[action[0]] == found) action[1] = FRONTIER_GATHER;
        return;
    }
    /* Nothing in sight: 16 frames in one direction, but in any where that is blocked. */
    const uint64_t heading = pcg32_mix(((uint64_t)slot << 32) + (uint64_t)(agent->age / 16));
    action[0] = 1 + (int32_t)((agent->blocked ? chance : heading) & 3u);
}

/* Whether the agent of a row acts in the next step. */
static inline uint8_t frontier_playing(const frontier_t *env, int32_t agent) {
    assert(env && agent >= 0 && agent < FRONTIER_AGENTS_PER_ENV);
    return env->agents[agent].state == FRONTIER_LIVES;
}

/* Seeds the environment's generator: the same (seed, index) replays the same games. */
static inline void frontier_seed(frontier_t *env, uint64_t seed, uint64_t index) {
    assert(env);
    env->rng = pcg32_seed(seed, index);
}

static inline void frontier_reset(frontier_t *env, uint8_t *observations) {
    static const uint8_t goods[8] = {0, 1, 0, 2, 0, 1, 2, 3}; /* three of food, two of water and wood, one of ore */
    assert(env && observations);
    const uint64_t rng = env->rng;
    memset(env, 0, sizeof *env);
    env->rng = rng;
    memset(env->barrier, FRONTIER_EDGE, sizeof env->barrier);
    for (int32_t row = 0; row < FRONTIER_SIDE; ++row) memset(env->barrier + frontier_cell(row, 0), 0, FRONTIER_SIDE);
    /* A home in each quarter of the land, in turned order, up to an eighth of the side off the quarter's middle. */
    const uint32_t places = pcg32_next(&env->rng);
    for (int32_t tribe = 0; tribe < FRONTIER_TRIBES; ++tribe) {
        const int32_t quarter = (tribe + (int32_t)(places >> 30)) & 3, half = FRONTIER_SIDE / 2;
        const int32_t off = (int32_t)(places >> (7 * tribe) & 127u), eighth = FRONTIER_SIDE / 8;
        env->home[tribe] = frontier_cell((quarter >> 1) * half + half / 2 + (off & 7) * eighth / 8 - eighth / 2,
                                         (quarter & 1) * half + half / 2 + (off >> 3 & 7) * eighth / 8 - eighth / 2);
    }
    for (int32_t patch = 0; patch < FRONTIER_PATCHES * FRONTIER_AGENTS; ++patch) {
        const uint32_t bits = pcg32_next(&env->rng), shape = pcg32_next(&env->rng), rest = FRONTIER_SIDE - 4;
        const int32_t row = (int32_t)(((bits >> 16) * rest) >> 16), column = (int32_t)(((bits & 0xffffu) * rest) >> 16);
        const uint32_t tiles = shape & (shape >> 25 | shape << 7); /* a quarter of them */
        for (int32_t tile = 0; tile < 25; ++tile) {
            const int32_t cell = frontier_cell(row + tile / 5, column + tile % 5);
            if ((tiles >> tile & 1u) != 0 && env->ground[cell] == 0)
                env->ground[cell] = (uint8_t)(16 * (goods[patch & 7] + 1) + 1);
        }
    }
    for (int32_t tribe = 0; tribe < FRONTIER_TRIBES; ++tribe)
        for (int32_t attempt = 0; attempt < FRONTIER_PER_TRIBE; ++attempt) frontier_birth(env, tribe);
    for (int32_t agent = 0; agent < FRONTIER_AGENTS_PER_ENV; ++agent)
        frontier_observe(env, agent, observations + agent * FRONTIER_OBSERVATION_SIZE);
}

/* What an agent has earned from one moment of its life to another. */
static inline float frontier_reward(const frontier_agent_t *then, const frontier_agent_t *now) {
    return 0.01f * (float)(now->age - then->age) +
           0.1f * (float)(now->gathered - then->gathered + now->dealt - then->dealt) +
           (0.05f / FRONTIER_UNIT) * (float)(now->restored - then->restored) -
           (0.1f / FRONTIER_UNIT) * (float)(now->wasted - then->wasted) - (float)(now->state == FRONTIER_FELL);
}

static inline void frontier_step(frontier_t *env, const int32_t *actions, int32_t frame_skip, uint8_t *observations,
                                 float *rewards, uint8_t *terminals, uint8_t *truncations) {
    assert(env && actions && observations && rewards && terminals && truncations && frame_skip >= 1);
    int32_t all[FRONTIER_AGENTS][FRONTIER_COMPONENTS], born[FRONTIER_AGENTS_PER_ENV] = {0};
    frontier_agent_t before[FRONTIER_AGENTS_PER_ENV];
    const int32_t began = env->frames;
    for (int32_t slot = 0; slot < FRONTIER_AGENTS; ++slot) {
        frontier_agent_t *agent = &env->agents[slot];
        if (slot < FRONTIER_AGENTS_PER_ENV) {
            const int32_t *action = actions + slot * FRONTIER_COMPONENTS;
            assert(action[0] >= 0 && action[0] < 5 && action[1] >= 0 && action[1] < 6);
            assert(action[2] >= 0 && action[2] < 5);
            assert(agent->state <= FRONTIER_LIVES); /* an agent that has ended was taken out by frontier_respawn */
            memcpy(all[slot], action, sizeof all[slot]);
            before[slot] = *agent;
        } else if (agent->state == FRONTIER_LIVES) {
            frontier_script(env, frontier_tribe(slot) - FRONTIER_LEARNERS, slot, all[slot]);
        } else {
            agent->state = FRONTIER_IDLE;
        }
        agent->decisions += agent->state == FRONTIER_LIVES;
    }
    for (int32_t frame = 0; frame < frame_skip; ++frame) {
        const uint32_t first = (uint32_t)env->frames * (FRONTIER_PER_TRIBE + 1u);
        frontier_grow(env);
        for (uint32_t k = 0; k < FRONTIER_AGENTS; ++k) {
            const int32_t slot = (int32_t)((first + k) & (FRONTIER_AGENTS - 1u));
            if (env->agents[slot].state == FRONTIER_LIVES) frontier_act(env, slot, all[slot]);
        }
        for (int32_t slot = 0; slot < FRONTIER_AGENTS; ++slot)
            if (env->agents[slot].state == FRONTIER_LIVES) frontier_age(env, slot);
        env->frames += 1;
    }
    env->frames &= (1 << 20) - 1;
    const int32_t attempts = (began + frame_skip) * FRONTIER_PER_TRIBE / FRONTIER_BIRTH_FRAMES -
                             began * FRONTIER_PER_TRIBE / FRONTIER_BIRTH_FRAMES;
    for (int32_t attempt = 0; attempt < attempts; ++attempt)
        for (int32_t tribe = 0; tribe < FRONTIER_TRIBES; ++tribe) {
            const int32_t slot = frontier_birth(env, tribe);
            if (slot >= 0 && slot < FRONTIER_AGENTS_PER_ENV) born[slot] = 1;
        }
    for (int32_t slot = 0; slot < FRONTIER_AGENTS_PER_ENV; ++slot) {
        const frontier_agent_t *agent = &env->agents[slot];
        const int32_t fell = agent->state == FRONTIER_FELL, idle = agent->state == FRONTIER_IDLE || born[slot];
        frontier_observe(env, slot, observations + slot * FRONTIER_OBSERVATION_SIZE);
        rewards[slot] = idle ? 0.0f : frontier_reward(&before[slot], agent);
        terminals[slot] = (uint8_t)(fell || born[slot]);
        truncations[slot] = agent->state == FRONTIER_LEFT;
    }
}

/* Writes score, undiscounted return and length in steps of an agent's episode that the last step ended. */
static inline void frontier_episode(const frontier_t *env, int32_t agent, float *score, float *return_,
                                    int32_t *length) {
    assert(env && agent >= 0 && agent < FRONTIER_AGENTS_PER_ENV && score && return_ && length);
    const frontier_agent_t *ended = &env->agents[agent];
    frontier_agent_t newborn;
    memset(&newborn, 0, sizeof newborn);
    *score = (float)ended->age;
    *return_ = frontier_reward(&newborn, ended);
    *length = ended->decisions;
}

/* Makes the slot of an agent that has ended idle. */
static inline void frontier_respawn(frontier_t *env, int32_t agent, uint8_t *observation) {
    assert(env && agent >= 0 && agent < FRONTIER_AGENTS_PER_ENV && observation);
    env->agents[agent].state = FRONTIER_IDLE;
    frontier_observe(env, agent, observation);
}

#endif
