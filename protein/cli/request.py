"""`protein pause`, `protein resume` and `protein stop`: what a running sweep is to do, asked for from any terminal."""

from protein.api import stores
from protein.cli.arguments.shared import StoreArguments
from protein.cli.parse import Command
from protein.sweep.lease import dead_owners
from protein.types import Request
from protein.view import tables

_REQUESTS = {"pause": Request.PAUSE, "resume": Request.RUN, "stop": Request.STOP}
_SAID = {
    Request.PAUSE: "is asked to pause: trials that run go on, and no other starts",
    Request.RUN: "is asked to go on",
    Request.STOP: "is asked to stop: running trials are interrupted",
}


def run(command: Command) -> int:
    arguments: StoreArguments = command.arguments
    requested = _REQUESTS[command.name]
    with stores.opened(arguments.store) as store:
        sweep = stores.find(store, getattr(arguments, "sweep", None))
        owners = set(store.summaries([sweep.id])[sweep.id].running.values())
        store.request(sweep.id, requested)
    name = sweep.spec.name
    gone = not owners.difference(dead_owners(owners))
    line = f"sweep '{name}' {_SAID[requested]}"
    if gone:
        line += "; none of its trials runs, so perhaps no process runs it"
        line += {
            Request.PAUSE: f": the next one waits until protein resume {name}",
            Request.RUN: ": protein sweep starts one",
            Request.STOP: "",
        }[requested]
    tables.make_console().print(line, soft_wrap=True)
    return 0
