/* A layer of a policy as WebAssembly, for play/policy.js: what JavaScript cannot do quickly.
 *
 * A convolution, or a dense layer, which is one over an image of one place. Weights are stored
 * `channels x kernel x kernel x out`. Inputs that are 0 are left out: after a ReLU that is half of them, and of what
 * snakes and tiles show nearly all. Loops over 16 outputs become vectors, whose sums stay in registers.
 */
#include <stddef.h>
#include <stdint.h>

#define EXPORT(name) __attribute__((export_name(#name)))

extern unsigned char __heap_base; /* behind all that is static */
static size_t heap;

/* Returns room for an array, which is 0. What JavaScript sees of the memory has to be looked up again afterwards. */
EXPORT(room) void *room(size_t bytes) {
    if (heap == 0) heap = ((size_t)&__heap_base + 63) & ~(size_t)63;
    void *found = (void *)heap;
    heap += (bytes + 63) & ~(size_t)63;
    const size_t held = (size_t)__builtin_wasm_memory_size(0) << 16;
    if (heap > held) __builtin_wasm_memory_grow(0, (heap - held + 65535) >> 16);
    return found;
}

/* y[o * places] = bias + the sum of factors x weights, for every output. */
static void add(float *y, int32_t places, const float *weights, const float *bias, int32_t out, const float *factors,
                const int32_t *from, int32_t count) {
    int32_t o = 0;
    for (; o + 16 <= out; o += 16) {
        float sums[16];
        for (int32_t k = 0; k < 16; ++k) sums[k] = bias[o + k];
        for (int32_t term = 0; term < count; ++term) {
            const float *line = weights + from[term] + o;
            for (int32_t k = 0; k < 16; ++k) sums[k] += factors[term] * line[k];
        }
        for (int32_t k = 0; k < 16; ++k) y[(o + k) * places] = sums[k];
    }
    for (; o < out; ++o) {
        float sum = bias[o];
        for (int32_t term = 0; term < count; ++term) sum += factors[term] * weights[from[term] + o];
        y[o * places] = sum;
    }
}

/* y, `out x rows x columns`, of x, `channels x height x width`. `factors` and `from` hold a number for each tap, and one
 * more. */
EXPORT(layer)
void layer(const float *x, float *y, const float *weights, const float *bias, float *factors, int32_t *from,
           int32_t channels, int32_t height, int32_t width, int32_t out, int32_t rows, int32_t columns, int32_t kernel,
           int32_t stride, int32_t padding) {
    for (int32_t row = 0; row < rows; ++row)
        for (int32_t column = 0; column < columns; ++column) {
            const int32_t top = row * stride - padding, left = column * stride - padding;
            const int32_t first_y = top < 0 ? -top : 0, last_y = top + kernel > height ? height - top : kernel;
            const int32_t first_x = left < 0 ? -left : 0, last_x = left + kernel > width ? width - left : kernel;
            int32_t count = 0;
            for (int32_t channel = 0; channel < channels; ++channel)
                for (int32_t ky = first_y; ky < last_y; ++ky)
                    for (int32_t kx = first_x; kx < last_x; ++kx) {
                        /* No branch: which inputs are 0 cannot be foreseen. */
                        const float value = x[(channel * height + top + ky) * width + left + kx];
                        factors[count] = value;
                        from[count] = ((channel * kernel + ky) * kernel + kx) * out;
                        count += value != 0.0f;
                    }
            add(y + row * columns + column, rows * columns, weights, bias, out, factors, from, count);
        }
}
