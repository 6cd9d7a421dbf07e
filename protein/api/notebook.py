"""A sweep in a notebook: what it has found as HTML, and its pages within the notebook.

Nothing here loads IPython. A notebook asks a value for `_repr_html_`.
"""

import base64
import html
import io
import os
import shutil
import subprocess
import sys
import tempfile
import webbrowser
from collections.abc import Iterable, Sequence
from pathlib import Path

from protein.api import stores
from protein.api.answers import Answers
from protein.api.overview import findings, next_of
from protein.api.recommended import measured_front, shown_trials
from protein.errors import ProteinError, TrialFailed
from protein.sweep.ownership import alive
from protein.types import TrialRecord
from protein.view import text
from protein.view.figures.front import front as draw_front
from protein.view.figures.style import save_to

MAX_ROWS = 8  # trials of the front that are listed
HEIGHT = 760  # of the pages in a notebook, in pixels


class Page:
    """The pages of a sweep as one file, which a notebook shows within it. They show the moment when it was made.

    Attributes:
        path: of the file, in a folder for temporary files.
    """

    def __init__(self, path: Path, height: int) -> None:
        self.path, self._height = path, height

    def __repr__(self) -> str:
        return f"Page({str(self.path)!r})"

    def _repr_html_(self) -> str:
        # Not by `srcdoc`, whose documents have no address on which the pages could move.
        document = base64.b64encode(self.path.read_bytes()).decode()
        style = f"width: 100%; height: {self._height}px; border: 1px solid #8884"
        return f'<iframe src="data:text/html;base64,{document}" style="{style}" title="pages of a sweep"></iframe>'


def view(name: str, store: str | None, *, height: int = HEIGHT) -> Page:
    """Returns the pages of a stored sweep, for a notebook to show. Elsewhere it opens them in the browser, too.

    It takes some seconds. `protein view` serves the same pages, live while a sweep runs.

    Raises:
        UsageError: there is no such sweep.
        StoreError: the store cannot be read.
        TrialFailed: the pages could not be made.
    """
    url = stores.absolute_url(store)
    with stores.opened(url) as opened:
        stores.find(opened, name)
    path = Path(tempfile.mkdtemp(prefix="protein-")) / "sweep.html"
    command = [sys.executable, "-P", "-m", "protein", "report", f"--output={path}", "--", name]
    environment = {**os.environ, stores.VARIABLE: url}  # in no list of processes: it may hold a password
    made = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if made.returncode:
        shutil.rmtree(path.parent, ignore_errors=True)  # with what was written before it failed
        raise TrialFailed(f"no pages of sweep '{name}': {made.stderr.strip() or 'protein report has failed'}")
    page = Page(path, height)
    if not _in_notebook():
        webbrowser.open(path.as_uri())
    return page


def _in_notebook() -> bool:
    """Whether a notebook asks, and not a script or a shell."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return getattr(shell, "kernel", None) is not None


def found_html(name: str, store: str) -> str:
    """Returns what a stored sweep has found: the recommended config, how sure it is, what next, the front.

    Raises:
        UsageError: there is no such sweep.
        StoreError: the store cannot be read.
    """
    with stores.opened(store) as opened:
        sweep = stores.find(opened, name)
        answers = Answers(opened, sweep)
        found = findings(answers, sweep, store)
        numbers = measured_front(answers.columns, sweep.spec.limits)[-MAX_ROWS:]
        by_number = {trial.number: trial for trial in opened.trials(sweep.id, curves=False, numbers=numbers)}
        listed = shown_trials(sweep, [by_number[number] for number in numbers if number in by_number])
        advice = next_of(found, alive(opened, sweep).life)
        drawn = answers.recommendation().drawn() if found.best is not None else {}
        trials = opened.trials(sweep.id, curves=False) if found.best is not None else []
    best = found.best
    if best is None:
        return f"<p><b>{html.escape(name)}</b>: {html.escape(found.why_none)}</p>"
    parts = [f"<p><b>{html.escape(best.text)}</b></p>"]
    if best.changes:
        rows = [(one.name, one.value or "none", one.initial or "none") for one in best.changes]
        parts.append(_table(("parameter", "recommended", "initial"), rows))
    else:
        parts.append(_table(("parameter", "recommended"), best.params.items()))
    lines = [line.text for line in (*found.trust, *advice)]
    parts.append("<ul>" + "".join(f"<li>{html.escape(line)}</li>" for line in lines) + "</ul>")
    try:
        picture = io.BytesIO()
        save_to(draw_front([(sweep, trials)], **drawn), picture)
        data = base64.b64encode(picture.getvalue()).decode()
        parts.append(f'<img alt="score against cost" style="max-width: 100%" src="data:image/png;base64,{data}">')
    except ProteinError as error:  # nothing to draw
        parts.append(f"<p>{html.escape(str(error))}</p>")
    parts.append(_table(("front: trial", "score", "cost", "params"), map(_row, listed)))
    return "".join(parts)


def _row(trial: TrialRecord) -> tuple[str, str, str, str]:
    params = ", ".join(f"{name}={text.param(value)}" for name, value in trial.params.items())
    return str(trial.number), text.score(trial.score), text.seconds(trial.run_seconds), text.shorten(params, 100)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    def line(cells: Sequence[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells) + "</tr>"

    return f"<table><thead>{line(head, 'th')}</thead><tbody>{''.join(line(row, 'td') for row in rows)}</tbody></table>"
