"""A project of Trackio: its database in Trackio's folder, or the Parquet files that Trackio writes of it.

Params are the run's config, the score is the metric's last value, and its history is the learning curve. The cost is
the time from the run's start to its last report, or a metric in seconds. Trackio does not say whether or how a run has
ended: each counts as complete, but for those that were written from here.

Source: trackio/sqlite_storage.py of Trackio 0.43.
"""

import contextlib
import json
import sqlite3
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from protein.errors import UsageError
from protein.files import regular
from protein.imports.runs import (
    Imported,
    Run,
    Source,
    choose,
    curve,
    existing,
    flat,
    moment,
    needed,
    parameters,
    reading,
    tables_of,
)
from protein.types import Direction, TrialEnd

WHAT = "Trackio's folder, or a project's .db or .parquet file in it"
_FACTS, _OUR_MARK = "trial.", "trial.config_hash"  # of runs that were written from here, see `protein.trackers.trackio`
_CONFIGS = "_configs.parquet"
_COLUMNS = {"id", "run_id", "run_name", "timestamp", "step", "log_id", "space_id", "created_at", "metrics", "config"}
_NOT_FINITE = {"NaN": "nan", "Infinity": "inf", "-Infinity": "-inf"}  # as its JSON has them


def is_one(place: Path) -> bool:
    """Whether a file or a folder holds projects."""
    return bool(_projects(place))


def read(source: Source) -> Imported:
    """Returns the project's runs."""
    place = Path(source.place).expanduser()
    if not place.is_file():
        place = existing(source.place, WHAT, folder=True)
    projects = _projects(place)
    if not projects:
        raise UsageError(f"{source.place} holds no project of Trackio; give {WHAT}")
    name = choose("--experiment (the project)", source.experiment, projects)
    path = projects[name]
    points, configs = _rows(path)
    by_run: dict[str, list[Mapping[str, Any]]] = {}
    for point in points:
        by_run.setdefault(_key(point), []).append(point)
    ours = {key for key, config in configs.items() if _OUR_MARK in config}
    known = list(dict.fromkeys(key for point in points for key in point if key not in _COLUMNS))
    said = {str(configs[key].get(f"{_FACTS}direction")) for key in ours}
    score = source.score_of(known, "score" if ours and "score" in known else None)
    own = Direction(said.pop()) if len(said) == 1 and said <= set(Direction) else None
    source.require_cost(known)
    return Imported(
        where=f"{path}, project '{name}'",
        identity=f"{path.resolve()}, project '{name}'",
        experiment=name,
        score=score,
        direction=source.direction_of(score, own),
        runs=[_run(key, configs.get(key, {}), history, score, source) for key, history in by_run.items()],
        notes=[] if ours else ["Trackio does not say whether or how a run has ended: each counts as complete"],
    )


def _projects(place: Path) -> dict[str, Path]:
    """Returns the files of projects by the projects' names; a database where there is also a Parquet file."""
    files = [place] if place.is_file() else sorted(place.glob("*.parquet")) + sorted(place.glob("*.db"))
    found = {}
    for path in files:
        if path.suffix == ".parquet" and (configs := _configs(path)) is not None:
            found[path.stem if configs.parent == path.parent else path.resolve().parent.name] = path
        elif path.suffix == ".db" and {"metrics", "configs"} <= (tables_of(path) or set()):
            found[path.stem] = path
    return found


def _configs(path: Path) -> Path | None:
    """Returns the file of the configs that goes with one of metrics."""
    beside, below = path.with_name(f"{path.stem}{_CONFIGS}"), path.parent / "aux" / "configs.parquet"
    return beside if beside.is_file() else below if path.stem == "metrics" and below.is_file() else None


def _rows(path: Path) -> tuple[list[dict[str, Any]], dict[str, dict[str, Any]]]:
    """Returns the reports in the order of their making, and the configs by run. Raises `UsageError` if damaged."""
    with reading(f"{path} cannot be read as a project of Trackio"):
        if path.suffix == ".db":
            with contextlib.closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as connection:
                connection.row_factory = sqlite3.Row
                tables = [
                    [{**row, **_numbers(json.loads(row[column]))} for row in map(dict, connection.execute(query))]
                    for column, query in (
                        ("metrics", "select * from metrics order by id"),
                        ("config", "select * from configs"),
                    )
                ]
        else:
            tables = [_parquet(path), _parquet(_configs(path) or path)]
    points, configs = tables
    return points, {_key(config): config for config in configs}


def _parquet(path: Path) -> list[dict[str, Any]]:
    parquet = needed("pyarrow.parquet", "'protein-sweep[parquet]'")
    rows = sorted(parquet.read_table(regular(path)).to_pylist(), key=lambda row: row.get("id") or 0)
    return [_numbers({name: value for name, value in row.items() if value is not None}) for row in rows]


def _numbers(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns values with the numbers that JSON lacks, and nested metrics by dotted names."""
    found = flat(values)
    return {
        name.removeprefix("__"): float(_NOT_FINITE[value]) if isinstance(value, str) and value in _NOT_FINITE else value
        for name, value in found.items()
    }


def _key(row: Mapping[str, Any]) -> str:
    return str(row.get("run_id") or row["run_name"])  # older ones have the name alone


def _run(key: str, config: Mapping[str, Any], history: Sequence[Mapping[str, Any]], score: str, source: Source) -> Run:
    began = _moment(config.get("_Created") or config.get("created_at") or history[0]["timestamp"])
    last: dict[str, Any] = {}
    for point in history:
        last |= {name: value for name, value in point.items() if name not in _COLUMNS}
    end, reason = TrialEnd.COMPLETE, ""
    is_ours = _OUR_MARK in config
    if is_ours and config.get(f"{_FACTS}end") in set(TrialEnd):
        end, reason = TrialEnd(config[f"{_FACTS}end"]), str(config.get(f"{_FACTS}reason", ""))
    along = f"curve/{score}" if is_ours else score
    points = [(_moment(point["timestamp"]) - began, point) for point in history]
    own_cost = last.get("cost_seconds") if is_ours else points[-1][0]
    found = curve((point["step"], seconds, point[along]) for seconds, point in points if along in point)
    return Run(
        key=key,
        params=parameters(
            {
                name: one
                for name, one in config.items()
                if name not in _COLUMNS and not name.startswith(("_", _FACTS) if is_ours else "_") and name != "tags"
            }
        ),
        end=end,
        score=last.get(score),
        cost_seconds=source.seconds(own_cost, last),
        steps=found[-1].steps if found else 0,
        reason=reason,
        metrics=last,
        curve=found if len(found) > 1 else (),
        began=moment(began),
    )


def _moment(text: Any) -> float:
    """Returns a time of Trackio's in seconds since 1970; it is in UTC where it has no zone."""
    at = text if isinstance(text, datetime) else datetime.fromisoformat(str(text))
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
