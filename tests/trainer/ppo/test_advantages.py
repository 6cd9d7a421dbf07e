"""Advantages of a policy that has changed since the actions were taken, against every course of a small game.

The game has three steps of two actions. Its states are the actions taken so far. A batch of all eight courses, weighed
by their probability under the old policy mu, makes every expectation a sum.
"""

import itertools
import math
from collections.abc import Callable

import pytest
import torch

from protein.trainer.config import TrainConfig
from protein.trainer.ppo import loss as module
from protein.trainer.ppo.loss import advantages_and_returns
from protein.trainer.ppo.rollout import Batch

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
