"""How many rows go through the network at once."""

from pathlib import Path
from typing import Any

import pytest
import torch
from language_runs import ROWS, STEP, small, write_corpus
from small_models import ARCHES, make_model
from whole_runs import go

from protein.trainer.errors import OutOfMemoryError
from protein.trainer.language import micro_batch
from protein.trainer.language.config import ModelConfig
from protein.trainer.language.micro_batch import (
    cached_rows,
    estimated_parameters,
    even_rows,
    largest_fitting,
    require_memory,
    row_bytes,
)
from protein.trainer.machine.checkpoint import FILE_NAME


@pytest.mark.parametrize(
    ("rows", "largest", "size"),
    [(32, 8, 8), (32, 100, 32), (32, 7, 4), (30, 8, 6), (7, 5, 4), (13, 12, 7), (1, 1, 1), (8, 0, 1), (11, 3, 3)],
)
def test_micro_batches_share_the_rows_evenly(rows: int, largest: int, size: int) -> None:
    assert even_rows(rows, largest) == size
    assert size <= max(largest, 1)


@pytest.mark.parametrize(("width", "length", "rows"), [(128, 256, 8), (32, 256, 32), (1024, 1024, 1)])
def test_the_cache_holds_one_layers_activations(width: int, length: int, rows: int) -> None:
    assert cached_rows(width, length) == rows


@pytest.mark.parametrize("arch", ARCHES)
def test_what_a_row_takes_grows_with_its_length_and_the_depth(arch: str) -> None:
    small_one, deep = make_model(arch), make_model(arch, num_layers=4, width_ratio=8.0)
    once, twice = row_bytes(small_one, 8), row_bytes(small_one, 16)
    assert twice == pytest.approx(2 * once, rel=0.2)
    assert 1.4 * twice < row_bytes(deep, 16) < 2.2 * twice
    # At least what every block keeps: its input, queries, keys, values, and four widths of the feed-forward network.
    assert twice > 2 * 16 * 32 * 4 * (1 + 3 + 4)
    parameters = sum(parameter.numel() for parameter in small_one.parameters())
    assert estimated_parameters(small_one.config, 50) == pytest.approx(parameters, rel=0.2)


class Memory:
    """A device of `total` bytes, of which each row of a pass takes `each` and the network `fixed`."""

    def __init__(self, total: float, each: float, fixed: float = 0.0, lies: float = 0.0) -> None:
        self.total, self.each, self.fixed, self.lies = total, each, fixed, lies
        self.peak, self.tried = 0.0, list[int]()

    def attempt(self, rows: int) -> None:
        self.tried.append(rows)
        self.peak = self.fixed + rows * self.each * (1 + (self.lies if rows > 2 else 0))
        if self.peak > self.total:
            raise torch.OutOfMemoryError("CUDA out of memory")

    def free(self) -> float:
        return self.total - self.peak


@pytest.mark.parametrize(
    ("memory", "rows", "reserved", "size"),
    [
        (Memory(1000, 1), 64, 0, 64),  # all
        (Memory(1000, 100), 64, 0, 8),  # nine would fit, and eight share the rows evenly
        (Memory(1000, 100), 64, 400, 4),
        (Memory(1000, 600), 64, 0, 1),  # not even two
        (Memory(1000, 100, lies=0.5), 64, 0, 4),  # a larger pass takes more than it should
        (Memory(1000, 1), 1, 0, 1),
    ],
)
def test_the_largest_that_fits_is_found_by_trying(memory: Memory, rows: int, reserved: float, size: int) -> None:
    assert largest_fitting(rows, memory.attempt, memory.free, reserved) == size
    assert len(memory.tried) <= 5


def test_not_even_one_row() -> None:
    memory = Memory(1000, 2000)
    with pytest.raises(torch.OutOfMemoryError):
        largest_fitting(8, memory.attempt, memory.free, 0)


def test_no_memory_for_one_sequence_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        OutOfMemoryError,
        match=r"one sequence of 256 tokens and a network of 1,000,000 parameters need about 0.0158 GiB to train, and "
        r"0.00931 GiB are free: lower model.sequence_length, model.num_layers or model.width_ratio",
    ):
        require_memory(1_000_000, 10**6, ModelConfig(), 1e7)
    data = write_corpus(tmp_path / "small")
    for free in (1e5, 6e5):  # before the network is made, and after
        monkeypatch.setattr(micro_batch, "free_bytes", lambda device, free=free: free)
        with pytest.raises(OutOfMemoryError, match=r"lower model\.sequence_length") as caught:
            go(small(data))
        assert "\n" not in str(caught.value)


def test_a_control_groups_limit_counts(tmp_path: Path) -> None:
    group = tmp_path / "sys/fs/cgroup/jobs/one"
    group.mkdir(parents=True)
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("0::/jobs/one\n")
    (group / "memory.max").write_text("max\n")  # no limit
    (group / "memory.current").write_text("3000000\n")
    assert micro_batch._left_by_groups(tmp_path) == []
    (group.parent / "memory.max").write_text("5000000\n")
    (group.parent / "memory.current").write_text("4000000\n")
    assert micro_batch._left_by_groups(tmp_path) == [1e6]
    (group.parent / "memory.stat").write_text("anon 500000\ninactive_file 2000000\nactive_file 1000000\n")
    assert micro_batch._left_by_groups(tmp_path) == [4e6], "the kernel gives back what files take"
    assert 0 < micro_batch.free_bytes(torch.device("cpu")) < 1e15


def test_a_run_that_goes_on_keeps_the_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another size would round differently, and the memory that is free changes from run to run."""
    data = write_corpus(tmp_path / "small")

    def sizes(**options: Any) -> int:
        _, events = go(small(data, steps=options.pop("steps", 2), train={"micro_batch": 0}), tmp_path, **options)
        size: int = events[0]["micro_batch"]
        return size

    assert sizes() == ROWS
    monkeypatch.setattr(micro_batch, "CACHE_FLOATS", 2 * 16 * 32)
    assert sizes() == 2
    monkeypatch.undo()
    assert sizes(steps=4, resume=tmp_path / FILE_NAME) == 2
    assert STEP == ROWS * 16
