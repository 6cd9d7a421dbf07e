"""What `protein sweep` prints before and after the trials."""

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from protein.api import command_sweep, stores
from protein.api.answers import at_the_end
from protein.api.recommended import Recommendation, best_cut_short, cut_short_note
from protein.api.summary import summary
from protein.api.sweep_folder import picture
from protein.cli.output import writing
from protein.cli.parse import Command
from protein.columns import Dot
from protein.config.layers import display_path
from protein.direction import shown_trial
from protein.engine import pareto
from protein.engine.warm_start import described_sources
from protein.errors import UsageError
from protein.ports import SweepStatus
from protein.space import Space
from protein.sweep.loop import LoopSettings
from protein.types import SweepRecord, TrialRecord
from protein.units import format_duration
from protein.view import commands, data, tables, text
from protein.view.figures.front import front
from protein.view.figures.style import save
from protein.view.scatter import LEGEND_EXPECTED, scatter

PLOT_HEIGHT = 16
MAX_PLOT_WIDTH = 110
_MIN_WALL_SECONDS = 10.0  # the engine's share of less says little
_MIN_GROWTH = 1.5  # a larger budget is at least this many times what was spent


def announce(
    console: Console,
    sweep: SweepRecord,
    trials: Sequence[TrialRecord | Dot],
    settings: LoopSettings,
    *,
    created: bool,
    cap_given: bool,
) -> None:
    """Prints what begins now, and its limits.

    Args:
        console: where it is printed.
        sweep: as it is stored.
        trials: those that it has already.
        settings: how it is run.
        created: whether the sweep is new.
        cap_given: whether the user gave the cap on one trial's cost.
    """
    name, limits = sweep.spec.name, _limits(settings, created=created, cap_given=cap_given)
    if created:
        number = len(Space.from_dict(sweep.spec.space).names)
        line = f"sweep '{name}': {number} value{' is' if number == 1 else 's are'} searched, {limits}"
        if taken := sweep.spec.warm_start:
            line += f"; warm start from {described_sources(taken)}"
    else:
        number, spent = len(trials), text.seconds(data.spent_seconds(trials))
        line = f"sweep '{name}' is resumed: {number} trial{'' if number == 1 else 's'} so far, {spent} {limits}"
    console.print(Text(line), soft_wrap=True)


def _limits(settings: LoopSettings, *, created: bool, cap_given: bool) -> str:
    """Returns the budget and the cap on one trial in words; for a sweep that goes on, they follow what it has spent."""
    budget, cap = settings.max_cost_seconds, settings.max_trial_seconds
    if created:
        limits = "no budget set" if budget is None else f"budget {text.seconds(budget)}"
    else:
        limits = "spent, no budget set" if budget is None else f"of {text.seconds(budget)} spent"
    if cap is None:
        return limits
    why = "" if cap_given else " (a quarter of the budget; --max-trial-cost changes it)"
    return f"{limits}, the cap on one trial is {text.seconds(cap)}{why}"


def conclude(console: Console, status: SweepStatus, store: str | None) -> None:
    """Prints the summary, draws the front, and prints the command that trains the recommended config."""
    spec, trials = status.sweep.spec, status.trials
    ended = "" if status.stopping else status.ended  # the last line tells of Ctrl-C
    print_counts(console, status.sweep, trials, ended)
    if status.elapsed_seconds >= _MIN_WALL_SECONDS and data.counts(trials).finished:
        share = status.engine_seconds / status.elapsed_seconds
        console.print(
            f"the engine took {text.seconds(status.engine_seconds)} of {text.seconds(status.elapsed_seconds)}"
            f" of wall clock ({100 * share:.1f} %)"
        )
    if not pareto.front(trials):
        console.print("no trial was trained to its end, so there is no front yet")
        if (cut_short := best_cut_short(trials)) is not None:
            console.print(cut_short_note(shown_trial(cut_short, spec.direction), trains=True), soft_wrap=True)
        return
    found = at_the_end(status.sweep, trials, store)
    _print_front(console, status, found, store)
    console.print(f"\n{summary(found)}", soft_wrap=True)
    for note in found.notes():
        console.print(note, soft_wrap=True)
    best = found.best
    if command_sweep.runs_command(spec.config):
        line = command_sweep.command_line(spec, best.trial)
        what = f"run the recommended config (trial {best.trial.number}, expected {best.phrase()}):"
        console.print(Text(f"{what}\n  {line}"), soft_wrap=True)
        return
    train = commands.command("train", "--env", spec.env, "--from", spec.name, *stores.store_words(store))
    console.print(
        f"train the recommended config (trial {best.trial.number}, expected {best.phrase()}):\n  {train}",
        soft_wrap=True,
    )


def print_counts(console: Console, sweep: SweepRecord, trials: Sequence[TrialRecord], ended: str = "") -> None:
    """Prints in one line how the trials have ended, what they cost, and why no more were started, if that is known."""
    counted = ", ".join(data.counts(trials).ends()) or "none finished"
    line = f"\nsweep '{sweep.spec.name}': {counted}; {text.seconds(data.spent_seconds(trials))} spent"
    console.print(Text(f"{line}; {ended}" if ended else line, style="bold"), soft_wrap=True)


def _print_front(console: Console, status: SweepStatus, found: Recommendation, store: str | None) -> None:
    """Prints the front as a plot and a table, and draws it into the sweep's folder."""
    name, trials = status.sweep.spec.name, status.trials
    width = min(console.width, MAX_PLOT_WIDTH)
    direction = status.sweep.spec.direction
    plot = scatter(trials, width - 1, PLOT_HEIGHT, best=found.best.trial.number, direction=direction)
    console.print("\n" + "\n".join(plot), soft_wrap=True)
    console.print(text.shorten(LEGEND_EXPECTED, width) + "\n", soft_wrap=True)
    shown = [shown_trial(trial, direction) for trial in pareto.front(trials)]
    console.print(tables.front(shown, console.width, found.marks()))
    try:
        path = picture(stores.url(store), name, "pareto.png")
        with writing(path):
            save(front([(status.sweep, trials)], **found.drawn()), path, "png")
        console.print(f"\nplot: {display_path(path)}", soft_wrap=True)
    except UsageError as error:  # the results are in the store, so a picture that fails ends nothing
        console.print(f"\nno plot: {error}", soft_wrap=True)


def print_resume(console: Console, command: Command) -> None:
    """Prints how to resume an interrupted sweep."""
    console.print(f"\ninterrupted; resume with\n  {commands.command(*command.words)}", soft_wrap=True)


def print_larger_budget(console: Console, budget: float, spent_seconds: float, command: Command) -> None:
    """Prints how to resume a sweep that had nothing left to spend."""
    larger = 2 * budget
    while larger < _MIN_GROWTH * spent_seconds:
        larger *= 2
    words = [*_without_max_cost(command.words), "--max-cost", format_duration(larger)]
    console.print(
        f"\nthe budget of {text.seconds(budget)} is spent ({text.seconds(spent_seconds)}); resume with a larger one:\n"
        f"  {commands.command(*words)}",
        soft_wrap=True,
    )


def _without_max_cost(words: Sequence[str]) -> list[str]:
    kept: list[str] = []
    rest = iter(words)
    for word in rest:
        given = word.replace("_", "-")
        if given == "--max-cost":
            next(rest, None)
        elif not given.startswith("--max-cost="):
            kept.append(word)
    return kept
