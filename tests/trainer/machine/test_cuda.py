"""Copies to a device: pinned, and without the host waiting."""

from pathlib import Path
from typing import Any

import pytest
import torch
from language_runs import small, write_corpus
from whole_runs import go, same, tensors

from protein.trainer.language import update
from protein.trainer.language.config import LanguageConfig
from protein.trainer.machine import cuda
from protein.trainer.machine.cuda import host_zeros, to_device
from protein.trainer.machine.stopwatch import Stopwatch

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


# CUDA graphs: runs with them are those without.
#
# Without a GPU a stand-in takes the graph's place: it computes at each call what a graph would replay. So what goes in
# and comes out is tested everywhere, and the recording itself where there is a GPU.

HAS_GPU = torch.cuda.is_available()


class StandIn:
    """Computes at each call what a graph would replay, on the same tensors."""

    def __init__(self, compute: Any, examples: Any, *, shares_with: Any = None) -> None:
        self._compute = compute
        self._inputs = [None if example is None else example.clone() for example in examples]
        compute(*self._inputs)

    def __call__(self, *inputs: torch.Tensor | None) -> torch.Tensor:
        for own, given in zip(self._inputs, inputs, strict=True):
            assert (own is None) == (given is None)
            if own is not None and given is not None:
                own.copy_(given)
        output: torch.Tensor = self._compute(*self._inputs)
        return output


GRAPH: type[Any] = cuda.Graph if HAS_GPU else StandIn


class Counted:
    """A graph, or its stand-in; `made` and `called` count, and `computes` tells that what is recorded runs."""

    made = called = 0
    computes = False

    def __init__(self, compute: Any, examples: Any, *, shares_with: Any = None) -> None:
        def marked(*inputs: Any) -> Any:
            Counted.computes = True
            output = compute(*inputs)
            Counted.computes = False
            return output

        self.graph = GRAPH(marked, examples, shares_with=None if shares_with is None else shares_with.graph)
        Counted.made += 1

    def __call__(self, *inputs: Any) -> Any:
        Counted.called += 1
        return self.graph(*inputs)


@pytest.fixture
def recording(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Records graphs, or stand-ins. No stopwatch may be switched in them: some wait for the device."""
    switch = Stopwatch.switch

    def switched(stopwatch: Stopwatch, section: str) -> None:
        assert not Counted.computes
        switch(stopwatch, section)

    monkeypatch.setattr(Stopwatch, "switch", switched)
    monkeypatch.setattr(Counted, "made", 0)
    monkeypatch.setattr(Counted, "called", 0)
    monkeypatch.setattr(cuda, "Graph", Counted)
    if not HAS_GPU:
        monkeypatch.setattr(cuda, "can_record", lambda device: True)
        monkeypatch.setattr(update, "free_bytes", lambda device: 1e9)
    return monkeypatch


def config_of(folder: Path, steps: int = 30, **train: Any) -> LanguageConfig:
    device = "cuda" if HAS_GPU else "cpu"
    return small(write_corpus(folder), steps=steps, train={"device": device, **train})


def assert_usual(config: LanguageConfig, folder: Path, patch: pytest.MonkeyPatch) -> None:
    """The run in `folder / "with"` is the one without cuda."""
    patch.setattr(cuda, "can_record", lambda device: False)
    go(config, folder / "without")
    one, other = tensors(folder / "with"), tensors(folder / "without")
    if HAS_GPU:  # which may sum the gradients of an embedding in any order
        assert all(torch.allclose(one[name].float(), other[name].float(), atol=1e-3) for name in one)
    else:
        assert same(one, other)


@pytest.mark.parametrize(
    ("train", "made", "called"),
    [
        ({}, 2, 60),  # with documents and without them; two micro-batches a step
        ({"optimizer": "adamw"}, 2, 60),
        ({"micro_batch": 3}, 4, 90),  # the last one has two rows
        ({"precision": "bf16"}, 2, 60),
    ],
)
def test_a_run_with_graphs_is_the_usual_one(
    train: dict[str, Any], made: int, called: int, recording: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    config = config_of(tmp_path / "data", **train)
    go(config, tmp_path / "with")
    assert (Counted.made, Counted.called) == (made, called)
    assert_usual(config, tmp_path, recording)


def test_passes_that_need_much_memory_are_not_recorded(recording: pytest.MonkeyPatch, tmp_path: Path) -> None:
    free = iter([1e9, 0.8e9])
    recording.setattr(update, "free_bytes", lambda device: next(free))
    go(config_of(tmp_path / "data", steps=1))
    assert Counted.made == 0


def test_what_cannot_be_recorded_is_computed(
    recording: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Fails:
        def __init__(self, *_: Any, **__: Any) -> None:
            raise RuntimeError("no memory")

    recording.setattr(cuda, "Graph", Fails)
    config = config_of(tmp_path / "data")
    go(config, tmp_path / "with")
    said = "no CUDA graphs of the forward and backward passes, going on without them: no memory"
    assert [record.getMessage() for record in caplog.records] == [said]
    assert_usual(config, tmp_path, recording)
