"""A sweep's warm start: a snapshot of another sweep of its store, taken once, when the new sweep is created."""

from collections.abc import Mapping
from typing import Any

from protein.api import stores
from protein.config.layers import flatten
from protein.errors import UsageError
from protein.ports import Store
from protein.space import Space
from protein.sweep import source_snapshot


def snapshot(store: Store, name: str, wanted: str | None, space: Space) -> Mapping[str, Any]:
    """Returns the snapshot of the source sweep: the stored one if the sweep exists, else a new one.

    Args:
        store: holds both sweeps.
        name: of the sweep that is created or resumed.
        wanted: name of the source sweep; None: no warm start, or the one that the stored sweep had.
        space: that is searched.

    Returns:
        The snapshot (see `protein.sweep.source_snapshot`), empty without a warm start.

    Raises:
        UsageError: the stored sweep had another source sweep; or `wanted` is the sweep itself, is not in the store, or
            has no score.
    """
    stored = store.find_sweep(name)
    if stored is not None:
        held = stored.spec.warm_start.get("sweep")
        if wanted not in (None, held):
            differs = (
                f"exists with a warm start from '{held}' (now '{wanted}')"
                if held
                else f"was started without a warm start; now --warm-start {wanted} is given"
            )
            raise UsageError(f"sweep '{name}' {differs}; choose another name, or leave it as it was")
        return stored.spec.warm_start
    if wanted is None:
        return {}
    if wanted == name:
        raise UsageError(f"sweep '{wanted}' cannot start warm from itself; choose another name")
    found = stores.find(store, wanted)
    return source_snapshot.snapshot(wanted, store.trials(found.id), space=space, fixed=flatten(found.spec.config))
