"""Rollouts against environments whose every number is known, and against a replay of the real ones."""

import dataclasses
import functools
from typing import Any

import numpy as np
import pytest
import torch
from training_parts import GRID, POLICIES, ScriptedEnvs, make_policy, make_rollout, make_spec, scripted, slow_advantages

from protein.envs_c import VecEnv
from protein.trainer.kernels import advantages
from protein.trainer.model.policy import Policy
from protein.trainer.ppo.rollout import Batch

ACTIONS: dict[str, dict[str, Any]] = {
    "one": {"action_sizes": (4,)},
    "several": {"action_sizes": (3, 2)},
    "continuous": {"continuous_actions": 2},
}
EACH = [(kind, "one") for kind in POLICIES] + [("mlp", "several"), ("lstm", "several"), ("mingru", "continuous")]
TENSORS = [field.name for field in dataclasses.fields(Batch)]


@dataclasses.dataclass
class Replay:
    """What the table implies: numbers of every step, one step at a time, each episode from a state of zeros."""

    observations: np.ndarray
    values: np.ndarray
    final_values: np.ndarray
    outputs: torch.Tensor


@torch.no_grad()
def replay(policy: Policy, envs: ScriptedEnvs) -> Replay:
    terminals, truncations, _ = envs.table
    steps, agents = terminals.shape
    age, state = np.zeros(agents), torch.zeros(agents, policy.state_size)
    observations, values, finals, outputs = [], [], [], []
    for t in range(steps + 1):
        now = envs.observation(envs.agents, age)
        observations.append(now)
        output, after = policy(torch.from_numpy(now)[None], state)
        outputs.append(output)
        values.append(policy.values(output).numpy())
        if t == steps:
            break
        state = torch.zeros(agents, 0) if after is None else after
        final = envs.observation(envs.agents, age + 1)
        finals.append(policy.values(policy(torch.from_numpy(final)[None], state)[0]).numpy())
        ended = terminals[t] | truncations[t]
        state[torch.from_numpy(ended)] = 0
        age = np.where(ended, 0, age + 1)
    return Replay(np.stack(observations), np.stack(values), np.stack(finals), torch.stack(outputs, dim=1))


@pytest.mark.parametrize("halves", [False, True])
@pytest.mark.parametrize(("kind", "actions"), EACH)
def test_batches_hold_what_the_environment_did_over_consecutive_rollouts(kind: str, actions: str, halves: bool) -> None:
    """Also across ends in the middle of a segment and between two, and with short rollouts."""
    spec, lengths = make_spec(**ACTIONS[actions]), (6, 6, 3, 1, 6)
    policy = make_policy(spec, **POLICIES[kind])
    parts = scripted(sum(lengths), 6, spec, halves=halves)
    (envs,) = scripted(sum(lengths), 6, spec)
    expected = replay(policy, envs)
    terminals, truncations, rewards = envs.table
    rollout = make_rollout(parts, policy, horizon=6)
    rollout.reset(0)
    start = 0
    for steps in lengths:
        batch, span = rollout.collect(steps), slice(start, start + steps)
        after = slice(start, start + steps + 1)
        assert (len(batch), batch.steps, batch.segments) == (steps * 6, steps, 6)
        np.testing.assert_array_equal(batch.observations, expected.observations[span])
        taken = np.concatenate([np.stack(part.taken[span]) for part in parts], axis=1)
        np.testing.assert_array_equal(batch.actions.permute(1, 2, 0), taken.reshape(steps, 6, -1))
        ended = terminals | truncations
        np.testing.assert_array_equal(batch.ends, ended[span])
        np.testing.assert_array_equal(batch.resets[1:], ended[start : start + steps - 1])
        assert (batch.resets[0].numpy() == (ended[start - 1] if start else True)).all()
        np.testing.assert_allclose(batch.values, expected.values[after], rtol=1e-4, atol=1e-5)
        output = expected.outputs[: policy.action_rows, span].flatten(1)
        logp = policy.distribution.terms(output, batch.actions.flatten(1)).logp
        torch.testing.assert_close(batch.logprobs.flatten(), logp, rtol=1e-4, atol=1e-4)
        # What the update computes of the segments is what the rollout has computed step by step.
        with torch.no_grad():
            again, _ = policy(batch.observations, batch.state, batch.resets)
        torch.testing.assert_close(again, expected.outputs[:, span].flatten(1), rtol=1e-4, atol=1e-5)
        # The last step is bootstrapped; truncation bootstraps with the final observation, termination does not.
        slow = slow_advantages(
            rewards[span],
            expected.values[after],
            terminals[span],
            truncations[span],
            expected.final_values[span],
            0.9,
            0.8,
        )
        found = advantages(batch.rewards, batch.values, batch.ends, gamma=0.9, gae_lambda=0.8)
        np.testing.assert_allclose(found, slow, rtol=1e-4, atol=1e-4)
        start += steps


@pytest.mark.parametrize(("kind", "actions"), [("mlp", "one"), ("mlp", "several"), ("bins", "one")])
def test_two_halves_give_the_numbers_of_the_whole_bit_for_bit(kind: str, actions: str) -> None:
    spec = make_spec(**ACTIONS[actions])
    policy = make_policy(spec, hidden_size=32, **POLICIES[kind])
    whole, halved = (
        make_rollout(scripted(16, 50, spec, halves=halves, ends=0.1), policy, horizon=8) for halves in (False, True)
    )
    for rollout in (whole, halved):
        rollout.reset(0)
    for _ in range(2):
        a, b = whole.collect(8), halved.collect(8)
        for name in TENSORS:
            ours, theirs = getattr(a, name), getattr(b, name)
            assert (ours is None and theirs is None) or torch.equal(ours, theirs), name


@pytest.mark.parametrize("actions", ["one", "several"])
def test_discrete_actions_are_drawn_from_the_policys_distribution(actions: str) -> None:
    agents, steps = 500, 40
    spec = make_spec((3,), **ACTIONS[actions])
    policy = make_policy(spec)
    with torch.no_grad():
        policy.head.weight.zero_()  # the same distribution everywhere: that of the bias
        policy.head.bias.copy_(torch.linspace(-1, 1, policy.rows))
    rollout = make_rollout(scripted(steps, agents, spec, ends=0.0), policy, horizon=steps)
    rollout.reset(0)
    batch = rollout.collect(steps)
    logits = torch.split(policy.head.bias.detach()[:-1], list(spec.action_sizes))
    for component, part in enumerate(logits):
        drawn = np.bincount(batch.actions[component].flatten().numpy(), minlength=len(part))
        p = torch.softmax(part, 0).numpy()
        deviations = (drawn - agents * steps * p) / np.sqrt(agents * steps * p * (1 - p))
        assert np.abs(deviations).max() < 4
    if len(logits) == 2:
        together = np.corrcoef(batch.actions.flatten(1).numpy())
        assert abs(together[0, 1]) < 4 / np.sqrt(agents * steps), "components are independent"


def test_continuous_actions_are_drawn_from_the_policys_distribution() -> None:
    agents, steps = 500, 40
    spec = make_spec((3,), continuous_actions=2)
    policy = make_policy(spec)
    with torch.no_grad():
        policy.head.weight.zero_()
    rollout = make_rollout(scripted(steps, agents, spec, ends=0.0), policy, horizon=steps)
    rollout.reset(0)
    drawn = rollout.collect(steps).actions.flatten(1).double()
    assert policy.log_std is not None
    mean, std = policy.head.bias.detach()[:2].double(), policy.log_std.detach().exp().double()
    count = agents * steps
    assert ((drawn.mean(1) - mean).abs() < 4 * std / count**0.5).all()
    assert ((drawn.std(1) / std - 1).abs() < 4 / (2 * count) ** 0.5).all()
    assert abs(np.corrcoef(drawn.numpy())[0, 1]) < 4 / count**0.5


def test_a_rollout_on_the_real_environment_can_be_replayed_from_its_actions() -> None:
    policy = make_policy(make_spec((8,), (3,)))
    rollout = make_rollout([VecEnv("pong", 7, frame_skip=4, threads=2)], policy, horizon=20)
    rollout.reset(5)
    actions = [rollout.collect(20).actions[0].numpy().copy()]  # `collect` reuses its buffers
    batch = rollout.collect(13)
    actions.append(batch.actions[0].numpy())
    replayed = VecEnv("pong", 7, frame_skip=4)
    observations = np.zeros((7, 8), np.float32)
    replayed.reset(5, observations)
    rewards, ends, cuts = np.zeros(7, np.float32), np.zeros(7, np.bool_), np.zeros(7, np.bool_)
    for row in actions[0]:
        replayed.step(row, observations, rewards, ends, cuts)
    for t, row in enumerate(actions[1]):
        np.testing.assert_array_equal(batch.observations[t], observations)
        replayed.step(row, observations, rewards, ends, cuts)


@pytest.mark.parametrize("kind", ["mlp", "lstm", "mingru"])
@pytest.mark.parametrize("halves", [1, 2])
def test_the_state_carries_over_to_another_rollout(kind: str, halves: int) -> None:
    policy = make_policy(make_spec((8,), (3,)), **POLICIES[kind])

    def start(seed: int) -> Any:
        envs = [VecEnv("pong", 6 // halves, first_index=6 // halves * half, frame_skip=40) for half in range(halves)]
        rollout = make_rollout(envs, policy, horizon=40, seed=seed)
        rollout.reset(seed)
        return rollout

    first, second = start(1), start(9)
    first.collect(40)
    second.collect(40)
    state = {name: value.clone() for name, value in first.state().items()}
    expected = first.collect(35)
    second.set_state(state)
    found = second.collect(35)
    assert expected.ends.any()
    for name in TENSORS:
        ours, theirs = getattr(found, name), getattr(expected, name)
        assert (ours is None and theirs is None) or torch.equal(ours, theirs), name


def test_a_reset_forgets_the_recurrent_state() -> None:
    policy = make_policy(make_spec(GRID), **POLICIES["lstm"])
    rollout = make_rollout(scripted(20, 4, make_spec(GRID), ends=0.0), policy, horizon=5)
    rollout.reset(0)
    first = rollout.collect(5).values.clone()
    assert not torch.equal(rollout.collect(5).values, first)
    rollout.reset(0)
    assert torch.equal(rollout.collect(5).values, first)


def test_episodes_of_both_halves_are_told_with_their_own_rows() -> None:
    whole, halved = (
        [VecEnv("pong", 6, frame_skip=20)],
        [VecEnv("pong", 3, first_index=i, frame_skip=20) for i in (0, 3)],
    )
    policy, found = make_policy(make_spec((8,), (3,))), []
    for envs in (whole, halved):
        rollout = make_rollout(envs, policy, horizon=200)
        rollout.reset(0)
        rollout.collect(200)
        episodes = rollout.drain_episodes()
        found.append(
            sorted(zip(episodes.agent.tolist(), episodes.score.tolist(), episodes.length.tolist(), strict=True))
        )
    assert len(found[0]) > 3 and found[0] == found[1]


def test_low_precision_is_confined_to_the_network() -> None:
    """A distributional value's mean is taken in float32: in float16 its outer bins would be infinite."""
    spec = make_spec()
    policy = make_policy(spec, value_bins=41, value_limit=1e6)
    exact, coarse = (
        make_rollout(scripted(8, 16, spec), policy, horizon=8, precision=precision) for precision in ("fp32", "fp16")
    )
    for rollout in (exact, coarse):
        rollout.reset(0)
    a, b = exact.collect(8), coarse.collect(8)
    assert b.values.dtype == b.logprobs.dtype == torch.float32 and b.values.isfinite().all()
    torch.testing.assert_close(b.values[0], a.values[0], rtol=0.02, atol=50.0)
    assert not torch.is_autocast_enabled("cpu")


@pytest.mark.parametrize("halves", [False, True])
def test_a_rollout_out_of_time_is_a_shorter_one(halves: bool) -> None:
    spec = make_spec()
    batches = []
    for is_up in (True, False):
        rollout = make_rollout(scripted(6, 12, spec, halves=halves), make_policy(spec), horizon=3)
        rollout.reset(0)
        batches.append([rollout.collect(3 if is_up else 1, functools.partial(bool, is_up)), rollout.collect(2)])
        rollout.close()
    for cut, short in zip(*batches, strict=True):
        assert cut.steps == short.steps
        assert torch.equal(cut.observations, short.observations) and torch.equal(cut.rewards, short.rewards)
