"""The events of a run: what each holds, and how they are written and read.

A run reports only through events. On a pipe or in a file each is a JSON object on a line of its own, flushed as it is
written: `start`, any number of `measurement`, and then exactly one of `FINAL`. A number that is not finite is written
as null, because JSON cannot express it.
"""

import dataclasses
import json
import math
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, NotRequired, TextIO, TypedDict

Stopped = Literal["steps", "max_seconds", "signal"]  # what ended the training
ON_GPU = "on_gpu"  # the metric, 1 or 0, of a run on a machine that has several devices; it is missing where it has one
FINAL = ("result", "interrupted", "failed")


class Start(TypedDict):
    """All is set up, and the training begins."""

    event: Literal["start"]
    env: str
    steps: int  # above 0 where a run is resumed
    device: str
    processes: int
    threads: int  # of each process
    parameters: int  # of the network
    startup_seconds: float
    compiled: bool
    graphs: NotRequired[str]  # which parts are recorded as CUDA graphs, and why others are not
    notes: list[str]  # what was decided by a measurement, and why, for people
    normalize_observations: NotRequired[bool]  # PPO: whether they are, from the setting or by what was measured
    scale_rewards: NotRequired[bool]  # PPO
    workers: NotRequired[int]  # PPO: processes that step the environments of `gym-async:`
    precision: NotRequired[str]  # of the matrix products; PPO: only where it is not `train.precision` throughout
    micro_batch: NotRequired[int]  # language model: sequences of a forward pass on each process
    peak_flops: NotRequired[float]  # language model: of a large matrix product, operations a second on each process


class Measurement(TypedDict):
    """A point of the learning curve.

    Of PPO the score is the mean of the recent episodes, and None before there are enough of them. Of a language model
    it is measured at some of the points, and None at the others.
    """

    event: Literal["measurement"]
    steps: int
    elapsed_seconds: float  # of training
    score: float | None
    metrics: Mapping[str, float]


class Ending(TypedDict):
    """The fields that a result and an interruption share."""

    score: float | None  # of the evaluation; None where there was none
    steps: int
    elapsed_seconds: float
    timings: Mapping[str, float]  # seconds beside the training: `device`, `startup`, `compile`, `graphs`, `evaluation`
    metrics: Mapping[str, float]
    checkpoint: str | None
    continuable: str | None  # the checkpoint that a longer run can go on from; None: it cannot
    continuable_seconds: float | None  # of this run until that checkpoint
    stopped: Stopped
    sample: NotRequired[str]  # language model: text that the network wrote at the end


class Result(Ending):
    """The run has ended by itself."""

    event: Literal["result"]


class Interrupted(Ending):
    """A signal has ended the run. Its checkpoint is written."""

    event: Literal["interrupted"]


class Failed(TypedDict):
    """The run has failed. `reason` is that of the error's class in `protein.trainer.errors`."""

    event: Literal["failed"]
    reason: str
    message: str
    steps: int
    elapsed_seconds: float


Event = Start | Measurement | Result | Interrupted | Failed
FinalEvent = Result | Interrupted | Failed
EventSink = Callable[[Event], None]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """How a run ended. `score` is the evaluation's mean; None when the run was interrupted before it."""

    score: float | None
    steps: int
    elapsed_seconds: float
    timings: Mapping[str, float]
    metrics: Mapping[str, float]
    checkpoint: Path | None
    interrupted: bool
    sample: str | None = None


def ignore(event: Event) -> None:
    """Drops the event: of several processes only the first one reports."""


def failed(reason: str, message: str, steps: int = 0, seconds: float = 0.0) -> Failed:
    """Returns the event of a run that failed after `steps` steps and `seconds` of training."""
    return Failed(event="failed", reason=reason, message=message, steps=steps, elapsed_seconds=seconds)


def killed_by(code: int) -> str:
    """Returns in words which signal has killed a process, by its exit code; "" where it has ended by itself."""
    if code >= 0:
        return ""
    hint = " (out of memory?)" if -code == signal.SIGKILL else ""
    try:
        return f"killed by {signal.Signals(-code).name}{hint}"
    except ValueError:  # a real-time signal has no name
        return f"killed by signal {-code}"


def run_result(event: Result | Interrupted) -> RunResult:
    """Returns the run's result, read from its last event."""
    return RunResult(
        score=event["score"],
        steps=event["steps"],
        elapsed_seconds=event["elapsed_seconds"],
        timings=event["timings"],
        metrics=event["metrics"],
        checkpoint=None if event["checkpoint"] is None else Path(event["checkpoint"]),
        interrupted=event["event"] == "interrupted",
        sample=event.get("sample"),
    )


class JsonLines:
    """Writes events to a stream that the caller owns."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __call__(self, event: Event) -> None:
        self._stream.write(json.dumps(_plain(event), allow_nan=False) + "\n")
        self._stream.flush()


def read_line(line: str | bytes) -> Event:
    """Returns the event that a run has written on a line. Raises ValueError or KeyError where it is none."""
    event: Event = json.loads(line)
    if event["event"] not in ("start", "measurement", *FINAL):
        raise ValueError(f"unknown event {event['event']!r}")
    return event


def parse_line(line: bytes) -> Mapping[str, Any] | None:
    """Returns what looks like an event on a line that may hold anything, or None. Its fields must be checked."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) and isinstance(value.get("event"), str) else None


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value
