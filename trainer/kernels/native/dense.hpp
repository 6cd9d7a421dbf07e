// Matrix products of float32 for operands that fit into a core's own caches: C = start + A B, with one tile of C at a
// time in registers. A may have any strides. The rows of B are whole vectors, either packed into panels (a panel's rows
// follow each other, so that it fills the first-level cache without gaps) or unpacked.
//
// Sums run over k in order, so a row of C does not depend on how many rows are computed with it.
#pragma once

#include "kernels.hpp"

namespace PROTEIN_ISA {

#if defined(__AVX512F__)
constexpr size_t lanes = 16, panel_vectors = 4;
#elif defined(__AVX__)
constexpr size_t lanes = 8, panel_vectors = 2;
#else
constexpr size_t lanes = 4, panel_vectors = 2;
#endif
typedef float Vector __attribute__((vector_size(lanes * sizeof(float)), aligned(sizeof(float)), may_alias));

static inline Vector load(const float *x) { return *reinterpret_cast<const Vector *>(x); }
static inline void store(float *x, Vector v) { *reinterpret_cast<Vector *>(x) = v; }

constexpr size_t panel = panel_vectors * lanes;
constexpr size_t deepest = 128;
constexpr size_t tile_rows = 6;  // times a panel's vectors: as many accumulators as the registers hold

// The number of columns, rounded up to whole vectors.
static size_t padded(size_t columns) { return (columns + lanes - 1) / lanes * lanes; }

// A(i, k) = at[i * row + k * column].
struct Left {
    const float *at;
    size_t row, column;
};

// What C starts from: zero, the same row for all rows (stride 0), or a matrix, which may be C itself.
struct Start {
    const float *at;
    size_t stride;
};

template <size_t rows, size_t vectors>
static inline void tile(Left a, const float *b, size_t b_stride, size_t depth, Start start, bool relu, float *c,
                        size_t c_stride) {
    // Fully unrolled, because otherwise the compiler keeps the sums in memory.
    Vector sum[rows][vectors];
    if (start.at) {
#pragma GCC unroll 8
        for (size_t i = 0; i < rows; ++i)
#pragma GCC unroll 4
            for (size_t v = 0; v < vectors; ++v) sum[i][v] = load(start.at + i * start.stride + v * lanes);
    } else {
#pragma GCC unroll 8
        for (size_t i = 0; i < rows; ++i)
#pragma GCC unroll 4
            for (size_t v = 0; v < vectors; ++v) sum[i][v] = Vector{};
    }
    for (size_t k = 0; k < depth; ++k) {
        Vector row[vectors];
#pragma GCC unroll 4
        for (size_t v = 0; v < vectors; ++v) row[v] = load(b + k * b_stride + v * lanes);
#pragma GCC unroll 8
        for (size_t i = 0; i < rows; ++i) {
            const float factor = a.at[i * a.row + k * a.column];
#pragma GCC unroll 4
            for (size_t v = 0; v < vectors; ++v) sum[i][v] += factor * row[v];
        }
    }
    if (relu) {
#pragma GCC unroll 8
        for (size_t i = 0; i < rows; ++i)
#pragma GCC unroll 4
            for (size_t v = 0; v < vectors; ++v) sum[i][v] = sum[i][v] < 0.f ? Vector{} : sum[i][v];
    }
#pragma GCC unroll 8
    for (size_t i = 0; i < rows; ++i)
#pragma GCC unroll 4
        for (size_t v = 0; v < vectors; ++v) store(c + i * c_stride + v * lanes, sum[i][v]);
}

template <size_t vectors>
static void panel_product(Left a, size_t rows, const float *b, size_t b_stride, size_t depth, Start start, bool relu,
                          float *c, size_t c_stride) {
    const auto next = [&](size_t done) {
        a.at += done * a.row;
        start.at += start.at ? done * start.stride : 0;
        c += done * c_stride;
        rows -= done;
    };
    for (; rows >= tile_rows; next(tile_rows))
        tile<tile_rows, vectors>(a, b, b_stride, depth, start, relu, c, c_stride);
    for (; rows >= 4; next(4)) tile<4, vectors>(a, b, b_stride, depth, start, relu, c, c_stride);
    for (; rows >= 2; next(2)) tile<2, vectors>(a, b, b_stride, depth, start, relu, c, c_stride);
    if (rows) tile<1, vectors>(a, b, b_stride, depth, start, relu, c, c_stride);
}

// C (rows x padded(columns)) = start + A (rows x depth) B. `b_stride` 0: B was packed. Deep products are done in steps,
// so that a panel's part of B stays in the first-level cache while all rows use it.
static void product(Left a, size_t rows, const float *b, size_t b_stride, size_t depth, size_t columns, Start start,
                    bool relu, float *c, size_t c_stride) {
    const size_t end = padded(columns);
    for (size_t j = 0; j < end; j += panel) {
        const size_t width = end - j < panel ? end - j : panel;
        const size_t stride = b_stride ? b_stride : width;
        const float *right = b_stride ? b + j : b + j * depth;
        Start from = {start.at ? start.at + j : nullptr, start.stride};
        for (size_t k = 0; k < depth; k += deepest) {
            const size_t step = depth - k < deepest ? depth - k : deepest;
            const Left left = {a.at + k * a.column, a.row, a.column};
            const bool cut = relu && k + step == depth;
            const float *part = right + k * stride;
            const size_t vectors = width / lanes;
            if (vectors == 1) panel_product<1>(left, rows, part, stride, step, from, cut, c + j, c_stride);
            if (vectors == 2) panel_product<2>(left, rows, part, stride, step, from, cut, c + j, c_stride);
            if constexpr (panel_vectors == 4) {
                if (vectors == 3) panel_product<3>(left, rows, part, stride, step, from, cut, c + j, c_stride);
                if (vectors == 4) panel_product<4>(left, rows, part, stride, step, from, cut, c + j, c_stride);
            }
            from = {c + j, c_stride};
        }
    }
}

static void copy_rows(const float *from, size_t from_stride, size_t rows, size_t columns, float *to, size_t to_stride) {
    for (size_t r = 0; r < rows; ++r)
        for (size_t j = 0; j < columns; ++j) to[r * to_stride + j] = from[r * from_stride + j];
}

static size_t packed_floats(size_t depth, size_t columns) { return depth * padded(columns); }

// Packs B(k, j) = at[k * row + j * column], padded with zeros.
static void pack(Left b, size_t depth, size_t columns, float *out) {
    for (size_t j = 0; j < padded(columns); j += panel) {
        const size_t width = padded(columns) - j < panel ? padded(columns) - j : panel;
        for (size_t k = 0; k < depth; ++k)
            for (size_t i = 0; i < width; ++i) *out++ = j + i < columns ? b.at[k * b.row + (j + i) * b.column] : 0.f;
    }
}

static void pack_matrix(const float *at, size_t row, size_t column, size_t depth, size_t columns, float *out) {
    pack({at, row, column}, depth, columns, out);
}

}  // namespace PROTEIN_ISA
