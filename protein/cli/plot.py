"""`protein plot`: a picture of one or several sweeps, as PNG, SVG or PDF."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from protein import plots
from protein.cli.arguments.views import PlotArguments
from protein.cli.output import require_file, working, writing
from protein.cli.parse import Command
from protein.config.layers import flag
from protein.errors import UsageError
from protein.spelling import nearest
from protein.view.figures.style import file_format, save

# kind -> (the function, the flags that it takes beside the names and the store)
KINDS: dict[str, tuple[Callable[..., Any], tuple[str, ...]]] = {
    "front": (plots.front, ()),
    "curves": (plots.curves, ("x", "trials", "by", "log_x", "smooth")),
    "parallel": (plots.parallel, ("params",)),
    "importance": (plots.importance, ("target",)),
    "compare": (plots.compare, ("env", "reference", "each")),
}

_KEYWORDS = {"env": "environments"}  # of the functions, where they are not those of the flags


def run(command: Command) -> int:
    arguments: PlotArguments = command.arguments
    if not arguments.what:
        raise UsageError(f"say what to plot: {', '.join(KINDS)}; as in protein plot front pong -o front.png")
    kind, *names = arguments.what
    if kind not in KINDS:
        raise UsageError(f"there is no plot '{kind}'{nearest(kind, KINDS)}")
    draw, takes = KINDS[kind]
    settings = {
        "x": arguments.x,
        "trials": None if arguments.trials is None else _numbers(arguments.trials),
        "by": arguments.by,
        "log_x": arguments.log_x or None,
        "smooth": arguments.smooth,
        "params": _listed(arguments.params),
        "target": arguments.target,
        "env": _listed(arguments.env),
        "reference": arguments.reference,
        "each": arguments.each or None,
    }
    given = {name: value for name, value in settings.items() if value is not None}
    if wrong := [name for name in given if name not in takes]:
        others = f"; it takes {', '.join(flag(name) for name in takes)}" if takes else ""
        raise UsageError(f"a plot of kind '{kind}' takes no {flag(wrong[0])}{others}")
    if kind == "importance" and len(names) > 1:
        raise UsageError(f"a plot of kind 'importance' is of one sweep, and {len(names)} are named; plot them apart")
    path = Path(f"{kind}.png") if arguments.output is None else arguments.output
    file_format(path)
    require_file("--output", path)
    with working("drawing"):
        figure = draw(*names, store=arguments.store, **{_KEYWORDS.get(name, name): given[name] for name in given})
    with writing(path):
        save(figure, path)
    print(f"plot: {path}")
    return 0


def _listed(given: str | None) -> list[str] | None:
    return None if given is None else [name.strip() for name in given.split(",")]


def _numbers(given: str) -> list[int]:
    try:
        return [int(word) for word in given.split(",")]
    except ValueError:
        raise UsageError(f"--trials '{given}' is not a list of trials; write it like 3,17,18") from None
