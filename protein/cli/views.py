"""Sweeps to look at: `protein view` serves the page, `report` writes it as a file, `plot` draws, `compare` prints.

`compare` lays two or more sweeps over each other, with the numbers of the Compare page.
"""

import contextlib
import math
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from protein import files, plots
from protein.api import stores
from protein.api.loading import compared, sides_of
from protein.cli.arguments import CompareArguments, PlotArguments, ReportArguments, ViewArguments
from protein.cli.output import print_json, require_file, working, writing
from protein.cli.parse import Command
from protein.config.layers import flag
from protein.config.resolve import file_name
from protein.errors import UsageError
from protein.spelling import nearest
from protein.view import comparison as views
from protein.view import tables, text
from protein.view.figures.style import file_format, save

# kind of plot -> (the function, the flags that it takes beside the names and the store)
KINDS: dict[str, tuple[Callable[..., Any], tuple[str, ...]]] = {
    "front": (plots.front, ()),
    "history": (plots.history, ()),
    "curves": (plots.curves, ("x", "trials", "by", "log_x", "smooth", "mean")),
    "parallel": (plots.parallel, ("params",)),
    "importance": (plots.importance, ("target",)),
    "compare": (plots.compare, ("env", "reference", "each")),
}
_KEYWORDS = {"env": "environments"}  # of the functions, where they are not those of the flags
_MIB = 1 << 20


def run_compare(command: Command) -> int:
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


def run_plot(command: Command) -> int:
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
        "mean": arguments.mean or None,
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


def run_report(command: Command) -> int:
    arguments: ReportArguments = command.arguments
    from protein.web import report

    with stores.opened(arguments.store) as store:
        names: list[str | None] = list(dict.fromkeys(arguments.sweeps)) or [None]
        sweeps = [stores.find(store, name) for name in names]
        path = arguments.output
        if path is None:
            path = Path("_".join(file_name(sweep.spec.name) for sweep in sweeps)[:80] + ".html")
        require_file("--output", path)
        with working("reading the sweep") as status:
            written = report.write(store, sweeps, told=status.update)
        document = written.document.encode("utf-8", "replace")
        with writing(path):
            files.replace_file(path, document)
    print(f"report: {path} ({len(document) / _MIB:.2f} MiB); open it in a browser")
    if written.left_out:
        print(f"left out, so that it can be sent: {written.left_out}")
    return 0


def run_view(command: Command) -> int:
    arguments: ViewArguments = command.arguments
    if arguments.store is not None and arguments.of is not None:
        raise UsageError(f"the store is given twice, as {arguments.of!r} and with --store; give it once")
    if arguments.port is not None and not 1 <= arguments.port <= 65535:
        raise UsageError(f"--port {arguments.port} must be from 1 to 65535")
    from protein.api import stores
    from protein.web import app, background, security

    local = security.is_loopback(arguments.host)
    if not local and not arguments.token:
        raise UsageError(
            f"--host {arguments.host} lets other machines read the store and change tags, notes and exclusions"
            "; add --token to make a token that they need"
        )
    background.keep_small()  # before there are threads
    store_url = stores.url(arguments.store if arguments.of is None else arguments.of)
    artifacts = stores.given_artifacts(arguments.artifacts)
    stores.check(store_url)  # before the address is printed; the store is opened while the page loads
    token = security.new_token() if arguments.token else None
    listening = app.listen(arguments.host, arguments.port)
    port = listening.getsockname()[1]
    address = f"http://{app.shown_host(arguments.host)}:{port}/"
    if token is not None:
        address += f"?token={token}"
    with contextlib.suppress(KeyboardInterrupt):  # from the line on that promises it
        print(f"protein view: {address}  (Ctrl-C ends it)", flush=True)
        if not local:
            print(
                "note: the token and the store travel unencrypted. Safer: leave out --host, and reach the page by "
                f"ssh -L {port}:127.0.0.1:{port} {socket.gethostname()}, or by a proxy with TLS (docs/pages.md)",
                file=sys.stderr,
                flush=True,
            )
        if arguments.open:
            import webbrowser

            webbrowser.open(address)
        app.make_server(store_url, host=arguments.host, token=token, artifacts=artifacts).serve_on(listening)
    print("\nended; sweeps that run are not affected", file=sys.stderr)
    return 0
