// One categorical component: drawing from it, and the gradient of PPO's loss. Logits are stored in rows, one for each
// choice, so that all loops run over samples. A block of samples goes through all passes while it is in the first-level
// cache.
//
// The loss and its derivatives are in trainer/ppo/loss.py; the notation is that file's, and z logit, top the
// largest of a sample's, e = exp(z - top), S = sum of e, p = e / S.
#pragma once

#include <cassert>

#include "kernels.hpp"
#include "vector_math.hpp"

namespace PROTEIN_ISA {

constexpr size_t block_samples = 256;
constexpr float smallest_draw = 1.f / (1 << 25);

static void largest(const float *logits, size_t stride, size_t rows, size_t size, float *top) {
    for (size_t i = 0; i < size; ++i) top[i] = logits[i];
    for (size_t k = 1; k < rows; ++k) {
        const float *z = logits + k * stride;
#pragma omp simd
        for (size_t i = 0; i < size; ++i) top[i] = z[i] > top[i] ? z[i] : top[i];
    }
}

// Inverse of the distribution function: the number of choices whose cumulated e does not exceed uniform * S. A draw of
// 0 stands for all draws below 2^-24, so it counts as their mean. Otherwise it would take a first choice of almost no
// probability.
static void sample_block(const protein::SampleArguments a, size_t begin, size_t size) {
    float top[block_samples], sum[block_samples], below[block_samples], taken[block_samples];
    float threshold[block_samples];
    std::int32_t choice[block_samples];
    const float *logits = a.logits + begin, *uniform = a.uniform + begin;
    largest(logits, a.stride, a.actions, size, top);
    for (size_t i = 0; i < size; ++i) sum[i] = 0.f;
    for (size_t k = 0; k < a.actions; ++k) {
        const float *z = logits + k * a.stride;
#pragma omp simd
        for (size_t i = 0; i < size; ++i) sum[i] += exp_(z[i] - top[i]);
    }
    for (size_t i = 0; i < size; ++i) {
        threshold[i] = (uniform[i] < smallest_draw ? smallest_draw : uniform[i]) * sum[i];
        below[i] = 0.f;
        choice[i] = 0;
        taken[i] = logits[i];
    }
    // Once the next choice is reached its logit is the one taken.
    for (size_t k = 0; k + 1 < a.actions; ++k) {
        const float *z = logits + k * a.stride, *following = z + a.stride;
#pragma omp simd
        for (size_t i = 0; i < size; ++i) {
            below[i] += exp_(z[i] - top[i]);
            const bool beyond = below[i] <= threshold[i];
            choice[i] = beyond ? static_cast<std::int32_t>(k + 1) : choice[i];
            taken[i] = beyond ? following[i] : taken[i];
        }
    }
    for (size_t i = 0; i < size; ++i) a.choices[(begin + i) * a.choice_stride] = choice[i];
    float *logprobs = a.logprobs + begin;
#pragma omp simd
    for (size_t i = 0; i < size; ++i) logprobs[i] = taken[i] - top[i] - log_(sum[i]);
}

static void sample(const protein::SampleArguments a, size_t begin, size_t end) {
    assert(a.logits && a.uniform && a.choices && a.logprobs && a.actions && begin <= end);
    for (size_t i = begin; i < end; i += block_samples)
        sample_block(a, i, end - i < block_samples ? end - i : block_samples);
}

static void ppo_block(const protein::PpoArguments a, size_t begin, size_t size) {
    float top[block_samples], sum[block_samples], spread[block_samples], taken[block_samples], weight[block_samples];
    float log_sum[block_samples], entropy[block_samples], scale[block_samples];
    std::int32_t choice[block_samples];
    const float *output = a.output + begin;
    float *gradient = a.gradient + begin;
    for (size_t i = 0; i < size; ++i) {
        choice[i] = a.choices[begin + i];
        assert(choice[i] >= 0 && static_cast<size_t>(choice[i]) < a.actions);
        scale[i] = a.weights ? a.per_sample * a.weights[begin + i] : a.per_sample;
        sum[i] = spread[i] = taken[i] = 0.f;
    }
    largest(output, a.output_stride, a.actions, size, top);
    for (size_t k = 0; k < a.actions; ++k) {
        const float *z = output + k * a.output_stride;
        float *e = gradient + k * a.gradient_stride;  // stored where the gradient will be written
        const auto this_choice = static_cast<std::int32_t>(k);
#pragma omp simd
        for (size_t i = 0; i < size; ++i) {
            const float below_top = z[i] - top[i];
            e[i] = exp_(below_top);
            sum[i] += e[i];
            spread[i] += e[i] * below_top;
            taken[i] = choice[i] == this_choice ? below_top : taken[i];
        }
    }
    const float *old_logprobs = a.logprobs + begin, *advantages = a.advantages + begin;
#pragma omp simd
    for (size_t i = 0; i < size; ++i) {
        log_sum[i] = log_(sum[i]);
        sum[i] = 1.f / sum[i];
        entropy[i] = log_sum[i] - spread[i] * sum[i];
        const float ratio = exp_(taken[i] - log_sum[i] - old_logprobs[i]);
        const float surrogate = ratio * advantages[i];
        const float clipped = bounded(ratio, 1.f - a.clip, 1.f + a.clip) * advantages[i];
        // Where the clipped surrogate is the smaller one, it is constant.
        weight[i] = (clipped < surrogate ? 0.f : -surrogate) * scale[i];
    }
    for (size_t k = 0; k < a.actions; ++k) {
        const float *z = output + k * a.output_stride;
        float *by_logit = gradient + k * a.gradient_stride;
        const auto this_choice = static_cast<std::int32_t>(k);
#pragma omp simd
        for (size_t i = 0; i < size; ++i) {
            const float p = by_logit[i] * sum[i], logp = z[i] - top[i] - log_sum[i];
            const float hit = choice[i] == this_choice ? 1.f : 0.f;
            by_logit[i] = weight[i] * (hit - p) + a.entropy * scale[i] * p * (logp + entropy[i]);
        }
    }
    const float *value = output + a.actions * a.output_stride;
    const float *returns = a.returns + begin;
    float *by_value = gradient + a.actions * a.gradient_stride;
#pragma omp simd
    for (size_t i = 0; i < size; ++i) by_value[i] = a.value * scale[i] * (value[i] - returns[i]);
}

static void ppo_gradient(const protein::PpoArguments a, size_t begin, size_t end) {
    assert(a.output && a.choices && a.logprobs && a.advantages && a.returns && a.gradient);
    assert(a.actions && a.clip >= 0.f && begin <= end);
    for (size_t i = begin; i < end; i += block_samples)
        ppo_block(a, i, end - i < block_samples ? end - i : block_samples);
}

}  // namespace PROTEIN_ISA
