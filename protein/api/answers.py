"""What the engine's models say of a stored sweep: what is recommended, what matters, range ends, the outlook, maps.

Every command and page asks here, so that all of them speak of the same trials and the same fits. Of a very large sweep,
a sample of the trials is read (`protein.engine.sample`). To load and fit the models takes about a second, however large
the sweep is. To read a very large one takes as long again. So the answers about each sweep are kept in a file of the
user's cache folder. A sweep that ends leaves them there.

A file is nothing but a shortcut: deleting all of them changes no answer. It is used only while all of this holds:

1. It is of the same sweep, with the same definition, and was made by the same code. The file's name is a hash of both.
2. Since then no trial has finished, and no finished one was excluded or taken back: the store says so, by its cursor.
   What is running teaches the models nothing.
3. The trials that the answers speak of, and the last one that had finished, are still in the store with the same
   values. A store that was replaced by an older copy is found out by this.

A file that cannot be read or written is as good as none.
"""

import contextlib
import dataclasses
import functools
import hashlib
import importlib.metadata
import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import protein
from protein import files
from protein.api import stores
from protein.api.recommended import (
    Choice,
    Recommendation,
    best_cut_short,
    initial_params,
    recommendation,
    score_range,
    stored_space,
)
from protein.columns import DOT_FIELDS, TrialColumns, broken_rows
from protein.direction import stored_range
from protein.engine import results
from protein.engine.results import Contender, Matters, Outlook, RangeEnd
from protein.engine.sample import MAX_WHOLE, Sample, sample_of, sampled
from protein.errors import ProteinError, SpaceError, StoreError, UsageError
from protein.ports import Store
from protein.space import Categorical, Integer, Space
from protein.spelling import counted
from protein.types import (
    Estimate,
    Observation,
    SuggestionKind,
    SweepRecord,
    SweepSpec,
    TrialRecord,
    TrialState,
    unbroken,
    unreported,
)
from protein.units import format_probability
from protein.view import text

if TYPE_CHECKING:
    from protein.analysis.matters import Target
    from protein.analysis.model_maps import SweepModel
    from protein.engine.forecasts import ForecastQuality
    from protein.engine.laws import Laws
    from protein.engine.outlook import Hindsight
    from protein.engine.recommend import Learnt


# The modules of the models are loaded late: answers that are kept need none of them.

MAX_FORECASTS = 20_000  # predictions that are compared with what was measured; of more, evenly spread ones
MAX_FILES = 100  # of the folder; the oldest are deleted
_CODE = ("analysis", "api", "engine", "space", "view")  # packages that the answers depend on, beside numpy and scipy


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Readable:
    """A sweep's trials as far as they are needed.

    Attributes:
        trials: by number; of each curve, one point at most.
        columns: of all trials, those of `_fields`.
        sample: None where `trials` are all of the sweep.
    """

    trials: Sequence[TrialRecord]
    columns: TrialColumns
    sample: Sample | None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """Answers that still hold.

    Attributes:
        trials: those that the answers speak of, by number.
        is_large: whether the sweep has more trials than are read whole.
        contenders: all that some question needs; positions in `trials`. None where nobody has asked for them yet.
        unknown: a line on limits whose metric no trial has (`protein.types.unreported`); "": there are none.
        range_ends: the same.
        has_outlook: whether `outlook` was asked for.
        outlook: None where too little is known.
        matters: by target, what nobody has asked for is not there.
    """

    trials: Sequence[TrialRecord]
    is_large: bool
    contenders: Sequence[Contender] | None
    unknown: str
    range_ends: Sequence[RangeEnd] | None
    has_outlook: bool
    outlook: Outlook | None
    matters: Mapping[str, Matters]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Held:
    """A complete trial as `protein.engine.forecasts` reads it."""

    score: float | None
    cost_seconds: float
    predicted_score: Estimate | None
    predicted_cost_seconds: Estimate | None = None
    state: TrialState = TrialState.COMPLETE


class Answers:
    """The answers about one sweep, each computed when it is asked for, unless it was kept.

    Attributes:
        were_kept: whether answers were found in a file that still hold.
    """

    def __init__(self, store: Store, sweep: SweepRecord, *, most: int = MAX_WHOLE) -> None:
        """Of a sweep with more than `most` trials, a sample is read."""
        self._store, self._sweep, self._most = store, sweep, most
        self._kept = find_kept(store, sweep)
        self.were_kept = self._kept is not None

    @functools.cached_property
    def columns(self) -> TrialColumns:
        """All trials of the sweep, in those columns that `protein.columns.DOT_FIELDS` names, at least.

        Where the sweep has limits, the metrics are among them.
        """
        if self._kept is None:
            return self._known.columns
        return self._store.columns(self._sweep.id, fields=_fields(self._sweep))

    @property
    def is_large(self) -> bool:
        """Whether the sweep has more trials than are read whole."""
        return self._known.sample is not None if self._kept is None else self._kept.is_large

    def recommendation(self, under: str | None = None) -> Recommendation:
        """Returns what `protein.api.recommended.recommendation` does, and raises what it raises."""
        if self._kept is not None and self._kept.contenders is not None:
            kept = self._kept
            return recommendation(self._sweep, kept.trials, under, contenders=kept.contenders, unknown=kept.unknown)
        known = self._known
        return recommendation(self._sweep, known.trials, under, known.sample, contenders=self._contenders)

    def range_ends(self) -> Sequence[RangeEnd]:
        """Returns the parameters whose best values lie on the end of their range, most certain first.

        There are none where too little is known (see `protein.analysis.range_ends`), and none with limits on metrics.
        """
        if self._sweep.spec.limits:  # a wider range may hold better scores that break them
            return []
        if self._kept is not None and self._kept.range_ends is not None:
            return self._kept.range_ends
        from protein.analysis.range_ends import range_ends

        try:
            found = range_ends(self._learnt)
        except UsageError:  # the space cannot be read, and nothing can be said
            return []
        self._keep(range_ends=found)
        return found

    def outlook(self) -> Outlook | None:
        """Returns what more budget is expected to buy (`sweep_outlook`)."""
        if self._kept is not None and self._kept.has_outlook:
            return self._kept.outlook
        found = sweep_outlook(self._sweep, self._known.trials, self._known.sample)
        # The room of the score that is recommended. Of a very large sweep that would take a second model.
        if found is not None and math.isfinite(found.room) and self._known.sample is None:
            recommended = results.best(self._contenders)
            if recommended is not None:
                room = highest_score(self._sweep) - recommended.score.value
                found = dataclasses.replace(found, room=max(room, 0.0))
        self._keep(outlook=[found])
        return found

    def matters(self, target: "Target" = "score") -> Matters:
        """Returns which parameters matter, with their best values and laws; where that is not known, its problem.

        See `protein.analysis.matters`. This is the only source: every command and page shows it.
        """
        if self._kept is not None and target in self._kept.matters:
            return self._kept.matters[target]
        from protein.analysis.matters import matters

        try:
            found = matters(self.model(), target)
        except UsageError as error:
            found = Matters(target=target, problem=str(error))
        if target == "score" and not found.problem:
            with contextlib.suppress(UsageError):
                found = _with_laws(found, self.laws())
        self._keep(matters={target: found})
        return found

    def laws(self) -> "Laws":
        """Returns how best values change with cost, and raises what `protein.engine.laws.fit_laws` does."""
        return self._laws

    @functools.cached_property
    def _laws(self) -> "Laws":
        from protein.engine.laws import fit_laws

        return fit_laws(self._space, self.finished, known=None if self._learnt is None else self._contenders)

    def model(self) -> "SweepModel":
        """Returns the model that recommends, for slices and maps of it. Raises `UsageError` where there is none."""
        return self._model

    @functools.cached_property
    def _model(self) -> "SweepModel":
        from protein.analysis.model_maps import SweepModel

        return SweepModel.fit(self._space, self.finished, self._known.sample, learnt=self._learnt)

    def held(self) -> "ForecastQuality":
        """Returns how well the predicted scores held that the engine gave before each trial."""
        from protein.engine.forecasts import forecast_quality

        names = ("predicted_score", "predicted_score_low", "predicted_score_high")
        columns = self._store.columns(self._sweep.id, fields=(*DOT_FIELDS, *names))
        states = np.array(columns.state, dtype=object) == TrialState.COMPLETE
        rows = np.flatnonzero(
            states & ~columns.excluded & ~np.isnan(columns.predicted_score) & ~np.isnan(columns.score)
        )
        rows = rows[:: max(1, -(-len(rows) // MAX_FORECASTS))]
        values = zip(
            *(getattr(columns, name)[rows].tolist() for name in ("score", "cost_seconds", *names)), strict=True
        )
        held = [
            _Held(score=score, cost_seconds=cost, predicted_score=Estimate(value=value, low=low, high=high))
            for score, cost, value, low, high in values
        ]
        return forecast_quality(held, "score")

    @functools.cached_property
    def finished(self) -> list[Observation]:
        """The finished trials that were read, oldest first."""
        return [trial.observation() for trial in self._known.trials if trial.state.finished]

    @functools.cached_property
    def _known(self) -> Readable:
        return readable(self._store, self._sweep, most=self._most)

    @functools.cached_property
    def _space(self) -> Space:
        return stored_space(self._sweep.spec)

    @functools.cached_property
    def _learnt(self) -> "Learnt | None":
        from protein.engine import recommend

        start, limits = initial_params(self._sweep.spec), self._sweep.spec.limits
        return recommend.learn(self._space, self.finished, self._known.sample, start, limits)

    @functools.cached_property
    def _contenders(self) -> Sequence[Contender]:
        from protein.engine import recommend

        if self._learnt is None:
            start = initial_params(self._sweep.spec)
            limits = self._sweep.spec.limits
            return recommend.contenders(self._space, self.finished, self._known.sample, start=start, limits=limits)
        self._keep(contenders=self._learnt.contenders)
        return self._learnt.contenders

    def _keep(self, **found: Any) -> None:
        """Keeps answers beside those that are kept already; see `keep`."""
        if self.finished:
            keep(self._store, self._sweep, self._known, **found)


def at_the_end(sweep: SweepRecord, trials: Sequence[TrialRecord], store: str | None) -> Recommendation:
    """Returns what a sweep recommends that has just ended, as `protein.api.recommended.recommendation` does.

    Answers are computed now and kept, so that the first command that asks finds them.

    Raises:
        UsageError: no trial was trained to its end.
    """
    with contextlib.suppress(ProteinError), stores.opened(store) as opened:  # without the store, from the records
        answers = Answers(opened, sweep)
        found = answers.recommendation()
        answers.range_ends()
        answers.outlook()
        if answers.is_large:  # of a small sweep, whoever asks waits for a second
            answers.matters()
        return found
    return recommendation(sweep, trials)


def readable(store: Store, sweep: SweepRecord, *, most: int = MAX_WHOLE) -> Readable:
    """Reads a sweep: all of its trials, or, if it has more than `most`, a sample (`protein.engine.sample`)."""
    columns = store.columns(sweep.id, fields=_fields(sweep))
    if len(columns) <= most:
        trials = store.trials(sweep.id, curves=False, last_points=True)
        return Readable(trials=trials, columns=columns, sample=None)
    words = (columns.state, columns.end, columns.kind)
    costs = (columns.run_seconds, columns.cost_seconds, columns.excluded)
    breaks = np.array(broken_rows(columns, sweep.spec.limits), dtype=bool)
    sample, needed, noted = sample_of(columns.number, *words, columns.score, *costs, breaks)
    if any(kind is SuggestionKind.REEVALUATION for kind in columns.kind):
        needed = store.same_params(sweep.id, needed)
    trials = store.trials(sweep.id, curves=False, last_points=True, numbers={*needed, *noted})
    return Readable(trials=trials, columns=columns, sample=sample)


def _fields(sweep: SweepRecord) -> tuple[str, ...]:
    return (*DOT_FIELDS, *(["metrics"] if sweep.spec.limits else []))


def sweep_outlook(sweep: SweepRecord, trials: Sequence[TrialRecord], sample: Sample | None = None) -> Outlook | None:
    """Returns the outlook of a sweep; None where too little is known, or the sweep does not run this engine.

    Where these trials are not all, the `sample` says what is known of the others.
    """
    if sweep.spec.method != "protein":
        return None
    from protein.engine.outlook import outlook, without_broken

    if sample is None:
        trials, sample = sampled(trials, limits=sweep.spec.limits)
    try:
        seen = without_broken(_history(trials), sweep.spec.limits)
        return outlook(Space.from_dict(sweep.spec.space), seen, highest_score(sweep), sample)
    except (SpaceError, ValueError, ArithmeticError, np.linalg.LinAlgError):  # what fails must not hide the rest
        return None


def sweep_hindsight(sweep: SweepRecord, trials: Sequence[TrialRecord]) -> "list[Hindsight]":
    """Returns earlier outlooks of a sweep, and what came of them; none where `sweep_outlook` has none."""
    if sweep.spec.method != "protein":
        return []
    from protein.engine.outlook import hindsight, without_broken

    try:
        seen = without_broken(_history(trials), sweep.spec.limits)
        return hindsight(Space.from_dict(sweep.spec.space), seen, highest_score(sweep))
    except (SpaceError, ValueError, ArithmeticError, np.linalg.LinAlgError):
        return []


def highest_score(sweep: SweepRecord) -> float:
    """Returns the highest possible score, as scores are stored; infinite where it is not known."""
    known = stored_range(score_range(sweep.spec), sweep.spec.direction)
    return math.inf if known is None else known[1]


def folder() -> Path:
    """Returns the folder of the files; it may not exist."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path("~/.cache").expanduser()) / "protein" / "answers"


def find_kept(store: Store, sweep: SweepRecord) -> Kept | None:
    """Returns the answers about a sweep that are kept and still hold; None where there are none."""
    try:
        entry = json.loads(_path(sweep).read_text(encoding="utf-8"))
        changed = store.columns(sweep.id, entry["cursor"], fields=("state",))
        if any(state.finished for state in changed.state):
            return None
        facts = {int(number): values for number, values in entry["trials"].items()}
        trials = store.trials(sweep.id, curves=False, numbers=facts)
        if {trial.number: _facts(trial) for trial in trials} != facts:
            return None
        places = {trial.number: place for place, trial in enumerate(trials)}
        contenders, ends, outlook = entry["contenders"], entry["range_ends"], entry["outlook"]
        return Kept(
            trials=trials,
            is_large=entry["is_large"],
            unknown=entry["unknown"],
            contenders=None if contenders is None else [_contender(one, places) for one in contenders],
            range_ends=None if ends is None else [RangeEnd(**one) for one in ends],
            has_outlook=outlook is not None,
            outlook=Outlook(**outlook[0]) if outlook and outlook[0] is not None else None,
            matters={target: Matters.read(one) for target, one in entry["matters"].items()},
        )
    except (OSError, RuntimeError, ValueError, KeyError, TypeError, AttributeError, StoreError):
        return None


def kept_recommendation(store: Store, sweep: SweepRecord) -> Recommendation | None:
    """Returns what is recommended where that is kept and still holds; None where a model would have to be fitted."""
    kept = find_kept(store, sweep)
    if kept is None or kept.contenders is None:
        return None
    return Answers(store, sweep).recommendation()


def keep(
    store: Store,
    sweep: SweepRecord,
    known: Readable,
    *,
    contenders: Sequence[Contender] | None = None,
    range_ends: Sequence[RangeEnd] | None = None,
    outlook: Sequence[Outlook | None] | None = None,
    matters: Mapping[str, Matters] | None = None,
) -> None:
    """Keeps answers about a sweep, and those that are kept already of the same trials. None: not known.

    Args:
        store: of the sweep.
        sweep: as it is stored.
        known: what was read of it; at least one trial has finished.
        contenders: of the finished trials that were read; not empty.
        range_ends: all of them.
        outlook: one item, which is None where too little is known.
        matters: by target.
    """
    finished = [trial for trial in known.trials if trial.state.finished]
    needed = None if contenders is None else _needed(contenders, sweep.spec)
    spoken = {finished[i].number: finished[i] for one in needed or () for i in one.trials}
    cut_short = best_cut_short(unbroken(known.trials, sweep.spec.limits))
    if cut_short is not None:
        spoken[cut_short.number] = cut_short
    states, numbers = known.columns.state, known.columns.number.tolist()
    last = max(number for number, state in zip(numbers, states, strict=True) if state.finished)
    spoken.update((trial.number, trial) for trial in store.trials(sweep.id, curves=False, numbers=[last]))
    entry: dict[str, Any] = {
        "cursor": known.columns.cursor,
        "trials": {str(number): _facts(trial) for number, trial in spoken.items()},
        "is_large": known.sample is not None,
        "unknown": unreported(sweep.spec.limits, (trial.metrics for trial in finished)),
        "contenders": None
        if needed is None
        else [{**dataclasses.asdict(one), "trials": [finished[i].number for i in one.trials]} for one in needed],
        "range_ends": None if range_ends is None else [dataclasses.asdict(one) for one in range_ends],
        "outlook": None if outlook is None else [None if one is None else dataclasses.asdict(one) for one in outlook],
        "matters": {target: dataclasses.asdict(one) for target, one in (matters or {}).items()},
    }
    with contextlib.suppress(OSError, RuntimeError):
        path = _path(sweep)
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
            before = json.loads(path.read_text(encoding="utf-8"))
            if before["cursor"] == entry["cursor"]:
                entry["trials"] = {**before["trials"], **entry["trials"]}
                for name in ("contenders", "range_ends", "outlook"):
                    entry[name] = before[name] if entry[name] is None else entry[name]
                entry["matters"] = {**before["matters"], **entry["matters"]}
        _write(path, json.dumps(entry))


def _with_laws(found: Matters, laws: "Laws") -> Matters:
    """Returns what matters with the best values that the laws have at the largest trial's cost, and the laws."""
    from protein.view.laws import law_text

    values, by_name = laws.values(laws.largest_seconds), {law.name: law for law in laws.laws}
    parameters = []
    for one in found.parameters:
        value, parameter = values[one.name], laws.space.parameter(one.name)
        if value.is_absent:
            parameters.append(one)
            continue
        best, estimate = None, value.estimate
        if value.known and estimate is not None and not isinstance(parameter, Categorical):
            ends = np.clip([estimate.low, estimate.value, estimate.high], parameter.low, parameter.high)
            low, middle, high = np.rint(ends) if isinstance(parameter, Integer) else ends
            best = parameter.raw(low), parameter.raw(middle), parameter.raw(high)
        ranked = sorted(value.shares.items(), key=lambda item: -item[1]) if value.known else []
        choices = tuple((choice, share) for choice, share in ranked if share > 0)
        parameters.append(dataclasses.replace(one, best=best, choices=choices, law=law_text(by_name[one.name])))
    return dataclasses.replace(found, parameters=tuple(parameters), best_seconds=laws.largest_seconds)


def _history(trials: Sequence[TrialRecord]) -> list[Observation]:
    """Returns the finished trials of the search in the order in which they ended; confirmations are none."""
    finished = [trial for trial in trials if trial.finished_at is not None and not trial.confirms]
    finished.sort(key=lambda trial: (trial.finished_at, trial.number))
    return [trial.observation() for trial in finished]


def _needed(contenders: Sequence[Contender], spec: SweepSpec) -> list[Contender]:
    """Returns, in their order, those that some question about a recommendation names, and the initial config."""
    kept = results.spoken_of(
        [one.score.value for one in contenders],
        [one.expected_cost_seconds for one in contenders],
        [max(one.measured) for one in contenders],
        [one.keeps for one in contenders],
    )
    if (start := initial_params(spec)) is not None:
        key = stored_space(spec).key
        kept.update(i for i, one in enumerate(contenders) if key(one.params) == key(start))
    return [contenders[i] for i in sorted(kept)]


def _facts(trial: TrialRecord) -> list[Any]:
    """Returns what answers depend on of a trial, as plain data."""
    ended = None if trial.finished_at is None else trial.finished_at.isoformat()
    return [trial.state.value, trial.score, trial.run_seconds, trial.excluded, dict(trial.params), ended]


def _contender(one: dict[str, Any], places: dict[int, int]) -> Contender:
    return Contender(
        params=one["params"],
        score=Estimate(**one["score"]),
        expected_cost_seconds=one["expected_cost_seconds"],
        trials=tuple(places[number] for number in one["trials"]),
        measured=tuple(one["measured"]),
        basis=one["basis"],
        keeps=one["keeps"],
    )


def _path(sweep: SweepRecord) -> Path:
    identity = [sweep.id, sweep.created_at.isoformat(), sweep.spec.without_tags(), _code()]
    return folder() / f"{hashlib.sha256(repr(identity).encode()).hexdigest()}.json"


@functools.cache
def _code() -> list[Any]:
    """Returns what changes whenever the code changes that answers depend on; this process has the code of its start."""
    return list(_facts_of_code())


def _facts_of_code() -> Iterator[Any]:
    for name in ("numpy", "scipy"):
        yield importlib.metadata.version(name)
    for package in _CODE:
        with os.scandir(Path(protein.__file__).parent / package) as files:
            for file in sorted((file for file in files if file.name.endswith(".py")), key=lambda file: file.name):
                facts = file.stat()
                yield file.name, facts.st_size, facts.st_mtime_ns


def _write(path: Path, text: str) -> None:
    """Writes a file, whole or not at all, and deletes the oldest where there are many."""
    files.replace_file(path, text.encode())
    others = sorted(path.parent.iterdir(), key=lambda one: one.stat().st_mtime, reverse=True)
    for old in others[MAX_FILES:]:
        old.unlink(missing_ok=True)


SAME_COST = 0.1  # costs that differ by less than this share count as about the same
_PARTS = ("", "", "half", "a third", "a quarter", "a fifth", "a sixth", "a seventh", "an eighth", "a ninth", "a tenth")
_MAX_SHARE = 0.6  # a larger share of a cost is given as a percentage


def summary(found: Recommendation, num_trials: int | None = None) -> str:
    """Returns the sentence. All its scores and costs are expected ones; `num_trials` have ended, where that is known.

    Such as "trial 12 is expected to beat your initial config: score 20.60 instead of 15.20, at about a third of its
    cost", or "this is your initial config: 39 trials found nothing better (expected score 20.61 in 2.28s); trial 4, the
    knee, is expected to score 15.75 at about 1/13 of its cost".
    """
    best, initial = found.best, found.initial
    if initial is not None and not any(initial.trial.number == trial.number for trial in best.trials):
        recommendable = results.within_limits([best.contender.keeps, initial.contender.keeps])
        if 1 not in recommendable and initial.contender.keeps is not None:
            keeps = format_probability(initial.contender.keeps)
            score = text.score(initial.contender.score.value)
            own = f"your initial config, with score {score}, keeps them with {keeps}"
            return f"best found within the limits: trial {best.trial.number}, expected {best.phrase()}; {own}"
    if initial is None:
        unknown = "; your initial config was not trained to its end" if found.has_initial else ""
        return f"best found: trial {best.trial.number}, expected {best.phrase()}{unknown}"
    new, old = text.score(best.contender.score.value), text.score(initial.contender.score.value)
    if best.trial.number == initial.trial.number:
        others = "nothing beat it" if num_trials is None else f"{counted(num_trials - 1, 'trial')} found nothing better"
        return f"this is your initial config: {others} (expected {initial.phrase()}){_cheaper(found, initial)}"
    cost = relative_cost(best, initial)
    if new == old:
        return f"trial {best.trial.number} is expected to score as well as your initial config ({old}), {cost}"
    return f"trial {best.trial.number} is expected to beat your initial config: score {new} instead of {old}, {cost}"


def relative_cost(one: Choice, other: Choice) -> str:
    """Returns what one config costs beside another, as in "at about a third of its cost"."""
    ratio = one.contender.expected_cost_seconds / max(other.contender.expected_cost_seconds, 1e-9)
    if abs(ratio - 1.0) < SAME_COST:
        return "at about the same cost"
    if ratio > 1.0:
        return f"at {ratio:.1f} times its cost" if ratio < 10 else f"at {ratio:.0f} times its cost"
    if ratio > _MAX_SHARE:
        return f"at {100 * ratio:.0f} % of its cost"
    part = round(1.0 / max(ratio, 1e-9))
    return f"at about {_PARTS[part] if part < len(_PARTS) else f'1/{part:,}'} of its cost"


def _cheaper(found: Recommendation, initial: Choice) -> str:
    """Returns what the knee gives for less, where it costs less than the initial config."""
    knee = found.knee
    if knee is None or knee.contender.expected_cost_seconds >= initial.contender.expected_cost_seconds:
        return ""
    score = text.score(knee.contender.score.value)
    return f"; trial {knee.trial.number}, the knee, is expected to score {score} {relative_cost(knee, initial)}"
