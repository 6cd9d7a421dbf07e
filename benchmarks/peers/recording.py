"""What a peer's process prints, so that every method is measured in one way.

A peer calls `episode` at the end of each episode, with the score of the unchanged game, and `step` after each
vectorised step. Seconds are those of training: they begin with the first step, after the environments and the network
were made. `step` says when to stop: at the goal, or at the limit. `finish` prints one JSON line, which `run.py` reads.
"""

import argparse
import collections
import json
import os
import statistics
import time
from collections.abc import Callable, Iterable

import torch
from measured_run import Waits

WINDOW = 100  # episodes over which the score is averaged
POINTS = 60  # of the curve that is kept
SECONDS_A_POINT = 0.5  # at most two points a second are taken


class Recording:
    """Scores over time of one run.

    Args:
        goal: the mean score of the last `WINDOW` episodes that ends the run.
        max_seconds: seconds of training after which it ends in any case.
    """

    def __init__(self, goal: float, max_seconds: float) -> None:
        self._goal, self._max_seconds = goal, max_seconds
        self._recent: collections.deque[float] = collections.deque(maxlen=WINDOW)
        self._curve: list[tuple[int, float, float]] = []
        self._reached: tuple[int, float] | None = None
        self._began = self._seconds = self._cpu_began = 0.0
        self._steps = 0
        self._waits: Waits | None = None

    def begin(self) -> None:
        """Starts the clock."""
        self._began, self._waits, self._cpu_began = time.perf_counter(), Waits(os.getpid()), time.process_time()

    def episode(self, score: float) -> None:
        """Counts one finished episode."""
        self._recent.append(score)

    def step(self, count: int) -> bool:
        """Counts `count` steps, one of each environment. Returns whether the run shall end."""
        self._steps += count
        self._seconds = time.perf_counter() - self._began
        if len(self._recent) < WINDOW:
            return self._seconds >= self._max_seconds
        last = self._curve[-1][1] if self._curve else -SECONDS_A_POINT
        mean = statistics.fmean(self._recent)
        if mean >= self._goal and self._reached is None:
            self._reached = (self._steps, self._seconds)
        if self._reached or self._seconds - last >= SECONDS_A_POINT:
            self._curve.append((self._steps, round(self._seconds, 2), round(mean, 3)))
        return self._reached is not None or self._seconds >= self._max_seconds

    def finish(self) -> None:
        """Prints the result. `waited_seconds`: for how long other programs kept it from a core, in `seconds`."""
        assert self._waits is not None
        steps, seconds = self._reached or (None, None)
        stride = max(1, -(-len(self._curve) // POINTS))
        print(
            json.dumps(
                {
                    "solved_steps": steps,
                    "solved_seconds": None if seconds is None else round(seconds, 2),
                    "steps": self._steps,
                    "seconds": round(self._seconds, 2),
                    "cpu_seconds": round(time.process_time() - self._cpu_began, 2),
                    "waited_seconds": round(self._waits.seconds(), 2),
                    "score": round(statistics.fmean(self._recent), 3) if self._recent else None,
                    "curve": self._curve[::-stride][::-1],
                }
            )
        )


def run_peer(
    description: str | None, environments: Iterable[str], train: Callable[[str, int, Recording], None]
) -> None:
    """Runs a peer as `run.py` asks for it on the command line.

    Args:
        description: of the program.
        environments: that it knows.
        train: trains in an environment with a seed, and tells the recording.
    """
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", required=True, choices=list(environments))
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--goal", type=float, required=True)
    parser.add_argument("--max-seconds", type=float, required=True)
    parser.add_argument("--threads", type=int, required=True)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    recording = Recording(arguments.goal, arguments.max_seconds)
    train(arguments.env, arguments.seed, recording)
    recording.finish()
