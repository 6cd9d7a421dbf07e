"""A sweep's warm start: a snapshot of other sweeps of its store, taken once, when the new sweep is created."""

from collections.abc import Mapping, Sequence
from typing import Any

from protein.api import stores
from protein.config.layers import flatten
from protein.engine.warm_start import MAX_SNAPSHOT_TRIALS, num_usable_configs, snapshot_of, source_names
from protein.errors import UsageError
from protein.ports import Store
from protein.run.job import runs_trainer
from protein.space import Space
from protein.trainer.kinds import kind_of
from protein.types import Params, SweepRecord, SweepSpec

ALL = "all"
MAX_SOURCES = 10  # of one warm start: each makes every suggestion take a little longer
_MIN_CONFIGS = 2  # in the new space; sweeps with fewer are left out of "all"

Asked = str | list[str]  # `ALL`, or names of sweeps


def asked(wanted: str | Sequence[str]) -> Asked:
    """Returns what is asked for: `ALL`, or names of sweeps, each once and in order.

    The word "all" alone means every sweep. In a list, or before a comma, it is a sweep's name.

    Raises:
        UsageError: it names no sweep, or more than `MAX_SOURCES`.
    """
    if wanted == ALL:
        return ALL
    listed = wanted.split(",") if isinstance(wanted, str) else wanted
    if not isinstance(listed, Sequence) or not all(isinstance(name, str) for name in listed):
        raise UsageError(f"warm_start must be a sweep's name, a list of names or 'all', got {wanted!r}")
    names = sorted({name.strip() for name in listed} - {""})
    if not 1 <= len(names) <= MAX_SOURCES:
        raise UsageError(f"a warm start takes 1 to {MAX_SOURCES} sweeps, got {len(names)}; name others, or 'all'")
    return names


def snapshot(
    store: Store, spec: SweepSpec, wanted: str | Sequence[str] | None, start: Params | None
) -> Mapping[str, Any]:
    """Returns the snapshot of the source sweeps: the stored one if the sweep exists, else a new one.

    The sources are ordered: those of the same environment first, then those with the most configs in this space. Of
    "all", the first `MAX_SOURCES` are taken.

    Args:
        store: holds all of them.
        spec: of the sweep that is created or resumed; its warm start does not count.
        wanted: see `asked`; None: no warm start, or the one that the stored sweep had.
        start: values of parameters that a source sweep lacks.

    Returns:
        The snapshot (see `protein.engine.warm_start`), empty without a warm start.

    Raises:
        UsageError: the stored sweep had another warm start; or a source sweep is the sweep itself, is not in the store,
            is of another kind of training, or has no score in this space; or of "all" none has two.
    """
    now = None if wanted is None else asked(wanted)
    stored = store.find_sweep(spec.name)
    if stored is not None:
        _check_unchanged(spec.name, stored.spec.warm_start, now)
        return stored.spec.warm_start
    if now is None:
        return {}
    space = Space.from_dict(spec.space)
    found: list[tuple[tuple[bool, int, str], SweepRecord]] = []
    for source in _sources(store, spec.name, now):
        if _other_kind(source.spec, spec):
            if now == ALL:
                continue
            raise UsageError(
                f"the source sweep '{source.spec.name}' trained {source.spec.env}, and this one trains {spec.env}:"
                " nothing is learned between an agent and a language model; start warm from other sweeps"
            )
        taken = _taken(store, source, space)
        configs = num_usable_configs(taken, space, start)
        if now != ALL and not configs:
            raise UsageError(
                f"no trial of the source sweep '{source.spec.name}' has a score and lies in this space; start warm from"
                " other sweeps, or drop the warm start"
            )
        if now != ALL or configs >= _MIN_CONFIGS:
            found.append(((source.spec.env != spec.env, -configs, source.spec.name), source))
    if not found:
        raise UsageError(
            f"no other sweep of the store has {_MIN_CONFIGS} scores in this space; drop the warm start, or name a sweep"
        )
    best = [source for _, source in sorted(found, key=lambda one: one[0])[:MAX_SOURCES]]
    share = MAX_SNAPSHOT_TRIALS // len(best)
    return {"asked": now, "sources": [_taken(store, source, space, share) for source in best]}


def _other_kind(one: SweepSpec, other: SweepSpec) -> bool:
    """Whether one sweep trains agents and the other language models: settings of the same name mean other things."""
    if not (runs_trainer(one.config) and runs_trainer(other.config)):
        return False
    return kind_of(one.config) is not kind_of(other.config)


def _check_unchanged(name: str, held: Mapping[str, Any], now: Asked | None) -> None:
    """Raises `UsageError` where the stored sweep `name` began from another warm start than it is given now."""
    names = source_names(held)
    if now is None or (held and now in (sorted(names), held.get("asked"))):
        return
    given = now if isinstance(now, str) else ",".join(now)
    if held:
        before = held.get("asked", names)
        differs = f"exists with a warm start from {_quoted(before)} (now {_quoted(now)})"
    else:
        differs = f"was started without a warm start; now --warm-start {given} is given"
    raise UsageError(f"sweep '{name}' {differs}; choose another name, or leave it as it was")


def _sources(store: Store, name: str, now: Asked) -> list[SweepRecord]:
    """Returns the source sweeps that are asked for, without the sweep `name` itself."""
    if now == ALL:
        return [sweep for sweep in store.list_sweeps() if sweep.spec.name != name]
    if name in now:
        raise UsageError(f"sweep '{name}' cannot start warm from itself; choose another name")
    return [stores.find(store, source) for source in now]


def _taken(store: Store, source: SweepRecord, space: Space, most: int = MAX_SNAPSHOT_TRIALS) -> Mapping[str, Any]:
    trials = store.trials(source.id, curves=False)
    # Those of a command or a function stand in its space alone.
    fixed = {**source.spec.space.get("fixed", {}), **flatten(source.spec.config)}
    return snapshot_of(source.spec.name, trials, space=space, fixed=fixed, most=most)


def _quoted(now: Asked) -> str:
    return ", ".join(f"'{name}'" for name in ([now] if isinstance(now, str) else now))
