"""Where a run's time goes, by a stopwatch, and a profile that holds it against a second clock.

Every moment belongs to exactly one section, so the sections sum to the wall clock.

A switch costs 0.2 microseconds, so the stopwatch always runs. A GPU works through a queue. Without `exact`, a section
has only the time that queueing its work took. The section that later waits for the device has the rest. With `exact`,
every switch waits for the device. A profile needs this, but it makes the run slower.

The stopwatch times one thread, the one that trains. Work in another thread counts only while the training thread waits
for it.
"""

import collections
import dataclasses
import functools
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from time import perf_counter

import torch

from protein import files

from ..events import Event, EventSink

# Those of PPO. `copy` is moving data between buffers and devices; `other` is the rest, such as loops.
SECTIONS: Sequence[str] = (
    "environment",
    "rollout_forward",
    "copy",
    "advantage",
    "update_forward",
    "update_backward",
    "optimizer",
    "logging",
    "other",
)
# A trace keeps this many of the last intervals: about 20 MB in memory and in the file, which viewers open without
# delay. A small network switches ten thousand times a second, so its trace has the last seconds of the run. A large
# network's trace has the whole run. The first moments of a run are the least typical ones.
TRACE_INTERVALS = 200_000
TOLERANCE = 0.02  # of the wall clock


class Stopwatch:
    """Runs in one section at a time, from the first `switch` to `stop`.

    Attributes:
        seconds: by section, without the one that is running.
        paused_seconds: between a `stop` and the next `switch`, in no section.

    Args:
        device: where the work runs.
        exact: wait for the device at every switch.
        trace: keep the last `TRACE_INTERVALS` intervals for `write_trace`.
    """

    def __init__(self, device: torch.device, *, exact: bool = False, trace: bool = False) -> None:
        self.seconds = dict.fromkeys(SECTIONS, 0.0)
        self.paused_seconds = 0.0
        self._section: str | None = None
        self._since = 0.0
        self._origin: float | None = None  # the first switch
        self._num_intervals = 0
        self._intervals: collections.deque[tuple[str, float, float]] | None = None
        if trace:
            self._intervals = collections.deque(maxlen=TRACE_INTERVALS)
        self._exact = exact
        self.work_on(device)

    def work_on(self, device: torch.device) -> None:
        """Watches another device from here on: the one that a run has chosen."""
        self._wait: Callable[[], None] | None = None
        if self._exact and device.type == "cuda":
            self._wait = functools.partial(torch.cuda.synchronize, device)  # which need not be the current one
        elif self._exact and device.type == "mps":
            self._wait = torch.mps.synchronize

    def switch(self, section: str) -> None:
        """Ends the section that is running, if any, and begins `section`, one of those in `seconds`."""
        assert section in self.seconds, section
        self._change(section)

    def stop(self) -> None:
        """Ends the section that is running. Until the next `switch` no section has the time."""
        if self._section is not None:
            self._change(None)

    def use(self, sections: Sequence[str]) -> None:
        """Has other sections than `SECTIONS` from here on, and starts from zero."""
        self.stop()
        self.seconds = dict.fromkeys(sections, 0.0)
        self.reset()

    def reset(self) -> None:
        """Stops and sets everything to zero, because the time so far (compiling) was not training."""
        self.stop()
        self.seconds = dict.fromkeys(self.seconds, 0.0)
        self.paused_seconds, self._origin, self._num_intervals = 0.0, None, 0
        if self._intervals is not None:
            self._intervals.clear()

    def write_trace(self, path: Path) -> None:
        """Writes the kept intervals in the trace event format; `chrome://tracing` and ui.perfetto.dev open the file.

        Time 0 is the first `switch`. The number of dropped intervals is under `otherData`. Needs `trace`.

        Source: "Trace Event Format", complete events (`X`) and metadata (`M`); times in microseconds.
        """
        assert self._intervals is not None, "the stopwatch was made without trace"
        origin = self._origin or 0.0
        dropped = self._num_intervals - len(self._intervals)
        name = {"name": "thread_name", "ph": "M", "pid": 0, "tid": 0, "args": {"name": "training"}}
        # Event by event: as one object it would take ten times the memory.
        with files.replacing(path) as unfinished, unfinished.open("w", encoding="utf-8") as stream:
            stream.write(f'{{"displayTimeUnit": "ms", "otherData": {{"dropped_intervals": {dropped}}},\n')
            stream.write(f'"traceEvents": [\n{json.dumps(name)}')
            for section, began, ended in self._intervals:
                stream.write(
                    f',\n{{"name": "{section}", "cat": "trainer", "ph": "X", "pid": 0, "tid": 0,'
                    f' "ts": {(began - origin) * 1e6:.3f}, "dur": {(ended - began) * 1e6:.3f}}}'
                )
            stream.write("\n]}\n")

    def _change(self, section: str | None) -> None:
        if self._wait is not None:
            self._wait()
        now, since, ended = perf_counter(), self._since, self._section
        if ended is not None:
            self.seconds[ended] += now - since
            if self._intervals is not None:
                self._num_intervals += 1
                self._intervals.append((ended, since, now))
        elif self._origin is None:
            self._origin = now
        else:
            self.paused_seconds += now - since
        self._section, self._since = section, now


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Seconds of training by section, and the wall-clock time of the same period."""

    seconds: Mapping[str, float]
    paused_seconds: float  # of wall clock while the stopwatch was stopped: reports and checkpoints
    wall_seconds: float
    steps: int

    @property
    def total_seconds(self) -> float:
        return sum(self.seconds.values())

    @property
    def gap(self) -> float:
        """Wall clock minus the sum of the sections, as a fraction of the wall clock."""
        return 1.0 - self.total_seconds / self.wall_seconds if self.wall_seconds else 0.0

    def lines(self) -> list[str]:
        """Returns a table, and a warning where the sum and the wall clock disagree."""
        total = self.total_seconds
        table = [f"{'where the time went':<20}{'seconds':>10}{'share':>9}{'ns/step':>14}"]
        for name, spent in [*self.seconds.items(), ("sum", total)]:
            share = spent / total if total else 0.0
            nanoseconds = spent / max(self.steps, 1) * 1e9
            table.append(f"{name.replace('_', ' '):<20}{spent:>10.3f}{100 * share:>7.1f} %{nanoseconds:>14,.1f}")
        than = "less" if self.gap >= 0 else "more"
        table.append(f"{'wall clock':<20}{self.wall_seconds:>10.3f}  the sum is {100 * abs(self.gap):.2f} % {than}")
        if abs(self.gap) > TOLERANCE:
            table.append(
                f"warning: sum and wall clock differ by {100 * abs(self.gap):.1f} %, more than {100 * TOLERANCE:.0f} %;"
                f" reports and checkpoints took {self.paused_seconds:.3f} s, the rest is in no section"
            )
        return table


class Profiler:
    """Passes a run's events on to `report`, and times the training loop by them.

    The stopwatch's sections always sum to the time between its switches, but they may miss work, such as what comes
    before the first switch. So the loop is also timed from outside. The two must agree within `TOLERANCE`.

    The loop lasts from the event `start` to the last `measurement`.
    """

    def __init__(self, stopwatch: Stopwatch, report: EventSink) -> None:
        self._stopwatch, self._report = stopwatch, report
        self._began = self._ended = _Mark(stopwatch, 0)

    def __call__(self, event: Event) -> None:
        if event["event"] == "measurement":
            self._ended = _Mark(self._stopwatch, event["steps"])
        self._report(event)
        if event["event"] == "start":
            self._began = self._ended = _Mark(self._stopwatch, event["steps"])

    def profile(self) -> Profile:
        """Returns the profile of what has been trained since `start`."""
        began, ended = self._began, self._ended
        return Profile(
            seconds={name: spent - began.seconds[name] for name, spent in ended.seconds.items()},
            paused_seconds=ended.paused_seconds - began.paused_seconds,
            wall_seconds=ended.when - began.when,
            steps=ended.steps - began.steps,
        )


class _Mark:
    """A moment, with what the stopwatch showed."""

    def __init__(self, stopwatch: Stopwatch, steps: int) -> None:
        self.when = perf_counter()
        self.seconds = dict(stopwatch.seconds)
        self.paused_seconds = stopwatch.paused_seconds
        self.steps = steps
