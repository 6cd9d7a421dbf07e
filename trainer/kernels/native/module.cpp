// The only file that knows Python. It trusts its callers: trainer/kernels/*.py check every tensor and hand
// over addresses. The interpreter is released while a kernel works.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

#include "kernels.hpp"
#include "networks.hpp"
#include "threads.hpp"

namespace py = pybind11;

namespace protein {
namespace {

void advantages(Address rewards, Address values, Address ends, Address ratios, Address out, size_t steps, size_t agents,
                float gamma, float gae_lambda, float rho_clip, float c_clip) {
    const AdvantagesArguments a{at<float>(rewards),
                                at<float>(values),
                                at<std::uint8_t>(ends),
                                at<float>(ratios),
                                at<float>(out),
                                steps,
                                agents,
                                gamma,
                                gae_lambda,
                                rho_clip,
                                c_clip};
    split(agents, 262144 / std::max<size_t>(steps, 1),
          [&](size_t b, size_t e, size_t) { kernels->advantages(a, b, e); });
}

void sample(Address logits, size_t stride, size_t actions, size_t batch, Address uniform, Address choices,
            size_t choice_stride, Address logprobs) {
    const SampleArguments a{
        at<float>(logits),  stride, actions, at<float>(uniform), at<std::int32_t>(choices), choice_stride,
        at<float>(logprobs)};
    split(batch, 65536 / (actions + 1), [&](size_t b, size_t e, size_t) { kernels->sample(a, b, e); });
}

void ppo_gradient(Address output, size_t output_stride, size_t actions, size_t batch, Address choices, bool wide,
                  Address logprobs, Address values, Address advantages, Address returns, Address weights,
                  Address gradient, size_t gradient_stride, Address ratios, float count, float clip, float clip_value,
                  float value, float entropy) {
    const PpoArguments a{at<float>(output),
                         output_stride,
                         actions,
                         wide ? at<std::int64_t>(choices) : nullptr,
                         wide ? nullptr : at<std::int32_t>(choices),
                         at<float>(logprobs),
                         at<float>(values),
                         at<float>(advantages),
                         at<float>(returns),
                         at<float>(weights),
                         at<float>(gradient),
                         at<float>(ratios),
                         gradient_stride,
                         1.f / count,
                         clip,
                         clip_value,
                         value,
                         entropy};
    split(batch, 65536 / (actions + 1), [&](size_t b, size_t e, size_t) { kernels->ppo_gradient(a, b, e); });
}

Floats packed(const float *w_hh, size_t units, bool backward) {
    Floats out(new float[kernels->lstm_packed_floats(units, backward)]);
    kernels->lstm_pack(w_hh, units, backward, out.get());
    return out;
}

// Agents of a call from which threads are worth waking, given the multiply-adds of one.
size_t recurrent_grain(size_t products) { return 16'000'000 / std::max<size_t>(products, 1) + 2; }

void lstm_forward(Address gates_x, Address w_hh, Address h0, Address c0, Address resets, Address hidden, Address h,
                  Address c, Address gates, Address cells, Address previous, size_t steps, size_t agents,
                  size_t units) {
    const Floats weights = packed(at<float>(w_hh), units, false);
    const size_t floats = kernels->lstm_scratch_floats(units);
    const Floats scratch(new float[floats * chunks]);
    const LstmArguments a{at<float>(gates_x),
                          weights.get(),
                          at<float>(h0),
                          at<float>(c0),
                          at<std::uint8_t>(resets),
                          at<float>(hidden),
                          at<float>(h),
                          at<float>(c),
                          at<float>(gates),
                          at<float>(cells),
                          at<float>(previous),
                          nullptr,
                          nullptr,
                          steps,
                          agents,
                          units};
    split(agents, recurrent_grain(4 * steps * units * units),
          [&](size_t b, size_t e, size_t chunk) { kernels->lstm_forward(a, b, e, scratch.get() + floats * chunk); });
}

void lstm_backward(Address w_hh, Address c0, Address resets, Address gates, Address cells, Address by_hidden,
                   Address by_gates, size_t steps, size_t agents, size_t units) {
    const Floats weights = packed(at<float>(w_hh), units, true);
    const size_t floats = kernels->lstm_scratch_floats(units);
    const Floats scratch(new float[floats * chunks]);
    const LstmArguments a{nullptr,
                          weights.get(),
                          nullptr,
                          at<float>(c0),
                          at<std::uint8_t>(resets),
                          nullptr,
                          nullptr,
                          nullptr,
                          at<float>(gates),
                          at<float>(cells),
                          nullptr,
                          at<float>(by_hidden),
                          at<float>(by_gates),
                          steps,
                          agents,
                          units};
    split(agents, recurrent_grain(4 * steps * units * units),
          [&](size_t b, size_t e, size_t chunk) { kernels->lstm_backward(a, b, e, scratch.get() + floats * chunk); });
}

void mingru_forward(Address gates, Address candidates, size_t stride, Address h0, Address resets, Address hidden,
                    size_t steps, size_t agents, size_t units) {
    const MinGruArguments a{at<float>(gates),
                            at<float>(candidates),
                            stride,
                            at<float>(h0),
                            at<std::uint8_t>(resets),
                            at<float>(hidden),
                            nullptr,
                            nullptr,
                            nullptr,
                            steps,
                            agents,
                            units};
    split(agents, recurrent_grain(32 * steps * units),
          [&](size_t b, size_t e, size_t) { kernels->mingru_forward(a, b, e); });
}

void mingru_backward(Address gates, Address candidates, size_t stride, Address h0, Address resets, Address hidden,
                     Address by_hidden, Address by_gates, Address by_candidates, size_t steps, size_t agents,
                     size_t units) {
    const Floats scratch(new float[units * chunks]);
    const MinGruArguments a{at<float>(gates),
                            at<float>(candidates),
                            stride,
                            at<float>(h0),
                            at<std::uint8_t>(resets),
                            at<float>(hidden),
                            at<float>(by_hidden),
                            at<float>(by_gates),
                            at<float>(by_candidates),
                            steps,
                            agents,
                            units};
    split(agents, recurrent_grain(32 * steps * units),
          [&](size_t b, size_t e, size_t chunk) { kernels->mingru_backward(a, b, e, scratch.get() + units * chunk); });
}

void elementwise(int function, Address x, Address y, size_t size) {
    kernels->elementwise(function, at<float>(x), at<float>(y), 0, size);
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
    using Released = py::call_guard<py::gil_scoped_release>;
    m.def("set_threads", &set_threads, Released());
    m.def("get_threads", [] { return num_threads; });
    m.def("instruction_sets", &instruction_sets);
    m.def("instruction_set", [] { return kernels->name; });
    m.def("use_instruction_set", &use_instruction_set);
    m.def("elementwise", &elementwise, Released());
    m.def("advantages", &advantages, Released());
    m.def("sample", &sample, Released());
    m.def("ppo_gradient", &ppo_gradient, Released());
    m.def("lstm_forward", &lstm_forward, Released());
    m.def("lstm_backward", &lstm_backward, Released());
    m.def("mingru_forward", &mingru_forward, Released());
    m.def("mingru_backward", &mingru_backward, Released());
    m.def("linear_forward", &linear_forward, Released());
    m.def("linear_backward", &linear_backward, Released());
    py::class_<Mlp>(m, "Mlp")
        .def(py::init<const std::vector<std::tuple<Address, Address, size_t, size_t>> &>())
        .def("forward", &Mlp::forward, Released())
        .def("backward", &Mlp::backward, Released());
}
