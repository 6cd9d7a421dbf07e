"""What backends do with their events."""

import dataclasses
import itertools
from collections.abc import Iterable

from protein.ports import Finished, TrialProgress


def joined(events: Iterable[TrialProgress | Finished]) -> list[TrialProgress | Finished]:
    """Returns the events with neighbouring reports of one trial joined into one: each is a transaction of the store."""
    found: list[TrialProgress | Finished] = []
    for (_, is_report), group in itertools.groupby(events, lambda one: (one.trial.id, isinstance(one, TrialProgress))):
        if not is_report:
            found.extend(group)
            continue
        reports = [one for one in group if isinstance(one, TrialProgress)]
        costs = [one.cost_seconds for one in reports if one.cost_seconds is not None]
        points = tuple(itertools.chain.from_iterable(one.measurements for one in reports))
        cost = costs[-1] if costs else None
        found.append(dataclasses.replace(reports[-1], measurements=points, cost_seconds=cost))
    return found
