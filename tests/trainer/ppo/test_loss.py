"""PPO's loss against one written out sample by sample, and its gradient against automatic differentiation."""

import dataclasses
import math
from typing import Any

import pytest
import torch
from training_parts import make_policy, make_spec

from protein.trainer.model.policy import Policy
from protein.trainer.ppo.loss import Coefficients, Minibatch, loss_gradient, loss_gradient_by_torch, ppo_loss

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
