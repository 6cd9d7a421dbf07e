// Advantages over a rollout, backwards in time: GAE, and with ratios its V-trace correction.
#pragma once

#include <cassert>

#include "kernels.hpp"

namespace PROTEIN_ISA {

static void advantages(const protein::AdvantagesArguments a, size_t begin, size_t end) {
    assert(a.rewards && a.values && a.ends && a.advantages && begin <= end && end <= a.agents);
    const size_t n = a.agents;
    for (size_t t = a.steps; t-- > 0;) {
        const bool last = t + 1 == a.steps, corrected = a.ratios != nullptr;
        const float *rewards = a.rewards + t * n, *values = a.values + t * n, *next_values = values + n;
        const float *ratios = corrected ? a.ratios + t * n : rewards;  // without ratios, any readable row
        const std::uint8_t *ends = a.ends + t * n;
        float *advantages = a.advantages + t * n;
        const float *next = last ? next_values : advantages + n;
        const float decay = last ? 0.f : a.gamma * a.gae_lambda;
#pragma omp simd
        for (size_t i = begin; i < end; ++i) {
            const bool goes_on = ends[i] == 0;
            const float discounted = a.gamma * next_values[i], decayed = decay * next[i], ratio = ratios[i];
            // Selected, not multiplied by 0: what follows an end must have no effect, even if it is NaN.
            const float follows = goes_on ? discounted : 0.f, later = goes_on & !last ? decayed : 0.f;
            const float rho = corrected ? (ratio > a.rho_clip ? a.rho_clip : ratio) : 1.f;
            const float c = corrected ? (ratio > a.c_clip ? a.c_clip : ratio) : 1.f;
            advantages[i] = rho * (rewards[i] + follows - values[i]) + c * later;
        }
    }
}

}  // namespace PROTEIN_ISA
