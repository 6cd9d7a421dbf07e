"""`/api/compare`: chosen trials side by side. `/api/compare-sweeps`: sweeps over each other.

Side by side, a row has one value for each trial, and says whether they differ. Where numbers differ, the page shows by
how much, against a reference. Sweeps are compared by `protein.analysis.comparison`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from starlette.routing import BaseRoute

from protein.analysis.columns import Indices
from protein.analysis.comparison import Comparison, Side, SweepResult, compare, side_labels
from protein.envs_c import worlds
from protein.errors import UsageError
from protein.types import TrialRecord, TrialState
from protein.view.comparison import plain
from protein.web import artifacts, findings
from protein.web.answers import MAX_LENGTH, Query, get, selected
from protein.web.frame import Frame, Table, quality
from protein.web.pages.table import described
from protein.web.pages.trial import checkpoint_of
from protein.web.viewer import MAX_SWEEPS, Viewer

MAX_TRIALS = 24  # side by side; of more, the best
MAX_SELECTED = 10_000
# Fields that identify a trial or only say when it ran: they always differ, and nobody compares them.
_NOT_COMPARED = frozenset(
    (
        "sweep",
        "number",
        "predicted_score_low",
        "predicted_score_high",
        "predicted_cost_seconds_low",
        "predicted_cost_seconds_high",
        "started_at",
        "finished_at",
        "note",
        "tags",
        "suggest_seconds",
        "continued_seconds",
        "lost_seconds",
    )
)


def routes(viewer: Viewer) -> list[BaseRoute]:
    def trials(query: Query) -> dict[str, Any]:
        chosen = selected(query.text("sel", most=MAX_LENGTH), most=MAX_SELECTED)
        pairs = [(name, number) for name, numbers in chosen.items() for number in numbers]
        if not pairs:
            raise UsageError("no trial is selected; select two or more in the table")
        frames = viewer.frames(list(chosen))
        table, version = viewer.together(frames)
        names, numbers = table.columns["sweep"].listed(), table.columns["number"].listed()
        place = {(name, number): row for row, (name, number) in enumerate(zip(names, numbers, strict=True))}
        missing = [pair for pair in pairs if pair not in place]
        pairs = [pair for pair in pairs if pair in place]
        rows = np.array([place[pair] for pair in pairs], np.int64)
        left_out = max(len(rows) - MAX_TRIALS, 0)
        if left_out:
            ranked = np.argsort(-np.nan_to_num(quality(frames)[rows], nan=-1.0), kind="stable")[:MAX_TRIALS]
            pairs, rows = [pairs[i] for i in ranked.tolist()], rows[ranked]
        records = _records(viewer, pairs)
        return {
            "version": version,
            "trials": [_trial(viewer, name, number, records.get((name, number))) for name, number in pairs],
            "left_out": left_out,
            "missing": [{"sweep": name, "number": number} for name, number in missing],
            "rows": [*_rows(table, rows), *_provenance(pairs, records)],
        }

    def sweeps(query: Query) -> dict[str, Any]:
        names = list(dict.fromkeys(query.texts("sweep", most=MAX_SWEEPS)))
        frames = viewer.frames(names)
        labels = query.texts("side", most=MAX_SWEEPS) or (
            side_labels([(f.sweep.spec.name, f.sweep.spec.env) for f in frames]) if query.flag("group") else names
        )
        if len(labels) != len(names):
            raise UsageError(f"{len(labels)} sides are given for {len(names)} sweeps; give one for each, or none")
        reference = query.text("reference")
        wanted = query.texts("env", most=MAX_SWEEPS)
        key = ("comparison", tuple(f.sweep.id for f in frames), tuple(labels), reference, tuple(wanted))
        version = tuple(findings.version(frame) for frame in frames)

        def make() -> dict[str, Any]:
            try:
                return plain(_compared(frames, labels, reference, wanted))
            except UsageError as error:  # a sweep has no complete trial yet, or the sides have nothing in common
                return {"problem": str(error)}

        found: dict[str, Any] = viewer.remembered((*key, version), make)
        by_label: dict[str, list[str]] = {}
        for name, label in zip(names, labels, strict=True):
            by_label.setdefault(label, []).append(name)
        return {"version": viewer.version(frames), "labels": by_label, **found}

    return [get("/compare", trials), get("/compare-sweeps", sweeps)]


def _rows(table: Table, rows: Indices) -> list[dict[str, Any]]:
    """Returns what is known of some trials: a row for each column in which one of them has a value."""
    found = []
    for about in described(table.columns)[0]:
        values = table.columns[about["key"]].listed(rows)
        if about["key"] not in _NOT_COMPARED and any(value is not None for value in values):
            found.append({**about, "values": values, "differs": _differ(values)})
    return found


def _differ(values: Sequence[Any]) -> bool:
    return any(value != values[0] or type(value) is not type(values[0]) for value in values[1:])


def _records(viewer: Viewer, pairs: Sequence[tuple[str, int]]) -> dict[tuple[str, int], TrialRecord]:
    """Returns trials as they are stored, without their curves."""
    records: dict[tuple[str, int], TrialRecord] = {}
    for name in dict.fromkeys(name for name, _ in pairs):
        sweep = viewer.sweep(name)
        wanted = [number for of, number in pairs if of == name]
        for record in viewer.store.trials(sweep.id, curves=False, numbers=wanted):
            records[name, record.number] = record
    return records


def _trial(viewer: Viewer, sweep: str, number: int, record: TrialRecord | None) -> dict[str, Any]:
    """Returns a trial, whether its agent can play, the game where it can play in the page, and whether it has a log."""
    spec = viewer.sweep(sweep)
    plays = record is not None and checkpoint_of(viewer, spec, record)[0] is not None
    here = spec.spec.env if plays and spec.spec.env in worlds.names() else None
    has_log = record is not None and artifacts.log(viewer.artifact_directory(sweep), record) is not None
    return {"sweep": sweep, "number": number, "plays": plays, "here": here, "has_log": has_log}


def _provenance(
    pairs: Sequence[tuple[str, int]], records: Mapping[tuple[str, int], TrialRecord]
) -> list[dict[str, Any]]:
    """Returns rows on where the trials come from."""
    rows = []
    for key, title in (("version", "version of protein"), ("git_commit", "git commit"), ("machine", "machine")):
        values = [getattr(records[pair].provenance, key) if pair in records else None for pair in pairs]
        rows.append(_row(key, title, values))
    rows.append(_row("seed", "seed", [records[pair].seed if pair in records else None for pair in pairs]))
    return rows


def _row(key: str, title: str, values: list[Any]) -> dict[str, Any]:
    about = {"key": f"provenance.{key}", "group": "provenance", "title": title, "kind": "text", "empty": False}
    return {**about, "values": values, "differs": _differ(values)}


def _compared(frames: Sequence[Frame], labels: Sequence[str], reference: str, envs: Sequence[str]) -> Comparison:
    sides: dict[str, list[SweepResult]] = {}
    for frame, label in zip(frames, labels, strict=True):
        sides.setdefault(label, []).append(result_of(frame))
    if reference and reference not in sides:
        raise UsageError(f"the reference '{reference[:80]}' is none of the sides: {', '.join(sides)}")
    order = sorted(sides, key=lambda label: label != reference) if reference else list(sides)
    return compare([Side(label=label, sweeps=tuple(sides[label])) for label in order], environments=envs)


def result_of(frame: Frame) -> SweepResult:
    """Returns what is compared of a sweep. Raises `UsageError` where no trial was trained to its end."""
    state = frame.columns["state"]

    def is_state(wanted: TrialState) -> Any:
        return state.values == (state.words.index(wanted.value) if wanted.value in state.words else -1)

    finished = np.flatnonzero(~is_state(TrialState.RUNNING) & ~is_state(TrialState.WAITING))
    excluded = frame.columns["excluded"].values.astype(bool)
    return SweepResult.of_columns(
        frame.sweep.spec.name,
        frame.sweep.spec.env,
        complete=(is_state(TrialState.COMPLETE) & ~excluded)[finished],
        score=frame.stored_score()[finished],
        cost_seconds=np.nan_to_num(frame.columns["cost_seconds"].floats()[finished]),
        run_seconds=np.nan_to_num(frame.columns["run_seconds"].floats()[finished]),
        finished_at=frame.columns["finished_at"].floats()[finished],
        direction=frame.sweep.spec.direction,
    )
