"""What a sweep has found: `protein best` and `protein pareto`.

`best` says what is recommended, as text, JSON or config files, with the commands that train it. With `--confirm` it
runs the likeliest contenders again before. `pareto` shows the fronts, measured and expected, as tables, a plot in the
terminal, and a picture.
"""

import contextlib
import dataclasses
import math
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.text import Text

from protein import files
from protein.analysis.dominated import Spending, spending_of
from protein.api import stores
from protein.api.answers import Answers, summary
from protein.api.overview import num_ended, sentence
from protein.api.recommended import (
    BEST,
    KNEE,
    NO_KNEE,
    Choice,
    Recommendation,
    beaten_measured_note,
    duration_above,
    found_config,
    measured_front,
    rung_path,
    too_expensive,
)
from protein.cli import INTERRUPTED_CODE
from protein.cli.arguments import BestArguments, ParetoArguments
from protein.cli.output import print_json, working, writing
from protein.cli.parse import Command
from protein.columns import TrialColumns
from protein.direction import shown_trial
from protein.engine.results import RangeEnd
from protein.errors import UsageError
from protein.ports import SweepStatus
from protein.types import Limit, SuggestionKind, SweepRecord, TrialEnd, runs_command
from protein.units import parse_duration
from protein.view import commands, data, tables, text
from protein.view.scatter import LEGEND_EXPECTED, scatter

PLOT_HEIGHT = 18
MAX_PLOT_WIDTH = 110


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A config file that was written: whose config it holds, and what may make its figures wrong here."""

    path: Path
    choice: Choice
    changes: tuple[str, ...]
    command: str


def run(command: Command) -> int:
    arguments: BestArguments = command.arguments
    confirmed = None if arguments.confirm is None else _confirm(arguments)
    if confirmed is None and arguments.max_cost is not None:
        raise UsageError(f"--max-cost {arguments.max_cost} is what confirming may cost; it goes with --confirm")
    with working("computing what is expected"), stores.opened(arguments.store) as store:
        sweep = stores.find(store, arguments.sweep)
        answers = Answers(store, sweep)
        found, ends = answers.recommendation(arguments.under), answers.range_ends()
        said = sentence(summary(found, num_ended(answers))) if arguments.under is None else ""
    written = _write(sweep, found, arguments)
    training = _training_commands(sweep, found, arguments)
    if arguments.json:
        _print_json(sweep, found, training, written, ends, confirmed)
    else:
        if confirmed is not None:
            _print_confirmed(confirmed, found)
        if said:
            tables.make_console().print(Text(f"{said}\n", style="bold"), soft_wrap=True)
        _print(sweep, found, training, written, ends)
    if confirmed is None or not confirmed.status.stopping:
        return 1 if confirmed is not None and confirmed.status.trouble else 0
    print(f"\ninterrupted; go on with\n  {commands.command(*command.words)}", file=sys.stderr)
    return INTERRUPTED_CODE


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Confirmed:
    """What was recommended before contenders were run again, and how these runs ended."""

    before: Choice
    status: SweepStatus


def _confirm(arguments: BestArguments) -> Confirmed:
    """Runs contenders of a stored sweep again, and shows them while they run."""
    from protein.api.plan import run as run_plan  # late, all of them: other answers run nothing
    from protein.api.plan import to_confirm
    from protein.cli.signals import caught
    from protein.cli.sweep import SweepTerminal
    from protein.sweep.confirming import Confirm

    confirm = Confirm(
        seconds=None if arguments.max_cost is None else parse_duration(arguments.max_cost, "--max-cost"),
        num=arguments.confirm or None,
        under_seconds=math.inf if arguments.under is None else parse_duration(arguments.under, "--under"),
    )
    with working("computing what is expected"), stores.opened(arguments.store) as store:
        sweep = stores.find(store, arguments.sweep)
        plan = to_confirm(store, sweep, confirm, word=arguments.store)
        before = Answers(store, sweep).recommendation(arguments.under).chosen
    stop = threading.Event()
    terminal = SweepTerminal(tables.make_console(sys.stderr if arguments.json else None), plan, None, is_verbose=False)
    with caught(stop), terminal:
        status = run_plan(plan, terminal, stop)
    return Confirmed(before=before, status=status)


def _print_confirmed(confirmed: Confirmed, found: Recommendation) -> None:
    """Prints what the runs have shown: the verdict, and what was and is recommended."""
    console, before, now = tables.make_console(), confirmed.before, found.chosen
    console.print(Text(f"\n{confirmed.status.ended}", style="bold"), soft_wrap=True)
    console.print(f"before: trial {before.trial.number}, expected {before.phrase()}", soft_wrap=True)
    same = " again" if before.trial.number == now.trial.number else ""
    console.print(f"now: trial {now.trial.number}{same}, expected {now.phrase()}\n", soft_wrap=True)


def _training_commands(sweep: SweepRecord, found: Recommendation, arguments: BestArguments) -> dict[str, str]:
    """Returns the commands that train the answers, by the answer's name; the chosen one comes last.

    A sweep over a function has none.
    """
    if runs_command(sweep.spec.config):
        from protein.api import command_sweep  # late: other sweeps' answers load no runner

        answers = sorted(_rows(found), key=lambda choice: choice.name == found.chosen.name)
        return {
            choice.name: command_sweep.command_line(sweep.spec, choice.trial, arguments.store) for choice in answers
        }
    if not found.trains:
        return {}

    def train(under: str | None) -> str:
        limit = [] if under is None else ["--under", under]
        words = ["train", "--env", sweep.spec.env, "--from", sweep.spec.name, *limit]
        return commands.command(*words, *stores.store_words(arguments.store))

    lines = {BEST: train(None)}
    if found.knee is not None:
        lines[KNEE] = train(duration_above(found.knee.contender.expected_cost_seconds))
    if found.under is not None:
        lines[found.under.name] = train(arguments.under)
    return {name: lines[name] for name in sorted(lines, key=lambda name: name == found.chosen.name)}


def _rows(found: Recommendation) -> list[Choice]:
    return [choice for choice in (found.best, found.under, found.knee) if choice is not None]


def _print_json(
    sweep: SweepRecord,
    found: Recommendation,
    training: dict[str, str],
    written: list[Written],
    ends: Sequence[RangeEnd],
    confirmed: Confirmed | None,
) -> None:
    chosen = found.chosen
    record = {**data.trial(chosen.trial, curve=False), **_json(chosen), "command": training.get(chosen.name)}
    answers = [
        {"params": dict(row.trial.params), **_json(row), "command": training.get(row.name)} for row in _rows(found)
    ]
    files = [
        {"path": str(one.path), "trial": one.choice.trial.number, "changes": list(one.changes), "command": one.command}
        for one in written
    ]
    limits = {"limits": list(map(str, found.limits))} if found.limits else {}
    said: dict[str, Any] = {**limits, "notes": found.notes(), "range_ends": [_plain(end) for end in ends]}
    if confirmed is not None:
        now = confirmed.status.confirmation
        runs = {} if now is None else dataclasses.asdict(now)
        before = {"trial": confirmed.before.trial.number, **_json(confirmed.before)}
        said["confirmation"] = {"verdict": confirmed.status.ended, **runs, "before": before}
    print_json({"sweep": sweep.spec.name, **record, "answers": answers, **said, "written": files})


def _plain(end: RangeEnd) -> dict[str, Any]:
    return {
        "name": end.name,
        "end": end.end,
        "bound": end.bound,
        "best_value": end.best_value,
        "probability": end.probability,
        "text": end.text(),
    }


def _json(choice: Choice) -> dict[str, Any]:
    """Returns what is expected of a recommended config, and how that is known."""
    contender = choice.contender
    return {
        "answer": choice.name,
        "expected_score": data.estimate(contender.score),
        "expected_cost_seconds": contender.expected_cost_seconds,
        "trials": [trial.number for trial in choice.trials],
        "measured": list(contender.measured),
        "basis": contender.basis,
        **({} if contender.keeps is None else {"keeps_limits": contender.keeps}),
    }


def _print(
    sweep: SweepRecord,
    found: Recommendation,
    training: dict[str, str],
    written: list[Written],
    ends: Sequence[RangeEnd],
) -> None:
    console = tables.make_console()
    chosen, rows = found.chosen, _rows(found)
    head = f"trial {chosen.trial.number} of sweep '{sweep.spec.name}', {chosen.name}: expected {chosen.phrase()}"
    console.print(Text(head, style="bold"), soft_wrap=True)
    console.print(f"tried as: {chosen.trial.origin}\n", soft_wrap=True)
    names = [choice.name for choice in rows]
    console.print(tables.answers(names, [choice.contender for choice in rows], [c.trials for c in rows], console.width))
    console.print(f"\nscores are expected true scores, by the {chosen.contender.basis}", soft_wrap=True)
    if found.limits:
        console.print(f"limits: {_limits(found)}", soft_wrap=True)
    if found.knee is None:
        console.print(NO_KNEE, soft_wrap=True)
    for note in (*found.notes(), *(end.text() for end in ends)):
        console.print(note, soft_wrap=True)
    console.print()
    console.print(tables.params(chosen.trial.params))
    for name, line in training.items():
        verb = "train" if found.trains else "run"
        console.print(Text(f"\n{name}, {verb} it with\n  {line}"), soft_wrap=True)
    for one in written:
        console.print(f"\nconfig: {one.path}, {one.choice.name}: expected {one.choice.phrase()}", soft_wrap=True)
        for change in one.changes:
            console.print(f"  note: {change}", soft_wrap=True)
        console.print(f"  {one.command}", soft_wrap=True)


def _limits(found: Recommendation) -> str:
    """Returns the limits with what the chosen config has measured, as in "memory_gb <= 8 (measured 5.20)"."""

    def one(limit: Limit) -> str:
        values = [trial.metrics[limit.name] for trial in found.chosen.trials if limit.name in trial.metrics]
        return f"{limit} (measured {', '.join(map(text.score, values))})" if values else f"{limit} (not measured)"

    return ", ".join(map(one, found.limits))


def _write(sweep: SweepRecord, found: Recommendation, arguments: BestArguments) -> list[Written]:
    """Writes what `--write` and `--ladder` ask for: all files, or none where one of them cannot be made."""
    chosen: list[tuple[Path, Choice]] = []
    if arguments.ladder is not None:
        if arguments.under is not None:
            raise UsageError(f"--ladder {arguments.ladder} has limits of its own; drop --under {arguments.under}")
        for limit in arguments.ladder.split(","):
            choice = found.affordable(parse_duration(limit, "--ladder"))
            if choice is None:
                raise too_expensive(sweep.spec.name, found.front[0].contender, limit.strip(), "begin the --ladder with")
            choice = dataclasses.replace(choice, name=f"best under {limit.strip()}")
            path = rung_path(arguments.write, sweep.spec.name, limit)
            if path in [other for other, _ in chosen]:
                raise UsageError(f"--ladder {arguments.ladder} would write {path} twice; give each limit once")
            chosen.append((path, choice))
    elif arguments.write is not None:
        chosen.append((arguments.write, found.chosen))
    written = []
    for path, choice in chosen:
        command = commands.command("train", "--config", str(path))
        config = found_config(sweep, choice, path)
        written.append((config.content, Written(path=path, choice=choice, changes=config.changes, command=command)))
    with contextlib.ExitStack() as all_or_none:
        for content, one in written:
            all_or_none.enter_context(writing(one.path))
            unfinished = all_or_none.enter_context(files.replacing(one.path))
            unfinished.write_text(content, encoding="utf-8")
    return [one for _, one in written]


def run_pareto(command: Command) -> int:
    arguments: ParetoArguments = command.arguments
    with working("computing what is expected"), stores.opened(arguments.store) as store:
        sweep = stores.find(store, arguments.sweep)
        answers = Answers(store, sweep)
        trials = answers.columns  # no object for each: of a large sweep, that took half as long as all the rest
        numbers = measured_front(trials, sweep.spec.limits)
        named = {*numbers, *_highest_cut_short(trials)}
        records = {record.number: record for record in store.trials(sweep.id, curves=False, numbers=named)}
        drawn = [] if arguments.png is None else store.trials(sweep.id, curves=False)
        found = answers.recommendation()  # the best and the knee are those that `protein best` names
    direction = sweep.spec.direction
    best_measured = records[numbers[-1]] if numbers else None
    far = data.Progress.of_columns(trials, best=best_measured)
    knee = None if found.knee is None else found.knee.trial.number
    best = found.best.trial.number
    costs = (trials.cost_seconds, trials.run_seconds)
    spent_on = spending_of(trials.state, trials.score, *costs, trials.excluded, trials.lost_seconds)
    if arguments.png is not None:
        from protein.view.figures.front import front  # late: only a picture needs it
        from protein.view.figures.style import save

        figure = front([(sweep, drawn)], **found.drawn())
        with writing(arguments.png):
            save(figure, arguments.png, "png")
    shown = [shown_trial(record, direction) for record in map(records.__getitem__, numbers)]
    if arguments.json:
        points = [data.point(record) for record in shown]
        expected_points = [
            {
                "trials": [trial.number for trial in choice.trials],
                "expected_score": data.estimate(choice.contender.score),
                "expected_cost_seconds": choice.contender.expected_cost_seconds,
                "params": dict(choice.contender.params),
                **({} if choice.contender.keeps is None else {"keeps_limits": choice.contender.keeps}),
            }
            for choice in found.front
        ]
        print_json(
            {
                "sweep": data.sweep(sweep, far),
                "front": points,
                "expected_front": expected_points,
                "best": best,
                "knee": knee,
                "spending": {**dataclasses.asdict(spent_on), "total": spent_on.total, "share": spent_on.share},
            }
        )
        return 0
    console = tables.make_console()
    width = min(console.width, MAX_PLOT_WIDTH)
    console.print("\n".join(scatter(trials, width - 1, PLOT_HEIGHT, best=best, direction=direction)), soft_wrap=True)
    console.print(text.shorten(LEGEND_EXPECTED, width) + "\n", soft_wrap=True)
    console.print("measured front")
    console.print(tables.front(shown, console.width, found.marks()))
    console.print("\nexpected front: the same without luck, by the posterior mean of the true score")
    names = [found.marks().get(choice.trial.number, "") for choice in found.front]
    rows = [choice.contender for choice in found.front]
    console.print(tables.answers(names, rows, [choice.trials for choice in found.front], console.width))
    said = NO_KNEE if found.knee is None else f"knee: trial {knee}, expected {found.knee.phrase()}"
    line = f"{found.best.name}: trial {found.best.trial.number}, expected {found.best.phrase()}"
    beaten = beaten_measured_note(sweep, list(records.values()))
    if beaten is not None:
        line += f"\n{beaten}"
    if (slowed := found.why_cheaper()) is not None:
        line += f"\n{slowed}"
    if spent_on.num_dominated_expensive:
        line += f"\n{_dominated(spent_on)}"
    console.print(f"\n{said}\n{line}\n{stores.best_hint(sweep.spec.name, arguments.store)}", soft_wrap=True)
    if arguments.png is not None:
        console.print(f"\nplot: {arguments.png}", soft_wrap=True)
    return 0


def _highest_cut_short(trials: TrialColumns) -> list[int]:
    """Returns the number of the trial with the highest score among those that a limit of cost has ended, if any.

    See `protein.api.recommended.best_cut_short`, which needs an object for each trial.
    """
    ends = np.array(trials.end, dtype=object)
    cut = (ends == TrialEnd.CAPPED) | (ends == TrialEnd.OUT_OF_BUDGET)
    cut &= np.array(trials.kind, dtype=object) != SuggestionKind.REEVALUATION
    cut = np.flatnonzero(cut & ~np.isnan(trials.score) & ~trials.excluded)
    return [int(trials.number[cut[np.argmax(trials.score[cut])]])] if len(cut) else []


def _dominated(spent_on: Spending) -> str:
    """Says how much of the budget went to expensive trials that a cheaper one beats."""
    number = spent_on.num_dominated_expensive
    who = (
        "1 expensive trial that a cheaper one beats"
        if number == 1
        else f"{number} expensive trials that cheaper ones beat"
    )
    over = text.seconds(spent_on.expensive_above)
    note = "a large share is usual where scores are noisy: one lucky trial beats many"
    return f"{100 * spent_on.share:.0f} % of the cost went to {who} (expensive: over {over}); {note}"
