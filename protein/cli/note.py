"""`protein note`: tags, notes and exclusions of trials."""

from rich.text import Text

from protein.api import stores
from protein.cli.arguments.results import NoteArguments
from protein.cli.output import print_json
from protein.cli.parse import Command
from protein.cli.trial_numbers import trial_numbers
from protein.errors import UsageError
from protein.view import data, tables


def run(command: Command) -> int:
    arguments: NoteArguments = command.arguments
    numbers = trial_numbers(arguments.trial)
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
