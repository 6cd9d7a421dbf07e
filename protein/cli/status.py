"""`protein status`: how far sweeps are, once or as they go on.

With `--watch` the store is asked every few seconds, and only for what has changed: a cursor says what was seen
(`Store.columns`).
"""

import contextlib
import dataclasses
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group, RenderableType
from rich.text import Text

from protein.api import stores
from protein.cli.arguments import StatusArguments
from protein.cli.output import print_json, working
from protein.cli.parse import Command
from protein.columns import DOT_FIELDS, Dot, SweepSummary, dots
from protein.direction import shown_trial
from protein.errors import StoreUnavailable, UsageError
from protein.ports import Store
from protein.run.lease import dead_owners
from protein.sweep import ownership
from protein.sweep.ownership import Alive, Life, alive
from protein.types import Request, SweepRecord, TrialRecord, TrialState
from protein.view import data, tables
from protein.view import outlook as outlook_views

if TYPE_CHECKING:
    from rich.live import Live

    from protein.api.overview import Overview
    from protein.engine.results import Outlook, RangeEnd

EVERY_SECONDS = 2.0  # between two looks of --watch


def run(command: Command) -> int:
    arguments: StatusArguments = command.arguments
    if arguments.watch:
        if arguments.json:
            raise UsageError("--watch shows a view that changes, and --json prints one answer; give one of the two")
        return watch(tables.make_console(), arguments.store, arguments.sweep)
    with working("reading"), stores.opened(arguments.store) as store:
        sweeps = store.list_sweeps() if arguments.sweep is None else [stores.find(store, arguments.sweep)]
        known = store.summaries([sweep.id for sweep in sweeps])
        now = {sweep.id: alive(store, sweep, known[sweep.id]) for sweep in sweeps}
        far = [(sweep, _progress(store, sweep, known[sweep.id])) for sweep in sweeps]
        details = (
            None if arguments.sweep is None else _Details.read(store, sweeps[0], known[sweeps[0].id], arguments.store)
        )
    if arguments.json:
        values = [
            {**data.sweep(sweep, progress), **_state(sweep, known[sweep.id], now[sweep.id])} for sweep, progress in far
        ]
        if details is not None:
            values[0]["notes"] += [note for note in (details.note, details.agent) if note is not None]
            values[0]["outlook"] = outlook_views.plain(details.ahead)
            values[0]["range_ends"] = [end.text() for end in details.ends]
            values[0]["found"] = None if details.told.found is None else dataclasses.asdict(details.told.found)
        print_json(values if arguments.sweep is None else values[0])
        return 0
    console = tables.make_console()
    if not far:
        console.print("no sweep yet; start one with protein sweep --env NAME --max-cost 10m", soft_wrap=True)
        if (file := stores.file(stores.url(arguments.store))) is not None:
            copy = "copy it again with protein store backup, or with its file"
            console.print(f"if it is a copy of a store that was in use, {copy} {file.name}-wal", soft_wrap=True)
        return 0
    if details is not None:
        _print_found(console, sweeps[0], details, arguments.store)
        console.print()
    console.print(tables.sweeps(far, console.width))
    for sweep in sweeps:
        if interrupted := _interrupted(known[sweep.id]):
            which, one = _named(interrupted), len(interrupted) == 1
            state = "was interrupted: its process is gone" if one else "were interrupted: their processes are gone"
            line = f"{which} of '{sweep.spec.name}' {state}"
            console.print(Text(line, style="yellow"), soft_wrap=True)
        queued = known[sweep.id].queued
        if waiting := [number for number in known[sweep.id].waiting if number not in queued]:
            state = "waits: it is" if len(waiting) == 1 else "wait: they are"
            line = f"{_named(waiting)} of '{sweep.spec.name}' {state} taken up again when the sweep runs"
            console.print(Text(line, style="yellow"), soft_wrap=True)
        if queued:
            state = "is queued by hand: it starts" if len(queued) == 1 else "are queued by hand: they start"
            then = "at the next free worker" if now[sweep.id].life is Life.RUNS else "when the sweep is run again"
            console.print(Text(f"{_named(queued)} of '{sweep.spec.name}' {state} {then}"), soft_wrap=True)
    for sweep in sweeps:
        for line in ownership.life_lines(sweep, now[sweep.id], num_running=len(known[sweep.id].running)):
            style = "" if now[sweep.id].life is Life.ENDED and sweep.requested is Request.RUN else "yellow"
            console.print(Text(line, style=style), soft_wrap=True)
    if details is not None:
        _print_details(console, sweeps[0], details)
    return 0


def _interrupted(known: SweepSummary) -> list[int]:
    """Returns the numbers of trials that are stored as running, but whose process is gone."""
    gone = set(dead_owners(known.running.values()))
    return [number for number, owner in known.running.items() if owner in gone]


def _state(sweep: SweepRecord, known: SweepSummary, now: Alive) -> dict[str, Any]:
    """Returns for programs what is said beside the table of sweeps."""
    return {
        "life": str(now.life),
        "interrupted": _interrupted(known),
        "waiting": list(known.waiting),
        "queued": list(known.queued),
        "notes": ownership.life_lines(sweep, now, num_running=len(known.running)),
    }


def _named(numbers: Sequence[int]) -> str:
    """Returns trials for a message: "trial 3", or "trials 3, 4, 7"."""
    return f"trial{'' if len(numbers) == 1 else 's'} {', '.join(map(str, numbers))}"


def _progress(store: Store, sweep: SweepRecord, known: SweepSummary) -> data.Progress:
    """Returns how far a sweep is; of its trials only the best one is read."""
    number = known.best
    if number is not None and sweep.spec.limits:  # the store knows of no limits
        from protein.api.recommended import measured_front  # late, as below

        front = measured_front(store.columns(sweep.id, fields=(*DOT_FIELDS, "metrics")), sweep.spec.limits)
        number = front[-1] if front else None
    best = [] if number is None else store.trials(sweep.id, curves=False, numbers=[number])
    return data.Progress(
        counts=data.counts_of(known.ends, len(known.waiting) + len(_interrupted(known))),
        spent_seconds=known.spent_seconds,
        best=best[0] if best else None,
        confirmations=known.confirmations,
        confirming_seconds=known.confirming_seconds,
    )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Details:
    """What is shown of one sweep beside its progress.

    Attributes:
        running: trials that run.
        interrupted: trials that are stored as running, but whose process is gone.
        told: the sweep at a glance. Of a very large sweep whose answers are not kept, it is without what the models
            tell: to fit them takes longer than all the rest of this command, and `protein best` does it.
        note: on a trial that scored higher before a limit of cost ended it, if there is one.
        agent: on the calls of an agent that has started it, if one has.
        ahead: what more training is expected to change, if that is known.
        ends: parameters whose best values lie on the end of their range.
    """

    running: Sequence[TrialRecord]
    interrupted: Sequence[TrialRecord]
    told: "Overview"
    note: str | None
    agent: str | None
    ahead: "Outlook | None"
    ends: "Sequence[RangeEnd]"

    @classmethod
    def read(cls, store: Store, sweep: SweepRecord, known: SweepSummary, word: str | None) -> "_Details":
        # Late: the list of all sweeps needs none of it.
        from protein.api import agents
        from protein.api.answers import Answers
        from protein.api.overview import findings, glance
        from protein.api.recommended import beaten_measured_note

        found = store.trials(sweep.id, numbers=known.running)
        gone = set(dead_owners(trial.owner for trial in found))
        named = [number for number in (known.best, known.cut_short) if number is not None]
        answers, told = Answers(store, sweep), glance(store, sweep, word)
        fits = answers.were_kept or not answers.is_large
        return cls(
            running=[trial for trial in found if trial.owner not in gone],
            interrupted=[trial for trial in found if trial.owner in gone],
            told=dataclasses.replace(told, found=findings(answers, sweep, word)) if fits else told,
            note=beaten_measured_note(sweep, store.trials(sweep.id, curves=False, numbers=named)),
            agent=agents.line(store.agent_calls(), sweep),
            ahead=answers.outlook(),
            ends=answers.range_ends() if fits else [],
        )


def _print_found(console: Console, sweep: SweepRecord, details: _Details, store: str | None) -> None:
    """Prints the recommended config and the answers; where nothing can be recommended, the headline says why."""
    from protein.api.overview import next_of  # late, as above
    from protein.cli import overview

    told, found = details.told, details.told.found
    if found is None:
        console.print(stores.best_hint(sweep.spec.name, store), soft_wrap=True)
    elif told.best_measured is None and found.best is None:
        console.print(Text(told.headline, style="bold"))
        overview.show_lines(console, "what next?", told.next)
    else:
        overview.show(console, dataclasses.replace(found, next=next_of(found, told.life)), told.next)


def _print_details(console: Console, sweep: SweepRecord, details: _Details) -> None:
    """Prints what runs, and what measured best, which may be luck."""
    from protein.api.recommended import shown_trials  # late, as above

    for title, group in (("running", details.running), ("interrupted", details.interrupted)):
        if group:
            console.print(Text(f"\n{title}", style="bold"))
            console.print(tables.trials(shown_trials(sweep, group), console.width))
    told = details.told
    console.print()
    if told.best_measured is not None:
        console.print(told.headline)
    console.print(", ".join([*told.counts, told.spent]))
    if details.agent is not None:
        console.print(details.agent, soft_wrap=True, markup=False)


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
        from protein.engine import pareto  # late, like `Live`: a status that is printed once needs neither

        self.now = alive(store, self.sweep)
        changed = store.columns(self.sweep.id, self.cursor, fields=DOT_FIELDS)
        if not len(changed):
            return
        self.trials |= {dot.number: dot for dot in dots(changed)}
        best = pareto.best_under(list(self.trials.values()))
        if best is not None and self.sweep.spec.limits:
            from protein.api.recommended import measured_front  # late, as above

            columns = store.columns(self.sweep.id, fields=(*DOT_FIELDS, "metrics"))
            front = measured_front(columns, self.sweep.spec.limits)
            best = self.trials.get(front[-1]) if front else None
        running = sorted(number for number, dot in self.trials.items() if dot.state is TrialState.RUNNING)
        named = {trial.number: trial for trial in store.trials(self.sweep.id, numbers=running)}
        self.running = [shown_trial(named[number], self.sweep.spec.direction) for number in running if number in named]
        if best is None:  # the last one was excluded
            self.best = None
        elif self.best is None or best.number != self.best.number:
            self.best = next(iter(store.trials(self.sweep.id, curves=False, numbers=[best.number])), None)
        self.cursor = changed.cursor  # last: what a failing store kept from being read is read next time

    def progress(self) -> data.Progress:
        gone = len(self.running) - len(self.alive)
        return data.Progress.of(list(self.trials.values()), best=self.best, num_interrupted=gone)

    @property
    def alive(self) -> list[TrialRecord]:
        """The trials that are stored as running, without those whose process is gone."""
        gone = set(dead_owners(trial.owner for trial in self.running))
        return [trial for trial in self.running if trial.owner not in gone]

    def lines(self) -> list[str]:
        return ownership.life_lines(self.sweep, self.now, num_running=len(self.alive))


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
    running = [trial for one in seen for trial in one.alive]
    if running:
        parts += [Text(""), tables.trials(running, width)]
    parts += [Text(line, style="yellow") for one in seen for line in one.lines()]
    return Group(*parts, *([Text(problem, style="yellow")] if problem else []))


@contextlib.contextmanager
def _screen(console: Console) -> Iterator["_Show"]:
    """Yields what shows a view. Ctrl-C ends the block in order."""
    from rich.live import Live

    with contextlib.suppress(KeyboardInterrupt):
        if not console.is_terminal or console.is_dumb_terminal:
            yield _Show(console, None)
            return
        with Live(console=console, auto_refresh=False) as live:
            yield _Show(console, live)


class _Show:
    """Shows a view in place on a terminal; elsewhere prints it if it has changed."""

    def __init__(self, console: Console, live: "Live | None") -> None:
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
