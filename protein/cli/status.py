"""`protein status`: how far sweeps are."""

from collections.abc import Sequence

from rich.text import Text

from protein.api import stores
from protein.api.outlook import sweep_outlook
from protein.api.recommended import beaten_measured_note, shown_trials
from protein.cli.arguments import StatusArguments
from protein.cli.output import print_json
from protein.cli.parse import Command
from protein.direction import shown_score
from protein.engine import pareto
from protein.sweep.lease import dead_owners
from protein.types import Request, TrialRecord, TrialState
from protein.view import data, tables, text
from protein.view import outlook as outlook_views

_REQUESTED = {
    Request.PAUSE: "is paused: no trial starts until protein resume",
    Request.STOP: "was asked to stop, and no process has followed yet; protein sweep starts it again",
}


def run(command: Command) -> int:
    arguments: StatusArguments = command.arguments
    with stores.opened(arguments.store) as store:
        sweeps = store.list_sweeps() if arguments.sweep is None else [stores.find(store, arguments.sweep)]
        found = [(sweep, store.trials(sweep.id)) for sweep in sweeps]
    if arguments.json:
        values = [data.sweep(sweep, trials) for sweep, trials in found]
        if arguments.sweep is not None:
            values[0]["outlook"] = outlook_views.plain(sweep_outlook(*found[0]))
        print_json(values if arguments.sweep is None else values[0])
        return 0
    console = tables.make_console()
    if not found:
        console.print("no sweep yet; start one with protein sweep --env NAME --max-cost 10m")
        return 0
    console.print(tables.sweeps(found, console.width))
    for sweep, trials in found:
        if interrupted := _running(trials)[1]:
            numbers = ", ".join(str(trial.number) for trial in interrupted)
            line = f"trial {numbers} of '{sweep.spec.name}' was interrupted: its process is gone; resume the sweep"
            console.print(Text(line, style="yellow"), soft_wrap=True)
    for sweep, _ in found:
        if sweep.requested is not Request.RUN:
            line = f"'{sweep.spec.name}' {_REQUESTED[sweep.requested]}"
            console.print(Text(line, style="yellow"), soft_wrap=True)
    if arguments.sweep is None:
        return 0
    sweep, trials = found[0]
    direction = sweep.spec.direction
    for title, group in zip(("running", "interrupted"), _running(trials), strict=True):
        if group:
            console.print(Text(f"\n{title}", style="bold"))
            console.print(tables.trials(shown_trials(sweep, group), console.width))
    best = pareto.best_under(trials)
    if best is not None:
        score = text.score(shown_score(best.score, direction))
        head = f"\nbest measured: trial {best.number}, score {score} in {text.seconds(best.run_seconds)}"
        console.print(Text(head, style="bold"))
        console.print(tables.params(best.params))
    beaten = beaten_measured_note(sweep, trials)
    if beaten is not None:
        console.print(f"\n{beaten}", soft_wrap=True)
    ahead = sweep_outlook(sweep, trials)
    if ahead is not None:
        console.print(Text(f"\n{outlook_views.TITLE}", style="bold"))
        for line in outlook_views.lines(ahead, direction):
            console.print(line, soft_wrap=True)
    if best is not None:
        console.print("\n" + stores.best_hint(sweep.spec.name, arguments.store), soft_wrap=True)
    console.print("\n" + (", ".join(data.counts(trials).ends()) or "no trial has finished yet"))
    return 0


def _running(trials: Sequence[TrialRecord]) -> tuple[list[TrialRecord], list[TrialRecord]]:
    """Returns the trials that run, and those that are stored as running but whose process is gone."""
    found = [trial for trial in trials if trial.state is TrialState.RUNNING]
    gone = set(dead_owners(trial.owner for trial in found))
    return [trial for trial in found if trial.owner not in gone], [trial for trial in found if trial.owner in gone]
