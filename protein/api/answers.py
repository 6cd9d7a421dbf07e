"""What the engine's models say of a stored sweep: what is recommended, range ends, the outlook.

Fitting takes about a second, however large the sweep is. Reading a very large sweep takes as long again. So the answers
about one are kept in a file (`protein.api.kept_answers`), and computed again when a trial has finished.
"""

import contextlib
import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from protein.analysis.range_ends import RangeEnd
from protein.api import kept_answers, stores
from protein.api.reading import Readable, readable
from protein.api.recommended import Recommendation, initial_params, recommendation, stored_space
from protein.columns import DOT_FIELDS, TrialColumns
from protein.engine import results
from protein.engine.results import Contender, Outlook
from protein.engine.sample import MAX_WHOLE
from protein.errors import ProteinError, UsageError
from protein.ports import Store
from protein.space import Space
from protein.types import Observation, SweepRecord, TrialRecord

if TYPE_CHECKING:
    from protein.engine.recommend import Learnt

# The modules of the models are loaded late: answers that are kept need none of them.


def at_the_end(sweep: SweepRecord, trials: Sequence[TrialRecord], store: str | None) -> Recommendation:
    """Returns what a sweep recommends that has just ended, as `protein.api.recommended.recommendation` does.

    Of a very large sweep all answers are computed now and kept, so that the first command that asks finds them.

    Args:
        sweep: as it is stored.
        trials: all of its trials, as they are stored.
        store: the URL or path of the store that holds it.

    Raises:
        UsageError: no trial was trained to its end.
    """
    if len(trials) > MAX_WHOLE:
        with contextlib.suppress(ProteinError), stores.opened(store) as opened:  # without the store, from the records
            answers = Answers(opened, sweep)
            found = answers.recommendation()
            answers.range_ends()
            answers.outlook()
            return found
    return recommendation(sweep, trials)


class Answers:
    """The answers about one sweep, each computed when it is first asked for.

    Attributes:
        were_kept: whether answers were found in a file that still hold.
    """

    def __init__(self, store: Store, sweep: SweepRecord, *, most: int = MAX_WHOLE) -> None:
        """Of a sweep with more than `most` trials, a sample is read, and the answers are kept."""
        self._store, self._sweep, self._most = store, sweep, most
        self._kept = kept_answers.find(store, sweep)
        self.were_kept = self._kept is not None

    @functools.cached_property
    def columns(self) -> TrialColumns:
        """All trials of the sweep, in those columns that `protein.columns.DOT_FIELDS` names, at least."""
        if self._kept is None:
            return self._known.columns
        return self._store.columns(self._sweep.id, fields=DOT_FIELDS)

    @property
    def is_large(self) -> bool:
        """Whether answers about the sweep are kept: it has more trials than are read whole."""
        return self._kept is not None or self._known.sample is not None

    def recommendation(self, under: str | None = None) -> Recommendation:
        """Returns what `protein.api.recommended.recommendation` does, and raises what it raises."""
        if self._kept is not None and self._kept.contenders is not None:
            return recommendation(self._sweep, self._kept.trials, under, contenders=self._kept.contenders)
        known = self._known
        return recommendation(self._sweep, known.trials, under, known.sample, contenders=self._contenders)

    def range_ends(self) -> Sequence[RangeEnd]:
        """Returns the parameters whose best values lie on the end of their range, most certain first.

        There are none where too little is known (see `protein.analysis.range_ends`).
        """
        if self._kept is not None and self._kept.range_ends is not None:
            return self._kept.range_ends
        return self._range_ends

    def outlook(self) -> Outlook | None:
        """Returns what `protein.api.outlook.sweep_outlook` does."""
        if self._kept is not None and self._kept.has_outlook:
            return self._kept.outlook
        return self._outlook

    @functools.cached_property
    def _known(self) -> Readable:
        return readable(self._store, self._sweep, most=self._most)

    @functools.cached_property
    def _finished(self) -> list[Observation]:
        return [trial.observation() for trial in self._known.trials if trial.state.finished]

    @functools.cached_property
    def _space(self) -> Space:
        return stored_space(self._sweep.spec)

    @functools.cached_property
    def _learnt(self) -> "Learnt | None":
        from protein.engine import recommend

        return recommend.learn(self._space, self._finished, self._known.sample, initial_params(self._sweep.spec))

    @functools.cached_property
    def _contenders(self) -> Sequence[Contender]:
        from protein.engine import recommend

        if self._learnt is None:
            return recommend.contenders(
                self._space, self._finished, self._known.sample, start=initial_params(self._sweep.spec)
            )
        self._keep(contenders=self._learnt.contenders)
        return self._learnt.contenders

    @functools.cached_property
    def _range_ends(self) -> Sequence[RangeEnd]:
        from protein.analysis.range_ends import range_ends

        try:
            found = [] if self._learnt is None else range_ends(self._space, [], model=self._learnt)
        except UsageError:  # the space cannot be read, and nothing can be said
            return []
        self._keep(range_ends=found)
        return found

    @functools.cached_property
    def _outlook(self) -> Outlook | None:
        from protein.api.outlook import highest_score, sweep_outlook

        found = sweep_outlook(self._sweep, self._known.trials, self._known.sample)
        # The room of the score that is recommended. Of a very large sweep that would take a second model.
        if found is not None and math.isfinite(found.room) and self._known.sample is None:
            recommended = results.best(self._contenders)
            if recommended is not None:
                room = highest_score(self._sweep) - recommended.score.value
                found = dataclasses.replace(found, room=max(room, 0.0))
        self._keep(outlook=[found])
        return found

    def _keep(self, **found: Any) -> None:
        """Keeps answers about a very large sweep, beside those that are kept already; see `kept_answers.keep`."""
        if self._known.sample is not None:
            kept_answers.keep(self._store, self._sweep, self._known, **found)
