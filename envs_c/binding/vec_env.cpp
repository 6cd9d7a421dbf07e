#include "vec_env.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>

#include "pcg32.h"

namespace envs_c {
namespace {

constexpr char state_magic[8] = {'e', 'n', 'v', 's', '_', 'c', '0', '2'};

struct StateHeader {
    char magic[8];
    char name[32];
    std::uint64_t state_size;
    std::uint64_t num_envs;
    std::uint64_t frame_skip;
    std::uint64_t num_episodes;
    std::uint64_t checksum;  // of everything after the header
};

// Detects accidents, not forgeries: a state must be trusted as much as the checkpoint that it came from.
std::uint64_t checksum_of(const char *bytes, std::size_t size) {
    std::uint64_t sum = size;
    for (std::size_t i = 0; i < size; i += 8) {
        std::uint64_t word = 0;
        std::memcpy(&word, bytes + i, std::min<std::size_t>(8, size - i));
        sum = pcg32_mix(sum ^ word);
    }
    return sum;
}

// With one thread, one chunk. Otherwise a few for each thread, so that a late or slow thread does not delay the others
// for long. Each has at least about 64 agents, so that claiming one is cheap and chunks seldom share a cache line of
// `terminals`.
std::size_t envs_per_chunk(std::size_t num_envs, std::size_t agents_per_env, std::size_t threads) {
    if (threads == 1) return num_envs;
    const std::size_t even = (num_envs + 4 * threads - 1) / (4 * threads);
    const std::size_t least = std::max<std::size_t>(1, 64 / agents_per_env);
    return (even + least - 1) / least * least;
}

// Returns the error that names the first action that the environment does not accept, and what it accepts.
std::invalid_argument refused(const Environment &environment, const void *actions) {
    const std::size_t components = environment.action_components;
    const std::int32_t *sizes = environment.action_sizes;
    const auto *discrete = static_cast<const std::int32_t *>(actions);
    const auto *continuous = static_cast<const float *>(actions);
    std::size_t i = 0;
    if (sizes != nullptr)
        while (discrete[i] >= 0 && discrete[i] < sizes[i % components]) ++i;
    else
        while (std::isfinite(continuous[i])) ++i;
    const std::string component = components == 1 ? "" : ", " + std::to_string(i % components);
    const std::string value = sizes != nullptr ? std::to_string(discrete[i]) : std::to_string(continuous[i]);
    const std::string range =
        sizes != nullptr ? "0 to " + std::to_string(sizes[i % components] - 1) : "finite numbers, -1 to 1";
    return std::invalid_argument("actions[" + std::to_string(i / components) + component + "] is " + value + "; " +
                                 environment.name + " takes " + range + (components == 1 ? "" : " there"));
}

}  // namespace

VecEnv::VecEnv(const Environment &environment, std::size_t num_envs, std::uint64_t seed, std::int32_t frame_skip,
               std::size_t threads, std::uint64_t first_index)
    : environment_(environment),
      num_envs_(num_envs),
      frame_skip_(frame_skip),
      threads_(threads),
      first_index_(first_index),
      chunk_envs_(envs_per_chunk(num_envs, environment.agents_per_env, threads)),
      num_chunks_((num_envs + chunk_envs_ - 1) / chunk_envs_),
      storage_((num_envs * environment.state_size + 7) / 8, 0),
      logs_(num_chunks_),
      playing_(environment.playing == nullptr ? 0 : num_agents()),
      pool_(std::make_unique<ThreadPool>(std::min(threads, num_chunks_), num_chunks_)) {
    std::vector<float> observations(num_agents() * environment.observation_size);
    reset(seed, observations.data());
}

VecEnv::~VecEnv() {
    if (pool_->forked()) static_cast<void>(pool_.release());
}

void VecEnv::reset(std::uint64_t seed, void *observations) {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::fill(storage_.begin(), storage_.end(), 0);
    episodes_.clear();
    environment_.reset(storage_.data(), 0, num_envs_, seed, first_index_, observations);
    write_playing();
}

void VecEnv::step(StepArrays arrays) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!environment_.takes(arrays.actions, num_agents())) throw refused(environment_, arrays.actions);
    arrays.frame_skip = frame_skip_;
    arrays.playing = playing_.empty() ? nullptr : playing_.data();
    if (num_chunks_ == 1) {
        environment_.step(storage_.data(), 0, num_envs_, arrays, episodes_);
        return;
    }
    pool_->run([&](std::size_t chunk) {
        const std::size_t begin = chunk * chunk_envs_;
        const std::size_t end = std::min(begin + chunk_envs_, num_envs_);
        environment_.step(storage_.data(), begin, end, arrays, logs_[chunk]);
    });
    for (auto &log : logs_) {
        if (log.empty()) continue;
        episodes_.insert(episodes_.end(), log.begin(), log.end());
        log.clear();
    }
}

void VecEnv::act(const std::int32_t *scripts, void *actions) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto count = static_cast<std::int32_t>(environment_.num_scripts);
    const auto *wrong =
        std::find_if(scripts, scripts + num_agents(), [&](auto one) { return one < -1 || one >= count; });
    if (wrong != scripts + num_agents())
        throw std::invalid_argument("scripts[" + std::to_string(wrong - scripts) + "] is " + std::to_string(*wrong) +
                                    "; " + environment_.name + " has " + std::to_string(count) +
                                    " scripts, and -1 is none");
    if (environment_.act != nullptr) environment_.act(storage_.data(), num_envs_, scripts, actions);
}

std::vector<Episode> VecEnv::drain_episodes() {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::vector<Episode> drained;
    drained.swap(episodes_);
    return drained;
}

std::string VecEnv::get_state() {
    const std::lock_guard<std::mutex> lock(mutex_);
    StateHeader header{};
    std::memcpy(header.magic, state_magic, sizeof state_magic);
    std::strncpy(header.name, environment_.name, sizeof header.name - 1);
    header.state_size = environment_.state_size;
    header.num_envs = num_envs_;
    header.frame_skip = static_cast<std::uint64_t>(frame_skip_);
    header.num_episodes = episodes_.size();
    std::string body(reinterpret_cast<const char *>(storage_.data()), num_envs_ * environment_.state_size);
    body.append(reinterpret_cast<const char *>(episodes_.data()), episodes_.size() * sizeof(Episode));
    header.checksum = checksum_of(body.data(), body.size());
    return std::string(reinterpret_cast<const char *>(&header), sizeof header) + body;
}

void VecEnv::set_state(const std::string &bytes) {
    const std::lock_guard<std::mutex> lock(mutex_);
    StateHeader header{};
    if (bytes.size() < sizeof header || std::memcmp(bytes.data(), state_magic, sizeof state_magic) != 0)
        throw std::invalid_argument("these bytes are not a state from get_state() of this version");
    std::memcpy(&header, bytes.data(), sizeof header);
    header.name[sizeof header.name - 1] = '\0';
    if (std::strcmp(header.name, environment_.name) != 0 || header.state_size != environment_.state_size ||
        header.num_envs != num_envs_ || header.frame_skip != static_cast<std::uint64_t>(frame_skip_)) {
        throw std::invalid_argument(std::string("the state is of ") + header.name + " with " +
                                    std::to_string(header.num_envs) + " environments and frame skip " +
                                    std::to_string(header.frame_skip) + ", these are " + environment_.name + " with " +
                                    std::to_string(num_envs_) + " and " + std::to_string(frame_skip_));
    }
    const std::size_t states = num_envs_ * environment_.state_size;
    const std::size_t rest = bytes.size() - sizeof header;
    if (rest < states || (rest - states) % sizeof(Episode) != 0 ||
        (rest - states) / sizeof(Episode) != header.num_episodes)
        throw std::invalid_argument("the state is cut short or too long: " + std::to_string(bytes.size()) + " bytes");
    if (checksum_of(bytes.data() + sizeof header, rest) != header.checksum)
        throw std::invalid_argument("the state is damaged: its checksum does not match");
    std::memcpy(storage_.data(), bytes.data() + sizeof header, states);
    episodes_.resize(header.num_episodes);
    if (!episodes_.empty()) std::memcpy(episodes_.data(), bytes.data() + sizeof header + states, rest - states);
    write_playing();
}

void VecEnv::write_playing() {
    if (!playing_.empty()) environment_.playing(storage_.data(), 0, num_envs_, playing_.data());
}

}  // namespace envs_c
