"""Rollouts against environments whose every number is known, and against a replay of the real ones."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from test_trainer_advantage import slow_advantage

from envs_c import VecEnv
from trainer.policy import MLPPolicy
from trainer.rollout import Rollout

CPU = torch.device("cpu")


class ScriptedEnvs:
    """Agents that count steps: observation (agent, step of the episode, constant). Ends follow a fixed table."""

    def __init__(self, terminals: np.ndarray, truncations: np.ndarray, rewards: np.ndarray) -> None:
        self.table = terminals, truncations, rewards
        self.num_agents = terminals.shape[1]
        self.spec = SimpleNamespace(observation_size=3, num_actions=4)
        self.taken: list[np.ndarray] = []
        self.now = 0
        self.age = np.zeros(self.num_agents)

    def observe(self, into: np.ndarray) -> None:
        into[:] = np.stack([np.arange(self.num_agents), self.age, np.ones(self.num_agents)], axis=1)

    def reset(self, seed: int, observations: np.ndarray) -> None:
        self.observe(observations)

    def step(
        self,
        actions: np.ndarray,
        observations: np.ndarray,
        rewards: np.ndarray,
        terminals: np.ndarray,
        truncations: np.ndarray,
        final_observations: np.ndarray,
    ) -> None:
        self.taken.append(actions.copy())
        terminals[:], truncations[:], rewards[:] = (column[self.now] for column in self.table)
        self.age += 1
        ended = np.zeros_like(observations)
        self.observe(ended)
        final_observations[truncations] = ended[truncations]
        self.age[terminals | truncations] = 0
        self.observe(observations)
        self.now += 1


def make_policy(features: int, actions: int) -> MLPPolicy:
    policy = MLPPolicy(features, actions, hidden_size=8, num_layers=2, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        policy.head.weight.mul_(20)  # the initial policy is nearly uniform; make its choices differ
        policy.head.bias.uniform_(-1, 1, generator=torch.Generator().manual_seed(2))
    return policy


def make_rollout(envs: object, policy: MLPPolicy, horizon: int, seed: int = 0) -> Rollout:
    return Rollout(
        envs,  # type: ignore[arg-type]
        policy,
        horizon=horizon,
        gamma=0.9,
        gae_lambda=0.8,
        device=CPU,
        generator=torch.Generator().manual_seed(seed),
    )


def values_of(policy: MLPPolicy, observations: np.ndarray) -> np.ndarray:
    with torch.no_grad():
        flat = torch.from_numpy(observations.reshape(-1, observations.shape[-1]).astype(np.float32))
        return policy(flat)[-1].numpy().reshape(observations.shape[:-1])


@pytest.mark.parametrize("steps", [(6, 6), (6, 3, 1), (1, 1, 1)])
def test_batches_hold_what_the_environment_did_over_consecutive_rollouts(steps: tuple[int, ...]) -> None:
    rng = np.random.default_rng(3)
    total, agents = sum(steps), 5
    terminals, truncations = rng.random((total, agents)) < 0.15, rng.random((total, agents)) < 0.25
    rewards = rng.normal(size=(total, agents)).astype(np.float32)
    envs = ScriptedEnvs(terminals, truncations, rewards)
    policy = make_policy(3, 4)
    rollout = make_rollout(envs, policy, horizon=6)
    rollout.reset(0)

    # What the table implies: the observation before each step, and the one that ended it if it was cut.
    ages = np.zeros((total + 1, agents))
    for t in range(total):
        ages[t + 1] = np.where(terminals[t] | truncations[t], 0, ages[t] + 1)
    agent_row = np.broadcast_to(np.arange(agents), ages.shape)
    observations = np.stack([agent_row, ages, np.ones_like(ages)], axis=2)
    finals = np.stack([agent_row[:-1], ages[:-1] + 1, np.ones_like(ages[:-1])], axis=2)

    start = 0
    for count in steps:
        batch = rollout.collect(count)
        end = start + count
        assert len(batch) == count * agents
        np.testing.assert_array_equal(batch.observations.view(count, agents, 3), observations[start:end])
        np.testing.assert_array_equal(batch.actions.view(count, agents), np.stack(envs.taken[start:end]))
        with torch.no_grad():
            output = policy(batch.observations)
        logp = torch.log_softmax(output[:-1], dim=0).gather(0, batch.actions[None])[0]
        torch.testing.assert_close(batch.logprobs, logp, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(batch.values, output[-1], rtol=1e-5, atol=1e-5)
        expected = slow_advantage(
            rewards[start:end],
            values_of(policy, observations[start : end + 1]),
            terminals[start:end],
            truncations[start:end],
            values_of(policy, finals[start:end]),
            0.9,
            0.8,
        )
        np.testing.assert_allclose(batch.advantages.view(count, agents), expected, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(batch.returns, batch.advantages + batch.values)
        start = end


def test_actions_are_drawn_from_the_policys_distribution() -> None:
    agents, steps = 500, 40
    nothing = np.zeros((steps, agents), np.bool_)
    policy = make_policy(3, 4)
    with torch.no_grad():
        policy.head.weight.zero_()  # the same distribution everywhere: that of the bias
        policy.head.bias.copy_(torch.tensor([0.0, -1.0, 0.5, 1.0, 0.0]))
    rollout = make_rollout(ScriptedEnvs(nothing, nothing, np.zeros((steps, agents))), policy, horizon=steps)
    rollout.reset(0)
    drawn = np.bincount(rollout.collect(steps).actions.numpy(), minlength=4)
    p = torch.softmax(policy.head.bias.detach()[:4], 0).numpy()
    deviations = (drawn - agents * steps * p) / np.sqrt(agents * steps * p * (1 - p))
    assert np.abs(deviations).max() < 4


def test_a_rollout_on_the_real_environment_can_be_replayed_from_its_actions() -> None:
    policy = make_policy(8, 3)
    rollout = make_rollout(VecEnv("pong", 7, frame_skip=4, threads=2), policy, horizon=20)
    rollout.reset(5)
    batches = [rollout.collect(20), rollout.collect(13)]
    # `collect` reuses its buffers, so the first batch's observations are gone; actions are not views of them.
    actions = [batch.actions.view(-1, 7).to(torch.int32).numpy() for batch in batches]

    replay = VecEnv("pong", 7, frame_skip=4)
    observations = np.zeros((7, 8), np.float32)
    replay.reset(5, observations)
    rewards, ends, cuts = np.zeros(7, np.float32), np.zeros(7, np.bool_), np.zeros(7, np.bool_)
    for row in actions[0]:
        replay.step(row, observations, rewards, ends, cuts)
    for t, row in enumerate(actions[1]):
        np.testing.assert_array_equal(batches[1].observations.view(13, 7, 8)[t], observations)
        replay.step(row, observations, rewards, ends, cuts)


def test_the_state_carries_over_to_another_rollout() -> None:
    policy = make_policy(8, 3)
    first = make_rollout(VecEnv("pong", 6), policy, horizon=8, seed=1)
    first.reset(2)
    first.collect(8)
    state = first.state()
    expected = first.collect(5)
    second = make_rollout(VecEnv("pong", 6), policy, horizon=8, seed=9)
    second.reset(7)
    second.set_state(state)
    found = second.collect(5)
    for name in ("observations", "actions", "logprobs", "values", "advantages", "returns"):
        assert torch.equal(getattr(found, name), getattr(expected, name)), name
