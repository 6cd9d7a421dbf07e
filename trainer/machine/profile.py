"""Where a run's time went, compared with a second clock.

The stopwatch's sections always sum to the time between its switches, but they may miss work, such as what comes before
the first switch. So the loop is also timed from outside, by the events that it reports. The two must agree within
`TOLERANCE`.
"""

import dataclasses
from collections.abc import Mapping
from time import perf_counter

from ..events import Event, EventSink
from .stopwatch import Stopwatch

TOLERANCE = 0.02  # of the wall clock


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
