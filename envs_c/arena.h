/* Arena: two teams of four fight over a field with crystals.
 *
 * The field is the square [-1, 1] x [-1, 1]. Team 0 begins on the left, team 1 on the right, each agent opposite to one
 * of the others. Each agent has health, and charges that it needs for striking. There are 8 crystals. An agent that
 * comes near one takes it and gets ARENA_CRYSTAL_CHARGES more charges; the crystal is there again after
 * ARENA_GROW_FRAMES frames. An agent without health is down: it does nothing until an ally has mended it. A team is
 * beaten when all four are down. Distances are the greater of |dx| and |dy|. But "nearest" is by dx^2 + dy^2, and ties
 * go to the lower index.
 *
 * Sides: agents 0 to 3 are team 0, agents 4 to 7 team 1. Each team sees the field as if it had begun on the left (team
 * 1's x is mirrored), so one policy plays both. Agents act at the same time, the field is mirrored from its first
 * frame, and no chance comes after it: exchange the actions of the two teams, and the whole game is exchanged, exactly.
 *
 * Observation (float32 x 81), for each agent: itself, then all others by kind, nearest first:
 *     0  x, -1 behind the own team, then y            [-1, 1]
 *     2  health / 5                                   [0, 1]
 *     3  charges / 6                                  [0, 1]
 *     4  frames until it can act again / 8            [0, 1]
 *     5  own team's agents standing / 4               [0, 1]
 *     6  other team's agents standing / 4             [0, 1]
 *     7  frames left / 600                            [0, 1]
 *     8  3 allies x 7: dx / 2, dy / 2                 [-1, 1]
 *           health / 5, charges / 6                   [0, 1]
 *           frames until it can act again / 8         [0, 1]
 *           1 it stands, 0 it is down
 *           1 near enough to be mended, else 0
 *    29  4 enemies x 7: the same, but at last
 *           1 near enough to be struck, else 0
 *    57  8 crystals x 3: dx / 2, dy / 2               [-1, 1]
 *           frames until it is there / 100            [0, 1]
 * Actions (three components, held for `frame_skip` frames; any value out of range is the caller's error):
 *   0  along x: 0 stay, 1 towards the other team's end, 2 back       1  along y: 0 stay, 1 to +, 2 to -
 *   2  act: 0 nothing, 1 to 4 strike the nearest enemy to the fourth nearest, 5 mend the nearest ally
 *   Enemies and ally are those of the observation that the agent acts on, even if they move in the meantime. A strike
 *   costs a charge, reaches ARENA_STRIKE_RANGE and takes one of health. Mending raises health by one and reaches
 *   ARENA_MEND_RANGE. After either an agent cannot act for ARENA_ACT_FRAMES frames. An act that is out of reach, lacks
 *   a charge, mends nothing or strikes one that is down has no effect and no cost.
 * A frame: all agents move; then agents with less than 6 charges take all crystals near them, one crystal perhaps by
 *   several; then all act on what is there now.
 * Reward: 0.1 for each of the agent's own strikes that reached an enemy, and for everybody in a team 0.25 for each
 *   enemy that goes down or ally that is up again, and -0.25 for the opposite; summed over the frames of a step. Being
 *   struck costs nothing by itself: else two teams that strike alike would gain nothing by meeting, and learn to keep
 *   away.
 * Ends: all agents together. Terminal when no agent of a team stands; truncated after ARENA_MAX_FRAMES frames that did
 *   not end it. A step stops at the frame that ends the episode. Score of an episode: own agents standing minus the
 *   other team's, in [-4, 4]; where as many stand, a twentieth of the own health minus the other team's. Against
 *   oneself it is 0 on average, so no score counts as solved.
 * Scripts (arena_script; they see the state and change nothing):
 *   0 random    any action
 *   1 beginner  every other decision of the brawler's, else any action
 *   2 brawler   walks to the nearest enemy that stands, or without a charge to a crystal, and strikes the nearest
 *   3 squad     the same, but strikes the weakest in reach and mends
 * Call order: arena_seed once, arena_reset, then arena_step until it ends, arena_episode if wanted, arena_reset,
 *   arena_step ...
 * RNG draws (state in the struct): at a reset one for each of four agents, then one for each of four crystals; the
 * other half is mirrored. Buffers are borrowed for the call; every call writes every element of each output that it is
 * given. No allocation, no output, no exit. Arithmetic is +, -, * and comparison on float32, so a trajectory repeats
 * bit for bit on every IEEE machine, given a compiler that does not contract (-ffp-contract=off).
 */
#ifndef PROTEIN_ARENA_H
#define PROTEIN_ARENA_H

#include <assert.h>
#include <stdint.h>

#include "pcg32.h"

#define ARENA_TEAM 4
#define ARENA_AGENTS 8
#define ARENA_CRYSTALS 8
#define ARENA_OWN 8 /* numbers seen of oneself, of another agent and of a crystal */
#define ARENA_PER_AGENT 7
#define ARENA_PER_CRYSTAL 3

#define ARENA_DESCRIPTION "two teams of four strike each other, gather crystals and mend their own"
#define ARENA_OBSERVATION_SIZE (ARENA_OWN + (ARENA_AGENTS - 1) * ARENA_PER_AGENT + ARENA_CRYSTALS * ARENA_PER_CRYSTAL)
#define ARENA_ACTION_SIZES {3, 3, 6}
#define ARENA_ACTION_COMPONENTS 3
#define ARENA_AGENTS_PER_ENV ARENA_AGENTS
#define ARENA_SIDES 2
#define ARENA_SCORE_LOW (-4.0)
#define ARENA_SCORE_HIGH 4.0
#define ARENA_SOLVED_SCORE 4.0
#define ARENA_MAX_FRAMES 600

#define ARENA_SCRIPTS {"random", "beginner", "brawler", "squad"}
#define ARENA_SCRIPT_RATINGS {0.0, 490.0, 775.0, 1105.0} /* held by tests/envs_c/test_sides.py */

#define ARENA_HEALTH 5
#define ARENA_CHARGES 6
#define ARENA_CHARGES_START 3
#define ARENA_CRYSTAL_CHARGES 3
#define ARENA_ACT_FRAMES 8
#define ARENA_GROW_FRAMES 100
#define ARENA_SPEED 0.02f /* along each axis, per frame */
#define ARENA_STRIKE_RANGE 0.3f
#define ARENA_MEND_RANGE 0.2f
#define ARENA_CRYSTAL_RANGE 0.06f

typedef struct arena_t {
    uint64_t rng;
    float x[ARENA_AGENTS];
    float y[ARENA_AGENTS];
    int32_t health[ARENA_AGENTS]; /* 0: down */
    int32_t charges[ARENA_AGENTS];
    int32_t wait[ARENA_AGENTS]; /* frames until it can act again */
    float crystal_x[ARENA_CRYSTALS];
    float crystal_y[ARENA_CRYSTALS];
    int32_t growing[ARENA_CRYSTALS];         /* frames until it is there */
    int32_t slots[ARENA_AGENTS][ARENA_TEAM]; /* the enemies as each agent saw them, nearest first */
    int32_t ally[ARENA_AGENTS];              /* the nearest ally as each agent saw it */
    int32_t strikes[ARENA_AGENTS];           /* that reached an enemy, since the episode began */
    int32_t standing[2];
    int32_t frames;
    int32_t decisions;
} arena_t;

/* What a page draws. */
#define ARENA_SHOWN(field, each)                                                                                \
    field(x) field(y) field(health) field(charges) field(wait) field(crystal_x) field(crystal_y) field(growing) \
        field(standing) field(frames)

static inline float arena_clamp(float value, float limit) {
    const float below = value < limit ? value : limit;
    return below > -limit ? below : -limit;
}

static inline int arena_within(float dx, float dy, float range) {
    return dx <= range && dx >= -range && dy <= range && dy >= -range;
}

/* The order of `count` of 8 things at (xs, ys), from `first` on, around the end: nearest first, as seen from (x, y). */
static inline void arena_sort(float x, float y, const float *xs, const float *ys, int32_t first, int32_t count,
                              int32_t *order) {
    float distance[ARENA_AGENTS];
    for (int32_t i = 0; i < count; ++i) {
        const int32_t thing = (first + i) & 7;
        const float dx = xs[thing] - x, dy = ys[thing] - y;
        distance[i] = dx * dx + dy * dy;
    }
    for (int32_t i = 0; i < count; ++i) {
        int32_t rank = 0;
        for (int32_t j = 0; j < count; ++j)
            rank += (distance[j] < distance[i]) | ((distance[j] == distance[i]) & (j < i));
        order[rank] = (first + i) & 7;
    }
}

/* Writes what an agent at (x, y) sees of another; `ahead` is 1 or -1, the direction of the other team's end. */
static inline float *arena_observe_agent(const arena_t *env, int32_t i, float x, float y, float ahead, float reach,
                                         float *o) {
    const float dx = env->x[i] - x, dy = env->y[i] - y;
    *o++ = ahead * dx * 0.5f;
    *o++ = dy * 0.5f;
    *o++ = (float)env->health[i] * (1.0f / ARENA_HEALTH);
    *o++ = (float)env->charges[i] * (1.0f / ARENA_CHARGES);
    *o++ = (float)env->wait[i] * (1.0f / ARENA_ACT_FRAMES);
    *o++ = env->health[i] > 0 ? 1.0f : 0.0f;
    *o++ = arena_within(dx, dy, reach) ? 1.0f : 0.0f;
    return o;
}

/* Writes one agent's observation, and the slots and ally that its next action refers to. */
static inline void arena_observe(arena_t *env, int32_t agent, float *o) {
    const int32_t team = agent / ARENA_TEAM, own = team * ARENA_TEAM, others = ARENA_TEAM - own;
    const float ahead = team ? -1.0f : 1.0f, x = env->x[agent], y = env->y[agent];
    int32_t order[ARENA_AGENTS];
    *o++ = ahead * x;
    *o++ = y;
    *o++ = (float)env->health[agent] * (1.0f / ARENA_HEALTH);
    *o++ = (float)env->charges[agent] * (1.0f / ARENA_CHARGES);
    *o++ = (float)env->wait[agent] * (1.0f / ARENA_ACT_FRAMES);
    *o++ = (float)env->standing[team] * (1.0f / ARENA_TEAM);
    *o++ = (float)env->standing[1 - team] * (1.0f / ARENA_TEAM);
    *o++ = (float)(ARENA_MAX_FRAMES - env->frames) * (1.0f / ARENA_MAX_FRAMES);

    arena_sort(x, y, env->x, env->y, own, ARENA_TEAM, order);
    env->ally[agent] = order[order[0] == agent]; /* one that stands on the same spot may come first */
    for (int32_t k = 0; k < ARENA_TEAM; ++k)
        if (order[k] != agent) o = arena_observe_agent(env, order[k], x, y, ahead, ARENA_MEND_RANGE, o);

    arena_sort(x, y, env->x, env->y, others, ARENA_TEAM, order);
    for (int32_t k = 0; k < ARENA_TEAM; ++k) {
        env->slots[agent][k] = order[k];
        o = arena_observe_agent(env, order[k], x, y, ahead, ARENA_STRIKE_RANGE, o);
    }

    arena_sort(x, y, env->crystal_x, env->crystal_y, own, ARENA_CRYSTALS, order); /* those of the own half first */
    for (int32_t k = 0; k < ARENA_CRYSTALS; ++k) {
        *o++ = ahead * (env->crystal_x[order[k]] - x) * 0.5f;
        *o++ = (env->crystal_y[order[k]] - y) * 0.5f;
        *o++ = (float)env->growing[order[k]] * (1.0f / ARENA_GROW_FRAMES);
    }
}

static inline void arena_move(arena_t *env, const int32_t *actions) {
    static const float velocity[] = {0.0f, ARENA_SPEED, -ARENA_SPEED};
    for (int32_t i = 0; i < ARENA_AGENTS; ++i) {
        const int32_t *action = actions + i * ARENA_ACTION_COMPONENTS;
        const float ahead = i < ARENA_TEAM ? 1.0f : -1.0f;
        assert(action[0] >= 0 && action[0] < 3 && action[1] >= 0 && action[1] < 3 && action[2] >= 0 && action[2] < 6);
        if (env->wait[i] > 0) env->wait[i] -= 1;
        if (env->health[i] == 0) continue;
        env->x[i] = arena_clamp(env->x[i] + ahead * velocity[action[0]], 1.0f);
        env->y[i] = arena_clamp(env->y[i] + velocity[action[1]], 1.0f);
    }
}

/* Who can take any takes all that are near: else the order of crystals would decide between the teams. */
static inline void arena_take_crystals(arena_t *env) {
    int takes[ARENA_AGENTS];
    for (int32_t i = 0; i < ARENA_AGENTS; ++i) takes[i] = env->health[i] > 0 && env->charges[i] < ARENA_CHARGES;
    for (int32_t c = 0; c < ARENA_CRYSTALS; ++c) {
        int taken = 0;
        if (env->growing[c] > 0) {
            env->growing[c] -= 1;
            continue;
        }
        for (int32_t i = 0; i < ARENA_AGENTS; ++i) {
            const float dx = env->crystal_x[c] - env->x[i], dy = env->crystal_y[c] - env->y[i];
            if (!takes[i] || !arena_within(dx, dy, ARENA_CRYSTAL_RANGE)) continue;
            env->charges[i] += ARENA_CRYSTAL_CHARGES;
            if (env->charges[i] > ARENA_CHARGES) env->charges[i] = ARENA_CHARGES;
            taken = 1;
        }
        if (taken) env->growing[c] = ARENA_GROW_FRAMES;
    }
}

/* All strikes and mendings of a frame, of agents that stood before any of them. */
static inline void arena_act(arena_t *env, const int32_t *actions) {
    int32_t change[ARENA_AGENTS] = {0};
    for (int32_t i = 0; i < ARENA_AGENTS; ++i) {
        const int32_t act = actions[i * ARENA_ACTION_COMPONENTS + 2];
        if (act == 0 || env->health[i] == 0 || env->wait[i] > 0) continue;
        const int mends = act > ARENA_TEAM;
        const int32_t other = mends ? env->ally[i] : env->slots[i][act - 1];
        const float dx = env->x[other] - env->x[i], dy = env->y[other] - env->y[i];
        if (!arena_within(dx, dy, mends ? ARENA_MEND_RANGE : ARENA_STRIKE_RANGE)) continue;
        if (mends ? env->health[other] == ARENA_HEALTH : env->charges[i] == 0 || env->health[other] == 0) continue;
        env->wait[i] = ARENA_ACT_FRAMES;
        change[other] += mends ? 1 : -1;
        if (mends) continue;
        env->charges[i] -= 1;
        env->strikes[i] += 1;
    }
    env->standing[0] = env->standing[1] = 0;
    for (int32_t i = 0; i < ARENA_AGENTS; ++i) {
        const int32_t health = env->health[i] + change[i];
        env->health[i] = health < 0 ? 0 : health > ARENA_HEALTH ? ARENA_HEALTH : health;
        env->standing[i / ARENA_TEAM] += env->health[i] > 0;
    }
}

static inline int arena_over(const arena_t *env) { return env->standing[0] == 0 || env->standing[1] == 0; }

/* Returns an agent's reward for its strikes and a lead of its own team that has grown by `lead` agents. */
static inline float arena_reward(int32_t strikes, int32_t lead) { return 0.1f * (float)strikes + 0.25f * (float)lead; }

/* Seeds the environment's generator: the same (seed, index) replays the same games. */
static inline void arena_seed(arena_t *env, uint64_t seed, uint64_t index) {
    assert(env);
    env->rng = pcg32_seed(seed, index);
}

/* A point of the left half, for `i`, and its mirror image on the right for `i` + 4: x from the upper 16 bits, y from
 * the lower. */
static inline void arena_place(arena_t *env, float *xs, float *ys, int32_t i, float nearest) {
    const uint32_t bits = pcg32_next(&env->rng);
    const float along = ((float)(bits >> 16) + 0.5f) * (1.0f / 65536.0f);
    const float y = ((float)(bits & 0xffffu) - 32767.5f) * (1.0f / 32768.0f);
    const float x = nearest + (0.9f - nearest) * along;
    xs[i] = -x;
    xs[i + 4] = x;
    ys[i] = ys[i + 4] = 0.9f * y;
}

static inline void arena_reset(arena_t *env, float *observations) {
    assert(env && observations);
    for (int32_t i = 0; i < ARENA_TEAM; ++i) arena_place(env, env->x, env->y, i, 0.5f);
    for (int32_t i = 0; i < ARENA_CRYSTALS / 2; ++i) arena_place(env, env->crystal_x, env->crystal_y, i, 0.0f);
    for (int32_t i = 0; i < ARENA_AGENTS; ++i) {
        env->health[i] = ARENA_HEALTH;
        env->charges[i] = ARENA_CHARGES_START;
        env->wait[i] = 0;
        env->strikes[i] = 0;
        env->growing[i] = 0;
    }
    env->standing[0] = env->standing[1] = ARENA_TEAM;
    env->frames = 0;
    env->decisions = 0;
    for (int32_t i = 0; i < ARENA_AGENTS; ++i) arena_observe(env, i, observations + i * ARENA_OBSERVATION_SIZE);
}

static inline void arena_step(arena_t *env, const int32_t *actions, int32_t frame_skip, float *observations,
                              float *rewards, uint8_t *terminals, uint8_t *truncations) {
    assert(env && actions && observations && rewards && terminals && truncations && frame_skip >= 1);
    assert(!arena_over(env) && env->frames < ARENA_MAX_FRAMES); /* an episode that has ended is followed by reset */
    const int32_t lead = env->standing[0] - env->standing[1];
    int32_t strikes[ARENA_AGENTS];
    int32_t left = ARENA_MAX_FRAMES - env->frames;
    for (int32_t i = 0; i < ARENA_AGENTS; ++i) strikes[i] = env->strikes[i];
    for (left = frame_skip < left ? frame_skip : left; left > 0 && !arena_over(env); --left) {
        arena_move(env, actions);
        arena_take_crystals(env);
        arena_act(env, actions);
        env->frames += 1;
    }
    env->decisions += 1;
    const int32_t grown = env->standing[0] - env->standing[1] - lead;
    for (int32_t i = 0; i < ARENA_AGENTS; ++i) {
        arena_observe(env, i, observations + i * ARENA_OBSERVATION_SIZE);
        rewards[i] = arena_reward(env->strikes[i] - strikes[i], i < ARENA_TEAM ? grown : -grown);
        terminals[i] = (uint8_t)arena_over(env);
        truncations[i] = (uint8_t)(!arena_over(env) && env->frames >= ARENA_MAX_FRAMES);
    }
}

/* Writes, for each agent, score, undiscounted return and length in steps of the episode that the last step ended. */
static inline void arena_episode(const arena_t *env, float *scores, float *returns, int32_t *lengths) {
    assert(env && scores && returns && lengths);
    int32_t health[2] = {0, 0};
    for (int32_t i = 0; i < ARENA_AGENTS; ++i) health[i / ARENA_TEAM] += env->health[i];
    for (int32_t i = 0; i < ARENA_AGENTS; ++i) {
        const int32_t team = i / ARENA_TEAM, lead = env->standing[team] - env->standing[1 - team];
        scores[i] = lead ? (float)lead : (float)(health[team] - health[1 - team]) * 0.05f;
        returns[i] = arena_reward(env->strikes[i], lead);
        lengths[i] = env->decisions;
    }
}

/* Writes the action that a script takes for an agent. */
static inline void arena_script(const arena_t *env, int32_t script, int32_t agent, int32_t *action) {
    assert(env && action && script >= 0 && script < 4 && agent >= 0 && agent < ARENA_AGENTS);
    /* No draw: what is random here is made from the state, which it leaves as it is. */
    const uint32_t chance = (uint32_t)(pcg32_mix(env->rng + (uint64_t)(8 * env->decisions + agent)) >> 32);
    const int squad = script == 3;
    const float ahead = agent < ARENA_TEAM ? 1.0f : -1.0f, x = env->x[agent], y = env->y[agent];
    float goal_x = x, goal_y = y, best = 16.0f; /* beyond the field's diagonal */
    int32_t act = 0, weakest = ARENA_HEALTH + 1;
    if (script == 0 || (script == 1 && (chance & 1u))) {
        action[0] = (int32_t)((chance >> 1) % 3u);
        action[1] = (int32_t)((chance >> 9) % 3u);
        action[2] = (int32_t)((chance >> 17) % 6u);
        return;
    }
    for (int32_t k = ARENA_TEAM - 1; k >= 0; --k) { /* the nearest one last */
        const int32_t i = env->slots[agent][k];
        const float dx = env->x[i] - x, dy = env->y[i] - y;
        if (env->health[i] == 0) continue;
        goal_x = env->x[i];
        goal_y = env->y[i];
        if (!arena_within(dx, dy, ARENA_STRIKE_RANGE) || (squad && env->health[i] > weakest)) continue;
        weakest = env->health[i];
        act = k + 1;
    }
    if (squad) {
        const int32_t ally = env->ally[agent];
        const int hurt =
            env->health[ally] < ARENA_HEALTH - 1 && arena_within(env->x[ally] - x, env->y[ally] - y, ARENA_MEND_RANGE);
        if (hurt && (act == 0 || env->charges[agent] == 0)) act = ARENA_TEAM + 1;
    }
    for (int32_t c = 0; c < ARENA_CRYSTALS && env->charges[agent] == 0; ++c) {
        const float dx = env->crystal_x[c] - x, dy = env->crystal_y[c] - y, distance = dx * dx + dy * dy;
        if (env->growing[c] > 0 || distance >= best) continue;
        best = distance;
        goal_x = env->crystal_x[c];
        goal_y = env->crystal_y[c];
    }
    {
        const float dx = ahead * (goal_x - x), dy = goal_y - y, near = 2.0f * ARENA_SPEED;
        action[0] = dx > near ? 1 : dx < -near ? 2 : 0;
        action[1] = dy > near ? 1 : dy < -near ? 2 : 0;
        action[2] = act;
    }
}

#endif
