// Recurrent layers over whole segments. Agents do not depend on each other, so a few of them (a group) go through all
// steps at a time. Their state stays in the first-level cache and, for the LSTM, the recurrent weights in the second.
//
// Notation: T steps, M agents, H units; arrays are `T x M x H` (gates `T x M x 4H`, in the order input i, forget f,
// cell g, output o); resets `T x M`: the state is zeroed before that step.
//     c = f c' + i g,  h = o tanh(c)            and for minGRU            h = h' + z (g(x) - h')
#pragma once

#include <cassert>

#include "dense.hpp"
#include "kernels.hpp"
#include "vector_math.hpp"

namespace PROTEIN_ISA {

constexpr size_t group_agents = 4 * tile_rows;

static size_t lstm_packed_floats(size_t units, bool backward) {
    return backward ? 4 * units * padded(units) : units * padded(4 * units);
}

static void lstm_pack(const float *w_hh, size_t units, bool backward, float *packed) {
    if (backward)
        pack({w_hh, units, 1}, 4 * units, units, packed);  // gates' derivatives times w_hh
    else
        pack({w_hh, 1, units}, units, 4 * units, packed);  // h' times w_hh transposed
}

static size_t lstm_scratch_floats(size_t units) { return group_agents * (padded(4 * units) + 2 * padded(units)); }

static void lstm_forward_group(const protein::LstmArguments a, size_t begin, size_t agents, float *scratch) {
    assert(a.gates_x && a.packed && a.h0 && a.c0 && a.resets && a.hidden && a.h && a.c && begin + agents <= a.agents);
    assert(!a.gates == !a.cells && !a.gates == !a.previous);  // all for the backward pass, or none
    const size_t units = a.units, width = padded(4 * units);
    float *products = scratch, *h = products + group_agents * width, *c = h + group_agents * units;
    for (size_t m = 0; m < agents; ++m)
        for (size_t j = 0; j < units; ++j) {
            h[m * units + j] = a.h0[(begin + m) * units + j];
            c[m * units + j] = a.c0[(begin + m) * units + j];
        }
    for (size_t t = 0; t < a.steps; ++t) {
        const size_t first = t * a.agents + begin;
        for (size_t m = 0; m < agents; ++m)
            if (a.resets[first + m])
                for (size_t j = 0; j < units; ++j) h[m * units + j] = c[m * units + j] = 0.f;
        if (a.previous)
            for (size_t i = 0; i < agents * units; ++i) a.previous[first * units + i] = h[i];
        product({h, units, 1}, agents, a.packed, 0, units, 4 * units, {nullptr, 0}, false, products, width);
        for (size_t m = 0; m < agents; ++m) {
            const float *x = a.gates_x + (first + m) * 4 * units, *y = products + m * width;
            float *hidden = a.hidden + (first + m) * units, *h_m = h + m * units, *c_m = c + m * units;
            // Kept for the backward pass, or written over values that are no longer needed.
            float *gates = a.gates ? a.gates + (first + m) * 4 * units : products + m * width;
            float *cells = a.cells ? a.cells + (first + m) * units : c_m;
#pragma omp simd
            for (size_t j = 0; j < units; ++j) {
                const float i = sigmoid_(x[j] + y[j]), f = sigmoid_(x[units + j] + y[units + j]);
                const float g = tanh_(x[2 * units + j] + y[2 * units + j]);
                const float o = sigmoid_(x[3 * units + j] + y[3 * units + j]);
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
    for (size_t i = 0; i < agents * units; ++i) {
        a.h[begin * units + i] = h[i];
        a.c[begin * units + i] = c[i];
    }
}

static void lstm_forward(const protein::LstmArguments a, size_t begin, size_t end, float *scratch) {
    for (size_t m = begin; m < end; m += group_agents)
        lstm_forward_group(a, m, end - m < group_agents ? end - m : group_agents, scratch);
}

static void lstm_backward_group(const protein::LstmArguments a, size_t begin, size_t agents, float *scratch) {
    assert(a.packed && a.c0 && a.resets && a.gates && a.cells && a.by_hidden && a.by_gates);
    assert(begin + agents <= a.agents);
    const size_t units = a.units, width = padded(units);
    float *by_h = scratch, *by_c = by_h + group_agents * width;  // what step t + 1 passes back to step t
    for (size_t i = 0; i < agents * width; ++i) by_h[i] = by_c[i] = 0.f;
    for (size_t t = a.steps; t-- > 0;) {
        const size_t first = t * a.agents + begin;
        for (size_t m = 0; m < agents; ++m) {
            const float *gates = a.gates + (first + m) * 4 * units, *cells = a.cells + (first + m) * units;
            const float *before = t ? cells - a.agents * units : a.c0 + (begin + m) * units;
            const float *by_hidden = a.by_hidden + (first + m) * units, *by_h_m = by_h + m * width;
            float *by_gates = a.by_gates + (first + m) * 4 * units, *by_c_m = by_c + m * width;
            const bool reset = a.resets[first + m] != 0;
#pragma omp simd
            for (size_t j = 0; j < units; ++j) {
                const float i = gates[j], f = gates[units + j], g = gates[2 * units + j], o = gates[3 * units + j];
                const float out = tanh_(cells[j]), dh = by_hidden[j] + by_h_m[j];
                const float dc = by_c_m[j] + dh * o * (1.f - out * out), old = before[j];
                by_gates[j] = dc * g * i * (1.f - i);
                by_gates[units + j] = reset ? 0.f : dc * old * f * (1.f - f);
                by_gates[2 * units + j] = dc * i * (1.f - g * g);
                by_gates[3 * units + j] = dh * out * o * (1.f - o);
                by_c_m[j] = reset ? 0.f : dc * f;
            }
        }
        if (t == 0) return;
        product({a.by_gates + first * 4 * units, 4 * units, 1}, agents, a.packed, 0, 4 * units, units, {nullptr, 0},
                false, by_h, width);
        for (size_t m = 0; m < agents; ++m)
            if (a.resets[first + m])
                for (size_t j = 0; j < width; ++j) by_h[m * width + j] = 0.f;
    }
}

static void lstm_backward(const protein::LstmArguments a, size_t begin, size_t end, float *scratch) {
    for (size_t m = begin; m < end; m += group_agents)
        lstm_backward_group(a, m, end - m < group_agents ? end - m : group_agents, scratch);
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
