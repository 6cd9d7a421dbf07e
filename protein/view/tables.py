"""Tables of sweeps, trials and the Pareto front, for a terminal of any width and for files."""

import dataclasses
import itertools
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import IO, TYPE_CHECKING

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from protein.columns import OTHERS
from protein.direction import shown_score
from protein.run.lease import dead_owners
from protein.types import (
    CONTINUABLE,
    CONTINUABLE_SECONDS,
    ON_GPU,
    Artifact,
    Params,
    SweepRecord,
    TrialEnd,
    TrialRecord,
    TrialState,
    told,
)
from protein.units import format_probability
from protein.view import data, text
from protein.view.text import MAX_CELL, MAX_TEXT, STEERING, cleaned

if TYPE_CHECKING:
    from protein.engine.results import Contender
    from protein.envs_c import EnvSpec

GAP = 2  # characters between columns
FILE_WIDTH = 10_000  # nothing is cut in a file or a pipe
# What was watched while a trial trained, in words; all other timings were taken beside its training.
USAGE = {
    "wall": "on the clock",
    "cpu": "CPU time",
    "waited": "waited for a busy core",
    "others": "CPU time of other programs",
}
STATE_STYLES = {
    TrialState.COMPLETE: "green",
    TrialState.RUNNING: "cyan",
    TrialState.WAITING: "blue",
    TrialState.PRUNED: "yellow",
    TrialState.FAILED: "red",
}


class CleanConsole(Console):
    """A console that prints nothing that steers a terminal, but what `rich` itself sends to it."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            if segment.control or not STEERING.search(segment.text):
                yield segment
            else:
                yield Segment(cleaned(segment.text), segment.style)


def make_console(file: IO[str] | None = None) -> Console:
    """Returns a console for stdout or another file, as wide as the terminal; a file has no limit of width."""
    file = sys.stdout if file is None else file
    return CleanConsole(
        file=file, width=None if file.isatty() else FILE_WIDTH, highlight=False, emoji=False, markup=False
    )


def sweeps(records: Sequence[tuple[SweepRecord, Sequence[TrialRecord] | data.Progress]], width: int) -> Table:
    """One line a sweep; `records` are sweeps with their trials as they are stored, or how far they are."""
    far = [data.progress(known) for _, known in records]
    of, best = [one.counts for one in far], [one.best for one in far]
    scores = [
        shown_score(trial.score if trial else None, record.spec.direction)
        for trial, (record, _) in zip(best, records, strict=True)
    ]
    budgets = [record.max_cost_seconds for record, _ in records]
    failed, running = [one.failed for one in of], [one.running for one in of]
    return fitted(
        width,
        Column("sweep", [record.spec.name for record, _ in records], keep=9, least=16),
        Column("env", [record.spec.env for record, _ in records], keep=4),
        Column("method", [record.spec.method for record, _ in records], keep=2),
        Column("trials", [str(count.finished) for count in of], right=True, keep=7),
        Column("failed", [str(number) for number in failed], right=True, keep=8 if any(failed) else 1),
        Column("running", [str(number) for number in running], right=True, keep=8 if any(running) else 1),
        Column("spent", [text.seconds(one.spent_seconds) for one in far], right=True, keep=6),
        Column("budget", ["none" if b is None else text.seconds(b) for b in budgets], right=True, keep=5),
        Column("best measured", [text.score(score) for score in scores], right=True, keep=8),
        Column("its cost", [text.seconds(trial.run_seconds if trial else None) for trial in best], right=True, keep=3),
    )


def trials(records: Sequence[TrialRecord], width: int, curve_width: int = 12) -> Table:
    """One line a trial: its score and its own cost beside their predictions, and why it was tried."""
    scores = [record.predicted_score for record in records]
    costs = [record.predicted_cost_seconds for record in records]
    ended = [record.state is TrialState.FAILED or record.end is TrialEnd.STOPPED_EARLY for record in records]
    why = [record.reason if early else record.origin for record, early in zip(records, ended, strict=True)]
    styles = [STATE_STYLES[record.state] for record in records]
    tags = [", ".join(record.tags) for record in records]
    curves = [text.sparkline(record.curve, curve_width) for record in records]
    return fitted(
        width,
        Column("trial", [text.trial_name(record) for record in records], right=True, keep=9),
        Column("state", [state(record) for record in records], keep=5, styles=styles),
        Column("score", [text.score(record.score) for record in records], right=True, keep=8),
        Column("predicted", [text.score(score.value if score else None) for score in scores], right=True, keep=3),
        Column("cost", [text.seconds(record.cost_seconds) for record in records], right=True, keep=7),
        Column("predicted", [text.seconds(cost.value if cost else None) for cost in costs], right=True, keep=2),
        Column("steps", [text.count(record.steps) for record in records], right=True, keep=1),
        *([Column("curve", curves, keep=6)] if any(curves) else []),
        *([Column("tags", tags, keep=5, least=10)] if any(tags) else []),
        Column("origin / reason", why, keep=4, least=20),
    )


def front(records: Sequence[TrialRecord], width: int, notes: Mapping[int, str] | None = None) -> Table:
    """The front, cheapest first, with the costs of whole runs. A gain is by how much a score is better than the last.

    Args:
        records: the front; its last one is the best measured.
        width: in characters.
        notes: further notes on trials, by number, as in {3: "knee"}.
    """
    names = []
    for record in records:
        note = (notes or {}).get(record.number, "")
        names.append(", ".join(["best measured"] * (record is records[-1]) + [note] * bool(note)))
    scores = [record.score for record in records if record.score is not None]
    steps = [abs(after - before) for before, after in itertools.pairwise(scores)]
    gains = ["", *(f"+{gain}" for gain in text.alike(steps, like=scores))]
    return fitted(
        width,
        Column("trial", [str(record.number) for record in records], right=True, keep=9),
        Column("cost", [text.seconds(record.run_seconds) for record in records], right=True, keep=9),
        Column("score", [text.score(record.score) for record in records], right=True, keep=9),
        Column("gain", gains[: len(records)], right=True, keep=2),
        Column("", names, keep=8),
        Column("origin", [record.origin for record in records], keep=1, least=20),
    )


def answers(
    names: Sequence[str], contenders: "Sequence[Contender]", runs: Sequence[Sequence[TrialRecord]], width: int
) -> Table:
    """What a sweep recommends: for each answer its config, the expected score and cost, and the scores of its runs."""
    numbers = [", ".join(str(trial.number) for trial in trials) for trials in runs]
    measured = [", ".join(text.score(trial.score) for trial in trials) for trials in runs]
    kept = ["" if c.keeps is None else format_probability(c.keeps) for c in contenders]
    return fitted(
        width,
        Column("", names, keep=9),
        Column("score", [text.score(c.score.value) for c in contenders], right=True, keep=9),
        Column("80 % interval", [text.interval(c.score) for c in contenders], right=True, keep=7),
        Column("cost", [text.seconds(c.expected_cost_seconds) for c in contenders], right=True, keep=8),
        *([Column("limits kept", kept, right=True, keep=7)] if any(kept) else []),
        Column("runs", [str(c.runs) for c in contenders], right=True, keep=4),
        Column("trial", numbers, right=True, keep=6),
        Column("measured", measured, right=True, keep=5),
    )


def _limit(score: float) -> str:
    return f"{score:g}" if abs(score) < 1e5 else text.count(round(score))


def _actions(spec: "EnvSpec") -> str:
    if spec.continuous_actions:
        return f"{spec.continuous_actions} real"
    return " x ".join(map(str, spec.action_sizes))


def envs(specs: "Sequence[EnvSpec]", width: int) -> Table:
    """One line an environment."""
    ranges = [" to ".join(map(_limit, spec.score_range)) for spec in specs]
    return fitted(
        width,
        Column("env", [spec.name for spec in specs], keep=9),
        Column("observation", ["x".join(map(str, spec.observation_shape)) for spec in specs], right=True, keep=5),
        Column("actions", [_actions(spec) for spec in specs], right=True, keep=4),
        Column("agents", [str(spec.agents_per_env) for spec in specs], right=True, keep=2),
        Column("score", ranges, right=True, keep=7),
        Column("solved at", [f"{spec.solved_score:g}" for spec in specs], right=True, keep=6),
        Column("longest episode", [text.count(spec.max_episode_steps) for spec in specs], right=True, keep=1),
        Column("description", [spec.description for spec in specs], keep=8, least=16),
    )


def params(values: Params) -> Table:
    """One line a parameter."""
    table = Table.grid(padding=(0, 2))
    for name, value in values.items():
        table.add_row(name, Text(text.param(value), style="bold"))
    return table


def trial(record: TrialRecord, width: int, unit: str = "steps") -> RenderableType:
    """Everything about one trial; `unit` is what its steps are called."""
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="dim")
    facts.add_column(overflow="fold")
    facts.add_row("state", Text(state(record), style=STATE_STYLES[record.state]))
    if record.reason:
        facts.add_row("reason", cleaned(record.reason, MAX_TEXT))
    for name, said in annotation(record):
        facts.add_row(name, cleaned(said, MAX_TEXT) or "the engine ignores it")
    facts.add_row("origin", cleaned(record.origin, MAX_TEXT))
    facts.add_row("score", text.score(record.score))
    facts.add_row("  predicted", text.prediction(record.predicted_score))
    if error := text.score_error(record):
        facts.add_row("  off by", error)
    if record.continues is not None:
        facts.add_row(
            "continues", f"trial {record.continues}, after {text.seconds(record.continued_seconds)} of training"
        )
    facts.add_row("cost", f"{text.seconds(record.cost_seconds)} of training")
    facts.add_row("  predicted", text.estimate_seconds(record.predicted_cost_seconds))
    if error := text.cost_error(record):
        facts.add_row("  off by", error)
    facts.add_row(unit, f"{record.steps:,}")
    facts.add_row("suggested in", text.seconds(record.suggest_seconds))
    for name in OTHERS:
        facts.add_row(name, cleaned(str(getattr(record, name)), MAX_TEXT))
    for name, value in record.timings.items():
        facts.add_row(USAGE.get(name, f"{name} (not in cost)"), text.seconds(value))
    for name, value in record.metrics.items():
        if name == ON_GPU:
            facts.add_row("device", "GPU" if value else "CPU")
        elif name != CONTINUABLE_SECONDS:
            facts.add_row(name, text.score(value))
    facts.add_row("seed", str(record.seed))
    facts.add_row("started", f"{record.started_at:%Y-%m-%d %H:%M:%S} UTC")
    if record.finished_at is not None:
        facts.add_row("finished", f"{record.finished_at:%Y-%m-%d %H:%M:%S} UTC")
    origin = record.provenance
    facts.add_row("version", f"{origin.version}, commit {origin.git_commit or 'none'}")
    facts.add_row("machine", origin.machine)
    facts.add_row("config hash", origin.config_hash)
    for artifact in record.artifacts:
        facts.add_row(artifact.kind if artifact.kind != CONTINUABLE else "can go on from", _described(artifact, record))
    scores = [point.score for point in record.curve if point.score is not None]
    curve = "no score was measured"
    if scores:
        line = text.sparkline(record.curve, max(10, min(width, 100) - 24))
        curve = f"{text.score(scores[0])} {line} {text.score(scores[-1])}"
    return Group(
        Text(f"trial {record.number}", style="bold"),
        facts,
        Text("\nparams", style="bold"),
        params(record.params),
        Text("\ncurve", style="bold"),
        Text(curve),
    )


def _described(artifact: Artifact, record: TrialRecord) -> str:
    """Returns where a file is; of what a longer run goes on from, also when in the trial it was written."""
    own = record.metrics.get(CONTINUABLE_SECONDS)
    if artifact.kind != CONTINUABLE or own is None:
        return artifact.path
    return f"{artifact.path}, the state after {text.seconds(own)} of this trial's training"


def state(record: TrialRecord) -> str:
    """Returns in a few words how far a trial is, or how it ended."""
    word = told(record.state, record.end, record.reason)
    if record.state is TrialState.RUNNING and dead_owners([record.owner]):  # its process was killed
        word = told(TrialState.FAILED, TrialEnd.INTERRUPTED)
    return f"{word}, excluded" if record.excluded else word


def annotation(record: TrialRecord) -> list[tuple[str, str]]:
    """Returns what people have written about a trial, by name; an exclusion has no text."""
    said = [("excluded", "")] if record.excluded else []
    said += [("tags", ", ".join(record.tags))] if record.tags else []
    return said + ([("note", record.note)] if record.note else [])


@dataclasses.dataclass(frozen=True)
class Column:
    """One column of a table that may be left out where the table is too wide."""

    title: str
    cells: Sequence[str]
    _: dataclasses.KW_ONLY
    keep: int  # where not all columns fit, the one with the lowest `keep` is left out first
    right: bool = False
    least: int | None = None  # the column may be cut to this many characters; None: it is shown whole or left out
    styles: Sequence[str] = ()  # one for each cell

    def needed(self, *, whole: bool) -> int:
        longest = min(max((cell_len(cell) for cell in (self.title, *self.cells)), default=0), MAX_CELL)
        return longest if whole or self.least is None else min(longest, self.least)


def fitted(width: int, *columns: Column) -> Table:
    """Returns a table of the columns that fit into `width` characters without cutting a number."""
    shown = list(columns)
    while len(shown) > 1 and sum(column.needed(whole=False) + GAP for column in shown) - GAP > width:
        shown.remove(min(shown, key=lambda column: column.keep))
    table = Table(box=None, padding=(0, GAP, 0, 0), pad_edge=False, header_style="dim")
    room = width - sum(column.needed(whole=False) + GAP for column in shown) + GAP
    for column in shown:
        wide = column.needed(whole=False)
        more = max(min(column.needed(whole=True) - wide, room), 0)  # what may be cut gets what the numbers leave
        room -= more
        table.add_column(
            column.title,
            justify="right" if column.right else "left",
            no_wrap=True,
            overflow="ellipsis",
            width=wide + more,
        )
    for row in range(len(columns[0].cells)):
        cells = ((cleaned(c.cells[row], MAX_CELL), c.styles[row] if c.styles else "") for c in shown)
        table.add_row(*(Text(cell, style=style, no_wrap=True, overflow="ellipsis") for cell, style in cells))
    return table
