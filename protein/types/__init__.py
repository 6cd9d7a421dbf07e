"""The values that flow between designer, loop, backend, store and views. Nothing here does any work.

    quantities.py  scores and costs: their bounds, a predicted and a measured one
    limits.py      limits on what a trial measures beside its score
    ends.py        where a trial is in its life, and how it ended
    designer.py    what a designer is told, and what it answers
    sweeps.py      a sweep, what people ask of it, and the machines that run its trials
    trials.py      a trial, what came of it, and all of that as one record

All are frozen, keyword-only dataclasses. Units are in the names: `_seconds` are seconds of training on the trainer's
own monotonic clock unless noted otherwise, `steps` are decisions of the policy (skipped frames do not count). Scores
are always to be maximised (see `protein.direction`).

A fact about a trial is a field of exactly one class here. A `TrialRecord` is its `Trial`, the `Suggestion` that it came
from, its `Result` and its `Annotation`, and is the one list of a trial's fields: columns, tables, exports and pages are
derived from it (`protein.columns`). Code between them (such as `protein.storage.values`) matches fields by name.
"""

from protein.types.designer import MAX_BUSY_SHARE, Budget, Observation, Params, ParamValue, Suggestion, SuggestionKind
from protein.types.ends import CANCELLED, CUT_SHORT, PREEMPTED, QUEUED, TrialEnd, TrialState, check_end, end_of, told
from protein.types.limits import REQUIRE, Limit, broken, parse_limits, unbroken, unreported
from protein.types.quantities import MAX_COST_SECONDS, MAX_SCORE, Z80, Direction, Estimate, Measurement, is_score
from protein.types.sweeps import (
    ARCHIVED,
    IMPORTED,
    TAGS,
    AgentCall,
    Machine,
    Provenance,
    Request,
    SweepRecord,
    SweepSpec,
    max_trial_seconds,
    runs_command,
    runs_trainer,
    with_open_ends,
)
from protein.types.trials import (
    CONTINUABLE,
    CONTINUABLE_SECONDS,
    MAX_NOTE_LENGTH,
    MAX_TAG_LENGTH,
    MAX_TAGS,
    ON_GPU,
    USAGE_FILE,
    WAITED,
    WALL,
    Annotation,
    Artifact,
    Outcome,
    Resources,
    Result,
    Trial,
    TrialRecord,
    fields_of,
    spent_seconds,
)

__all__ = [
    "ARCHIVED",
    "CANCELLED",
    "CONTINUABLE",
    "CONTINUABLE_SECONDS",
    "CUT_SHORT",
    "IMPORTED",
    "MAX_BUSY_SHARE",
    "MAX_COST_SECONDS",
    "MAX_NOTE_LENGTH",
    "MAX_SCORE",
    "MAX_TAGS",
    "MAX_TAG_LENGTH",
    "ON_GPU",
    "PREEMPTED",
    "QUEUED",
    "REQUIRE",
    "TAGS",
    "USAGE_FILE",
    "WAITED",
    "WALL",
    "Z80",
    "AgentCall",
    "Annotation",
    "Artifact",
    "Budget",
    "Direction",
    "Estimate",
    "Limit",
    "Machine",
    "Measurement",
    "Observation",
    "Outcome",
    "ParamValue",
    "Params",
    "Provenance",
    "Request",
    "Resources",
    "Result",
    "Suggestion",
    "SuggestionKind",
    "SweepRecord",
    "SweepSpec",
    "Trial",
    "TrialEnd",
    "TrialRecord",
    "TrialState",
    "broken",
    "check_end",
    "end_of",
    "fields_of",
    "is_score",
    "max_trial_seconds",
    "parse_limits",
    "runs_command",
    "runs_trainer",
    "spent_seconds",
    "told",
    "unbroken",
    "unreported",
    "with_open_ends",
]
