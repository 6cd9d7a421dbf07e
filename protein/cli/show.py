"""`protein show`: a sweep's trials, or everything about one."""

from protein.cli import stores
from protein.cli.arguments import Show
from protein.cli.output import print_json
from protein.cli.parse import Command
from protein.errors import UsageError
from protein.view import data, tables


def run(command: Command) -> int:
    arguments: Show = command.arguments
    with stores.opened(arguments.store) as store:
        sweep = stores.find(store, arguments.sweep)
        trials = store.trials(sweep.id)
    console = tables.make_console()
    if arguments.trial is None:
        if arguments.json:
            listed = [data.trial(trial, curve=False) for trial in trials]
            print_json({"sweep": data.sweep(sweep, trials), "trials": listed})
        else:
            console.print(tables.trials(trials, console.width))
        return 0
    found = next((trial for trial in trials if trial.number == arguments.trial), None)
    if found is None:
        held = f"0 to {trials[-1].number}" if trials else "none yet"
        raise UsageError(f"sweep '{sweep.spec.name}' has no trial {arguments.trial}; it has {held}")
    if arguments.json:
        print_json({"sweep": sweep.spec.name, **data.trial(found, curve=True)})
    else:
        console.print(tables.trial(found, console.width))
    return 0
