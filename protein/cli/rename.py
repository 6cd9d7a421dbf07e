"""`protein rename`: another name for a sweep and its folder."""

from protein.api import renaming, stores
from protein.cli.arguments.keeping import RenameArguments
from protein.cli.parse import Command
from protein.config.layers import display_path
from protein.errors import UsageError
from protein.view import tables


def run(command: Command) -> int:
    arguments: RenameArguments = command.arguments
    if arguments.old is None or arguments.new is None:
        raise UsageError("rename needs two names, as in protein rename pong pong-july")
    with stores.opened_whole(arguments.store) as store:
        url, artifacts = stores.url(arguments.store), stores.given_artifacts(arguments.artifacts)
        folder = renaming.rename(store, url, arguments.old, arguments.new, artifacts)
    line = f"sweep '{arguments.old}' is now '{arguments.new}'"
    line += "; it has no folder" if folder is None else f"; its files are in {display_path(folder)}"
    tables.make_console().print(line, soft_wrap=True)
    return 0
