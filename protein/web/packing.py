"""Modules of `static/` and their data in one HTML file, which needs no server and no network.

The modules are as they are: there is no build step. They follow rules that make packing simple: they import each other
by relative paths, and no module imports itself through others. `static/report/boot.js` turns them back into modules in
the browser, also from a file that was opened by itself, where a browser loads no module.
"""

import base64
import dataclasses
import gzip
import hashlib
import html
import json
import posixpath
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

STATIC = Path(__file__).parent / "static"
_FIRST, _BOOT = "lib/theme-first.js", "report/boot.js"  # which are no modules
_IMPORT = re.compile(r"""(^\s*(?:import|export)\b[^"';()]*?["'])(\.{1,2}/[^"']+)(["'])""", re.MULTILINE)
_DYNAMIC = re.compile(r"(?<![\w.$])import\(")
_URL = re.compile(r"""url\(["']?([^"')]+)["']?\)""")
_MARK = "\x01"


class PackingError(Exception):
    """A module that does not follow the rules: a defect of the page, not of what somebody asked for."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Pack:
    """What a file is made of, apart from its data.

    Attributes:
        modules: name -> source, each after those that it imports; names of others stand between two U+0001.
        scripts: plain scripts, to run before the modules.
        styles: one style sheet.
        first: the script that chooses dark or light before anything is drawn.
        boot: the script that unpacks the rest.
        icon: SVG.
    """

    modules: Mapping[str, str]
    scripts: tuple[str, ...]
    styles: str
    first: str
    boot: str
    icon: str


def packed(names: Iterable[str], *, styles: Iterable[str], scripts: Iterable[str] = (), static: Path = STATIC) -> Pack:
    """Reads modules and those that they import, style sheets and plain scripts, named as in `static`.

    Raises:
        PackingError: a module imports what is not there, or itself through others.
    """
    sources: dict[str, str] = {}
    order: dict[str, None] = {}

    def add(name: str, on_the_way: tuple[str, ...]) -> None:
        if name in on_the_way:
            raise PackingError(f"modules import each other: {' -> '.join((*on_the_way, name))}")
        if name in order:
            return
        try:
            sources[name] = (static / name).read_text(encoding="utf-8")
        except FileNotFoundError as error:
            raise PackingError(f"{(on_the_way or ('the page',))[-1]} imports {name}, which is not there") from error
        for _, wanted, _ in [] if _is_library(name) else _IMPORT.findall(sources[name]):
            add(_resolved(name, wanted), (*on_the_way, name))
        order[name] = None

    for name in names:
        if name not in (_FIRST, _BOOT):
            add(name, ())
    return Pack(
        modules={name: _marked(name, sources[name]) for name in order},
        scripts=tuple((static / name).read_text(encoding="utf-8") for name in scripts),
        styles="\n".join(_style(static, name) for name in dict.fromkeys(styles)),
        first=(static / _FIRST).read_text(encoding="utf-8"),
        boot=(static / _BOOT).read_text(encoding="utf-8"),
        icon=(static / "icon.svg").read_text(encoding="utf-8"),
    )


def html_of(
    pack: Pack, data: Any, *, start: str, title: str, body: str, fails: str, kind: str = "report", wasm: bool = False
) -> str:
    """Returns the HTML of a file.

    Args:
        pack: its modules and style sheets.
        data: what `start(data)` of a module is given, as JSON.
        start: the name of that module.
        title: of the window.
        body: HTML, with an element `notices`; it is shown until the scripts have run, and where they cannot.
        fails: what it says there; ERROR stands for the reason.
        kind: class of the whole page.
        wasm: whether it compiles WebAssembly.
    """
    whole = {"modules": list(pack.modules.items()), "scripts": pack.scripts, "start": start, "data": data}
    text = json.dumps(whole, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    content = base64.b64encode(gzip.compress(text.encode("utf-8", "replace"), 9, mtime=0)).decode()
    styles, first, boot = (_inline(one) for one in (pack.styles, pack.first, pack.boot))
    compiling = " 'wasm-unsafe-eval'" if wasm else ""
    policy = (
        f"default-src 'none'; script-src {_hash(first)} {_hash(boot)} blob:{compiling}; style-src {_hash(styles)}"
        "; style-src-attr 'unsafe-inline'; img-src data: blob:; connect-src blob:; base-uri 'none'; form-action 'none'"
    )
    return f"""<!doctype html>
<html lang="en" class="{kind}">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="referrer" content="no-referrer">
<title>{html.escape(title)}</title>
<link rel="icon" href="{_data_url(pack.icon)}">
<style>{styles}</style>
<script>{first}</script>
</head>
<body>{body}
<script type="text/plain" data-fails="{html.escape(fails)}" id="pack">{content}</script>
<script>{boot}</script>
</body>
</html>
"""


def _is_library(name: str) -> bool:
    return name.startswith("vendor/")


def _resolved(name: str, wanted: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(name), wanted))


def _marked(name: str, source: str) -> str:
    """Returns a module's source with the names of others marked, and with `import(...)` as a call of the boot's."""
    if _is_library(name):
        return source
    marked = _IMPORT.sub(lambda m: f"{m.group(1)}{_MARK}{_resolved(name, m.group(2))}{_MARK}{m.group(3)}", source)
    return _DYNAMIC.sub(f"proteinImport({json.dumps(name)}, ", marked)


def _style(static: Path, name: str) -> str:
    """Returns a style sheet with the files that it names in it."""
    folder = (static / name).parent

    def inlined(match: re.Match[str]) -> str:
        return f'url("{_data_url((folder / match.group(1)).read_text(encoding="utf-8"))}")'

    return _URL.sub(inlined, (static / name).read_text(encoding="utf-8"))


def _data_url(svg: str) -> str:
    return f"data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()}"


def _inline(source: str) -> str:
    """Returns a script or style sheet for its element. Raises `PackingError` where it would end the element."""
    if re.search(r"</(script|style)|<!--", source, re.IGNORECASE):
        raise PackingError("a script or style sheet that is written into the file must not hold a closing tag")
    return source


def _hash(source: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()}'"
