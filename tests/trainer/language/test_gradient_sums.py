"""Sums of gradients that run beside the backward pass."""

from collections.abc import Callable

import pytest
import torch
from torch import nn

from protein.trainer.language.update import GradientSums
from protein.trainer.machine.distributed import World


class Twins(World):
    """Two processes with the same gradients: a sum doubles. It notes what is summed, and how much is there by then."""

    def __init__(self, gradients: torch.Tensor) -> None:
        super().__init__(0, 2)
        self.gradients = gradients
        self.begun: list[tuple[int, int]] = []  # first entry and length
        self.complete: list[bool] = []  # whether all later entries were filled
        self.waited = 0

    def sum_later_(self, tensor: torch.Tensor) -> Callable[[], None]:
        first = (tensor.data_ptr() - self.gradients.data_ptr()) // tensor.element_size()
        self.begun.append((first, tensor.numel()))
        self.complete.append(bool((self.gradients[first:] != 0).all()))

        def wait() -> None:
            self.waited += 1
            tensor.mul_(2)

        return wait


def flat(layers: nn.Sequential) -> torch.Tensor:
    gradients = torch.zeros(sum(parameter.numel() for parameter in layers.parameters()))
    parts = gradients.split([parameter.numel() for parameter in layers.parameters()])
    for parameter, part in zip(layers.parameters(), parts, strict=True):
        parameter.grad = part.view_as(parameter)
    return gradients


@pytest.mark.parametrize(("part_bytes", "parts"), [(1, 6), (4 * 12, 3), (10**9, 1)])
def test_parts_are_summed_once_each_as_soon_as_they_are_filled(part_bytes: int, parts: int) -> None:
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3))
    inputs = torch.randn(5, 3)
    gradients = flat(layers)
    layers(inputs).square().sum().backward()
    expected = gradients.clone()
    gradients.zero_()
    world = Twins(gradients)
    sums = GradientSums(list(layers.parameters()), gradients, world, part_bytes=part_bytes)
    layers(inputs[:2]).square().sum().backward()
    assert world.begun == [], "only the last micro-batch begins sums"
    sums.begin()
    layers(inputs[2:]).square().sum().backward()
    begun_during = len(world.begun)
    sums.finish()
    assert begun_during == parts == len(world.begun) == world.waited, "all sums began beside the backward pass"
    assert all(world.complete)
    places = [first for first, _ in world.begun]
    assert places == sorted(places, reverse=True) and sum(length for _, length in world.begun) == len(gradients)
    torch.testing.assert_close(gradients, 2 * expected)


def test_a_parameter_without_a_gradient_is_summed_at_the_end() -> None:
    layers = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    gradients = flat(layers)
    world = Twins(gradients)
    sums = GradientSums(list(layers.parameters()), gradients, world, part_bytes=1)
    sums.begin()
    layers[0](torch.ones(1, 2)).sum().backward()
    assert world.begun == [], "the last layer's come first, on all processes alike"
    sums.finish()
    assert len(world.begun) == 4 == world.waited
    sums.finish()
    assert len(world.begun) == 4


def test_one_process_sums_nothing() -> None:
    layer = nn.Sequential(nn.Linear(2, 2))
    gradients = flat(layer)
    sums = GradientSums(list(layer.parameters()), gradients, World())
    sums.begin()
    layer(torch.ones(1, 2)).sum().backward()
    before = gradients.clone()
    sums.finish()
    assert gradients.equal(before)
