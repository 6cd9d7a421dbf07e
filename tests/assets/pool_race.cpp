// Steps a batch from several threads at once, over a pool of threads, for the thread sanitizer to watch.
// Prints the number of episodes; it is the same with and without the sanitizer, and for any number of threads.
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "vec_env.hpp"

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    const envs_c::Environment *environment = nullptr;
    for (const auto *each : envs_c::environments())
        if (std::string(each->name) == argv[1]) environment = each;
    if (environment == nullptr) return 2;

    envs_c::VecEnv vec(*environment, 500, 1, 8, std::strtoul(argv[2], nullptr, 10), 0);
    const auto play = [&] {
        const std::size_t agents = vec.num_agents();
        std::vector<std::int32_t> actions(agents, 0);
        std::vector<float> observations(agents * environment->observation_size);
        std::vector<float> rewards(agents), final_observations(observations.size());
        std::vector<std::uint8_t> terminals(agents), truncations(agents);
        envs_c::StepArrays arrays{actions.data(),     observations.data(),       rewards.data(), terminals.data(),
                                  truncations.data(), final_observations.data(), false,          0};
        for (int step = 0; step < 400; ++step) vec.step(arrays);
    };
    std::thread other(play);
    play();
    other.join();
    std::printf("%zu\n", vec.drain_episodes().size());
}
