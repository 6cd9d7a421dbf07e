// Layers and networks over a whole batch: packing, memory, threads and the order of sums around the kernels' blocks.
#pragma once

#include <algorithm>
#include <cassert>
#include <stdexcept>
#include <utility>
#include <vector>

#include "kernels.hpp"
#include "threads.hpp"

namespace protein {

// y (`batch x outputs`) = x W^T + b, with negative numbers set to 0 where `relu`.
inline void linear_forward(const float *x, const float *weight, const float *bias, float *y, size_t batch,
                           size_t inputs, size_t outputs, bool relu) {
    const size_t packed = kernels->packed_floats(inputs + 1, outputs),
                 scratch = kernels->linear_scratch_floats(inputs, outputs);
    const Floats memory(new float[packed + scratch * chunks]);
    float *weights = memory.get(), *biases = weights + kernels->packed_floats(inputs, outputs);
    kernels->pack(weight, 1, inputs, inputs, outputs, weights);
    kernels->pack(bias, 0, 1, 1, outputs, biases);
    const LinearArguments a{x, y, nullptr, nullptr, weights, biases, inputs, outputs, relu};
    parts(batch, worth_threads(batch * inputs * outputs), [&](size_t b, size_t e, size_t chunk) {
        kernels->linear_forward(a, b, e, weights + packed + scratch * chunk);
    });
}

// The gradients with respect to x (unless null), weight and bias (unless null); `y` is the output of a layer with ReLU,
// else null.
inline void linear_backward(const float *x, const float *weight, float *y, const float *by_y, float *by_x,
                            float *by_weight, float *by_bias, size_t batch, size_t inputs, size_t outputs) {
    assert(!by_x || weight);
    const size_t width = kernels->padded(inputs), sums = outputs * width + kernels->padded(outputs);
    const size_t packed = by_x ? kernels->packed_floats(outputs, inputs) : 0;
    const size_t scratch = kernels->linear_scratch_floats(inputs, outputs);
    const Floats memory(new float[packed + (scratch + sums) * chunks]);
    float *weights = memory.get(), *partials = weights + packed, *scratches = partials + sums * chunks;
    if (by_x) kernels->pack(weight, inputs, 1, outputs, inputs, weights);
    const LinearArguments a{x, y, by_y, by_x, weights, nullptr, inputs, outputs, false};
    const size_t used =
        parts(batch, worth_threads(2 * batch * inputs * outputs), [&](size_t b, size_t e, size_t chunk) {
            std::fill_n(partials + sums * chunk, sums, 0.f);
            kernels->linear_backward(a, b, e, scratches + scratch * chunk, partials + sums * chunk);
        });
    sum_parts(partials, used, sums);
    for (size_t j = 0; j < outputs; ++j) std::copy_n(partials + j * width, inputs, by_weight + j * inputs);
    if (by_bias) std::copy_n(partials + outputs * width, outputs, by_bias);
}

// One layer of an MLP: its weight `outputs x inputs` and its bias, or their gradients.
struct Layer {
    float *weight, *bias;
    size_t inputs, outputs;
};

// The network of mlp.hpp, for one forward pass and the backward pass that may follow. It owns the data that passes
// between the two. Only `forward` reads its parameters.
class Mlp {
   public:
    explicit Mlp(std::vector<Layer> parameters) : parameters_(std::move(parameters)) {
        for (const Layer &layer : parameters_) {
            products_ += layer.inputs * layer.outputs;
            layers_.push_back({layer.inputs, layer.outputs, nullptr, nullptr, nullptr, 0});
        }
    }

    size_t inputs() const { return layers_.front().inputs; }
    size_t outputs() const { return layers_.back().outputs; }
    size_t batch() const { return kept_; }  // of the forward pass

    // Throws std::invalid_argument unless these are layers of the same sizes.
    void require_alike(const std::vector<Layer> &others) const {
        const auto alike = [](const Layer &a, const Layer &b) {
            return a.inputs == b.inputs && a.outputs == b.outputs;
        };
        if (!std::equal(others.begin(), others.end(), parameters_.begin(), parameters_.end(), alike))
            throw std::invalid_argument("gradients must have the shapes of the parameters");
    }

    // `keep`: a backward pass over the same observations will follow.
    void forward(Observations observations, size_t batch, float *output, size_t stride, bool keep) {
        const auto padded = kernels->padded;
        size_t weights = 0, hidden = 0, partial = 0;
        for (auto &layer : layers_) {
            layer.partial = partial;
            const bool first = partial == 0;  // transposed: see mlp.hpp
            partial += first ? layer.inputs * padded(layer.outputs) : layer.outputs * padded(layer.inputs);
            partial += padded(layer.outputs);
            weights += (layer.inputs + 1) * padded(layer.outputs) + layer.outputs * padded(layer.inputs);
            hidden += batch * padded(layer.outputs);
        }
        partial_ = partial;
        reserve(weights_, weights);
        if (keep) reserve(hidden_, hidden);
        float *w = weights_.data.get(), *h = hidden_.data.get();
        for (size_t l = 0; l < layers_.size(); ++l) {
            MlpLayer &layer = layers_[l];
            layer.forward = w;
            w += (layer.inputs + 1) * padded(layer.outputs);
            layer.backward = w;
            kernels->mlp_pack(layer, parameters_[l].weight, parameters_[l].bias, const_cast<float *>(layer.forward),
                              keep ? w : nullptr);
            w += layer.outputs * padded(layer.inputs);
            layer.hidden = keep && l + 1 < layers_.size() ? h : nullptr;
            h += keep ? batch * padded(layer.outputs) : 0;
        }
        kept_ = keep ? batch : 0;
        const size_t floats = kernels->mlp_scratch_floats(layers_.data(), layers_.size());
        const bool threaded = shared(worth_threads(batch * products_));
        reserve(scratch_, floats * (threaded ? chunks : 1));
        const MlpArguments a{layers_.data(), layers_.size(), observations, output, stride};
        parts(batch, threaded, [&](size_t b, size_t e, size_t chunk) {
            kernels->mlp_forward(a, b, e, scratch_.data.get() + floats * (threaded ? chunk : 0));
        });
    }

    // Adds to the gradients of each layer's weight and bias.
    void backward(Observations observations, float *by_output, size_t stride, const std::vector<Layer> &gradients) {
        assert(kept_ && gradients.size() == layers_.size());
        const size_t batch = kept_;
        const size_t floats = kernels->mlp_scratch_floats(layers_.data(), layers_.size());
        // One thread has the sums of all chunks so far and those of its chunk, and adds them up as threads do later.
        const bool threaded = shared(worth_threads(2 * batch * products_));
        reserve(scratch_, floats * (threaded ? chunks : 1));
        reserve(partials_, partial_ * (threaded ? chunks : 2));
        const MlpArguments a{layers_.data(), layers_.size(), observations, by_output, stride};
        float *sums = partials_.data.get();
        const size_t used = parts(batch, threaded, [&](size_t b, size_t e, size_t chunk) {
            float *scratch = scratch_.data.get() + floats * (threaded ? chunk : 0);
            float *own = sums + partial_ * (threaded ? chunk : std::min(chunk, size_t{1}));
            std::fill_n(own, partial_, 0.f);
            kernels->mlp_backward(a, b, e, scratch, own);
            if (!threaded && chunk) sum_parts(sums, 2, partial_);
        });
        if (threaded) sum_parts(sums, used, partial_);
        for (size_t l = 0; l < layers_.size(); ++l) {
            const MlpLayer &layer = layers_[l];
            const size_t inputs = layer.inputs, outputs = layer.outputs;
            const float *from = sums + layer.partial;
            const size_t row = l ? kernels->padded(inputs) : 1, column = l ? 1 : kernels->padded(outputs);
            float *by_weight = gradients[l].weight;
            for (size_t j = 0; j < outputs; ++j)
                for (size_t k = 0; k < inputs; ++k) by_weight[j * inputs + k] += from[j * row + k * column];
            from += l ? outputs * row : inputs * column;
            for (size_t j = 0; j < outputs; ++j) gradients[l].bias[j] += from[j];
        }
    }

   private:
    struct Memory {
        Floats data;
        size_t size = 0;
    };

    static void reserve(Memory &memory, size_t floats) {
        if (memory.size >= floats) return;
        memory.data.reset(new float[floats]);
        memory.size = floats;
    }

    std::vector<MlpLayer> layers_;
    std::vector<Layer> parameters_;
    Memory weights_, hidden_, scratch_, partials_;
    size_t products_ = 0, partial_ = 0, kept_ = 0;  // multiply-adds a row; floats of a part's sums; rows
};

}  // namespace protein
