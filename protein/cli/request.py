"""`protein pause`, `protein resume` and `protein stop`: what a running sweep is to do, asked for from any terminal."""

from protein.api import stores, sweep_state
from protein.cli.arguments.shared import StoreArguments
from protein.cli.parse import Command
from protein.sweep.alive import alive
from protein.types import Request
from protein.view import tables

_REQUESTS = {"pause": Request.PAUSE, "resume": Request.RUN, "stop": Request.STOP}


def run(command: Command) -> int:
    arguments: StoreArguments = command.arguments
    requested = _REQUESTS[command.name]
    with stores.opened(arguments.store) as store:
        sweep = stores.find(store, getattr(arguments, "sweep", None))
        num_running = len(store.live_trials(sweep.id))
        line, is_stored = sweep_state.answer(sweep, alive(store, sweep), requested, num_running=num_running)
        if is_stored:
            store.request(sweep.id, requested)
    tables.make_console().print(line, soft_wrap=True, markup=False)
    return 0
