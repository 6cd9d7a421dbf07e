"""The linear recurrence in blocks against the definition, step by step, and its gradient against differences."""

import pytest
import torch

from protein.trainer.kernels.scan import scan


def normal(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def slow(decays: torch.Tensor, inputs: torch.Tensor, before: torch.Tensor, cuts: torch.Tensor) -> torch.Tensor:
    y, found = before, []
    for t in range(len(inputs)):
        y = inputs[t] + decays[t] * torch.where(cuts[t], 0.0, y)
        found.append(y)
    return torch.stack(found)


@pytest.mark.parametrize("steps", [1, 2, 3, 4, 7, 12, 64, 90])
def test_a_scan_is_the_recurrence_and_a_cut_hides_all_that_was_before_it(steps: int) -> None:
    """Lengths with and without divisors. In one column everything up to its last cut is NaN."""
    decays, inputs = normal(steps, 5, 3, seed=1).sigmoid(), normal(steps, 5, 3, seed=2)
    before, nowhere = normal(5, 3, seed=3), torch.zeros(steps, 5, 1, dtype=torch.bool)
    cuts = torch.rand(steps, 5, 1, generator=torch.Generator().manual_seed(4)) < 0.3
    torch.testing.assert_close(scan(decays, inputs, before), slow(decays, inputs, before, nowhere))
    torch.testing.assert_close(scan(decays, inputs), slow(decays, inputs, torch.zeros(5, 3).double(), nowhere))
    expected = slow(decays, inputs, before, cuts)
    torch.testing.assert_close(scan(decays, inputs, before, cuts), expected)
    single = scan(decays.float(), inputs.float(), before.float(), cuts)
    torch.testing.assert_close(single, expected.float(), rtol=1e-5, atol=2e-6)
    last = max(int(torch.arange(steps)[cuts[:, 2, 0]].max()) if cuts[:, 2].any() else 0, steps // 2)
    cuts[last, 2] = True
    wanted = slow(decays, inputs, before, cuts)
    for rows in (decays, inputs):
        rows[:last, 2] = float("nan")
    before[2] = float("nan")
    found = scan(decays, inputs, before, cuts)
    assert found[:last, 2].isnan().all()
    found[:last, 2] = wanted[:last, 2]
    torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("steps", [1, 3, 8])
def test_its_gradient_is_that_of_small_differences(steps: int) -> None:
    decays, inputs, before = normal(steps, 2, 2, seed=1), normal(steps, 2, 2, seed=2), normal(2, 2, seed=3)
    cuts = torch.rand(steps, 2, 1, generator=torch.Generator().manual_seed(5)) < 0.3
    given = decays.requires_grad_(), inputs.requires_grad_()
    for rest in ((None, None), (before, None), (before, cuts)):
        assert torch.autograd.gradcheck(lambda a, x, rest=rest: scan(a, x, *rest), given)
