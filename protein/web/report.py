"""A report: the pages of some sweeps in one HTML file, which needs no server and no network.

It holds the page's own modules (`protein.web.packing`) and the answers that these ask for. Answers that depend on what
somebody chooses are made in the browser from the whole table (`static/report/api.js`), all others are asked here once,
within this process.

Left out is what a reader elsewhere cannot use or should not see: other sweeps of the store, paths of files, logs, and
commands that name the store. Very long sweeps are cut to what a mail can carry; `Written.left_out` says so.
"""

import asyncio
import base64
import dataclasses
import html
import importlib
import io
import itertools
import json
import re
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, MutableMapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path, PurePath
from typing import Any, TypeVar
from urllib.parse import urlencode

from starlette.routing import BaseRoute, Router

from protein.api import stores
from protein.api.answers import summary
from protein.api.definition import PATHS
from protein.api.recommended import recommendation
from protein.errors import UsageError
from protein.ports import Store
from protein.spelling import counted
from protein.sweep.ownership import Life
from protein.types import SweepRecord
from protein.view import commands, data, text
from protein.view.figures.front import NO_SCORE, front
from protein.view.figures.style import save_to
from protein.web.answers import plain
from protein.web.app import FIRST_PAGES, PAGES
from protein.web.packing import STATIC, Pack, PackingError, html_of, packed
from protein.web.viewer import MAX_SWEEPS, Viewer

T = TypeVar("T")
MAX_TRIALS = 5_000  # of a sweep in its table
MAX_WHOLE = 400  # trials of a sweep with everything about them, and a curve
CURVE_POINTS = 100  # of a curve: more than a narrow chart can show apart
_POLL_SECONDS = 0.1
_ROWS = 1_000  # of the table, in one answer
_LINES = 1_000  # of parallel coordinates, as the page asks
_MAPPED = 5  # parameters of which each pair has a map
_MOST_IN_PAIRS = 4  # sweeps, of which each pair is compared, too
_PATHS = ("train", "play")  # commands that name files of this machine
_STYLESHEET = re.compile(r'<link rel="stylesheet" href="/static/([^"]+)">')
Told = Callable[[str], None]
App = Callable[..., Awaitable[None]]


class Refused(UsageError):
    """An answer with an error; `status` is that of the answer."""

    def __init__(self, line: str, status: int) -> None:
        super().__init__(line)
        self.status = status


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A report: `document` is its HTML, `left_out` says in words what did not fit."""

    document: str
    left_out: str


def write(store: Store, sweeps: Sequence[SweepRecord], *, told: Told = lambda line: None) -> Written:
    """Returns the report of some sweeps. `told` is called before each part with what is being done, in a few words.

    Raises:
        UsageError: there are too many sweeps, or none has a trial.
    """
    if not 1 <= len(sweeps) <= MAX_SWEEPS:
        raise UsageError(f"a report holds 1 to {MAX_SWEEPS} sweeps, and {len(sweeps)} are named; name fewer")
    names = [sweep.spec.name for sweep in sweeps]
    stopping = threading.Event()
    # Commands of the answers name the store unless it is the usual one. A reader elsewhere has another one.
    viewer = Viewer(store, stores.url(None), stopping, watched=False)
    try:
        found = finished(_Gathering(router(viewer), names, told).all())
    finally:
        stopping.set()
    found = _portable(found, commands.command(), commands.NAME)
    told("drawing the summary")
    about = f"{', '.join(names)}, {datetime.now(UTC):%d %B %Y %H:%M} UTC"
    found["about"] = {"name": ", ".join(names), "written_at": about.rpartition(", ")[2]}
    title = f"Protein · report of {about}"
    made = document(page(), found, title=title, summary=_summary(store, sweeps, about))
    return Written(document=made, left_out=found.pop("left_out"))


def router(viewer: Viewer) -> Router:
    """Returns what answers for all pages; paths begin behind /api."""
    modules = [importlib.import_module(f"protein.web.pages.{name}") for name in (*FIRST_PAGES, *PAGES)]
    routes: list[BaseRoute] = [route for module in modules for route in module.routes(viewer)]
    return Router(routes)


def page(static: Path = STATIC) -> Pack:
    """Reads the page's files: all of its modules, since some are imported only when a page is opened.

    Raises:
        PackingError: a module imports what is not there, or itself through others.
    """
    folders = ("lib", "pages", "report")
    names = ["app.js", *(f"{folder}/{path.name}" for folder in folders for path in (static / folder).glob("*.js"))]
    names += [f"vendor/{path.name}" for path in (static / "vendor").glob("*.esm*.js")]
    styles = _STYLESHEET.findall((static / "index.html").read_text(encoding="utf-8"))
    scripts = ["vendor/uPlot.iife.min.js"]
    return packed(sorted(names), styles=[*styles, "css/report.css"], scripts=scripts, static=static)


def document(made: Pack, found: Mapping[str, Any], *, title: str, summary: str, static: Path = STATIC) -> str:
    """Returns the HTML of a report.

    `static/report/api.js` answers from what was `found`. The `summary`, HTML, is shown until the scripts have run, and
    where they cannot.
    """
    body = re.search(r"<body>(.*)</body>", (static / "index.html").read_text(encoding="utf-8"), re.DOTALL)
    if body is None:
        raise PackingError("index.html has no body")
    shown = re.sub(
        r"(<main\b[^>]*>).*?(</main>)", lambda m: m.group(1) + summary + m.group(2), body.group(1), flags=re.DOTALL
    )
    return html_of(
        made,
        plain(found),
        start="report/api.js",
        title=title,
        body=re.sub(r"<noscript>.*?</noscript>", "", shown, flags=re.DOTALL),
        fails="This browser cannot show the whole report (ERROR). What follows is its summary.",
    )


async def ask(app: App, path: str, params: Mapping[str, Any] | None = None) -> Any:
    """Returns the JSON that an application answers to a GET.

    Args:
        app: an ASGI application, such as the router of `/api`.
        path: behind /api.
        params: a value may be a list; None and "" are left out.

    Raises:
        Refused: the answer is an error.
    """
    status, body = 0, b""

    async def receive() -> MutableMapping[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: MutableMapping[str, Any]) -> None:
        nonlocal status, body
        if message["type"] == "http.response.start":
            status = message["status"]
        elif message["type"] == "http.response.body":
            body += message.get("body", b"")

    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": query_of(params or {}).encode(),
        "headers": [(b"host", b"localhost")],
    }
    await app(scope, receive, send)
    try:
        found = json.loads(body)
    except ValueError:
        found = None
    if status == 200 and found is not None:
        return found
    line = found["error"] if isinstance(found, dict) and "error" in found else f"status {status}"
    raise Refused(line, status)


def finished(work: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine to its end, also where this thread runs a loop already, as a notebook's does."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()


def query_of(params: Mapping[str, Any]) -> str:
    """Returns the query of an address, as `address` of lib/api.js writes it."""
    pairs = [
        (key, str(one))
        for key, value in params.items()
        for one in (value if isinstance(value, Sequence) and not isinstance(value, str) else [value])
        if one is not None and one is not False and one != ""
    ]
    return urlencode(pairs, safe="*").replace("~", "%7E")  # as browsers do


def address(path: str, params: Mapping[str, Any]) -> str:
    """Returns the address of a question, by which a report keeps its answer."""
    query = query_of(params)
    return path + (f"?{query}" if query else "")


class _Gathering:
    """Asks for everything that a report holds."""

    def __init__(self, router: Router, names: Sequence[str], told: Told) -> None:
        self._router, self._names, self._told = router, list(names), told
        self._answers: dict[str, Any] = {}
        self._refused: dict[str, str] = {}
        self._left_out: list[str] = []

    async def all(self) -> dict[str, Any]:
        self._told("reading the trials")
        tables = {name: await self._table(name) for name in self._names}
        if not any(table["rows"] for table in tables.values()):
            raise UsageError(f"there is nothing to report: {_listed(self._names)} has no trial yet; let it run on")
        listed = await self._ask("/sweeps")
        kept = [one for one in listed["sweeps"] if one["name"] in self._names]
        self._answers["/sweeps"] = {**listed, "sweeps": kept, "store": ", ".join(self._names)}
        fronts = {name: (await self._ask("/front", sweep=name))["sweeps"][0] for name in self._names}
        trials, curves, maps = {}, {}, {}
        for name in self._names:
            self._told(f"computing what is expected of {name}")
            await self._keep_ready("/expected", sweep=name)
            numbers = self._whole(tables[name], name, fronts[name]["front"])
            self._told(f"reading {counted(len(numbers), 'trial')} of {name}")
            trials[name] = {number: _without_paths(await self._trial(name, number)) for number in numbers}
            curves[name] = await self._curves(name, numbers)
        for name in self._names:
            await self._models(name)
            maps[name] = await self._maps(name)
        groups = [[name] for name in self._names] + ([self._names] if len(self._names) > 1 else [])
        for names in groups:
            await self._keep("/parallel", sweep=names, limit=_LINES)
        if len(self._names) > 1:
            await self._comparisons()
        return {
            "maps": maps,
            "axes": await self._axes(tables),
            "answers": self._answers,
            "refused": self._refused,
            "tables": tables,
            "curves": curves,
            "trials": trials,
            "fronts": fronts,
            "left_out": "; ".join(self._left_out),
        }

    async def _ask(self, path: str, **params: Any) -> Any:
        return await ask(self._router, path, params)

    async def _keep(self, path: str, **params: Any) -> None:
        """Keeps an answer by its address, or the line with which it was refused."""
        try:
            self._answers[address(path, params)] = await self._ask(path, **params)
        except Refused as error:
            self._refused[address(path, params)] = str(error)

    async def _keep_ready(self, path: str, **params: Any) -> None:
        """Keeps an answer that is computed in the background, as soon as it is ready."""
        began = time.monotonic()
        while True:
            try:
                found = await self._ask(path, **params)
            except Refused as error:
                self._refused[address(path, params)] = str(error)
                return
            if not isinstance(found, Mapping) or found.get("state") != "computing":
                break
            if time.monotonic() - began > 5.0:
                began = time.monotonic()
                self._told(f"still computing {path.removeprefix('/')} of {params.get('sweep')}")
            await asyncio.sleep(_POLL_SECONDS)
        self._answers[address(path, params)] = found

    async def _table(self, name: str) -> dict[str, Any]:
        """Returns all trials of a sweep; of very many the newest ones."""
        found = await self._ask("/table", sweep=name, limit=_ROWS, sort="-number")
        total = found["total"]
        if total > MAX_TRIALS:
            self._left_out.append(f"the {total - MAX_TRIALS} oldest of {total} trials of {name}")
        while len(found["rows"]) < min(total, MAX_TRIALS):
            offset = len(found["rows"])
            more = await self._ask("/table", sweep=name, limit=_ROWS, sort="-number", offset=offset)
            if not more["rows"]:
                break
            for key in ("rows", "keys"):
                found[key] += more[key]
        # In the order of the numbers, in which the page sorts what is equal.
        rows, keys = found["rows"][:MAX_TRIALS][::-1], found["keys"][:MAX_TRIALS][::-1]
        return {"columns": found["columns"], "sweeps": found["sweeps"], "rows": rows, "keys": keys}

    def _whole(self, table: Mapping[str, Any], name: str, measured: Sequence[int]) -> list[int]:
        """Returns the trials of a sweep that are kept with all details, at most `MAX_WHOLE` of those in the table.

        They are those of both fronts, the best, the worst and the newest. Whatever a page names is among them.
        """
        place = next(i for i, one in enumerate(table["columns"]) if one["key"] == "score")
        scores = {number: row[place] for (_, number), row in zip(table["keys"], table["rows"], strict=True)}
        if len(scores) <= MAX_WHOLE:
            return list(scores)
        expected = (self._answers.get(address("/expected", {"sweep": name}), {}).get("value") or {}).get("front", [])
        ranked = sorted((n for n, score in scores.items() if isinstance(score, float | int)), key=lambda n: scores[n])
        part = MAX_WHOLE // 4
        wanted = [*measured, *(n for one in expected for n in one["trials"]), *ranked[:part], *ranked[-part:]]
        kept = list(dict.fromkeys([*wanted, *reversed(scores)]))[:MAX_WHOLE]
        self._left_out.append(f"curves and details of {counted(len(scores) - MAX_WHOLE, 'trial')} of {name}")
        return sorted(kept)

    async def _trial(self, name: str, number: int) -> dict[str, Any]:
        found: dict[str, Any] = await self._ask("/trial", sweep=name, number=number)
        return found

    async def _curves(self, name: str, numbers: Sequence[int]) -> Any:
        chosen = f"{_quoted(name)}:{'.'.join(map(str, numbers))}"
        picked = {"pick": "selected", "sel": chosen} if numbers else {}  # a sweep may have no trial yet
        params = {"sweep": name, **picked, "limit": 500, "points": CURVE_POINTS}
        return await self._ask("/curves", **params)

    async def _models(self, name: str) -> None:
        self._told(f"asking which parameters of {name} matter")
        for target in ("score", "cost"):
            await self._keep("/matters", sweep=name, target=target)
            await self._keep("/importance", sweep=name, target=target)
        await self._keep("/slices", sweep=name)
        self._told(f"looking at {name} as a whole")
        found = await self._ask("/overview", sweep=name)
        if found["life"] != Life.ENDED:  # what its process does now is soon wrong, and nobody elsewhere knows it
            found = {**found, "state": [], "running": [], "eta_seconds": None}
        self._answers[address("/overview", {"sweep": name})] = found
        await self._keep("/sweep", sweep=name)
        for path in ("/overview/findings", "/sweep/calibration", "/sweep/outlook"):
            await self._keep_ready(path, sweep=name)

    async def _maps(self, name: str) -> list[dict[str, Any]]:
        """Returns the maps of the parameters along which the model moves most."""
        slices = self._answers.get(address("/slices", {"sweep": name}))
        if slices is None or "slices" not in slices:  # the trials tell too little for a model
            return []
        self._told(f"drawing maps of {name}")
        ranked = sorted(slices["slices"], key=lambda one: -one["reach"])
        found = []
        for x, y in itertools.combinations([one["name"] for one in ranked[:_MAPPED]], 2):
            try:
                one = await self._ask("/map", sweep=name, x=x, y=y)
            except Refused:
                continue
            closeness = one.pop("trials")["closeness"]  # the trials are those of the slices
            found.append({**one, "closeness": closeness})
        return found

    async def _axes(self, tables: Mapping[str, Any]) -> dict[str, Any]:
        """Returns how each column of numbers is drawn along an axis, which holds the trials of all sweeps."""
        columns = [column for table in tables.values() for column in table["columns"] if not column["empty"]]
        found = {}
        for key in dict.fromkeys(one["key"] for one in columns if one["kind"] not in ("text", "tags")):
            try:
                one = await self._ask("/scatter", sweep=self._names, x=key, y="score", limit=1)
            except Refused:
                continue
            found[key] = {name: value for name, value in one["x"].items() if name != "values"}
        return found

    async def _comparisons(self) -> None:
        self._told("comparing the sweeps")
        groups = [self._names]
        if len(self._names) <= _MOST_IN_PAIRS:
            groups += [list(pair) for pair in itertools.permutations(self._names, 2) if list(pair) != self._names]
        for names in groups:
            for group in (0, 1):
                await self._keep("/compare-sweeps", sweep=names, group=group)


def _portable(value: Any, program: str, name: str) -> Any:
    """Returns plain data whose commands begin with the program's name, not with its path on this machine."""
    if isinstance(value, str):
        return name + value.removeprefix(program) if value.startswith(program + " ") else value
    if isinstance(value, Mapping):
        return {key: _portable(one, program, name) for key, one in value.items()}
    return [_portable(one, program, name) for one in value] if isinstance(value, list) else value


def _quoted(name: str) -> str:
    """Returns a sweep's name as it stands in a selection (lib/selection.js)."""
    from urllib.parse import quote

    return quote(name, safe="!'()*-._~")


def _without_paths(found: dict[str, Any]) -> dict[str, Any]:
    """Returns all about a trial without what only this machine can use, and without curves, which are kept apart."""
    return {
        **found,
        "curves": [],
        "metrics": [],
        "files": [],
        "playback": {"possible": False, "problem": "a report does not carry the agents"},
        "fixed": [[name, _file_name(value) if name in PATHS else value] for name, value in found["fixed"]],
        "commands": {name: line for name, line in found["commands"].items() if name not in _PATHS},
    }


def _file_name(value: str) -> str:
    """Returns the name of a file or folder without where it lies; a word that is no path stays as it is."""
    return PurePath(value).name


def _summary(store: Store, sweeps: Sequence[SweepRecord], about: str) -> str:
    """Returns what a reader sees before the scripts have run, or where they may not run: text and a picture."""
    parts = [f"<h1>Protein: report of {html.escape(about)}</h1>"]
    subjects = [(sweep, store.trials(sweep.id, curves=False)) for sweep in sweeps]
    for sweep, trials in subjects:
        far = data.progress(trials)
        counted = ", ".join(far.counts.ends()) or "no trial has finished"
        spent = text.seconds(far.spent_seconds)
        parts.append(f"<h2>{html.escape(sweep.spec.name)}</h2>")
        parts.append(f"<p>{html.escape(f'{sweep.spec.env}: {counted}; {spent} of training{far.confirmed()}')}</p>")
        drawn: dict[str, Any] = {}
        try:
            found = recommendation(sweep, trials)
            drawn = found.drawn()
            parts.append(f"<p>{html.escape(_sentence(summary(found)))}</p>")
            rows = (
                f"<tr><th scope='row'>{html.escape(name)}</th><td>{html.escape(text.param(value))}</td></tr>"
                for name, value in found.best.trial.params.items()
            )
            parts.append(f"<table><caption>The recommended config</caption>{''.join(rows)}</table>")
        except UsageError as error:  # nothing can be recommended
            parts.append(f"<p>{html.escape(_sentence(str(error)))}</p>")
        parts.append(_picture(sweep, trials, drawn))
    return f"<div class='summary'>{''.join(parts)}</div>"


def _picture(sweep: SweepRecord, trials: Sequence[Any], drawn: Mapping[str, Any]) -> str:
    try:
        figure = front([(sweep, trials)], **drawn)
    except UsageError:
        return f"<p>{html.escape(_sentence(NO_SCORE))}</p>"
    buffer = io.BytesIO()
    save_to(figure, buffer)
    encoded = base64.b64encode(buffer.getvalue()).decode()
    return f"<img alt='{html.escape(sweep.spec.name)}: score against cost' src='data:image/png;base64,{encoded}'>"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)


def _sentence(line: str) -> str:
    return line[:1].upper() + line[1:] + ("" if line.endswith((".", "!", "?")) else ".")
