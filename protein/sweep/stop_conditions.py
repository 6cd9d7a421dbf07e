"""The user's conditions that end a sweep early: `score >= 20`, `gain < 0.5 per hour`, and a time of the clock.

**A trial.** The condition is a filter over trials (`protein.analysis.filters`), and holds once a finished trial meets
it. So a sweep that is resumed with the same condition ends at once.

**The gain.** The condition holds when the best score is expected to rise by less than that over further training (see
`protein.engine.outlook`). It is asked after finished trials, from the stored trials alone. So a sweep that is resumed
with the same condition, where that still holds, ends before it starts a trial. Without the condition, or with a lower
gain, it goes on.

**The time.** All trials are to have ended by then. So no trial starts that is not expected to end before it.
"""

import contextlib
import dataclasses
import math
import re
import statistics
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

import numpy as np

from protein.analysis.columns import Column, Kind, Mask, column_of
from protein.analysis.filters import KEYWORDS, FilterError, Shown, UnknownValueError, matching, token_at
from protein.columns import cell
from protein.direction import shown_score
from protein.engine.pareto import MIN_COST_SECONDS
from protein.engine.results import Outlook
from protein.errors import UsageError
from protein.space import Categorical, Parameter, Space
from protein.spelling import is_slip, nearest
from protein.types import Budget, Direction, Limit, Observation, TrialEnd, TrialRecord, TrialState
from protein.units import format_duration, parse_duration

_CONDITION = re.compile(r"gain\s*<\s*(?P<gain>\S+)\s+per\s+(?P<span>\S+)", re.IGNORECASE)
_SPANS = {"second": "1s", "minute": "1m", "hour": "1h", "day": "1d"}
_GAIN = re.compile(r"\s*gain\b", re.IGNORECASE)
_FORM = "write it like 'gain < 0.5 per hour', 'gain < 2 per 10m' or 'score >= 20'"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class StopWhen:
    """Ends a sweep when the best score is expected to rise by less than `gain` (score units) in `seconds`."""

    gain: float
    seconds: float
    highest: float = math.inf  # possible score, as it is stored

    def __str__(self) -> str:
        return f"gain < {self.gain:g} per {format_duration(self.seconds)}"

    @classmethod
    def parse(cls, text: object, what: str, *, method: str, highest: float = math.inf) -> "StopWhen":
        """Reads a condition such as `gain < 0.5 per hour`.

        Args:
            text: the condition; a duration may stand in place of second, minute, hour and day.
            what: the flag or keyword that it was given to, to begin an error with.
            method: of the sweep; the outlook is that of method "protein".
            highest: the highest possible score; infinite where it is not known.

        Raises:
            UsageError: it cannot be read, its gain is not above 0, or the sweep has another method.
        """
        if method != "protein":
            raise UsageError(f"{what} needs method 'protein', and the method is '{method}'; drop one of the two")
        match = _CONDITION.fullmatch(text.strip()) if isinstance(text, str) else None
        if match is None:
            raise UsageError(f"{what} '{text}' is not a condition; {_FORM}")
        try:
            gain = float(match["gain"])
        except ValueError as error:
            raise UsageError(f"{what} '{text}': the gain '{match['gain']}' is not a number; {_FORM}") from error
        if not (math.isfinite(gain) and gain > 0):
            raise UsageError(f"{what} '{text}': the gain {match['gain']} must be above 0 and finite; {_FORM}")
        span = match["span"].lower()
        seconds = parse_duration(_SPANS.get(span, span), f"{what} '{text}': the time")
        return cls(gain=gain, seconds=seconds, highest=highest)

    def holds(self, found: Outlook) -> bool:
        """Whether less than `gain` is expected."""
        return found.best(self.seconds).expected < self.gain

    def reason(self, space: Space, history: Sequence[Observation], limits: Sequence[Limit] = ()) -> str | None:
        """Returns why the sweep should end now, or None where it should go on, or too little is known.

        Args:
            space: what is searched.
            history: the finished trials; scores are to be maximised.
            limits: on what trials measure beside the score. What breaks one is no gain.
        """
        from protein.engine.outlook import outlook, without_broken  # late: a condition is read without models

        history = without_broken(history, limits)
        try:
            found = outlook(space, history, self.highest)
        except (ValueError, ArithmeticError, np.linalg.LinAlgError):  # the search goes on without models, too
            return None
        if found is None or not self.holds(found):
            return None
        scores = {one.score for one in history if one.state is TrialState.COMPLETE and not one.excluded}
        if len(scores) == 1 and self.highest not in scores:  # as of a task whose short runs earn nothing
            return None
        expected = found.best(self.seconds).expected
        return (
            f"the expected gain of {expected:.2g} per {format_duration(self.seconds)} is below {self.gain:g};"
            " resume without this condition, or with a lower gain, to go on"
        )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Met:
    """Ends a sweep when a finished trial meets a filter.

    Names are those of a trial's row: `score` (of complete trials, as the user knows it), `cost` (of its whole run, in
    seconds), `steps`, `number`, `state`, `end`; `trials`, how many have finished; parameters; and any other name is
    that of a metric.
    """

    text: str
    what: str  # the flag or keyword that it was given to
    direction: Direction
    parameters: tuple[Parameter, ...]
    metrics: tuple[str, ...]  # without the parameters, the names in the text that are no fields

    @classmethod
    def parse(cls, text: str, what: str, *, direction: Direction, parameters: Sequence[Parameter]) -> "Met":
        """Reads a condition such as `score >= 20 and memory_gb < 8`.

        Raises:
            UsageError: it cannot be read, compares what cannot be compared, or has a name that is a slip of another.
        """
        made = cls(text=text.strip(), what=what, direction=direction, parameters=tuple(parameters), metrics=())
        params = [one.name for one in made.parameters]
        begins = f"{what} '{text:.100}'"
        while True:  # a name that is not known is that of a metric, where the filter is one with it
            try:
                made._met([])
                return made
            except UnknownValueError as error:
                raise UsageError(f"{begins}: {error}") from error
            except FilterError as error:
                word = made._word_at(error.position)
                name = word.removeprefix("metrics.")
                if not name or name in (*_FIELDS, *params, *made.metrics):
                    raise UsageError(f"{begins}: {error}") from error
                slips = [one for one in (*_FIELDS, *params) if is_slip(name, one)]
                if slips and name == word:
                    raise UsageError(
                        f"{begins}: nothing is called '{word}'{nearest(name, slips)} A metric of this name is"
                        f" metrics.{word}"
                    ) from error
                made = dataclasses.replace(made, metrics=(*made.metrics, name))

    def _word_at(self, position: int) -> str:
        """Returns the name that begins at a position; "": none does."""
        with contextlib.suppress(FilterError):
            one = token_at(self.text, position)
            if one.position == position and one.kind in ("word", "name") and one.value not in KEYWORDS:
                return str(one.value)
        return ""

    def reason(self, trials: Sequence[TrialRecord]) -> str | None:
        """Returns which trial meets it, in words; None: none does."""
        finished = [one for one in trials if one.state.finished and not one.excluded]
        met = np.flatnonzero(self._met(finished))
        if not len(met):
            return None
        trial = finished[int(met[0])]
        score = shown_score(_own_score(trial), self.direction)
        shown = "" if score is None else f" with score {score:.6g}"
        return f"trial {trial.number}{shown} meets {self.what} '{self.text}'; resume without this condition to go on"

    def unreported(self, trial: TrialRecord) -> str:
        """Returns a line on the metrics that a complete trial lacks; "": it lacks none."""
        lacking = [name for name in self.metrics if name not in _metrics(trial)]
        if trial.state is not TrialState.COMPLETE or not lacking:
            return ""
        known = ", ".join(_metrics(trial)) or "none"
        return (
            f"trial {trial.number} has not reported {', '.join(lacking)}, which {self.what} asks for; reported: {known}"
        )

    def _met(self, finished: Sequence[TrialRecord]) -> Mask:
        columns = self._columns(finished, len(finished))
        return matching(self.text, columns, len(finished), Shown(words={"state": columns["end"]}))

    def _columns(self, finished: Sequence[TrialRecord], num_rows: int) -> dict[str, Column]:
        scores = [shown_score(_own_score(one), self.direction) for one in finished]
        found = {
            "score": column_of(scores, Kind.NUMBER),
            "cost": column_of([one.run_seconds for one in finished], Kind.NUMBER),
            "cost_seconds": column_of([one.cost_seconds for one in finished], Kind.NUMBER),
            "steps": column_of([one.steps for one in finished], Kind.INTEGER),
            "number": column_of([one.number for one in finished], Kind.INTEGER),
            "trials": column_of([num_rows] * num_rows, Kind.INTEGER),
            "state": column_of([str(one.state) for one in finished], Kind.TEXT, known=map(str, TrialState)),
            "end": column_of([str(one.end) for one in finished], Kind.TEXT, known=map(str, TrialEnd)),
        }
        for parameter in self.parameters:
            found[f"params.{parameter.name}"] = _values_of(parameter, finished)
        for name in self.metrics:
            found[f"metrics.{name}"] = column_of([_metrics(one).get(name) for one in finished], Kind.NUMBER)
        return found


_FIELDS = ("score", "cost", "cost_seconds", "steps", "number", "trials", "state", "end")  # the columns of `Met`


def parse_stop_when(
    text: object,
    what: str,
    *,
    method: str,
    direction: Direction,
    parameters: Sequence[Parameter],
    highest: float = math.inf,
) -> "StopWhen | Met":
    """Reads a condition that ends a sweep: on the gain to be expected, or on a finished trial.

    Args:
        text: the condition.
        what: the flag or keyword that it was given to, to begin an error with.
        method: of the sweep; the gain is that of method "protein".
        direction: of the scores as the user knows them.
        parameters: those of the space.
        highest: the highest possible score; infinite where it is not known.

    Raises:
        UsageError: it cannot be read.
    """
    if not isinstance(text, str) or not text.strip() or _GAIN.match(text):
        return StopWhen.parse(text, what, method=method, highest=highest)
    return Met.parse(text, what, direction=direction, parameters=parameters)


def _values_of(parameter: Parameter, trials: Sequence[TrialRecord]) -> Column:
    """Returns a parameter's column. It knows all choices, also those that no trial has had yet."""
    choices = [cell(one) for one in parameter.choices] if isinstance(parameter, Categorical) else []
    name = parameter.name
    return column_of((cell(one.params[name]) if name in one.params else None for one in trials), known=choices)


def _own_score(trial: TrialRecord) -> float | None:
    """Returns the score that counts: what a trial had that was cut short is not its score."""
    return trial.score if trial.state is TrialState.COMPLETE else None


def _metrics(trial: TrialRecord) -> Mapping[str, float]:
    """Returns a trial's metrics: the final ones, and else those of its last point."""
    return {**(trial.curve[-1].metrics if trial.curve else {}), **trial.metrics}


def parse_moment(text: str, flag: str, now: datetime) -> datetime:
    """Returns a moment: the next time that a clock here shows `text` ("08:00"), or a date with a time.

    Args:
        text: "08:00" or "08:00:30", or ISO 8601 as "2026-11-23T08:00", local time without an offset.
        flag: for the message.
        now: the present, with a time zone: that of this machine.

    Raises:
        UsageError: it is no such text, or lies in the past.
    """
    forms = "use a time as in 08:00, or a date and a time as in 2026-11-23T08:00"
    words = text.strip()
    try:
        if ":" in words and "-" not in words and "T" not in words.upper():
            clock = datetime.strptime(words, "%H:%M:%S" if words.count(":") == 2 else "%H:%M")
            moment = now.replace(hour=clock.hour, minute=clock.minute, second=clock.second, microsecond=0, fold=0)
            if moment <= now:
                moment = (moment + timedelta(days=1)).replace(fold=0)
            return moment.replace(tzinfo=None).astimezone()  # tomorrow's offset may be another one
        moment = datetime.fromisoformat(words)
        if ":" not in words:
            raise ValueError
        moment = moment.astimezone()  # not every time zone has the first and the last day of all years
    except (ValueError, OverflowError):
        raise UsageError(f"{flag} {text!r:.80} is no time; {forms}") from None
    if moment <= now:
        raise UsageError(f"{flag} {text} has passed: now it is {now:%Y-%m-%dT%H:%M}; {forms}")
    return moment


class Deadline:
    """The moment by which all trials of a sweep are to have ended, and why it holds trials back.

    Args:
        moment: None: there is none, and nothing is held back.
        speed: of the machine.
    """

    def __init__(self, moment: datetime | None, speed: float) -> None:
        self._moment = moment
        self._speed = speed
        self.reason: str | None = None  # why no trial starts, in words; None: the time does not hold any back

    def has_passed(self) -> bool:
        if self._moment is None or datetime.now(UTC) < self._moment:
            return False
        self.reason = f"it is {self._moment.astimezone():%H:%M}, as --until says"
        return True

    def allows(self, trial: TrialRecord | None, predicted_seconds: float | None, trials: Sequence[TrialRecord]) -> bool:
        """Returns whether a trial is expected to end in time. Its arguments are those of `expected_seconds`."""
        if self._moment is None:
            return True
        if self._seconds_left(self._moment) >= expected_seconds(trial, predicted_seconds, trials, self._speed):
            return True
        self.hold_back()
        return False

    def shorten(self, budget: Budget, trials: Sequence[TrialRecord]) -> Budget:
        """Returns the budget of a new trial that is to end in time."""
        if self._moment is None:
            return budget
        longest = max(longest_cost(self._seconds_left(self._moment), trials, self._speed), MIN_COST_SECONDS)
        return budget if longest >= budget.next_trial_seconds else dataclasses.replace(budget, until_seconds=longest)

    def hold_back(self) -> None:
        """Says that no further trial would end in time."""
        assert self._moment is not None
        self.reason = f"no further trial is expected to end by {self._moment.astimezone():%H:%M}, as --until says"

    @staticmethod
    def _seconds_left(moment: datetime) -> float:
        return (moment - datetime.now(UTC)).total_seconds()


def expected_seconds(
    trial: TrialRecord | None, predicted_seconds: float | None, trials: Sequence[TrialRecord], speed: float = 1.0
) -> float:
    """Returns how long a trial is expected to run from now on, of the wall clock.

    Costs are in reference seconds; what is beside them is not (`protein.run.speed`).

    Args:
        trial: one that goes on; None: a new one.
        predicted_seconds: the cost that was predicted for it; None: that of the median trial so far.
        trials: all of the sweep. They tell how much longer than its cost a trial takes, too.
        speed: of the machine.
    """
    if predicted_seconds is None:
        predicted_seconds = statistics.median([one.cost_seconds for one in _measured(trials)] or [0.0])
    return max(predicted_seconds - (0.0 if trial is None else trial.cost_seconds), 0.0) / speed + _overhead(trials)


def longest_cost(seconds_left: float, trials: Sequence[TrialRecord], speed: float = 1.0) -> float:
    """Returns the highest cost at which a new trial is expected to end in time, by the wall clock; 0: none does."""
    return max(seconds_left - _overhead(trials), 0.0) * speed


def _overhead(trials: Sequence[TrialRecord]) -> float:
    """Returns how much longer than its cost the median trial took; 0 while none has ended."""
    names = ("startup", "compile", "evaluation")
    return statistics.median([sum(one.timings.get(name, 0.0) for name in names) for one in _measured(trials)] or [0.0])


def _measured(trials: Sequence[TrialRecord]) -> list[TrialRecord]:
    return [one for one in trials if one.state.finished and one.finished_at is not None and one.cost_seconds > 0]
