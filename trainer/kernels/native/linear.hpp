// One layer on its own, y = W x + b with or without a ReLU, and its gradients, a block of rows at a time.
#pragma once

#include <cassert>

#include "dense.hpp"
#include "kernels.hpp"

namespace PROTEIN_ISA {

constexpr size_t linear_rows = 16 * tile_rows;

static size_t linear_scratch_floats(size_t inputs, size_t outputs) {
    return linear_rows * (2 * padded(inputs) + padded(outputs));
}

static void linear_forward(const protein::LinearArguments a, size_t begin, size_t end, float *scratch) {
    assert(a.x && a.y && a.weights && a.bias && a.inputs && a.outputs && scratch && begin <= end);
    const size_t width = padded(a.outputs);
    const bool direct = width == a.outputs;
    for (size_t i = begin; i < end; i += linear_rows) {
        const size_t rows = end - i < linear_rows ? end - i : linear_rows;
        float *y = a.y + i * a.outputs, *to = direct ? y : scratch;
        product({a.x + i * a.inputs, a.inputs, 1}, rows, a.weights, 0, a.inputs, a.outputs, {a.bias, 0}, a.relu, to,
                width);
        if (!direct) copy_rows(scratch, width, rows, a.outputs, y, a.outputs);
    }
}

// Writes by_x, if wanted, and adds these rows' by_W (`outputs x padded(inputs)`), followed by by_b, to `partial`.
static void linear_backward(const protein::LinearArguments a, size_t begin, size_t end, float *scratch,
                            float *partial) {
    assert(a.x && a.by_y && (!a.by_x || a.weights) && scratch && partial && begin <= end);
    const size_t width = padded(a.inputs);
    const bool direct = width == a.inputs;
    float *by_b = partial + a.outputs * width;
    float *padded_x = scratch, *padded_by_x = padded_x + linear_rows * width, *cut = padded_by_x + linear_rows * width;
    if (!direct)
        for (size_t k = 0; k < linear_rows * width; ++k) padded_x[k] = 0.f;
    for (size_t i = begin; i < end; i += linear_rows) {
        const size_t rows = end - i < linear_rows ? end - i : linear_rows;
        const float *by_y = a.by_y + i * a.outputs, *x = a.x + i * a.inputs;
        if (a.y) {
            const float *y = a.y + i * a.outputs;
#pragma omp simd
            for (size_t k = 0; k < rows * a.outputs; ++k) cut[k] = y[k] <= 0.f ? 0.f : by_y[k];
            by_y = cut;
        }
        if (a.by_x) {
            float *by_x = a.by_x + i * a.inputs, *to = direct ? by_x : padded_by_x;
            product({by_y, a.outputs, 1}, rows, a.weights, 0, a.outputs, a.inputs, {nullptr, 0}, false, to, width);
            if (!direct) copy_rows(padded_by_x, width, rows, a.inputs, by_x, a.inputs);
        }
        if (!direct) copy_rows(x, a.inputs, rows, a.inputs, padded_x, width);
        product({by_y, 1, a.outputs}, a.outputs, direct ? x : padded_x, width, rows, a.inputs, {partial, width}, false,
                partial, width);
        for (size_t r = 0; r < rows; ++r) {
            const float *of_row = by_y + r * a.outputs;
#pragma omp simd
            for (size_t j = 0; j < a.outputs; ++j) by_b[j] += of_row[j];
        }
    }
}

}  // namespace PROTEIN_ISA
