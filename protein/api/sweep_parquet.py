"""The Parquet form of sweeps: one row a trial, with its curve as lists. `protein.api.sweep_files` says what it is for.

The sweeps themselves are JSON in the file's metadata under the key `protein`, counts under `protein_end`. JSON columns
of a trial (params, metrics, timings) are texts, since their values may have any type.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from protein.errors import UsageError
from protein.storage.transfer import TRIAL_KINDS, Item, StoredSweep, StoredTrial

if TYPE_CHECKING:
    import pyarrow

_KEY, _END = "protein", "protein_end"
_ROWS = 1000  # trials of a row group, which is what stays in memory
_POINTS = 500_000  # curve points of a row group, at most
_CURVE = ("steps", "elapsed_seconds", "score", "metrics")
_TEXTS = [name for name, kind in TRIAL_KINDS.items() if kind == "json"]


def write(path: Path, items: Iterable[Item], version: int) -> None:
    """Writes sweeps. Raises `UsageError` where pyarrow is missing."""
    parquet = _parquet()
    sweeps: list[Mapping[str, Any]] = []
    batch: list[tuple[str, StoredTrial]] = []
    writer: Any = None
    num_trials, num_points, waiting = 0, 0, 0
    digest = _Digest()

    def flush() -> None:
        nonlocal writer, batch, waiting
        if not batch:
            return
        table = _table(batch)
        if writer is None:
            writer = parquet.ParquetWriter(path, table.schema, compression="zstd", write_page_checksum=True)
        writer.write_table(table)
        batch, waiting = [], 0

    try:
        for item in items:
            if isinstance(item, StoredSweep):
                flush()
                sweeps.append({"sweep": _with_time_texts(item.values), "trials": item.num_trials})
                continue
            batch.append((str(sweeps[-1]["sweep"]["name"]), item))
            digest.add(item)
            num_trials, num_points, waiting = num_trials + 1, num_points + len(item.steps), waiting + len(item.steps)
            if len(batch) >= _ROWS or waiting >= _POINTS:
                flush()
        flush()
        if writer is None:  # a sweep without a trial
            table = _table([])
            writer = parquet.ParquetWriter(path, table.schema, compression="zstd", write_page_checksum=True)
        head = json.dumps({"version": version, "sweeps": sweeps}, allow_nan=False)
        end = {"trials": num_trials, "points": num_points, "sha256": digest.hexdigest(head)}
        writer.add_key_value_metadata({_KEY: head, _END: json.dumps(end)})
    finally:
        if writer is not None:
            writer.close()


def read(path: Path, version: int) -> Iterator[Item]:
    """Yields the sweeps of a file. Raises `UsageError` where it is none of ours, damaged or cut."""
    parquet = _parquet()
    import pyarrow

    try:
        file = parquet.ParquetFile(path, page_checksum_verification=True)
        held = file.metadata.metadata or {}
        if _KEY.encode() not in held:
            raise UsageError(f"{path} is a Parquet file without sweeps; protein export writes such files")
        head, end = json.loads(held[_KEY.encode()]), json.loads(held[_END.encode()])
        if head.get("version") != version:
            raise UsageError(
                f"{path} has version {head.get('version')!r:.20} of the format, and this version of protein reads"
                f" {version}; upgrade with: pip install --upgrade protein-sweep"
            )
        trials = _trials(file)
        num_trials, num_points = 0, 0
        digest = _Digest()
        for part in head["sweeps"]:
            sweep = StoredSweep(values=_with_times(part["sweep"]), num_trials=int(part["trials"]))
            yield sweep
            for _ in range(sweep.num_trials):
                name, trial = next(trials)
                if name != sweep.name:
                    raise UsageError(f"{path} is damaged: a trial of '{name:.60}' stands in '{sweep.name}'")
                num_trials, num_points = num_trials + 1, num_points + len(trial.steps)
                digest.add(trial)
                yield trial
        found = {"trials": num_trials, "points": num_points, "sha256": digest.hexdigest(held[_KEY.encode()].decode())}
        if next(trials, None) is not None or end != found:
            raise UsageError(f"{path} is damaged: it does not hold what it held when it was written; export again")
    except StopIteration:
        raise UsageError(f"{path} is damaged: it does not hold as many trials as it should; export again") from None
    except (pyarrow.ArrowException, OSError, KeyError, ValueError, TypeError, AttributeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise UsageError(f"{path} is damaged, cut or no Parquet file ({reason}); export again") from error


def _trials(file: Any) -> Iterator[tuple[str, StoredTrial]]:
    for group in range(file.num_row_groups):
        for row in file.read_row_group(group).to_pylist():
            sweep, annotation, curve = row.pop("sweep"), row.pop("annotation"), [row.pop(f"curve.{c}") for c in _CURVE]
            artifacts = [(one["kind"], one["path"]) for one in row.pop("artifacts")]
            for name in _TEXTS:
                row[name] = json.loads(row[name])
            metrics = json.loads(f"[{','.join(curve[3])}]")
            if annotation is not None:
                annotation["tags"] = list(annotation["tags"])
            yield (
                sweep,
                StoredTrial(
                    values=row,
                    steps=curve[0],
                    elapsed_seconds=curve[1],
                    score=curve[2],
                    metrics=metrics,
                    artifacts=artifacts,
                    annotation=annotation,
                ),
            )


def _table(batch: list[tuple[str, StoredTrial]]) -> "pyarrow.Table":
    import pyarrow

    schema = _schema()
    columns: dict[str, list[Any]] = {"sweep": [name for name, _ in batch]}
    for field in schema.names:
        if field in columns:
            continue
        if field.startswith("curve."):
            values = [getattr(trial, field.removeprefix("curve.")) for _, trial in batch]
            if field == "curve.metrics":
                values = [[json.dumps(one, allow_nan=False) for one in metrics] for metrics in values]
            columns[field] = values
        elif field == "artifacts":
            columns[field] = [[{"kind": k, "path": p} for k, p in trial.artifacts] for _, trial in batch]
        elif field == "annotation":
            columns[field] = [trial.annotation for _, trial in batch]
        elif field in _TEXTS:
            columns[field] = [json.dumps(trial.values[field], allow_nan=False) for _, trial in batch]
        else:
            columns[field] = [trial.values[field] for _, trial in batch]
    arrays = [pyarrow.array(columns[field.name], type=field.type) for field in schema]
    return pyarrow.Table.from_arrays(arrays, schema=schema)


def _schema() -> "pyarrow.Schema":
    import pyarrow as pa

    types = {
        "integer": pa.int64(),
        "number": pa.float64(),
        "flag": pa.bool_(),
        "time": pa.timestamp("us", tz="UTC"),
        "json": pa.string(),
        "text": pa.string(),
    }
    annotation = {"tags": pa.list_(pa.string()), "note": pa.string(), "excluded": pa.bool_(), "revision": pa.int64()}
    return pa.schema(
        [
            ("sweep", pa.string()),
            *((name, types[kind]) for name, kind in TRIAL_KINDS.items()),
            ("curve.steps", pa.list_(pa.int64())),
            ("curve.elapsed_seconds", pa.list_(pa.float64())),
            ("curve.score", pa.list_(pa.float64())),
            ("curve.metrics", pa.list_(pa.string())),
            ("artifacts", pa.list_(pa.struct({"kind": pa.string(), "path": pa.string()}))),
            ("annotation", pa.struct(annotation)),
        ]
    )


class _Digest:
    """A checksum of all values: Parquet's own cover the pages of data, and neither their headers nor the footer."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()

    def add(self, trial: StoredTrial) -> None:
        rest = [_with_time_texts(trial.values), list(map(list, trial.artifacts)), trial.annotation, trial.metrics]
        self._hash.update(json.dumps(rest, sort_keys=True).encode())
        for column, kind in ((trial.steps, "int64"), (trial.elapsed_seconds, "float64"), (trial.score, "float64")):
            self._hash.update(np.array(column, dtype=kind).tobytes())

    def hexdigest(self, head: str) -> str:
        self._hash.update(head.encode())
        return self._hash.hexdigest()


def _with_time_texts(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: one.isoformat() if isinstance(one, datetime) else one for name, one in values.items()}


def _with_times(values: Mapping[str, Any]) -> dict[str, Any]:
    created = datetime.fromisoformat(values["created_at"]).astimezone(UTC)
    return {**values, "created_at": created}


def _parquet() -> Any:
    try:
        import pyarrow.parquet
    except ImportError as error:
        reason = " ".join(str(error).split())[:100]
        raise UsageError(
            f"a Parquet file needs pyarrow, which cannot be imported ({reason}); pip install 'protein-sweep[parquet]',"
            " or use a .jsonl file"
        ) from error
    return pyarrow.parquet
