// Branch-free exp, log, sigmoid and tanh, written for one number so that the compiler vectorises the loops around them.
// Included once for each instruction set: see kernels.cpp. NaN gives NaN; no other value is special.
//
//   exp_      |x| <= 87 relative error < 2e-7; beyond, the value at that limit (about 1e-38 and 6e37)
//   log_      positive normal numbers, relative error < 3e-7 or absolute error < 1e-7
//   sigmoid_  relative error < 3e-7 for x >= -87
//   tanh_     relative error < 5e-7
//
// exp: x = n ln 2 + r with |r| <= ln(2) / 2, so exp(x) = 2^n (1 + r + r^2 q(r)); the coefficients of q are a minimax
// fit of degree 4 to exp's relative error on that interval (3e-9). Keeping exp(r) - 1 apart makes tanh exact near 0.
#pragma once

#include <cstdint>
#include <cstring>

namespace PROTEIN_ISA {

static inline std::uint32_t bits_of(float x) {
    std::uint32_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline float float_of(std::uint32_t bits) {
    float x;
    std::memcpy(&x, &bits, sizeof x);
    return x;
}

// exp(x) = (minus_one + 1) * scale, for x in [-87, 87].
struct Exponential {
    float minus_one, scale;
};

static inline Exponential split_exp(float x) {
    // Added to 1.5 * 2^23, a number is rounded to an integer, which then stands in the sum's low bits.
    const float shifted = x * 1.44269504f + 12582912.f;
    const float n = shifted - 12582912.f;
    const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;  // ln 2 in two parts: the first product is exact
    float q = 0.0013814459f;
    q = q * r + 0.0083687799f;
    q = q * r + 0.041668393f;
    q = q * r + 0.16666520f;
    q = q * r + 0.49999994f;
    return {r + r * r * q, float_of((bits_of(shifted) + 127u) << 23)};
}

// The comparisons are written so that a NaN fails them and is kept.
static inline float bounded(float x, float low, float high) {
    const float above = x < low ? low : x;
    return above > high ? high : above;
}

static inline float exp_(float x) {
    const Exponential e = split_exp(bounded(x, -87.f, 87.f));
    return e.minus_one * e.scale + e.scale;
}

static inline float log_(float x) {
    const std::uint32_t half_root = 0x3f3504f3u;  // sqrt(1/2): the mantissa is taken in [sqrt(1/2), sqrt(2))
    const std::uint32_t exponent = (bits_of(x) - half_root) & 0xff800000u;
    const float n = static_cast<float>(static_cast<std::int32_t>(exponent) >> 23);
    const float f = float_of(bits_of(x) - exponent) - 1.f;
    const float s = f / (2.f + f), t = s * s;  // log(1 + f) = 2 artanh(s), |s| < 0.172
    const float series = s * (2.f + t * (2.f / 3 + t * (2.f / 5 + t * (2.f / 7 + t * (2.f / 9)))));
    return n * 0.693147181f + series + (x - x);  // the last term is NaN for NaN and infinity
}

static inline float sigmoid_(float x) { return 1.f / (1.f + exp_(-x)); }

static inline float tanh_(float x) {
    const Exponential e = split_exp(2.f * bounded(x, -20.f, 20.f));
    const float minus_one = e.minus_one * e.scale + (e.scale - 1.f);  // exp(2x) - 1
    return minus_one / (minus_one + 2.f);
}

}  // namespace PROTEIN_ISA
