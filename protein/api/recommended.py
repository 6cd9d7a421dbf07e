"""What a sweep recommends: the trials behind `protein best`, `protein train --from` and a sweep's last words."""

import dataclasses
import math
from collections.abc import Sequence

from protein.direction import shown_contender, shown_trial, stored_score
from protein.engine import recommend
from protein.engine.recommend import Contender
from protein.errors import UsageError
from protein.space import Space
from protein.types import Direction, SweepRecord, TrialRecord
from protein.units import format_duration, parse_duration
from protein.view import text


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One answer: `name` says to what, `trials` are the runs of the config, oldest first; scores as they are shown."""

    name: str
    contender: Contender
    trials: tuple[TrialRecord, ...]

    @property
    def trial(self) -> TrialRecord:
        """The first run: a later one differs in its seed alone."""
        return self.trials[0]

    def phrase(self) -> str:
        """Returns what is expected of it, as in "score 18.20 (17.60 to 18.90) in 41.0s"."""
        cost = text.seconds(self.contender.expected_cost_seconds)
        return f"score {text.estimate(self.contender.score)} in {cost}"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """The answers of a sweep. `under` is None where no limit was asked for."""

    best: Choice
    under: Choice | None
    knee: Choice
    lucky: Choice | None  # what measured better than the chosen one, under the same limit
    direction: Direction  # of the scores as they are shown (see `protein.direction`)

    @property
    def chosen(self) -> Choice:
        """What was asked for: the best under the limit, or at all."""
        return self.under or self.best

    def luck(self) -> str | None:
        """Says why the best measured score is not what is recommended, where that is so."""
        if self.lucky is None:
            return None
        lucky = self.lucky.contender
        luckiest = max(lucky.measured, key=lambda score: stored_score(score, self.direction))
        number = self.lucky.trials[lucky.measured.index(luckiest)].number
        side = "higher" if self.direction is Direction.MAXIMIZE else "lower"
        line = f"trial {number} measured {side} ({text.score(luckiest)}), "
        if lucky.score.value == self.chosen.contender.score.value:  # of equal ones the cheapest is recommended
            return f"{line}but no more is expected of it than of trial {self.chosen.trial.number}, which costs less"
        return f"{line}which looks like luck: {text.score(lucky.score.value)} is expected of it"


def recommendation(sweep: SweepRecord, trials: Sequence[TrialRecord], under: str | None = None) -> Recommendation:
    """Returns what a sweep's trials recommend.

    Raises:
        UsageError: no trial was trained to its end, none is expected to cost `under` or less, or that is no duration.
    """
    direction = sweep.spec.direction
    limit = None if under is None else parse_duration(under, "--under")
    finished = [trial for trial in trials if trial.state.finished]
    space = Space.from_dict(sweep.spec.space)
    contenders = recommend.contenders(space, [trial.observation() for trial in finished])
    best, knee = recommend.best(contenders), recommend.knee(contenders)
    if best is None or knee is None:
        raise UsageError(f"sweep '{sweep.spec.name}' has no complete trial yet; give it more time with protein sweep")

    def choice(name: str, contender: Contender) -> Choice:
        runs = tuple(shown_trial(finished[position], direction) for position in contender.trials)
        return Choice(name=name, contender=shown_contender(contender, direction), trials=runs)

    affordable = None
    if limit is not None:
        found = recommend.best(contenders, limit)
        if found is None:
            cheapest = min(contender.expected_cost_seconds for contender in contenders)
            raise UsageError(
                f"no trial of sweep '{sweep.spec.name}' cost {under} or less; the cheapest took"
                f" {text.seconds(cheapest)}, so give --under {duration_above(cheapest)} or more"
            )
        affordable = choice(f"best under {under}", found)
    allowed = [c for c in contenders if limit is None or c.expected_cost_seconds <= limit]
    highest = max(allowed, key=lambda contender: max(contender.measured))
    chosen = best if affordable is None else affordable.contender
    return Recommendation(
        best=choice("best at all", best),
        under=affordable,
        knee=choice("knee", knee),
        lucky=choice("best measured", highest) if max(highest.measured) > max(chosen.measured) else None,
        direction=direction,
    )


def duration_above(seconds: float) -> str:
    """Returns a duration that a flag takes, at least `seconds` and hardly more."""
    return format_duration(math.ceil(seconds) if seconds >= 10 else math.ceil(seconds * 100) / 100)
