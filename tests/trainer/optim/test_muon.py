"""Muon's iteration against the singular values that it shall reach; stacked matrices; many shapes in one step."""

import pytest
import torch
from torch import nn

from protein.trainer.optim.optimizer import BATCHED_SIDE, COEFFICIENTS, ITERATIONS, Group, Muon, orthogonalised


@pytest.mark.parametrize("shape", [(3, 8, 8), (2, 8, 24), (4, 24, 8), (2, BATCHED_SIDE, BATCHED_SIDE + 8)])
def test_singular_values_are_mapped_by_the_quintic(shape: tuple[int, int, int]) -> None:
    matrices = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    left, values, right = torch.linalg.svd(matrices.double(), full_matrices=False)
    values = values / values.norm(dim=1, keepdim=True)
    a, b, c = COEFFICIENTS
    for _ in range(ITERATIONS):
        values = a * values + b * values**3 + c * values**5
    expected = left @ torch.diag_embed(values) @ right
    found = orthogonalised(matrices)
    assert found.shape == shape and found.is_contiguous()
    assert (found.double() - expected).norm() < 0.03 * expected.norm()


def group(parameters: list[nn.Parameter], stacked: int = 1) -> Group:
    return Group(
        parameters=parameters,
        method="muon",
        learning_rate=0.1,
        weight_decay=0.2,
        betas=(0.9, 0.95),
        stacked=stacked,
    )


def drawn(*shapes: tuple[int, int]) -> list[nn.Parameter]:
    generator = torch.Generator().manual_seed(1)
    parameters = [nn.Parameter(torch.randn(shape, generator=generator)) for shape in shapes]
    for parameter in parameters:
        parameter.grad = torch.randn(parameter.shape, generator=generator)
    return parameters


def test_stacked_matrices_move_as_if_each_were_alone() -> None:
    (whole,) = drawn((24, 8))
    assert whole.grad is not None
    parts = [nn.Parameter(part.clone()) for part in whole.detach().split(8)]
    for part, gradient in zip(parts, whole.grad.split(8), strict=True):
        part.grad = gradient.clone()
    one, other = Muon(group([whole], stacked=3)), Muon(group(parts))
    for _ in range(3):
        one.step()
        other.step()
    assert torch.equal(whole, torch.cat(list(parts)))
    before = whole.detach().clone()
    Muon(group([whole])).step()  # not split: another step
    assert not torch.allclose(whole, before)


def test_shapes_may_come_in_any_order_and_the_state_is_by_number() -> None:
    shapes = (8, 8), (8, 16), (8, 8), (16, 8), (8, 16)
    together, alone = drawn(*shapes), drawn(*shapes)
    one, others = Muon(group(together)), [Muon(group([parameter])) for parameter in alone]
    for _ in range(2):
        for optimizer in (one, *others):
            optimizer.step()
    for number, (ours, theirs) in enumerate(zip(together, alone, strict=True)):
        torch.testing.assert_close(ours, theirs)
        expected = others[number].state()[0]["momentum_buffer"]
        torch.testing.assert_close(one.state()[number]["momentum_buffer"], expected)
