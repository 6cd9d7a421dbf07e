"""Packs the page's own modules, styles and libraries into one HTML file that needs no server.

The modules are those of `static/`, as they are: there is no build step. They follow rules that make packing simple:
they import each other by relative paths, and no module imports itself through others. `static/report/boot.js` turns
them back into modules in the browser.
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

from protein.web.answers import plain

STATIC = Path(__file__).parent / "static"
ENTRY, API = "app.js", "report/api.js"
_SCRIPTS = ("vendor/uPlot.iife.min.js",)  # plain scripts, which run before the modules
_NO_MODULES = ("lib/theme-first.js", "report/boot.js")
_IMPORT = re.compile(r"""(^\s*(?:import|export)\b[^"';()]*?["'])(\.{1,2}/[^"']+)(["'])""", re.MULTILINE)
_DYNAMIC = re.compile(r"(?<![\w.$])import\(")
_STYLESHEET = re.compile(r'<link rel="stylesheet" href="/static/([^"]+)">')
_URL = re.compile(r"""url\(["']?([^"')]+)["']?\)""")
_MARK = "\x01"


class PackingError(Exception):
    """A module that does not follow the rules: a defect of the page, not of what somebody asked for."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """What a report is made of, apart from its data.

    Attributes:
        modules: name -> source, each after those that it imports; names of others stand between two U+0001.
        scripts: plain scripts, to run before the modules.
        styles: one style sheet.
        body: of index.html.
        first: the script that chooses dark or light before anything is drawn.
        boot: the script that unpacks the rest.
        icon: SVG.
    """

    modules: Mapping[str, str]
    scripts: tuple[str, ...]
    styles: str
    body: str
    first: str
    boot: str
    icon: str


def page(static: Path = STATIC) -> Page:
    """Reads the page's files.

    Raises:
        PackingError: a module imports what is not there, or itself through others.
    """
    index = (static / "index.html").read_text(encoding="utf-8")
    sources = {name: (static / name).read_text(encoding="utf-8") for name in _module_names(static)}
    imports = {name: _imported(name, source, sources) for name, source in sources.items()}
    styles = [*_STYLESHEET.findall(index), "css/report.css"]
    body = re.search(r"<body>(.*)</body>", index, re.DOTALL)
    if body is None:
        raise PackingError("index.html has no body")
    return Page(
        modules={name: _packed(name, sources[name]) for name in _in_order(imports)},
        scripts=tuple((static / name).read_text(encoding="utf-8") for name in _SCRIPTS),
        styles="\n".join(_style(static, name) for name in dict.fromkeys(styles)),
        body=body.group(1),
        first=(static / _NO_MODULES[0]).read_text(encoding="utf-8"),
        boot=(static / _NO_MODULES[1]).read_text(encoding="utf-8"),
        icon=(static / "icon.svg").read_text(encoding="utf-8"),
    )


def document(made: Page, data: Mapping[str, Any], *, title: str, summary: str) -> str:
    """Returns the HTML of a report.

    Args:
        made: of `page`.
        data: what `static/report/api.js` answers from.
        title: text of the document's title.
        summary: HTML that is shown until the scripts have run, and where they cannot.
    """
    pack = {"modules": list(made.modules.items()), "scripts": made.scripts, "data": plain(data)}
    text = json.dumps(pack, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    packed = base64.b64encode(gzip.compress(text.encode("utf-8", "replace"), 9, mtime=0)).decode()
    styles, first, boot = (_inline(one) for one in (made.styles, made.first, made.boot))
    policy = (
        f"default-src 'none'; script-src {_hash(first)} {_hash(boot)} blob:; style-src {_hash(styles)}"
        "; style-src-attr 'unsafe-inline'; img-src data: blob:; connect-src blob:; base-uri 'none'; form-action 'none'"
    )
    body = re.sub(
        r"(<main\b[^>]*>).*?(</main>)", lambda m: m.group(1) + summary + m.group(2), made.body, flags=re.DOTALL
    )
    body = re.sub(r"<noscript>.*?</noscript>", "", body, flags=re.DOTALL)
    return f"""<!doctype html>
<html lang="en" class="report">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="referrer" content="no-referrer">
<title>{html.escape(title)}</title>
<link rel="icon" href="{_data_url(made.icon)}">
<style>{styles}</style>
<script>{first}</script>
</head>
<body>{body}
<script type="text/plain" id="pack">{packed}</script>
<script>{boot}</script>
</body>
</html>
"""


def _module_names(static: Path) -> list[str]:
    found = [
        ENTRY,
        *(f"{folder}/{p.name}" for folder in ("lib", "pages", "report") for p in (static / folder).glob("*.js")),
    ]
    found += [f"vendor/{path.name}" for path in (static / "vendor").glob("*.esm*.js")]
    return sorted(name for name in found if name not in _NO_MODULES)


def _is_library(name: str) -> bool:
    return name.startswith("vendor/")


def _imported(name: str, source: str, known: Iterable[str]) -> list[str]:
    """Returns the modules that a module imports at its head."""
    if _is_library(name):
        return []
    found = [_resolved(name, wanted) for _, wanted, _ in _IMPORT.findall(source)]
    for one in found:
        if one not in known:
            raise PackingError(f"{name} imports {one}, which is not there")
    return found


def _resolved(name: str, wanted: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(name), wanted))


def _in_order(imports: Mapping[str, list[str]]) -> list[str]:
    """Returns the modules, each after those that it imports."""
    done: dict[str, None] = {}

    def add(name: str, on_the_way: tuple[str, ...]) -> None:
        if name in on_the_way:
            raise PackingError(f"modules import each other: {' -> '.join((*on_the_way, name))}")
        if name not in done:
            for one in imports[name]:
                add(one, (*on_the_way, name))
            done[name] = None

    for name in imports:
        add(name, ())
    return list(done)


def _packed(name: str, source: str) -> str:
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
