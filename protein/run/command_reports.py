"""What one running command has reported: its curve, its cost, and the score that may be the final one."""

import dataclasses
import time
from collections.abc import Callable

from protein.direction import stored_score
from protein.ports import Job
from protein.run.reports import Said
from protein.types import Direction, Measurement, is_score


class CommandReports:
    """The reports of one run of a trial's command.

    Attributes:
        last: the last point of its curve.
        last_score: of its curve, to be maximised.
        said: the last report with a score, usable or not.
        result: the last one that said that it was final.
        cost_seconds: what this run has cost, as it has last reported it; None: it reports none.
        cost_at: when it has reported that, on the monotonic clock.
    """

    def __init__(
        self,
        job: Job,
        direction: Direction,
        *,
        counted_from: int,
        spawned: float,
        behind_seconds: float,
        remark: Callable[[str, str], None],
    ) -> None:
        """Nothing is reported yet.

        Args:
            job: of the trial.
            direction: of the scores that are reported.
            counted_from: reports without steps are counted on from here.
            spawned: when the command was started, on the monotonic clock.
            behind_seconds: what an interrupted run of the trial has cost already. Costs here are of this run alone.
            remark: called with a kind and a text for what a person should know.
        """
        self.last: Measurement | None = None
        self.last_score = job.score_behind
        self.said: Said | None = None
        self.result: Said | None = None
        self.cost_seconds: float | None = None
        self.cost_at = spawned
        self._job, self._direction, self._remark = job, direction, remark
        self._counted_from = counted_from
        self._behind, self._counts_from = behind_seconds, 0.0
        self._fresh: list[Measurement] = []
        self._told_seconds = 0.0  # of the last point that was taken

    def add(self, said: Said, *, spawned: float) -> None:
        """Takes a report into the curve, and keeps it if its score may be the final one.

        Args:
            said: the report.
            spawned: when the command was started, on the monotonic clock, as it is known by now.
        """
        now = time.monotonic()
        if said.cost_seconds is not None:
            if self.cost_seconds is None:
                self._counts_from = self._begins_at(said.cost_seconds, now - spawned)
            self.cost_seconds = max(said.cost_seconds - self._counts_from, self.cost_seconds or 0.0)
            self.cost_at = now
        if said.score is not None or said.is_result:
            self.said = said
        if said.is_result:
            self.result = said
            return
        score = said.score
        if score is not None and not is_score(score):
            self._remark("score", f"reported the score {said.shown or score}: it is left out of the curve")
            score = None
        before = 0 if self.last is None else self.last.steps
        counted = self._counted_from if self.last is None else before
        steps = counted + 1 if said.steps is None else said.steps
        if steps < before:
            if self._job.resumes is not None and steps <= self._job.steps_behind:
                return  # it goes on from a checkpoint, and repeats what it had told before
            self._remark("steps", f"reported {steps} steps after {before}: such points are left out of the curve")
            return
        point = Measurement(
            steps=steps,
            elapsed_seconds=now - spawned if self.cost_seconds is None else self.cost_seconds,
            score=stored_score(score, self._direction),
            metrics=said.metrics,
        )
        self.last = point
        self.last_score = self.last_score if point.score is None else point.score
        self._fresh.append(point)

    def _begins_at(self, cost_seconds: float, run_seconds: float) -> float:
        """Returns from where a command counts its cost, by the first cost that it reports after some seconds.

        One that resumes may count from 0, or go on from the cost that it had. Its checkpoint may be older than its last
        report, so that it reports less than that. It counts from 0 where it has run for as long as it says. Else its
        first cost is nearer to one of the two.
        """
        if cost_seconds <= run_seconds:
            return 0.0
        return min(cost_seconds, self._behind) if cost_seconds >= self._behind / 2 else 0.0

    def end_at(self, seconds: float) -> None:
        """Moves points that were read late to the end of the command, `seconds` of wall clock after its start."""
        if self.cost_seconds is None and self._fresh:
            end = max(seconds, self._told_seconds)
            moved = [min(point.elapsed_seconds, end) for point in self._fresh]
            self._fresh = [
                dataclasses.replace(point, elapsed_seconds=at) for point, at in zip(self._fresh, moved, strict=True)
            ]
            self.last = self._fresh[-1]

    def take_measurements(self) -> tuple[Measurement, ...]:
        """Returns the points that are new since the last call."""
        points, self._fresh = tuple(self._fresh), []
        self._told_seconds = points[-1].elapsed_seconds if points else self._told_seconds
        return points
