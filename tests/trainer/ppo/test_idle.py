"""Agents that have ended while others of their environment play on: nothing is learnt from their rows."""

import dataclasses
import threading
from typing import Any

import numpy as np
import pytest
import torch
from training_parts import CPU, POLICIES, ScriptedEnvs, make_policy, make_rollout, make_spec, slow_advantages
from updates import Recorder, make_ppo

from protein.trainer.config import TrainConfig
from protein.trainer.machine.distributed import ALONE, World
from protein.trainer.model.policy import Policy
from protein.trainer.normalise import Conditioning, Moments, Normalizer, RewardScaler, decided
from protein.trainer.ppo.loss import Coefficients, Minibatch, ppo_loss
from protein.trainer.ppo.rollout import Batch

STEPS, AGENTS, SKIP = 9, 12, 3


class IdlingEnvs(ScriptedEnvs):
    """Each agent lives for one to five steps and rests for none to four; rest ends with an end, as PettingZoo's do."""

    def __init__(self, seed: int = 3, rests: int = 4) -> None:
        steps, rng = STEPS + SKIP, np.random.default_rng(seed)
        terminals, truncations, self.lives = np.zeros((3, steps + 12, AGENTS), np.bool_)
        for agent in range(AGENTS):
            t = 0
            while t < steps:
                life, rest = int(rng.integers(1, 6)), int(rng.integers(0, rests + 1))
                self.lives[t : t + life, agent] = True
                t += life
                (terminals if rng.random() < 0.5 else truncations)[t - 1, agent] = True
                t += rest
                terminals[t - 1, agent] |= bool(rest)
        rewards = rng.normal(size=terminals.shape).astype(np.float32)
        super().__init__(terminals, truncations, rewards, make_spec())

    @property
    def playing(self) -> np.ndarray:
        return np.asarray(self.lives[self.now])


def collected(policy: Policy, **of_envs: int) -> Batch:
    """A real rollout that begins in the middle of lives and rests."""
    envs = IdlingEnvs(**of_envs)
    rollout = make_rollout([envs], policy, horizon=STEPS)
    rollout.reset(0)
    rollout.settle(rollout.collect(SKIP), ALONE)
    batch = rollout.settle(rollout.collect(STEPS), ALONE)
    if batch.playing is not None:
        assert np.array_equal(batch.playing.numpy(), envs.lives[SKIP : SKIP + STEPS])
    return batch


def gradients_of(kind: str, batch_of: Any = collected, **train: Any) -> tuple[list[torch.Tensor], dict[str, float]]:
    policy, recorder = make_policy(make_spec(), **POLICIES[kind]), Recorder()
    return recorder.gradients, make_ppo(policy, recorder, **train).update(batch_of(policy), 0.0)


def reference(kind: str) -> tuple[torch.Tensor, dict[str, float]]:
    """The loss over those samples alone that count, agent by agent, by automatic differentiation."""
    policy = make_policy(make_spec(), **POLICIES[kind])
    batch = collected(policy)
    assert batch.playing is not None
    nothing = np.zeros(batch.ends.shape)
    gains = torch.from_numpy(
        slow_advantages(
            batch.rewards.numpy(), batch.values.numpy(), batch.ends.numpy(), nothing > 0, nothing, 0.99, 0.95
        )
    ).float()
    returns = gains + batch.values[:-1]
    kept = gains[batch.playing]
    gains = (gains - kept.mean()) / (kept.std(correction=0) + 1e-8)
    policy.zero_grad()
    sums: dict[str, torch.Tensor] = {}
    for m in range(batch.segments):
        column, lives = slice(m, m + 1), batch.playing[:, m]
        state = None if batch.state is None else batch.state[column]
        output, _ = policy(batch.observations[:, column].contiguous(), state, batch.resets[:, column].contiguous())
        minibatch = Minibatch(
            actions=batch.actions[:, lives, m],
            logprobs=batch.logprobs[lives, m],
            advantages=gains[lives, m],
            returns=returns[lives, m],
            weights=None,
            size=int(batch.playing.sum()),
        )
        terms = ppo_loss(policy, output[:, lives], minibatch, Coefficients(clip=0.2, value=0.5, entropy=0.01))
        sums = {name: sums.get(name, torch.zeros(())) + term for name, term in terms.items()}
    sums["loss"].backward()
    missed = (returns - batch.values[:-1])[batch.playing].var(correction=0)
    sums["explained_variance"] = 1 - missed / returns[batch.playing].var(correction=0)
    gradient = torch.cat([p.grad.flatten() for p in policy.parameters() if p.grad is not None])
    return gradient, {name: float(term.detach()) for name, term in sums.items()}


@pytest.mark.parametrize("accumulation_steps", [1, 5])
@pytest.mark.parametrize("kind", POLICIES)
def test_the_gradient_is_that_of_the_samples_that_count(kind: str, accumulation_steps: int) -> None:
    expected, terms = reference(kind)
    assert expected.norm() > 0.1
    (found,), figures = gradients_of(
        kind, minibatch_size=STEPS * AGENTS, update_epochs=1, accumulation_steps=accumulation_steps
    )
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-5)
    for name, term in terms.items():
        assert figures[name] == pytest.approx(term, rel=1e-3, abs=1e-5), name


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("kind", POLICIES)
def test_what_lies_in_idle_rows_changes_nothing(kind: str, overlap: bool) -> None:
    """In several minibatches and passes, bit for bit."""

    def poisoned(policy: Policy) -> Batch:
        batch = collected(policy)
        assert batch.playing is not None
        idle, g = ~batch.playing, torch.Generator().manual_seed(0)
        changed = {}
        for name in ("observations", "logprobs", "rewards"):
            values = getattr(batch, name).clone()
            values[idle] = torch.randn(values[idle].shape, generator=g) - (2.0 if name == "logprobs" else 0.0)
            changed[name] = values
        values, actions = batch.values.clone(), batch.actions.clone()
        values[:-1][idle] = 7.0
        actions[:, idle] = 1
        return dataclasses.replace(batch, values=values, actions=actions, **changed)

    settings: dict[str, Any] = {"minibatch_size": 5 * STEPS, "update_epochs": 2, "overlap": overlap}
    found, figures = gradients_of(kind, poisoned, **settings)
    expected, expected_figures = gradients_of(kind, **settings)
    assert len(found) == 6 and all(map(torch.equal, found, expected))
    assert figures == expected_figures


@pytest.mark.parametrize(("kind", "size", "number"), [("lstm", STEPS, 1), ("mlp", 1, STEPS)])
def test_a_minibatch_of_idle_agents_alone_has_no_gradient(kind: str, size: int, number: int) -> None:
    """With a memory a minibatch is one agent's segment here, and without one it is one sample."""

    def idle(policy: Policy) -> Batch:
        batch = collected(policy)
        playing = torch.zeros(STEPS, AGENTS, dtype=torch.bool)
        playing[:, 0] = True
        return dataclasses.replace(batch, playing=playing)

    found, _ = gradients_of(kind, idle, minibatch_size=size, update_epochs=1)
    assert len(found) == STEPS * AGENTS // size
    assert sum(float(gradient.norm()) > 0 for gradient in found) == number


def test_where_all_play_the_batch_is_the_usual_one() -> None:
    assert collected(make_policy(make_spec()), rests=0).playing is None


def test_the_largest_reward_at_the_start_is_one_that_counts() -> None:
    """All rewards of those that play are tiny, so they are scaled. Those of idle rows are not."""

    class Endless(IdlingEnvs):
        def step(self, *arrays: Any) -> None:
            super().step(*arrays)
            self.now %= STEPS

    envs: Any = Endless()
    envs.table[2][:] = np.where(envs.lives, 0.001, 1.0)
    config = TrainConfig(normalize_observations="off", reward_scaling="auto")
    conditioning, notes, _ = decided([envs], config, seed=0, device=CPU, world=ALONE)
    assert conditioning.scales
    assert notes == ["rewards are scaled: no reward reaches 0.01 in random play, the largest is 0.001"]


def test_steps_in_which_all_agents_are_idle_add_nothing_to_what_is_known() -> None:
    """At the start, in every third step of random play, and a whole batch later."""

    class Endless(IdlingEnvs):
        def step(self, *arrays: Any) -> None:
            super().step(*arrays)
            self.now %= STEPS

    envs: Any = Endless()
    envs.lives[::3] = False
    config = TrainConfig(normalize_observations="on", reward_scaling="return")
    conditioning, _, _ = decided([envs], config, seed=0, device=CPU, world=ALONE)
    normalizer, rewards = conditioning.normalizer, conditioning.rewards
    assert normalizer is not None and rewards is not None
    before = normalizer.moments
    shown = torch.ones(2, AGENTS, envs.spec.observation_size)
    conditioning.observe(shown, torch.ones(2, AGENTS), *torch.zeros(2, 2, AGENTS, dtype=torch.bool))
    conditioning.settle(ALONE)
    assert normalizer.moments.count == before.count > 0 and (normalizer.moments.mean == before.mean).all()
    assert rewards.moments.count == 0


def test_the_running_means_are_those_of_the_samples_that_count() -> None:
    policy, envs = make_policy(make_spec()), IdlingEnvs()
    rollout = make_rollout([envs], policy, horizon=STEPS)
    rewards = RewardScaler(AGENTS, gamma=0.9, scales=True, clip=0.0)
    normalizer = Normalizer(Moments.none(envs.spec.observation_size), torch.device("cpu"))
    rollout.condition(Conditioning(normalizer, rewards))
    rollout.reset(0)
    rollout.settle(rollout.collect(STEPS), ALONE)
    age, returns, seen, earned = np.zeros(AGENTS), np.zeros(AGENTS), [], []
    for t in range(STEPS):
        lives = envs.lives[t]
        seen.append(envs.observation(envs.agents, age)[lives])
        returns = 0.9 * returns + envs.table[2][t]
        earned.append(returns[lives])
        ends = envs.table[0][t] | envs.table[1][t]
        age, returns = np.where(ends, 0.0, age + 1), np.where(ends, 0.0, returns)
    for moments, samples in ((normalizer.moments, np.concatenate(seen)), (rewards.moments, np.concatenate(earned))):
        assert moments.count == envs.lives[:STEPS].sum() < STEPS * AGENTS
        np.testing.assert_allclose(moments.mean, samples.mean(axis=0).reshape(-1), rtol=1e-5, atol=1e-7)
        np.testing.assert_allclose(moments.variance, samples.var(axis=0).reshape(-1), rtol=1e-5, atol=1e-7)


class Threads(World):
    """Processes that are threads."""

    def __init__(self, rank: int, shared: list[Any], barrier: threading.Barrier) -> None:
        super().__init__(rank, len(shared))
        self.shared, self.barrier = shared, barrier

    def sum_(self, tensor: torch.Tensor) -> torch.Tensor:
        self.shared[self.rank] = tensor.clone()
        self.barrier.wait(30)
        tensor.copy_(torch.stack(self.shared).sum(dim=0))
        self.barrier.wait(30)
        return tensor


def test_spread_and_mean_are_those_of_what_counts_in_all_processes() -> None:
    """Of unequal parts, far from 0, with what is no number where it does not count."""
    g = torch.Generator().manual_seed(0)
    values, counts = 1000 + torch.randn(2, 40, generator=g), torch.rand(2, 40, generator=g) < 0.4
    counts[0, :30] = False
    values[~counts] = torch.nan
    found: list[Any] = [None, None]
    shared, barrier = [None, None], threading.Barrier(2)

    def work(rank: int) -> None:
        found[rank] = Threads(rank, shared, barrier).std_mean_where(values[rank], counts[rank])

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expected = torch.std_mean(values[counts].double(), correction=0)
    for spread, mean in [*found, ALONE.std_mean_where(values.flatten(), counts.flatten())]:
        assert float(spread) == pytest.approx(float(expected[0]), rel=1e-4)
        assert float(mean) == pytest.approx(float(expected[1]), rel=1e-6)
    assert [float(x) for x in ALONE.std_mean_where(values[0], torch.zeros(40, dtype=torch.bool))] == [0.0, 0.0]
