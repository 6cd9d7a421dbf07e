// A multilayer perceptron with ReLUs and a linear output, forward and backward pass, one block of rows at a time: each
// layer's results stay in a core's cache for the next layer. The output is feature-major, `outputs x batch`.
//
// Notation: x the layer's input, y its output, W `outputs x inputs`, by_ the derivative of the loss with respect to
// something:
//     y = relu(W x + b)          by_W = sum over rows of by_y x^T,  by_b = sum of by_y,  by_x = W^T by_y where x > 0
#pragma once

#include <cassert>
#include <cstddef>

#include "dense.hpp"
#include "kernels.hpp"

namespace PROTEIN_ISA {

constexpr size_t block_rows = 16 * tile_rows;

static size_t mlp_scratch_floats(const protein::MlpLayer *layers, size_t count) {
    size_t widest = 0;
    for (size_t l = 0; l < count; ++l) {
        widest = padded(layers[l].inputs) > widest ? padded(layers[l].inputs) : widest;
        widest = padded(layers[l].outputs) > widest ? padded(layers[l].outputs) : widest;
    }
    return 2 * block_rows * widest;
}

static void mlp_pack(const protein::MlpLayer layer, const float *weight, const float *bias, float *forward,
                     float *backward) {
    pack({weight, 1, layer.inputs}, layer.inputs, layer.outputs, forward);
    pack({bias, 0, 1}, 1, layer.outputs, forward + layer.inputs * padded(layer.outputs));
    if (backward) pack({weight, layer.inputs, 1}, layer.outputs, layer.inputs, backward);
}

// Returns `rows` observations from `begin` on. Where they are bytes, they are written to `numbers` as floats.
static Left observed(const protein::Observations observations, size_t begin, size_t rows, size_t inputs,
                     float *numbers) {
    if (observations.numbers) return {observations.numbers + begin * inputs, inputs, 1};
    const std::byte *bytes = observations.bytes + begin * inputs;
#pragma omp simd
    for (size_t i = 0; i < rows * inputs; ++i)
        numbers[i] = static_cast<float>(std::to_integer<int>(bytes[i])) * observations.scale;
    return {numbers, inputs, 1};
}

static void mlp_forward(const protein::MlpArguments a, size_t begin, size_t end, float *scratch) {
    assert(a.layers && a.count >= 2 && a.output && scratch && begin <= end);
    assert(!a.observations.numbers != !a.observations.bytes);
    const size_t part = mlp_scratch_floats(a.layers, a.count) / 2;
    for (size_t i = begin; i < end; i += block_rows) {
        const size_t rows = end - i < block_rows ? end - i : block_rows;
        // The first layer writes to the first half of `scratch`.
        Left x = observed(a.observations, i, rows, a.layers[0].inputs, scratch + part);
        for (size_t l = 0; l < a.count; ++l) {
            const protein::MlpLayer &layer = a.layers[l];
            const size_t width = padded(layer.outputs);
            float *y = layer.hidden ? layer.hidden + i * width : scratch + (l % 2) * part;
            const float *bias = layer.forward + layer.inputs * width;
            product(x, rows, layer.forward, 0, layer.inputs, layer.outputs, {bias, 0}, l + 1 < a.count, y, width);
            x = {y, width, 1};
        }
        for (size_t j = 0; j < a.layers[a.count - 1].outputs; ++j)
            for (size_t r = 0; r < rows; ++r) a.output[j * a.stride + i + r] = x.at[r * x.row + j];
    }
}

// Sets by_x to 0 where x is 0, and adds its columns' sums to `sums`: d loss / d bias of the layer that computed x.
static void through_relu(const float *x, size_t rows, size_t width, float *by_x, float *sums) {
    for (size_t j = 0; j < width; j += lanes) {
        Vector sum = load(sums + j);
        for (size_t r = 0; r < rows; ++r) {
            const Vector by = load(x + r * width + j) <= 0.f ? Vector{} : load(by_x + r * width + j);
            store(by_x + r * width + j, by);
            sum += by;
        }
        store(sums + j, sum);
    }
}

// Adds what these rows contribute to each layer's by_W, followed by by_b (padded), to `partial`. by_W is `outputs x
// padded(inputs)`. That of the first layer, which has few inputs, is transposed: `inputs x padded(outputs)`.
static void mlp_backward(const protein::MlpArguments a, size_t begin, size_t end, float *scratch, float *partial) {
    assert(a.layers && a.count >= 2 && a.layers[0].hidden && a.output && scratch && partial);
    assert(!a.observations.numbers != !a.observations.bytes);
    const size_t part = mlp_scratch_floats(a.layers, a.count) / 2;
    const auto biases = [&](size_t l) {
        const protein::MlpLayer &layer = a.layers[l];
        return partial + layer.partial +
               (l ? layer.outputs * padded(layer.inputs) : layer.inputs * padded(layer.outputs));
    };
    for (size_t i = begin; i < end; i += block_rows) {
        const size_t rows = end - i < block_rows ? end - i : block_rows;
        const protein::MlpLayer &head = a.layers[a.count - 1];
        for (size_t j = 0; j < head.outputs; ++j) {
            const float *of_output = a.output + j * a.stride + i;
            float sum = 0.f;
#pragma omp simd reduction(+ : sum)
            for (size_t r = 0; r < rows; ++r) sum += of_output[r];
            biases(a.count - 1)[j] += sum;
        }
        Left by_y = {a.output + i, a.stride, 1};  // its rows are outputs
        for (size_t l = a.count - 1; l > 0; --l) {
            const protein::MlpLayer &layer = a.layers[l];
            const size_t width = padded(layer.inputs);
            const float *x = a.layers[l - 1].hidden + i * width;
            float *by_w = partial + layer.partial, *by_x = scratch + (l % 2) * part;
            product(by_y, layer.outputs, x, width, rows, layer.inputs, {by_w, width}, false, by_w, width);
            product({by_y.at, by_y.column, by_y.row}, rows, layer.backward, 0, layer.outputs, layer.inputs,
                    {nullptr, 0}, false, by_x, width);
            through_relu(x, rows, width, by_x, biases(l - 1));
            by_y = {by_x, 1, width};
        }
        const protein::MlpLayer &first = a.layers[0];
        float *by_w = partial + first.partial;
        const Left x = observed(a.observations, i, rows, first.inputs, scratch);  // by_y is in the second half
        product({x.at, x.column, x.row}, first.inputs, by_y.at, by_y.column, rows, first.outputs, {by_w, by_y.column},
                false, by_w, by_y.column);
    }
}

}  // namespace PROTEIN_ISA
