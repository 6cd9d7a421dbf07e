"""What a sweep begins from: a snapshot of another sweep of its store, taken once, when it is created."""

from collections.abc import Mapping
from typing import Any

from protein.api import stores
from protein.config.layers import flatten
from protein.errors import UsageError
from protein.ports import Store
from protein.space import Space
from protein.sweep import source as prior


def of_sweep(store: Store, name: str, wanted: str | None, space: Space) -> Mapping[str, Any]:
    """Returns the stored snapshot of a sweep that exists, else one of the sweep `wanted`; none, empty.

    Args:
        store: holds both sweeps.
        name: of the sweep that begins or goes on.
        wanted: name of the sweep to begin from; None: none, or as it was.
        space: that is searched.

    Raises:
        UsageError: the sweep began from another one; `wanted` is itself, is not there, or has no score.
    """
    stored = store.find_sweep(name)
    if stored is not None:
        held = stored.spec.warm_start.get("sweep")
        if wanted not in (None, held):
            raise UsageError(
                f"sweep '{name}' exists with the prior {held or 'none'} (now {wanted}); choose another name, or leave"
                " it as it was"
            )
        return stored.spec.warm_start
    if wanted is None:
        return {}
    if wanted == name:
        raise UsageError(f"the prior '{wanted}' is the new sweep's own name; choose another name")
    former = stores.find(store, wanted)
    return prior.snapshot(wanted, store.trials(former.id), space=space, fixed=flatten(former.spec.config))
