// The only file that knows Python and threads. It trusts its callers: trainer/kernels/*.py check every tensor and hand
// over addresses. The interpreter is released while a kernel works.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "kernels.hpp"
#include "thread_pool.hpp"

namespace py = pybind11;

namespace protein {
namespace {

using Address = std::uintptr_t;

template <typename T>
T *at(Address address) {
    return reinterpret_cast<T *>(address);
}

std::vector<const Kernels *> usable() {
    std::vector<const Kernels *> found{&baseline_kernels};
#ifdef PROTEIN_X86
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) found.push_back(&avx2_kernels);
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl"))
        found.push_back(&avx512_kernels);
#endif
    return found;
}

const Kernels *kernels = usable().back();

// Chunks of a call. More than threads, so that a thread which is held up does not hold up all; and always as many, so
// that sums over chunks do not depend on the number of threads.
constexpr size_t chunks = 16;

std::mutex mutex;  // of everything below: one call at a time uses the threads
size_t num_threads = 1;
envs_c::ThreadPool *pool = nullptr;  // leaked at exit and in a forked child: see thread_pool.hpp

void set_threads(size_t threads) {
    if (threads < 1) throw std::invalid_argument("threads must be at least 1");
    const std::lock_guard<std::mutex> lock(mutex);
    if (threads == num_threads) return;
    if (pool && !pool->forked()) delete pool;
    pool = nullptr;
    num_threads = 1;
    if (threads > 1) pool = new envs_c::ThreadPool(threads, chunks);
    num_threads = threads;
}

// Calls work(begin, end, chunk) on parts of 0 .. size, whole multiples of 16 but for the last; on one thread where
// `size` is less than `grain`, below which waking the others does not pay.
template <typename Work>
void split(size_t size, size_t grain, const Work &work) {
    const py::gil_scoped_release release;
    if (size < grain || num_threads == 1) {
        work(size_t{0}, size, size_t{0});
        return;
    }
    const std::lock_guard<std::mutex> lock(mutex);
    const size_t part = ((size + chunks - 1) / chunks + 15) / 16 * 16;
    pool->run([&](size_t chunk) {
        const size_t begin = std::min(size, chunk * part), end = std::min(size, begin + part);
        if (begin < end) work(begin, end, chunk);
    });
}

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

using Floats = std::unique_ptr<float[]>;  // not zeroed

Floats packed(const float *w_hh, size_t units, bool backward) {
    Floats out(new float[kernels->lstm_packed_floats(units, backward)]);
    kernels->lstm_pack(w_hh, units, backward, out.get());
    return out;
}

// Agents of a call from which threads are worth waking, given the multiply-adds of one.
size_t recurrent_grain(size_t work) { return 500000 / std::max<size_t>(work, 1) + 2; }

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
    split(agents, recurrent_grain(steps * units * units),
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
    split(agents, recurrent_grain(steps * units * units),
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
    split(agents, recurrent_grain(steps * units * 8),
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
    split(agents, recurrent_grain(steps * units * 8),
          [&](size_t b, size_t e, size_t chunk) { kernels->mingru_backward(a, b, e, scratch.get() + units * chunk); });
}

// The network of mlp.hpp: borrows its parameters, which the caller keeps alive and in place, and owns what passes
// between forward and backward.
class Mlp {
   public:
    // Each layer: addresses of weight and bias, numbers of inputs and outputs.
    explicit Mlp(const std::vector<std::tuple<Address, Address, size_t, size_t>> &layers) {
        for (const auto &[weight, bias, inputs, outputs] : layers) {
            layers_.push_back({inputs, outputs, nullptr, nullptr, nullptr, 0});
            parameters_.emplace_back(at<float>(weight), at<float>(bias));
        }
    }

    // `keep`: a backward pass over the same observations will follow.
    void forward(Address observations, size_t batch, Address output, size_t stride, bool keep) {
        const size_t lanes = kernels->lanes;
        const auto padded = [&](size_t n) { return (n + lanes - 1) / lanes * lanes; };
        size_t weights = 0, hidden = 0, partial = 0;
        for (auto &layer : layers_) {
            layer.partial = partial;
            partial += layer.outputs * padded(layer.inputs) + padded(layer.outputs);
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
            kernels->mlp_pack(layer, parameters_[l].first, parameters_[l].second, const_cast<float *>(layer.forward),
                              keep ? w : nullptr);
            w += layer.outputs * padded(layer.inputs);
            layer.hidden = keep && l + 1 < layers_.size() ? h : nullptr;
            h += keep ? batch * padded(layer.outputs) : 0;
        }
        kept_ = keep ? batch : 0;
        const size_t floats = kernels->mlp_scratch_floats(layers_.data(), layers_.size());
        reserve(scratch_, floats * chunks);
        const MlpArguments a{layers_.data(), layers_.size(), at<float>(observations), at<float>(output), stride};
        parts(batch, [&](size_t b, size_t e, size_t chunk) {
            kernels->mlp_forward(a, b, e, scratch_.data.get() + floats * chunk);
        });
    }

    // Writes the gradients of each layer's weight and bias.
    void backward(Address observations, size_t batch, Address by_output, size_t stride,
                  const std::vector<std::pair<Address, Address>> &gradients) {
        if (kept_ != batch || batch == 0) throw std::logic_error("backward needs a forward pass of the same batch");
        const size_t floats = kernels->mlp_scratch_floats(layers_.data(), layers_.size());
        reserve(partials_, partial_ * chunks);
        const MlpArguments a{layers_.data(), layers_.size(), at<float>(observations), at<float>(by_output), stride};
        float *sums = partials_.data.get();
        const size_t used = parts(batch, [&](size_t b, size_t e, size_t chunk) {
            std::fill_n(sums + partial_ * chunk, partial_, 0.f);
            kernels->mlp_backward(a, b, e, scratch_.data.get() + floats * chunk, sums + partial_ * chunk);
        });
        for (size_t chunk = 1; chunk < used; ++chunk)
            for (size_t i = 0; i < partial_; ++i) sums[i] += sums[partial_ * chunk + i];
        for (size_t l = 0; l < layers_.size(); ++l) {
            const MlpLayer &layer = layers_[l];
            const size_t width = (layer.inputs + kernels->lanes - 1) / kernels->lanes * kernels->lanes;
            const float *from = sums + layer.partial;
            float *by_weight = at<float>(gradients[l].first);
            for (size_t j = 0; j < layer.outputs; ++j)
                std::copy_n(from + j * width, layer.inputs, by_weight + j * layer.inputs);
            std::copy_n(from + layer.outputs * width, layer.outputs, at<float>(gradients[l].second));
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

    // Splits the rows as the batch's size alone says, so that sums over parts are the same for any number of threads.
    template <typename Work>
    size_t parts(size_t batch, const Work &work) {
        constexpr size_t least = 96;
        const size_t part = std::max(least, (batch + chunks - 1) / chunks), used = (batch + part - 1) / part;
        const auto each = [&](size_t chunk) {
            if (chunk < used) work(chunk * part, std::min(batch, chunk * part + part), chunk);
        };
        const py::gil_scoped_release release;
        const std::lock_guard<std::mutex> lock(mutex);
        if (num_threads > 1 && used > 1)
            pool->run(each);
        else
            for (size_t chunk = 0; chunk < used; ++chunk) each(chunk);
        return used;
    }

    std::vector<MlpLayer> layers_;
    std::vector<std::pair<const float *, const float *>> parameters_;
    Memory weights_, hidden_, scratch_, partials_;
    size_t partial_ = 0, kept_ = 0;
};

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
    m.def("set_threads", &set_threads);
    m.def("get_threads", [] { return num_threads; });
    m.def("instruction_sets", &instruction_sets);
    m.def("instruction_set", [] { return kernels->name; });
    m.def("use_instruction_set", &use_instruction_set);
    m.def("elementwise", &elementwise);
    m.def("advantages", &advantages);
    m.def("sample", &sample);
    m.def("ppo_gradient", &ppo_gradient);
    py::class_<Mlp>(m, "Mlp")
        .def(py::init<const std::vector<std::tuple<Address, Address, size_t, size_t>> &>())
        .def("forward", &Mlp::forward)
        .def("backward", &Mlp::backward);
    m.def("lstm_forward", &lstm_forward);
    m.def("lstm_backward", &lstm_backward);
    m.def("mingru_forward", &mingru_forward);
    m.def("mingru_backward", &mingru_backward);
}
