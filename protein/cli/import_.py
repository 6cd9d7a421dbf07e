"""`protein import`: the sweeps of a file, or another tool's runs as a sweep of the store."""

import time
from pathlib import Path

from protein.api import importing, moving, stores, sweep_files
from protein.cli import export
from protein.cli.arguments.keeping import ImportArguments
from protein.cli.output import Progress, print_json
from protein.cli.parse import Command
from protein.errors import UsageError
from protein.imports.runs import Source
from protein.space.parameters import Categorical, Parameter
from protein.types import Direction
from protein.view import commands, tables

LINE_SECONDS = 2.0  # between two lines of progress
MAX_SHOWN = 12  # parameters, and choices of one


def run(command: Command) -> int:
    arguments: ImportArguments = command.arguments
    if arguments.tool is not None and _is_file(arguments.tool):
        return _run_file(arguments, Path(arguments.tool))
    if arguments.tool is None or arguments.source is None:
        raise UsageError(
            "import needs a file of protein export, as in protein import pong.jsonl; or a tool and where its runs are,"
            f" as in protein import optuna sqlite:///study.db; known are {', '.join(importing.TOOLS)}"
        )
    source = Source(
        place=arguments.source,
        experiment=arguments.experiment,
        score=arguments.score,
        cost=arguments.cost,
        direction=_direction(arguments.direction),
    )
    params = (
        None if arguments.params is None else [name.strip() for name in arguments.params.split(",") if name.strip()]
    )
    console = tables.make_console()
    imported = importing.read(arguments.tool, source, params=params, rename=_rename(arguments.rename))
    name = arguments.name or importing.default_name(imported)
    printed = time.monotonic()

    def progress(done: int, of: int) -> None:
        nonlocal printed
        if time.monotonic() - printed >= LINE_SECONDS and not arguments.json:
            printed = time.monotonic()
            console.print(f"{done} of {of} runs stored", highlight=False)

    space_file = None if arguments.space is None else Path(arguments.space)
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
    if done.outside:
        lines.append(
            f"{_runs(done.outside)} outside this space: shown, but the engine does not learn from them"
            + ("" if done.created else "; import under another --name for a space that holds them")
        )
    store_words = stores.store_words(arguments.store)
    lines.append(f"see: {commands.command('show', name, *store_words)}")
    lines.append(f"to learn from it, start a sweep with: --warm-start {name}")
    for line in lines:
        console.print(line, highlight=False, markup=False, soft_wrap=True)
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
    with stores.opened_whole(arguments.store, create=True) as store:
        found = moving.import_file(store, path, name=arguments.name, progress=Progress("trials stored"))
    if arguments.json:
        print_json({"file": str(path), "sweeps": export.plain(found)})
        return 0
    console = tables.make_console()
    for line in export.lines(found):
        console.print(line, soft_wrap=True)
    named = [one.name for one in found[:1]]
    console.print(f"see: {commands.command('show', *named, *stores.store_words(arguments.store))}", soft_wrap=True)
    return 0


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
    shown = [_parameter(one) for one in parameters[:MAX_SHOWN]]
    more = len(parameters) - MAX_SHOWN
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")


def _parameter(one: Parameter) -> str:
    if isinstance(one, Categorical):
        choices = " ".join(map(str, one.choices[:MAX_SHOWN])) + (" ..." if len(one.choices) > MAX_SHOWN else "")
        return f"{one.name} ({choices})"
    return f"{one.name} {one.low:g} to {one.high:g}" + ("" if one.scale == "linear" else f" ({one.scale})")
