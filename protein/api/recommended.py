"""What a sweep recommends: behind `protein best`, `protein pareto`, `protein train --from` and a sweep's summary.

    best measured   the highest measured score among complete trials; noise may have raised it
    best expected   the highest expected true score: what is recommended
    best under X    the same among configs that are expected to cost at most X
    front           the best expected under X, for every X (`protein.engine.recommend`)
    knee            the best balance of expected score and cost; not every front has one

Every command that names one of these takes it from here, so that all name the same.
"""

import dataclasses
import functools
import json
import math
import re
import shlex
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from protein import envs_c
from protein.columns import TrialColumns, broken_rows
from protein.config.layers import Layers, flatten, unflatten
from protein.config.resolve import find_env, load
from protein.config.write import to_toml
from protein.direction import shown_contender, shown_trial, stored_score
from protein.engine import pareto, results
from protein.engine.results import Contender
from protein.engine.sample import Sample, sampled
from protein.errors import SpaceError, UsageError
from protein.space import Space
from protein.sweep.provenance import changes_since
from protein.trainer import kinds
from protein.trainer.errors import ConfigError as RunConfigError
from protein.trainer.kinds import LANGUAGE, kind_of_subject
from protein.types import (
    Direction,
    Limit,
    Params,
    SweepRecord,
    SweepSpec,
    TrialEnd,
    TrialRecord,
    TrialState,
    broken,
    runs_command,
    runs_trainer,
    unbroken,
    unreported,
)
from protein.units import format_duration, format_probability, parse_duration
from protein.view import commands, text

TOLD_SLOWDOWN = 1.25  # times the expected cost: more than rounding and the noise of a quiet machine
BEST = "best expected"
FRONT = "expected front"
KNEE = "knee"
NO_KNEE = "no knee: no config between the cheapest and the best of the front lies above the line between these two"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One answer: `name` is its kind, `trials` are the runs of the config, oldest first. Scores as shown."""

    name: str
    contender: Contender
    trials: tuple[TrialRecord, ...]

    @property
    def trial(self) -> TrialRecord:
        """The first run; later runs differ only in their seed."""
        return self.trials[0]

    def phrase(self) -> str:
        """Returns its expected score and cost, as in "score 18.20 (17.60 to 18.90) in 41.0s".

        With limits on measured values, the probability that it keeps them follows.
        """
        cost = text.seconds(self.contender.expected_cost_seconds)
        kept = "" if self.contender.keeps is None else f", limits kept with {format_probability(self.contender.keeps)}"
        return f"score {text.estimate(self.contender.score)} in {cost}{kept}"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """The answers of a sweep.

    Attributes:
        best: the best expected.
        under: the best expected under a limit of cost; None where no limit was asked for.
        knee: None where the front has none.
        front: the expected front, cheapest first; its last one is the best expected.
        best_measured: what measured better than the chosen one, under the same limit; None: nothing did.
        has_initial: whether the sweep has an initial config.
        initial: the initial config; None: there is none, or it was not trained to its end.
        cut_short: the trial with the best score among those that a limit of cost has ended, if it is better than all
            measured scores of the chosen one.
        direction: whether a higher score is better, or a lower one.
        limits: on what trials measure beside the score.
        unknown: a line on limits of whose metric no trial has a value; "": there are none.
        broken: the trial that measured best, where that is better than the chosen one and breaks a limit.
        trains: whether the sweep runs the trainer, and not a function or a command of the user's.
        has_flags: whether the sweep's limits are flags, and not keywords.
    """

    best: Choice
    under: Choice | None
    knee: Choice | None
    front: tuple[Choice, ...]
    best_measured: Choice | None
    has_initial: bool
    initial: Choice | None
    cut_short: TrialRecord | None
    direction: Direction
    trains: bool
    has_flags: bool = True
    limits: tuple[Limit, ...] = ()
    unknown: str = ""
    broken: TrialRecord | None = None

    @property
    def chosen(self) -> Choice:
        """What was asked for: the best under the limit, or overall."""
        return self.under or self.best

    def affordable(self, seconds: float) -> Choice | None:
        """Returns the best expected among the configs that are expected to cost at most `seconds`, if any."""
        fitting = [choice for choice in self.front if choice.contender.expected_cost_seconds <= seconds]
        return fitting[-1] if fitting else None

    def marks(self) -> dict[int, str]:
        """Returns the notes on trials in a table of the front, by number: the best expected one, and the knee."""
        found: dict[int, str] = {}
        for choice in (one for one in (self.best, self.knee) if one is not None):
            for trial in choice.trials:
                before = found.get(trial.number)
                found[trial.number] = choice.name if before is None else f"{before}, {choice.name}"
        return found

    def drawn(self) -> dict[str, Any]:
        """Returns what a picture of the front shows beside the trials: arguments of `figures.front`."""
        pointed = (choice for choice in (self.best, self.knee) if choice is not None)
        return {
            "expected": [choice.contender for choice in self.front],
            "marks": {choice.name: (choice.trial.number, choice.contender) for choice in pointed},
        }

    def notes(self) -> list[str]:
        """Returns warnings about the chosen config: better scores that are not recommended, a higher cost."""
        cut_short = None if self.cut_short is None else cut_short_note(self.cut_short, trains=self.has_flags)
        notes = (self.unknown or None, self._how_surely(), self._what_breaks())
        return [
            note for note in (*notes, self._why_not_best_measured(), cut_short, self.why_cheaper()) if note is not None
        ]

    def _how_surely(self) -> str | None:
        """Says so where the chosen config does not surely keep the limits."""
        keeps, number = self.chosen.contender.keeps, self.chosen.trial.number
        if keeps is None or keeps >= results.SURELY:
            return None
        listed = " and ".join(map(str, self.limits))
        if keeps >= results.LIKELY:
            sure = format_probability(results.SURELY)
            return f"no config keeps {listed} with {sure}; trial {number} does with {format_probability(keeps)}"
        measured = ", ".join(
            f"its {name} was {text.score(value)}"
            for name in dict.fromkeys(limit.name for limit in self.limits)
            if (value := self.chosen.trial.metrics.get(name)) is not None
        )
        nearest = (
            f"no config is likely to keep {listed}; trial {number} is the nearest, with {format_probability(keeps)}"
        )
        return f"{nearest}: {measured}" if measured else nearest

    def _what_breaks(self) -> str | None:
        """Says which limit a trial breaks that measured better than the chosen one."""
        if self.broken is None:
            return None
        side = "higher" if self.direction is Direction.MAXIMIZE else "lower"
        values = [
            f"{limit.name} {text.score(self.broken.metrics[limit.name])} breaks {limit}"
            for limit in broken(self.limits, self.broken.metrics)
        ]
        why = " and ".join(values) or "is not likely to keep the limits in another run"
        return f"trial {self.broken.number} measured {side} ({text.score(self.broken.score)}), and {why}"

    def why_cheaper(self) -> str | None:
        """Says what the chosen config took here, where other programs made that much longer than its expected cost."""
        trials, expected = self.chosen.trials, self.chosen.contender.expected_cost_seconds
        took = statistics.fmean(trial.run_seconds for trial in trials)
        if took <= TOLD_SLOWDOWN * expected:  # also where both are 0
            return None
        who, each = (
            (f"trial {trials[0].number}", "") if len(trials) == 1 else ("the runs of this config", " on average")
        )
        return (
            f"other programs kept the cores busy: {who} took {text.seconds(took)}{each}, and would take about"
            f" {text.seconds(expected)} without them"
        )

    def _why_not_best_measured(self) -> str | None:
        if self.best_measured is None:
            return None
        other = self.best_measured.contender
        highest = max(other.measured, key=lambda score: stored_score(score, self.direction))
        number = self.best_measured.trials[other.measured.index(highest)].number
        side = "higher" if self.direction is Direction.MAXIMIZE else "lower"
        line = f"trial {number} measured {side} ({text.score(highest)}), "
        if other.score.value == self.chosen.contender.score.value:  # of equal ones the cheapest is recommended
            chosen = self.chosen.trial.number
            return f"{line}but its expected score is the same as that of trial {chosen}, which costs less"
        return f"{line}which is probably luck: its expected score is {text.score(other.score.value)}"


def cut_short_note(trial: TrialRecord, *, trains: bool) -> str:
    """Says why a trial that a limit of cost has ended is not recommended, and how to lift the limit.

    Limits are flags where `protein sweep` `trains`; of a function they are keywords. The trial is as it is shown.
    """
    limit, flag, keyword = "cap on one trial's cost", "--max-trial-cost", "max_trial_cost"
    if trial.end is TrialEnd.OUT_OF_BUDGET:
        limit, flag, keyword = "end of the sweep's budget", "--max-cost", "budget"
    return (
        f"trial {trial.number} had score {text.score(trial.score)} when it was stopped at the {limit}, after"
        f" {text.seconds(trial.run_seconds)}; only trials that reach their end are recommended: allow more with"
        f" {flag if trains else keyword}"
    )


def best_cut_short(trials: Sequence[TrialRecord]) -> TrialRecord | None:
    """Returns the trial with the highest score among those that a limit of cost has ended, as stored.

    Confirmations are none: the config of each was trained to its end before.
    """
    cut = [trial for trial in trials if trial.end in (TrialEnd.CAPPED, TrialEnd.OUT_OF_BUDGET) and not trial.excluded]
    scored = [trial for trial in cut if trial.score is not None and not trial.confirms]
    return max(scored, key=lambda trial: trial.score or 0.0, default=None)


def measured_front(trials: TrialColumns, limits: Sequence[Limit]) -> list[int]:
    """Returns the numbers of the measured front's trials, cheapest first. Those that break a limit are not on it."""
    complete = np.array(trials.state, dtype=object) == TrialState.COMPLETE
    able = np.flatnonzero(complete & ~trials.excluded & ~np.array(broken_rows(trials, limits), dtype=bool))
    front = pareto.front_indices(trials.score[able], trials.run_seconds[able])
    return [int(number) for number in trials.number[able[front]]]


def beaten_measured_note(sweep: SweepRecord, trials: Sequence[TrialRecord]) -> str | None:
    """Returns a note where a trial that a limit of cost has ended scored higher than the best measured one."""
    trials = unbroken(trials, sweep.spec.limits)
    cut_short, best = best_cut_short(trials), pareto.best_under(trials)
    if cut_short is None or cut_short.score is None:
        return None
    if best is not None and best.score is not None and cut_short.score <= best.score:
        return None
    return cut_short_note(shown_trial(cut_short, sweep.spec.direction), trains=_has_flags(sweep.spec))


def recommendation(
    sweep: SweepRecord,
    trials: Sequence[TrialRecord],
    under: str | None = None,
    sample: Sample | None = None,
    *,
    contenders: Sequence[Contender] | None = None,
    unknown: str | None = None,
) -> Recommendation:
    """Returns what a sweep's trials recommend. Of a very large sweep, a sample of them is looked at.

    Args:
        sweep: as it is stored.
        trials: its trials as they are stored.
        under: a duration, the most that a config may be expected to cost; None: no limit.
        sample: where these trials are not all: what is known of the others (`protein.engine.sample`).
        contenders: those of the finished trials among `trials`, where the caller has them; None: they are found here.
        unknown: what is told of limits whose metric no trial has, where the caller knows; None: these trials tell.

    Raises:
        UsageError: no trial was trained to its end, none is expected to cost `under` or less, or that is no duration.
    """
    direction, trains, limits = sweep.spec.direction, runs_trainer(sweep.spec.config), sweep.spec.limits
    limit = None if under is None else parse_duration(under, "--under")
    if sample is None and contenders is None:
        trials, sample = sampled(trials, limits=limits)
    finished = [trial for trial in trials if trial.state.finished]
    if contenders is None:
        from protein.engine import recommend  # late: it loads the models, and some callers have their answers already

        space = stored_space(sweep.spec)
        seen = [trial.observation() for trial in finished]
        contenders = recommend.contenders(space, seen, sample, start=initial_params(sweep.spec), limits=limits)
    best = results.best(contenders)
    cut_short = best_cut_short(unbroken(trials, limits))
    if best is None:
        more = (
            ""
            if cut_short is None
            else f" ({cut_short_note(shown_trial(cut_short, direction), trains=_has_flags(sweep.spec))})"
        )
        if any(trial.excluded and trial.state is TrialState.COMPLETE for trial in trials):
            raise UsageError(
                f"all complete trials of sweep '{sweep.spec.name}' are excluded, so none can be recommended; take that"
                f" back with protein note {sweep.spec.name} --trial N --include"
            )
        ends = [(trial.state, trial.end) for trial in finished]
        if ends and all(state is TrialState.FAILED and end is not TrialEnd.INTERRUPTED for state, end in ends):
            raise UsageError(
                f"sweep '{sweep.spec.name}' has no complete trial yet: all {len(finished)} that ended failed;"
                f" protein status {sweep.spec.name} says why"
            )
        raise UsageError(
            f"sweep '{sweep.spec.name}' has no complete trial yet{more}; give it more time with protein sweep"
        )
    possible = score_range(sweep.spec)

    def choice(name: str, contender: Contender) -> Choice:
        runs = tuple(shown_trials(sweep, [finished[position] for position in contender.trials]))
        shown = shown_contender(contender, direction)
        shown = dataclasses.replace(shown, score=text.within(shown.score, possible))
        return Choice(name=name, contender=shown, trials=runs)

    affordable = None
    if limit is not None:
        affordable = results.best(contenders, limit)
        if affordable is None and under is not None:
            cheapest = min(results.recommendable(contenders), key=lambda one: one.expected_cost_seconds)
            raise too_expensive(sweep.spec.name, cheapest, under, "give --under")
    chosen = best if affordable is None else affordable
    able = results.recommendable(contenders)
    allowed = [c for c in able if limit is None or c.expected_cost_seconds <= limit]
    highest = max(allowed, key=lambda contender: max(contender.measured))
    others = [c for c in contenders if c not in able and (limit is None or c.expected_cost_seconds <= limit)]
    beyond = max(others, key=lambda contender: max(contender.measured), default=None)
    breaks = None
    if beyond is not None and max(beyond.measured) > max(chosen.measured):
        breaks = finished[beyond.trials[beyond.measured.index(max(beyond.measured))]]
    if cut_short is not None and (cut_short.score or 0.0) <= max(chosen.measured):
        cut_short = None
    if cut_short is not None and limit is not None and cut_short.run_seconds > limit:
        cut_short = None  # it would cost more than the limit that was asked for
    knee = results.knee(contenders)
    start = initial_params(sweep.spec)
    initial = None
    if start is not None:
        key = stored_space(sweep.spec).key
        initial = next((c for c in contenders if key(c.params) == key(start)), None)
    return Recommendation(
        best=choice(BEST, best),
        under=None if affordable is None else choice(f"best under {under}", affordable),
        knee=None if knee is None else choice(KNEE, knee),
        front=tuple(choice(FRONT, contender) for contender in results.expected_front(contenders)),
        best_measured=choice("best measured", highest) if max(highest.measured) > max(chosen.measured) else None,
        has_initial=start is not None,
        initial=None if initial is None else choice("initial config", initial),
        cut_short=None if cut_short is None else shown_trial(cut_short, direction),
        direction=direction,
        trains=trains,
        has_flags=_has_flags(sweep.spec),
        limits=limits,
        unknown=unreported(limits, (trial.metrics for trial in finished)) if unknown is None else unknown,
        broken=None if breaks is None else shown_trial(breaks, direction),
    )


def too_expensive(sweep: str, cheapest: Contender, limit: str, remedy: str) -> UsageError:
    """Returns the error for a limit of cost that no config keeps."""
    seconds = cheapest.expected_cost_seconds
    return UsageError(
        f"no trial of sweep '{sweep}' cost {limit} or less; the cheapest took {text.seconds(seconds)}, so {remedy}"
        f" {duration_above(seconds)} or more"
    )


def _has_flags(spec: SweepSpec) -> bool:
    return runs_trainer(spec.config) or runs_command(spec.config)


def initial_params(spec: SweepSpec) -> Params | None:
    """Returns the params of a sweep's initial config; None where it has none."""
    if not runs_trainer(spec.config):
        start: Params | None = spec.config.get("own", {}).get("start")
        return start
    return stored_space(spec).only_active(flatten(spec.config))


def stored_space(spec: SweepSpec) -> Space:
    """Returns a sweep's space. Raises `UsageError` where what the store holds is none."""
    try:
        return _space(json.dumps(spec.space))
    except SpaceError as error:
        raise UsageError(
            f"the stored space of sweep '{spec.name}' cannot be read, so nothing can be recommended; protein show still"
            f" lists its trials ({error})"
        ) from error


@functools.lru_cache(maxsize=16)
def _space(stored: str) -> Space:
    """A space is asked for several times by each command, and to make one with constraints takes 10 ms."""
    return Space.from_dict(json.loads(stored))


def stored_values(spec: SweepSpec, trial: TrialRecord) -> dict[str, Any]:
    """Returns the run config that a stored trial had, by dotted name; its seed is the trial's own."""
    return {**flatten(spec.config), **trial.params, "train.seed": trial.seed}


def shown_trials(sweep: SweepRecord, trials: Sequence[TrialRecord]) -> list[TrialRecord]:
    """Returns stored trials as every command shows them: scores as the user knows them, predictions clipped."""
    possible = score_range(sweep.spec)
    return [text.clipped(shown_trial(trial, sweep.spec.direction), possible) for trial in trials]


def score_range(spec: SweepSpec) -> tuple[float, float] | None:
    """Returns the lowest and the highest possible score as the user knows them; None where they are not known.

    The user gave them, or the environment has them. A language model's score is minus the bits per byte. Where
    self-play is rated, the score is a rating, on another scale than the environment's.
    """
    if spec.score_range is not None:
        return spec.score_range
    if kind_of_subject(spec.env) is LANGUAGE:
        return -math.inf, 0.0
    if spec.env not in envs_c.names():
        return None
    environment = envs_c.spec(spec.env)
    is_rated = environment.script_ratings and spec.config.get("selfplay", {}).get("on")
    return None if is_rated else environment.score_range


def duration_above(seconds: float) -> str:
    """Returns a duration that a flag takes, at least `seconds` and hardly more."""
    return format_duration(math.ceil(seconds) if seconds >= 10 else math.ceil(seconds * 100) / 100)


_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9._-]+")
MAX_MEASURED = 8  # scores of runs that the head of a file lists


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class FoundConfig:
    """A config file. `changes` are reasons why its expected score and cost may not hold here, in short sentences."""

    content: str
    changes: tuple[str, ...]


def found_config(sweep: SweepRecord, choice: Choice, path: Path) -> FoundConfig:
    """Returns the config of a recommendation as a file that is laid over today's config files.

    The sweep runs the trainer. The file will be at `path`, which its head names.

    Raises:
        UsageError: the sweep ran a function, or its environment or a value of it no longer exists.
    """
    below, trial = base_layers(sweep.spec), choice.trial
    values = stored_values(sweep.spec, trial)
    try:
        kinds.read(unflatten(values))
    except (RunConfigError, ValueError) as error:
        raise UsageError(
            f"the config of trial {trial.number} of sweep '{sweep.spec.name}' does not work with this version"
            f" ({error}); use version {trial.provenance.version} of protein-sweep, which found it"
        ) from error
    changes = config_changes(sweep.spec, choice, below)
    contender, origin = choice.contender, trial.provenance
    runs = "1 run" if contender.runs == 1 else f"{contender.runs} runs"
    measured = [text.score(score) for score in contender.measured]
    listed = ", ".join(measured[:MAX_MEASURED]) + (", ..." if len(measured) > MAX_MEASURED else "")
    head = [
        f"sweep '{sweep.spec.name}' of {sweep.spec.env}, {choice.name}: trial {trial.number} ({trial.origin})",
        f"expected score: {text.estimate(contender.score)}, with the central 80 % interval, by the {contender.basis}",
        f"measured score: {listed} ({runs})",
        f"expected cost: {text.seconds(contender.expected_cost_seconds)} of training on {origin.machine}",
        f"found with version {origin.version}, commit {origin.git_commit or 'unknown'}, on {trial.started_at:%Y-%m-%d}",
        *(f"note: {change}" for change in changes),
        f"train it with: {shlex.join([commands.NAME, 'train', '--config', str(path)])}",
        "Values that are not listed are those of the config files below this one.",
    ]
    space = Space.from_dict(sweep.spec.space)
    return FoundConfig(content=to_toml(values, space, below, head, found="searched"), changes=tuple(changes))


def base_layers(spec: SweepSpec) -> Layers:
    """Returns the config files of a sweep's environment as they are today, without the user's own file and flags.

    Raises:
        UsageError: the sweep ran a function, or its environment no longer exists.
    """
    if not runs_trainer(spec.config):
        raise UsageError(f"sweep '{spec.name}' ran {spec.env}, which has no config file; use --json")
    return load(find_env(spec.env, None, envs_c.names()))


def config_changes(spec: SweepSpec, choice: Choice, below: Layers) -> list[str]:
    """Returns what has changed since a config was found, and may change its score or its cost."""
    values = stored_values(spec, choice.trial)
    changes = changes_since(choice.trial.provenance)
    if new := [name for name in below.settings if name not in values]:
        changes.append(f"values that did not exist then keep today's default: {', '.join(new)}")
    return changes


def rung_path(path: Path | None, sweep: str, limit: str) -> Path:
    """Returns the file of one limit of a ladder: `pong.toml` and 10s give `pong_10s.toml`."""
    stem = Path(f"{_NOT_IN_A_NAME.sub('-', sweep)}.toml") if path is None else path
    suffix = stem.suffix or ".toml"
    return stem.with_name(f"{stem.stem}_{_NOT_IN_A_NAME.sub('-', limit.strip().lower())}{suffix}")
