"""`protein cancel`: ends trials of a sweep that run or wait, from any terminal or machine that sees the store."""

from protein.api import stores
from protein.cli.arguments.steering import CancelArguments
from protein.cli.parse import Command
from protein.cli.trial_numbers import trial_numbers
from protein.run.lease import dead_owners
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
    gone = dead_owners(trial.owner for trial in trials if trial.state is TrialState.RUNNING)
    for trial in trials:
        done = "has ended"
        if trial.state is TrialState.RUNNING:
            done = "is asked to end: its process follows within seconds"
            if trial.owner in gone:
                done = "is cancelled: its process is gone, so it ends when the sweep is run again"
        console.print(f"trial {trial.number} of sweep '{sweep.spec.name}' {done}", soft_wrap=True)
    return 0
