"""Sweeps out and in: `protein export` writes a file that `protein import` reads.

`import` also takes another tool's runs as a sweep of the store. `sync` writes to trackers all of a sweep's trials that
they do not have yet.
"""

import time
from pathlib import Path

from protein.api import importing, stores, sweep_files, trackers
from protein.cli.arguments import ExportArguments, ImportArguments, SyncArguments
from protein.cli.output import Progress, answer, moved_lines, moved_plain, print_json
from protein.cli.parse import Command
from protein.errors import TrialFailed, UsageError
from protein.imports.runs import Source
from protein.names import folder_name
from protein.space.parameters import Parameter
from protein.spelling import counted
from protein.trackers.tracker import TRACKERS, check_trackers
from protein.types import Direction
from protein.units import format_size
from protein.view import commands, tables, text

LINE_SECONDS = 2.0  # between two lines of progress
MAX_SHOWN = 12  # parameters


def run_export(command: Command) -> int:
    arguments: ExportArguments = command.arguments
    if arguments.output is not None:
        sweep_files.ending(arguments.output)  # before the store is opened
    with stores.opened_whole(arguments.store) as store:
        sweeps = sweep_files.chosen(store, arguments.sweeps, every=arguments.all)
        if arguments.output is None and len(sweeps) > 1:
            raise UsageError(f"{len(sweeps)} sweeps need a file's name: add -o FILE, as in -o sweeps.parquet")
        path = arguments.output or Path(f"{folder_name(sweeps[0].spec.name)}.jsonl")
        found = sweep_files.export(store, sweeps, path, Progress("trials written"))
    size = path.stat().st_size
    lines = [
        *moved_lines(found),
        f"written: {path} ({format_size(size)})",
        f"to read it: {commands.command('import', str(path))}",
    ]
    return answer(arguments.json, {"file": str(path), "bytes": size, "sweeps": moved_plain(found)}, lines)


def run_import(command: Command) -> int:
    arguments: ImportArguments = command.arguments
    if arguments.tool is not None and _is_file(arguments.tool):
        return _run_file(arguments, Path(arguments.tool))
    if arguments.tool is None or (arguments.source is None and arguments.tool in importing.TOOLS):
        raise UsageError(
            "import needs a file of protein export, as in protein import pong.jsonl; or a tool and where its runs are,"
            f" as in protein import optuna sqlite:///study.db; known are {', '.join(importing.TOOLS)}"
        )
    place = arguments.tool if arguments.source is None else arguments.source
    tool = importing.tool_of(place) if arguments.source is None else arguments.tool
    columns = arguments.params
    source = Source(
        place=place,
        experiment=arguments.experiment,
        score=arguments.score,
        cost=arguments.cost,
        direction=_direction(arguments.direction),
        params=None if columns is None else [name.strip() for name in columns.split(",") if name.strip()],
    )
    console = tables.make_console()
    imported = importing.read(tool, source, rename=_rename(arguments.rename))
    name = arguments.name or importing.default_name(imported)
    printed = time.monotonic()

    def progress(done: int, of: int) -> None:
        nonlocal printed
        if time.monotonic() - printed >= LINE_SECONDS and not arguments.json:
            printed = time.monotonic()
            console.print(f"{done} of {of} runs stored")

    space_file = None if arguments.space is None else Path(arguments.space)
    if not arguments.json and (line := stores.new_folder(arguments.store)) is not None:
        console.print(line, soft_wrap=True)
    with stores.opened(arguments.store, create=True) as store:
        done = importing.store_runs(
            store,
            imported,
            name=name,
            space_file=space_file,
            cost_parameter=arguments.cost_parameter,
            progress=progress,
        )
    if arguments.json:
        print_json(_plain(done, imported.where, imported.score))
        return 0
    what = f"sweep '{name}' {'is new' if done.created else 'was there'}: {_runs(done.added)} imported"
    lines = [f"{what} from {imported.where}" + (f", {done.known} were there already" if done.known else "")]
    if done.unfinished:
        lines.append(f"{_runs(done.unfinished)} left out: not finished yet; import again when they are")
    if done.without_cost:
        lines.append(f"{_runs(done.without_cost)} left out: what they cost is not known")
    if done.created:
        lines.append(f"score: {imported.score} ({imported.direction}); space: {_space(done.space.parameters)}")
    lines += [f"note: {note}" for note in done.notes]
    if done.outside:
        lines.append(
            f"{_runs(done.outside)} outside this space: shown, but the engine does not learn from them"
            + ("" if done.created else "; import under another --name for a space that holds them")
        )
    store_words = stores.store_words(arguments.store)
    lines.append(f"see: {commands.command('show', name, *store_words)}")
    lines.append(f"to learn from it, start a sweep with: --warm-start {name}")
    for line in lines:
        console.print(line, soft_wrap=True)
    return 0


def _is_file(word: str) -> bool:
    """Whether the first word is a file of sweeps rather than a tool."""
    return word not in importing.TOOLS and Path(word).suffix.lower() in sweep_files.ENDINGS


def _run_file(arguments: ImportArguments, path: Path) -> int:
    """Stores the sweeps of a file that `protein export` has written."""
    foreign = ("source", "experiment", "score", "direction", "cost", "params", "rename", "space", "cost_parameter")
    for name in foreign:
        if getattr(arguments, name):
            given = "a second word" if name == "source" else f"--{name.replace('_', '-')}"
            raise UsageError(f"{given} is for runs of other tools; {path} tells all of its sweeps itself")
    if not path.is_file():
        raise UsageError(f"there is no file {path}; give one that protein export has written")
    if not arguments.json and (line := stores.new_folder(arguments.store)) is not None:
        tables.make_console().print(line, soft_wrap=True)
    with stores.opened_whole(arguments.store, create=True) as store:
        found = sweep_files.import_file(store, path, name=arguments.name, progress=Progress("trials stored"))
    named = [one.name for one in found[:1]]
    see = f"see: {commands.command('show', *named, *stores.store_words(arguments.store))}"
    plain = {"file": str(path), "sweeps": moved_plain(found)}
    return answer(arguments.json, plain, [*moved_lines(found), see])


def _plain(done: importing.Done, where: str, score: str) -> dict[str, object]:
    return {
        "sweep": done.sweep.spec.name,
        "created": done.created,
        "added": done.added,
        "known": done.known,
        "unfinished": done.unfinished,
        "without_cost": done.without_cost,
        "outside": done.outside,
        "from": where,
        "score": score,
        "direction": str(done.sweep.spec.direction),
        "space": done.space.to_dict(),
        "notes": list(done.notes),
    }


def _direction(text: str | None) -> Direction | None:
    if text is not None and text not in set(Direction):
        raise UsageError(f"--direction '{text}' is neither maximize nor minimize")
    return None if text is None else Direction(text)


def _rename(pairs: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for pair in pairs:
        old, equals, new = pair.partition("=")
        if not (old and equals and new):
            raise UsageError(f"--rename '{pair}' is not of the form OLD=NEW, as in lr=train.learning_rate")
        found[old] = new
    return found


def _runs(count: int) -> str:
    return "1 run" if count == 1 else f"{count} runs"


def _space(parameters: tuple[Parameter, ...]) -> str:
    shown = [text.searched(one) for one in parameters[:MAX_SHOWN]]
    more = len(parameters) - MAX_SHOWN
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")


def run_sync(command: Command) -> int:
    arguments: SyncArguments = command.arguments
    if not arguments.tracker:
        known = ", ".join(TRACKERS)
        raise UsageError(f"sync needs --tracker NAME, one of {known}; give it several times for several")
    names = check_trackers(arguments.tracker)
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
        listed = [{"tracker": one.name, "written": one.num_written, "error": one.error or None} for one in found]
        print_json({"sweep": sweep, "trackers": listed})
    failed = [one for one in found if one.error]
    for one in found:
        if not one.error and not arguments.json:
            written = f"{counted(one.num_written, 'trial')} written"
            console.print(f"{one.name}: {written}; to see the sweep there, {one.how_to_look}", soft_wrap=True)
    if failed:
        again = commands.command(*command.words)
        errors = "; ".join(f"{one.name}: {one.error}" for one in failed)
        raise TrialFailed(f"{errors}; what was written is kept, so run {again} again")
    return 0
