"""Recorded computations, by the stand-in on the CPU: what is replayed, refused, counted and said."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from language_runs import small, write_corpus
from torch import nn
from whole_runs import go, same, tensors

from protein.trainer.errors import ConfigError
from protein.trainer.kernels import is_native, sample
from protein.trainer.language import update
from protein.trainer.machine import graphs
from protein.trainer.machine.graphs import Graph, Launches, Recorder, StandIn, in_words, standing_in
from protein.trainer.machine.stopwatch import Stopwatch
from protein.trainer.optim.optimizer import AdamW, FlatWeights

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def stands_in() -> Iterator[None]:
    with standing_in():
        yield


def recorded(compute: Callable[..., Any], *examples: torch.Tensor | None, **options: Any) -> Graph:
    recorder = Recorder(CPU)
    graph = recorder.record("it", compute, examples, **options)
    assert graph is not None, recorder.failures
    return graph


class Learner:
    """A network that learns by whole steps: forward, backward, clip, optimiser, all in fixed places."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3))
        self.flat = FlatWeights(self.net)
        self.optimizer = AdamW([self.flat.weights], learning_rate=0.01, betas=(0.9, 0.999), eps=1e-5, weight_decay=0.0)
        self.batch, self.chosen = torch.randn(40, 5), torch.zeros(8, dtype=torch.int64)
        self.loss = torch.zeros(())

    def step(self) -> None:
        self.flat.clear()
        loss = self.net(self.batch.index_select(0, self.chosen)).square().mean()
        loss.backward()
        self.flat.gradients.mul_(0.5)
        self.flat.weights.detach().addcmul_(self.flat.gradients, self.flat.gradients.abs() + 1, value=-0.1)
        self.loss.copy_(loss.detach())

    def learnt(self, step: Callable[[], Any]) -> list[torch.Tensor]:
        found = []
        for number in range(4):
            self.chosen.copy_(torch.arange(8).add(number))
            step()
            found += [self.loss.clone(), self.flat.weights.detach().clone()]
        return found


def test_a_whole_step_of_learning_is_replayed_bit_for_bit() -> None:
    usual, other = Learner(), Learner()
    before = other.flat.weights.detach().clone()
    graph = recorded(other.step, keeps=[other.flat.weights])
    assert other.flat.weights.detach().equal(before)  # recording leaves what it is to keep
    assert all(a.equal(b) for a, b in zip(usual.learnt(usual.step), other.learnt(graph.replay), strict=True))


def test_inputs_are_copied_and_outputs_are_the_callers_own() -> None:
    graph = recorded(lambda x, none, y: (x @ y, x.sum()), torch.zeros(2, 2), None, torch.zeros(2, 2))
    one = graph(torch.ones(2, 2), None, torch.eye(2))
    graph(torch.zeros(2, 2), None, torch.eye(2))
    assert one[0].equal(torch.ones(2, 2)) and one[1] == 4
    assert graph.replay() is graph.output  # in its place, for a caller who fills `inputs`


def test_draws_go_on_where_the_generator_is() -> None:
    generator, usual = (torch.Generator().manual_seed(3) for _ in range(2))
    noise = torch.zeros(5)
    graph = recorded(lambda: noise.uniform_(generator=generator), generators=[generator])
    for _ in range(3):
        graph.replay()
        assert noise.equal(torch.zeros(5).uniform_(generator=usual))


def test_autocast_converts_once_however_the_replay_is_called() -> None:
    x, layer = torch.randn(4, 8), nn.Linear(8, 2)

    def compute() -> torch.Tensor:
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, cache_enabled=False):
            result: torch.Tensor = layer(x)
            return result

    graph = recorded(compute)
    with torch.no_grad():
        layer.weight.add_(1.0)
    with torch.autocast("cpu", torch.bfloat16):
        assert graph.replay().equal(compute())


X = torch.arange(6.0)


@pytest.mark.parametrize(
    ("compute", "why"),
    [
        (lambda: X.sum().item(), "hands a result to the host"),
        (lambda: bool(X[0] > 0), "hands a result to the host"),
        (lambda: X.tolist(), "the host reads a tensor with tolist()"),
        (lambda: X.numpy() + 1, "the host reads a tensor with numpy()"),
        (lambda: X.cpu() + 1, "the host reads a tensor with cpu()"),
        (lambda: X.equal(X), "hands a result to the host"),
        (lambda: X[X > 0], "a shape that depends on data"),
        (lambda: X.nonzero(), "a shape that depends on data"),
        (lambda: X.unique(), "a shape that depends on data"),
        (lambda: X + torch.tensor([1.0]), "a tensor is made from numbers of the host"),
        (lambda: X + torch.from_numpy(np.ones(6)), "a tensor is made from numbers of the host"),
        (lambda: X + NEW.pop(), "is new at each call"),
        (lambda: 1 / 0, "division by zero"),
    ],
)
def test_what_a_graph_cannot_hold_is_refused(
    compute: Callable[[], Any], why: str, caplog: pytest.LogCaptureFixture
) -> None:
    NEW[:] = [torch.ones(6), torch.ones(6)]
    recorder = Recorder(CPU)
    assert recorder.record("this", compute) is None
    (line,) = recorder.failures
    assert line.startswith("cannot record this as a graph, going on without it: ") and why in line and "\n" not in line
    assert [record.getMessage() for record in caplog.records] == [line]
    with pytest.raises(ConfigError, match=r"train.graphs cannot be 'on': cannot record this as a graph: "):
        Recorder(CPU, "on").record("this", compute)


NEW: list[torch.Tensor] = []


@pytest.mark.parametrize(
    "compute",
    [
        lambda: X[torch.zeros(2, dtype=torch.int64)],
        lambda: X.clone().index_copy_(0, torch.zeros(1, dtype=torch.int64), X[:1]),
        lambda: torch.where(X > 0, X, 0.0).split(2),
        lambda: X.reshape(2, 3).t().contiguous().to(torch.bfloat16),
        lambda: nn.functional.conv2d(X.view(1, 1, 2, 3), torch.ones(1, 1, 2, 2)),
    ],
)
def test_what_a_graph_can_hold_is_recorded(compute: Callable[[], Any]) -> None:
    expected = compute()
    result = recorded(compute).replay()
    pairs = [(result, expected)] if isinstance(result, torch.Tensor) else zip(result, expected, strict=True)
    assert all(one.equal(other) for one, other in pairs)


def test_memory_that_is_gone_is_not_read() -> None:
    """A graph would read whatever lies there by then."""
    held = [torch.ones(3)]
    graph = recorded(lambda: held[0] * 2)
    view = held[0][:1]
    held[0] = torch.ones(3)
    graph.replay()  # somebody still has it
    del view
    with pytest.raises(RuntimeError, match="uses a tensor that is gone"):
        graph.replay()


def test_the_line_says_why_a_recording_broke_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """On CUDA its end raises another error, which says no more than that."""

    def fail(*_: Any) -> None:
        try:
            raise RuntimeError("not permitted when stream is capturing")
        finally:
            raise torch.AcceleratorError("failed due to a previous error during capture")

    monkeypatch.setattr(StandIn, "__init__", fail)
    recorder = Recorder(CPU)
    recorder.record("it", lambda: None)
    assert recorder.failures == [
        "cannot record it as a graph, going on without it: not permitted when stream is capturing"
    ]


def test_a_failure_leaves_what_was_to_be_kept() -> None:
    weights = torch.ones(3)

    def compute() -> None:
        weights.mul_(2)
        weights.sum().item()

    assert Recorder(CPU).record("this", compute, keeps=[weights]) is None
    assert weights.equal(torch.ones(3))


def test_launches_are_counted() -> None:
    def compute() -> None:
        torch.zeros(3).view(1, 3).t().mul_(2).add_(1)  # zeros, mul_, add_
        torch.empty(0).add_(1)  # nothing
        torch.empty(5)

    with Launches() as usual:
        compute()
    graph = recorded(compute)
    with Launches() as one:
        graph.replay()
    assert (usual.number, one.number) == (3, 1)
    assert one.by_name == {"graph": 1}


def test_torchs_kernels_run_while_it_stands_in() -> None:
    logits, uniform, logprobs = torch.randn(3, 4), torch.rand(4), torch.zeros(4)
    actions = torch.zeros(4, dtype=torch.int32)
    assert not is_native(logits)
    with Launches() as counted:
        sample(logits, uniform, actions, logprobs)
    assert counted.number > 5


@pytest.mark.parametrize(
    ("device", "setting", "forbidden", "reason"),
    [
        ("cpu", "auto", "", ""),
        ("cpu", "on", "", ""),
        ("cpu", "off", "", "train.graphs is off"),
        ("cpu", "auto", "of fp16", "of fp16"),
        ("cpu", "on", "of fp16", "of fp16"),
        ("mps", "auto", "", "mps has no CUDA graphs"),
        ("cuda", "auto", "", ""),
    ],
)
def test_the_rule(device: str, setting: Any, forbidden: str, reason: str) -> None:
    recorder = Recorder(torch.device(device), setting, forbidden=forbidden)
    assert recorder.reason == reason
    if reason:
        assert recorder.record("it", lambda: None) is None and not recorder.failures


def test_on_is_refused_where_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphs, "_standing_in", 0)
    assert Recorder(CPU).reason == "a CPU has no CUDA graphs"
    with pytest.raises(ConfigError, match=r"train.graphs cannot be 'on': a CPU has no CUDA graphs: use 'auto'"):
        Recorder(CPU, "on")


def test_what_is_recorded_is_said() -> None:
    yes, off, fp16 = Recorder(CPU), Recorder(CPU, "off"), Recorder(CPU, forbidden="fp16")
    failed = Recorder(CPU)
    failed.record("it", lambda: X.tolist())
    assert in_words({"acting": yes, "update": yes}) == "acting, update"
    assert in_words({"acting": off, "update": off}) == "none: train.graphs is off"
    assert in_words({"acting": yes, "update": fp16}) == "acting; not update: fp16"
    assert in_words({"acting": off, "update": fp16}) == "none; not acting: train.graphs is off; not update: fp16"
    assert in_words({"acting": failed}).startswith("none: cannot record it as a graph")


# Language models.


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is recorded and called. No stopwatch may be switched in it: some wait for the device."""
    seen: list[str] = []
    switch, record, replay = Stopwatch.switch, StandIn.__init__, StandIn.replay
    recording = False

    def switched(stopwatch: Stopwatch, section: str) -> None:
        assert not recording
        switch(stopwatch, section)

    def recorded(*given: Any) -> None:
        nonlocal recording
        recording = True
        record(*given)
        recording = False
        seen.append("made")

    def replayed(graph: StandIn) -> Any:
        seen.append("called")
        return replay(graph)

    monkeypatch.setattr(Stopwatch, "switch", switched)
    monkeypatch.setattr(StandIn, "__init__", recorded)
    monkeypatch.setattr(StandIn, "replay", replayed)
    monkeypatch.setattr(update, "free_bytes", lambda device: 1e9)
    return seen


@pytest.mark.parametrize(
    ("train", "made", "called"),
    [
        ({}, 2, 20),  # with documents and without them; two micro-batches a step
        ({"optimizer": "adamw"}, 2, 20),
        ({"micro_batch": 3}, 4, 30),  # the last one has two rows
        ({"precision": "bf16"}, 2, 20),
    ],
)
def test_a_run_with_graphs_is_the_usual_one(
    train: dict[str, Any], made: int, called: int, calls: list[str], tmp_path: Path
) -> None:
    data = write_corpus(tmp_path / "data")
    _, events = go(small(data, steps=10, train=train), tmp_path / "with")
    assert (calls.count("made"), calls.count("called")) == (made, called)
    assert events[0]["graphs"] == "forward and backward passes"
    go(small(data, steps=10, train=train | {"graphs": "off"}), tmp_path / "without")
    assert len(calls) == made + called
    assert same(tensors(tmp_path / "with"), tensors(tmp_path / "without"))


def test_passes_that_need_much_memory_are_not_recorded(
    calls: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    free = iter([1e9, 0.8e9])
    monkeypatch.setattr(update, "free_bytes", lambda device: next(free))
    _, events = go(small(write_corpus(tmp_path / "data"), steps=1))
    assert not calls and events[0]["graphs"] == "none: a pass needs over 10% of the free memory"


def test_what_cannot_be_recorded_is_computed(
    calls: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB.\nMore lines")

    data = write_corpus(tmp_path / "data")
    go(small(data, steps=10, train={"graphs": "off"}), tmp_path / "without")
    monkeypatch.setattr(StandIn, "__init__", fail)
    _, events = go(small(data, steps=10), tmp_path / "with")
    said = (
        "cannot record the forward and backward passes as a graph, going on without it: CUDA out of memory."
        " Tried to allocate 2 GiB."
    )
    assert [record.getMessage() for record in caplog.records] == [said]
    assert events[0]["graphs"] == f"none: {said}" and not calls
    assert same(tensors(tmp_path / "with"), tensors(tmp_path / "without"))
