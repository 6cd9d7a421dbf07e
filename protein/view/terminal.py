"""Watches a sweep: a live view on a terminal, one plain line per event anywhere else.

Both are `protein.ports.Listener`s and context managers. The live view fits any terminal: in a small one, the front's
plot is left out first, then its rows. Lines about finished trials scroll above it.
"""

import dataclasses
import textwrap
import time
from collections.abc import Sequence
from datetime import datetime, timedelta
from types import TracebackType
from typing import Protocol, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from protein.direction import shown_score, shown_trial
from protein.engine import pareto
from protein.ports import Listener, SweepStatus
from protein.types import Direction, TrialRecord, TrialState, spent_seconds, unbroken
from protein.view import data, tables, text
from protein.view.scatter import LEGEND, MIN_HEIGHT, scatter
from protein.view.text import MAX_TEXT, cleaned

MAX_RUNNING_ROWS = 8
MAX_FRONT_ROWS = 12
MAX_PLOT_HEIGHT = 16
_MAX_CLOCK_SECONDS = 86_400e4  # a time of day much later says nothing, and far later there is none
MIN_SPENT_SECONDS = 1.0  # a rate over less is noise
MAX_LINE = 119  # characters of a plain line about a trial
MAX_WIDTH = 160  # wider lines are hard to read
MAX_PARAM_LINES = 4
# The time of grace that the backends of this machine give a trial; one on another machine may take longer.
_ENDING = "ending the running trials, within 10 s on this machine; Ctrl-C again kills them at once"
SIDE_BY_SIDE_WIDTH = 110  # from here on the plot stands beside the front's rows


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BudgetProgress:
    """Costs are seconds of training; the ETA is wall clock."""

    spent_seconds: float
    budget_seconds: float | None
    eta_seconds: float | None  # None: no limit, or too early for an estimate

    @property
    def left_seconds(self) -> float | None:
        return None if self.budget_seconds is None else max(self.budget_seconds - self.spent_seconds, 0.0)

    def line(self, *, clock: bool = False) -> str:
        """Returns the progress as a phrase; `clock` adds the time of day at which the sweep will be done."""
        if self.budget_seconds is None or self.left_seconds is None:
            parts = [f"{text.seconds(self.spent_seconds)} spent", "no budget set"]
        else:
            parts = [
                f"{text.seconds(self.spent_seconds)} of {text.seconds(self.budget_seconds)} spent",
                f"{text.seconds(self.left_seconds)} left",
            ]
        if self.eta_seconds is not None and self.eta_seconds > 0:
            soon = clock and self.eta_seconds < _MAX_CLOCK_SECONDS
            when = f" ({datetime.now() + timedelta(seconds=self.eta_seconds):%H:%M})" if soon else ""
            parts.append(f"done in about {text.seconds(self.eta_seconds)}{when}")
        return ", ".join(parts)

    def brief(self) -> str:
        """Returns the progress in few words: what is spent, of what, and how long the rest takes."""
        budget = "" if self.budget_seconds is None else f" of {text.seconds(self.budget_seconds)}"
        ends = f", done in about {text.seconds(self.eta_seconds)}" if self.eta_seconds else ""
        return f"{text.seconds(self.spent_seconds)}{budget} spent{ends}"


class Watcher(Listener, Protocol):
    """A listener that holds the terminal while its `with` block lasts."""

    def __enter__(self) -> Self: ...

    def __exit__(self, kind: type[BaseException] | None, value: object, traceback: TracebackType | None) -> None: ...


def make_watcher(console: Console, score_range: text.Range | None = None, *, is_verbose: bool = False) -> Watcher:
    """Returns the live view for a terminal, plain lines for anything else.

    Args:
        console: to print to.
        score_range: the lowest and the highest possible score.
        is_verbose: whether plain lines of trials may be longer than `MAX_LINE`.
    """
    if console.is_terminal and not console.is_dumb_terminal:
        return LiveWatcher(console, score_range)
    return PlainWatcher(console, score_range, is_verbose=is_verbose)


class PlainWatcher:
    """One line per event, each with the time of day, written at once."""

    def __init__(self, console: Console, score_range: text.Range | None = None, *, is_verbose: bool = False) -> None:
        self._console, self._score_range, self._is_verbose = console, score_range, is_verbose
        self._spent_before: float | None = None
        self._told_of_ending = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: object, traceback: TracebackType | None) -> None:
        pass

    def update(self, status: SweepStatus) -> None:
        if self._spent_before is None:
            self._spent_before = spent_at_start(status)
        ends = status.stopping and not self._told_of_ending
        if ends and any(trial.state is TrialState.RUNNING for trial in status.trials):
            self._told_of_ending = True
            self.log(_ENDING)

    def started(self, trial: TrialRecord) -> None:
        expected = trial.predicted_cost_seconds
        cost = "" if expected is None else f", about {text.seconds(expected.value)}"
        self._about_trial(f"trial {trial.number} started: {trial.origin}", cost)

    def finished(self, trial: TrialRecord, status: SweepStatus) -> None:
        self.update(status)
        shown = shown_trial(trial, status.sweep.spec.direction)
        line = text.outcome_line(text.clipped(shown, self._score_range), is_brief=not self._is_verbose)
        now = progress(status, self._spent_before or 0.0)
        self._about_trial(line, f"; {now.line() if self._is_verbose else now.brief()}")

    def _about_trial(self, line: str, end: str) -> None:
        """Writes a line about a trial, which is cut before its end where it would be too long."""
        if not self._is_verbose:
            line = text.shorten(" ".join(cleaned(line, MAX_TEXT).split()), MAX_LINE - len("HH:MM:SS ") - len(end))
        self.log(line + end)

    def log(self, line: str) -> None:
        self._console.file.write(f"{time.strftime('%H:%M:%S')} {cleaned(line, MAX_TEXT)}\n")
        self._console.file.flush()


class LiveWatcher:
    """Redraws the sweep's state in place, below the lines of the finished trials."""

    def __init__(self, console: Console, score_range: text.Range | None = None) -> None:
        self._console, self._score_range = console, score_range
        self._spent_before: float | None = None
        self._live = Live(console=console, auto_refresh=False, transient=True, vertical_overflow="crop")

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: object, traceback: TracebackType | None) -> None:
        self._live.stop()

    def update(self, status: SweepStatus) -> None:
        if self._spent_before is None:
            self._spent_before = spent_at_start(status)
        width, height = self._console.size
        self._live.update(sweep_view(status, width, height, spent_before=self._spent_before), refresh=True)

    def started(self, trial: TrialRecord) -> None:
        pass  # the view shows it among the running trials

    def finished(self, trial: TrialRecord, status: SweepStatus) -> None:
        style = "dim" if trial.state is TrialState.COMPLETE else tables.STATE_STYLES[trial.state]
        shown = text.clipped(shown_trial(trial, status.sweep.spec.direction), self._score_range)
        self._console.print(Text(text.outcome_line(shown), style=style))
        self.update(status)

    def log(self, line: str) -> None:
        self._console.print(Text(cleaned(line, MAX_TEXT), style="yellow"))


def spent_at_start(status: SweepStatus) -> float:
    """Returns what the search had spent before this process began, from the first status that it tells.

    That is what all trials have cost that do not run, waiting ones and what was lost included.
    """
    rest = (trial for trial in status.trials if trial.state is not TrialState.RUNNING and not trial.confirms)
    return spent_seconds(rest)


def progress(status: SweepStatus, spent_before: float) -> BudgetProgress:
    """Returns the progress of a sweep.

    The ETA uses the rate since this process began, when `spent_before` had been spent. While contenders are run again,
    the progress is that of these runs.
    """
    if (now := status.confirmation) is not None:
        running = sum(trial.cost_seconds for trial in status.trials if trial.state is TrialState.RUNNING)
        rest = max(now.expected_seconds - running, 0.0)
        if now.limit_seconds is not None:
            rest = min(rest, max(now.limit_seconds - now.spent_seconds, 0.0))
        return BudgetProgress(spent_seconds=now.spent_seconds, budget_seconds=now.limit_seconds, eta_seconds=rest)
    searched = [trial for trial in status.trials if not trial.confirms]
    spent, budget = spent_seconds(searched), status.sweep.max_cost_seconds
    eta = None
    gained = spent - spent_before
    lefts = [] if budget is None else [budget - spent]
    costs = [trial.cost_seconds for trial in searched if trial.state.finished]
    if status.max_trials is not None and costs:
        lefts.append(status.max_trials * sum(costs) / len(costs) - spent)
    if lefts and gained >= MIN_SPENT_SECONDS and status.elapsed_seconds > 0:
        eta = max(min(lefts), 0.0) * status.elapsed_seconds / gained
    return BudgetProgress(spent_seconds=spent, budget_seconds=budget, eta_seconds=eta)


def sweep_view(status: SweepStatus, width: int, height: int, *, spent_before: float) -> RenderableType:
    """Returns the whole live view, at most `height - 1` lines of `width` characters."""
    width = min(width, MAX_WIDTH)
    left = height - 1
    top = _heading(status, progress(status, spent_before), width)
    left -= len(top)
    direction = status.sweep.spec.direction
    running = _running(status.trials, direction, width, max_rows=max(1, min(MAX_RUNNING_ROWS, left - 4)))
    left -= len(running)
    kept = unbroken(status.trials, status.sweep.spec.limits)
    best = _best(kept, direction, width, max_lines=max(left - 4, 1))
    left -= len(best)
    return Group(*top, *running, *_front(kept, direction, width, left), *best)


def _heading(status: SweepStatus, now: BudgetProgress, width: int) -> list[RenderableType]:
    spec, of = status.sweep.spec, data.counts(status.trials)
    parts = of.ends() or ["no trial has finished yet"]
    lines: list[RenderableType] = [
        _line(f"{spec.name}: {spec.method} sweep of {spec.env}; {', '.join(parts)}", width, "bold")
    ]
    if now.budget_seconds is not None:
        bar = Table.grid()  # a bar alone does not end its line
        bar.add_row(ProgressBar(total=max(now.budget_seconds, 1e-9), completed=now.spent_seconds, width=width - 1))
        lines.append(bar)
    lines += [_line(line, width) for line in textwrap.wrap(now.line(clock=True), width)]
    if status.stopping:
        lines.append(_line(_ENDING, width, "bold yellow"))
    return lines


def _running(trials: Sequence[TrialRecord], direction: Direction, width: int, max_rows: int) -> list[RenderableType]:
    running = [trial for trial in trials if trial.state is TrialState.RUNNING]
    if not running:
        return [Text(""), _line("no trial is running", width, "dim")]
    shown = running[:max_rows] if len(running) <= max_rows else running[: max(max_rows - 1, 1)]
    shown = [shown_trial(trial, direction) for trial in shown]
    sparks = [text.sparkline(trial.curve, max(min(width // 3, 40), 6)) or "starting" for trial in shown]
    longest = max(len(spark) for spark in sparks)
    rows = [_running_row(trial, spark.ljust(longest), width) for trial, spark in zip(shown, sparks, strict=True)]
    if len(running) > len(shown):
        rows.append(_line(f"and {len(running) - len(shown)} more", width, "dim"))
    return [Text(""), *rows]


def _running_row(trial: TrialRecord, spark: str, width: int) -> Text:
    expected = trial.predicted_cost_seconds
    spent = text.seconds(trial.cost_seconds) + (f" of ~{text.seconds(expected.value)}" if expected else "")
    scores = [point.score for point in trial.curve if point.score is not None]
    head = f"▶ {text.trial_name(trial):<4} {spent:<16} {text.score(scores[-1] if scores else None):>6} "
    line = Text(head, no_wrap=True, overflow="crop")
    line.append(spark, style="cyan")
    if (room := width - len(line) - 2) >= 12:
        line.append("  " + text.shorten(trial.origin, room), style="dim")
    line.truncate(width)
    return line


def _front(trials: Sequence[TrialRecord], direction: Direction, width: int, height: int) -> list[RenderableType]:
    """Returns the front as rows and, if it fits, as a plot, in at most `height` lines."""
    front = pareto.front(trials)
    if not front or height < 3:
        return []
    shown = [shown_trial(trial, direction) for trial in front[-min(len(front), MAX_FRONT_ROWS, height - 2) :]]
    if width >= SIDE_BY_SIDE_WIDTH and height - 2 >= MIN_HEIGHT:
        plot_width = width - 45
        rows = tables.front(shown, width - plot_width - 3)
        plot = _plot(trials, direction, plot_width, min(height - 2, MAX_PLOT_HEIGHT))
        both = Table.grid(padding=(0, 3, 0, 0))
        both.add_row(plot, rows)
        return [Text(""), both]
    content: list[RenderableType] = [Text(""), tables.front(shown, width)]
    room = height - 2 - len(shown) - 2
    if room >= MIN_HEIGHT:
        content += [Text(""), _plot(trials, direction, width - 1, min(room, MAX_PLOT_HEIGHT))]
    return content


def _plot(trials: Sequence[TrialRecord], direction: Direction, width: int, height: int) -> RenderableType:
    lines = scatter(trials, width, height - 1 if height > MIN_HEIGHT else height, direction=direction)
    if height > MIN_HEIGHT:
        lines.append(text.shorten(LEGEND, width))
    return Text("\n".join(lines), no_wrap=True, overflow="crop")


def _best(trials: Sequence[TrialRecord], direction: Direction, width: int, max_lines: int) -> list[RenderableType]:
    best = pareto.best_under(trials)
    if best is None:
        return []
    score = text.score(shown_score(best.score, direction))
    head = f"best measured: trial {best.number}, score {score} in {text.seconds(best.run_seconds)}"
    lines = [""]
    for name, value in best.params.items():
        item = f"{name} {text.param(value)}"
        if lines[-1] and len(lines[-1]) + 2 + len(item) > width:
            lines.append("")
        lines[-1] += ("  " if lines[-1] else "") + item
    shown = lines[: min(MAX_PARAM_LINES, max_lines - 1)]
    return [Text(""), _line(head, width, "bold green"), *(_line(line, width) for line in shown)]


def _line(line: str, width: int, style: str = "") -> Text:
    return Text(text.shorten(line, width), style=style, no_wrap=True, overflow="crop")
