// Causal self-attention of a language model, from the projected queries, keys and values to the mixed values. The norm
// and the rotation of queries and keys are part of it. One row's head is a unit of work that stays in a core's own
// caches: queries are taken a block of rows at a time, against the keys from the block's first document to the
// diagonal.
//
// Notation: `T` tokens, `H` heads of size `D`. Arithmetic is float32; numbers in memory are float32 or bfloat16.
//
// Source: Dao et al. 2022, "FlashAttention", section 3.1 and appendix B (the backward pass from the logarithm of the
// sums); ours keeps a block's whole rows of weights, because they fit the second-level cache.
#pragma once

#include <cassert>

#include "dense.hpp"
#include "kernels.hpp"
#include "vector_math.hpp"

namespace PROTEIN_ISA {

constexpr size_t attention_rows = 48;  // queries of a block, a multiple of tile_rows

typedef std::uint16_t Bfloat;  // a number in bfloat16

static inline float widened(float x) { return x; }
static inline float widened(Bfloat x) { return float_of(static_cast<std::uint32_t>(x) << 16); }
static inline void narrow(float x, float *to) { *to = x; }
static inline void narrow(float x, Bfloat *to) {  // to the nearest, ties to even
    const std::uint32_t bits = bits_of(x);
    *to = static_cast<Bfloat>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

// Keys are padded with zeros to whole panels of a product.
static size_t padded_keys(size_t tokens) { return (tokens + panel - 1) / panel * panel; }

// Numbers between two rows of weights; the extra vector keeps rows out of each other's cache sets.
static size_t weights_stride(size_t tokens) { return padded_keys(tokens) + lanes; }

static size_t attention_scratch_floats(size_t tokens, size_t size, bool backward) {
    const size_t keys = padded_keys(tokens), matrix = keys * padded(size), weights = weights_stride(tokens);
    const size_t block = attention_rows * padded(size), row = 2 * padded(size);
    return backward ? 8 * matrix + 2 * attention_rows * weights + block + row
                    : 4 * matrix + attention_rows * weights + block + row;
}

// Where one head's numbers of part 0 (queries), 1 (keys) or 2 (values) begin, and how far apart its tokens are.
static inline size_t part_offset(const protein::AttentionArguments &a, size_t unit, size_t part) {
    const size_t row = unit / a.heads, head = unit % a.heads;
    return (row * a.tokens * 3 + part) * a.heads * a.size + head * a.size;
}

static inline float inverse_norm(const float *x, size_t size, float epsilon) {
    float sum = 0.f;
#pragma omp simd reduction(+ : sum)
    for (size_t i = 0; i < size; ++i) sum += x[i] * x[i];
    return 1.f / __builtin_sqrtf(sum / static_cast<float>(size) + epsilon);
}

// Reads a head's queries or keys, normed, rotated and times `scale`, into `T x padded(D)`.
template <typename Number>
static void read_turned(const protein::AttentionArguments a, size_t unit, size_t part, float scale, float *to,
                        float *row) {
    const size_t size = a.size, half = size / 2, width = padded(size), stride = 3 * a.heads * size;
    const Number *from = static_cast<const Number *>(a.projected) + part_offset(a, unit, part);
    for (size_t t = 0; t < a.tokens; ++t, from += stride, to += width) {
#pragma omp simd
        for (size_t i = 0; i < size; ++i) row[i] = widened(from[i]);
        const float factor = a.norm ? scale * inverse_norm(row, size, a.epsilon) : scale;
        if (a.rotation) {
            const float *cosines = a.rotation + t * size, *sines = cosines + a.tokens * size;
#pragma omp simd
            for (size_t i = 0; i < half; ++i) {
                const float first = row[i] * factor, second = row[i + half] * factor;
                to[i] = first * cosines[i] + second * sines[i];
                to[i + half] = second * cosines[i + half] + first * sines[i + half];
            }
        } else {
#pragma omp simd
            for (size_t i = 0; i < size; ++i) to[i] = row[i] * factor;
        }
        for (size_t i = size; i < width; ++i) to[i] = 0.f;
    }
}

template <typename Number>
static void read_values(const protein::AttentionArguments a, size_t unit, float *to) {
    const size_t width = padded(a.size), stride = 3 * a.heads * a.size;
    const Number *from = static_cast<const Number *>(a.projected) + part_offset(a, unit, 2);
    for (size_t t = 0; t < a.tokens; ++t, from += stride, to += width) {
#pragma omp simd
        for (size_t i = 0; i < a.size; ++i) to[i] = widened(from[i]);
        for (size_t i = a.size; i < width; ++i) to[i] = 0.f;
    }
}

// The derivative of `read_turned`, from `by` (`T x padded(D)`) to the projected numbers.
template <typename Number>
static void write_turned(const protein::AttentionArguments a, size_t unit, size_t part, float scale, const float *by,
                         float *row) {
    const size_t size = a.size, half = size / 2, width = padded(size), stride = 3 * a.heads * size;
    const size_t offset = part_offset(a, unit, part);
    const Number *from = static_cast<const Number *>(a.projected) + offset;
    Number *to = static_cast<Number *>(a.by_projected) + offset;
    float *turned = row + width;
    for (size_t t = 0; t < a.tokens; ++t, from += stride, to += stride, by += width) {
        if (a.rotation) {
            const float *cosines = a.rotation + t * size, *sines = cosines + a.tokens * size;
#pragma omp simd
            for (size_t i = 0; i < half; ++i) {
                turned[i] = (by[i] * cosines[i] + by[i + half] * sines[i + half]) * scale;
                turned[i + half] = (by[i + half] * cosines[i + half] + by[i] * sines[i]) * scale;
            }
        } else {
#pragma omp simd
            for (size_t i = 0; i < size; ++i) turned[i] = by[i] * scale;
        }
        if (a.norm) {  // y = x r, so by_x = r (by_y - y mean(by_y y))
#pragma omp simd
            for (size_t i = 0; i < size; ++i) row[i] = widened(from[i]);
            const float inverse = inverse_norm(row, size, a.epsilon);
            float along = 0.f;
#pragma omp simd reduction(+ : along)
            for (size_t i = 0; i < size; ++i) along += turned[i] * row[i];
            along *= inverse * inverse / static_cast<float>(size);
#pragma omp simd
            for (size_t i = 0; i < size; ++i) turned[i] = inverse * (turned[i] - row[i] * along);
        }
        for (size_t i = 0; i < size; ++i) narrow(turned[i], to + i);
    }
}

// The keys that a block of queries may look at: those from `low`, a multiple of a panel, up to the diagonal.
struct Seen {
    size_t low, columns;
    const std::int32_t *first;  // of this row; null: one document
};

static inline Seen seen(const protein::AttentionArguments &a, size_t unit, size_t begin, size_t rows) {
    const std::int32_t *first = a.first ? a.first + unit / a.heads * a.tokens : nullptr;
    const size_t low = first ? static_cast<size_t>(first[begin]) / panel * panel : 0;
    return {low, padded_keys(begin + rows) - low, first};
}

// Of the query `at`: the columns of its weights, from `begin` up to `end`.
struct Span {
    size_t begin, end;
};

static inline Span span(const Seen &s, size_t at) {
    return {s.first ? static_cast<size_t>(s.first[at]) - s.low : 0, at + 1 - s.low};
}

static inline void clear(float *x, size_t begin, size_t end) {
    for (size_t j = begin; j < end; ++j) x[j] = 0.f;
}

// Turns a row's products into exp(product - largest); returns their sum.
static inline float exponentials(float *x, Span of, size_t columns, float *largest) {
    float most = x[of.begin], sum = 0.f;
#pragma omp simd reduction(max : most)
    for (size_t j = of.begin; j < of.end; ++j) most = x[j] > most ? x[j] : most;
#pragma omp simd reduction(+ : sum)
    for (size_t j = of.begin; j < of.end; ++j) {
        x[j] = exp_(x[j] - most);
        sum += x[j];
    }
    clear(x, 0, of.begin);
    clear(x, of.end, columns);
    *largest = most;
    return sum;
}

template <typename Number>
static void attention_forward_of(const protein::AttentionArguments a, size_t unit, float *scratch) {
    const size_t size = a.size, width = padded(size), keys = padded_keys(a.tokens), matrix = keys * width;
    const size_t stride = weights_stride(a.tokens);
    float *queries = scratch, *turned = queries + matrix, *packed = turned + matrix, *values = packed + matrix;
    float *weights = values + matrix, *mixed = weights + attention_rows * stride;
    float *row = mixed + attention_rows * width;
    read_turned<Number>(a, unit, 0, 1.f / __builtin_sqrtf(static_cast<float>(size)), queries, row);
    read_turned<Number>(a, unit, 1, 1.f, turned, row);
    read_values<Number>(a, unit, values);
    clear(turned, a.tokens * width, matrix);
    clear(values, a.tokens * width, matrix);
    pack({turned, 1, width}, size, keys, packed);
    Number *out = static_cast<Number *>(a.mixed) + unit / a.heads * a.tokens * a.heads * size + unit % a.heads * size;
    for (size_t begin = 0; begin < a.tokens; begin += attention_rows) {
        const size_t rows = a.tokens - begin < attention_rows ? a.tokens - begin : attention_rows;
        const Seen s = seen(a, unit, begin, rows);
        product({queries + begin * width, width, 1}, rows, packed + s.low * size, 0, size, s.columns, {nullptr, 0},
                false, weights, stride);
        float inverses[attention_rows];
        for (size_t i = 0; i < rows; ++i) {
            float largest;
            const float sum = exponentials(weights + i * stride, span(s, begin + i), s.columns, &largest);
            inverses[i] = 1.f / sum;
            a.log_sums[unit * a.tokens + begin + i] = largest + log_(sum);
        }
        product({weights, stride, 1}, rows, values + s.low * width, width, s.columns, size, {nullptr, 0}, false, mixed,
                width);
        for (size_t i = 0; i < rows; ++i)
            for (size_t d = 0; d < size; ++d)
                narrow(mixed[i * width + d] * inverses[i], out + (begin + i) * a.heads * size + d);
    }
}

template <typename Number>
static void attention_backward_of(const protein::AttentionArguments a, size_t unit, float *scratch) {
    const size_t size = a.size, width = padded(size), keys = padded_keys(a.tokens), matrix = keys * width;
    const size_t stride = weights_stride(a.tokens);
    const float scale = 1.f / __builtin_sqrtf(static_cast<float>(size));
    float *queries = scratch, *turned = queries + matrix, *values = turned + matrix, *packed_keys = values + matrix;
    float *packed_values = packed_keys + matrix, *by_queries = packed_values + matrix, *by_keys = by_queries + matrix;
    float *by_values = by_keys + matrix;
    float *weights = by_values + matrix, *by_weights = weights + attention_rows * stride;
    float *by_mixed = by_weights + attention_rows * stride, *row = by_mixed + attention_rows * width;
    read_turned<Number>(a, unit, 0, scale, queries, row);
    read_turned<Number>(a, unit, 1, 1.f, turned, row);
    read_values<Number>(a, unit, values);
    clear(turned, a.tokens * width, matrix);
    clear(values, a.tokens * width, matrix);
    pack({turned, 1, width}, size, keys, packed_keys);
    pack({values, 1, width}, size, keys, packed_values);
    clear(by_keys, 0, matrix);
    clear(by_values, 0, matrix);
    const size_t offset = unit / a.heads * a.tokens * a.heads * size + unit % a.heads * size;
    const Number *out = static_cast<const Number *>(a.mixed) + offset;
    const Number *by_out = static_cast<const Number *>(a.by_mixed) + offset;
    for (size_t begin = 0; begin < a.tokens; begin += attention_rows) {
        const size_t rows = a.tokens - begin < attention_rows ? a.tokens - begin : attention_rows;
        const Seen s = seen(a, unit, begin, rows);
        float along[attention_rows];  // of each query, the sum of its mixed values times their derivatives
        for (size_t i = 0; i < rows; ++i) {
            const Number *o = out + (begin + i) * a.heads * size, *by_o = by_out + (begin + i) * a.heads * size;
            float sum = 0.f;
            for (size_t d = 0; d < size; ++d) {
                by_mixed[i * width + d] = widened(by_o[d]);
                sum += widened(o[d]) * by_mixed[i * width + d];
            }
            clear(by_mixed + i * width, size, width);
            along[i] = sum;
        }
        product({queries + begin * width, width, 1}, rows, packed_keys + s.low * size, 0, size, s.columns, {nullptr, 0},
                false, weights, stride);
        product({by_mixed, width, 1}, rows, packed_values + s.low * size, 0, size, s.columns, {nullptr, 0}, false,
                by_weights, stride);
        for (size_t i = 0; i < rows; ++i) {
            float *x = weights + i * stride, *by_x = by_weights + i * stride;
            const Span of = span(s, begin + i);
            const float log_sum = a.log_sums[unit * a.tokens + begin + i], offset_of_row = along[i];
#pragma omp simd
            for (size_t j = of.begin; j < of.end; ++j) {
                x[j] = exp_(x[j] - log_sum);
                by_x[j] = x[j] * (by_x[j] - offset_of_row);
            }
            clear(x, 0, of.begin);
            clear(x, of.end, s.columns);
            clear(by_x, 0, of.begin);
            clear(by_x, of.end, s.columns);
        }
        float *of_values = by_values + s.low * width, *of_keys = by_keys + s.low * width;
        product({weights, 1, stride}, s.columns, by_mixed, width, rows, size, {of_values, width}, false, of_values,
                width);
        product({by_weights, 1, stride}, s.columns, queries + begin * width, width, rows, size, {of_keys, width}, false,
                of_keys, width);
        product({by_weights, stride, 1}, rows, turned + s.low * width, width, s.columns, size, {nullptr, 0}, false,
                by_queries + begin * width, width);
    }
    write_turned<Number>(a, unit, 0, scale, by_queries, row);
    write_turned<Number>(a, unit, 1, 1.f, by_keys, row);
    Number *to = static_cast<Number *>(a.by_projected) + part_offset(a, unit, 2);
    for (size_t t = 0; t < a.tokens; ++t, to += 3 * a.heads * size)
        for (size_t d = 0; d < size; ++d) narrow(by_values[t * width + d], to + d);
}

// Units [begin, end), each one head of one row.
static void attention_forward(const protein::AttentionArguments a, size_t begin, size_t end, float *scratch) {
    assert(a.projected && a.mixed && a.log_sums && scratch && begin <= end);
    for (size_t unit = begin; unit < end; ++unit)
        a.bfloat16 ? attention_forward_of<Bfloat>(a, unit, scratch) : attention_forward_of<float>(a, unit, scratch);
}

static void attention_backward(const protein::AttentionArguments a, size_t begin, size_t end, float *scratch) {
    assert(a.projected && a.mixed && a.log_sums && a.by_mixed && a.by_projected && scratch && begin <= end);
    for (size_t unit = begin; unit < end; ++unit)
        a.bfloat16 ? attention_backward_of<Bfloat>(a, unit, scratch) : attention_backward_of<float>(a, unit, scratch);
}

}  // namespace PROTEIN_ISA
