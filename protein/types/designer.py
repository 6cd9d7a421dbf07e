"""What a designer is told, and what it answers: params, the budget, what was observed, a suggestion."""

import dataclasses
import math
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from protein.types.ends import TrialEnd, TrialState, check_end, end_of
from protein.types.quantities import Estimate, Measurement

# A value of JSON: None, a bool, a number, a text, or a list or table of these. As what `json.loads` returns, it has no
# narrower type: whoever reads a parameter knows which kind it is.
ParamValue = Any
Params = Mapping[str, ParamValue]  # dotted name -> raw value, as in {"train.learning_rate": 3e-3}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """What the next trial may cost, in seconds of training. None: no limit.

    Attributes:
        remaining_seconds: the sweep's budget, less what was spent and what running trials are expected to spend.
        max_trial_seconds: the cap on one trial.
        until_seconds: what the next trial may cost to end before a time at which the sweep ends. For a trial that
            continues another one, that is the cost of the rest.
        remaining_trials: how many trials may still be started, the next one included.
        running_seconds: what running trials are expected to spend; None: the engine has to predict it.
        can_wait: whether the caller asks again when a running trial has ended, where there is no suggestion now. Then
            the engine may keep workers idle, rather than choose much of the sweep before it knows anything.
        num_free: how many workers are free, for the next trial and for others.
    """

    remaining_seconds: float | None = None
    max_trial_seconds: float | None = None
    until_seconds: float | None = None
    remaining_trials: int | None = None
    running_seconds: float | None = None
    can_wait: bool = False
    num_free: int = 1

    @property
    def spent(self) -> bool:
        """Whether nothing is left, of seconds or of trials."""
        no_seconds = self.remaining_seconds is not None and self.remaining_seconds <= 0
        return no_seconds or (self.remaining_trials is not None and self.remaining_trials <= 0)

    @property
    def next_trial_seconds(self) -> float:
        """The most that the next trial may cost, infinite without a limit."""
        limits = (self.remaining_seconds, self.max_trial_seconds, self.until_seconds)
        return min((limit for limit in limits if limit is not None), default=math.inf)


class SuggestionKind(StrEnum):
    """Which part of the engine a suggestion comes from; `origin` gives the same, with details, in words."""

    INITIAL_CONFIG = "initial_config"  # the user's own config, tried first
    INITIAL_DESIGN = "initial_design"
    WARM_START = "warm_start"  # a config from the front of the source sweep
    SEARCH = "search"
    CONTINUATION = "continuation"  # a finished trial goes on to more steps
    REEVALUATION = "reevaluation"  # a config run again with a new seed, to confirm it (in stores of 0.1: by the search)
    RANDOM = "random"  # the method is random search
    FALLBACK = "fallback"  # a random config where the engine had none
    BY_HAND = "by_hand"  # a config that a person has queued


@dataclasses.dataclass(frozen=True, kw_only=True)
class Suggestion:
    """A proposed trial and the reason for it.

    `origin` is the reason in a few words ("initial design 3 of 8", "improving the front near 40 s"); a fallback after
    numerical trouble is named there too. Estimates are None before a model exists.

    A suggestion may be to continue a finished trial: `continues` is the number of that trial, whose params it has but
    for a larger cost parameter. It costs only the rest of the run, and `predicted_cost_seconds` is that of the rest.
    """

    params: Params
    kind: SuggestionKind
    origin: str
    predicted_score: Estimate | None = None
    predicted_cost_seconds: Estimate | None = None
    continues: int | None = None  # number of the trial whose run it goes on with; None: it begins a run of its own
    continued_seconds: float = 0.0  # of training that lie behind the checkpoint from which it goes on

    @property
    def confirms(self) -> bool:
        """Whether it runs a config again to confirm it: no part of the search (`protein.sweep.confirming`)."""
        return self.kind is SuggestionKind.REEVALUATION


MAX_BUSY_SHARE = 0.99  # of a trial's seconds: it has trained in some of them


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What the designer learns from one finished trial. One that failed has no score, and the cost it really spent.

    A trial may be a continuation: it has gone on with the run of an earlier trial, `continues`. Its cost is its own,
    that of the rest of the run. The steps of its curve are those of the whole run, and its seconds are its own.
    """

    params: Params
    state: TrialState
    score: float | None
    cost_seconds: float
    curve: tuple[Measurement, ...] = ()
    reason: str = ""  # why it FAILED or was PRUNED ("" otherwise), for people
    end: TrialEnd | None = None  # None: derived from state and reason; stays None while the trial runs
    number: int | None = None  # of the trial in its sweep, for messages and for `continues`
    continues: int | None = None  # number of the trial whose run it went on with; None: it began a run of its own
    continued_seconds: float = 0.0  # of training that lay behind the checkpoint from which it went on
    excluded: bool = False  # a person does not trust its score: it teaches nothing, but its params count as tried
    # Seconds of its run that lie behind the checkpoint from which a run of more steps can go on (all of them where that
    # is its end); None: it cannot be continued. Known only to whoever keeps the checkpoints, and not stored.
    resumable_seconds: float | None = None
    # Share of its seconds in which other programs had its cores; None: not known. Without them it would have cost less.
    busy_share: float | None = None
    metrics: Mapping[str, float] = dataclasses.field(default_factory=dict)  # measured beside the score, by name

    @property
    def calm_seconds(self) -> float:
        """What its whole run would have cost on a machine without other programs; where not known, what it has cost."""
        return self.run_seconds * (1.0 - (self.busy_share or 0.0))

    @property
    def run_seconds(self) -> float:
        """What its whole run has cost, from the first step on."""
        return self.continued_seconds + self.cost_seconds

    def __post_init__(self) -> None:
        # One that is read back from JSON has a text for a state, which equals it but is not it, and dicts for points.
        object.__setattr__(self, "state", TrialState(self.state))
        end = end_of(self.state, self.reason) if self.end is None else TrialEnd(self.end)
        object.__setattr__(self, "end", end)
        check_end(self.state, end)
        points = (Measurement(**point) if isinstance(point, Mapping) else point for point in self.curve)
        object.__setattr__(self, "curve", tuple(points))
        if not (math.isfinite(self.cost_seconds) and self.cost_seconds >= 0):
            raise ValueError(f"an observation's cost must be finite seconds >= 0, got {self.cost_seconds}")
        for name in ("continued_seconds", "resumable_seconds"):
            seconds = getattr(self, name)
            if seconds is not None and not (math.isfinite(seconds) and seconds >= 0):
                raise ValueError(f"{name} must be finite seconds >= 0, got {seconds}")
        if self.busy_share is not None and not 0.0 <= self.busy_share <= MAX_BUSY_SHARE:
            raise ValueError(f"busy_share must be within 0 and {MAX_BUSY_SHARE}, got {self.busy_share}")
        if self.score is not None and not math.isfinite(self.score):
            raise ValueError(f"an observation's score must be finite or None, got {self.score}")
        if self.state is TrialState.COMPLETE and self.score is None:
            raise ValueError("a complete observation needs a score")
