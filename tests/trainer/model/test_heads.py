"""Distributions and value heads: torch's own distributions, closed forms, and automatic differentiation."""

import math
from typing import Any

import pytest
import torch
from torch.distributions import Categorical, Normal
from training_parts import make_spec

from protein.trainer.model.heads import CategoricalValue, Discrete, Distribution, Gaussian, distribution_of

EACH: dict[str, Distribution] = {
    "one": Discrete((4,)),
    "several": Discrete((3, 2, 5)),
    "gaussian": Gaussian(3),
}


def drawn(distribution: Distribution, batch: int = 200) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Returns outputs, actions `K x B` and their log-probabilities."""
    generator = torch.Generator().manual_seed(0)
    output = torch.randn(distribution.rows, batch, generator=generator)
    noise = torch.empty(distribution.noise_rows, batch)
    distribution.fill_noise_(noise, generator)
    actions = torch.zeros(batch, distribution.components, dtype=distribution.dtype)
    logprobs = torch.full((batch,), math.nan)
    distribution.sample(output, noise, actions, logprobs)
    return output, actions.t().contiguous(), logprobs


@pytest.mark.parametrize("kind", EACH)
def test_log_probabilities_entropies_and_modes_are_torchs(kind: str) -> None:
    distribution = EACH[kind]
    output, actions, logprobs = drawn(distribution)
    terms = distribution.terms(output, actions)
    if isinstance(distribution, Discrete):
        theirs: list[Any] = [Categorical(logits=part.t()) for part in torch.split(output, distribution.sizes)]
        modes = torch.stack([part.argmax(0) for part in torch.split(output, distribution.sizes)])
    else:
        theirs = [Normal(output[k], output[3 + k].exp()) for k in range(3)]
        modes = output[:3]
    logp = sum(part.log_prob(action) for part, action in zip(theirs, actions, strict=True))
    torch.testing.assert_close(terms.logp, logp, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(logprobs, logp, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(terms.entropy, sum(part.entropy() for part in theirs), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(distribution.mode(output).t(), modes.to(distribution.dtype))


@pytest.mark.parametrize("each", [False, True])
@pytest.mark.parametrize("kind", EACH)
def test_derivatives_are_those_of_autograd(kind: str, each: bool) -> None:
    """Given the loss's by entropy as one number, or one a sample."""
    distribution = EACH[kind]
    output, actions, _ = drawn(distribution)
    output = output.double()
    by_logp = torch.randn(200, dtype=torch.float64)
    by_entropy = torch.randn(200, dtype=torch.float64) if each else 0.3
    found = torch.full_like(output, math.nan)
    distribution.gradient_(distribution.terms(output, actions), by_logp, by_entropy, found)
    output.requires_grad_()
    terms = distribution.terms(output, actions)
    (terms.logp * by_logp + terms.entropy * by_entropy).sum().backward()
    torch.testing.assert_close(found, output.grad, rtol=1e-9, atol=1e-12)


def test_an_environment_has_the_distribution_of_its_actions() -> None:
    assert isinstance(distribution_of(make_spec(continuous_actions=2)), Gaussian)
    several = distribution_of(make_spec(action_sizes=(3, 2)))
    assert isinstance(several, Discrete) and (several.rows, several.components) == (5, 2)


@pytest.mark.parametrize(("bins", "limit"), [(2, 1.0), (7, 20.0), (41, 100.0), (255, 1e9)])
def test_two_hot_targets_decode_to_themselves_within_the_grid_and_are_clamped_beyond(bins: int, limit: float) -> None:
    head = CategoricalValue(bins, limit)
    inside = torch.tensor([-1.0, -0.999, -0.3, -1e-3, 0.0, 1e-4, 0.02, 0.77, 1.0]) * limit
    targets = torch.cat([inside, torch.tensor([-2 * limit, 1.5 * limit])])
    wanted = torch.cat([inside, torch.tensor([-limit, limit])])
    spread = head.two_hot(targets)
    torch.testing.assert_close(spread.sum(0), torch.ones(len(targets)), rtol=1e-5, atol=1e-6)
    assert ((spread > 1e-6).sum(0) <= 2).all() and (spread > -1e-6).all()
    decoded = head.decode(spread.clamp_min(0).log())
    torch.testing.assert_close(decoded, wanted, rtol=1e-4, atol=1e-5 * limit)


def test_equal_bins_are_a_value_of_nothing_and_decoding_keeps_the_shape() -> None:
    head = CategoricalValue(41, 100.0)
    torch.testing.assert_close(head.decode(torch.zeros(41, 3, 5)), torch.zeros(3, 5), rtol=0, atol=1e-4)
    output = torch.randn(41, 3, 5)
    torch.testing.assert_close(head.decode(output).flatten(), head.decode(output.flatten(1)))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_distributional_value_is_decoded_in_full_precision(dtype: torch.dtype) -> None:
    """In float16 the outer bins would be infinite."""
    head = CategoricalValue(41, 1e6)
    output = torch.randn(41, 30).to(dtype)
    with torch.autocast("cpu", dtype=dtype):
        found = head.decode(output)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, head.decode(output.float()))
