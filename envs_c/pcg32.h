/* PCG32 (XSH-RR 64/32), one fixed stream: the only source of randomness of the environments.
 *
 * A generator is its 64-bit state and lives in the environment's struct, so an environment replays exactly,
 * independently of its neighbours. Seeding hashes (seed, index), so that nearby seeds and indices start far apart in
 * the cycle.
 *
 * Source: M. E. O'Neill, "PCG: A Family of Simple Fast Space-Efficient Statistically Good Algorithms for Random Number
 * Generation", HMC-CS-2014-0905, 2014 (generator). G. L. Steele, D. Lea, C. H. Flood, "Fast Splittable Pseudorandom
 * Number Generators", OOPSLA 2014 (the 64-bit mixing function of the seeding).
 */
#ifndef PROTEIN_PCG32_H
#define PROTEIN_PCG32_H

#include <stdint.h>

#define PCG32_MULTIPLIER UINT64_C(6364136223846793005)
#define PCG32_INCREMENT UINT64_C(1442695040888963407)

static inline uint64_t pcg32_mix(uint64_t z) {
    z += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* Returns the start state of generator `index` in the family of `seed`. */
static inline uint64_t pcg32_seed(uint64_t seed, uint64_t index) { return pcg32_mix(pcg32_mix(seed) + index); }

/* Returns 32 uniform bits and advances the state. */
static inline uint32_t pcg32_next(uint64_t *state) {
    const uint64_t old = *state;
    *state = old * PCG32_MULTIPLIER + PCG32_INCREMENT;
    const uint32_t word = (uint32_t)(((old >> 18) ^ old) >> 27);
    const uint32_t turn = (uint32_t)(old >> 59);
    return (word >> turn) | (word << ((32u - turn) & 31u));
}

/* Returns a float in [-1, 1), a multiple of 2^-23 (so the conversion is exact everywhere), from the upper 24 of 32
 * bits. */
static inline float pcg32_symmetric(uint32_t bits) {
    return (float)((int32_t)(bits >> 8) - (1 << 23)) * (1.0f / 8388608.0f);
}

#endif
