"""`protein rm`: deletes a sweep, its trials and their files."""

import sys

from protein.api import renaming, stores
from protein.cli.arguments.keeping import RemoveArguments
from protein.cli.parse import Command
from protein.config.layers import display_path
from protein.errors import UsageError
from protein.units import format_size
from protein.view import tables


def run(command: Command) -> int:
    arguments: RemoveArguments = command.arguments
    if arguments.sweep is None:
        raise UsageError("rm needs the name of a sweep, as in protein rm pong; protein status lists them")
    with stores.opened_whole(arguments.store) as store:
        url, artifacts = stores.url(arguments.store), stores.given_artifacts(arguments.artifacts)
        removal = renaming.plan_removal(store, url, arguments.sweep, artifacts)
        console = tables.make_console()
        place = display_path(removal.folder)
        files = f"the {format_size(removal.num_bytes)} of files of its trials in {place}"
        what = (
            f"sweep '{arguments.sweep}' with {'1 trial' if removal.num_trials == 1 else f'{removal.num_trials} trials'}"
        )
        what += "" if arguments.keep_files or not removal.paths else f", and {files}"
        if not arguments.yes and not _agreed(what):
            raise UsageError("nothing was removed; give --yes to remove it without being asked")
        renaming.remove(store, removal, keep_files=arguments.keep_files)
    console.print(f"removed {what}", soft_wrap=True)
    if removal.left and not arguments.keep_files:
        listed = ", ".join(removal.left[:5]) + (", ..." if len(removal.left) > 5 else "")
        console.print(f"left in {place}, which is none of its trials': {listed}", soft_wrap=True)
    return 0


def _agreed(what: str) -> bool:
    """Whether a person at a terminal agrees; without a terminal nobody does."""
    if not sys.stdin.isatty():
        return False
    try:
        answer = input(f"remove {what}? This cannot be undone. [y/N] ")
    except EOFError:
        return False
    return answer.strip().lower() in ("y", "yes")
