"""PPO's loss against one written out sample by sample, and its gradient against automatic differentiation."""

import dataclasses
import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from training_parts import make_policy, make_spec

from protein.trainer.config import TrainConfig
from protein.trainer.model.policy import Policy
from protein.trainer.ppo import loss as module
from protein.trainer.ppo.loss import (
    Coefficients,
    Minibatch,
    advantages_and_returns,
    loss_gradient,
    loss_gradient_by_torch,
    ppo_loss,
)
from protein.trainer.ppo.rollout import Batch

ACTIONS: dict[str, dict[str, Any]] = {
    "one": {"action_sizes": (4,)},
    "several": {"action_sizes": (3, 2)},
    "continuous": {"continuous_actions": 2},
}
HEADS: dict[str, dict[str, Any]] = {"scalar": {}, "bins": {"value_bins": 9}}
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
        advantages=normal(size),
        returns=normal(size),
        weights=torch.rand(size, generator=g) + 0.5 if weighted else None,
        size=part_of or size,
    )


def written_out_loss(output: torch.Tensor, batch: Minibatch, c: Coefficients) -> float:
    size, total = output.shape[1], 0.0
    for i in range(size):
        logits = output[:-1, i].tolist()
        normaliser = math.log(sum(math.exp(z) for z in logits))
        logp = [z - normaliser for z in logits]
        ratio = math.exp(logp[int(batch.actions[0, i])] - float(batch.logprobs[i]))
        gain = float(batch.advantages[i])
        each = max(-ratio * gain, -min(max(ratio, 1 - c.clip), 1 + c.clip) * gain)
        each += c.value * 0.5 * float(output[-1, i] - batch.returns[i]) ** 2
        each += c.entropy * sum(math.exp(lp) * lp for lp in logp)
        total += each * (1.0 if batch.weights is None else float(batch.weights[i]))
    return total / batch.size


@pytest.mark.parametrize("c", COEFFICIENTS)
@pytest.mark.parametrize("weighted", [False, True])
def test_the_loss_is_the_written_out_one(c: Coefficients, weighted: bool) -> None:
    policy = make_policy(make_spec())
    output, batch = make_minibatch(policy, 40, weighted=weighted)
    terms = ppo_loss(policy, output, batch, c)
    expected = written_out_loss(output, batch, c)
    assert terms["loss"].item() == pytest.approx(expected, rel=1e-4, abs=1e-5)
    ratio = (torch.log_softmax(output[:-1], 0).gather(0, batch.actions.long())[0] - batch.logprobs).exp()
    counts = torch.ones(40) if batch.weights is None else batch.weights
    clipped = (counts * ((ratio - 1).abs() > c.clip)).sum() / 40
    assert terms["clip_fraction"].item() == pytest.approx(clipped.item())
    assert terms["approx_kl"].item() == pytest.approx(
        ((counts * (ratio - 1 - ratio.log())).sum() / 40).item(), rel=1e-3
    )
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
            gradient = loss_gradient(policy, output, batch, c)
            assert torch.equal(output, given), "the network's output must not be written to"
            output.requires_grad_()
            (expected,) = torch.autograd.grad(ppo_loss(policy, output, batch, c)["loss"], output)
            torch.testing.assert_close(gradient, expected, rtol=2e-4, atol=2e-6)


@pytest.mark.parametrize("actions", ACTIONS)
def test_at_the_old_policy_nothing_is_clipped(actions: str) -> None:
    spec = make_spec(**ACTIONS[actions])
    policy = make_policy(spec)
    output, batch = make_minibatch(policy, 64)
    same = policy.distribution.terms(output[: policy.action_rows], batch.actions).logp
    batch = dataclasses.replace(batch, logprobs=same)
    found = loss_gradient(policy, output, batch, Coefficients(clip=1e-4, value=0.5, entropy=0.0))
    expected = loss_gradient(policy, output, batch, Coefficients(clip=100.0, value=0.5, entropy=0.0))
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("weighted", [False, True])
def test_the_kernels_gradient_and_that_of_torch_are_one(weighted: bool) -> None:
    policy = make_policy(make_spec())
    c = Coefficients(clip=0.2, value=0.5, entropy=0.01)
    output, batch = make_minibatch(policy, 301, weighted=weighted)
    wide: dict[str, Any] = {
        field.name: value.double() if isinstance(value, torch.Tensor) and value.is_floating_point() else value
        for field in dataclasses.fields(Minibatch)
        for value in [getattr(batch, field.name)]
    }
    found = loss_gradient(policy, output, batch, c)
    exact = loss_gradient_by_torch(policy, output.double(), Minibatch(**wide), c)
    torch.testing.assert_close(found, exact.float(), rtol=2e-5, atol=2e-8)
    exact_output = output.double().requires_grad_()
    (by_autograd,) = torch.autograd.grad(ppo_loss(policy, exact_output, Minibatch(**wide), c)["loss"], exact_output)
    torch.testing.assert_close(exact, by_autograd, rtol=1e-9, atol=1e-12)


# Advantages of a policy that has changed since the actions were taken, against every course of a small game.
#
# The game has three steps of two actions. Its states are the actions taken so far. A batch of all eight courses,
# weighed by their probability under the old policy mu, makes every expectation a sum.

STEPS, GAMMA = 3, 0.9
COURSES = list(itertools.product(range(2), repeat=STEPS))
PREFIXES = [course[:t] for t in range(STEPS + 1) for course in {c[:t]: c for c in COURSES}.values()]


def table(seed: int, low: float, high: float) -> dict[tuple[int, ...], float]:
    """A number for each state: of a policy the probability of action 1, of rewards what the last action has earned."""
    numbers = torch.rand(len(PREFIXES), generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return {prefix: low + (high - low) * float(number) for prefix, number in zip(PREFIXES, numbers, strict=True)}


OLD, NOW, REWARDS, VALUES = table(0, 0.2, 0.8), table(1, 0.1, 0.9), table(2, -2.0, 2.0), table(3, -1.0, 1.0)


def probability(policy: dict[tuple[int, ...], float], state: tuple[int, ...], action: int) -> float:
    return policy[state] if action else 1 - policy[state]


def worth(state: tuple[int, ...]) -> float:
    """V of the policy now; 0 after the last step, which ends the episode."""
    if len(state) == STEPS:
        return 0.0
    return sum(probability(NOW, state, action) * worth_of_action(state, action) for action in range(2))


def worth_of_action(state: tuple[int, ...], action: int) -> float:
    after = (*state, action)
    return REWARDS[after] + GAMMA * worth(after)


def by_step(of: dict[tuple[int, ...], float], shift: int = 0) -> torch.Tensor:
    """`T x N`, a column for each course: the number of the state at t, or after it."""
    return torch.tensor([[of[course[: t + shift]] for course in COURSES] for t in range(STEPS)], dtype=torch.float64)


def every_course(values: dict[tuple[int, ...], float]) -> tuple[Batch, torch.Tensor, torch.Tensor]:
    """Returns the batch, its ratios and the probability of each course under the old policy."""
    taken = torch.tensor(COURSES, dtype=torch.float64).T
    old, now = (torch.where(taken == 1, by_step(policy), 1 - by_step(policy)) for policy in (OLD, NOW))
    ends = torch.zeros(STEPS, len(COURSES), dtype=torch.bool)
    ends[-1] = True
    batch = Batch(
        observations=torch.zeros(STEPS, len(COURSES), 1),
        actions=taken.long()[None],
        logprobs=old.log(),
        values=torch.cat([by_step(values), torch.full((1, len(COURSES)), 123.0).double()]),  # after an end: not used
        rewards=by_step(REWARDS, shift=1),
        ends=ends,
        resets=torch.zeros_like(ends),
        state=None,
    )
    return batch, now / old, old.prod(dim=0)


CONFIG = TrainConfig(gamma=GAMMA, gae_lambda=1.0, normalize_advantages=False)


@pytest.fixture
def clip_at(monkeypatch: pytest.MonkeyPatch) -> Callable[[float, float], None]:
    """Sets rho's and c's clip."""

    def set_both(rho_clip: float, c_clip: float) -> None:
        monkeypatch.setattr(module, "RHO_CLIP", rho_clip)
        monkeypatch.setattr(module, "C_CLIP", c_clip)

    return set_both


def test_given_an_action_the_advantage_is_its_worth_under_the_policy_now(
    clip_at: Callable[[float, float], None],
) -> None:
    """With clips that never bind and lambda 1, whatever the value function says. `g + V` estimates Q, `V + A` V."""
    batch, ratios, chances = every_course(VALUES)
    clip_at(1e9, 1e9)
    advantages, returns = advantages_and_returns(batch, ratios, CONFIG)
    for t in range(STEPS):
        for state in {course[:t] for course in COURSES}:
            here = torch.tensor([course[:t] == state for course in COURSES])
            target = (chances * returns[t])[here].sum() / chances[here].sum()
            assert target.item() == pytest.approx(worth(state))
            for action in range(2):
                taken = here & (batch.actions[0, t] == action)
                expected = (chances * advantages[t])[taken].sum() / chances[taken].sum()
                assert expected.item() == pytest.approx(worth_of_action(state, action) - VALUES[state])


@pytest.mark.parametrize("clip", [1e9, 1.0])
def test_the_policys_gradient_is_that_of_the_policy_now(clip: float, clip_at: Callable[[float, float], None]) -> None:
    """The last step's is exact with any clip: E_mu[ratio g grad log pi] = grad sum_a pi(a) r(a). One ratio, not two."""
    batch, ratios, chances = every_course(VALUES)
    clip_at(clip, clip)
    advantages, _ = advantages_and_returns(batch, ratios, CONFIG)
    for state in {course[: STEPS - 1] for course in COURSES}:
        p = NOW[state]
        expected = p * (1 - p) * (REWARDS[(*state, 1)] - REWARDS[(*state, 0)])  # by the logit of action 1
        here = torch.tensor([course[: STEPS - 1] == state for course in COURSES])
        grad_logp = batch.actions[0, -1] - p
        found = (chances * ratios[-1] * advantages[-1] * grad_logp)[here].sum() / chances[here].sum()
        twice = (chances * ratios[-1] * ratios[-1].clamp(max=clip) * advantages[-1] * grad_logp)[here].sum()
        assert found.item() == pytest.approx(expected)
        assert abs((twice / chances[here].sum()).item() - expected) > 1e-3, "the example must tell once from twice"


@pytest.mark.parametrize("rho_clip", [0.7, 1.0, 2.0])
@pytest.mark.parametrize("c_clip", [0.5, 1.0, 2.0])
def test_advantages_and_targets_are_the_written_out_sums(
    rho_clip: float, c_clip: float, clip_at: Callable[[float, float], None]
) -> None:
    """IMPALA's sum over what follows: A[t] = sum_s (gamma lambda)^(s-t) c[t] ... c[s-1] rho[s] d[s], until an end."""
    generator = torch.Generator().manual_seed(5)
    steps, agents, gae_lambda = 7, 9, 0.8
    values = torch.randn(steps + 1, agents, generator=generator)
    batch = Batch(
        observations=torch.zeros(steps, agents, 1),
        actions=torch.zeros(1, steps, agents),
        logprobs=torch.zeros(steps, agents),
        values=values,
        rewards=torch.randn(steps, agents, generator=generator),
        ends=torch.rand(steps, agents, generator=generator) < 0.2,
        resets=torch.zeros(steps, agents, dtype=torch.bool),
        state=None,
    )
    ratios = torch.rand(steps, agents, generator=generator) * 3
    clip_at(rho_clip, c_clip)
    settings = TrainConfig(gamma=GAMMA, gae_lambda=gae_lambda, normalize_advantages=False)
    advantages, returns = advantages_and_returns(batch, ratios, settings)
    for n in range(agents):
        errors = [
            float(batch.rewards[t, n] + GAMMA * (0.0 if batch.ends[t, n] else values[t + 1, n]) - values[t, n])
            for t in range(steps)
        ]
        for t in range(steps):
            own, target = 0.0, 0.0
            for s in range(t, steps):
                traces = [min(c_clip, float(ratios[u, n])) for u in range(t, s)]
                weight = (GAMMA * gae_lambda) ** (s - t)
                rho = min(rho_clip, float(ratios[s, n]))
                target += weight * math.prod(traces) * rho * errors[s]
                own += weight * math.prod(traces[1:]) * (1.0 if s == t else rho) * errors[s]
                if batch.ends[s, n]:
                    break
            assert returns[t, n].item() == pytest.approx(target + float(values[t, n]), rel=1e-4, abs=1e-5)
            assert advantages[t, n].item() == pytest.approx(own, rel=1e-4, abs=1e-5)
