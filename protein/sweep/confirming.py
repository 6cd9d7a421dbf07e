"""Runs the contenders of a sweep again: after its search, on a share of the budget, or at once, beside the budget.

A confirmation is a trial of kind `SuggestionKind.REEVALUATION`: a config that was trained to its end before, from its
first step on, with a seed of its own. One runs at a time, chosen by `protein.engine.confirmation`.

To the models it is one more measurement of its config. Nothing else of the search counts it: not the number of trials,
nor the budget, nor the outlook and the condition on it, nor how good predictions were. Where a share of the budget is
given, the search may spend the rest, and confirmations that were made before count against the share.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence

from protein.engine.confirmation import MARGIN, Question, question
from protein.space import Space
from protein.spelling import counted
from protein.types import (
    Budget,
    Measurement,
    Observation,
    Params,
    Suggestion,
    SuggestionKind,
    SweepSpec,
    TrialRecord,
    TrialState,
    spent_seconds,
)
from protein.units import format_at_least, format_probability

AT_LIMIT = "stopped at the limit of what confirming may cost"  # the reason of a run that was cut there
_DEFAULT_SHARE = 0.1  # of what the search has cost


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Confirm:
    """What to confirm, and what that may cost.

    Attributes:
        share: of the budget, after the search; None: at once, instead of a search.
        seconds: without a share: what the runs may cost, from now on; None: a tenth of what the search has cost, and
            at least two runs of the most expensive contender.
        num: how many contenders are in question; None: those with a chance.
        under_seconds: contenders are expected to cost at most this.
    """

    share: float | None = None
    seconds: float | None = None
    num: int | None = None
    under_seconds: float = math.inf

    def search_seconds(self, budget_seconds: float | None) -> float | None:
        """Returns what of a budget is left for the search."""
        return budget_seconds if budget_seconds is None else budget_seconds * (1.0 - (self.share or 0.0))

    def limit(
        self, budget_seconds: float | None, records: Mapping[int, TrialRecord], found: Question | None
    ) -> float | None:
        """Returns what all confirmations may have cost at the end, those of earlier times included; None: no limit."""
        searched = spent_seconds(one for one in records.values() if not one.confirms)
        if self.share is not None:
            return None if budget_seconds is None else min(self.share * budget_seconds, budget_seconds - searched)
        seconds = self.seconds
        if seconds is None:
            longest = 0.0 if found is None else float(found.posterior.costs.max())
            seconds = max(_DEFAULT_SHARE * searched, 2.0 * MARGIN * longest)
        return seconds + spent_seconds(one for one in records.values() if one.confirms)


class Confirmer:
    """The designer of confirmations (`protein.ports.Designer`). It keeps what was last in question, for words alone."""

    def __init__(self, spec: SweepSpec, confirm: Confirm) -> None:
        self._space, self._limits, self._confirm = Space.from_dict(spec.space), spec.limits, confirm
        self._asked: tuple[Sequence[Observation], float] | None = None
        self.question: Question | None = None
        self.expected_seconds = 0.0  # what further runs are expected to cost

    def ask(self, history: Sequence[Observation], seconds: float) -> Question | None:
        """Returns what is in question after these trials, when further runs may cost `seconds`."""
        if self._asked == (history, seconds):
            return self.question
        if self._asked is None or self._asked[0] != history:
            confirm = self._confirm
            self.question = question(
                self._space, history, num=confirm.num, under_seconds=confirm.under_seconds, limits=self._limits
            )
        self._asked = history, seconds
        if (found := self.question) is not None:
            following = None if found.settled else found.posterior.next(seconds)
            self.question = dataclasses.replace(found, next=following)
            self.expected_seconds = found.posterior.expected_seconds(seconds)
        return self.question

    def suggest(
        self, history: Sequence[Observation], running: Sequence[Params], budget: Budget, seed: int
    ) -> Suggestion | None:
        """Returns the next run, or None where it is settled, or no run fits the budget."""
        found = self.ask(history, budget.next_trial_seconds)
        if found is None or found.next is None:
            return None
        contender, number = found.contenders[found.next], found.numbers[found.next]
        cost = _about(float(found.posterior.costs[found.next]))
        return Suggestion(
            params=contender.params,
            kind=SuggestionKind.REEVALUATION,
            origin=f"confirmation: run {contender.runs + 1} of trial {number}'s config, about {cost}",
        )

    def should_stop(
        self, history: Sequence[Observation], params: Params, curve: Sequence[Measurement], seed: int
    ) -> str | None:
        """Returns None: only whole runs confirm anything."""
        return None

    def price(self) -> str | None:
        """Returns in one line what is in question, and what further runs are expected to cost; None: none is run."""
        found = self.question
        if found is None or found.next is None or self._asked is None:
            return None
        others = [f"{number}" for number in found.numbers[1:]]
        listed = f"trial{'s' if len(others) > 1 else ''} {', '.join(others)}"
        _, seconds = self._asked
        limit = "" if math.isinf(seconds) else f", at most {_about(seconds)}"
        sure = format_probability(found.sure)
        return (
            f"trial {found.numbers[0]} is the best of {len(found.contenders)} contenders with {sure}"
            f" (the others: {listed}); confirming takes about {_about(self.expected_seconds)} of"
            f" training{limit}"
        )

    def verdict(self, num_runs: int, seconds: float) -> str:
        """Returns in words what is known after `num_runs` runs that took `seconds`."""
        found = self.question
        if found is None:
            return "nothing is confirmed: no config was trained to its end, or too little is known of them"
        leader, sure = f"trial {found.numbers[0]}", format_probability(found.sure)
        if len(found.contenders) == 1:
            said = f"no other config has a chance to be better than {leader}"
        elif len(found.contenders) == 2:
            said = f"{leader} is better than trial {found.numbers[1]} with {sure}"
        else:
            said = f"{leader} is the best of {len(found.contenders)} contenders with {sure}"
        spent = f", {counted(num_runs, 'run')} in {_about(seconds)}" if num_runs else ""
        if found.settled:
            within = f" (differences below {found.indifference:.2g} do not count)" if len(found.contenders) > 1 else ""
            return f"confirmed: {said}{within}{spent}"
        able = found.posterior.costs[found.posterior.left > 0]
        why = "; none of them is run more often"
        if len(able):
            why = f"; one more run takes about {_about(float(able.min()))}"
        return f"not settled: {said}{spent}{why}"


def _about(seconds: float) -> str:
    """Returns a duration that is not known to the millisecond."""
    return format_at_least(float(f"{seconds:.2g}") if seconds < 10.0 else seconds)


def has_contender(records: Mapping[int, TrialRecord]) -> bool:
    """Whether there is anything to confirm."""
    return any(one.state is TrialState.COMPLETE and not one.excluded for one in records.values())
