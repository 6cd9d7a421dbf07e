"""Copies to a device: pinned, and without the host waiting."""

from typing import Any

import torch

from protein.trainer.machine.cuda import host_zeros, to_device

CPU = torch.device("cpu")


class Recorded:
    """Stands for a tensor on the host and notes what is done with it: this needs no GPU."""

    device = CPU

    def __init__(self, *, pinned: bool) -> None:
        self.pinned = pinned
        self.calls: list[Any] = []

    def is_pinned(self) -> bool:
        return self.pinned

    def pin_memory(self) -> "Recorded":
        self.calls.append("pin")
        return self

    def to(self, device: torch.device, **options: bool) -> "Recorded":
        self.calls.append((device.type, options))
        return self


def test_a_tensor_that_is_there_is_not_copied() -> None:
    tensor = torch.ones(3)
    assert to_device(tensor, CPU) is tensor


def test_another_device_gets_a_copy() -> None:
    moved = to_device(torch.ones(3), torch.device("meta"))
    assert moved.device.type == "meta" and moved.shape == (3,)


def test_a_gpu_gets_it_from_pinned_memory_and_the_host_goes_on() -> None:
    cuda = torch.device("cuda")
    for pinned, first in ((False, ["pin"]), (True, [])):
        tensor: Any = Recorded(pinned=pinned)
        to_device(tensor, cuda)
        assert tensor.calls == [*first, ("cuda", {"non_blocking": True})]


def test_buffers_are_zero_and_of_the_wanted_type() -> None:
    buffer = host_zeros(2, 3, dtype=torch.bool, pin=False)
    assert buffer.shape == (2, 3) and buffer.dtype == torch.bool and not buffer.any()
