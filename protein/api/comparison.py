"""Which sweeps `protein compare` and `protein.plots.compare` hold against each other, and what they find.

A side is one sweep, or several that are alike but for their seed and their environment. Names say which belong together
(`protein.analysis.comparison.side_labels`): "old-pong-1", "old-pong-2" and "old-maze-1" make up "old". Where that does
not fit, each argument can be a side: a pattern such as "old-*", or names between commas.
"""

import fnmatch
from collections.abc import Sequence

from protein.analysis.comparison import Comparison, Side, SweepResult, compare, side_labels
from protein.errors import UsageError
from protein.ports import Store
from protein.spelling import nearest
from protein.types import SweepRecord


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
