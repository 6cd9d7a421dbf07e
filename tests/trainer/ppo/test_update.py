"""Updates against PPO as it is usually written, with automatic differentiation and torch's own optimiser."""

import copy
import dataclasses
import itertools
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from event_log import EventLog
from torch import nn
from training_parts import POLICIES, make_policy, make_spec
from updates import Recorder, collected, make_config, make_ppo

from protein.trainer.config import RunConfig, TrainConfig
from protein.trainer.errors import ConfigError, DivergedError
from protein.trainer.kernels import advantages as compute_advantages
from protein.trainer.machine import checkpoint as checkpoints
from protein.trainer.model.policy import Policy
from protein.trainer.ppo.loss import Coefficients, Minibatch, advantages_and_returns, ppo_loss
from protein.trainer.ppo.rollout import Batch
from protein.trainer.ppo.update import LEAST, MOST, RATE, EntropyBonus
from protein.trainer.run import run


def gradients_of(kind: str, batch_of: Any = collected, **train: Any) -> tuple[list[torch.Tensor], dict[str, float]]:
    """Returns the gradients of each step of an update whose steps are not taken, and its figures."""
    policy = make_policy(make_spec(), **POLICIES[kind])
    recorder = Recorder()
    figures = make_ppo(policy, recorder, **train).update(batch_of(policy), 0.0)
    return recorder.gradients, figures


def autograd_gradient(policy: Policy, batch: Batch, gains: torch.Tensor, returns: torch.Tensor) -> torch.Tensor:
    """The derivative of the mean loss, each agent's segment run on its own, by automatic differentiation."""
    policy.zero_grad()
    total = torch.zeros(())
    for m in range(batch.segments):
        column = slice(m, m + 1)
        state = None if batch.state is None else batch.state[column]
        observations, resets = batch.observations[:, column].contiguous(), batch.resets[:, column].contiguous()
        output, _ = policy(observations, state, resets)
        minibatch = Minibatch(
            actions=batch.actions[:, :, m],
            logprobs=batch.logprobs[:, m],
            advantages=gains[:, m],
            returns=returns[:, m],
            weights=None,
            size=len(batch),
        )
        total = total + ppo_loss(policy, output, minibatch, Coefficients(clip=0.2, value=0.5, entropy=0.01))["loss"]
    total.backward()
    return torch.cat([p.grad.flatten() for p in policy.parameters() if p.grad is not None])


def reference_gradient(kind: str, batch_of: Any = collected) -> torch.Tensor:
    policy = make_policy(make_spec(), **POLICIES[kind])
    batch = batch_of(policy)
    gains = compute_advantages(batch.rewards, batch.values, batch.ends, gamma=0.99, gae_lambda=0.95)
    returns = gains + batch.values[:-1]
    gains = (gains - gains.mean()) / (gains.std(correction=0) + 1e-8)
    return autograd_gradient(policy, batch, gains, returns)


@pytest.mark.parametrize("kind", POLICIES)
def test_the_gradient_of_a_whole_batch_in_parts_and_in_one_is_that_of_autograd(kind: str) -> None:
    expected = reference_gradient(kind)
    assert expected.norm() > 0.1
    for accumulation in (1, 3, 4, 5):
        (found,), figures = gradients_of(kind, minibatch_size=60, update_epochs=1, accumulation_steps=accumulation)
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-5)
        if accumulation == 1:
            whole = figures
        # The figures are of the whole minibatch, not of its last part.
        for name in whole.keys() - {"explained_variance"}:
            assert figures[name] == pytest.approx(whole[name], rel=1e-3, abs=1e-5), name


@pytest.mark.parametrize("kind", POLICIES)
def test_the_gradients_of_minibatches_add_up_also_with_a_short_last_one(kind: str) -> None:
    """At weights that stay, the mean over the samples of all minibatches is the gradient of the whole batch."""
    found, _ = gradients_of(kind, minibatch_size=25, update_epochs=1)  # 12 segments in 5, 5 and 2
    assert len(found) == 3
    total = (5 * found[0] + 5 * found[1] + 2 * found[2]) / 12
    torch.testing.assert_close(total, reference_gradient(kind), rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("kind", POLICIES)
@pytest.mark.parametrize("continuous_actions", [0, 2])
def test_ratios_are_one_while_the_weights_stay(kind: str, continuous_actions: int) -> None:
    """The update's forward pass over whole segments repeats the rollout's, across ends and rollouts.

    So with V-trace its gradient is that of GAE.
    """
    policy = make_policy(make_spec(continuous_actions=continuous_actions), **POLICIES[kind])
    recorder = Recorder()
    for overlap in (False, True):
        ppo = make_ppo(policy, recorder, minibatch_size=60, update_epochs=1, overlap=overlap)
        figures = ppo.update(collected(policy), 0.0)
        assert figures["clip_fraction"] == 0 and abs(figures["approx_kl"]) < 1e-6
    torch.testing.assert_close(recorder.gradients[0], recorder.gradients[1], rtol=1e-3, atol=1e-5)


def written_out_advantages(batch: Batch, ratios: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Normalised V-trace advantages and targets, step by step; ratios of one: GAE."""
    later, gains, targets = torch.zeros(batch.segments), torch.zeros_like(batch.rewards), batch.values[:-1].clone()
    for t in range(batch.steps - 1, -1, -1):
        go = batch.ends[t].logical_not().float()
        rho = ratios[t].clamp(max=1.0)
        error = batch.rewards[t] + 0.99 * go * batch.values[t + 1] - batch.values[t]
        gains[t] = error + 0.99 * 0.95 * go * later  # its own ratio is PPO's
        later = rho * error + 0.99 * 0.95 * rho * go * later
        targets[t] += later
    return (gains - gains.mean()) / (gains.std(correction=0) + 1e-8), targets


def written_out_ratios(policy: Policy, batch: Batch) -> torch.Tensor:
    output, _ = policy(batch.observations, batch.state, batch.resets)
    actions = batch.actions.flatten(1)
    logp = policy.distribution.terms(output.detach()[: policy.action_rows], actions).logp
    return (logp.view_as(batch.logprobs) - batch.logprobs).exp()


def written_out_update(policy: Policy, batch: Batch, *, size: int, epochs: int, vtrace: bool, rate: float) -> None:
    """PPO as it is usually written: torch's own differentiation, clip and optimiser.

    Minibatches are of `size` samples, or with a memory of `size` segments.
    """
    alone = batch.state is None
    number = len(batch) if alone else batch.segments

    def of(rows: torch.Tensor) -> torch.Tensor:
        return rows.flatten(0, 1)[chosen].unsqueeze(0) if alone else rows[:, chosen]

    optimizer = torch.optim.Adam(policy.parameters(), lr=rate, eps=1e-5)
    generator = torch.Generator().manual_seed(0)
    ratios = written_out_ratios(policy, batch) if vtrace else torch.ones_like(batch.rewards)
    gains, returns = written_out_advantages(batch, ratios)
    for _ in range(epochs):
        for chosen in torch.randperm(number, generator=generator).split(size):
            state = None if batch.state is None else batch.state[chosen]
            output, _ = policy(of(batch.observations), state, of(batch.resets))
            minibatch = Minibatch(
                actions=torch.stack([of(component).flatten() for component in batch.actions]),
                logprobs=of(batch.logprobs).flatten(),
                advantages=of(gains).flatten(),
                returns=of(returns).flatten(),
                weights=None,
                size=output.shape[1],
            )
            optimizer.zero_grad()
            ppo_loss(policy, output, minibatch, Coefficients(clip=0.2, value=0.5, entropy=0.01))["loss"].backward()
            nn.utils.clip_grad_norm_(policy.parameters(), 0.5)
            optimizer.step()


@pytest.mark.parametrize("kind", ["mlp", "lstm", "bins"])
@pytest.mark.parametrize("overlap", [False, True])
def test_an_update_is_the_written_out_one(kind: str, overlap: bool) -> None:
    """Every sample, or segment, once an epoch, in a new order; with overlap V-trace, as the policy is another one."""
    policy = make_policy(make_spec(), **POLICIES[kind])
    batch, g = collected(policy), torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=g))
    reference, before = copy.deepcopy(policy), copy.deepcopy(policy)
    ppo = make_ppo(policy, minibatch_size=25, update_epochs=3, overlap=overlap, learning_rate=0.01)
    ppo.update(batch, 0.0)
    size = 25 if batch.state is None else 5  # segments have five steps
    written_out_update(reference, batch, size=size, epochs=3, vtrace=overlap, rate=0.01)
    other = copy.deepcopy(before)
    written_out_update(other, batch, size=size, epochs=3, vtrace=not overlap, rate=0.01)
    ours, theirs, wrong = (nn.utils.parameters_to_vector(p.parameters()).detach() for p in (policy, reference, other))
    torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=2e-4)
    assert (ours - wrong).abs().max() > 2e-3, "the example must tell V-trace from GAE"


def test_one_update_is_one_adam_step_along_the_clipped_gradient_of_the_mean_loss() -> None:
    """One epoch of one minibatch, against torch's own loss, clip and optimiser on a copy of the network."""
    policy = make_policy(make_spec())
    batch, reference = collected(policy), copy.deepcopy(policy)
    ppo = make_ppo(policy, minibatch_size=60, update_epochs=1, max_grad_norm=0.05, learning_rate=0.01)
    ppo.update(batch, 0.0)
    gains, returns = advantages_and_returns(batch, None, make_config())
    autograd_gradient(reference, batch, gains, returns)
    assert nn.utils.clip_grad_norm_(reference.parameters(), 0.05) > 0.1, "the example must be clipped"
    torch.optim.Adam(reference.parameters(), lr=0.01, eps=1e-5).step()
    for ours, theirs in zip(policy.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=2e-5)


def test_a_batch_of_one_sample_and_one_of_equal_advantages_are_fine() -> None:
    policy = make_policy(make_spec())
    ppo = make_ppo(policy, minibatch_size=1)
    assert all(map(math.isfinite, ppo.update(collected(policy, steps=1, agents=1), 0.0).values()))
    batch = collected(policy, skip=0)
    batch = dataclasses.replace(
        batch,
        rewards=torch.full((5, 12), 0.25),
        values=torch.zeros(6, 12),
        ends=torch.ones(5, 12, dtype=torch.bool),
    )
    ppo = make_ppo(make_policy(make_spec()), minibatch_size=25)
    assert all(map(math.isfinite, ppo.update(batch, 0.0).values()))


@pytest.mark.parametrize("poison", ["rewards", "values", "observations"])
@pytest.mark.parametrize("train", [{}, {"overlap": True, "update_epochs": 2}])
def test_one_number_that_is_not_finite_is_noticed(poison: str, train: dict[str, Any]) -> None:
    policy = make_policy(make_spec())
    ppo = make_ppo(policy, **({"minibatch_size": 25, "update_epochs": 1} | train))
    batch = collected(policy)
    getattr(batch, poison).view(-1)[3] = float("nan")
    with pytest.raises(DivergedError, match="not finite"):
        ppo.update(batch, 0.0)


@pytest.mark.parametrize("train", [{}, {"overlap": True}])
def test_an_update_out_of_time_changes_nothing(train: dict[str, Any]) -> None:
    policy = make_policy(make_spec())
    batch, before = collected(policy), copy.deepcopy(policy)
    figures = make_ppo(policy, minibatch_size=25, update_epochs=3, **train).update(batch, 0.0, lambda: True)
    assert figures.keys() == {"explained_variance"} and math.isfinite(figures["explained_variance"])
    assert all(map(torch.equal, policy.parameters(), before.parameters()))


def test_an_update_stops_between_minibatches(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time is up when it is asked for the third time."""
    ticks = itertools.count()
    policy = make_policy(make_spec())
    batch, recorder = collected(policy), Recorder()
    ppo = make_ppo(policy, recorder, minibatch_size=25, update_epochs=3)
    ppo.update(batch, 0.0, lambda: next(ticks) >= 2)
    assert len(recorder.gradients) == 2


# The entropy bonus along a line and adapted to a target; passes that end early at a target KL.

SMALL: dict[str, dict[str, Any]] = {
    "env": {"num_envs": 16, "frame_skip": 16},
    "policy": {"hidden_size": 8},
    "train": {"total_timesteps": 16 * 32 * 30, "threads": 1, "device": "cpu", "horizon": 32, "minibatch_size": 128},
    "eval": {"episodes": 4, "num_envs": 4},
}


def go(directory: Path | None = None, **train: Any) -> EventLog:
    events = EventLog()
    config = RunConfig.from_dict(SMALL | {"train": SMALL["train"] | train})
    run(config, directory=directory, report=events.record)
    return events


def test_the_weight_follows_a_straight_line_or_stays() -> None:
    constant = EntropyBonus(TrainConfig(ent_coef=0.1))
    falling = EntropyBonus(TrainConfig(ent_coef=0.1, ent_coef_final=0.0))
    rising = EntropyBonus(TrainConfig(ent_coef=0.1, ent_coef_final=0.5))
    along = (0.0, 0.25, 1.0)
    assert [constant.coefficient(x) for x in along] == [0.1, 0.1, 0.1]
    assert [falling.coefficient(x) for x in along] == pytest.approx([0.1, 0.075, 0.0])
    assert [rising.coefficient(x) for x in along] == pytest.approx([0.1, 0.2, 0.5])
    assert not constant.state() and not falling.state()


def test_the_adapted_weight_rises_below_the_target_falls_above_it_and_is_bounded() -> None:
    bonus = EntropyBonus(TrainConfig(ent_coef=0.1, target_entropy=2.0))
    assert bonus.coefficient(0.5) == pytest.approx(0.1)
    bonus.adapt(1.5)
    assert bonus.coefficient(0.5) == pytest.approx(0.1 * math.exp(RATE * 0.5))
    bonus.adapt(-90.0)  # no further than a distance of 1 would move it
    assert bonus.coefficient(0.5) == pytest.approx(0.1 * math.exp(RATE * 1.5))
    for entropy, bound in ((50.0, LEAST), (-50.0, MOST)):
        for _ in range(100):
            bonus.adapt(entropy)
        assert bonus.coefficient(0.0) == pytest.approx(bound)
    other = EntropyBonus(TrainConfig(ent_coef=0.1, target_entropy=2.0))
    other.set_state(bonus.state())
    assert other.coefficient(0.0) == bonus.coefficient(0.0)


def test_an_update_uses_the_weight_of_its_place_in_the_run() -> None:
    """At the end of a schedule to 0.3 the gradients are those of a constant weight of 0.3."""
    weights = []
    settings: list[dict[str, Any]] = [{"ent_coef": 0.01, "ent_coef_final": 0.3}, {"ent_coef": 0.3}, {"ent_coef": 0.01}]
    for train in settings:
        policy = make_policy(make_spec())
        ppo = make_ppo(policy, minibatch_size=60, **train)
        figures = ppo.update(collected(policy), 1.0)
        assert figures.get("ent_coef") == (0.3 if "ent_coef_final" in train else None)
        weights.append(ppo.weights.clone())
    assert weights[0].equal(weights[1]) and not weights[0].equal(weights[2])


def test_a_target_keeps_the_entropy_near_it() -> None:
    """A target of half the highest entropy, against a run that a strong bonus keeps random."""
    target = 0.5 * math.log(3)
    free = go(ent_coef=0.3, lr_schedule="constant")[-2]["metrics"]["entropy"]
    held = go(ent_coef=0.3, target_entropy=target, lr_schedule="constant", total_timesteps=16 * 32 * 240)[-2]["metrics"]
    assert free > 0.9 * math.log(3)
    assert abs(held["entropy"] - target) < 0.5 * (free - target)
    assert held["ent_coef"] < 0.1


def test_a_target_kl_ends_the_passes_once_the_policy_has_moved_that_far() -> None:
    def update(target_kl: float, passes: int) -> tuple[torch.Tensor, dict[str, float]]:
        policy = make_policy(make_spec())
        ppo = make_ppo(policy, minibatch_size=20, update_epochs=passes, learning_rate=0.03, target_kl=target_kl)
        figures = ppo.update(collected(policy), 0.0)
        return ppo.weights.clone(), figures

    divergences = [update(0.0, passes)[1]["approx_kl"] for passes in range(1, 8)]
    assert divergences[0] < max(divergences[1:])
    limit = 0.5 * (divergences[0] + max(divergences))
    last = next(index for index, divergence in enumerate(divergences) if divergence > limit)
    stopped, figures = update(limit, 7)
    expected, _ = update(0.0, last + 1)
    assert figures["passes"] == last + 1 < 7 and figures["approx_kl"] == pytest.approx(divergences[last])
    assert stopped.equal(expected)
    whole, figures = update(1e9, 7)
    assert figures["passes"] == 7 and whole.equal(update(0.0, 7)[0])


def test_settings_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"ent_coef_final and train\.target_entropy both set"):
        go(ent_coef_final=0.1, target_entropy=0.5)
    with pytest.raises(ConfigError, match=r"ent_coef must be above 0 with train\.target_entropy"):
        go(ent_coef=0.0, target_entropy=0.5)
    with pytest.raises(ConfigError, match=r"train\.ent_coef_final must be at least -1"):
        go(ent_coef_final=-2.0)


def test_a_run_whose_entropy_bonus_changes_with_its_length_cannot_be_continued(tmp_path: Path) -> None:
    short: dict[str, Any] = {"total_timesteps": 16 * 32 * 2, "lr_schedule": "constant"}
    assert go(tmp_path / "a", **short)[-1]["continuable"] is not None
    assert go(tmp_path / "b", ent_coef_final=0.0, **short)[-1]["continuable"] is None
    wsd = short | {"lr_schedule": "wsd", "decay_fraction": 0.5}
    assert go(tmp_path / "c", **wsd)[-1]["continuable"] is not None
    assert go(tmp_path / "d", ent_coef_final=0.0, **wsd)[-1]["continuable"] is None
    assert not (tmp_path / "d" / checkpoints.STABLE_FILE_NAME).exists()
