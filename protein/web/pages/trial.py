"""`/api/trial`: everything about one trial; behind it a metric's curve, the log, the files, the agent at play."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from starlette.responses import FileResponse, Response
from starlette.routing import BaseRoute

from protein.api.recommended import initial_params, score_range, shown_trials
from protein.columns import cell
from protein.config.layers import flatten
from protein.direction import shown_score
from protein.envs_c import worlds
from protein.errors import SpaceError, UsageError
from protein.run.usage import read_curve
from protein.space import Space
from protein.space.parameters import Categorical
from protein.trainer.kinds import LANGUAGE, kind_of
from protein.types import USAGE_FILE, Params, SweepRecord, TrialRecord, TrialState, runs_trainer
from protein.view import commands, data, text
from protein.web import artifacts, findings
from protein.web.answers import NotFound, Query, get, post
from protein.web.background import Background
from protein.web.frame import Frame
from protein.web.pages.sweeps import interrupted
from protein.web.viewer import Viewer

CURVE_POINTS = 2_000  # of each trial
MAX_TRIALS = 50
MAX_PROMPT = 2_000  # characters
MAX_NUMBER = 2**53  # the largest whole number that a page can send
_NO_STORE = {"cache-control": "no-store"}


def routes(viewer: Viewer) -> list[BaseRoute]:
    player = Background(viewer.stopping)  # apart from the fits, which should not wait for an episode

    def trial(query: Query) -> dict[str, Any]:
        return whole(viewer, *asked_for(viewer, query))

    def curve(query: Query) -> dict[str, Any]:
        sweep, record = asked_for(viewer, query)
        metric = query.text("metric", most=200)
        run = [one for one in run_of(viewer.frame(sweep.spec.name), record) if one <= record.number]
        return {"metric": metric, "curves": curves(viewer, sweep, run, metric or None)}

    def log(query: Query) -> dict[str, Any]:
        sweep, record = asked_for(viewer, query)
        path = artifacts.log(viewer.artifact_directory(sweep.spec.name), record)
        if path is None:
            raise NotFound(f"trial {record.number} has no log that can be read")
        wanted = query.text("find", most=200)
        return artifacts.search(path, wanted) if wanted else artifacts.tail(path)

    def usage(query: Query) -> dict[str, Any]:
        sweep, record = asked_for(viewer, query)
        kept = artifacts.files(viewer.artifact_directory(sweep.spec.name), record)
        return dict(next((read_curve(one.path) for one in kept if one.name == USAGE_FILE and one.path), {}))

    def file(query: Query) -> Response:
        sweep, record = asked_for(viewer, query)
        path = artifacts.find(viewer.artifact_directory(sweep.spec.name), record, query.text("name", most=300))
        shown = query.flag("show") and path.suffix.lower() in artifacts.PLAYABLE
        way = "inline" if shown else "attachment"
        return FileResponse(path, filename=path.name, content_disposition_type=way, headers=_NO_STORE)

    def play(given: Mapping[str, Any]) -> dict[str, Any]:
        name, number = given.get("sweep"), given.get("number")
        if not isinstance(name, str) or type(number) is not int:
            raise UsageError("to play, give sweep as a text and number as a whole number")
        sweep, record = find(viewer, name, number)
        path, problem = checkpoint_of(viewer, sweep, record)
        if path is None:
            raise UsageError(problem)
        env, seed = sweep.spec.env, record.seed
        found = player.ask(
            record.id, 0, lambda: artifacts.play(path, env, seed, viewer.stopping), patience=0.0, retry=0.0
        )
        return {"state": found.state}

    def played(query: Query) -> Any:
        _, record = asked_for(viewer, query)
        found = player.known(record.id)
        if found is None or found.state != "ready":
            state, error = ("none", "") if found is None else (found.state, found.error)
            return {"state": state, "error": error}
        if not query.flag("show"):
            return {"state": "ready", "error": ""}
        return Response(found.value, media_type="image/gif", headers=_NO_STORE)

    def write(given: Mapping[str, Any]) -> dict[str, Any]:
        name, number, prompt, seed = (given.get(key) for key in ("sweep", "number", "prompt", "seed"))
        if not isinstance(name, str) or type(number) is not int:
            raise UsageError("to write, give sweep as a text and number as a whole number")
        if not isinstance(prompt, str) or len(prompt) > MAX_PROMPT or "\0" in prompt:
            raise UsageError(f"a prompt is a text of at most {MAX_PROMPT} characters; give a shorter one")
        if type(seed) is not int or not 0 <= seed <= MAX_NUMBER:
            raise UsageError("a seed is a whole number from 0 on")
        sweep, record = find(viewer, name, number)
        path, problem = checkpoint_of(viewer, sweep, record, writes=True)
        if path is None:
            raise UsageError(problem)
        found = player.ask(
            ("text", record.id),
            (prompt, seed),
            lambda: artifacts.write(path, prompt, seed, viewer.stopping),
            patience=0.0,
            retry=0.0,
        )
        return {"state": found.state}

    def written(query: Query) -> dict[str, Any]:
        _, record = asked_for(viewer, query)
        found = player.known(("text", record.id))
        if found is None or found.state != "ready":
            state, error = ("none", "") if found is None else (found.state, found.error)
            return {"state": state, "error": error, "text": ""}
        return {"state": "ready", "error": "", "text": found.value}

    return [
        get("/trial", trial),
        get("/trial/curve", curve),
        get("/trial/log", log),
        get("/trial/usage", usage),
        get("/trial/file", file),
        post("/trial/play", play),
        get("/trial/played", played),
        post("/trial/write", write),
        get("/trial/written", written),
    ]


def asked_for(viewer: Viewer, query: Query) -> tuple[SweepRecord, TrialRecord]:
    """Returns the trial that a request names with `sweep` and `number`. Raises `NotFound`, `UsageError`."""
    names = query.texts("sweep", most=1)
    if not names:
        raise UsageError("name the sweep with sweep=NAME")
    return find(viewer, names[0], query.integer("number", -1, least=0, most=MAX_NUMBER))


def find(viewer: Viewer, name: str, number: int) -> tuple[SweepRecord, TrialRecord]:
    """Returns a trial as it is stored, without its curve. Raises `NotFound`."""
    sweep = viewer.sweep(name)
    found = viewer.store.trials(sweep.id, curves=False, numbers=[number])
    if not found:
        raise NotFound(f"sweep '{name}' has no trial {number}")
    return sweep, found[0]


def whole(viewer: Viewer, sweep: SweepRecord, record: TrialRecord) -> dict[str, Any]:
    """Returns everything about a trial, in the user's direction."""
    [shown] = shown_trials(sweep, [record])
    frame = viewer.frame(sweep.spec.name)
    run = run_of(frame, record)
    root = viewer.artifact_directory(sweep.spec.name)
    kind = kind_of(sweep.spec.config)
    checkpoint, problem = checkpoint_of(viewer, sweep, record, writes=kind is LANGUAGE)
    kept = artifacts.files(root, record)
    listed = [artifacts.described(one) for one in kept]
    return {
        "sweep": {
            "name": sweep.spec.name,
            "env": sweep.spec.env,
            "method": sweep.spec.method,
            "direction": str(sweep.spec.direction),
            "kind": kind.name if runs_trainer(sweep.spec.config) else "",
            "unit": kind.unit,  # what a step is
            "last": int(frame.numbers[-1]) if len(frame) else record.number,
        },
        "trial": {
            **{key: value for key, value in data.trial(shown, curve=False).items() if key != "artifacts"},
            "continued_seconds": record.continued_seconds,
            "tags": list(record.tags),
            "note": record.note,
            "excluded": record.excluded,
            "started_at": record.started_at.timestamp(),
            "finished_at": None if record.finished_at is None else record.finished_at.timestamp(),
            "interrupted": record.state is TrialState.RUNNING and bool(interrupted({record.number: record.owner})),
            "ended": None if record.end is None else record.end.text,
        },
        "off_by": {"score": text.score_error(shown), "cost": text.cost_error(shown)},
        "params": params(sweep, record.params),
        "fixed": fixed(sweep, record),
        "curves": curves(viewer, sweep, [one for one in run if one <= record.number], None),
        "metrics": metric_names(viewer, sweep, record),
        "run": [_of_run(frame, one) for one in run] if len(run) > 1 else [],
        "then": then(frame, record),
        "same_config": same_config(frame, record),
        "files": listed,
        "sample": next((artifacts.beginning(one.path) for one in kept if one.kind == "sample" and one.path), ""),
        "playback": {
            "possible": checkpoint is not None,
            "problem": problem,
            "here": sweep.spec.env in worlds.names(),  # in the page itself
        },
        "possible_scores": _finite(score_range(sweep.spec)),
        "commands": _commands(viewer, sweep, record, root),
    }


def params(sweep: SweepRecord, values: Params) -> list[dict[str, Any]]:
    """Returns each searched value beside the initial config's, and its place in its range."""
    initial = initial_params(sweep.spec) or {}
    try:
        space = {parameter.name: parameter for parameter in Space.from_dict(sweep.spec.space).parameters}
    except SpaceError:  # of another version; the values are shown without their ranges
        space = {}
    found = []
    for name, value in values.items():
        parameter = space.get(name)
        one: dict[str, Any] = {
            "name": name,
            "value": cell(value),
            "initial": cell(initial[name]) if name in initial else None,
            "changed": name in initial and initial[name] != value,
        }
        if isinstance(parameter, Categorical):
            one["choices"] = list(map(cell, parameter.choices))
        elif parameter is not None:
            one |= {"low": parameter.low, "high": parameter.high, "scale": parameter.scale}
            if isinstance(value, int | float) and parameter.low <= value <= parameter.high:
                one["place"] = float(parameter.encode(np.array([float(value)]))[0])
        found.append(one)
    return found


def fixed(sweep: SweepRecord, record: TrialRecord) -> list[list[Any]]:
    """Returns the values that the sweep does not search, as [name, value]; none where it runs a function."""
    if not runs_trainer(sweep.spec.config):
        return []
    values = {**flatten(sweep.spec.config), "train.seed": record.seed}
    return [[name, value] for name, value in values.items() if name not in record.params]


def curves(viewer: Viewer, sweep: SweepRecord, numbers: list[int], metric: str | None) -> list[dict[str, Any]]:
    """Returns the learning curves of some trials of a run, the earliest first, in the user's direction."""
    found = viewer.store.curves(sweep.id, numbers, CURVE_POINTS, metric=metric)
    listed = []
    for number in numbers:
        if number not in found:
            continue
        one = found[number]
        values = one.value.tolist()
        if metric is None:
            values = [shown_score(value, sweep.spec.direction) for value in values]
        listed.append(
            {
                "number": number,
                "num_points": one.num_points,
                "steps": one.steps.tolist(),
                "seconds": one.elapsed_seconds.tolist(),
                "value": values,
            }
        )
    return listed


def metric_names(viewer: Viewer, sweep: SweepRecord, record: TrialRecord) -> list[str]:
    """Returns the metrics that a trial's curve has."""
    names: dict[str, None] = {}
    for point in viewer.store.trial(sweep.id, record.number).curve:
        names.update(dict.fromkeys(point.metrics))
    return list(names)


def run_of(frame: Frame, record: TrialRecord) -> list[int]:
    """Returns the numbers of the trials of one run, oldest first: those that it continues, itself, and those after it.

    Where several trials have continued one, only those on the way to this trial, and after it the first each time.
    """
    column = frame.columns["continues"]
    before = {
        int(number): int(value)
        for number, value, missing in zip(frame.numbers, column.values, column.missing, strict=True)
        if not missing and value >= 0
    }
    run = [record.number]
    while run[0] in before and before[run[0]] not in run and len(run) < MAX_TRIALS:
        run.insert(0, before[run[0]])
    after: dict[int, int] = {}
    for number, value in before.items():
        after.setdefault(value, number)
    while run[-1] in after and after[run[-1]] not in run and len(run) < MAX_TRIALS:
        run.append(after[run[-1]])
    return run


def then(frame: Frame, record: TrialRecord) -> dict[str, Any]:
    """Returns what was known when a trial was suggested: how many trials had finished, and the best of them."""
    ended = frame.columns["finished_at"]
    known = ~ended.missing & (ended.floats() <= record.started_at.timestamp())
    complete = np.array([state == "complete" for state in frame.columns["state"].listed()], dtype=bool)
    scores = np.where(known & complete & frame.within_limits(), frame.stored_score(), -math.inf)
    best = int(np.argmax(scores)) if len(scores) else -1
    if best < 0 or not math.isfinite(scores[best]):
        return {"finished": int(known.sum()), "best": None}
    row = {key: frame.columns[key].value(best) for key in ("number", "score", "run_seconds")}
    return {"finished": int(known.sum()), "best": row}


def same_config(frame: Frame, record: TrialRecord) -> list[dict[str, Any]]:
    """Returns the other trials of the same config, oldest first: runs that differ in their seed only."""
    same = frame.numbers != record.number
    for name, column in frame.group("params").items():
        if name not in record.params:
            same &= column.missing
        elif column.kind.coded:
            same &= ~column.missing & (column.values == column.code(cell(record.params[name])))
        else:
            same &= ~column.missing & (column.values == record.params[name])
    rows = np.flatnonzero(same)[:MAX_TRIALS]
    keys = ("number", "state", "score", "run_seconds")
    return [{key: frame.columns[key].value(int(row)) for key in keys} for row in rows]


def checkpoint_of(
    viewer: Viewer, sweep: SweepRecord, record: TrialRecord, *, writes: bool = False
) -> tuple[Path | None, str]:
    """Returns the checkpoint with which a trial's agent can play, or its language model write (`writes`); or why there
    is none."""
    if not runs_trainer(sweep.spec.config):
        return None, "this sweep runs a function, so there is no agent that can play"
    if writes != (kind_of(sweep.spec.config) is LANGUAGE):
        return None, "an agent plays, and a language model writes"
    what = "model" if writes else "agent"
    if ":" in sweep.spec.env:
        return None, f"{sweep.spec.env} is code in Python, which this page does not run; use protein eval --gif"
    if not record.state.finished:
        gone = interrupted({record.number: record.owner})
        now = "waits to be taken up again" if record.state is TrialState.WAITING else "still runs"
        now = "is queued" if record.is_queued else now
        now = "was interrupted" if record.state is TrialState.RUNNING and gone else now
        return None, f"the trial {now}; it leaves its {what} at its end"
    root = viewer.artifact_directory(sweep.spec.name)
    path, problem = artifacts.checkpoint(root, record)
    if path is None and problem == artifacts.NO_CHECKPOINT:
        problem += f", so its {what} cannot {'write' if writes else 'play'}"
    return path, problem


def _finite(ends: text.Range | None) -> list[float | None] | None:
    """Returns the ends of the possible scores; None where there is no end, which JSON has no number for."""
    return None if ends is None else [end if math.isfinite(end) else None for end in ends]


def _of_run(frame: Frame, number: int) -> dict[str, Any]:
    row = int(frame.rows([number])[0])
    keys = ("number", "state", "score", "cost_seconds", "run_seconds", "steps")
    return {key: frame.columns[key].value(row) for key in keys}


def _commands(viewer: Viewer, sweep: SweepRecord, record: TrialRecord, root: Path) -> dict[str, str]:
    store = findings.store_words(viewer)
    found = {"show": commands.command("show", sweep.spec.name, "--trial", str(record.number), *store)}
    kept = {one.kind: one.path for one in artifacts.files(root, record) if one.path is not None}
    if runs_trainer(sweep.spec.config) and "config" in kept:
        found["train"] = commands.command("train", "--config", str(kept["config"]))
    if "checkpoint" in kept:
        how = ["--prompt", commands.PROMPT] if kind_of(sweep.spec.config) is LANGUAGE else ["--render"]
        found["play"] = commands.command("eval", "--checkpoint", str(kept["checkpoint"]), *how)
    return found
