/* Entities: a squad of eight holds its ground against creatures that never stop coming.
 *
 * The field is the square [-1, 1] x [-1, 1]. Each of the 8 agents has health, and charges that it needs for striking.
 * 24 creatures each walk to the nearest standing agent and bite it. There are 24 crystals. An agent that comes near one
 * takes it and gets ENTITIES_CRYSTAL_CHARGES more charges, and another crystal appears elsewhere. A creature that has
 * taken ENTITIES_CREATURE_HEALTH strikes is felled, and another comes from the edge. An agent without health is down:
 * it does nothing until an ally has mended it. Distances are the greater of |dx| and |dy|. But "nearest" is by dx^2 +
 * dy^2, and ties go to the lower index.
 *
 * Observation (float32 x 249), for each agent: itself, then all others by kind, nearest first:
 *     0  x, then y                                    [-1, 1]
 *     2  health / 5                                   [0, 1]
 *     3  charges / 6                                  [0, 1]
 *     4  frames until it can act again / 5            [0, 1]
 *     5  1 it stands, 0 it is down
 *     6  agents standing / 8                          [0, 1]
 *     7  frames left / 1000                           [0, 1]
 *     8  7 allies x 7: dx / 2, dy / 2                 [-1, 1]
 *           health / 5, charges / 6                   [0, 1]
 *           frames until it can act again / 5         [0, 1]
 *           1 it stands, 0 it is down
 *           1 near enough to be mended, else 0
 *    57  24 creatures x 6: dx / 2, dy / 2             [-1, 1]
 *           health / 3                                [1/3, 1]
 *           frames until it can bite again / 10       [0, 1]
 *           1 near enough to be struck, else 0
 *           1 it walks to this agent, else 0
 *   201  24 crystals x 2: dx / 2, dy / 2              [-1, 1]
 * Actions (three components, held for `frame_skip` frames; any value out of range is the caller's error):
 *   0  along x: 0 stay, 1 to +, 2 to -                1  along y: the same
 *   2  act: 0 nothing, 1 to 4 strike the nearest creature to the fourth nearest, 5 mend the nearest ally
 *   Creatures and ally are those of the observation that the agent acts on, even if they move in the meantime. A strike
 *   costs a charge and reaches ENTITIES_STRIKE_RANGE, mending raises health by one and reaches ENTITIES_MEND_RANGE;
 *   after either an agent cannot act for ENTITIES_ACT_FRAMES frames. An act that is out of reach, lacks a charge or
 *   mends nothing has no effect and no cost.
 * A frame: the agents by index each move, take a crystal and act; then the creatures by index each walk and bite.
 * Reward: +1 for each creature that the agent's own strike felled and +0.1 for each that another agent's strike felled,
 *   summed over the frames of a step.
 * Ends: all agents together. Terminal when all are down; truncated after ENTITIES_MAX_FRAMES frames that did not end
 *   it. A step stops at the frame that ends the episode. Score of an episode: creatures felled by the squad, in
 *   [0, 533], the same for all agents. Random actions fell 4, a squad that only fights 10, one that also fetches
 *   crystals 30. Solved: ENTITIES_SOLVED_SCORE, which a squad reaches that also keeps its distance and mends.
 * Call order: entities_seed once, entities_reset, then entities_step until it ends, entities_episode if wanted,
 *   entities_reset, entities_step ...
 * RNG draws (state in the struct): one for each agent, creature and crystal that is placed, in this order at a reset.
 * Buffers are borrowed for the call; every call writes every element of each output that it is given. No allocation,
 * no output, no exit. Arithmetic is +, -, * and comparison on float32, so a trajectory repeats bit for bit on every
 * IEEE machine, given a compiler that does not contract (-ffp-contract=off).
 */
#ifndef PROTEIN_ENTITIES_H
#define PROTEIN_ENTITIES_H

#include <assert.h>
#include <stdint.h>

#include "pcg32.h"

#define ENTITIES_AGENTS 8
#define ENTITIES_CREATURES 24
#define ENTITIES_CRYSTALS 24
#define ENTITIES_OWN 8 /* numbers seen of oneself, of an ally, a creature and a crystal */
#define ENTITIES_PER_ALLY 7
#define ENTITIES_PER_CREATURE 6
#define ENTITIES_PER_CRYSTAL 2

#define ENTITIES_DESCRIPTION "a squad of eight fells creatures, gathers crystals and mends its own"
#define ENTITIES_OBSERVATION_SIZE                                                                            \
    (ENTITIES_OWN + (ENTITIES_AGENTS - 1) * ENTITIES_PER_ALLY + ENTITIES_CREATURES * ENTITIES_PER_CREATURE + \
     ENTITIES_CRYSTALS * ENTITIES_PER_CRYSTAL)
#define ENTITIES_ACTION_SIZES {3, 3, 6}
#define ENTITIES_ACTION_COMPONENTS 3
#define ENTITIES_AGENTS_PER_ENV ENTITIES_AGENTS
#define ENTITIES_SCORE_LOW 0.0
#define ENTITIES_SCORE_HIGH 533.0
#define ENTITIES_SOLVED_SCORE 40.0
#define ENTITIES_MAX_FRAMES 1000

#define ENTITIES_HEALTH 5
#define ENTITIES_CHARGES 6
#define ENTITIES_CHARGES_START 3
#define ENTITIES_CRYSTAL_CHARGES 3
#define ENTITIES_CREATURE_HEALTH 3
#define ENTITIES_ACT_FRAMES 5
#define ENTITIES_BITE_FRAMES 10
#define ENTITIES_SLOTS 4               /* creatures that an agent can choose from */
#define ENTITIES_AGENT_SPEED 0.02f     /* along each axis, per frame */
#define ENTITIES_CREATURE_SPEED 0.012f /* the same */
#define ENTITIES_STRIKE_RANGE 0.25f
#define ENTITIES_MEND_RANGE 0.15f
#define ENTITIES_BITE_RANGE 0.04f
#define ENTITIES_CRYSTAL_RANGE 0.05f

typedef struct entities_t {
    uint64_t rng;
    float agent_x[ENTITIES_AGENTS];
    float agent_y[ENTITIES_AGENTS];
    int32_t health[ENTITIES_AGENTS]; /* 0: down */
    int32_t charges[ENTITIES_AGENTS];
    int32_t wait[ENTITIES_AGENTS]; /* frames until it can act again */
    float creature_x[ENTITIES_CREATURES];
    float creature_y[ENTITIES_CREATURES];
    int32_t creature_health[ENTITIES_CREATURES];
    int32_t creature_wait[ENTITIES_CREATURES]; /* frames until it can bite again */
    int32_t prey[ENTITIES_CREATURES];          /* the agent that it walks to */
    float crystal_x[ENTITIES_CRYSTALS];
    float crystal_y[ENTITIES_CRYSTALS];
    int32_t slots[ENTITIES_AGENTS][ENTITIES_SLOTS]; /* the nearest creatures as each agent saw them */
    int32_t ally[ENTITIES_AGENTS];                  /* the nearest ally as each agent saw it */
    int32_t felled_by[ENTITIES_AGENTS];             /* since the episode began */
    int32_t felled;                                 /* by all of them */
    int32_t standing;
    int32_t frames;
    int32_t decisions;
} entities_t;

/* What a page draws. */
#define ENTITIES_SHOWN(field, each)                                                                            \
    field(agent_x) field(agent_y) field(health) field(charges) field(wait) field(creature_x) field(creature_y) \
        field(creature_health) field(crystal_x) field(crystal_y) field(felled) field(standing) field(frames)

static inline float entities_clamp(float value, float limit) {
    const float below = value < limit ? value : limit;
    return below > -limit ? below : -limit;
}

static inline int entities_within(float dx, float dy, float range) {
    return dx <= range && dx >= -range && dy <= range && dy >= -range;
}

/* A point anywhere in the field: x from the upper 16 bits, y from the lower. */
static inline void entities_place(entities_t *env, float *x, float *y, float extent) {
    const uint32_t bits = pcg32_next(&env->rng);
    *x = ((float)(bits >> 16) - 32767.5f) * (1.0f / 32768.0f) * extent;
    *y = ((float)(bits & 0xffffu) - 32767.5f) * (1.0f / 32768.0f) * extent;
}

/* A point on the edge: the side from the lower two bits, the place from the upper 24. */
static inline void entities_arrive(entities_t *env, int32_t creature) {
    const uint32_t bits = pcg32_next(&env->rng);
    const float along = pcg32_symmetric(bits), side = (bits & 1u) ? 1.0f : -1.0f;
    env->creature_x[creature] = (bits & 2u) ? along : side;
    env->creature_y[creature] = (bits & 2u) ? side : along;
    env->creature_health[creature] = ENTITIES_CREATURE_HEALTH;
    env->creature_wait[creature] = 0;
}

/* Sets each creature's nearest standing agent; unchanged where none stands. */
static inline void entities_choose_prey(entities_t *env) {
    float best[ENTITIES_CREATURES];
    for (int i = 0; i < ENTITIES_CREATURES; ++i) best[i] = 16.0f; /* beyond the field's diagonal */
    for (int32_t agent = 0; agent < ENTITIES_AGENTS; ++agent) {
        const float x = env->agent_x[agent], y = env->agent_y[agent];
        if (env->health[agent] == 0) continue;
        for (int i = 0; i < ENTITIES_CREATURES; ++i) {
            const float dx = env->creature_x[i] - x, dy = env->creature_y[i] - y, distance = dx * dx + dy * dy;
            const int nearer = distance < best[i];
            best[i] = nearer ? distance : best[i];
            env->prey[i] = nearer ? agent : env->prey[i];
        }
    }
}

/* Writes dx, dy and the order of `count` things at (xs, ys), nearest first, as seen from (x, y). */
static inline void entities_sort(float x, float y, const float *xs, const float *ys, int32_t count, float *dx,
                                 float *dy, int32_t *order) {
    float distance[ENTITIES_CREATURES > ENTITIES_CRYSTALS ? ENTITIES_CREATURES : ENTITIES_CRYSTALS];
    for (int32_t i = 0; i < count; ++i) {
        dx[i] = xs[i] - x;
        dy[i] = ys[i] - y;
        distance[i] = dx[i] * dx[i] + dy[i] * dy[i];
    }
    for (int32_t i = 0; i < count; ++i) {
        int32_t rank = 0;
        for (int32_t j = 0; j < count; ++j)
            rank += (distance[j] < distance[i]) | ((distance[j] == distance[i]) & (j < i));
        order[rank] = i;
    }
}

/* Writes one agent's observation, and the slots and ally that its next action refers to. */
static inline void entities_observe(entities_t *env, int32_t agent, float *o) {
    const float x = env->agent_x[agent], y = env->agent_y[agent];
    float dx[ENTITIES_CREATURES], dy[ENTITIES_CREATURES];
    int32_t order[ENTITIES_CREATURES];
    *o++ = x;
    *o++ = y;
    *o++ = (float)env->health[agent] * (1.0f / ENTITIES_HEALTH);
    *o++ = (float)env->charges[agent] * (1.0f / ENTITIES_CHARGES);
    *o++ = (float)env->wait[agent] * (1.0f / ENTITIES_ACT_FRAMES);
    *o++ = env->health[agent] > 0 ? 1.0f : 0.0f;
    *o++ = (float)env->standing * (1.0f / ENTITIES_AGENTS);
    *o++ = (float)(ENTITIES_MAX_FRAMES - env->frames) * (1.0f / ENTITIES_MAX_FRAMES);

    entities_sort(x, y, env->agent_x, env->agent_y, ENTITIES_AGENTS, dx, dy, order);
    env->ally[agent] = order[order[0] == agent]; /* one that stands on the same spot may come first */
    for (int32_t k = 0; k < ENTITIES_AGENTS; ++k) {
        const int32_t i = order[k];
        if (i == agent) continue;
        *o++ = dx[i] * 0.5f;
        *o++ = dy[i] * 0.5f;
        *o++ = (float)env->health[i] * (1.0f / ENTITIES_HEALTH);
        *o++ = (float)env->charges[i] * (1.0f / ENTITIES_CHARGES);
        *o++ = (float)env->wait[i] * (1.0f / ENTITIES_ACT_FRAMES);
        *o++ = env->health[i] > 0 ? 1.0f : 0.0f;
        *o++ = entities_within(dx[i], dy[i], ENTITIES_MEND_RANGE) ? 1.0f : 0.0f;
    }

    entities_sort(x, y, env->creature_x, env->creature_y, ENTITIES_CREATURES, dx, dy, order);
    for (int32_t k = 0; k < ENTITIES_SLOTS; ++k) env->slots[agent][k] = order[k];
    for (int32_t k = 0; k < ENTITIES_CREATURES; ++k) {
        const int32_t i = order[k];
        *o++ = dx[i] * 0.5f;
        *o++ = dy[i] * 0.5f;
        *o++ = (float)env->creature_health[i] * (1.0f / ENTITIES_CREATURE_HEALTH);
        *o++ = (float)env->creature_wait[i] * (1.0f / ENTITIES_BITE_FRAMES);
        *o++ = entities_within(dx[i], dy[i], ENTITIES_STRIKE_RANGE) ? 1.0f : 0.0f;
        *o++ = env->prey[i] == agent ? 1.0f : 0.0f;
    }

    entities_sort(x, y, env->crystal_x, env->crystal_y, ENTITIES_CRYSTALS, dx, dy, order);
    for (int32_t k = 0; k < ENTITIES_CRYSTALS; ++k) {
        *o++ = dx[order[k]] * 0.5f;
        *o++ = dy[order[k]] * 0.5f;
    }
}

static inline void entities_take_crystals(entities_t *env, int32_t agent) {
    for (int32_t i = 0; i < ENTITIES_CRYSTALS; ++i) {
        const float dx = env->crystal_x[i] - env->agent_x[agent], dy = env->crystal_y[i] - env->agent_y[agent];
        if (env->charges[agent] == ENTITIES_CHARGES) return;
        if (!entities_within(dx, dy, ENTITIES_CRYSTAL_RANGE)) continue;
        env->charges[agent] += ENTITIES_CRYSTAL_CHARGES;
        if (env->charges[agent] > ENTITIES_CHARGES) env->charges[agent] = ENTITIES_CHARGES;
        entities_place(env, &env->crystal_x[i], &env->crystal_y[i], 1.0f);
    }
}

static inline void entities_strike(entities_t *env, int32_t agent, int32_t creature) {
    const float dx = env->creature_x[creature] - env->agent_x[agent];
    const float dy = env->creature_y[creature] - env->agent_y[agent];
    if (env->charges[agent] == 0 || !entities_within(dx, dy, ENTITIES_STRIKE_RANGE)) return;
    env->charges[agent] -= 1;
    env->wait[agent] = ENTITIES_ACT_FRAMES;
    env->creature_health[creature] -= 1;
    if (env->creature_health[creature] > 0) return;
    env->felled_by[agent] += 1;
    env->felled += 1;
    entities_arrive(env, creature);
}

static inline void entities_mend(entities_t *env, int32_t agent, int32_t ally) {
    const float dx = env->agent_x[ally] - env->agent_x[agent], dy = env->agent_y[ally] - env->agent_y[agent];
    if (env->health[ally] == ENTITIES_HEALTH || !entities_within(dx, dy, ENTITIES_MEND_RANGE)) return;
    env->wait[agent] = ENTITIES_ACT_FRAMES;
    env->standing += env->health[ally] == 0;
    env->health[ally] += 1;
}

static inline void entities_frame(entities_t *env, const int32_t *actions) {
    static const float velocity[] = {0.0f, ENTITIES_AGENT_SPEED, -ENTITIES_AGENT_SPEED};
    for (int32_t agent = 0; agent < ENTITIES_AGENTS; ++agent) {
        const int32_t *action = actions + agent * ENTITIES_ACTION_COMPONENTS;
        assert(action[0] >= 0 && action[0] < 3 && action[1] >= 0 && action[1] < 3 && action[2] >= 0 && action[2] < 6);
        if (env->wait[agent] > 0) env->wait[agent] -= 1;
        if (env->health[agent] == 0) continue;
        env->agent_x[agent] = entities_clamp(env->agent_x[agent] + velocity[action[0]], 1.0f);
        env->agent_y[agent] = entities_clamp(env->agent_y[agent] + velocity[action[1]], 1.0f);
        entities_take_crystals(env, agent);
        if (action[2] == 0 || env->wait[agent] > 0) continue;
        if (action[2] <= ENTITIES_SLOTS)
            entities_strike(env, agent, env->slots[agent][action[2] - 1]);
        else
            entities_mend(env, agent, env->ally[agent]);
    }
    entities_choose_prey(env);
    for (int32_t i = 0; i < ENTITIES_CREATURES; ++i) {
        const int32_t prey = env->prey[i];
        const float dx = env->agent_x[prey] - env->creature_x[i], dy = env->agent_y[prey] - env->creature_y[i];
        const float step_x = entities_clamp(dx, ENTITIES_CREATURE_SPEED);
        const float step_y = entities_clamp(dy, ENTITIES_CREATURE_SPEED);
        env->creature_x[i] += step_x;
        env->creature_y[i] += step_y;
        if (env->creature_wait[i] > 0) {
            env->creature_wait[i] -= 1;
            continue;
        }
        if (env->health[prey] == 0 || !entities_within(dx - step_x, dy - step_y, ENTITIES_BITE_RANGE)) continue;
        env->creature_wait[i] = ENTITIES_BITE_FRAMES;
        env->health[prey] -= 1;
        env->standing -= env->health[prey] == 0;
    }
    env->frames += 1;
}

/* Returns an agent's reward for `own` creatures that it felled and `all` that the squad felled. */
static inline float entities_reward(int32_t own, int32_t all) { return (float)own + 0.1f * (float)(all - own); }

/* Seeds the environment's generator: the same (seed, index) replays the same games. */
static inline void entities_seed(entities_t *env, uint64_t seed, uint64_t index) {
    assert(env);
    env->rng = pcg32_seed(seed, index);
}

static inline void entities_reset(entities_t *env, float *observations) {
    assert(env && observations);
    for (int32_t i = 0; i < ENTITIES_AGENTS; ++i) {
        entities_place(env, &env->agent_x[i], &env->agent_y[i], 0.25f);
        env->health[i] = ENTITIES_HEALTH;
        env->charges[i] = ENTITIES_CHARGES_START;
        env->wait[i] = 0;
        env->felled_by[i] = 0;
    }
    for (int32_t i = 0; i < ENTITIES_CREATURES; ++i) entities_arrive(env, i);
    for (int32_t i = 0; i < ENTITIES_CRYSTALS; ++i) entities_place(env, &env->crystal_x[i], &env->crystal_y[i], 1.0f);
    env->felled = 0;
    env->standing = ENTITIES_AGENTS;
    env->frames = 0;
    env->decisions = 0;
    entities_choose_prey(env);
    for (int32_t i = 0; i < ENTITIES_AGENTS; ++i)
        entities_observe(env, i, observations + i * ENTITIES_OBSERVATION_SIZE);
}

static inline void entities_step(entities_t *env, const int32_t *actions, int32_t frame_skip, float *observations,
                                 float *rewards, uint8_t *terminals, uint8_t *truncations) {
    assert(env && actions && observations && rewards && terminals && truncations && frame_skip >= 1);
    assert(env->standing > 0 && env->frames < ENTITIES_MAX_FRAMES); /* an episode that has ended is followed by reset */
    const int32_t felled = env->felled;
    int32_t felled_by[ENTITIES_AGENTS];
    int32_t left = ENTITIES_MAX_FRAMES - env->frames;
    for (int32_t i = 0; i < ENTITIES_AGENTS; ++i) felled_by[i] = env->felled_by[i];
    for (left = frame_skip < left ? frame_skip : left; left > 0 && env->standing > 0; --left)
        entities_frame(env, actions);
    env->decisions += 1;
    for (int32_t i = 0; i < ENTITIES_AGENTS; ++i) {
        entities_observe(env, i, observations + i * ENTITIES_OBSERVATION_SIZE);
        rewards[i] = entities_reward(env->felled_by[i] - felled_by[i], env->felled - felled);
        terminals[i] = env->standing == 0;
        truncations[i] = env->standing > 0 && env->frames >= ENTITIES_MAX_FRAMES;
    }
}

/* Writes, for each agent, score, undiscounted return and length in steps of the episode that the last step ended. */
static inline void entities_episode(const entities_t *env, float *scores, float *returns, int32_t *lengths) {
    assert(env && scores && returns && lengths);
    for (int32_t i = 0; i < ENTITIES_AGENTS; ++i) {
        scores[i] = (float)env->felled;
        returns[i] = entities_reward(env->felled_by[i], env->felled);
        lengths[i] = env->decisions;
    }
}

#endif
