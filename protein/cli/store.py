"""Looking after a store and its sweeps.

`protein store` checks, upgrades, backs up and moves a store. `rename` and `rm` are for a sweep and its folder, and
`clean` deletes checkpoints that nothing needs any more.
"""

import contextlib
import sys
from pathlib import Path

from protein import storage
from protein.api import keeping, stores, sweep_files
from protein.api.keeping import SweepFolder
from protein.cli.arguments import CleanArguments, RemoveArguments, RenameArguments, StoreCommandArguments
from protein.cli.output import Progress, answer, moved_lines, moved_plain, print_json, working
from protein.cli.parse import Command
from protein.config.layers import display_path
from protein.errors import ProteinError, StoreError, StoreUnavailable, UsageError
from protein.spelling import counted, nearest
from protein.storage import existing
from protein.types import SweepRecord
from protein.units import format_size
from protein.urls import hidden
from protein.view import commands, tables
from protein.view.text import MAX_CELL, cleaned

MAX_DAMAGES = 200  # that are printed


def run_store(command: Command) -> int:
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
        have, newest = existing.versions(url)
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
        values = counted(len(found), "value is", "values are")
        console.print(f"{_shown(url)}: {values} damaged; restore it from a backup", soft_wrap=True)
        return 1
    console.print(f"{_shown(url)} is whole: {sweeps} {'sweep' if sweeps == 1 else 'sweeps'}", soft_wrap=True)
    return 0


def _there(url: str) -> bool:
    """Whether there is a store, which may be damaged; no file, or another program's, is a mistake in the command."""
    try:
        existing.require_store(url)
    except StoreError:
        return False
    return True


def _upgrade(arguments: StoreCommandArguments, url: str) -> int:
    have, newest = existing.versions(url)
    said = {"store": _shown(url), "from": have, "to": newest}
    if have == newest:
        return answer(arguments.json, {**said, "backup": None}, [f"{_shown(url)} is up to date: schema {newest}"])
    file = stores.file(url)
    backup = None
    if file is not None:
        backup = arguments.output or file.with_name(f"{file.name}.schema-{have}")
        existing.copy_file(file, backup)
    elif arguments.output is not None:
        raise UsageError("of a PostgreSQL store no backup is made here: use pg_dump, and drop -o")
    try:
        storage.open_store(url, create=False).close()
    except ProteinError:
        if backup is not None:
            with contextlib.suppress(ProteinError):
                if existing.versions(url)[0] == have:  # a second try would find the copy in its way
                    backup.unlink(missing_ok=True)
        raise
    copy = None if backup is None else str(backup)
    where = "no backup was made: use the server's own, such as pg_dump" if copy is None else f"as it was: {copy}"
    lines = [f"{_shown(url)}: schema {have} is now {newest}", where]
    return answer(arguments.json, {**said, "backup": copy}, lines)


def _backup(arguments: StoreCommandArguments, url: str) -> int:
    file = stores.file(url)
    if file is not None:
        existing.require_store(url)
        target = arguments.output or file.with_name(f"{file.name}.backup")
        existing.copy_file(file, target)
        size = target.stat().st_size
        said = {"store": _shown(url), "file": str(target), "bytes": size}
        return answer(arguments.json, said, [f"written: {target} ({format_size(size)}), itself a store"])
    path = arguments.output or Path("protein-store.jsonl")
    sweep_files.ending(path)
    if path.exists():
        raise UsageError(f"{path} exists already, and a backup never replaces a file; give another path with -o")
    with stores.opened_whole(url) as store:
        found = sweep_files.export(store, sweep_files.chosen(store, (), every=True), path, Progress("trials written"))
    size = path.stat().st_size
    lines = [
        *moved_lines(found),
        f"written: {path} ({format_size(size)})",
        f"it is an export of all sweeps, for {commands.command('import', str(path))}; for a copy of the whole database"
        " use pg_dump",
    ]
    said = {"store": _shown(url), "file": str(path), "bytes": size, "sweeps": moved_plain(found)}
    return answer(arguments.json, said, lines)


def _move(arguments: StoreCommandArguments, url: str) -> int:
    if arguments.to is None:
        raise UsageError("move needs the other store: --to runs/other.db, or --to postgresql+psycopg://USER@HOST/NAME")
    found, target, warning = sweep_files.move(url, arguments.to, Progress("trials copied"))
    lines = [
        *moved_lines(found),
        *([warning] if warning else []),
        f"all of it is now in {target}, and both stores sum it up in the same way",
        f"{_shown(url)} is as it was, and so are the files of the trials, which the copies name where they lie; delete"
        " the old store when you do not need it any more, and set --store or PROTEIN_STORE to the new one",
    ]
    said = {"from": _shown(url), "to": target, "sweeps": moved_plain(found), "warning": warning or None}
    return answer(arguments.json, said, lines)


def _shown(url: str) -> str:
    file = stores.file(url)
    return hidden(url) if file is None else str(file)


def run_rename(command: Command) -> int:
    arguments: RenameArguments = command.arguments
    if arguments.old is None or arguments.new is None:
        raise UsageError("rename needs two names, as in protein rename pong pong-july")
    with stores.opened_whole(arguments.store) as store:
        url, artifacts = stores.url(arguments.store), stores.given_artifacts(arguments.artifacts)
        folder = keeping.rename(store, url, arguments.old, arguments.new, artifacts)
    line = f"sweep '{arguments.old}' is now '{arguments.new}'"
    line += "; it has no folder" if folder is None else f"; its files are in {display_path(folder)}"
    tables.make_console().print(line, soft_wrap=True)
    return 0


def run_remove(command: Command) -> int:
    arguments: RemoveArguments = command.arguments
    if arguments.sweep is None:
        raise UsageError("rm needs the name of a sweep, as in protein rm pong; protein status lists them")
    with stores.opened_whole(arguments.store) as store:
        url, artifacts = stores.url(arguments.store), stores.given_artifacts(arguments.artifacts)
        removal = keeping.plan_removal(store, url, arguments.sweep, artifacts)
        console = tables.make_console()
        place = display_path(removal.folder)
        files = f"the {format_size(removal.num_bytes)} of files of its trials in {place}"
        what = f"sweep '{arguments.sweep}' with {counted(removal.num_trials, 'trial')}"
        what += "" if arguments.keep_files or not removal.paths else f", and {files}"
        if removal.begun and not arguments.keep_files:
            what += f", with which agents of {', '.join(sorted(removal.begun))} begin"
        if not arguments.yes and not _agreed(what):
            raise UsageError("nothing was removed; give --yes to remove it without being asked")
        keeping.remove(store, removal, keep_files=arguments.keep_files)
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


def run_clean(command: Command) -> int:
    arguments: CleanArguments = command.arguments
    url, artifacts = stores.url(arguments.store), stores.given_artifacts(arguments.artifacts)
    console = tables.make_console()
    plans: list[keeping.Cleaning] = []
    running: list[SweepRecord] = []
    with stores.opened_whole(arguments.store) as store:
        names = [] if arguments.sweep is None else [arguments.sweep]
        for sweep in sweep_files.chosen(store, names, every=arguments.all):
            try:
                sweep_files.require_idle(store, sweep, "cleaned")
            except UsageError:
                if not arguments.all:
                    raise
                running.append(sweep)
                continue
            with working(f"looking at the files of {sweep.spec.name}"):
                trials = store.trials(sweep.id, curves=False, last_points=True)
                folder = SweepFolder.of(url, sweep.spec.name, artifacts)
                begun, goes_on = keeping.beginnings(store, sweep, folder), not arguments.finished
                plans.append(keeping.plan_cleaning(sweep, trials, folder, goes_on=goes_on, begun=begun))
    for plan in plans:
        if not arguments.json:
            console.print(_cleaned(plan, arguments.dry_run), soft_wrap=True)
    for sweep in running:
        if not arguments.json:
            console.print(f"{sweep.spec.name}: a process runs it, so its files are left alone", soft_wrap=True)
    freed = 0
    if not arguments.dry_run:
        freed = sum(one.num_bytes for plan in plans for one in keeping.clean(plan))
    if arguments.json:
        left_alone = [_cleaned_plain(keeping.Cleaning(sweep=sweep, freed=(), kept=()), True) for sweep in running]
        for one in left_alone:  # nobody has looked which checkpoints of it are needed
            one |= {"runs": True, "kept": None, "to_go_on": None, "to_begin": None}
        print_json([_cleaned_plain(plan, arguments.dry_run) for plan in plans] + left_alone)
    elif freed:
        console.print(f"freed {format_size(freed)}", soft_wrap=True)
    return 0


def _cleaned(plan: keeping.Cleaning, dry_run: bool) -> str:
    trials = len({one.trial for one in plan.freed})
    kept = f"{counted(len(plan.kept), 'trial keeps its', 'trials keep their')} checkpoints"
    if number := len(plan.to_go_on):
        kept += f", {number} of them to be continued (--finished frees {'this' if number == 1 else 'these'}, too)"
    if plan.to_begin:
        users = ", ".join(f"'{name}'" for name in sorted(set(plan.to_begin.values())))
        kept += f", {len(plan.to_begin)} of them because agents of {users} begin with these"
    if not plan.freed:
        return f"{plan.sweep.spec.name}: nothing to delete; {kept}"
    what = f"checkpoints of {trials} {'trial' if trials == 1 else 'trials'}, {format_size(plan.num_bytes)}"
    return f"{plan.sweep.spec.name}: {'would delete' if dry_run else 'deleting'} {what}; {kept}"


def _cleaned_plain(plan: keeping.Cleaning, dry_run: bool) -> dict[str, object]:
    return {
        "sweep": plan.sweep.spec.name,
        "runs": False,
        "deleted": not dry_run,
        "bytes": plan.num_bytes,
        "files": [{"trial": one.trial, "path": str(one.path), "bytes": one.num_bytes} for one in plan.freed],
        "kept": list(plan.kept),
        "to_go_on": list(plan.to_go_on),
        "to_begin": list(plan.to_begin),
    }
