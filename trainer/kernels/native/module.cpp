// The only file that knows Python. Every tensor is checked here (tensors.hpp), sizes are read from the tensors, and the
// interpreter is released while a kernel works.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <cassert>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "kernels.hpp"
#include "lstm.hpp"
#include "networks.hpp"
#include "tensors.hpp"
#include "threads.hpp"

namespace protein {
namespace {

using Released = py::gil_scoped_release;

void advantages(py::handle rewards, py::handle values, py::handle ends, py::handle ratios, py::handle out, float gamma,
                float gae_lambda, float rho_clip, float c_clip) {
    const Tensor of_rewards(rewards, "rewards");
    const auto shape = of_rewards.shape<2>();
    const auto [steps, agents] = shape;
    const AdvantagesArguments a{of_rewards.contiguous<float>(shape),
                                Tensor(values, "values").contiguous<float>(std::array<size_t, 2>{steps + 1, agents}),
                                Tensor(ends, "ends").contiguous<std::uint8_t>(shape),
                                Tensor(ratios, "ratios").contiguous<float>(shape),
                                Tensor(out, "out").contiguous<float>(shape),
                                steps,
                                agents,
                                gamma,
                                gae_lambda,
                                rho_clip,
                                c_clip};
    const Released released;
    split(a.agents, 262144 / std::max<size_t>(a.steps, 1),
          [&](size_t b, size_t e, size_t) { kernels->advantages(a, b, e); });
}

void sample(py::handle logits, py::handle uniform, py::handle actions, py::handle logprobs) {
    const Tensor of_logits(logits, "logits");
    const auto shape = of_logits.shape<2>();
    const std::array<size_t, 1> batch{shape[1]};
    const Rows rows = of_logits.rows(shape);
    const auto [choices, choice_stride] = Tensor(actions, "actions").strided<std::int32_t>(batch[0]);
    const SampleArguments a{rows.at,
                            rows.stride,
                            shape[0],
                            Tensor(uniform, "uniform").contiguous<float>(batch),
                            choices,
                            choice_stride,
                            Tensor(logprobs, "logprobs").contiguous<float>(batch)};
    const Released released;
    split(batch[0], 65536 / (a.actions + 1), [&](size_t b, size_t e, size_t) { kernels->sample(a, b, e); });
}

void ppo_gradient(py::handle output, py::handle actions, py::handle logprobs, py::handle advantages, py::handle returns,
                  py::handle weights, py::handle gradient, float count, float clip, float value, float entropy) {
    const Tensor of_output(output, "output");
    const auto shape = of_output.shape<2>();
    const std::array<size_t, 1> batch{shape[1]};
    if (shape[0] < 2) throw py::value_error("output must have at least 2 rows, a logit and the value");
    const Rows rows = of_output.rows(shape), by_rows = Tensor(gradient, "gradient").rows(shape);
    const PpoArguments a{rows.at,
                         rows.stride,
                         shape[0] - 1,
                         Tensor(actions, "actions").contiguous<std::int32_t>(batch),
                         Tensor(logprobs, "logprobs").contiguous<float>(batch),
                         Tensor(advantages, "advantages").contiguous<float>(batch),
                         Tensor(returns, "returns").contiguous<float>(batch),
                         Tensor(weights, "weights").contiguous<float>(batch),
                         by_rows.at,
                         by_rows.stride,
                         1.f / count,
                         clip,
                         value,
                         entropy};
    const Released released;
    split(batch[0], 65536 / (a.actions + 1), [&](size_t b, size_t e, size_t) { kernels->ppo_gradient(a, b, e); });
}

void channels_last(py::handle images, py::handle out, float scale) {
    const Tensor of_images(images, "images");
    const auto shape = of_images.shape<4>();
    const auto [count, channels, height, width] = shape;
    const ImagesArguments a{of_images.contiguous<std::byte>(shape),
                            Tensor(out, "out").contiguous<float>(std::array<size_t, 4>{count, height, width, channels}),
                            channels, height * width, scale};
    const Released released;
    const size_t part = (count + chunks - 1) / chunks;
    // Reading, converting and writing a number takes about as long as 16 products.
    run(part ? (count + part - 1) / part : 0, worth_threads(16 * count * channels * a.pixels),
        [&](size_t chunk) { kernels->channels_last(a, chunk * part, std::min(count, chunk * part + part)); });
}

LstmWeights lstm_weights(py::handle w_ih, py::handle w_hh, py::handle bias) {
    const Tensor of_w_ih(w_ih, "w_ih");
    const auto shape = of_w_ih.shape<2>();
    const size_t inputs = shape[1], units = shape[0] / 4;
    return {of_w_ih.contiguous<float>(std::array<size_t, 2>{4 * units, inputs}),
            Tensor(w_hh, "w_hh").contiguous<float>(std::array<size_t, 2>{4 * units, units}),
            Tensor(bias, "bias").contiguous<float>(std::array<size_t, 1>{4 * units}), inputs, units};
}

LstmArguments lstm(py::handle x, const LstmWeights &w, py::handle state, py::handle resets, py::handle hidden,
                   py::handle after, py::handle gates, py::handle cells) {
    const auto [steps, agents, units] = Tensor(hidden, "hidden").shape<3>();
    if (units != w.units)
        throw py::value_error("hidden must have " + std::to_string(w.units) + " units, got " + std::to_string(units));
    const std::array<size_t, 3> of_states{steps, agents, units};
    const std::array<size_t, 2> of_state{agents, 2 * units};
    const Rows rows = Tensor(x, "inputs").rows(std::array<size_t, 3>{steps, agents, w.inputs});
    return {rows.at,
            rows.stride,
            nullptr,
            Tensor(state, "state").contiguous<float>(of_state),
            Tensor(resets, "resets").contiguous<std::uint8_t>(std::array<size_t, 2>{steps, agents}),
            Tensor(hidden, "hidden").contiguous<float>(of_states),
            Tensor(after, "after").contiguous<float>(of_state),
            Tensor(gates, "gates").contiguous<float>(std::array<size_t, 3>{steps, agents, 4 * units}),
            Tensor(cells, "cells").contiguous<float>(of_states),
            nullptr,
            nullptr,
            steps,
            agents,
            w.inputs,
            units};
}

// `gates` and `cells` are for the backward pass, or None.
void lstm_forward_(py::handle x, py::handle w_ih, py::handle w_hh, py::handle bias, py::handle state, py::handle resets,
                   py::handle hidden, py::handle after, py::handle gates, py::handle cells) {
    const LstmWeights w = lstm_weights(w_ih, w_hh, bias);
    const LstmArguments a = lstm(x, w, state, resets, hidden, after, gates, cells);
    const Released released;
    lstm_forward(a, w);
}

// `by_x` may be None.
void lstm_backward_(py::handle x, py::handle w_ih, py::handle w_hh, py::handle bias, py::handle state,
                    py::handle resets, py::handle hidden, py::handle gates, py::handle cells, py::handle by_hidden,
                    py::handle by_x, py::handle by_w_ih, py::handle by_w_hh, py::handle by_bias) {
    const LstmWeights w = lstm_weights(w_ih, w_hh, bias), by = lstm_weights(by_w_ih, by_w_hh, by_bias);
    LstmArguments a = lstm(x, w, state, resets, hidden, py::none(), gates, cells);
    const std::array<size_t, 3> of_states{a.steps, a.agents, a.units}, of_x{a.steps, a.agents, a.inputs};
    if (by.inputs != w.inputs || by.units != w.units)
        throw py::value_error("gradients must have the shapes of the weights");
    a.by_hidden = Tensor(by_hidden, "by_hidden").contiguous<float>(of_states);
    a.by_x = Tensor(by_x, "by_inputs").contiguous<float>(of_x);
    const Released released;
    lstm_backward(a, w, by);
}

// Gate logits and candidates may be parts of one product: their rows are contiguous and equally far apart.
MinGruArguments mingru(py::handle gate_logits, py::handle candidates, py::handle h0, py::handle resets,
                       py::handle hidden) {
    const auto of_states = Tensor(hidden, "hidden").shape<3>();
    const auto [steps, agents, units] = of_states;
    const Rows gates = Tensor(gate_logits, "gate_logits").rows(of_states),
               others = Tensor(candidates, "candidates").rows(of_states);
    if (gates.stride != others.stride)
        throw py::value_error("gate_logits and candidates must be laid out alike, got rows " +
                              std::to_string(gates.stride) + " and " + std::to_string(others.stride) + " apart");
    return {gates.at,
            others.at,
            gates.stride,
            Tensor(h0, "h0").contiguous<float>(std::array<size_t, 2>{agents, units}),
            Tensor(resets, "resets").contiguous<std::uint8_t>(std::array<size_t, 2>{steps, agents}),
            Tensor(hidden, "hidden").contiguous<float>(of_states),
            nullptr,
            nullptr,
            nullptr,
            steps,
            agents,
            units};
}

void mingru_forward(py::handle gate_logits, py::handle candidates, py::handle h0, py::handle resets,
                    py::handle hidden) {
    const MinGruArguments a = mingru(gate_logits, candidates, h0, resets, hidden);
    const Released released;
    split(a.agents, recurrent_grain(32 * a.steps * a.units),
          [&](size_t b, size_t e, size_t) { kernels->mingru_forward(a, b, e); });
}

void mingru_backward(py::handle gate_logits, py::handle candidates, py::handle h0, py::handle resets, py::handle hidden,
                     py::handle by_hidden, py::handle by_gates, py::handle by_candidates) {
    MinGruArguments a = mingru(gate_logits, candidates, h0, resets, hidden);
    const std::array<size_t, 3> of_states{a.steps, a.agents, a.units};
    a.by_hidden = Tensor(by_hidden, "by_hidden").contiguous<float>(of_states);
    a.by_gates = Tensor(by_gates, "by_gates").contiguous<float>(of_states);
    a.by_candidates = Tensor(by_candidates, "by_candidates").contiguous<float>(of_states);
    const Released released;
    const Floats scratch(new float[a.units * chunks]);
    split(a.agents, recurrent_grain(32 * a.steps * a.units), [&](size_t b, size_t e, size_t chunk) {
        kernels->mingru_backward(a, b, e, scratch.get() + a.units * chunk);
    });
}

void linear_forward_(py::handle x, py::handle weight, py::handle bias, py::handle y, bool relu) {
    const Tensor of_x(x, "inputs"), of_weight(weight, "weight");
    const auto shape = of_weight.shape<2>();
    const auto [outputs, inputs] = shape;
    const size_t batch = of_x.num_rows(inputs);
    const float *from = of_x.flat(inputs, batch), *weights = of_weight.contiguous<float>(shape),
                *biases = Tensor(bias, "bias").contiguous<float>(std::array<size_t, 1>{outputs});
    float *to = Tensor(y, "output").flat(outputs, batch);
    const Released released;
    linear_forward(from, weights, biases, to, batch, shape[1], shape[0], relu);
}

// `weight` and `by_x` are both given or both None; `y` is the output of a layer with ReLU, else None.
void linear_backward_(py::handle x, py::handle weight, py::handle y, py::handle by_y, py::handle by_x,
                      py::handle by_weight, py::handle by_bias) {
    const Tensor of_x(x, "inputs"), of_by_weight(by_weight, "by_weight"), of_weight(weight, "weight"),
        of_by_x(by_x, "by_inputs");
    const auto shape = of_by_weight.shape<2>();
    const auto [outputs, inputs] = shape;
    const size_t batch = of_x.num_rows(inputs);
    if (of_weight.is_none() && !of_by_x.is_none()) throw py::value_error("by_inputs needs weight, got None");
    const float *from = of_x.flat(inputs, batch), *weights = of_weight.contiguous<float>(shape);
    float *relu = Tensor(y, "output").flat(outputs, batch);
    const float *by_output = Tensor(by_y, "by_output").flat(outputs, batch);
    float *by_inputs = of_by_x.flat(inputs, batch), *by_weights = of_by_weight.contiguous<float>(shape),
          *by_biases = Tensor(by_bias, "by_bias").contiguous<float>(std::array<size_t, 1>{outputs});
    const Released released;
    linear_backward(from, weights, relu, by_output, by_inputs, by_weights, by_biases, batch, shape[1], shape[0]);
}

// The addresses of each layer's weight and bias, or of their gradients, given as weight, bias, weight, bias, ...
std::vector<Layer> layers_of(py::handle tensors, const char *weight_name, const char *bias_name) {
    if (!PyTuple_Check(tensors.ptr()) || PyTuple_GET_SIZE(tensors.ptr()) < 4 || PyTuple_GET_SIZE(tensors.ptr()) % 2)
        throw py::value_error("an MLP must be a tuple of each layer's weight and bias, and have two layers or more");
    const auto count = static_cast<size_t>(PyTuple_GET_SIZE(tensors.ptr())) / 2;
    std::vector<Layer> layers;
    layers.reserve(count);
    for (size_t l = 0; l < count; ++l) {
        const auto at = static_cast<Py_ssize_t>(2 * l);
        const Tensor weight(PyTuple_GET_ITEM(tensors.ptr(), at), weight_name, static_cast<int>(l)),
            bias(PyTuple_GET_ITEM(tensors.ptr(), at + 1), bias_name, static_cast<int>(l));
        auto shape = weight.shape<2>();
        if (l) shape[1] = layers.back().outputs;  // the outputs of the layer before
        layers.push_back({weight.contiguous<float>(shape), bias.contiguous<float>(std::array<size_t, 1>{shape[0]}),
                          shape[1], shape[0]});
    }
    return layers;
}

// The observations of an MLP: float32, or bytes which count `scale` each.
Observations observations_of(py::handle observations, size_t batch, size_t inputs, float scale) {
    const Tensor given(observations, "observations");
    const std::array<size_t, 2> shape{batch, inputs};
    if (given.is_bytes()) return {nullptr, given.contiguous<std::byte>(shape), scale};
    return {given.contiguous<float>(shape), nullptr, 1.f};
}

// Computes an MLP's output. Where a backward pass will follow, returns what that needs; it keeps no reference to the
// arguments.
std::unique_ptr<Mlp> mlp_forward(py::handle observations, py::handle parameters, py::handle output, bool keep,
                                 float scale) {
    auto network = std::make_unique<Mlp>(layers_of(parameters, "weight", "bias"));
    const size_t batch = Tensor(observations, "observations").shape<2>()[0];
    const Observations from = observations_of(observations, batch, network->inputs(), scale);
    const Rows to = Tensor(output, "output").rows(std::array<size_t, 2>{network->outputs(), batch});
    const Released released;
    network->forward(from, batch, to.at, to.stride, keep);
    return keep ? std::move(network) : nullptr;
}

// Adds to the gradients of each layer's weight and bias.
void mlp_backward(Mlp &network, py::handle observations, py::handle by_output, py::handle gradients, float scale) {
    const auto wanted = layers_of(gradients, "gradient of weight", "gradient of bias");
    const size_t batch = network.batch();
    const Observations from = observations_of(observations, batch, network.inputs(), scale);
    const Rows by = Tensor(by_output, "by_output").rows(std::array<size_t, 2>{network.outputs(), batch});
    network.require_alike(wanted);
    const Released released;
    network.backward(from, by.at, by.stride, wanted);
}

// `layers`: weight and bias of the encoder's layers, then of the output layer.
std::unique_ptr<LstmPolicy> lstm_policy(py::handle layers, py::handle w_ih, py::handle w_hh, py::handle bias) {
    return std::make_unique<LstmPolicy>(layers_of(layers, "weight", "bias"), lstm_weights(w_ih, w_hh, bias));
}

// `after` may be `state`, or None.
void lstm_step(LstmPolicy &policy, py::handle observations, py::handle state, py::handle resets, py::handle output,
               py::handle after) {
    const Tensor of_observations(observations, "observations");
    const size_t batch = of_observations.shape<2>()[0];
    const std::array<size_t, 2> of_state{batch, 2 * policy.units()};
    const Rows to = Tensor(output, "output").rows(std::array<size_t, 2>{policy.outputs(), batch});
    LstmStepArguments a{};
    a.observations = of_observations.contiguous<float>(std::array<size_t, 2>{batch, policy.inputs()});
    a.state = Tensor(state, "state").contiguous<float>(of_state);
    a.resets = Tensor(resets, "resets").contiguous<std::uint8_t>(std::array<size_t, 1>{batch});
    a.after = Tensor(after, "after").contiguous<float>(of_state);
    a.output = to.at;
    a.stride = to.stride;
    const Released released;
    policy.step(a, batch);
}

// `first` and `rotation` may be None, and so may both derivatives.
AttentionArguments attention(py::handle projected, py::handle rotation, py::handle first, py::handle mixed,
                             py::handle log_sums, py::handle by_mixed, py::handle by_projected, bool norm,
                             float epsilon) {
    const Tensor of_projected(projected, "projected");
    const auto shape = of_projected.shape<5>();
    const auto [rows, tokens, three, heads, size] = shape;
    if (three != 3) throw py::value_error("projected must hold 3 parts, got " + std::to_string(three));
    if (!rotation.is_none() && size % 2) throw py::value_error("a rotation needs an even head size");
    for (const auto &[tensor, name] : {std::pair{mixed, "mixed"}, std::pair{log_sums, "log_sums"}})
        if (tensor.is_none()) throw py::value_error(std::string(name) + " is missing");
    const bool bfloat16 = of_projected.is_bfloat16();
    const std::array<size_t, 4> of_mixed{rows, tokens, heads, size};
    return {of_projected.floating(shape, bfloat16),
            Tensor(rotation, "rotation").contiguous<float>(std::array<size_t, 4>{2, tokens, 1, size}),
            Tensor(first, "first").contiguous<std::int32_t>(std::array<size_t, 2>{rows, tokens}),
            Tensor(mixed, "mixed").floating(of_mixed, bfloat16),
            Tensor(log_sums, "log_sums").contiguous<float>(std::array<size_t, 3>{rows, heads, tokens}),
            Tensor(by_mixed, "by_mixed").floating(of_mixed, bfloat16),
            Tensor(by_projected, "by_projected").floating(shape, bfloat16),
            rows,
            tokens,
            heads,
            size,
            bfloat16,
            norm,
            epsilon};
}

// Runs all heads of all rows, on the threads where that is worth it.
void each_head(const AttentionArguments &a, bool backward) {
    const size_t units = a.rows * a.heads, part = (units + chunks - 1) / chunks;
    const auto kernel = backward ? kernels->attention_backward : kernels->attention_forward;
    const size_t floats = kernels->attention_scratch_floats(a.tokens, a.size, backward);
    run(part ? (units + part - 1) / part : 0, worth_threads(units * a.tokens * a.tokens * a.size), [&](size_t chunk) {
        const Floats scratch(new float[floats]);
        kernel(a, chunk * part, std::min(units, chunk * part + part), scratch.get());
    });
}

void attention_forward(py::handle projected, py::handle rotation, py::handle first, py::handle mixed,
                       py::handle log_sums, bool norm, float epsilon) {
    const auto a = attention(projected, rotation, first, mixed, log_sums, py::none(), py::none(), norm, epsilon);
    const Released released;
    each_head(a, false);
}

void attention_backward(py::handle projected, py::handle rotation, py::handle first, py::handle mixed,
                        py::handle log_sums, py::handle by_mixed, py::handle by_projected, bool norm, float epsilon) {
    for (const auto &[tensor, name] : {std::pair{by_mixed, "by_mixed"}, std::pair{by_projected, "by_projected"}})
        if (tensor.is_none()) throw py::value_error(std::string(name) + " is missing");
    const auto a = attention(projected, rotation, first, mixed, log_sums, by_mixed, by_projected, norm, epsilon);
    const Released released;
    each_head(a, true);
}

void elementwise(int function, py::handle x, py::handle y) {
    const auto shape = Tensor(x, "x").shape<1>();
    const float *from = Tensor(x, "x").contiguous<float>(shape);
    kernels->elementwise(function, from, Tensor(y, "y").contiguous<float>(shape), 0, shape[0]);
}

std::vector<std::string> instruction_sets() {
    std::vector<std::string> names;
    for (const auto *table : usable()) names.emplace_back(table->name);
    return names;
}

void use_instruction_set(const std::string &name) {
    for (const auto *table : usable())
        if (name == table->name) {
            kernels = table;
            return;
        }
    throw std::invalid_argument("no kernels for the instruction set '" + name + "' on this processor");
}

}  // namespace
}  // namespace protein

PYBIND11_MODULE(_native, m) {
    using namespace protein;
    m.def("set_threads", &set_threads, py::call_guard<py::gil_scoped_release>());
    m.def("get_threads", [] { return num_threads; });
    m.def("instruction_sets", &instruction_sets);
    m.def("instruction_set", [] { return kernels->name; });
    m.def("use_instruction_set", &use_instruction_set);
    m.def("elementwise", &elementwise);
    m.def("advantages", &advantages);
    m.def("sample", &sample);
    m.def("ppo_gradient", &ppo_gradient);
    m.def("channels_last", &channels_last);
    m.def("lstm_forward", &lstm_forward_);
    m.def("lstm_backward", &lstm_backward_);
    m.def("mingru_forward", &mingru_forward);
    m.def("mingru_backward", &mingru_backward);
    m.def("linear_forward", &linear_forward_);
    m.def("linear_backward", &linear_backward_);
    py::class_<LstmPolicy>(m, "LstmPolicy").def(py::init(&lstm_policy)).def("step", &lstm_step);
    m.def("mlp_forward", &mlp_forward);
    m.def("attention_forward", &attention_forward);
    m.def("attention_backward", &attention_backward);
    py::class_<Mlp>(m, "Mlp").def("backward", &mlp_backward);
}
