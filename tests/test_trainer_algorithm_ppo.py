"""The loss against one written out sample by sample, its gradient against automatic differentiation, and updates."""

import copy
import dataclasses
import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn
from training import CPU, POLICIES, make_policy, make_rollout, make_spec, scripted

from protein.trainer.algorithm.ppo import PPO, Coefficients, Minibatch, loss_gradient, loss_terms
from protein.trainer.algorithm.rollout import Batch
from protein.trainer.algorithm.segments import prioritized
from protein.trainer.config import TrainConfig
from protein.trainer.errors import DivergedError
from protein.trainer.kernels import advantages as compute_advantages
from protein.trainer.machine.stopwatch import Stopwatch
from protein.trainer.model.policy import Policy

ACTIONS: dict[str, dict[str, Any]] = {
    "one": {"action_sizes": (4,)},
    "several": {"action_sizes": (3, 2)},
    "continuous": {"continuous_actions": 2},
}
HEADS: dict[str, dict[str, Any]] = {"scalar": {}, "clipped": {"vf_clip_coef": 0.3}, "bins": {"value_bins": 9}}
COEFFICIENTS = [
    Coefficients(clip=0.2, value=0.5, entropy=0.01),
    Coefficients(clip=0.1, value=1.7, entropy=0.2),
    Coefficients(clip=0.3, value=0.0, entropy=0.0),
]


def make_minibatch(policy: Policy, size: int, *, weighted: bool = False, part_of: int = 0) -> Any:
    """Returns an output of the policy and samples of one that is a little different, in float32."""
    g = torch.Generator().manual_seed(size)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=g)

    output, rows = normal(policy.rows, size), policy.action_rows
    noise = torch.empty(policy.distribution.noise_rows, size)
    policy.distribution.fill_noise_(noise, g)
    actions = torch.zeros(size, policy.distribution.components, dtype=policy.distribution.dtype)
    logprobs = torch.zeros(size)
    policy.distribution.sample((output[:rows] + 0.2 * normal(rows, size)).contiguous(), noise, actions, logprobs)
    return output, Minibatch(
        actions=actions.t().contiguous(),
        logprobs=logprobs,
        values=policy.values(output) + 0.3 * normal(size),
        advantages=normal(size),
        returns=normal(size),
        weights=torch.rand(size, generator=g) + 0.5 if weighted else None,
        size=part_of or size,
    )


def written_out_loss(output: torch.Tensor, batch: Minibatch, c: Coefficients, clip_value: float) -> float:
    size, total = output.shape[1], 0.0
    for i in range(size):
        logits = output[:-1, i].tolist()
        normaliser = math.log(sum(math.exp(z) for z in logits))
        logp = [z - normaliser for z in logits]
        ratio = math.exp(logp[int(batch.actions[0, i])] - float(batch.logprobs[i]))
        gain = float(batch.advantages[i])
        each = max(-ratio * gain, -min(max(ratio, 1 - c.clip), 1 + c.clip) * gain)
        value, old, target = float(output[-1, i]), float(batch.values[i]), float(batch.returns[i])
        error = (value - target) ** 2
        if clip_value:
            near = old + min(max(value - old, -clip_value), clip_value)
            error = max(error, (near - target) ** 2)
        each += c.value * 0.5 * error
        each += c.entropy * sum(math.exp(lp) * lp for lp in logp)
        total += each * (1.0 if batch.weights is None else float(batch.weights[i]))
    return total / batch.size


@pytest.mark.parametrize("c", COEFFICIENTS)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("head", ["scalar", "clipped"])
def test_the_loss_is_the_written_out_one(c: Coefficients, weighted: bool, head: str) -> None:
    policy = make_policy(make_spec(), **HEADS[head])
    output, batch = make_minibatch(policy, 40, weighted=weighted)
    terms = loss_terms(policy, output, batch, c)
    expected = written_out_loss(output, batch, c, HEADS[head].get("vf_clip_coef", 0.0))
    assert terms["loss"].item() == pytest.approx(expected, rel=1e-4, abs=1e-5)
    ratio = (torch.log_softmax(output[:-1], 0).gather(0, batch.actions.long())[0] - batch.logprobs).exp()
    assert terms["clip_fraction"].item() == pytest.approx(((ratio - 1).abs() > c.clip).float().mean().item())
    assert 0 < terms["clip_fraction"].item() < 1, "the example must have both clipped and unclipped samples"
    assert terms["approx_kl"].item() > 0


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("actions", ACTIONS)
def test_the_gradient_in_closed_form_is_that_of_the_loss(actions: str, head: str, weighted: bool) -> None:
    policy = make_policy(make_spec(**ACTIONS[actions]), **HEADS[head])
    for c in COEFFICIENTS:
        for size, part_of in ((1, 0), (301, 0), (50, 150)):
            output, batch = make_minibatch(policy, size, weighted=weighted, part_of=part_of)
            given = output.clone()
            gradient, ratio = loss_gradient(policy, output, batch, c)
            assert torch.equal(output, given), "the network's output must not be written to"
            output.requires_grad_()
            (expected,) = torch.autograd.grad(loss_terms(policy, output, batch, c)["loss"], output)
            torch.testing.assert_close(gradient, expected, rtol=2e-4, atol=2e-6)
            logp = policy.distribution.terms(given[: policy.action_rows], batch.actions).logp
            torch.testing.assert_close(ratio, (logp - batch.logprobs).exp(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("actions", ACTIONS)
def test_at_the_old_policy_nothing_is_clipped(actions: str) -> None:
    spec = make_spec(**ACTIONS[actions])
    tight, loose = make_policy(spec, vf_clip_coef=1e-9), make_policy(spec)
    output, batch = make_minibatch(tight, 64)
    same = tight.distribution.terms(output[: tight.action_rows], batch.actions).logp
    batch = dataclasses.replace(batch, logprobs=same, values=output[-1].clone())
    found, ratio = loss_gradient(tight, output, batch, Coefficients(clip=1e-4, value=0.5, entropy=0.0))
    expected, _ = loss_gradient(loose, output, batch, Coefficients(clip=100.0, value=0.5, entropy=0.0))
    torch.testing.assert_close(ratio, torch.ones(64), rtol=0, atol=1e-5)
    torch.testing.assert_close(found, expected)


def collected(policy: Policy, *, steps: int = 5, agents: int = 12, seed: int = 3, skip: int = 3) -> Batch:
    """A real rollout with ends in the middle of segments; a recurrent state that is not zero begins it."""
    kind = policy.distribution
    spec = make_spec(continuous_actions=kind.components) if kind.dtype.is_floating_point else make_spec()
    rollout = make_rollout(scripted(steps + skip, agents, spec, seed=seed), policy, horizon=max(steps, skip))
    rollout.reset(0)
    if skip:
        rollout.collect(skip)
    return rollout.collect(steps)


class Spy:
    """Takes the optimiser's and the scaler's place: the weights stay, and each step's gradient is kept."""

    def __init__(self, ppo: PPO) -> None:
        self.gradients: list[torch.Tensor] = []
        self.exhausted = False
        ppo._scaler = self  # type: ignore[assignment]

    def scale(self, gradient: torch.Tensor) -> torch.Tensor:
        return gradient

    def step(self, optimizer: object, weights: nn.Parameter, max_norm: float) -> torch.Tensor:
        assert weights.grad is not None
        self.gradients.append(weights.grad.clone())
        return weights.grad.norm()


def make_ppo(policy: Policy, **train: Any) -> PPO:
    config = TrainConfig(**({"lr_schedule": "constant"} | train))
    return PPO(policy, config, device=CPU, generator=torch.Generator().manual_seed(0), stopwatch=Stopwatch(CPU))


def gradients_of(kind: str, batch_of: Any = collected, **train: Any) -> tuple[list[torch.Tensor], dict[str, float]]:
    """Returns the gradients of each step of an update whose steps are not taken, and its figures."""
    policy = make_policy(make_spec(), **POLICIES[kind])
    ppo = make_ppo(policy, **train)
    spy = Spy(ppo)
    figures = ppo.update(batch_of(policy), 0.0)
    return spy.gradients, figures


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
            values=batch.values[:-1, m],
            advantages=gains[:, m],
            returns=returns[:, m],
            weights=None,
            size=len(batch),
        )
        total = total + loss_terms(policy, output, minibatch, Coefficients(clip=0.2, value=0.5, entropy=0.01))["loss"]
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
@pytest.mark.parametrize("actions", ["one", "continuous"])
@pytest.mark.parametrize("minibatch_size", [25, 60])
def test_ratios_are_one_at_the_first_minibatch(kind: str, actions: str, minibatch_size: int) -> None:
    """The update's forward pass over whole segments repeats the rollout's, across ends and rollouts."""
    policy = make_policy(make_spec(**ACTIONS[actions]), **POLICIES[kind])
    ppo = make_ppo(policy, minibatch_size=minibatch_size, update_epochs=2, advantage="vtrace")
    Spy(ppo)
    seen = watch_ratios(ppo)
    figures = ppo.update(collected(policy), 0.0)
    assert [ratios is None for ratios in seen] == [False, False]
    torch.testing.assert_close(seen[1], torch.ones(5, 12), rtol=0, atol=1e-4)
    assert figures["clip_fraction"] == 0 and abs(figures["approx_kl"]) < 1e-6


def watch_ratios(ppo: PPO) -> list[torch.Tensor]:
    """Returns a list that will hold what each epoch's advantages are computed with."""
    seen: list[torch.Tensor] = []
    compute = ppo._advantages

    def spied(batch: Batch, ratios: torch.Tensor) -> Any:
        seen.append(ratios.clone())
        return compute(batch, ratios)

    ppo._advantages = spied  # type: ignore[method-assign]
    return seen


@pytest.mark.parametrize("kind", ["mlp", "lstm"])
def test_vtrace_with_ratios_of_one_is_gae_and_a_second_epoch_uses_those_that_the_first_left(kind: str) -> None:
    weights = []
    for advantage in ("gae", "vtrace"):
        policy = make_policy(make_spec(), **POLICIES[kind])
        make_ppo(policy, minibatch_size=25, update_epochs=1, advantage=advantage).update(collected(policy), 0.0)
        weights.append(nn.utils.parameters_to_vector(policy.parameters()).detach())
    torch.testing.assert_close(weights[0], weights[1], rtol=1e-5, atol=1e-6)

    policy = make_policy(make_spec(), **POLICIES[kind])
    ppo = make_ppo(policy, minibatch_size=20, update_epochs=2, advantage="vtrace", learning_rate=0.02)
    seen, batch = watch_ratios(ppo), collected(policy)
    ratios, chosen = [], []
    step, minibatches = ppo._step, ppo._minibatches

    def spied_step(*arguments: Any) -> torch.Tensor:
        norm = step(*arguments)
        ratios.append(arguments[3].clone())
        return norm

    def spied_minibatches(*arguments: Any) -> Iterator[Any]:
        for each in minibatches(*arguments):
            chosen.append(each[0])
            yield each

    ppo._step, ppo._minibatches = spied_step, spied_minibatches  # type: ignore[method-assign]
    ppo.update(batch, 0.0)
    assert torch.equal(seen[0], torch.ones(5, 12)) and torch.equal(seen[1], ratios[2])
    torch.testing.assert_close(seen[1][:, chosen[0]], torch.ones(5, 4), rtol=0, atol=1e-4)  # before the first step
    assert (seen[1][:, chosen[2]] - 1).abs().max() > 1e-2  # after two
    # The second epoch's advantages, by the definition.
    gains, returns = ppo._advantages(batch, seen[1])
    later = torch.zeros(12)
    for t in range(4, -1, -1):
        go = batch.ends[t].logical_not().float()
        rho = seen[1][t].clamp(max=1.0)
        own = rho * (batch.rewards[t] + 0.99 * go * batch.values[t + 1] - batch.values[t])
        later = own + 0.99 * 0.95 * rho * go * later
        torch.testing.assert_close(returns[t], later + batch.values[t], rtol=1e-4, atol=1e-5)
    assert gains.mean().abs() < 1e-5 and gains.std(correction=0).item() == pytest.approx(1.0, rel=1e-4)


def test_priorities_weigh_the_loss_of_whole_segments() -> None:
    """One minibatch of all segments: its gradient is that of the loss weighted by hand."""
    found, _ = gradients_of("lstm", minibatch_size=60, update_epochs=1, prio_alpha=0.7, prio_beta=0.5)
    policy = make_policy(make_spec(), **POLICIES["lstm"])
    batch = collected(policy)
    gains, returns = make_ppo(policy)._advantages(batch, torch.ones(5, 12))
    everyone = prioritized(gains, 12, alpha=0.7, beta=0.5, generator=torch.Generator().manual_seed(0))
    chosen, weights = next(everyone)
    by_segment = torch.zeros(12).index_copy(0, chosen, weights)
    output, _ = policy(batch.observations, batch.state, batch.resets)
    minibatch = Minibatch(
        actions=batch.actions.flatten(1),
        logprobs=batch.logprobs.flatten(),
        values=batch.values[:-1].flatten(),
        advantages=gains.flatten(),
        returns=returns.flatten(),
        weights=by_segment.expand(5, 12).reshape(-1),
        size=60,
    )
    policy.zero_grad()
    loss_terms(policy, output, minibatch, Coefficients(clip=0.2, value=0.5, entropy=0.01))["loss"].backward()
    expected = torch.cat([p.grad.flatten() for p in policy.parameters() if p.grad is not None])
    torch.testing.assert_close(found[0], expected, rtol=1e-3, atol=1e-5)
    plain, _ = gradients_of("lstm", minibatch_size=60, update_epochs=1)
    assert (plain[0] - expected).norm() > 0.05 * expected.norm()


def test_one_update_is_one_adam_step_along_the_clipped_gradient_of_the_mean_loss() -> None:
    """One epoch of one minibatch, against torch's own loss, clip and optimiser on a copy of the network."""
    policy = make_policy(make_spec())
    batch, reference = collected(policy), copy.deepcopy(policy)
    ppo = make_ppo(policy, minibatch_size=60, update_epochs=1, max_grad_norm=0.05, learning_rate=0.01)
    ppo.update(batch, 0.0)
    gains, returns = make_ppo(make_policy(make_spec()))._advantages(batch, torch.ones(5, 12))
    autograd_gradient(reference, batch, gains, returns)
    assert nn.utils.clip_grad_norm_(reference.parameters(), 0.05) > 0.1, "the example must be clipped"
    torch.optim.Adam(reference.parameters(), lr=0.01, eps=1e-5).step()
    for ours, theirs in zip(policy.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=2e-5)


def test_every_segment_is_used_once_an_epoch_in_an_order_of_its_own() -> None:
    policy = make_policy(make_spec())
    ppo = make_ppo(policy, minibatch_size=25, update_epochs=3)
    seen: list[torch.Tensor] = []
    step = ppo._step
    ppo._step = lambda *arguments: (seen.append(arguments[4]), step(*arguments))[1]  # type: ignore[method-assign]
    ppo.update(collected(policy), 0.0)
    assert [len(chosen) for chosen in seen] == [5, 5, 2] * 3
    orders = [torch.cat(seen[start : start + 3]).tolist() for start in (0, 3, 6)]
    assert all(sorted(order) == list(range(12)) for order in orders)
    assert len(set(map(tuple, orders))) == 3


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
    for alpha in (0.0, 0.8):
        ppo = make_ppo(make_policy(make_spec()), minibatch_size=25, prio_alpha=alpha)
        assert all(map(math.isfinite, ppo.update(batch, 0.0).values()))


@pytest.mark.parametrize("poison", ["rewards", "values", "observations"])
@pytest.mark.parametrize("train", [{}, {"prio_alpha": 0.5}, {"advantage": "vtrace", "update_epochs": 2}])
def test_one_number_that_is_not_finite_is_noticed(poison: str, train: dict[str, Any]) -> None:
    policy = make_policy(make_spec())
    ppo = make_ppo(policy, **({"minibatch_size": 25, "update_epochs": 1} | train))
    batch = collected(policy)
    getattr(batch, poison).view(-1)[3] = float("nan")
    with pytest.raises(DivergedError, match="not finite"):
        ppo.update(batch, 0.0)
