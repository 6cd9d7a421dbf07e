// The LSTM over a whole batch, and policies with one: packing, memory, threads and the order of sums around the kernels
// of recurrent.hpp.
#pragma once

#include <algorithm>
#include <stdexcept>
#include <utility>
#include <vector>

#include "kernels.hpp"
#include "networks.hpp"
#include "threads.hpp"

namespace protein {

// The least number of agents in a call for which threads are worth waking, given the multiply-adds of one agent.
inline size_t recurrent_grain(size_t products) { return 16'000'000 / std::max<size_t>(products, 1) + 2; }

inline size_t lstm_products(const LstmArguments &a) { return 4 * a.steps * a.units * (a.inputs + a.units); }

// The LSTM's weights, or their gradients, and their sizes.
struct LstmWeights {
    float *w_ih, *w_hh, *bias;
    size_t inputs, units;

    Floats packed(bool backward) const {
        Floats out(new float[kernels->lstm_packed_floats(inputs, units, backward)]);
        kernels->lstm_pack(w_ih, w_hh, bias, inputs, units, backward, out.get());
        return out;
    }
};

inline void lstm_forward(LstmArguments a, const LstmWeights &w) {
    const Floats weights = w.packed(false);
    a.packed = weights.get();
    const size_t floats = kernels->lstm_scratch_floats(a.inputs, a.units);
    const Floats scratch(new float[floats * chunks]);
    split(a.agents, recurrent_grain(lstm_products(a)),
          [&](size_t b, size_t e, size_t chunk) { kernels->lstm_forward(a, b, e, scratch.get() + floats * chunk); });
}

// The agents are divided by their number alone, so that the gradients do not depend on the number of threads.
inline void lstm_backward(LstmArguments a, const LstmWeights &w, const LstmWeights &by) {
    const size_t row = kernels->padded(a.inputs) + kernels->padded(a.units), gates = 4 * a.units;
    const size_t sums = gates * row + gates, floats = kernels->lstm_scratch_floats(a.inputs, a.units);
    const size_t part = ((a.agents + chunks - 1) / chunks + 15) / 16 * 16, used = (a.agents + part - 1) / part;
    const Floats weights = w.packed(true), memory(new float[(sums + floats) * used]);
    float *partials = memory.get(), *scratch = partials + sums * used;
    a.packed = weights.get();
    run(used, a.agents >= recurrent_grain(2 * lstm_products(a)), [&](size_t chunk) {
        std::fill_n(partials + sums * chunk, sums, 0.f);
        kernels->lstm_backward(a, chunk * part, std::min(a.agents, chunk * part + part), scratch + floats * chunk,
                               partials + sums * chunk);
    });
    sum_parts(partials, used, sums);
    for (size_t j = 0; j < gates; ++j) {
        std::copy_n(partials + j * row, a.inputs, by.w_ih + j * a.inputs);
        std::copy_n(partials + j * row + kernels->padded(a.inputs), a.units, by.w_hh + j * a.units);
    }
    std::copy_n(partials + gates * row, gates, by.bias);
}

// Encoder, LSTM and output layer with packed weights, for acting: it keeps no reference to the tensors.
class LstmPolicy {
   public:
    // `layers`: the encoder's and, last, the output layer.
    LstmPolicy(const std::vector<Layer> &layers, const LstmWeights &w)
        : lstm_(w.packed(false)), lstm_inputs_(w.inputs), units_(w.units) {
        if (layers[layers.size() - 2].outputs != w.inputs || layers.back().inputs != w.units)
            throw std::invalid_argument(
                "the LSTM must have as many inputs as the encoder has outputs, and as many "
                "units as the output layer has inputs");
        size_t floats = 0;
        for (const Layer &layer : layers) floats += (layer.inputs + 1) * kernels->padded(layer.outputs);
        weights_.reset(new float[floats]);
        float *to = weights_.get();
        products_ = 4 * units_ * (lstm_inputs_ + units_);
        for (const Layer &layer : layers) {
            layers_.push_back({layer.inputs, layer.outputs, to, nullptr, nullptr, 0});
            kernels->mlp_pack(layers_.back(), layer.weight, layer.bias, to, nullptr);
            to += (layer.inputs + 1) * kernels->padded(layer.outputs);
            products_ += layer.inputs * layer.outputs;
        }
        floats_ = kernels->lstm_step_scratch_floats(layers_.data(), layers_.size(), units_);
        scratch_.reset(new float[floats_ * chunks]);
    }

    size_t inputs() const { return layers_.front().inputs; }
    size_t outputs() const { return layers_.back().outputs; }
    size_t units() const { return units_; }

    // The caller sets the observations, states, resets and the output.
    void step(LstmStepArguments a, size_t batch) {
        a.layers = layers_.data();
        a.count = layers_.size();
        a.packed = lstm_.get();
        a.inputs = lstm_inputs_;
        a.units = units_;
        split(batch, recurrent_grain(products_),
              [&](size_t b, size_t e, size_t chunk) { kernels->lstm_step(a, b, e, scratch_.get() + floats_ * chunk); });
    }

   private:
    Floats lstm_, weights_, scratch_;
    std::vector<MlpLayer> layers_;
    size_t lstm_inputs_, units_, products_ = 0, floats_ = 0;
};

}  // namespace protein
