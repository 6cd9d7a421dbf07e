"""`protein compare`: two or more sweeps over each other, as tables or JSON: the numbers of the Compare page."""

import math
from typing import Any

from protein.api import stores
from protein.api.comparison import compared, sides_of
from protein.cli.arguments.views import CompareArguments
from protein.cli.output import print_json, working
from protein.cli.parse import Command
from protein.view import comparison as views
from protein.view import tables, text


def run(command: Command) -> int:
    arguments: CompareArguments = command.arguments
    wanted = [] if arguments.env is None else [env.strip() for env in arguments.env.split(",")]
    with working("comparing"), stores.opened(arguments.store) as store:
        sides = sides_of(store.list_sweeps(), arguments.sweeps, each=arguments.each)
        found = compared(store, sides, reference=arguments.reference, environments=wanted)
    if arguments.json:
        labels = {label: [sweep.spec.name for sweep in sides[label]] for label in sides}
        print_json({"labels": labels, **_without_nan(views.plain(found))})
        return 0
    console = tables.make_console()
    console.print(f"compared in {', '.join(env.name for env in found.environments)}: {views.MEANING}\n", soft_wrap=True)
    console.print(views.figures_table(found, console.width))
    console.print()
    for line in views.differences(found):
        console.print(line, soft_wrap=True)
    for env in found.environments:
        console.print()
        console.print(views.environment_table(found, env, console.width))
    console.print(f"\n{views.ENVIRONMENT_LEGEND}", soft_wrap=True)
    for label, sweeps in sides.items():
        if len(sweeps) > 1:
            console.print(f"{label}: {', '.join(sweep.spec.name for sweep in sweeps)}", soft_wrap=True)
    for note in found.notes:
        console.print(note, soft_wrap=True)
    spent = ", ".join(f"{env.name} {text.seconds(env.common_seconds)}" for env in found.environments)
    console.print(f"budget that all have spent: {spent}", soft_wrap=True)
    return 0


def _without_nan(value: Any) -> Any:
    """Returns plain data with null for NaN, which JSON lacks: a curve has no value there yet."""
    if isinstance(value, dict):
        return {key: _without_nan(item) for key, item in value.items()}
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [_without_nan(item) for item in value]
    return None if isinstance(value, float) and math.isnan(value) else value
