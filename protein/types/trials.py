"""A trial, what came of it, what people wrote of it, and all of that as one record."""

import dataclasses
import math
import operator
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Protocol

from protein.types.designer import MAX_BUSY_SHARE, Observation, Params, Suggestion
from protein.types.ends import QUEUED, TrialEnd, TrialState, check_end
from protein.types.quantities import Measurement
from protein.types.sweeps import Provenance, later


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
ON_GPU = "on_gpu"  # the metric of a trial on a machine that has a GPU: 1 or 0


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
    reason: str = ""  # why it FAILED, was PRUNED or is WAITING, or what is odd of a COMPLETE one, for people
    timings: Mapping[str, float] = dataclasses.field(default_factory=dict)
    metrics: Mapping[str, float] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outcome(Result):
    """How a trial ended, as the backend reports it and the store keeps it."""

    end: TrialEnd

    @property
    def state(self) -> TrialState:
        return self.end.state


class Spending(Protocol):
    """What has cost something: a `TrialRecord`, or a part of one."""

    @property
    def cost_seconds(self) -> float: ...
    @property
    def lost_seconds(self) -> float: ...


USAGE_FILE = "usage.csv"  # in a trial's folder: what its processes use (`protein.run.usage`)
CONTINUABLE = "continuable"  # the kind of artifact that a longer run goes on from
CONTINUABLE_SECONDS = "continuable_seconds"  # the metric: seconds of the trial's own that lie behind it


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """A file that a trial left behind; `path` is absolute.

    `kind` is "checkpoint", "log", "config", "sample" (what a language model wrote), or `CONTINUABLE`: what a longer run
    goes on from, perhaps a folder.
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


_OBSERVED = tuple(field.name for field in dataclasses.fields(Observation) if field.name != "resumable_seconds")
_observed = operator.attrgetter(*_OBSERVED)  # of a trial; a large sweep asks for 100,000


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TrialRecord(Trial, Suggestion, Result, Annotation):
    """Everything about one trial, read-only, for history, views and exports."""

    state: TrialState
    end: TrialEnd | None  # None while it runs or waits
    suggest_seconds: float  # wall clock of the engine's own work on this suggestion
    # Seconds that it spent and then had to spend again, because an interruption lost what it had learnt in them. They
    # count against the sweep's budget, and are not in `cost_seconds`.
    lost_seconds: float = later(0.0)
    cancel_requested: bool = later(False)  # a person has asked for its end
    curve: tuple[Measurement, ...] = ()
    artifacts: tuple[Artifact, ...] = ()
    provenance: Provenance
    started_at: datetime  # UTC, timezone-aware
    finished_at: datetime | None = None

    def __post_init__(self) -> None:
        check_end(self.state, self.end)

    @property
    def is_queued(self) -> bool:
        """Whether it waits for its first start: a person has asked for it."""
        return self.state is TrialState.WAITING and self.reason == QUEUED

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


def spent_seconds(trials: Iterable[Spending]) -> float:
    """Returns what trials have cost, with what an interruption has lost; exact, so that their order does not matter."""
    return math.fsum(seconds for trial in trials for seconds in (trial.cost_seconds, trial.lost_seconds))


def fields_of(value: "Trial | Suggestion | Result | Annotation") -> dict[str, Any]:
    """Returns the fields of a value by name, as they are."""
    return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
