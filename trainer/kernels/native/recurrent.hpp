// Recurrent layers over whole segments. Agents do not depend on each other, so a few of them (a group) go through all
// steps at a time. Their state stays in the first-level cache and, for the LSTM, the weights in the second. Only what
// the backward pass needs is written to memory: the products with the inputs are not.
//
// Notation: T steps, M agents, D inputs, H units; arrays are `T x M x H` (gates `T x M x 4H`, in the order input i,
// forget f, cell g, output o); resets `T x M`: the state is zeroed before that step.
//     c = f c' + i g,  h = o tanh(c)            and for minGRU            h = h' + z (g(x) - h')
#pragma once

#include <cassert>

#include "dense.hpp"
#include "kernels.hpp"
#include "vector_math.hpp"

namespace PROTEIN_ISA {

constexpr size_t group_agents = 32;  // at most this many agents go through the steps together
constexpr size_t span_rows = 96;     // rows (steps times agents) of a product for the weights' gradient

// The offsets of what lstm_pack writes, and its length.
struct LstmPacked {
    size_t recurrent, bias, end;
};

static LstmPacked lstm_packed(size_t inputs, size_t units, bool backward) {
    if (backward) return {4 * units * padded(inputs), 0, 4 * units * (padded(inputs) + padded(units))};
    const size_t width = padded(4 * units);
    return {inputs * width, (inputs + units) * width, (inputs + units + 1) * width};
}

static size_t lstm_packed_floats(size_t inputs, size_t units, bool backward) {
    return lstm_packed(inputs, units, backward).end;
}

// `w_ih` is `4H x D`, `w_hh` `4H x H`, `bias` `4H` (unused for the backward pass).
static void lstm_pack(const float *w_ih, const float *w_hh, const float *bias, size_t inputs, size_t units,
                      bool backward, float *packed) {
    const LstmPacked at = lstm_packed(inputs, units, backward);
    if (backward) {
        pack({w_ih, inputs, 1}, 4 * units, inputs, packed);  // gates' derivatives times w_ih
        pack({w_hh, units, 1}, 4 * units, units, packed + at.recurrent);
    } else {
        pack({w_ih, 1, inputs}, inputs, 4 * units, packed);  // x times w_ih transposed
        pack({w_hh, 1, units}, units, 4 * units, packed + at.recurrent);
        pack({bias, 0, 1}, 1, 4 * units, packed + at.bias);
    }
}

static size_t lstm_scratch_floats(size_t inputs, size_t units) {
    const size_t forward = group_agents * (padded(4 * units) + 2 * units);
    const size_t backward =
        span_rows * (4 * units + 2 * padded(inputs) + padded(units)) + 2 * group_agents * padded(units);
    return forward > backward ? forward : backward;
}

// Asks for a row that the next step will read. Without it the processor waits: the rows of a step are far from those of
// the step before.
static inline void prefetch(const float *row, size_t floats) {
    for (size_t j = 0; j < floats; j += 16) __builtin_prefetch(row + j, 0, 2);
}

static void lstm_forward_group(const protein::LstmArguments a, size_t begin, size_t agents, float *scratch) {
    assert(a.x && a.x_stride >= a.inputs && a.packed && a.state && a.resets && a.hidden && agents <= group_agents);
    assert(!a.gates == !a.cells && begin + agents <= a.agents);  // both for the backward pass, or none
    const size_t units = a.units, width = padded(4 * units);
    const LstmPacked at = lstm_packed(a.inputs, units, false);
    float *products = scratch, *h = products + agents * width, *c = h + agents * units;
    for (size_t m = 0; m < agents; ++m)
        for (size_t j = 0; j < units; ++j) {
            h[m * units + j] = a.state[(begin + m) * 2 * units + j];
            c[m * units + j] = a.state[((begin + m) * 2 + 1) * units + j];
        }
    for (size_t t = 0; t < a.steps; ++t) {
        const size_t first = t * a.agents + begin;
        for (size_t m = 0; m < agents; ++m)
            if (a.resets[first + m])
                for (size_t j = 0; j < units; ++j) h[m * units + j] = c[m * units + j] = 0.f;
        product({a.x + first * a.x_stride, a.x_stride, 1}, agents, a.packed, 0, a.inputs, 4 * units,
                {a.packed + at.bias, 0}, false, products, width);
        product({h, units, 1}, agents, a.packed + at.recurrent, 0, units, 4 * units, {products, width}, false, products,
                width);
        for (size_t m = 0; m < agents; ++m) {
            const float *y = products + m * width;
            if (t + 1 < a.steps) prefetch(a.x + (first + m + a.agents) * a.x_stride, a.inputs);
            float *hidden = a.hidden + (first + m) * units, *h_m = h + m * units, *c_m = c + m * units;
            // Kept for the backward pass, or written over values that are no longer needed.
            float *gates = a.gates ? a.gates + (first + m) * 4 * units : products + m * width;
            float *cells = a.cells ? a.cells + (first + m) * units : c_m;
#pragma omp simd
            for (size_t j = 0; j < units; ++j) {
                const float i = sigmoid_(y[j]), f = sigmoid_(y[units + j]);
                const float g = tanh_(y[2 * units + j]), o = sigmoid_(y[3 * units + j]);
                const float cell = f * c_m[j] + i * g, out = o * tanh_(cell);
                gates[j] = i;
                gates[units + j] = f;
                gates[2 * units + j] = g;
                gates[3 * units + j] = o;
                cells[j] = cell;
                c_m[j] = cell;
                h_m[j] = out;
                hidden[j] = out;
            }
        }
    }
    if (!a.after) return;
    for (size_t m = 0; m < agents; ++m)
        for (size_t j = 0; j < units; ++j) {
            a.after[(begin + m) * 2 * units + j] = h[m * units + j];
            a.after[((begin + m) * 2 + 1) * units + j] = c[m * units + j];
        }
}

static void lstm_forward(const protein::LstmArguments a, size_t begin, size_t end, float *scratch) {
    for (size_t m = begin; m < end; m += group_agents)
        lstm_forward_group(a, m, end - m < group_agents ? end - m : group_agents, scratch);
}

// Writes by_x, if wanted, and adds these agents' by_W (`4H x (padded(D) + padded(H))`), followed by by_b, to `partial`.
static void lstm_backward_group(const protein::LstmArguments a, size_t begin, size_t agents, float *scratch,
                                float *partial) {
    assert(a.x && a.packed && a.state && a.resets && a.gates && a.cells && a.hidden && a.by_hidden && partial);
    assert(begin + agents <= a.agents && agents <= group_agents);
    const size_t units = a.units, inputs = a.inputs, wide = padded(inputs), width = padded(units), row = wide + width;
    const LstmPacked at = lstm_packed(inputs, units, true);
    // Of the steps of a span: the gates' derivatives, and x and h' side by side.
    float *by_gates = scratch, *read = by_gates + span_rows * 4 * units;
    float *by_h = read + span_rows * row, *by_c = by_h + agents * width;  // what step t + 1 passes back to step t
    float *by_read = by_c + agents * width, *by_b = partial + 4 * units * row;
    for (size_t i = 0; i < 2 * agents * width; ++i) by_h[i] = 0.f;
    for (size_t i = 0; i < span_rows * row; ++i) read[i] = 0.f;
    const size_t span = span_rows / agents;
    size_t filled = 0;
    for (size_t t = a.steps; t-- > 0;) {
        const size_t first = t * a.agents + begin;
        float *by = by_gates + filled * agents * 4 * units;
        for (size_t m = 0; m < agents; ++m) {
            const float *gates = a.gates + (first + m) * 4 * units, *cells = a.cells + (first + m) * units;
            const float *state = a.state + (begin + m) * 2 * units;
            const float *c_before = t ? cells - a.agents * units : state + units;
            const float *h_before = t ? a.hidden + (first + m - a.agents) * units : state;
            const float *by_hidden = a.by_hidden + (first + m) * units, *by_h_m = by_h + m * width;
            float *by_m = by + m * 4 * units, *by_c_m = by_c + m * width;
            float *x = read + (filled * agents + m) * row, *h = x + wide;
            const bool reset = a.resets[first + m] != 0;
#pragma omp simd
            for (size_t j = 0; j < units; ++j) {
                const float i = gates[j], f = gates[units + j], g = gates[2 * units + j], o = gates[3 * units + j];
                const float out = tanh_(cells[j]), dh = by_hidden[j] + by_h_m[j];
                const float dc = by_c_m[j] + dh * o * (1.f - out * out), old = c_before[j], kept = h_before[j];
                by_m[j] = dc * g * i * (1.f - i);
                by_m[units + j] = reset ? 0.f : dc * old * f * (1.f - f);
                by_m[2 * units + j] = dc * i * (1.f - g * g);
                by_m[3 * units + j] = dh * out * o * (1.f - o);
                by_c_m[j] = reset ? 0.f : dc * f;
                h[j] = reset ? 0.f : kept;
            }
            if (t) {
                prefetch(gates - a.agents * 4 * units, 4 * units);
                prefetch(by_hidden - a.agents * units, units);
                prefetch(a.x + (first + m - a.agents) * a.x_stride, inputs);
            }
            if (t > 1) {
                prefetch(c_before - a.agents * units, units);
                prefetch(h_before - a.agents * units, units);
            }
            const float *from = a.x + (first + m) * a.x_stride;
            for (size_t j = 0; j < inputs; ++j) x[j] = from[j];
        }
        if (t) {
            product({by, 4 * units, 1}, agents, a.packed + at.recurrent, 0, 4 * units, units, {nullptr, 0}, false, by_h,
                    width);
            for (size_t m = 0; m < agents; ++m)
                if (a.resets[first + m])
                    for (size_t j = 0; j < width; ++j) by_h[m * width + j] = 0.f;
        }
        if (++filled < span && t) continue;
        const size_t rows = filled * agents;
        if (a.by_x) {
            product({by_gates, 4 * units, 1}, rows, a.packed, 0, 4 * units, inputs, {nullptr, 0}, false, by_read, wide);
            for (size_t s = 0; s < filled; ++s)  // the span's last step is its first row
                copy_rows(by_read + s * agents * wide, wide, agents, inputs,
                          a.by_x + ((t + filled - 1 - s) * a.agents + begin) * inputs, inputs);
        }
        product({by_gates, 1, 4 * units}, 4 * units, read, row, rows, row, {partial, row}, false, partial, row);
        for (size_t r = 0; r < rows; ++r) {
            const float *of_row = by_gates + r * 4 * units;
#pragma omp simd
            for (size_t j = 0; j < 4 * units; ++j) by_b[j] += of_row[j];
        }
        filled = 0;
    }
}

static void lstm_backward(const protein::LstmArguments a, size_t begin, size_t end, float *scratch, float *partial) {
    for (size_t m = begin; m < end; m += group_agents)
        lstm_backward_group(a, m, end - m < group_agents ? end - m : group_agents, scratch, partial);
}

// One step of a whole policy: encoder, LSTM and output layer, whose results stay in a core's cache between them.
static size_t lstm_step_scratch_floats(const protein::MlpLayer *layers, size_t count, size_t units) {
    size_t widest = padded(units);
    for (size_t l = 0; l < count; ++l) widest = padded(layers[l].outputs) > widest ? padded(layers[l].outputs) : widest;
    return 2 * group_agents * widest + lstm_scratch_floats(layers[count - 1].inputs, units);
}

static void lstm_step(const protein::LstmStepArguments a, size_t begin, size_t end, float *scratch) {
    assert(a.layers && a.count >= 2 && a.observations && a.packed && a.state && a.resets && a.output && begin <= end);
    const size_t units = a.units;
    const protein::MlpLayer &head = a.layers[a.count - 1];
    const size_t part =
        (lstm_step_scratch_floats(a.layers, a.count, units) - lstm_scratch_floats(head.inputs, units)) / 2;
    for (size_t i = begin; i < end; i += group_agents) {
        const size_t rows = end - i < group_agents ? end - i : group_agents;
        Left x = {a.observations + i * a.layers[0].inputs, a.layers[0].inputs, 1};
        for (size_t l = 0; l < a.count; ++l) {
            const protein::MlpLayer &layer = a.layers[l];
            const size_t width = padded(layer.outputs);
            float *y = scratch + (l % 2) * part;
            if (l + 1 == a.count) {  // the LSTM comes before the output layer
                float *hidden = scratch + (l % 2) * part;
                const protein::LstmArguments lstm{x.at,
                                                  x.row,
                                                  a.packed,
                                                  a.state + i * 2 * units,
                                                  a.resets + i,
                                                  hidden,
                                                  a.after ? a.after + i * 2 * units : nullptr,
                                                  nullptr,
                                                  nullptr,
                                                  nullptr,
                                                  nullptr,
                                                  1,
                                                  rows,
                                                  a.inputs,
                                                  units};
                lstm_forward_group(lstm, 0, rows, scratch + 2 * part);
                x = {hidden, units, 1};
                y = scratch + ((l + 1) % 2) * part;
            }
            const float *bias = layer.forward + layer.inputs * width;
            product(x, rows, layer.forward, 0, layer.inputs, layer.outputs, {bias, 0}, l + 1 < a.count, y, width);
            x = {y, width, 1};
        }
        for (size_t j = 0; j < head.outputs; ++j)
            for (size_t r = 0; r < rows; ++r) a.output[j * a.stride + i + r] = x.at[r * x.row + j];
    }
}

static inline float positive(float x) {
    const float below = sigmoid_(x);
    return x >= 0.f ? x + 0.5f : below;
}

static void mingru_forward(const protein::MinGruArguments a, size_t begin, size_t end) {
    assert(a.gates && a.candidates && a.stride >= a.units && a.h0 && a.resets && a.hidden && end <= a.agents);
    const size_t units = a.units;
    for (size_t m = begin; m < end; ++m)
        for (size_t t = 0; t < a.steps; ++t) {
            const size_t at = t * a.agents + m;
            const float *gates = a.gates + at * a.stride, *candidates = a.candidates + at * a.stride;
            const float *before = t ? a.hidden + (at - a.agents) * units : a.h0 + m * units;
            float *hidden = a.hidden + at * units;
            const bool reset = a.resets[at] != 0;
#pragma omp simd
            for (size_t j = 0; j < units; ++j) {
                const float kept = before[j], old = reset ? 0.f : kept;
                hidden[j] = old + sigmoid_(gates[j]) * (positive(candidates[j]) - old);
            }
        }
}

static void mingru_backward(const protein::MinGruArguments a, size_t begin, size_t end, float *scratch) {
    assert(a.gates && a.candidates && a.hidden && a.by_hidden && a.by_gates && a.by_candidates && end <= a.agents);
    const size_t units = a.units;
    for (size_t m = begin; m < end; ++m) {
        for (size_t j = 0; j < units; ++j) scratch[j] = 0.f;
        for (size_t t = a.steps; t-- > 0;) {
            const size_t at = t * a.agents + m;
            const float *gates = a.gates + at * a.stride, *candidates = a.candidates + at * a.stride;
            const float *before = t ? a.hidden + (at - a.agents) * units : a.h0 + m * units;
            const float *by_hidden = a.by_hidden + at * units;
            float *by_gates = a.by_gates + at * units, *by_candidates = a.by_candidates + at * units;
            const bool reset = a.resets[at] != 0;
#pragma omp simd
            for (size_t j = 0; j < units; ++j) {
                const float kept = before[j], old = reset ? 0.f : kept, dh = by_hidden[j] + scratch[j];
                const float z = sigmoid_(gates[j]), s = sigmoid_(candidates[j]), x = candidates[j];
                const float g = x >= 0.f ? x + 0.5f : s, slope = x >= 0.f ? 1.f : s * (1.f - s);
                by_gates[j] = dh * (g - old) * z * (1.f - z);
                by_candidates[j] = dh * z * slope;
                scratch[j] = reset ? 0.f : dh * (1.f - z);
            }
        }
    }
}

}  // namespace PROTEIN_ISA
