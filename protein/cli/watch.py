"""`protein status --watch`: sweeps as they go on, from any machine that sees the store.

The store is asked every few seconds, and only for what has changed: a cursor says what was seen (`Store.columns`).
"""

import contextlib
import dataclasses
import time
from collections.abc import Iterator, Sequence

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from protein.api import stores, sweep_state
from protein.columns import DOT_FIELDS, Dot, dots
from protein.direction import shown_trial
from protein.engine import pareto
from protein.errors import StoreUnavailable
from protein.ports import Store
from protein.sweep.alive import Alive, Life, alive
from protein.types import SweepRecord, TrialRecord, TrialState
from protein.view import data, tables

EVERY_SECONDS = 2.0


@dataclasses.dataclass(slots=True)
class _Seen:
    """What was read of one sweep so far."""

    sweep: SweepRecord
    cursor: str | None = None
    trials: dict[int, Dot] = dataclasses.field(default_factory=dict)
    best: TrialRecord | None = None
    running: Sequence[TrialRecord] = ()
    now: Alive = dataclasses.field(default_factory=lambda: Alive(Life.NONE))

    def read(self, store: Store) -> None:
        """Reads what has changed."""
        self.now = alive(store, self.sweep)
        changed = store.columns(self.sweep.id, self.cursor, fields=DOT_FIELDS)
        if not len(changed):
            return
        self.trials |= {dot.number: dot for dot in dots(changed)}
        best = pareto.best_under(list(self.trials.values()))
        running = sorted(number for number, dot in self.trials.items() if dot.state is TrialState.RUNNING)
        named = {trial.number: trial for trial in store.trials(self.sweep.id, numbers=running)}
        self.running = [shown_trial(named[number], self.sweep.spec.direction) for number in running if number in named]
        if best is None:  # the last one was excluded
            self.best = None
        elif self.best is None or best.number != self.best.number:
            self.best = next(iter(store.trials(self.sweep.id, curves=False, numbers=[best.number])), None)
        self.cursor = changed.cursor  # last: what a failing store kept from being read is read next time

    def progress(self) -> data.Progress:
        known = list(self.trials.values())
        return data.Progress(counts=data.counts(known), spent_seconds=data.spent_seconds(known), best=self.best)

    def lines(self) -> list[str]:
        return sweep_state.lines(self.sweep, self.now, num_running=len(self.running))


def watch(console: Console, url: str | None, name: str | None) -> int:
    """Shows one sweep, or all, until Ctrl-C. On what is no terminal, a new state is printed below the last one."""
    seen: dict[int, _Seen] = {}
    problem = ""
    with stores.opened(url) as store, _screen(console) as show:
        if name is not None:
            stores.find(store, name)  # a mistake in the name is said once, at once
        while True:
            try:
                listed = [sweep for sweep in store.list_sweeps() if name in (None, sweep.spec.name)]
                seen = {sweep.id: seen.get(sweep.id) or _Seen(sweep) for sweep in listed}
                for sweep in listed:
                    seen[sweep.id].sweep = sweep
                    seen[sweep.id].read(store)
                problem = "" if listed or name is None else f"sweep '{name}' was removed or renamed"
            except StoreUnavailable as error:
                problem = f"the store is unavailable, trying again: {error}"
            show(_view(list(seen.values()), console.width, problem))
            time.sleep(EVERY_SECONDS)
    return 0


def _view(seen: Sequence[_Seen], width: int, problem: str) -> RenderableType:
    parts: list[RenderableType] = [tables.sweeps([(one.sweep, one.progress()) for one in seen], width)]
    running = [trial for one in seen for trial in one.running]
    if running:
        parts += [Text(""), tables.trials(running, width)]
    parts += [Text(line, style="yellow") for one in seen for line in one.lines()]
    return Group(*parts, *([Text(problem, style="yellow")] if problem else []))


@contextlib.contextmanager
def _screen(console: Console) -> Iterator["_Show"]:
    """Yields what shows a view. Ctrl-C ends the block in order."""
    with contextlib.suppress(KeyboardInterrupt):
        if not console.is_terminal or console.is_dumb_terminal:
            yield _Show(console, None)
            return
        with Live(console=console, auto_refresh=False) as live:
            yield _Show(console, live)


class _Show:
    """Shows a view in place on a terminal; elsewhere prints it if it has changed."""

    def __init__(self, console: Console, live: Live | None) -> None:
        self._console, self._live, self._last = console, live, ""

    def __call__(self, view: RenderableType) -> None:
        if self._live is not None:
            self._live.update(view, refresh=True)
            return
        with self._console.capture() as capture:
            self._console.print(view, soft_wrap=True)
        if (text := capture.get()) != self._last:
            self._last = text
            self._console.file.write(text + "\n")
            self._console.file.flush()
