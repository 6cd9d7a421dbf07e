"""Which segments are sampled, against the formula."""

import pytest
import torch

from protein.trainer.errors import DivergedError
from protein.trainer.ppo.segments import prioritized, shuffled


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_shuffled_has_every_segment_once_and_a_short_last_minibatch() -> None:
    parts = list(shuffled(10, 4, generator()))
    assert [len(part) for part in parts] == [4, 4, 2]
    assert sorted(torch.cat(parts).tolist()) == list(range(10))
    assert not torch.equal(torch.cat(parts), torch.cat(list(shuffled(10, 4, generator(1)))))


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("beta", [0.0, 0.4, 1.0])
def test_segments_are_drawn_in_proportion_to_their_priorities_and_weighed_against_it(alpha: float, beta: float) -> None:
    advantages = torch.tensor([[0.5, -1.0, 0.0, 4.0], [0.5, 1.0, 0.1, -4.0]])  # sums 1, 2, 0.1 and 8
    priorities = torch.tensor([1.0, 2.0, 0.1, 8.0], dtype=torch.float64).pow(alpha)
    expected = priorities / priorities.sum()
    draws, g, n = torch.zeros(4), generator(), 500
    for _ in range(n):
        for chosen, weights in prioritized(advantages, 1, alpha=alpha, beta=beta, generator=g):
            draws[chosen] += 1 / (4 * n)
            torch.testing.assert_close(weights, (4 * expected[chosen]).pow(-beta).float(), rtol=1e-4, atol=1e-5)
    assert ((draws - expected).abs() < 4 * (expected * (1 - expected) / (4 * n)).sqrt() + 1e-9).all()


def test_a_full_correction_makes_the_weighted_mean_unbiased() -> None:
    """With beta 1 the expectation of weight times quantity is the plain mean, whatever the preference."""
    advantages, quantity = torch.tensor([[1.0, 2.0, 3.0, 10.0]]), torch.tensor([5.0, -1.0, 2.0, 0.5])
    (chosen, weights) = next(prioritized(advantages, 4, alpha=1.0, beta=1.0, generator=generator()))
    probabilities = advantages[0] / advantages.sum()
    expectation = (probabilities[chosen] * weights * quantity[chosen]).sum()
    assert expectation.item() == pytest.approx(quantity.mean().item(), rel=1e-4)


def test_a_minibatch_holds_no_segment_twice_and_an_epoch_has_as_many_as_without_priorities() -> None:
    parts = list(prioritized(torch.rand(3, 10), 4, alpha=1.0, beta=0.5, generator=generator()))
    assert len(parts) == 3
    for chosen, weights in parts:
        assert len(chosen) == len(weights) == len(set(chosen.tolist())) == 4


def test_without_any_surprise_all_are_alike() -> None:
    ((chosen, weights),) = prioritized(torch.zeros(5, 6), 6, alpha=0.8, beta=0.7, generator=generator())
    assert sorted(chosen.tolist()) == list(range(6))
    torch.testing.assert_close(weights, torch.ones(6))


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_advantages_that_are_not_finite_are_divergence(bad: float) -> None:
    advantages = torch.ones(2, 3)
    advantages[1, 2] = bad
    with pytest.raises(DivergedError, match="not finite"):
        next(prioritized(advantages, 2, alpha=0.5, beta=0.5, generator=generator()))
