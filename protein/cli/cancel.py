"""`protein cancel`: ends trials of a sweep that run or wait, from any terminal or machine that sees the store."""

from protein.api import stores
from protein.cli.arguments.steering import CancelArguments
from protein.cli.parse import Command
from protein.cli.trial_numbers import trial_numbers
from protein.types import TrialState
from protein.view import tables


def run(command: Command) -> int:
    arguments: CancelArguments = command.arguments
    numbers = trial_numbers(arguments.trial)
    with stores.opened(arguments.store) as store:
        sweep = stores.find(store, arguments.sweep)
        store.cancel(sweep.id, numbers)
        trials = store.trials(sweep.id, curves=False, numbers=numbers)
    console = tables.make_console()
    for trial in trials:
        done = (
            "is asked to end: its process follows within seconds" if trial.state is TrialState.RUNNING else "has ended"
        )
        console.print(f"trial {trial.number} of sweep '{sweep.spec.name}' {done}", soft_wrap=True)
    return 0
