"""The attention of a language model: every instruction set against the formula in double precision."""

import math

import pytest
import torch
from instruction_sets import four_threads, instruction_set  # noqa: F401 (fixtures)

from protein.trainer import kernels
from protein.trainer.kernels import _native, attention, attention_by_torch

EPSILON = 1e-6


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def angles(tokens: int, size: int) -> torch.Tensor:
    """Any `2 x T x 1 x D` will do: the kernel does not ask for cosines and sines."""
    return drawn(2, tokens, 1, size, seed=9)


def begins(rows: int, tokens: int) -> torch.Tensor:
    """Documents that begin at random places."""
    new = torch.rand(rows, tokens, generator=torch.Generator().manual_seed(3)) < 0.1
    return torch.where(new, torch.arange(tokens), 0).cummax(1).values.int()


def by_formula(
    projected: torch.Tensor, rotation: torch.Tensor | None, first: torch.Tensor | None, epsilon: float | None
) -> torch.Tensor:
    """One query after the other."""
    rows, tokens, _, heads, size = projected.shape
    turned = projected[:, :, :2]
    if epsilon is not None:
        turned = turned / (turned.square().mean(-1, keepdim=True) + epsilon).sqrt()
    if rotation is not None:
        swapped = torch.cat([turned[..., size // 2 :], turned[..., : size // 2]], -1)
        turned = turned * rotation[0][:, None] + swapped * rotation[1][:, None]
    found = []
    for row in range(rows):
        for token in range(tokens):
            low = 0 if first is None else int(first[row, token])
            query, keys = turned[row, token, 0], turned[row, low : token + 1, 1]
            weights = (torch.einsum("hd,thd->ht", query, keys) / math.sqrt(size)).softmax(-1)
            found.append(torch.einsum("ht,thd->hd", weights, projected[row, low : token + 1, 2]))
    return torch.stack(found).view(rows, tokens, heads, size)


# rows, tokens, heads, size, rotated, with documents, normed: sizes on both sides of a block, a panel and a vector.
CASES = [
    (2, 16, 2, 16, True, False, True),
    (1, 50, 3, 6, True, True, True),
    (2, 67, 1, 40, False, True, False),
    (1, 97, 2, 64, True, False, False),
    (2, 1, 2, 8, True, False, True),
    (1, 49, 1, 5, False, False, True),
]


@pytest.mark.parametrize(("rows", "tokens", "heads", "size", "rotated", "documents", "normed"), CASES)
def test_values_and_gradients_are_those_of_the_formula(
    rows: int, tokens: int, heads: int, size: int, rotated: bool, documents: bool, normed: bool
) -> None:
    projected, by_mixed = drawn(rows, tokens, 3, heads, size), drawn(rows, tokens, heads, size, seed=1)
    rotation = angles(tokens, size) if rotated else None
    first = begins(rows, tokens) if documents else None
    epsilon = EPSILON if normed else None
    exact = projected.double().requires_grad_()
    expected = by_formula(exact, None if rotation is None else rotation.double(), first, epsilon)
    expected.backward(by_mixed.double())
    assert exact.grad is not None
    for function in (attention, attention_by_torch):
        given = projected.clone().requires_grad_()
        found = function(given, rotation, first, norm_epsilon=epsilon)
        found.backward(by_mixed)
        assert given.grad is not None
        torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=5e-6)
        torch.testing.assert_close(given.grad.double(), exact.grad, rtol=1e-4, atol=2e-5)


def test_bfloat16_differs_by_the_rounding_of_its_numbers_alone() -> None:
    projected, by_mixed = drawn(2, 70, 3, 2, 16).bfloat16(), drawn(2, 70, 2, 16, seed=1).bfloat16()
    rotation, first = angles(70, 16), begins(2, 70)
    exact = projected.float().requires_grad_()
    expected = attention(exact, rotation, first, norm_epsilon=EPSILON)
    expected.backward(by_mixed.float())
    given = projected.clone().requires_grad_()
    found = attention(given, rotation, first, norm_epsilon=EPSILON)
    found.backward(by_mixed)
    assert found.dtype == torch.bfloat16 and given.grad is not None and exact.grad is not None
    torch.testing.assert_close(found, expected.bfloat16(), rtol=0, atol=0)
    torch.testing.assert_close(given.grad.float(), exact.grad, rtol=0.02, atol=0.1)


def test_without_gradients_the_values_are_the_same() -> None:
    projected = drawn(2, 20, 3, 2, 8)
    with torch.no_grad():
        plain = attention(projected)
    assert torch.equal(plain, attention(projected.requires_grad_()).detach())


def test_the_result_does_not_depend_on_threads(threads: None) -> None:
    projected = drawn(4, 128, 3, 8, 32).requires_grad_()
    results: list[tuple[torch.Tensor, torch.Tensor]] = []
    for count in (1, 4):
        kernels.set_threads(count)
        projected.grad = None
        mixed = attention(projected, angles(128, 32), norm_epsilon=EPSILON)
        mixed.backward(torch.ones_like(mixed))
        assert projected.grad is not None
        results.append((mixed.detach().clone(), projected.grad.clone()))
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


def test_a_number_that_is_not_one_is_passed_on() -> None:
    projected = drawn(1, 10, 3, 1, 8)
    projected[0, 4, 1, 0, 3] = math.nan
    found = attention(projected, norm_epsilon=EPSILON)
    assert bool(found[:, :4].isfinite().all()) and bool(found[:, 4:].isnan().all())


def test_tensors_of_the_wrong_shape_are_refused() -> None:
    projected = drawn(2, 10, 3, 2, 8)
    with pytest.raises(ValueError, match=r"rotation must be a contiguous .* shape \(2, 10, 1, 8\)"):
        attention(projected, angles(9, 8))
    with pytest.raises(ValueError, match=r"first must be a contiguous .*int32.* shape \(2, 10\)"):
        attention(projected, None, torch.zeros(2, 10, dtype=torch.int64))
    with pytest.raises(ValueError, match="projected must hold 3 parts, got 2"):
        attention(projected[:, :, :2].contiguous())
    with pytest.raises(ValueError, match="a rotation needs an even head size"):
        attention(drawn(1, 4, 3, 1, 5), angles(4, 5))
    mixed, sums = projected.new_empty(2, 10, 2, 8), projected.new_empty(2, 2, 10)
    with pytest.raises(ValueError, match="mixed is missing"):
        _native.attention_forward(projected, None, None, None, sums, False, 0.0)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="by_projected is missing"):
        _native.attention_backward(projected, None, None, mixed, sums, mixed, None, False, 0.0)  # type: ignore[arg-type]
