"""Sweeps as files, and from one store to another. JSON lines are read by anything; Parquet is smaller, for data frames.

Both hold all that the store holds, exactly. Floats are written with every digit, times to the microsecond. A file ends
with what it should hold, so a cut file is noticed: JSON lines with a count and a checksum of all that comes before, and
Parquet with its footer and a checksum of each page.

    {"protein": "sweeps", "version": 1, "sweeps": ["pong"]}
    {"sweep": {"name": "pong", ...}, "trials": 200}
    {"trial": {"number": 0, ...}, "curve": {"steps": [...], "score": [...], ...}, "artifacts": [...], ...}
    {"end": {"trials": 200, "points": 20000, "sha256": "..."}}

Parquet has one row a trial, with its curve as lists. The sweeps themselves are JSON in the file's metadata under the
key `protein`, counts under `protein_end`. JSON columns of a trial (params, metrics, timings) are texts, since their
values may have any type.
"""

import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from protein import files, storage
from protein.api import stores
from protein.api.definition import check_name
from protein.errors import StoreError, UsageError, remedy
from protein.names import NAME_LENGTH, is_name
from protein.run.lease import dead_owners
from protein.storage.whole import SWEEP_KINDS, TRIAL_KINDS, Item, StoredSweep, StoredTrial
from protein.sweep.ownership import Life, alive, resting_owner
from protein.types import Machine, Request, SweepRecord

if TYPE_CHECKING:
    import pyarrow

    from protein.storage.whole import WholeStore


ENDINGS = (".jsonl", ".parquet")
VERSION = 1  # of both formats
_KIND = "sweeps"
_TIMES = {name for kinds in (SWEEP_KINDS, TRIAL_KINDS) for name, kind in kinds.items() if kind == "time"}
_CURVE = ("steps", "elapsed_seconds", "score", "metrics")
_MAX_HEAD_BYTES = 1_000_000  # of a file's first line
_KEY, _END = "protein", "protein_end"  # in the metadata of a Parquet file
_ROWS = 1000  # trials of a row group of Parquet, which is what stays in memory
_POINTS = 500_000  # curve points of a row group, at most
_TEXTS = [name for name, kind in TRIAL_KINDS.items() if kind == "json"]


def ending(path: Path) -> str:
    """Returns how a file's name ends. Raises `UsageError` unless it says which format the file has."""
    if path.suffix.lower() not in ENDINGS:
        raise UsageError(f"{path}: the name of a file of sweeps ends with {' or '.join(ENDINGS)}; give it such a name")
    return path.suffix.lower()


def write(path: Path, sweeps: Sequence[str], items: Iterable[Item]) -> None:
    """Writes sweeps into a file, which is there whole or not at all: an earlier one stays until the end.

    The file's ending selects the format.

    Raises:
        UsageError: the file cannot be written.
    """
    kind = ending(path)
    if path.is_dir():
        raise UsageError(f"{path} is a folder; give the path of a file")
    try:
        with files.replacing(path) as unfinished:
            if kind == ".parquet":
                _write_parquet(unfinished, items)
            else:
                with unfinished.open("wb") as file:
                    _write_lines(file, sweeps, items)
    except OSError as error:
        also = remedy(error)
        reason = error.strerror or " ".join(str(error).split())
        raise UsageError(
            f"{path} cannot be written ({reason}); give another path{f' or {also}' if also else ''}"
        ) from error


def read(path: Path) -> Iterator[Item]:
    """Yields the sweeps of a file; at its end it has been checked whole.

    Raises:
        UsageError: it is no such file, from a newer version, damaged or cut.
    """
    kind = ending(path)
    if not path.is_file():
        raise UsageError(f"there is no file {path}; give one that protein export has written")
    try:
        if kind == ".parquet":
            yield from _read_parquet(path)
        else:
            with path.open("rb") as file:
                yield from _read_lines(file, path)
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror or error}); give another") from error


def _write_lines(file: IO[bytes], sweeps: Sequence[str], items: Iterable[Item]) -> None:
    digest, trials, points = hashlib.sha256(), 0, 0

    def put(value: Mapping[str, Any]) -> None:
        line = json.dumps(value, allow_nan=False, separators=(",", ":")).encode() + b"\n"
        digest.update(line)
        file.write(line)

    put({"protein": _KIND, "version": VERSION, "sweeps": list(sweeps)})
    for item in items:
        if isinstance(item, StoredSweep):
            put({"sweep": _plain(item.values), "trials": item.num_trials})
            continue
        value: dict[str, Any] = {"trial": _plain(item.values)}
        if item.steps:
            value["curve"] = {name: list(getattr(item, name)) for name in _CURVE}
        if item.artifacts:
            value["artifacts"] = [list(pair) for pair in item.artifacts]
        if item.annotation is not None:
            value["annotation"] = item.annotation
        put(value)
        trials, points = trials + 1, points + len(item.steps)
    put({"end": {"trials": trials, "points": points, "sha256": digest.hexdigest()}})


def _read_lines(file: IO[bytes], path: Path) -> Iterator[Item]:
    digest, trials, points = hashlib.sha256(), 0, 0
    head = _parsed(file.readline(_MAX_HEAD_BYTES), path, 1)
    if head.get("protein") != _KIND:
        raise UsageError(f"{path} is no file of sweeps; protein export writes such files")
    if head.get("version") != VERSION:
        raise UsageError(
            f"{path} has version {head.get('version')!r:.20} of the format, and this version of protein reads {VERSION}"
            "; upgrade with: pip install --upgrade protein-sweep"
        )
    file.seek(0)
    for number, line in enumerate(file, start=1):
        value = head if number == 1 else _parsed(line, path, number)
        if "end" in value:
            found = {"trials": trials, "points": points, "sha256": digest.hexdigest()}
            if value["end"] != found or file.readline():
                raise UsageError(f"{path} is damaged: it does not hold what it held when it was written; export again")
            return
        digest.update(line)
        if number == 1:
            continue
        try:
            if "sweep" in value:
                yield StoredSweep(values=_values(value["sweep"]), num_trials=int(value["trials"]))
                continue
            curve = value.get("curve", dict.fromkeys(_CURVE, ()))
            item = StoredTrial(
                values=_values(value["trial"]),
                **{name: curve[name] for name in _CURVE},
                artifacts=[(kind, place) for kind, place in value.get("artifacts", ())],
                annotation=value.get("annotation"),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise UsageError(f"line {number} of {path} is damaged ({_one_line(error)}); export again") from error
        trials, points = trials + 1, points + len(item.steps)
        yield item
    raise UsageError(f"{path} is cut: its last line is missing; export again")


def _parsed(line: bytes, path: Path, number: int) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        if number == 1:
            raise UsageError(f"{path} is no file of sweeps; protein export writes such files") from error
        what = "is cut" if not line.endswith(b"\n") else f"is damaged in line {number}"
        raise UsageError(f"{path} {what}; export again") from error
    if not isinstance(value, dict):
        raise UsageError(f"{path} is no file of sweeps; protein export writes such files")
    return value


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value.isoformat() if isinstance(value, datetime) else value for name, value in values.items()}


def _values(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _moment(value) if name in _TIMES else value for name, value in values.items()}


def _moment(value: Any) -> datetime | None:
    if value is None:
        return None
    found = datetime.fromisoformat(value)
    if found.tzinfo is None:
        raise ValueError(f"the time {value!r:.40} has no time zone")
    return found.astimezone(UTC)


def _one_line(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:200]


def _write_parquet(path: Path, items: Iterable[Item]) -> None:
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
                sweeps.append({"sweep": _plain(item.values), "trials": item.num_trials})
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
        head = json.dumps({"version": VERSION, "sweeps": sweeps}, allow_nan=False)
        end = {"trials": num_trials, "points": num_points, "sha256": digest.hexdigest(head)}
        writer.add_key_value_metadata({_KEY: head, _END: json.dumps(end)})
    finally:
        if writer is not None:
            writer.close()


def _read_parquet(path: Path) -> Iterator[Item]:
    """Yields the sweeps of a file. Raises `UsageError` where it is none of ours, damaged or cut."""
    parquet = _parquet()
    import pyarrow

    try:
        file = parquet.ParquetFile(path, page_checksum_verification=True)
        held = file.metadata.metadata or {}
        if _KEY.encode() not in held:
            raise UsageError(f"{path} is a Parquet file without sweeps; protein export writes such files")
        head, end = json.loads(held[_KEY.encode()]), json.loads(held[_END.encode()])
        if head.get("version") != VERSION:
            raise UsageError(
                f"{path} has version {head.get('version')!r:.20} of the format, and this version of protein reads"
                f" {VERSION}; upgrade with: pip install --upgrade protein-sweep"
            )
        trials = _trials(file)
        num_trials, num_points = 0, 0
        digest = _Digest()
        for part in head["sweeps"]:
            sweep = StoredSweep(values=_values(part["sweep"]), num_trials=int(part["trials"]))
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
        rest = [_plain(trial.values), list(map(list, trial.artifacts)), trial.annotation, trial.metrics]
        self._hash.update(json.dumps(rest, sort_keys=True).encode())
        for column, kind in ((trial.steps, "int64"), (trial.elapsed_seconds, "float64"), (trial.score, "float64")):
            self._hash.update(np.array(column, dtype=kind).tobytes())

    def hexdigest(self, head: str) -> str:
        self._hash.update(head.encode())
        return self._hash.hexdigest()


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


Progress = Callable[[str, int, int], None]  # is told the sweep, how many of its trials are done, and of how many


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """A sweep that was written.

    Attributes:
        name: of the sweep.
        num_trials: how many trials it has.
        num_points: how many points their curves have together.
        running: numbers of trials that had not finished.
        paused: whether no trial of it starts until somebody asks for that.
    """

    name: str
    num_trials: int
    num_points: int
    running: tuple[int, ...] = ()
    paused: bool = False


def chosen(store: "WholeStore", names: Sequence[str], *, every: bool) -> list[SweepRecord]:
    """Returns sweeps by name; without names the store's only sweep, or every one.

    Raises:
        UsageError: there is no such sweep, or several to choose from.
    """
    if every:
        if names:
            raise UsageError(f"--all means every sweep; drop it, or the name {names[0]}")
        found = store.list_sweeps()
        if not found:
            raise UsageError("the store holds no sweep yet; start one with protein sweep --env NAME --max-cost 10m")
        return found
    return [stores.find(store, name) for name in (dict.fromkeys(names) or [None])]


def export(store: "WholeStore", sweeps: Sequence[SweepRecord], path: Path, progress: Progress) -> list[Moved]:
    """Writes sweeps into a file; see `protein.api.sweep_files`.

    Raises:
        UsageError: the file cannot be written.
        StoreError: a value of the store is damaged; the file is not written.
    """
    counter = _Counter(progress)
    names = [sweep.spec.name for sweep in sweeps]
    write(path, names, counter.counted(store.read_sweeps([sweep.id for sweep in sweeps])))
    return counter.moved()


def import_file(store: "WholeStore", path: Path, *, name: str | None, progress: Progress) -> list[Moved]:
    """Stores the sweeps of a file as new ones, all of them or none.

    `name` is that of the sweep in the store, if the file holds one; None: as in the file.

    Raises:
        UsageError: the file is damaged or holds several sweeps and a name is given.
        StoreError: the store has a sweep of this name, or a value cannot be stored.
    """
    if name is not None:
        check_name(name, "--name")
    counter = _Counter(progress)
    items = counter.counted(_checked(read(path), path, name))
    store.write_sweeps(items, lambda done, of: None)
    moved = counter.moved()
    for one in moved:
        copy = store.find_sweep(one.name)
        if copy is not None and alive(store, copy).life is Life.RUNS:  # the process that runs the original
            store.set_ended(copy.id, "copied before its end")
    return moved


def _checked(items: Iterable[Item], path: Path, name: str | None) -> Iterator[Item]:
    """Yields what a file holds; what the database cannot know of a sweep is checked here."""
    seen: list[str] = []
    for item in items:
        if isinstance(item, StoredSweep):
            if seen and name is not None:
                raise UsageError(f"{path} holds several sweeps, and --name {name} is for one; drop --name")
            item = item if name is None else dataclasses.replace(item, values={**item.values, "name": name})
            check_name(item.name, f"{path}: the sweep's name")
            if item.name in seen:
                raise UsageError(f"{path} is damaged: it holds sweep '{item.name}' twice; export again")
            seen.append(item.name)
        yield item


def move(source_url: str, target_url: str, progress: Progress) -> tuple[list[Moved], str, str]:
    """Copies all sweeps of a store to another one, in one transaction, and compares what both hold.

    The calibrations of machines go with them, because costs are in seconds of the store's first machine. Those that the
    other store knows already stay before them.

    Returns:
        The sweeps, how messages name the other store, and a warning where costs of both stores differ in meaning ("").

    Raises:
        UsageError: both are the same store; a process runs one of the sweeps; there is none.
        StoreError: the other store has a sweep of the same name.
    """
    if stores.same(source_url, target_url):
        raise UsageError("both stores are the same one; give another with --to")
    source = storage.open_whole_store(source_url, create=False)
    try:
        sweeps = chosen(source, (), every=True)
        for sweep in sweeps:
            if not is_name(sweep.spec.name):
                raise UsageError(
                    f"the name {sweep.spec.name!r:.200} can be no sweep's, which is 1 to {NAME_LENGTH} letters, digits,"
                    " dots, dashes or underscores; give it another with protein rename first"
                )
            require_idle(source, sweep, "moved")
        with stores.opened_whole(target_url, create=True) as target:
            counter, ours = _Counter(progress), source.machines()
            warning = _other_seconds(ours, target.machines())
            items = counter.counted(source.read_sweeps([one.id for one in sweeps]))
            target.write_sweeps(items, lambda done, of: None, ours)
            _compare(source, target, sweeps)
            return counter.moved(), target.shown, warning
    finally:
        source.close()


def _other_seconds(ours: Sequence[Machine], theirs: Sequence[Machine]) -> str:
    """Returns a warning where a store that sweeps are moved to counts costs in seconds of another machine; "": none."""
    if not theirs or (ours and ours[0].name == theirs[0].name):
        return ""
    rest = "compare their costs within these sweeps only, and do not resume them there"
    if not ours:
        return f"costs there are in seconds of {theirs[0].name}, and those of these sweeps perhaps not: {rest}"
    factor = ours[0].calibration_seconds / theirs[0].calibration_seconds
    return (
        f"costs of these sweeps are in seconds of {ours[0].name}, and others there in seconds of {theirs[0].name},"
        f" which is {1 / factor if factor < 1 else factor:.2f} times as {'slow' if factor < 1 else 'fast'}: {rest}"
    )


def _compare(source: "WholeStore", target: "WholeStore", sweeps: Sequence[SweepRecord]) -> None:
    """Raises `StoreError` unless both stores sum the sweeps up in the same way."""
    there = {sweep.spec.name: sweep for sweep in target.list_sweeps()}
    for sweep in sweeps:
        copy = there.get(sweep.spec.name)
        same = copy is not None and copy.spec == sweep.spec
        if copy is None or not same or _summed(source, sweep) != _summed(target, copy):
            raise StoreError(
                f"sweep '{sweep.spec.name}' differs from what was copied: it has changed since; remove the copies with"
                " protein rm, stop what runs it, and move again"
            )


def _summed(store: "WholeStore", sweep: SweepRecord) -> tuple[object, ...]:
    known = store.summaries([sweep.id])[sweep.id]
    seconds = round(known.spent_seconds, 6), round(known.confirming_seconds, 6)
    return known.ends, known.excluded, known.confirmations, *seconds, known.best


def require_idle(store: "WholeStore", sweep: SweepRecord, done: str) -> None:
    """Raises `UsageError` where a process runs a sweep, which cannot be `done` (in a word) then.

    None of its trials need run now: a process that is paused, or between two trials, goes on by the sweep's old name.
    """
    owners = store.live_trials(sweep.id).values()
    gone = set(dead_owners(owners))
    live = [owner for owner in owners if owner not in gone] or [resting_owner(store, sweep)]
    if owner := live[0][:80]:
        parts = owner.rsplit(":", 2)  # host, process, and what is unique
        who = f"process {parts[1]} on {parts[0]}" if len(parts) == 3 else owner
        raise UsageError(
            f"sweep '{sweep.spec.name}' is being run by {who} and cannot be {done}; end it with protein stop"
            f" {sweep.spec.name}, and wait until it has ended"
        )


class _Counter:
    """Counts sweeps and trials as they pass."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._found: list[Moved] = []

    def counted(self, items: Iterable[Item]) -> Iterator[Item]:
        expected = 0
        for item in items:
            if isinstance(item, StoredSweep):
                expected = item.num_trials
                paused = item.values.get("requested") == Request.PAUSE.value
                self._found.append(Moved(name=item.name, num_trials=0, num_points=0, paused=paused))
            elif self._found:
                last = self._found[-1]
                unfinished = (item.number,) if item.values.get("state") == "running" else ()
                self._found[-1] = dataclasses.replace(
                    last,
                    num_trials=last.num_trials + 1,
                    num_points=last.num_points + len(item.steps),
                    running=last.running + unfinished,
                )
                self._progress(last.name, last.num_trials + 1, expected)
            yield item

    def moved(self) -> list[Moved]:
        return self._found
