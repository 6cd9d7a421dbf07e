// The kernels as a table of functions, one table for each instruction set (kernels.cpp); module.cpp picks the best that
// the processor has. Kernels know no Python and no threads: each works on the columns or rows [begin, end) that it is
// told, and what it computes for one of them does not depend on the others. Arguments go by value: a local copy is what
// the compiler knows not to be overwritten by the results, which a loop needs to become vectors.
#pragma once

#include <cstddef>
#include <cstdint>

namespace protein {

using std::size_t;

// advantages.hpp; arrays are `steps x agents`, values one row more; ratios may be null.
struct AdvantagesArguments {
    const float *rewards, *values;
    const std::uint8_t *ends;
    const float *ratios;
    float *advantages;
    size_t steps, agents;
    float gamma, gae_lambda, rho_clip, c_clip;
};

// categorical.hpp; rows of `stride` numbers, one a logit; `action_stride` in elements.
struct SampleArguments {
    const float *logits;
    size_t stride, actions;
    const float *uniform;
    std::int32_t *choices;
    size_t choice_stride;
    float *logprobs;
};

// categorical.hpp; `output` and `gradient` are `(actions + 1) x batch`; of wide and narrow choices one is null, and
// weights may be.
struct PpoArguments {
    const float *output;
    size_t output_stride, actions;
    const std::int64_t *wide_choices;
    const std::int32_t *narrow_choices;
    const float *logprobs, *values, *advantages, *returns, *weights;
    float *gradient, *ratios;
    size_t gradient_stride;
    float per_sample;  // 1 / the number of samples that the loss is the mean of
    float clip, clip_value, value, entropy;
};

struct Kernels {
    const char *name;
    void (*advantages)(const AdvantagesArguments, size_t begin, size_t end);
    void (*sample)(const SampleArguments, size_t begin, size_t end);
    void (*ppo_gradient)(const PpoArguments, size_t begin, size_t end);
    // y = f(x) for each number, for the tests: function 0 exp, 1 log, 2 sigmoid, 3 tanh.
    void (*elementwise)(int function, const float *x, float *y, size_t begin, size_t end);
};

extern const Kernels baseline_kernels, avx2_kernels, avx512_kernels;  // the last two on x86 alone

}  // namespace protein
