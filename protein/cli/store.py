"""`protein store`: check, upgrade, back up and move a store."""

import contextlib
from pathlib import Path

from protein import storage
from protein.api import moving, stores, sweep_files
from protein.cli.arguments.keeping import StoreCommandArguments
from protein.cli.export import lines, plain
from protein.cli.output import Progress, print_json
from protein.cli.parse import Command
from protein.errors import ProteinError, StoreError, StoreUnavailable, UsageError
from protein.spelling import nearest
from protein.units import format_size
from protein.urls import hidden
from protein.view import commands, tables
from protein.view.printing import MAX_CELL, cleaned

MAX_DAMAGES = 200  # that are printed


def run(command: Command) -> int:
    arguments: StoreCommandArguments = command.arguments
    known = {"check": _check, "upgrade": _upgrade, "backup": _backup, "move": _move}
    if arguments.action is None:
        raise UsageError(f"store needs what to do: {', '.join(known)}, as in protein store check runs/protein.db")
    if arguments.action not in known:
        raise UsageError(f"store cannot {arguments.action!r:.40}{nearest(arguments.action, known)}")
    if arguments.to is not None and arguments.action != "move":
        raise UsageError(f"--to is for protein store move alone; drop it for {arguments.action}")
    if arguments.output is not None and arguments.action not in ("backup", "upgrade"):
        raise UsageError(f"-o is for backup and upgrade alone; drop it for {arguments.action}")
    return known[arguments.action](arguments, stores.url(arguments.url))


def _check(arguments: StoreCommandArguments, url: str) -> int:
    found: list[str] = []
    sweeps = 0
    try:
        have, newest = storage.schema_versions(url)
        if have != newest:
            raise UsageError(
                f"store {_shown(url)} has schema {have}, and only {newest} can be checked; run"
                f" {commands.command('store', 'upgrade', _shown(url))} first"
            )
        with stores.opened_whole(url) as store:
            progress = Progress("trials checked")
            damages = store.damages(lambda done, of: progress("store", done, of))
            found.extend(cleaned(str(damage), MAX_CELL) for damage in damages)
            sweeps = len(store.list_sweeps()) if not found else 0
    except StoreUnavailable:
        raise
    except StoreError as error:
        if not _there(url):
            raise
        found.append(" ".join(str(error).split()))
    if arguments.json:
        print_json({"store": _shown(url), "damages": found})
        return 1 if found else 0
    console = tables.make_console()
    for line in found[:MAX_DAMAGES]:
        console.print(line, soft_wrap=True)
    if len(found) > MAX_DAMAGES:
        console.print(f"and {len(found) - MAX_DAMAGES} more", soft_wrap=True)
    if found:
        values = "1 value is" if len(found) == 1 else f"{len(found)} values are"
        console.print(f"{_shown(url)}: {values} damaged; restore it from a backup", soft_wrap=True)
        return 1
    console.print(f"{_shown(url)} is whole: {sweeps} {'sweep' if sweeps == 1 else 'sweeps'}", soft_wrap=True)
    return 0


def _there(url: str) -> bool:
    """Whether there is a store, which may be damaged; no file, or another program's, is a mistake in the command."""
    try:
        storage.require_store(url)
    except StoreError:
        return False
    return True


def _upgrade(arguments: StoreCommandArguments, url: str) -> int:
    have, newest = storage.schema_versions(url)
    console = tables.make_console()
    if have == newest:
        if arguments.json:
            print_json({"store": _shown(url), "from": have, "to": newest, "backup": None})
        else:
            console.print(f"{_shown(url)} is up to date: schema {newest}", soft_wrap=True)
        return 0
    file = stores.file(url)
    backup = None
    if file is not None:
        backup = arguments.output or file.with_name(f"{file.name}.schema-{have}")
        storage.copy_file(file, backup)
    elif arguments.output is not None:
        raise UsageError("of a PostgreSQL store no backup is made here: use pg_dump, and drop -o")
    try:
        storage.open_store(url, create=False).close()
    except ProteinError:
        if backup is not None:
            with contextlib.suppress(ProteinError):
                if storage.schema_versions(url)[0] == have:  # a second try would find the copy in its way
                    backup.unlink(missing_ok=True)
        raise
    if arguments.json:
        copy = None if backup is None else str(backup)
        print_json({"store": _shown(url), "from": have, "to": newest, "backup": copy})
        return 0
    console.print(f"{_shown(url)}: schema {have} is now {newest}", soft_wrap=True)
    console.print(
        "no backup was made: use the server's own, such as pg_dump" if backup is None else f"as it was: {backup}",
        soft_wrap=True,
    )
    return 0


def _backup(arguments: StoreCommandArguments, url: str) -> int:
    file = stores.file(url)
    console = tables.make_console()
    if file is not None:
        storage.require_store(url)
        target = arguments.output or file.with_name(f"{file.name}.backup")
        storage.copy_file(file, target)
        if arguments.json:
            print_json({"store": _shown(url), "file": str(target), "bytes": target.stat().st_size})
        else:
            console.print(f"written: {target} ({format_size(target.stat().st_size)}), itself a store", soft_wrap=True)
        return 0
    path = arguments.output or Path("protein-store.jsonl")
    sweep_files.ending(path)
    if path.exists():
        raise UsageError(f"{path} exists already, and a backup never replaces a file; give another path with -o")
    with stores.opened_whole(url) as store:
        found = moving.export(store, moving.chosen(store, (), every=True), path, Progress("trials written"))
    if arguments.json:
        print_json({"store": _shown(url), "file": str(path), "bytes": path.stat().st_size, "sweeps": plain(found)})
        return 0
    for line in lines(found):
        console.print(line, soft_wrap=True)
    console.print(f"written: {path} ({format_size(path.stat().st_size)})", soft_wrap=True)
    console.print(
        f"it is an export of all sweeps, for {commands.command('import', str(path))}; for a copy of the whole database"
        " use pg_dump",
        soft_wrap=True,
    )
    return 0


def _move(arguments: StoreCommandArguments, url: str) -> int:
    if arguments.to is None:
        raise UsageError("move needs the other store: --to runs/other.db, or --to postgresql+psycopg://USER@HOST/NAME")
    found, target, warning = moving.move(url, arguments.to, Progress("trials copied"))
    if arguments.json:
        print_json({"from": _shown(url), "to": target, "sweeps": plain(found), "warning": warning or None})
        return 0
    console = tables.make_console()
    for line in [*lines(found), *([warning] if warning else [])]:
        console.print(line, soft_wrap=True)
    console.print(f"all of it is now in {target}, and both stores sum it up in the same way", soft_wrap=True)
    console.print(
        f"{_shown(url)} is as it was, and so are the files of the trials, which the copies name where they lie; delete"
        " the old store when you do not need it any more, and set --store or PROTEIN_STORE to the new one",
        soft_wrap=True,
    )
    return 0


def _shown(url: str) -> str:
    file = stores.file(url)
    return hidden(url) if file is None else str(file)
