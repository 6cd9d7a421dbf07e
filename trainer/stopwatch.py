"""Where a run's time goes: every moment belongs to exactly one section, so the sections add up to the wall clock.

A switch costs a tenth of a microsecond, so the stopwatch always runs. On a GPU, work is queued: without `exact` a
section's seconds are those of queueing, and the section that waits for the device pays for all. `exact` waits for the
device at every switch, which is what a profile needs and a fast run does not.
"""

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

# `copy` is moving data between buffers and devices, `other` what belongs to no section: loops and bookkeeping.
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


class Stopwatch:
    """Runs in one section at a time, from the first `switch` to `stop`.

    Args:
        device: where the work runs.
        exact: wait for the device at every switch.
        trace: keep every interval for `write_trace`; memory grows with the run.
    """

    def __init__(self, device: torch.device, *, exact: bool = False, trace: bool = False) -> None:
        self.seconds = dict.fromkeys(SECTIONS, 0.0)
        self._section: str | None = None
        self._since = 0.0
        self._intervals: list[tuple[str, float, float]] | None = [] if trace else None
        self._wait: Callable[[], None] | None = None
        if exact and device.type == "cuda":
            self._wait = torch.cuda.synchronize
        elif exact and device.type == "mps":
            self._wait = torch.mps.synchronize

    def switch(self, section: str) -> None:
        """Ends the section that is running, if any, and begins `section`, one of `SECTIONS`."""
        self._end()
        self._section = section

    def stop(self) -> None:
        """Ends the section that is running; time is nobody's until the next `switch`."""
        self._end()
        self._section = None

    @property
    def total(self) -> float:
        """Seconds of all sections, without the one that is running."""
        return sum(self.seconds.values())

    def write_trace(self, path: Path) -> None:
        """Writes the intervals in the trace event format that Chrome and Perfetto open. Needs `trace`.

        Source: "Trace Event Format", complete events; times in microseconds.
        """
        assert self._intervals is not None, "the stopwatch was made without trace"
        start = self._intervals[0][1] if self._intervals else 0.0
        events = [
            {
                "name": name,
                "cat": "trainer",
                "ph": "X",
                "pid": 0,
                "tid": 0,
                "ts": (began - start) * 1e6,
                "dur": (ended - began) * 1e6,
            }
            for name, began, ended in self._intervals
        ]
        path.write_text(json.dumps({"traceEvents": events, "displayTimeUnit": "ms"}), encoding="utf-8")

    def _end(self) -> None:
        if self._wait is not None:
            self._wait()
        now = time.perf_counter()
        if self._section is not None:
            self.seconds[self._section] += now - self._since
            if self._intervals is not None:
                self._intervals.append((self._section, self._since, now))
        self._since = now
