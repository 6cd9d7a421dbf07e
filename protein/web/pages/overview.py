"""`/api/overview`: a sweep at a glance, with small curves of what runs; behind it what the models tell."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from starlette.routing import BaseRoute

from protein.api import overview
from protein.direction import shown_score
from protein.errors import UsageError
from protein.sweep.ownership import alive
from protein.sweep.resuming import goes_on
from protein.types import SweepRecord, runs_command, runs_trainer
from protein.view import text
from protein.web import findings
from protein.web.answers import Query, get
from protein.web.viewer import Viewer

CURVE_POINTS = 120  # of a small curve


def routes(viewer: Viewer) -> list[BaseRoute]:
    def glance(query: Query) -> dict[str, Any]:
        record = viewer.sweep(_name(query))
        record = dataclasses.replace(record, requested=viewer.store.wishes(record.id).requested)
        found = overview.glance(viewer.store, record, findings.store_word(viewer))
        numbers = [one.number for one in found.running]
        shown = [*numbers, found.best_measured] if numbers and found.best_measured is not None else numbers
        known = viewer.background.known(("overview", record.id))
        value = None if known is None else known.value
        return {
            **dataclasses.asdict(found),
            "found": None
            if value is None
            else _told(value, found.life),  # an earlier answer is shown until the newest is there
            "requested": str(record.requested),
            "ended": record.ended,
            "created_at": record.created_at.timestamp(),
            "stop": stop_loses(record, [one.cost_seconds for one in found.running]),
            "curves": _curves(viewer, record, shown),
        }

    def models(query: Query) -> dict[str, Any]:
        name = _name(query)
        found = findings.asked(findings.finding(viewer, name, "overview"))
        if found["value"] is None:
            return found
        return {**found, "value": _told(found["value"], str(alive(viewer.store, viewer.sweep(name)).life))}

    return [get("/overview", glance), get("/overview/findings", models)]


def _told(found: overview.Findings, life: str) -> dict[str, Any]:
    """Returns findings as plain data; what to do depends on whether a process runs the sweep."""
    return dataclasses.asdict(dataclasses.replace(found, next=overview.next_of(found, life)))


def stop_loses(sweep: SweepRecord, costs: Sequence[float]) -> str:
    """Returns what is lost if a sweep is stopped now. `costs` has the seconds that each running trial has cost."""
    if not costs:
        return "No trial runs now, so nothing is lost."
    have, they = ("trial runs and has", "it") if len(costs) == 1 else ("trials run and have", "they")
    spent = f"{len(costs)} {have} taken {text.seconds(sum(costs))}"
    if goes_on(sweep.spec.config):
        return f"{spent}. When the sweep is run again, {they} can go on from what was saved last; the rest is lost."
    if not runs_trainer(sweep.spec.config) and not runs_command(sweep.spec.config):
        return f"{spent}. A function is ended where it next reports, and that is lost; one that returns is kept."
    return f"{spent}. That is lost: {they} can only begin anew, when the sweep is run again."


def _curves(viewer: Viewer, sweep: SweepRecord, numbers: Sequence[int]) -> list[dict[str, Any]]:
    """Returns thinned learning curves over seconds of training, with scores as they are shown."""
    curves = viewer.store.curves(sweep.id, numbers, CURVE_POINTS) if numbers else {}
    return [
        {
            "number": number,
            "seconds": [findings.short(value) for value in curves[number].elapsed_seconds.tolist()],
            "score": [findings.short(shown_score(one, sweep.spec.direction)) for one in curves[number].value.tolist()],
        }
        for number in numbers
        if number in curves
    ]


def _name(query: Query) -> str:
    names = query.texts("sweep", most=1)
    if not names:
        raise UsageError("name the sweep with sweep=NAME")
    return names[0]
