// The only file that knows Python: checks the caller's arrays, releases the GIL, turns C++ errors into ValueError.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <cstring>
#include <memory>
#include <string>

#include "environment.hpp"
#include "vec_env.hpp"

namespace py = pybind11;

namespace envs_c {
namespace {

std::string shape_of(const py::array &array) {
    std::string text = "(";
    for (py::ssize_t i = 0; i < array.ndim(); ++i) text += (i ? ", " : "") + std::to_string(array.shape(i));
    return text + (array.ndim() == 1 ? ",)" : ")");
}

// The data of a C-contiguous array of exactly this dtype and shape; `columns` 0 means one dimension.
template <typename T>
T *checked(const char *name, py::handle object, const char *dtype, std::size_t rows, std::size_t columns, bool write) {
    const auto fail = [&](const std::string &got) -> py::value_error {
        const std::string shape =
            "(" + std::to_string(rows) + "," + (columns ? " " + std::to_string(columns) : "") + ")";
        return py::value_error(std::string(name) + " must be a " + (write ? "writeable " : "") + "C-contiguous " +
                               dtype + " array of shape " + shape + ", got " + got);
    };
    if (!py::isinstance<py::array>(object))
        throw fail(py::str(py::type::handle_of(object).attr("__name__")).cast<std::string>());
    const auto array = py::reinterpret_borrow<py::array>(object);
    const bool bytes = sizeof(T) == 1;  // bool and uint8 are stored alike
    const bool same_type =
        bytes ? (py::isinstance<py::array_t<bool>>(array) || py::isinstance<py::array_t<std::uint8_t>>(array))
              : py::isinstance<py::array_t<T>>(array);
    if (!same_type) throw fail("dtype " + py::str(array.dtype()).cast<std::string>());
    const bool same_shape = array.ndim() == (columns ? 2 : 1) && array.shape(0) == static_cast<py::ssize_t>(rows) &&
                            (!columns || array.shape(1) == static_cast<py::ssize_t>(columns));
    if (!same_shape) throw fail("shape " + shape_of(array));
    if (!(array.flags() & py::array::c_style)) throw fail("one that is not contiguous");
    if (!(array.flags() & py::detail::npy_api::NPY_ARRAY_ALIGNED_)) throw fail("one that is not aligned");
    if (write && !array.writeable()) throw fail("a read-only one");
    return static_cast<T *>(const_cast<void *>(array.data()));
}

// With one component, an array may have one dimension or a single column.
void *checked_actions(const Environment &environment, py::handle object, std::size_t rows, bool write = false) {
    std::size_t columns = environment.action_components;
    if (columns == 1 && !(py::isinstance<py::array>(object) && py::reinterpret_borrow<py::array>(object).ndim() == 2))
        columns = 0;
    if (environment.action_sizes == nullptr) return checked<float>("actions", object, "float32", rows, columns, write);
    return checked<std::int32_t>("actions", object, "int32", rows, columns, write);
}

void *checked_observations(const char *name, const Environment &environment, py::handle object, std::size_t rows) {
    const std::size_t columns = environment.observation_size;
    if (environment.observation_high != 0) return checked<std::uint8_t>(name, object, "uint8", rows, columns, true);
    return checked<float>(name, object, "float32", rows, columns, true);
}

const Environment &find(const std::string &name) {
    for (const auto *environment : environments())
        if (name == environment->name) return *environment;
    throw py::value_error("unknown environment '" + name + "'");
}

std::unique_ptr<VecEnv> make(const std::string &name, py::ssize_t num_envs, std::uint64_t seed, std::int32_t frame_skip,
                             py::ssize_t threads, std::uint64_t first_index) {
    return std::make_unique<VecEnv>(find(name), static_cast<std::size_t>(num_envs), seed, frame_skip,
                                    static_cast<std::size_t>(threads), first_index);
}

void reset(VecEnv &self, std::uint64_t seed, py::handle observations) {
    void *data = checked_observations("observations", self.environment(), observations, self.num_agents());
    const py::gil_scoped_release release;
    self.reset(seed, data);
}

void step(VecEnv &self, py::handle actions, py::handle observations, py::handle rewards, py::handle terminals,
          py::handle truncations, py::handle final_observations, bool all_finals) {
    const std::size_t rows = self.num_agents();
    StepArrays arrays{};
    arrays.actions = checked_actions(self.environment(), actions, rows);
    arrays.observations = checked_observations("observations", self.environment(), observations, rows);
    arrays.rewards = checked<float>("rewards", rewards, "float32", rows, 0, true);
    arrays.terminals = checked<std::uint8_t>("terminals", terminals, "bool", rows, 0, true);
    arrays.truncations = checked<std::uint8_t>("truncations", truncations, "bool", rows, 0, true);
    if (!final_observations.is_none())
        arrays.final_observations =
            checked_observations("final_observations", self.environment(), final_observations, rows);
    arrays.all_finals = all_finals;
    const py::gil_scoped_release release;
    self.step(arrays);
}

void act(VecEnv &self, py::handle scripts, py::handle actions) {
    const std::size_t rows = self.num_agents();
    const auto *chosen = checked<std::int32_t>("scripts", scripts, "int32", rows, 0, false);
    void *data = checked_actions(self.environment(), actions, rows, true);
    const py::gil_scoped_release release;
    self.act(chosen, data);
}

// A view, or None where all agents always play.
py::object playing(const py::object &object) {
    auto &self = object.cast<VecEnv &>();
    if (self.playing() == nullptr) return py::none();
    py::array_t<bool> view({static_cast<py::ssize_t>(self.num_agents())},
                           reinterpret_cast<const bool *>(self.playing()), object);
    view.attr("setflags")(false);
    return view;
}

py::tuple drain_episodes(VecEnv &self) {
    std::vector<Episode> episodes;
    {
        const py::gil_scoped_release release;
        episodes = self.drain_episodes();
    }
    const auto count = static_cast<py::ssize_t>(episodes.size());
    py::array_t<std::int32_t> agent(count), length(count);
    py::array_t<float> score(count), return_(count);
    for (py::ssize_t i = 0; i < count; ++i) {
        const Episode &episode = episodes[static_cast<std::size_t>(i)];
        agent.mutable_at(i) = episode.agent;
        score.mutable_at(i) = episode.score;
        return_.mutable_at(i) = episode.return_;
        length.mutable_at(i) = episode.length;
    }
    return py::make_tuple(agent, score, return_, length);
}

template <typename T>
py::tuple tuple_of(const T *values, std::size_t count) {
    py::tuple tuple(count);
    for (std::size_t i = 0; i < count; ++i) tuple[i] = values[i];
    return tuple;
}

py::dict describe(const Environment &environment) {
    const bool discrete = environment.action_sizes != nullptr;
    py::dict spec;
    spec["name"] = environment.name;
    spec["description"] = environment.description;
    spec["observation_size"] = environment.observation_size;
    spec["observation_shape"] = tuple_of(environment.observation_shape, environment.observation_dimensions);
    if (environment.observation_high != 0) {
        spec["observation_dtype"] = "uint8";
        spec["observation_high"] = static_cast<double>(environment.observation_high);
    }
    spec["action_sizes"] = tuple_of(environment.action_sizes, discrete ? environment.action_components : 0);
    spec["continuous_actions"] = discrete ? 0 : environment.action_components;
    spec["agents_per_env"] = environment.agents_per_env;
    if (environment.sides > 1) spec["sides"] = environment.sides;
    if (environment.num_scripts != 0) spec["scripts"] = tuple_of(environment.scripts, environment.num_scripts);
    if (environment.script_ratings != nullptr)
        spec["script_ratings"] = tuple_of(environment.script_ratings, environment.num_scripts);
    spec["score_range"] = py::make_tuple(environment.score_low, environment.score_high);
    spec["solved_score"] = environment.solved_score;
    spec["max_episode_steps"] = environment.max_frames;
    return spec;
}

}  // namespace
}  // namespace envs_c

PYBIND11_MODULE(_native, module) {
    using namespace envs_c;
    module.doc() = "The C environments, vectorised. Use the package envs_c.";
    module.def("names", [] {
        py::list names;
        for (const auto *environment : environments()) names.append(environment->name);
        return names;
    });
    module.def("describe", [](const std::string &name) { return describe(find(name)); }, py::arg("name"));
    py::class_<VecEnv>(module, "VecEnv")
        .def(py::init(&make), py::arg("name"), py::arg("num_envs"), py::arg("seed"), py::arg("frame_skip"),
             py::arg("threads"), py::arg("first_index"))
        .def_property_readonly("num_envs", &VecEnv::num_envs)
        .def_property_readonly("num_agents", &VecEnv::num_agents)
        .def_property_readonly("frame_skip", &VecEnv::frame_skip)
        .def_property_readonly("threads", &VecEnv::threads)
        .def_property_readonly("playing", &playing)
        .def("reset", &reset, py::arg("seed"), py::arg("observations"))
        .def("step", &step, py::arg("actions"), py::arg("observations"), py::arg("rewards"), py::arg("terminals"),
             py::arg("truncations"), py::arg("final_observations") = py::none(), py::arg("all_finals") = false)
        .def("act", &act, py::arg("scripts"), py::arg("actions"))
        .def("_drain_episodes", &drain_episodes)
        .def("get_state",
             [](VecEnv &self) {
                 std::string state;
                 {
                     const py::gil_scoped_release release;
                     state = self.get_state();
                 }
                 return py::bytes(state);
             })
        .def(
            "set_state",
            [](VecEnv &self, const py::bytes &state) {
                const std::string bytes = state;
                const py::gil_scoped_release release;
                self.set_state(bytes);
            },
            py::arg("state"));
}
