"""Answers of the models about very large sweeps, kept in files of the user's cache folder.

A file is nothing but a shortcut: deleting all of them changes no answer. It is used only while all of this holds:

1. It is of the same sweep, with the same definition, and was made by the same code. The file's name is a hash of both.
2. Since then no trial has finished, and no finished one was excluded or taken back: the store says so, by its cursor.
   What is running teaches the models nothing.
3. The trials that the answers speak of, and the last one that had finished, are still in the store with the same
   values. A store that was replaced by an older copy is found out by this.

A file that cannot be read or written is as good as none.
"""

import contextlib
import dataclasses
import hashlib
import importlib.metadata
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import protein
from protein import files
from protein.analysis.range_ends import RangeEnd
from protein.api.reading import Readable
from protein.api.recommended import best_cut_short, initial_params
from protein.engine.results import Contender, Outlook, spoken_of
from protein.errors import StoreError
from protein.ports import Store
from protein.types import Estimate, SweepRecord, TrialRecord

MAX_FILES = 100  # of the folder; the oldest are deleted
_CODE = ("analysis", "api", "engine", "space")  # packages that the answers depend on, beside numpy and scipy


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """Answers that still hold.

    Attributes:
        trials: those that the answers speak of, by number.
        contenders: all that some question needs; positions in `trials`. None where nobody has asked for them yet.
        range_ends: the same.
        has_outlook: whether `outlook` was asked for.
        outlook: None where too little is known.
    """

    trials: Sequence[TrialRecord]
    contenders: Sequence[Contender] | None
    range_ends: Sequence[RangeEnd] | None
    has_outlook: bool
    outlook: Outlook | None


def folder() -> Path:
    """Returns the folder of the files; it may not exist."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path("~/.cache").expanduser()) / "protein" / "answers"


def find(store: Store, sweep: SweepRecord) -> Kept | None:
    """Returns the answers about a sweep that are kept and still hold; None where there are none."""
    try:
        entry = json.loads(_path(sweep).read_text(encoding="utf-8"))
        changed = store.columns(sweep.id, entry["cursor"], fields=("state",))
        if any(state.finished for state in changed.state):
            return None
        facts = {int(number): values for number, values in entry["trials"].items()}
        trials = store.trials(sweep.id, curves=False, numbers=facts)
        if {trial.number: _facts(trial) for trial in trials} != facts:
            return None
        places = {trial.number: place for place, trial in enumerate(trials)}
        contenders, ends, outlook = entry["contenders"], entry["range_ends"], entry["outlook"]
        return Kept(
            trials=trials,
            contenders=None if contenders is None else [_contender(one, places) for one in contenders],
            range_ends=None if ends is None else [RangeEnd(**one) for one in ends],
            has_outlook=outlook is not None,
            outlook=Outlook(**outlook[0]) if outlook and outlook[0] is not None else None,
        )
    except (OSError, RuntimeError, ValueError, KeyError, TypeError, AttributeError, StoreError):
        return None


def keep(
    store: Store,
    sweep: SweepRecord,
    known: Readable,
    *,
    contenders: Sequence[Contender] | None = None,
    range_ends: Sequence[RangeEnd] | None = None,
    outlook: Sequence[Outlook | None] | None = None,
) -> None:
    """Keeps answers about a sweep, and those that are kept already of the same trials. None: not known.

    Args:
        store: of the sweep.
        sweep: as it is stored.
        known: what was read of it; at least one trial has finished.
        contenders: of the finished trials that were read; not empty.
        range_ends: all of them.
        outlook: one item, which is None where too little is known.
    """
    finished = [trial for trial in known.trials if trial.state.finished]
    needed = None if contenders is None else _needed(contenders, initial_params(sweep.spec))
    spoken = {finished[i].number: finished[i] for one in needed or () for i in one.trials}
    cut_short = best_cut_short(known.trials)
    if cut_short is not None:
        spoken[cut_short.number] = cut_short
    states, numbers = known.columns.state, known.columns.number.tolist()
    last = max(number for number, state in zip(numbers, states, strict=True) if state.finished)
    spoken.update((trial.number, trial) for trial in store.trials(sweep.id, curves=False, numbers=[last]))
    entry: dict[str, Any] = {
        "cursor": known.columns.cursor,
        "trials": {str(number): _facts(trial) for number, trial in spoken.items()},
        "contenders": None
        if needed is None
        else [{**dataclasses.asdict(one), "trials": [finished[i].number for i in one.trials]} for one in needed],
        "range_ends": None if range_ends is None else [dataclasses.asdict(one) for one in range_ends],
        "outlook": None if outlook is None else [None if one is None else dataclasses.asdict(one) for one in outlook],
    }
    with contextlib.suppress(OSError, RuntimeError):
        path = _path(sweep)
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            before = json.loads(path.read_text(encoding="utf-8"))
            if before["cursor"] == entry["cursor"]:
                entry["trials"] = {**before["trials"], **entry["trials"]}
                for name in ("contenders", "range_ends", "outlook"):
                    entry[name] = before[name] if entry[name] is None else entry[name]
        _write(path, json.dumps(entry))


def _needed(contenders: Sequence[Contender], start: Any) -> list[Contender]:
    """Returns, in their order, those that some question about a recommendation names, and the initial config."""
    kept = spoken_of(
        [one.score.value for one in contenders],
        [one.expected_cost_seconds for one in contenders],
        [max(one.measured) for one in contenders],
    )
    kept.update(i for i, one in enumerate(contenders) if start is not None and dict(one.params) == dict(start))
    return [contenders[i] for i in sorted(kept)]


def _facts(trial: TrialRecord) -> list[Any]:
    """Returns what answers depend on of a trial, as plain data."""
    ended = None if trial.finished_at is None else trial.finished_at.isoformat()
    return [trial.state.value, trial.score, trial.run_seconds, trial.excluded, dict(trial.params), ended]


def _contender(one: dict[str, Any], places: dict[int, int]) -> Contender:
    return Contender(
        params=one["params"],
        score=Estimate(**one["score"]),
        expected_cost_seconds=one["expected_cost_seconds"],
        trials=tuple(places[number] for number in one["trials"]),
        measured=tuple(one["measured"]),
        basis=one["basis"],
    )


def _path(sweep: SweepRecord) -> Path:
    identity = [sweep.id, sweep.created_at.isoformat(), sweep.spec, list(_code())]
    return folder() / f"{hashlib.sha256(repr(identity).encode()).hexdigest()}.json"


def _code() -> Iterator[Any]:
    """Yields what changes whenever the code changes that answers depend on."""
    for name in ("numpy", "scipy"):
        yield importlib.metadata.version(name)
    for package in _CODE:
        with os.scandir(Path(protein.__file__).parent / package) as files:
            for file in sorted((file for file in files if file.name.endswith(".py")), key=lambda file: file.name):
                facts = file.stat()
                yield file.name, facts.st_size, facts.st_mtime_ns


def _write(path: Path, text: str) -> None:
    """Writes a file, whole or not at all, and deletes the oldest where there are many."""
    files.replace_file(path, text.encode())
    others = sorted(path.parent.iterdir(), key=lambda one: one.stat().st_mtime, reverse=True)
    for old in others[MAX_FILES:]:
        old.unlink(missing_ok=True)
