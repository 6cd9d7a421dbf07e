"""`protein export`: sweeps as a file, which `protein import` reads."""

from collections.abc import Sequence
from pathlib import Path

from protein.api import moving, stores, sweep_files
from protein.cli.arguments.keeping import ExportArguments
from protein.cli.output import Progress, print_json
from protein.cli.parse import Command
from protein.errors import UsageError
from protein.names import folder_name
from protein.units import format_size
from protein.view import commands, tables


def run(command: Command) -> int:
    arguments: ExportArguments = command.arguments
    if arguments.output is not None:
        sweep_files.ending(arguments.output)  # before the store is opened
    with stores.opened_whole(arguments.store) as store:
        sweeps = moving.chosen(store, arguments.sweeps, every=arguments.all)
        if arguments.output is None and len(sweeps) > 1:
            raise UsageError(f"{len(sweeps)} sweeps need a file's name: add -o FILE, as in -o sweeps.parquet")
        path = arguments.output or Path(f"{folder_name(sweeps[0].spec.name)}.jsonl")
        found = moving.export(store, sweeps, path, Progress("trials written"))
    size = path.stat().st_size
    if arguments.json:
        print_json({"file": str(path), "bytes": size, "sweeps": plain(found)})
        return 0
    console = tables.make_console()
    for line in lines(found):
        console.print(line, soft_wrap=True)
    console.print(f"written: {path} ({format_size(size)})", soft_wrap=True)
    console.print(f"to read it: {commands.command('import', str(path))}", soft_wrap=True)
    return 0


def plain(found: Sequence[moving.Moved]) -> list[dict[str, object]]:
    """Returns what was moved, for JSON."""
    return [
        {
            "sweep": one.name,
            "trials": one.num_trials,
            "points": one.num_points,
            "running": list(one.running),
            "paused": one.paused,
        }
        for one in found
    ]


def lines(found: Sequence[moving.Moved]) -> list[str]:
    """Returns what was moved: a line each sweep."""
    said = []
    for one in found:
        trials = "1 trial" if one.num_trials == 1 else f"{one.num_trials:,} trials"
        line = f"{one.name}: {trials} with {one.num_points:,} curve points"
        if one.running:
            numbers = ", ".join(map(str, one.running[:5])) + (", ..." if len(one.running) > 5 else "")
            which, end = ("trial", "ends") if len(one.running) == 1 else ("trials", "end")
            line += f"; {which} {numbers} had not finished, and {end} as interrupted when the copy is resumed"
        if one.paused:
            line += f"; it is paused, and so is the copy, until {commands.command('resume', one.name)}"
        said.append(line)
    return said
