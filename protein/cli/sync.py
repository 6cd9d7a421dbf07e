"""`protein sync`: writes a sweep's trials to trackers, all that they do not have yet."""

from protein.api import stores, trackers
from protein.cli.arguments.keeping import SyncArguments
from protein.cli.output import Progress, print_json
from protein.cli.parse import Command
from protein.errors import TrialFailed, UsageError
from protein.view import commands, tables


def run(command: Command) -> int:
    arguments: SyncArguments = command.arguments
    if not arguments.tracker:
        known = ", ".join(trackers.TRACKERS)
        raise UsageError(f"sync needs --tracker NAME, one of {known}; give it several times for several")
    names = trackers.check(arguments.tracker)
    with stores.opened(arguments.store) as store:
        sweep = stores.find(store, arguments.sweep).spec.name
    console = tables.make_console()
    progress = Progress("trials written")
    found = trackers.sync(
        names,
        stores.url(arguments.store),
        sweep,
        lambda name, written, waiting: progress(name, written, written + waiting),
    )
    if arguments.json:
        listed = [{"tracker": one.name, "written": one.written, "error": one.error or None} for one in found]
        print_json({"sweep": sweep, "trackers": listed})
    failed = [one for one in found if one.error]
    for one in found:
        if not one.error and not arguments.json:
            written = f"{one.written} trial{'' if one.written == 1 else 's'} written"
            console.print(
                f"{one.name}: {written}; to see the sweep there, {one.how_to_look}",
                highlight=False,
                soft_wrap=True,
                markup=False,
            )
    if failed:
        again = commands.command(*command.words)
        errors = "; ".join(f"{one.name}: {one.error}" for one in failed)
        raise TrialFailed(f"{errors}; what was written is kept, so run {again} again")
    return 0
