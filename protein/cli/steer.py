"""What people tell a sweep and its trials, from any terminal or machine that sees the store.

`protein pause`, `resume` and `stop` ask the process that runs a sweep, `try` queues trials, `cancel` ends trials that
run or wait, and `note` keeps tags, notes and exclusions of trials.
"""

from rich.text import Text

from protein.api import by_hand, stores
from protein.cli.arguments import CancelArguments, NoteArguments, OneSweepArguments, TryArguments
from protein.cli.output import print_json
from protein.cli.parse import Command
from protein.errors import UsageError
from protein.run.lease import dead_owners
from protein.sweep import ownership
from protein.sweep.ownership import alive
from protein.types import Request, TrialState
from protein.view import data, tables

_REQUESTS = {"pause": Request.PAUSE, "resume": Request.RUN, "stop": Request.STOP}


def run_request(command: Command) -> int:
    arguments: OneSweepArguments = command.arguments
    requested = _REQUESTS[command.name]
    with stores.opened(arguments.store) as store:
        sweep = stores.find(store, arguments.sweep)
        line = ownership.ask(store, sweep, requested)
    tables.make_console().print(line, soft_wrap=True, markup=False)
    return 0


def run_cancel(command: Command) -> int:
    arguments: CancelArguments = command.arguments
    numbers = _trial_numbers(arguments.trial)
    with stores.opened(arguments.store) as store:
        sweep = stores.find(store, arguments.sweep)
        store.cancel(sweep.id, numbers)
        trials = store.trials(sweep.id, curves=False, numbers=numbers)
    console = tables.make_console()
    gone = dead_owners(trial.owner for trial in trials if trial.state is TrialState.RUNNING)
    for trial in trials:
        done = "has ended"
        if trial.state is TrialState.RUNNING:
            done = "is asked to end: its process follows within seconds"
            if trial.owner in gone:
                done = "is cancelled: its process is gone, so it ends when the sweep is run again"
        console.print(f"trial {trial.number} of sweep '{sweep.spec.name}' {done}", soft_wrap=True)
    return 0


def run_try(command: Command) -> int:
    arguments: TryArguments = command.arguments
    if command.values and arguments.file is not None:
        raise UsageError(f"--{next(iter(command.values))} and --file are both given; leave one of them out")
    if not command.values and arguments.file is None:
        raise UsageError("give the values of one config, as in --lr 0.001, or a file of configs by --file")
    with stores.opened(arguments.store) as store:
        sweep = stores.find(store, arguments.sweep)
        if arguments.file is not None:
            points = by_hand.read_file(arguments.file, sweep.spec)
        else:
            points = [dict(by_hand.value_of(sweep.spec, name, text) for name, text in command.values.items())]
        numbers = by_hand.queue(store, sweep, points)
        trials = store.trials(sweep.id, curves=False, numbers=numbers)
        runs = alive(store, sweep).life is ownership.Life.RUNS
    if arguments.json:
        print_json([{"number": trial.number, "params": dict(trial.params)} for trial in trials])
        return 0
    console = tables.make_console()
    for trial in trials:
        values = ", ".join(f"{name} {value}" for name, value in trial.params.items())
        console.print(Text(f"trial {trial.number}: {values}"), soft_wrap=True)
    console.print(Text(by_hand.queued_note(sweep, numbers, runs=runs)), soft_wrap=True)
    return 0


def run_note(command: Command) -> int:
    arguments: NoteArguments = command.arguments
    numbers = _trial_numbers(arguments.trial)
    if arguments.exclude and arguments.include:
        raise UsageError("--exclude and --include are opposites; give one of the two")
    with stores.opened(arguments.store) as store:
        sweep = stores.find(store, arguments.sweep)
        store.annotate(
            sweep.id,
            numbers,
            add_tags=_tags(arguments.tag),
            remove_tags=_tags(arguments.untag),
            note=arguments.note,
            excluded=True if arguments.exclude else False if arguments.include else None,
        )
        trials = store.trials(sweep.id, curves=False, numbers=numbers)
    if arguments.json:
        print_json([{"number": trial.number, **data.annotation(trial)} for trial in trials])
        return 0
    console = tables.make_console()
    for trial in trials:
        said = "; ".join(f"{name} {value}" if value else name for name, value in tables.annotation(trial))
        line = f"trial {trial.number} of sweep '{sweep.spec.name}': {said or 'no tag, no note'}"
        console.print(Text(line), soft_wrap=True)
    return 0


def _tags(given: str | None) -> list[str]:
    return [] if given is None else given.split(",")


def _trial_numbers(given: str | None) -> list[int]:
    """Returns the numbers of trials, as in "3" and "3,7". Raises `UsageError` where it is none."""
    if given is None:
        raise UsageError("--trial is missing: give the number of a trial, or numbers as in --trial 3,7")
    words = [word.strip() for word in given.split(",")]
    if not all(word.isascii() and word.isdigit() and len(word) <= 9 for word in words):
        raise UsageError(f"--trial {given:.80} is no list of trial numbers; give it as in --trial 3 or --trial 3,7")
    return sorted({int(word) for word in words})
