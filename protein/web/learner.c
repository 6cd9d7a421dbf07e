/* PPO of an MLP with one discrete component, as WebAssembly, for learning in a page: what `trainer/ppo` computes.
 *
 * The network is `hidden` = relu(x W1 + b1), relu(. W2 + b2), and an output layer with a row for each choice and one for
 * the value. Weights are stored `inputs x outputs`; the output layer has HEAD columns, of which the first choices + 1
 * count. The loss and its derivatives are in trainer/ppo/loss.py, the optimiser is Adam with clipped gradients as in
 * trainer/optim/optimizer.py. The caller steps the games: protein/web/static/play/learner.js.
 *
 * Sizes are those of `setup`: `width` observed numbers, `hidden` units (a multiple of 16), `choices` (below HEAD), `games`
 * and `batch` of a minibatch (multiples of 4), `steps` of a rollout. Loops over 16 outputs become vectors.
 */
#include <stddef.h>
#include <string.h>

#include "pcg32.h"

#define EXPORT(name) __attribute__((export_name(#name)))
enum { HEAD = 16 };

static int32_t width, hidden, choices, games, steps, batch, samples, num_weights;
static uint64_t rng;
static int32_t updates;
static double decayed1, decayed2; /* the powers of Adam's decay rates */
/* Weights and gradients are W1, b1, W2, b2, W3, b3 one after the other. */
static float *weights, *gradient, *first, *second, *turned2, *turned3;
/* Of a rollout: rows of steps + 1, or of steps. */
static float *observations, *rewards, *values, *logprobs, *advantages, *returns;
static int32_t *actions, *order;
static uint8_t *ends;
/* Of a minibatch. */
static float *x, *h1, *h2, *out, *by_h1, *by_h2, *by_out, *old_logprobs, *own_advantages, *own_returns;
static int32_t *own_actions;

extern unsigned char __heap_base; /* behind all that is static */
static size_t heap;

static void *room(size_t bytes) {
    void *found = (void *)heap;
    heap += (bytes + 63) & ~(size_t)63;
    const size_t held = (size_t)__builtin_wasm_memory_size(0) << 16;
    if (heap > held) __builtin_wasm_memory_grow(0, (heap - held + 65535) >> 16);
    return found;
}
static float *floats(int32_t count) { return memset(room((size_t)count * 4), 0, (size_t)count * 4); }

EXPORT(setup)
void setup(int32_t width_, int32_t hidden_, int32_t choices_, int32_t games_, int32_t steps_, int32_t batch_) {
    width = width_, hidden = hidden_, choices = choices_, games = games_, steps = steps_, batch = batch_;
    samples = games * steps;
    num_weights = (width + 1) * hidden + (hidden + 1) * hidden + (hidden + 1) * HEAD;
    heap = ((size_t)&__heap_base + 63) & ~(size_t)63;
    weights = floats(num_weights), gradient = floats(num_weights);
    first = floats(num_weights), second = floats(num_weights);
    turned2 = floats(hidden * hidden), turned3 = floats(hidden * HEAD);
    observations = floats((samples + games) * width);
    rewards = floats(samples), values = floats(samples + games), logprobs = floats(samples);
    advantages = floats(samples), returns = floats(samples);
    actions = (int32_t *)floats(samples), order = (int32_t *)floats(samples), ends = (uint8_t *)floats(samples);
    const int32_t most = games > batch ? games : batch;
    x = floats(batch * width), h1 = floats(most * hidden), h2 = floats(most * hidden), out = floats(most * HEAD);
    by_h1 = floats(batch * hidden), by_h2 = floats(batch * hidden), by_out = floats(batch * HEAD);
    old_logprobs = floats(batch), own_advantages = floats(batch), own_returns = floats(batch);
    own_actions = (int32_t *)floats(batch);
    updates = 0, decayed1 = decayed2 = 1.0;
}

/* Draws the weights: uniform, with the variances of `trainer/model/policy.py`. */
EXPORT(begin) void begin(uint64_t seed) {
    rng = pcg32_seed(seed, 0);
    float *at = weights;
    const int32_t inputs[] = {width, hidden, hidden}, outputs[] = {hidden, hidden, HEAD};
    for (int32_t layer = 0; layer < 3; ++layer) {
        const float size = __builtin_sqrtf((layer < 2 ? 6.0f : 3.0f) / (float)inputs[layer]);
        for (int32_t i = 0; i < inputs[layer] * outputs[layer]; ++i) {
            const int32_t column = i % HEAD;
            const float gain = layer < 2 ? 1.0f : column < choices ? 0.01f : column == choices ? 1.0f : 0.0f;
            *at++ = pcg32_symmetric(pcg32_next(&rng)) * size * gain;
        }
        at += outputs[layer]; /* biases of 0 */
    }
}

/* Where an array lies, by its number in learner.js. */
EXPORT(array) void *array(int32_t number) {
    void *all[] = {weights, gradient, observations, actions, rewards, ends, values, x, own_actions, old_logprobs,
                   own_advantages, own_returns, logprobs, advantages, returns};
    return all[number];
}

static float exp_(float value) { /* Cephes' expf, error below 2e-7 of the result */
    value = value < -87.0f ? -87.0f : value > 88.0f ? 88.0f : value;
    const float whole = __builtin_rintf(value * 1.44269504f);
    const float rest = value - whole * 0.693359375f + whole * 2.12194440e-4f;
    float sum = 1.9875691500e-4f;
    sum = sum * rest + 1.3981999507e-3f;
    sum = sum * rest + 8.3334519073e-3f;
    sum = sum * rest + 4.1665795894e-2f;
    sum = sum * rest + 1.6666665459e-1f;
    sum = sum * rest + 5.0000001201e-1f;
    sum = sum * rest * rest + rest + 1.0f;
    const union {
        int32_t bits;
        float number;
    } power = {((int32_t)whole + 127) << 23};
    return sum * power.number;
}

static float log_(float value) { /* Cephes' logf, of a positive number */
    union {
        float number;
        int32_t bits;
    } parts = {value};
    float exponent = (float)(((parts.bits >> 23) & 255) - 126);
    parts.bits = (parts.bits & 0x7fffff) | 0x3f000000;
    float y = parts.number - 1.0f;
    if (parts.number < 0.707106781f) exponent -= 1.0f, y += parts.number;
    const float square = y * y;
    float sum = 7.0376836292e-2f;
    sum = sum * y - 1.1514610310e-1f;
    sum = sum * y + 1.1676998740e-1f;
    sum = sum * y - 1.2420140846e-1f;
    sum = sum * y + 1.4249322787e-1f;
    sum = sum * y - 1.6668057665e-1f;
    sum = sum * y + 2.0000714765e-1f;
    sum = sum * y - 2.4999993993e-1f;
    sum = sum * y + 3.3333331174e-1f;
    return y + (sum * y * square - 2.12194440e-4f * exponent - 0.5f * square) + 0.693359375f * exponent;
}

#define INLINE static inline __attribute__((always_inline))

struct layer {
    const float *a; /* the input i of a row is a[row * a_row + i * a_input] */
    int32_t a_row, a_input, inputs;
    const float *b, *bias; /* inputs x outputs; NULL: none */
    int32_t outputs, relu;
    const float *gate; /* rows x outputs, or NULL */
    float *y;          /* rows x outputs */
};

/* y = f(bias + a b) for `rows` rows and 16 outputs, which stay in registers, where f cuts at 0 with `relu`, and is 0
 * where the gate is not positive. */
INLINE void tile(const struct layer l, int32_t row, int32_t o, const int32_t rows) {
    float sums[4][16];
    for (int32_t r = 0; r < rows; ++r)
        for (int32_t k = 0; k < 16; ++k) sums[r][k] = l.bias ? l.bias[o + k] : 0.0f;
    for (int32_t i = 0; i < l.inputs; ++i) {
        const float *line = l.b + i * l.outputs + o;
        for (int32_t r = 0; r < rows; ++r) {
            const float value = l.a[(row + r) * l.a_row + i * l.a_input];
            for (int32_t k = 0; k < 16; ++k) sums[r][k] += value * line[k];
        }
    }
    for (int32_t r = 0; r < rows; ++r)
        for (int32_t k = 0; k < 16; ++k) {
            const int32_t at = (row + r) * l.outputs + o + k;
            float sum = sums[r][k];
            if (l.relu) sum = sum > 0.0f ? sum : 0.0f;
            if (l.gate) sum = l.gate[at] > 0.0f ? sum : 0.0f;
            l.y[at] = sum;
        }
}

INLINE void dense(const float *a, int32_t a_row, int32_t a_input, int32_t rows, int32_t inputs, const float *b,
                  int32_t outputs, const float *bias, int relu, const float *gate, float *y) {
    const struct layer l = {a, a_row, a_input, inputs, b, bias, outputs, relu, gate, y};
    for (int32_t o = 0; o < outputs; o += 16) {
        int32_t row = 0;
        for (; row + 4 <= rows; row += 4) tile(l, row, o, 4);
        for (; row < rows; ++row) tile(l, row, o, 1);
    }
}

static void forward(const float *from, int32_t rows) {
    const float *w1 = weights, *b1 = w1 + width * hidden, *w2 = b1 + hidden, *b2 = w2 + hidden * hidden;
    const float *w3 = b2 + hidden, *b3 = w3 + hidden * HEAD;
    dense(from, width, 1, rows, width, w1, hidden, b1, 1, NULL, h1);
    dense(h1, hidden, 1, rows, hidden, w2, hidden, b2, 1, NULL, h2);
    dense(h2, hidden, 1, rows, hidden, w3, HEAD, b3, 0, NULL, out);
}

/* Writes log-probabilities and probabilities of a sample's choices. */
static void softmax(const float *logits, float *logp, float *p) {
    float top = logits[0], sum = 0.0f;
    for (int32_t k = 1; k < choices; ++k) top = logits[k] > top ? logits[k] : top;
    for (int32_t k = 0; k < choices; ++k) sum += p[k] = exp_(logits[k] - top);
    const float log_sum = log_(sum);
    for (int32_t k = 0; k < choices; ++k) logp[k] = logits[k] - top - log_sum, p[k] /= sum;
}

/* Acts at a step of the rollout, of which the observations are there; at its end only the values are wanted. */
EXPORT(act) void act(int32_t step) {
    forward(observations + step * games * width, games);
    for (int32_t i = 0; i < games; ++i) {
        float logp[HEAD], p[HEAD];
        const float *row = out + i * HEAD;
        values[step * games + i] = row[choices];
        if (step == steps) continue;
        softmax(row, logp, p);
        float left = (float)(pcg32_next(&rng) >> 8) * (1.0f / 16777216.0f);
        int32_t chosen = 0;
        while (chosen < choices - 1 && (left -= p[chosen]) >= 0.0f) ++chosen;
        actions[step * games + i] = chosen;
        logprobs[step * games + i] = logp[chosen];
    }
}

/* GAE, normalised over the batch, and a new order of the samples. */
EXPORT(prepare) void prepare(float gamma, float gae_lambda) {
    double sum = 0.0, squares = 0.0;
    for (int32_t i = 0; i < games; ++i) {
        float after = 0.0f;
        for (int32_t k = (steps - 1) * games + i; k >= 0; k -= games) {
            const float go = ends[k] ? 0.0f : gamma;
            after = rewards[k] + go * values[k + games] - values[k] + go * gae_lambda * after;
            advantages[k] = after;
            returns[k] = after + values[k];
            sum += (double)after;
        }
    }
    const double mean = sum / samples;
    for (int32_t k = 0; k < samples; ++k) squares += ((double)advantages[k] - mean) * ((double)advantages[k] - mean);
    const float deviation = (float)__builtin_sqrt(squares / (samples - 1)) + 1e-8f;
    for (int32_t k = 0; k < samples; ++k) advantages[k] = (advantages[k] - (float)mean) / deviation;
}

EXPORT(shuffle) void shuffle(void) {
    for (int32_t k = 0; k < samples; ++k) order[k] = k;
    for (int32_t k = samples - 1; k > 0; --k) {
        const int32_t other = (int32_t)(((uint64_t)pcg32_next(&rng) * (uint64_t)(k + 1)) >> 32), held = order[k];
        order[k] = order[other];
        order[other] = held;
    }
}

/* Copies the samples of a minibatch together: those from `from` on, in their order. */
EXPORT(gather) void gather(int32_t from) {
    for (int32_t i = 0; i < batch; ++i) {
        const int32_t k = order[from + i];
        memcpy(x + i * width, observations + k * width, (size_t)width * 4);
        own_actions[i] = actions[k], old_logprobs[i] = logprobs[k];
        own_advantages[i] = advantages[k], own_returns[i] = returns[k];
    }
}

/* One step of the optimiser over what `gather` has put together. Returns the norm of the gradient before clipping. */
EXPORT(update)
float update(float learning_rate, float clip, float vf_coef, float ent_coef, float max_norm, double beta1, double beta2,
             float eps) {
    const float share = 1.0f / (float)batch;
    forward(x, batch);
    memset(by_out, 0, (size_t)(batch * HEAD) * 4);
    for (int32_t i = 0; i < batch; ++i) {
        float logp[HEAD], p[HEAD], entropy = 0.0f, *by = by_out + i * HEAD;
        softmax(out + i * HEAD, logp, p);
        for (int32_t k = 0; k < choices; ++k) entropy -= p[k] * logp[k];
        const float ratio = exp_(logp[own_actions[i]] - old_logprobs[i]), g = own_advantages[i];
        const float within = ratio < 1.0f - clip ? 1.0f - clip : ratio > 1.0f + clip ? 1.0f + clip : ratio;
        const float by_logp = within * g < ratio * g ? 0.0f : -ratio * g;
        for (int32_t k = 0; k < choices; ++k)
            by[k] = share * (by_logp * ((float)(k == own_actions[i]) - p[k]) + ent_coef * p[k] * (logp[k] + entropy));
        by[choices] = share * vf_coef * (out[i * HEAD + choices] - own_returns[i]);
    }
    const float *w2 = weights + (width + 1) * hidden, *w3 = w2 + (hidden + 1) * hidden;
    float *g1 = gradient, *g2 = g1 + (width + 1) * hidden, *g3 = g2 + (hidden + 1) * hidden;
    for (int32_t i = 0; i < hidden; ++i) {
        for (int32_t o = 0; o < hidden; ++o) turned2[o * hidden + i] = w2[i * hidden + o];
        for (int32_t o = 0; o < HEAD; ++o) turned3[o * hidden + i] = w3[i * HEAD + o];
    }
    dense(h2, 1, hidden, hidden, batch, by_out, HEAD, NULL, 0, NULL, g3);
    dense(by_out, HEAD, 1, batch, choices + 1, turned3, hidden, NULL, 0, h2, by_h2);
    dense(h1, 1, hidden, hidden, batch, by_h2, hidden, NULL, 0, NULL, g2);
    dense(by_h2, hidden, 1, batch, hidden, turned2, hidden, NULL, 0, h1, by_h1);
    dense(x, 1, width, width, batch, by_h1, hidden, NULL, 0, NULL, g1);
    float *bias1 = g1 + width * hidden, *bias2 = g2 + hidden * hidden, *bias3 = g3 + hidden * HEAD;
    memset(bias1, 0, (size_t)hidden * 4);
    memset(bias2, 0, (size_t)hidden * 4);
    memset(bias3, 0, HEAD * 4);
    for (int32_t i = 0; i < batch; ++i) {
        for (int32_t k = 0; k < hidden; ++k) bias1[k] += by_h1[i * hidden + k];
        for (int32_t k = 0; k < hidden; ++k) bias2[k] += by_h2[i * hidden + k];
        for (int32_t k = 0; k < HEAD; ++k) bias3[k] += by_out[i * HEAD + k];
    }
    float norm = 0.0f;
    for (int32_t k = 0; k < num_weights; ++k) norm += gradient[k] * gradient[k];
    norm = __builtin_sqrtf(norm);
    const float scale = max_norm > 0.0f && norm > max_norm ? max_norm / (norm + 1e-6f) : 1.0f;
    ++updates, decayed1 *= beta1, decayed2 *= beta2;
    const float rate = learning_rate / (float)(1.0 - decayed1), root = (float)__builtin_sqrt(1.0 - decayed2);
    const float part1 = (float)(1.0 - beta1), part2 = (float)(1.0 - beta2), keep2 = (float)beta2;
    for (int32_t k = 0; k < num_weights; ++k) {
        const float one = gradient[k] * scale;
        first[k] += part1 * (one - first[k]);
        second[k] = keep2 * second[k] + part2 * one * one;
        weights[k] -= rate * first[k] / (__builtin_sqrtf(second[k]) / root + eps);
    }
    return norm;
}

/* The next rollout begins where this one has ended. */
EXPORT(next) void next(void) { memcpy(observations, observations + samples * width, (size_t)(games * width) * 4); }
