"""Which segments are sampled, against the formula."""

import itertools
from typing import Any

import pytest
import torch

from protein.trainer.errors import DivergedError
from protein.trainer.ppo.segments import inclusion_chances, prioritized, shuffled, systematic


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


def slow_chances(priorities: list[float], size: int) -> list[float]:
    """By the definition: whoever would have more than 1 gets 1, and the others share the rest, until nobody has."""
    certain: set[int] = set()
    while True:
        rest = sum(p for i, p in enumerate(priorities) if i not in certain)
        q = [1.0 if i in certain else (size - len(certain)) * p / rest for i, p in enumerate(priorities)]
        if not (over := {i for i, chance in enumerate(q) if chance > 1 + 1e-12}):
            return q
        certain |= over


@pytest.mark.parametrize("size", [1, 2, 3, 5, 6])
@pytest.mark.parametrize(
    "priorities", [[1.0] * 6, [1.0, 2.0, 3.0, 10.0, 0.5, 4.0], [1e-6, 50.0, 1e-6, 49.0, 1.0, 1.0], [7.0, 7, 7, 1, 1, 1]]
)
def test_chances_are_in_proportion_to_priorities_and_never_above_one(priorities: list[float], size: int) -> None:
    found = inclusion_chances(torch.tensor(priorities, dtype=torch.float64), size)
    torch.testing.assert_close(found, torch.tensor(slow_chances(priorities, size), dtype=torch.float64))
    assert found.sum().item() == pytest.approx(size) and found.max() <= 1.0


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5])
def test_each_segment_is_chosen_with_its_chance_and_the_weighted_mean_is_unbiased(size: int) -> None:
    """Exactly: over all orders, and over all first points, between which the choice does not change."""
    priorities, quantity = (
        torch.tensor([1.0, 2.0, 3.0, 10.0, 0.5]).double(),
        torch.tensor([5.0, -1, 2, 0.5, 9]).double(),
    )
    chances, n = inclusion_chances(priorities, size), 5
    weights = size / (n * chances)
    chosen_in, mean, orders = torch.zeros(n).double(), 0.0, list(itertools.permutations(range(n)))
    for order in map(torch.tensor, orders):
        steps = sorted({0.0, 1.0, *(float(end) % 1.0 for end in chances[order].cumsum(0))})
        for low, high in itertools.pairwise(steps):
            if high - low < 1e-9:  # one end twice, but for rounding
                continue
            chosen = systematic(chances, order, (low + high) / 2)
            assert len(set(chosen.tolist())) == size
            chosen_in[chosen] += (high - low) / len(orders)
            mean += (high - low) / len(orders) * float((weights * quantity)[chosen].mean())
    torch.testing.assert_close(chosen_in, chances)
    assert mean == pytest.approx(quantity.mean().item())


def test_where_a_minibatch_is_the_whole_batch_nothing_is_preferred_and_nothing_corrected() -> None:
    advantages = torch.tensor([[1.0, 2.0, 3.0, 10.0]])
    ((chosen, weights),) = prioritized(advantages, 4, alpha=1.0, beta=1.0, generator=generator())
    assert sorted(chosen.tolist()) == list(range(4))
    torch.testing.assert_close(weights, torch.ones(4))


def test_the_mean_of_drawn_minibatches_is_unbiased() -> None:
    advantages, quantity = (
        torch.tensor([[1.0, 2.0, 3.0, 10.0, 0.5, 0.5]]),
        torch.tensor([5.0, -1.0, 2.0, 0.5, 9.0, -3.0]),
    )
    g, means = generator(), []
    for _ in range(2000):
        for chosen, weights in prioritized(advantages, 3, alpha=1.0, beta=1.0, generator=g):
            means.append(float((weights * quantity[chosen]).mean()))
    found = torch.tensor(means)
    assert abs(found.mean() - quantity.mean()) < 4 * found.std() / len(found) ** 0.5


def test_no_float64_is_asked_of_the_device() -> None:
    """MPS has none. The advantages' own tensor stands for the device's: whatever is made of it must come to the CPU."""

    class Device(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            name = getattr(func, "__name__", "")
            if name == "cpu":
                return args[0].as_subclass(torch.Tensor)
            if name == "double" or any(one is torch.float64 for one in [*args, *(kwargs or {}).values()]):
                raise TypeError("this device has no float64")
            return super().__torch_function__(func, types, args, kwargs)  # type: ignore[no-untyped-call]

    advantages = torch.rand(3, 10)
    device = list(prioritized(advantages.as_subclass(Device), 4, alpha=1.0, beta=0.5, generator=generator()))
    host = list(prioritized(advantages, 4, alpha=1.0, beta=0.5, generator=generator()))
    for (chosen, weights), (same, alike) in zip(device, host, strict=True):
        assert torch.equal(chosen, same) and torch.equal(weights, alike)


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
