"""What a sweep over a function prints: its start and limits, now and then a finished trial, and what it has found."""

import time
from collections.abc import Sequence

from protein.api import stores
from protein.api.function_sweep_result import SweepResult
from protein.direction import shown_trial
from protein.ports import SweepStatus
from protein.sweep import source_snapshot
from protein.sweep.loop import LoopSettings
from protein.types import Direction, SweepRecord, TrialRecord
from protein.view import commands, data, text
from protein.view.terminal import progress, spent_at_start

_QUIET_SECONDS = 2.0  # after a printed line, no line for a finished trial in this time
_MIN_OVERRUN = 1.05  # times the cap; the cost of a trial that reports often exceeds its cap by less


class Lines:
    """A listener (see `protein.ports.Listener`) that prints the start, the end and, now and then, a finished trial."""

    def __init__(self, direction: Direction, *, quiet: bool) -> None:
        self._direction, self._quiet = direction, quiet
        self._printed = time.monotonic()
        self._spent_before: float | None = None
        self._told_of_overrun = False

    def announce(
        self,
        sweep: SweepRecord,
        trials: Sequence[TrialRecord],
        settings: LoopSettings,
        *,
        created: bool,
        cap_given: bool,
    ) -> None:
        """Prints what begins now, and its limits.

        Args:
            sweep: as it is stored.
            trials: those that it has already.
            settings: how it is run.
            created: whether the sweep is new.
            cap_given: whether the user gave the cap on one trial's cost.
        """
        limits = _limits(settings, cap_given=cap_given)
        budget = settings.max_cost_seconds
        if created:
            first = [] if budget is None else [f"budget {text.seconds(budget)}"]
            line = f"sweep '{sweep.spec.name}': {', '.join([*first, *limits])}"
            if taken := sweep.spec.warm_start:
                line += f"; warm start from {source_snapshot.described(taken)}"
        else:
            of = "" if budget is None else f" of {text.seconds(budget)}"
            spent = f"{text.seconds(data.spent_seconds(trials))}{of} spent"
            line = (
                f"sweep '{sweep.spec.name}' is resumed: {', '.join([f'{_trials(len(trials))} so far', spent, *limits])}"
            )
        self.log(line)

    def update(self, status: SweepStatus) -> None:
        if self._spent_before is None:
            self._spent_before = spent_at_start(status)

    def started(self, trial: TrialRecord) -> None:
        pass

    def finished(self, trial: TrialRecord, status: SweepStatus) -> None:
        if self._spent_before is None:
            before = [t.cost_seconds for t in status.trials if t.state.finished and t.number != trial.number]
            self._spent_before = sum(before)
        if time.monotonic() - self._printed >= _QUIET_SECONDS:
            line = text.outcome_line(shown_trial(trial, self._direction))
            self.log(f"{line}; {progress(status, self._spent_before).line()}")
        cap = status.max_trial_seconds
        if cap is not None and trial.cost_seconds > _MIN_OVERRUN * cap and not self._told_of_overrun:
            self._told_of_overrun = True
            self.log(
                f"trial {trial.number} took {text.seconds(trial.cost_seconds)}, above the cap of {text.seconds(cap)}:"
                " a function can be stopped only when it calls report; max_trial_cost changes the cap"
            )

    def log(self, line: str) -> None:
        self._printed = time.monotonic()
        self._print(f"{time.strftime('%H:%M:%S')} {line}")

    def conclude(self, result: SweepResult, store: str | None) -> None:
        """Prints why the sweep ended, what was found, and the command that shows it."""
        ended = "interrupted, run it again to resume" if result.interrupted else result.ended
        counted = ", ".join(data.counts(result.trials).ends())
        trials = _trials(len(result.trials)) + (f" ({counted})" if counted else "")
        spent = text.seconds(data.spent_seconds(result.trials))
        self._print(f"sweep '{result.name}': {ended}; {trials}; {spent} spent")
        for line in result.summary.splitlines() or ["no complete trial"]:
            self._print(line)
        view = "show" if result.best is None else "best"  # `protein best` needs a complete trial
        self._print(f"see: {commands.command(view, result.name, *stores.store_words(store))}")

    def _print(self, line: str) -> None:
        if self._quiet:
            return
        try:
            try:
                print(line, flush=True)
            except UnicodeEncodeError:  # it can write no more than ASCII, say
                print(line.encode("ascii", "backslashreplace").decode(), flush=True)
        except (OSError, ValueError):  # its reader is gone, or it is closed: the sweep goes on
            self._quiet = True


def _limits(settings: LoopSettings, *, cap_given: bool) -> list[str]:
    """Returns the limits besides the budget in words."""
    limits, cap, unlimited = [], settings.max_trial_seconds, settings.max_cost_seconds is None
    if unlimited and settings.max_trials is not None:
        limits.append("no budget")
    if cap is not None:
        why = "" if cap_given else " (a quarter of the budget; max_trial_cost changes it)"
        limits.append(f"at most {text.seconds(cap)} for one trial{why}")
    if settings.max_trials is not None:
        limits.append(f"at most {_trials(settings.max_trials)}")
    elif unlimited:
        other = "" if cap is None else "other "
        limits.append(f"no {other}limit: it runs until Ctrl-C; budget or max_trials end it")
    return limits


def _trials(count: int) -> str:
    return "1 trial" if count == 1 else f"{count} trials"
