"""A result folder of Syne Tune: metadata.json, results.csv.zip, and for each trial config.json.

Score, direction and space are those of metadata.json. The cost is `st_worker_time`, the steps are the scheduler's time
attribute, or else the number of the report. A trial has been stopped early where the scheduler's last decision was to
stop it, below its `max_t`. One that ended without a report has failed. Nothing is unpickled.

Source: syne_tune/tuner.py, syne_tune/results_callback.py and syne_tune/backend/local_backend.py.
"""

import contextlib
import csv
import io
import json
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from protein.errors import UsageError
from protein.imports.runs import (
    Imported,
    Run,
    Source,
    curve,
    experiment_of,
    own_ranges,
    parameters,
    reading,
    table_of,
    text_value,
)
from protein.types import Direction, TrialEnd

WHAT = "a result folder of Syne Tune, which has metadata.json and results.csv.zip"
MAX_TABLE_BYTES = 1 << 30  # that a small file may unpack to
_TABLES = ("results.csv.zip", "results.csv")
_SECONDS, _STEPS, _CONFIG = "st_worker_time", "st_worker_iter", "config_"


def is_one(folder: Path) -> bool:
    """Whether a folder holds an experiment."""
    return (folder / "metadata.json").is_file() and any((folder / name).is_file() for name in _TABLES)


def read(source: Source) -> Imported:
    """Returns the folder's finished trials."""
    folder = experiment_of(source, is_one, WHAT)
    about = table_of(folder / "metadata.json")
    rows = _rows(folder)
    known = [str(name) for name in about.get("metric_names") or [about.get("metric")] if name]
    score = source.score_of(known, what="--score (the metric)")
    source.require_cost(name for name in (rows[0] if rows else ()) if not name.startswith(_CONFIG))
    mode = about.get("metric_mode", "min")
    mode = mode[known.index(score)] if isinstance(mode, list) else mode
    scheduler = about.get("scheduler_kwargs")
    scheduler = scheduler if isinstance(scheduler, dict) else {}
    by_trial: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        by_trial.setdefault(str(row["trial_id"]), []).append(row)
    configs = {one.parent.name: one for one in folder.glob("*/config.json") if one.parent.name not in by_trial}
    runs = [_run(key, points, scheduler, score, source) for key, points in by_trial.items()]
    ended = [key for key, path in configs.items() if (path.parent / "end").is_file()]
    failed: dict[str, Any] = {
        "end": TrialEnd.CRASHED,
        "score": None,
        "cost_seconds": None,
        "reason": "it ended without a report",
    }
    runs += [Run(key=key, params=parameters(table_of(configs[key])), **failed) for key in ended]
    space = about.get("config_space")
    with contextlib.suppress(ValueError):
        space = json.loads(space) if isinstance(space, str) else space
    ranges, notes = own_ranges(space, folder / "metadata.json")
    return Imported(
        where=str(folder),
        identity=str(folder.resolve()),
        experiment=folder.name,
        env=str(about.get("entrypoint") or folder.name),
        score=score,
        direction=source.direction or (Direction.MAXIMIZE if mode == "max" else Direction.MINIMIZE),
        runs=sorted(runs, key=lambda run: (len(run.key), run.key)),
        num_unfinished=len(configs) - len(ended),
        parameters=ranges,
        notes=notes,
    )


def _rows(folder: Path) -> list[dict[str, Any]]:
    """Returns the reports of all trials. Raises `UsageError` where the table cannot be read."""
    path = next(folder / name for name in _TABLES if (folder / name).is_file())
    with reading(f"{path} cannot be read as a table"):
        if path.suffix == ".zip":
            with zipfile.ZipFile(path) as archive:
                table = archive.infolist()[0]
                if table.file_size > MAX_TABLE_BYTES:
                    raise UsageError(
                        f"{path} holds a table of {table.file_size:,} bytes, and the limit is {MAX_TABLE_BYTES:,}; give"
                        " a smaller one"
                    )
                text = archive.read(table).decode()
        else:
            text = path.read_text(encoding="utf-8")
        rows = csv.DictReader(io.StringIO(text, newline=""), strict=True)
        found = [{name: text_value(value) for name, value in row.items()} for row in rows]
    if any("trial_id" not in row for row in found):
        raise UsageError(f"{path} has no column trial_id, so it is no table of Syne Tune; give another folder")
    return found


def _run(
    key: str, points: Sequence[Mapping[str, Any]], scheduler: Mapping[str, Any], score: str, source: Source
) -> Run:
    last = points[-1]
    attribute, longest = scheduler.get("time_attr"), scheduler.get("max_t")
    steps = [point.get(attribute or "", point.get(_STEPS, 0) + 1) for point in points]
    end, reason = TrialEnd.COMPLETE, ""
    if last.get("st_status") == "Failed":
        end, reason = TrialEnd.CRASHED, "failed"
    elif last.get("st_decision") == "STOP" and isinstance(longest, int | float) and steps[-1] < longest:
        end, reason = TrialEnd.STOPPED_EARLY, "stopped by the scheduler"
    return Run(
        key=key,
        params=parameters(
            {name.removeprefix(_CONFIG): value for name, value in last.items() if name.startswith(_CONFIG)}
        ),
        end=end,
        score=last.get(score),
        cost_seconds=source.seconds(last.get(_SECONDS), last),
        reason=reason,
        metrics={name: value for name, value in last.items() if not name.startswith((_CONFIG, "st_", "trial_id"))},
        curve=curve((at, point.get(_SECONDS), point.get(score)) for at, point in zip(steps, points, strict=True)),
    )
