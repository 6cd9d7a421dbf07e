// A multilayer perceptron with ReLUs and a linear output, forwards and backwards, a block of rows at a time: what a
// block computes stays in a core's cache for what reads it next. The output is feature-major, `outputs x batch`.
//
// Notation: x the layer's input, y its output, W `outputs x inputs`, by_ the loss's derivative by something:
//     y = relu(W x + b)          by_W = sum over rows of by_y x^T,  by_b = sum of by_y,  by_x = W^T by_y where x > 0
#pragma once

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
    return 3 * block_rows * widest;
}

static void mlp_pack(const protein::MlpLayer layer, const float *weight, const float *bias, float *forward,
                     float *backward) {
    pack({weight, 1, layer.inputs}, layer.inputs, layer.outputs, forward);
    pack({bias, 0, 1}, 1, layer.outputs, forward + layer.inputs * padded(layer.outputs));
    if (backward) pack({weight, layer.inputs, 1}, layer.outputs, layer.inputs, backward);
}

static void mlp_forward(const protein::MlpArguments a, size_t begin, size_t end, float *scratch) {
    const size_t part = mlp_scratch_floats(a.layers, a.count) / 3;
    for (size_t i = begin; i < end; i += block_rows) {
        const size_t rows = end - i < block_rows ? end - i : block_rows;
        Left x = {a.observations + i * a.layers[0].inputs, a.layers[0].inputs, 1};
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

// Adds to `partial` what these rows contribute to each layer's by_W (`outputs x padded(inputs)`) and, behind it, by_b.
static void mlp_backward(const protein::MlpArguments a, size_t begin, size_t end, float *scratch, float *partial) {
    const size_t part = mlp_scratch_floats(a.layers, a.count) / 3;
    const size_t features = a.layers[0].inputs, features_width = padded(features);
    for (size_t i = begin; i < end; i += block_rows) {
        const size_t rows = end - i < block_rows ? end - i : block_rows;
        float *observations = scratch + 2 * part;
        for (size_t r = 0; r < rows; ++r)
            for (size_t j = 0; j < features_width; ++j)
                observations[r * features_width + j] = j < features ? a.observations[(i + r) * features + j] : 0.f;
        // by_y as a matrix whose rows are outputs; the output's own is already.
        Left by_y = {a.output + i, a.stride, 1};
        for (size_t l = a.count; l-- > 0;) {
            const protein::MlpLayer &layer = a.layers[l];
            const size_t width = padded(layer.inputs);
            const float *x = l ? a.layers[l - 1].hidden + i * width : observations;
            float *by_w = partial + layer.partial, *by_b = by_w + layer.outputs * width;
            product(by_y, layer.outputs, x, width, rows, layer.inputs, {by_w, width}, false, by_w, width);
            if (by_y.column == 1)
                for (size_t j = 0; j < layer.outputs; ++j) {
                    const float *of_output = by_y.at + j * by_y.row;
                    float sum = 0.f;
#pragma omp simd reduction(+ : sum)
                    for (size_t r = 0; r < rows; ++r) sum += of_output[r];
                    by_b[j] += sum;
                }
            else
                for (size_t r = 0; r < rows; ++r) {
                    const float *of_row = by_y.at + r * by_y.column;
#pragma omp simd
                    for (size_t j = 0; j < layer.outputs; ++j) by_b[j] += of_row[j];
                }
            if (l == 0) break;
            float *by_x = scratch + (l % 2) * part;
            product({by_y.at, by_y.column, by_y.row}, rows, layer.backward, 0, layer.outputs, layer.inputs,
                    {nullptr, 0}, false, by_x, width);
#pragma omp simd
            for (size_t k = 0; k < rows * width; ++k) by_x[k] = x[k] <= 0.f ? 0.f : by_x[k];
            by_y = {by_x, 1, width};
        }
    }
}

}  // namespace PROTEIN_ISA
