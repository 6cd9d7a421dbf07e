"""The values that flow between designer, loop, backend, store and views. Nothing here does any work.

All are frozen, keyword-only dataclasses. Units are in the names: `_seconds` are seconds of training on the trainer's
own monotonic clock unless noted otherwise, `steps` are decisions of the policy (skipped frames do not count). Scores
are always to be maximised (see `protein.direction`).

A fact about a trial is a field of exactly one class here, and a column in `protein.storage.tables`. A `TrialRecord` is
its `Trial`, the `Suggestion` that it came from, its `Result` and its `Annotation`. Code between them (such as
`protein.storage.values`) matches fields by name.
"""

import dataclasses
import math
import operator
from collections.abc import Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

ParamValue = bool | int | float | str
Params = Mapping[str, ParamValue]  # dotted name -> raw value, as in {"train.learning_rate": 3e-3}


class TrialState(StrEnum):
    """Where a trial is in its life: RUNNING -> COMPLETE | PRUNED | FAILED. A finished trial never changes.

    RUNNING -> WAITING -> RUNNING: a trial that was interrupted or preempted, and left something to go on from, waits
    until the sweep takes it up again. It has no owner and holds no worker. Its cost so far counts.
    """

    RUNNING = "running"
    WAITING = "waiting"
    COMPLETE = "complete"
    PRUNED = "pruned"
    FAILED = "failed"

    @property
    def finished(self) -> bool:
        return self not in (TrialState.RUNNING, TrialState.WAITING)


class TrialEnd(StrEnum):
    """How a trial ended. Decisions about a finished trial read this; `reason` is text for people."""

    COMPLETE = "complete"  # trained to its end
    CAPPED = "capped"  # reached the cap on the cost of one trial
    OUT_OF_BUDGET = "out_of_budget"  # reached what was left of the sweep's budget, which was less than the cap
    STOPPED_EARLY = "stopped_early"  # its learning curve was worse than those of similar trials
    INTERRUPTED = "interrupted"  # ended from outside (Ctrl-C, `kill -9`, a power cut)
    MISTAKE = "mistake"  # in how the user's training function is written: its arguments, a result that is no number
    USER_ERROR = "user_error"  # the user's training function or environment raised an exception
    DIVERGED = "diverged"  # a loss, a gradient, a weight or the score was not finite
    OUT_OF_MEMORY = "out_of_memory"
    HUNG = "hung"  # reported nothing for too long, or took far longer than its cap allows
    DISK = "disk"  # its files could not be written
    CRASHED = "crashed"  # its process died, or what it printed could not be read
    FAILED = "failed"  # for any other reason

    @property
    def state(self) -> TrialState:
        """The state that a trial with this end is in."""
        if self is TrialEnd.COMPLETE:
            return TrialState.COMPLETE
        pruned = (TrialEnd.CAPPED, TrialEnd.OUT_OF_BUDGET, TrialEnd.STOPPED_EARLY)
        return TrialState.PRUNED if self in pruned else TrialState.FAILED

    @property
    def teaches(self) -> bool:
        """Whether it tells anything about the trial's params; if not, no model learns from it."""
        return self not in (TrialEnd.INTERRUPTED, TrialEnd.MISTAKE, TrialEnd.DISK)

    @property
    def text(self) -> str:
        """What a trial's `reason` begins with: the words for this end."""
        return _END_TEXTS.get(self, self.value.replace("_", " "))


_END_TEXTS = {
    TrialEnd.COMPLETE: "",
    TrialEnd.CAPPED: "stopped at its cost cap",
    TrialEnd.OUT_OF_BUDGET: "stopped at the end of the sweep's budget",
    TrialEnd.MISTAKE: "mistake in the training function",
}
CANCELLED = "cancelled by hand"  # the reason of a trial whose end a person has asked for
PREEMPTED = "preempted: "  # what the reason begins with where a trial's place to run was lost (see `ports.Backend`)


def end_of(state: TrialState, reason: str) -> TrialEnd | None:
    """Returns the end of an observation that was kept before ends were data; None for a trial that runs or waits.

    Earlier versions recognised these ends by the beginning of `reason`. Nothing else may decide by it.
    """
    if not state.finished:
        return None
    if state is TrialState.COMPLETE:
        return TrialEnd.COMPLETE
    if state is TrialState.PRUNED:
        if reason.startswith(TrialEnd.STOPPED_EARLY.text):
            return TrialEnd.STOPPED_EARLY
        return TrialEnd.OUT_OF_BUDGET if reason == TrialEnd.OUT_OF_BUDGET.text else TrialEnd.CAPPED
    if reason == TrialEnd.INTERRUPTED.text:
        return TrialEnd.INTERRUPTED
    return TrialEnd.MISTAKE if reason.startswith(TrialEnd.MISTAKE.text) else TrialEnd.FAILED


def check_end(state: TrialState, end: TrialEnd | None) -> None:
    """Raises `ValueError` unless a trial in this state can have this end."""
    expected = (TrialState.RUNNING, TrialState.WAITING) if end is None else (end.state,)
    if state not in expected:
        words = " or ".join(expected)
        raise ValueError(f"a trial that is {state} cannot have the end {end or 'none'}, which goes with {words}")


class SuggestionKind(StrEnum):
    """Which part of the engine a suggestion comes from; `origin` gives the same, with details, in words."""

    INITIAL_CONFIG = "initial_config"  # the user's own config, tried first
    INITIAL_DESIGN = "initial_design"
    WARM_START = "warm_start"  # a config from the front of the source sweep
    SEARCH = "search"
    CONTINUATION = "continuation"  # a finished trial goes on to more steps
    REEVALUATION = "reevaluation"  # a config run again with a new seed: only in stores of version 0.1
    RANDOM = "random"  # the method is random search
    FALLBACK = "fallback"  # a random config where the engine had none


class Direction(StrEnum):
    """Whether a higher score is better, or a lower one."""

    MAXIMIZE = "maximize"
    MINIMIZE = "minimize"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """What the next trial may cost, in seconds of training. None: no limit.

    Attributes:
        remaining_seconds: the sweep's budget, less what was spent and what running trials are expected to spend.
        max_trial_seconds: the cap on one trial.
        remaining_trials: how many trials may still be started, the next one included.
        can_wait: whether the caller asks again when a running trial has ended, where there is no suggestion now. Then
            the engine may keep workers idle, rather than choose much of the sweep before it knows anything.
        num_free: how many workers are free, for the next trial and for others.
    """

    remaining_seconds: float | None = None
    max_trial_seconds: float | None = None
    remaining_trials: int | None = None
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
        limits = (self.remaining_seconds, self.max_trial_seconds)
        return min((limit for limit in limits if limit is not None), default=math.inf)


MAX_SCORE = 1e300  # the largest size of a score: differences of larger ones overflow


MAX_COST_SECONDS = 1e9  # 31 years: a larger cost of a trial is garbage, and would hide all others


def is_score(value: float) -> bool:
    """Whether a number can be a trial's score: not NaN, not infinite, not beyond `MAX_SCORE`."""
    return -MAX_SCORE <= value <= MAX_SCORE


Z80 = 1.2816  # the central 80 % interval of a normal distribution, in standard deviations to either side


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A predicted quantity: its median and a central 80 % interval, `low <= value <= high`."""

    value: float
    low: float
    high: float

    def __post_init__(self) -> None:
        if not self.low <= self.value <= self.high:
            raise ValueError(f"an estimate needs low <= value <= high, got {self.low}, {self.value}, {self.high}")


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


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One point of a trial's learning curve. `score` is None before the first episode has finished."""

    steps: int
    elapsed_seconds: float
    score: float | None
    metrics: Mapping[str, float] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.steps < 0 or not (math.isfinite(self.elapsed_seconds) and self.elapsed_seconds >= 0):
            raise ValueError(
                f"a measurement needs steps >= 0 and finite seconds >= 0, got {self.steps}, {self.elapsed_seconds}"
            )
        if self.score is not None and not math.isfinite(self.score):
            raise ValueError(f"a measurement's score must be finite or None, got {self.score}")


MAX_BUSY_SHARE = 0.99  # of a trial's seconds: it has trained in some of them


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What the designer learns from one finished trial. One that failed has no score, and the cost it really spent.

    A trial may be a leg: it has gone on with the run of an earlier trial, `continues`. Its cost is its own, that of the
    rest of the run. The steps of its curve are those of the whole run, and its seconds are its own.
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


_OBSERVED = tuple(field.name for field in dataclasses.fields(Observation) if field.name != "resumable_seconds")
_observed = operator.attrgetter(*_OBSERVED)  # of a trial; a large sweep asks for 100,000


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """Where a result comes from: enough to run it again."""

    version: str  # of this package
    git_commit: str  # of the working directory; "" outside a repository, "-dirty" appended when it has changes
    machine: str  # host, processor, cores
    config_hash: str  # SHA-256 of the canonical JSON of the whole run config


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SweepSpec:
    """Everything that defines a sweep and never changes after its creation (a budget may grow; it is not here).

    `space` is `Space.to_dict()`, `config` the nested run config whose values the space overrides, `direction` that of
    the scores as the user knows them. `warm_start` is a snapshot of the source sweeps
    (`protein.sweep.source_snapshot`).
    """

    name: str
    env: str
    method: str
    seed: int
    direction: Direction = Direction.MAXIMIZE
    space: Mapping[str, Any]
    config: Mapping[str, Any]
    warm_start: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # empty: none
    provenance: Provenance


class Request(StrEnum):
    """What a person has asked of a sweep from outside; the process that runs the sweep follows it."""

    RUN = "run"  # nothing: it goes on as it would
    PAUSE = "pause"  # start no more trials until it is asked to run; those that run go on
    STOP = "stop"  # end, as on Ctrl-C: running trials are interrupted. Starting the sweep again takes it back


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SweepRecord:
    """A stored sweep. `max_cost_seconds` is the budget most recently asked for (None: unlimited)."""

    id: int
    spec: SweepSpec
    max_cost_seconds: float | None
    created_at: datetime
    requested: Request = Request.RUN
    ended: str = ""  # why its last run ended, in words for people; "" while it runs, and before it has


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A machine that has run trials of a store. The first one of a store is the reference for its costs."""

    name: str
    facts: Mapping[str, Any]  # processor, cores, GPUs and the like, as plain JSON
    calibration_seconds: float  # what a fixed piece of work takes here
    measured_at: datetime  # UTC, timezone-aware

    def __post_init__(self) -> None:
        if not (math.isfinite(self.calibration_seconds) and self.calibration_seconds > 0):
            raise ValueError(f"calibration_seconds must be finite and above 0, got {self.calibration_seconds}")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """What a trial may use of its machine."""

    cores: tuple[int, ...] = ()  # it is pinned to these; empty: it is not pinned
    gpus: tuple[str, ...] = ()  # ids as for CUDA_VISIBLE_DEVICES; empty: what it sees of GPUs is left as it is
    max_gpu_memory_bytes: int | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trial:
    """A trial as the loop and the backend know it. `number` counts from 0 within its sweep; `owner` runs it."""

    id: int
    sweep_id: int
    number: int
    params: Params
    seed: int
    owner: str


# Names in `Result.timings`: how long a trial was watched while it trained, and how much of it other programs had its
# cores. Both are in seconds of the machine that it ran on.
WALL, WAITED = "wall", "waited"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Result:
    """What came of a trial so far.

    Until the trial has ended, `cost_seconds` and `steps` are those of its last measurement, and `score` is None. At
    its end, `score` is what the sweep optimises (the final evaluation). `timings` holds seconds that are recorded
    beside the cost and not in it (`startup`, `evaluation`, `compile`), `metrics` further final figures (`train_score`,
    ...).
    """

    score: float | None = None
    cost_seconds: float = 0.0
    steps: int = 0
    reason: str = ""  # why it FAILED, was PRUNED or is WAITING, for people
    timings: Mapping[str, float] = dataclasses.field(default_factory=dict)
    metrics: Mapping[str, float] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outcome(Result):
    """How a trial ended, as the backend reports it and the store keeps it."""

    end: TrialEnd

    @property
    def state(self) -> TrialState:
        return self.end.state


CONTINUABLE = "continuable"  # the kind of artifact that a longer run goes on from
CONTINUABLE_SECONDS = "continuable_seconds"  # the metric: seconds of the trial's own that lie behind it


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """A file that a trial left behind; `path` is absolute.

    `kind` is "checkpoint", "log", "config", or `CONTINUABLE`: what a longer run goes on from, perhaps a folder.
    """

    kind: str
    path: str


MAX_TAGS = 50  # of one trial
MAX_TAG_LENGTH = 60  # characters
MAX_NOTE_LENGTH = 10_000  # characters


@dataclasses.dataclass(frozen=True, kw_only=True)
class Annotation:
    """What people have written about a trial. It may change at any time, also after the trial has finished.

    The engine learns nothing from an excluded trial, and no view recommends it. Its cost still counts. Its params count
    as tried, so they are not suggested again.
    """

    tags: tuple[str, ...] = ()  # each once, in the order in which they were given
    note: str = ""
    excluded: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrialRecord(Trial, Suggestion, Result, Annotation):
    """Everything about one trial, read-only, for history, views and exports."""

    state: TrialState
    end: TrialEnd | None  # None while it runs or waits
    suggest_seconds: float  # wall clock of the engine's own work on this suggestion
    # Seconds that it spent and then had to spend again, because an interruption lost what it had learnt in them. They
    # count against the sweep's budget, and are not in `cost_seconds`.
    lost_seconds: float = 0.0
    cancel_requested: bool = False  # a person has asked for its end
    curve: tuple[Measurement, ...] = ()
    artifacts: tuple[Artifact, ...] = ()
    provenance: Provenance
    started_at: datetime  # UTC, timezone-aware
    finished_at: datetime | None = None

    def __post_init__(self) -> None:
        check_end(self.state, self.end)

    @classmethod
    def begun(
        cls, trial: Trial, suggestion: Suggestion, *, suggest_seconds: float, provenance: Provenance
    ) -> "TrialRecord":
        """Returns the record of a trial that starts now."""
        return cls(
            **{**fields_of(suggestion), **fields_of(trial)},  # both have params, the same
            state=TrialState.RUNNING,
            end=None,
            suggest_seconds=suggest_seconds,
            provenance=provenance,
            started_at=datetime.now(UTC),
        )

    def grown(self, measurements: tuple[Measurement, ...]) -> "TrialRecord":
        """Returns the record with further points of the curve, at least one."""
        last = measurements[-1]
        return dataclasses.replace(
            self, curve=self.curve + measurements, cost_seconds=last.elapsed_seconds, steps=last.steps
        )

    def ended(self, outcome: Outcome, artifacts: tuple[Artifact, ...]) -> "TrialRecord":
        """Returns the record of the trial when it ends now."""
        changes = fields_of(outcome) | {"state": outcome.state, "artifacts": artifacts}
        return dataclasses.replace(self, **changes, finished_at=datetime.now(UTC))

    def observation(self, *, resumable_seconds: float | None = None) -> Observation:
        """Returns what the designer may learn from this trial; it must have finished."""
        assert self.state.finished, f"trial {self.number} is still {self.state}"
        values = dict(zip(_OBSERVED, _observed(self), strict=True))
        return Observation(resumable_seconds=resumable_seconds, **values)

    @property
    def busy_share(self) -> float | None:
        """See `Observation.busy_share`. It is read from the trial's `timings`."""
        wall, waited = self.timings.get(WALL), self.timings.get(WAITED)
        return None if not wall or waited is None else min(max(waited / wall, 0.0), MAX_BUSY_SHARE)

    @property
    def run_seconds(self) -> float:
        """What its whole run has cost, from the first step on; more than its own cost if it continues a trial."""
        return self.continued_seconds + self.cost_seconds

    def artifact(self, kind: str) -> str | None:
        """Returns the path of the newest artifact of a kind, if there is one."""
        return next((a.path for a in reversed(self.artifacts) if a.kind == kind), None)


def fields_of(value: "Trial | Suggestion | Result | Annotation") -> dict[str, Any]:
    """Returns the fields of a value by name, as they are."""
    return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
