"""Stored sweeps as data: as frames, for notebooks and scripts (`protein.load`), and held against each other.

A side of a comparison is one sweep, or several that are alike but for their seed and their environment. Names say which
belong together (`protein.analysis.comparison.side_labels`): "old-pong-1", "old-pong-2" and "old-maze-1" make up "old".
Where that does not fit, each argument can be a side: a pattern such as "old-*", or names between commas.
"""

import fnmatch
import functools
import os
from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from protein.analysis.comparison import Comparison, Side, SweepResult, compare, side_labels
from protein.api import stores
from protein.columns import FIELDS, MAX_CURVE_POINTS, MAX_CURVES, OTHERS, TrialColumns
from protein.errors import UsageError
from protein.ports import Store
from protein.spelling import counted, nearest
from protein.types import Direction, SweepRecord, SweepSpec

if TYPE_CHECKING:
    import pandas


_INDEX = "number"  # of the trials, which no column may be called
_SCORES = ("score", "predicted_score", "predicted_score_low", "predicted_score_high")
_ORDER = (  # of the columns, behind the params
    "state",
    "end",
    "score",
    "cost_seconds",
    "run_seconds",
    "lost_seconds",
    "steps",
    "seed",
    "continued_seconds",
    "suggest_seconds",
    "predicted_cost_seconds",
    "predicted_cost_seconds_low",
    "predicted_cost_seconds_high",
    "predicted_score",
    "predicted_score_low",
    "predicted_score_high",
    "continues",
    "kind",
    "origin",
    "reason",
    "note",
    "owner",
    "tags",
    "excluded",
    "started_at",
    "finished_at",
    *OTHERS,
)


class LoadedSweep:
    """A stored sweep, read at one moment. Scores are as you know them: a sweep that minimises has its own sign.

    Attributes:
        name: of the sweep.
        spec: what defines it: environment, method, seed, space, config, direction, provenance.
        trials: a pandas data frame with one row a trial, by number. Each parameter is a column of its own name (with
            `params.` before it where another column has that name), each final metric `metrics.NAME`, and each time
            beside the cost `timings.NAME`. Other columns: `state`, `end`, `score`, `cost_seconds` (the trial's own
            seconds of training), `run_seconds` (those of its whole run, more where it continues a trial), `steps`,
            `kind`, `origin`, `reason`, `tags`, `note`, `excluded`, the predictions, `started_at` and `finished_at`.
    """

    def __init__(self, store_url: str, name: str | None) -> None:
        frames = _pandas()
        self._store_url = store_url
        with stores.opened(store_url) as store:
            sweep = stores.find(store, name)
            columns = store.columns(sweep.id)
        self._sweep = sweep
        self._ended = {number for number, end in zip(columns.number, columns.end, strict=True) if end is not None}
        self.name: str = sweep.spec.name
        self.spec: SweepSpec = sweep.spec
        self.trials: pandas.DataFrame = _frame(frames, columns, sweep.spec.direction)

    def __repr__(self) -> str:
        return f"LoadedSweep({self.name!r}, {counted(len(self.trials), 'trial')})"

    @functools.cached_property
    def curves(self) -> "pandas.DataFrame":
        """The learning curves as a pandas data frame: one row a point that has a score.

        Columns: `trial` (its number), `steps`, `elapsed_seconds` (of training) and `score`. A curve of more than
        20,000 points is thinned: of each stretch the lowest and the highest score are kept. They are read from the
        store when you first ask for them.
        """
        pandas = _pandas()
        import numpy

        numbers = [int(number) for number in self.trials.index]
        found: list[Any] = []
        with stores.opened(self._store_url) as store:
            for first in range(0, len(numbers), MAX_CURVES):
                part = store.curves(self._sweep.id, numbers[first : first + MAX_CURVES], MAX_CURVE_POINTS)
                found.extend(part.values())
        empty = numpy.empty(0)

        def joined(name: str, dtype: str) -> Any:
            return numpy.concatenate([empty.astype(dtype), *(getattr(curve, name) for curve in found)])

        return pandas.DataFrame(
            {
                "trial": numpy.repeat([curve.number for curve in found], [len(curve.value) for curve in found])
                if found
                else empty.astype("int64"),
                "steps": joined("steps", "int64"),
                "elapsed_seconds": joined("elapsed_seconds", "float64"),
                "score": _shown(joined("value", "float64"), self.spec.direction),
            }
        )

    @functools.cached_property
    def best(self) -> "pandas.Series[Any]":
        """The row of `trials` with the config that `protein best` recommends: the highest expected true score.

        Raises:
            UsageError: no trial was trained to its end.
        """
        from protein.api.answers import readable  # late: these load the engine's models
        from protein.api.recommended import recommendation

        with stores.opened(self._store_url) as store:
            known = readable(store, self._sweep)
        trials = [trial for trial in known.trials if trial.number in self._ended]  # others have ended since
        found = recommendation(self._sweep, trials, sample=known.sample)
        return self.trials.loc[found.best.trial.number]


def load(name: str | None = None, store: str | os.PathLike[str] | None = None) -> LoadedSweep:
    """Reads a stored sweep into pandas data frames.

    Args:
        name: of the sweep; None: the store's only one.
        store: where it is kept: a path or a URL. None: `$PROTEIN_STORE`, or `runs/protein.db`.

    Raises:
        UsageError: there is no such sweep, or several to choose from; or pandas is not installed.
        StoreError: there is no such store, or it cannot be read.
    """
    return LoadedSweep(stores.url(None if store is None else os.fspath(store)), name)


def _frame(pandas: Any, columns: TrialColumns, direction: Direction) -> Any:
    facts = {name: _shown_column(pandas, columns, name, direction) for name in _ORDER}
    if direction is Direction.MINIMIZE:
        low, high = facts["predicted_score_low"], facts["predicted_score_high"]
        facts["predicted_score_low"], facts["predicted_score_high"] = high, low
    facts |= {f"metrics.{name}": values for name, values in columns.metrics.items()}
    facts |= {f"timings.{name}": values for name, values in columns.timings.items()}
    names: dict[str, str] = {}
    for name in columns.params:
        column = name if name not in facts and name != _INDEX else f"params.{name}"
        while column != name and (column in columns.params or column in facts):
            column = f"params.{column}"
        names[name] = column
    params = {names[name]: values for name, values in columns.params.items()}
    index = pandas.Index(columns.number, name=_INDEX)
    return pandas.DataFrame({**params, **facts}, index=index)


def _shown_column(pandas: Any, columns: TrialColumns, name: str, direction: Direction) -> Any:
    values, kind = getattr(columns, name), FIELDS.get(name, float)
    if name in _SCORES:
        return _shown(values, direction)
    if name == "continues":
        continues = pandas.array(values, dtype="Int64")
        continues[values < 0] = pandas.NA
        return continues
    if kind is datetime:
        return pandas.to_datetime(values, unit="s", utc=True).round("us")
    if issubclass(kind, StrEnum):
        return pandas.Categorical([None if one is None else one.value for one in values])
    return pandas.array(list(values), dtype=object) if kind in (str, tuple) else values


def _shown(scores: Any, direction: Direction) -> Any:
    return (scores if direction is Direction.MAXIMIZE else -scores) + 0.0


def _pandas() -> Any:
    try:
        import pandas
    except ImportError as error:
        reason = " ".join(str(error).split())[:100]
        raise UsageError(
            f"protein.load needs pandas, which cannot be imported ({reason}); pip install 'protein-sweep[pandas]'"
        ) from error
    return pandas


def sides_of(
    sweeps: Sequence[SweepRecord], words: Sequence[str], *, each: bool = False
) -> dict[str, list[SweepRecord]]:
    """Returns the sweeps of each side, by its label, in the order given.

    Args:
        sweeps: all of the store.
        words: names of sweeps; or, where one of them has a `*` or a comma, a side each.
        each: whether every sweep is a side of its own.

    Raises:
        UsageError: a word fits no sweep, a sweep would be on two sides, or there is only one sweep.
    """
    known = {sweep.spec.name: sweep for sweep in sweeps}
    grouped = [_names(word, known) for word in words]
    names = [name for group in grouped for name in group]
    if twice := [name for i, name in enumerate(names) if name in names[:i]]:
        raise UsageError(f"sweep '{twice[0]}' is named twice; a sweep can be on one side only")
    if len(names) < 2:
        given = f"only '{names[0]}' was named" if names else "none was named"
        raise UsageError(f"a comparison needs two sweeps or more, and {given}; protein status lists them")
    if each:
        labels = names
    elif any(_is_side(word, known) for word in words):
        labels = [word for word, group in zip(words, grouped, strict=True) for _ in group]
    else:
        labels = side_labels([(name, known[name].spec.env) for name in names])
    found: dict[str, list[SweepRecord]] = {}
    for label, name in zip(labels, names, strict=True):
        found.setdefault(label, []).append(known[name])
    return found


def compared(
    store: Store, sides: dict[str, list[SweepRecord]], *, reference: str | None = None, environments: Sequence[str] = ()
) -> Comparison:
    """Reads the trials of all sides and compares them.

    Args:
        store: that holds the sweeps.
        sides: of `sides_of`.
        reference: label of the side that the others are compared with; None: the first.
        environments: to keep; empty: all that the sides have in common.

    Raises:
        UsageError: there is no such side or environment, or a sweep has no complete trial.
    """
    if reference is not None and reference not in sides:
        raise UsageError(f"the reference '{reference}' is none of the sides{nearest(reference, sides)}")
    order = sorted(sides, key=lambda label: label != reference) if reference else list(sides)
    return compare(
        [Side(label=label, sweeps=tuple(_result(store, sweep) for sweep in sides[label])) for label in order],
        environments=environments,
    )


def _result(store: Store, sweep: SweepRecord) -> SweepResult:
    trials = store.trials(sweep.id, curves=False)
    return SweepResult.of(sweep.spec.name, sweep.spec.env, trials, direction=sweep.spec.direction)


def _is_side(word: str, known: dict[str, SweepRecord]) -> bool:
    return word not in known and ("*" in word or "," in word)


def _names(word: str, known: dict[str, SweepRecord]) -> list[str]:
    if not _is_side(word, known):
        if word not in known:
            raise UsageError(f"there is no sweep '{word}'{nearest(word, known)}")
        return [word]
    found: list[str] = []
    for part in word.split(","):
        fitting = [name for name in known if fnmatch.fnmatchcase(name, part)] if part not in known else [part]
        if not fitting:
            raise UsageError(f"there is no sweep '{part}'{nearest(part, known)}")
        found += fitting
    return list(dict.fromkeys(found))
