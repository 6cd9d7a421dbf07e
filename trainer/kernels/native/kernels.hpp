// The kernels as a table of functions, one table for each instruction set (kernels.cpp); module.cpp picks the best that
// the processor has. Kernels know nothing of Python and threads: each works on the columns or rows [begin, end) that it
// is given, and its result for one of them does not depend on the others. Arguments are passed by value: the compiler
// knows that writing results cannot change a local copy, and it needs that to vectorise a loop.
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

// categorical.hpp; rows of `stride` numbers, one a logit; `choice_stride` in elements.
struct SampleArguments {
    const float *logits;
    size_t stride, actions;
    const float *uniform;
    std::int32_t *choices;
    size_t choice_stride;
    float *logprobs;
};

// categorical.hpp; `output` and `gradient` are `(actions + 1) x batch`; weights may be null.
struct PpoArguments {
    const float *output;
    size_t output_stride, actions;
    const std::int32_t *choices;
    const float *logprobs, *advantages, *returns, *weights;
    float *gradient;
    size_t gradient_stride;
    float per_sample;  // 1 / the number of samples that the loss is the mean of
    float clip, value, entropy;
};

// images.hpp; each byte counts `scale`.
struct ImagesArguments {
    const std::byte *bytes;  // `images x channels x pixels`
    float *numbers;          // `images x pixels x channels`
    size_t channels, pixels;
    float scale;
};

// recurrent.hpp; `T x agents x ...`; states `agents x 2H`, h and c side by side. The forward pass writes hidden and, if
// given, `after` (the state after the last step, which may be `state`), `gates` (after their functions) and `cells`.
// The backward pass reads all of these but `after`, and by_hidden, and writes by_x, if given. `packed` holds the
// weights, packed by lstm_pack for that direction. Rows of x are `x_stride` numbers apart.
struct LstmArguments {
    const float *x;
    size_t x_stride;
    const float *packed, *state;
    const std::uint8_t *resets;
    float *hidden, *after, *gates, *cells;
    const float *by_hidden;
    float *by_x;
    size_t steps, agents, inputs, units;
};

// recurrent.hpp; `stride` is the distance between rows of gates and of candidates.
struct MinGruArguments {
    const float *gates, *candidates;
    size_t stride;
    const float *h0;
    const std::uint8_t *resets;
    float *hidden;
    const float *by_hidden;
    float *by_gates, *by_candidates;
    size_t steps, agents, units;
};

// linear.hpp; x and by_x `batch x inputs`, y and by_y `batch x outputs`; weights and bias packed for the direction.
struct LinearArguments {
    const float *x;
    float *y;
    const float *by_y;
    float *by_x;
    const float *weights, *bias;
    size_t inputs, outputs;
    bool relu;
};

// mlp.hpp; one for each layer. `forward` and `backward` are its weights, packed by mlp_pack; its bias follows those of
// `forward`. `hidden` is its output, `batch x padded(outputs)`, null where it is not needed later. `partial` is the
// offset of its own gradients in the sums.
struct MlpLayer {
    size_t inputs, outputs;
    const float *forward, *backward;
    float *hidden;
    size_t partial;
};

// `batch x inputs`: numbers, or bytes which count `scale` each. One of the two is null.
struct Observations {
    const float *numbers;
    const std::byte *bytes;
    float scale;
};

// mlp.hpp; `output` is the network's output or, in the backward pass, d loss / d output.
struct MlpArguments {
    const MlpLayer *layers;
    size_t count;
    Observations observations;
    float *output;
    size_t stride;
};

// recurrent.hpp; one step of a policy: `layers` are the encoder's and, last, the output layer. The LSTM's are as above.
struct LstmStepArguments {
    const MlpLayer *layers;
    size_t count;
    const float *observations;
    const float *packed, *state;
    const std::uint8_t *resets;
    float *after, *output;
    size_t stride, inputs, units;
};

// attention.hpp; `projected` `rows x T x 3 x H x D`, `mixed` `rows x T x H x D`, both float32 or both bfloat16;
// `rotation` `2 x T x D`, cosines and sines, or null; `first` `rows x T`, where each token's document begins, or null.
// The forward pass writes `mixed` and `log_sums` (`rows x H x T`). The backward pass reads these and by_mixed, and
// writes by_projected.
struct AttentionArguments {
    const void *projected;
    const float *rotation;
    const std::int32_t *first;
    void *mixed;
    float *log_sums;
    const void *by_mixed;
    void *by_projected;
    size_t rows, tokens, heads, size;
    bool bfloat16, norm;
    float epsilon;
};

struct Kernels {
    const char *name;
    void (*advantages)(const AdvantagesArguments, size_t begin, size_t end);
    void (*sample)(const SampleArguments, size_t begin, size_t end);
    void (*ppo_gradient)(const PpoArguments, size_t begin, size_t end);
    void (*channels_last)(const ImagesArguments, size_t begin, size_t end);
    size_t (*padded)(size_t columns);
    size_t (*packed_floats)(size_t depth, size_t columns);
    // B(k, j) = at[k * row + j * column].
    void (*pack)(const float *at, size_t row, size_t column, size_t depth, size_t columns, float *out);
    size_t (*linear_scratch_floats)(size_t inputs, size_t outputs);
    void (*linear_forward)(LinearArguments, size_t begin, size_t end, float *scratch);
    void (*linear_backward)(LinearArguments, size_t begin, size_t end, float *scratch, float *partial);
    size_t (*lstm_packed_floats)(size_t inputs, size_t units, bool backward);
    void (*lstm_pack)(const float *w_ih, const float *w_hh, const float *bias, size_t inputs, size_t units,
                      bool backward, float *packed);
    size_t (*lstm_scratch_floats)(size_t inputs, size_t units);
    void (*lstm_forward)(LstmArguments, size_t begin, size_t end, float *scratch);
    void (*lstm_backward)(LstmArguments, size_t begin, size_t end, float *scratch, float *partial);
    size_t (*lstm_step_scratch_floats)(const MlpLayer *layers, size_t count, size_t units);
    void (*lstm_step)(LstmStepArguments, size_t begin, size_t end, float *scratch);
    void (*mingru_forward)(MinGruArguments, size_t begin, size_t end);
    void (*mingru_backward)(MinGruArguments, size_t begin, size_t end, float *scratch);  // `units` floats
    size_t (*mlp_scratch_floats)(const MlpLayer *layers, size_t count);
    void (*mlp_pack)(MlpLayer, const float *weight, const float *bias, float *forward, float *backward);
    void (*mlp_forward)(MlpArguments, size_t begin, size_t end, float *scratch);
    void (*mlp_backward)(MlpArguments, size_t begin, size_t end, float *scratch, float *partial);
    size_t (*attention_scratch_floats)(size_t tokens, size_t size, bool backward);
    void (*attention_forward)(AttentionArguments, size_t begin, size_t end, float *scratch);
    void (*attention_backward)(AttentionArguments, size_t begin, size_t end, float *scratch);
    // y = f(x) for each number, for the tests: function 0 exp, 1 log, 2 sigmoid, 3 tanh.
    void (*elementwise)(int function, const float *x, float *y, size_t begin, size_t end);
};

extern const Kernels baseline_kernels, avx2_kernels, avx512_kernels;  // the last two only on x86

}  // namespace protein
