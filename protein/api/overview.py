"""A stored sweep at a glance: what is best, whether it can be trusted, what matters, and what to do next.

The page Overview, `protein status NAME`, the end of a sweep and a notebook show these sentences. None of them computes
an answer of its own, so all of them say the same.

    glance      what the store tells: the state, what runs, the best measured score, failures. No model is fitted
    findings    what the models tell: what is recommended, trust, what matters, what next

A view shows a glance at once, and the findings when they are there. Both are plain data: `dataclasses.asdict` gives
what JSON takes. Scores are those that the user knows, costs are seconds of training.
"""

import dataclasses
import math
import shlex
from collections.abc import Mapping, Sequence

from protein.api import stores
from protein.api.answers import Answers, summary
from protein.api.recommended import (
    Choice,
    Recommendation,
    base_layers,
    initial_params,
    measured_front,
    shown_trials,
    stored_space,
)
from protein.columns import DOT_FIELDS, SweepSummary
from protein.config.resolve import file_name, make_space
from protein.direction import shown_score
from protein.engine.results import Outlook, RangeEnd, Verdict
from protein.errors import ProteinError, UsageError
from protein.ports import Store
from protein.run.lease import dead_owners
from protein.space import Categorical, Integer, Space
from protein.spelling import counted
from protein.sweep import ownership
from protein.sweep.ownership import Alive, Life
from protein.types import (
    CUT_SHORT,
    IMPORTED,
    Direction,
    Estimate,
    Params,
    Request,
    SuggestionKind,
    SweepRecord,
    TrialEnd,
    TrialRecord,
    TrialState,
    runs_trainer,
)
from protein.units import format_duration
from protein.view import commands, data, text

# Modules of models, and of what starts a sweep, are loaded late: a glance needs none of them.

ERROR = "error: "  # what the end of a sweep begins with where an error has ended it
MAX_RUNNING = 8  # trials that are listed
MAX_NUMBERS = 3  # trials that are named for each way to fail
_RECENT = 20  # trials, by whose pace the rest of a sweep is estimated
_WIDER = 0.25  # of a range on its own scale: how much wider the next one is
_MANY = 0.2  # of the trials that ended: failures, or trials that a limit of cost has ended


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A sentence, and the command that does what it says; "": there is none."""

    text: str
    command: str = ""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A trial that runs now.

    Attributes:
        number: of the trial.
        origin: why it was tried.
        cost_seconds: what it has cost so far.
        expected_seconds: what it is expected to cost in all; None: not known.
        score: the last one that it has reported; None: there is none yet.
    """

    number: int
    origin: str
    cost_seconds: float
    expected_seconds: float | None
    score: float | None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """One way in which trials have failed.

    Attributes:
        kind: the end in words, as in "out of memory".
        count: how many trials.
        numbers: the last ones of these.
        reason: that of the last one; "": it has none.
    """

    kind: str
    count: int
    numbers: tuple[int, ...]
    reason: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A value of the recommended config that is not that of the initial config. None: it has no such value."""

    name: str
    value: str | None
    initial: str | None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Best:
    """The recommended config.

    Attributes:
        text: what it is, beside the initial config, in a sentence.
        trial: number of its first run.
        score: the expected true score, with its 80 % interval.
        cost_seconds: what one run is expected to cost.
        runs: how often it was trained to its end.
        params: its values, as texts.
        changes: what differs from the initial config, what matters most first; empty where there is none.
        is_initial: whether it is the initial config.
        command: trains or runs it; "": it is a function's, which is not in the store.
    """

    text: str
    trial: int
    score: Estimate
    cost_seconds: float
    runs: int
    params: Mapping[str, str]
    changes: tuple[Change, ...]
    is_initial: bool
    command: str


_HELD = {
    "the score intervals are about right": "predictions held",
    "the score intervals are too narrow": "predictions were too sure",
    "the score intervals are too wide": "predictions were too careful",
}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Factor:
    """How much a parameter matters for the score.

    Attributes:
        name: of the parameter.
        verdict: "matters", "maybe" where the data do not tell, or "hardly".
        share: of what can be explained, 0 to 1, with its interval; None: not known.
        best: the best value, or its range, as a text; "": not known.
        law: how the best value changes with cost; "": it does not, or that is not known.
    """

    name: str
    verdict: Verdict
    share: Estimate | None
    best: str
    law: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What the models tell.

    Attributes:
        best: the recommended config; None: there is none, and `why_none` says why.
        trust: how far it can be trusted, the most important line first.
        matters: all parameters, those that matter most first; empty: not known, and `why_not_ranked` says why.
        next: what to do now, the most useful line first.
    """

    best: Best | None
    why_none: str
    trust: tuple[Line, ...]
    matters: tuple[Factor, ...]
    why_not_ranked: str
    next: tuple[Line, ...]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """A sweep at a glance.

    Attributes:
        sweep: its name.
        env: what is trained.
        method: how it is searched.
        lower_is_better: whether the lowest score is the best.
        life: whether a process runs it (`protein.sweep.ownership.Life`).
        state: what it does now, or how it ended, in sentences, with what goes on with it.
        headline: the best measured score, or that there is none, in a sentence.
        best_measured: number of that trial; None: there is none.
        spent: what was spent, of what, in words.
        spent_seconds: the same as a number, as is the budget; None: no budget is set.
        counts: how many trials are in which state, in words.
        trials: how many trials there are.
        eta_seconds: about how long the budget lasts, on the clock; None: not known, or nothing runs.
        running: what runs now.
        failures: the most frequent first.
        next: what to do where no model is needed to tell it.
        found: what the models tell; None: they were not asked.
    """

    sweep: str
    env: str
    method: str
    lower_is_better: bool
    life: str
    state: tuple[Line, ...]
    headline: str
    best_measured: int | None
    spent: str
    spent_seconds: float
    budget_seconds: float | None
    counts: tuple[str, ...]
    trials: int
    eta_seconds: float | None
    running: tuple[Running, ...]
    failures: tuple[Failure, ...]
    next: tuple[Line, ...]
    found: Findings | None = None


def overview(store: Store, sweep: SweepRecord, word: str | None = None) -> Overview:
    """Returns both parts; `word` is the user's for the store, which commands name. It fits the models."""
    return dataclasses.replace(glance(store, sweep, word), found=findings(Answers(store, sweep), sweep, word))


def glance(store: Store, sweep: SweepRecord, word: str | None = None) -> Overview:
    """Returns what the store tells of a sweep, without any model; see `overview`."""
    known = store.summaries([sweep.id])[sweep.id]
    now = ownership.alive(store, sweep, known)
    gone = set(dead_owners(known.running.values()))
    numbers = [number for number, owner in known.running.items() if owner not in gone]
    num_gone = len(known.running) - len(numbers)
    counts = data.counts_of(known.ends, len(known.waiting))
    counts = dataclasses.replace(counts, running=counts.running - num_gone, interrupted=counts.interrupted + num_gone)
    best = measured_best(store, sweep, known)
    running = shown_trials(sweep, store.trials(sweep.id, numbers=numbers[:MAX_RUNNING])) if numbers else []
    failures = _failures(store, sweep, known)
    budget = sweep.max_cost_seconds
    left = None if budget is None else max(budget - known.spent_seconds, 0.0)
    eta = None
    if left is not None and now.life is Life.RUNS and numbers:
        eta = _eta(store, sweep, left, num_trials=known.total, num_running=len(numbers))
    return Overview(
        sweep=sweep.spec.name,
        env=sweep.spec.env,
        method=sweep.spec.method,
        lower_is_better=sweep.spec.direction is Direction.MINIMIZE,
        life=str(now.life),
        state=_state(sweep, now, num_running=len(numbers), eta_seconds=eta, word=word),
        headline=_headline(sweep, best, known, failures),
        best_measured=None if best is None else best.number,
        spent=text.seconds(known.spent_seconds)
        + (" spent, no budget set" if budget is None else f" of {text.seconds(budget)} spent")
        + text.confirmed(known.confirmations, known.confirming_seconds),
        spent_seconds=known.spent_seconds,
        budget_seconds=budget,
        counts=tuple(([f"{counts.running} running"] if counts.running else []) + counts.ends()),
        trials=sum(known.ends.values()),
        eta_seconds=eta,
        running=tuple(map(_running, running)),
        failures=failures,
        next=tuple(_next_by_store(sweep, known, now, failures, word)),
    )


def findings(answers: Answers, sweep: SweepRecord, word: str | None = None) -> Findings:
    """Returns what the models tell of a sweep; see `overview`."""
    try:
        found = answers.recommendation()
    except UsageError as error:
        return Findings(best=None, why_none=sentence(str(error)), trust=(), matters=(), why_not_ranked="", next=())
    matters, why_not = ranking(answers)
    best = _best(sweep, found, word, num_ended(answers))
    rank = {factor.name: place for place, factor in enumerate(matters)}
    ranked = sorted(best.changes, key=lambda one: rank.get(one.name, len(rank)))
    return Findings(
        best=dataclasses.replace(best, changes=tuple(ranked)),
        why_none="",
        trust=tuple(_trust(answers, found)),
        matters=tuple(matters),
        why_not_ranked=why_not,
        next=tuple(_next_by_models(answers, sweep, found, word)),
    )


def next_of(found: Findings, life: str) -> tuple[Line, ...]:
    """Returns what the models advise; while a process runs the sweep, for later, as another one is refused."""
    if life != Life.RUNS:
        return found.next
    return tuple(Line(text=f"When it has ended: {line.text[:1].lower()}{line.text[1:]}") for line in found.next)


def measured_best(store: Store, sweep: SweepRecord, known: SweepSummary) -> TrialRecord | None:
    """Returns the complete trial that measured best within the sweep's limits, as stored; None: there is none."""
    number = known.best
    if number is not None and sweep.spec.limits:  # the store knows of no limits
        front = measured_front(store.columns(sweep.id, fields=(*DOT_FIELDS, "metrics")), sweep.spec.limits)
        number = front[-1] if front else None
    return None if number is None else next(iter(store.trials(sweep.id, curves=False, numbers=[number])), None)


def sentence(line: str) -> str:
    """Returns a line with a capital and a full stop."""
    line = _stopped(line)
    return line[:1].upper() + line[1:]


def _stopped(line: str) -> str:
    """Returns a line with a full stop, for the end of a sentence."""
    line = line.strip()
    return line + ("" if not line or line[-1] in ".!?" else ".")


# What the store tells.


def _running(trial: TrialRecord) -> Running:
    expected = trial.predicted_cost_seconds
    scores = [point.score for point in trial.curve if point.score is not None]
    return Running(
        number=trial.number,
        origin=trial.origin,
        cost_seconds=trial.cost_seconds,
        expected_seconds=None if expected is None else expected.value,
        score=scores[-1] if scores else None,
    )


def _eta(store: Store, sweep: SweepRecord, left_seconds: float, *, num_trials: int, num_running: int) -> float | None:
    """Returns how long a budget lasts on the clock at the pace of the last trials; None while that is not known.

    A trial is on the clock for longer than it trains. Times in which nothing ran do not count.
    """
    recent = range(max(0, num_trials - _RECENT), num_trials)
    trained = on_clock = 0.0
    for trial in store.trials(sweep.id, curves=False, numbers=recent):
        if trial.finished_at is not None:
            trained += trial.cost_seconds
            on_clock += (trial.finished_at - trial.started_at).total_seconds()
    return left_seconds / num_running * max(on_clock / trained, 1.0) if trained > 0 else None


def _state(
    sweep: SweepRecord, now: Alive, *, num_running: int, eta_seconds: float | None, word: str | None
) -> tuple[Line, ...]:
    """Returns what a sweep does now, or how it ended."""
    if now.life is Life.RUNS and sweep.requested is Request.RUN:
        if not num_running:
            return (Line(text=f"It runs, but none of its trials does now ({now.process()})."),)
        left = "" if eta_seconds is None else f"; the budget lasts about {text.seconds(eta_seconds)} more"
        runs = f"{counted(num_running, 'trial')} {'runs' if num_running == 1 else 'run'} now"
        return (Line(text=f"{runs}{left}."),)
    if now.life is Life.ENDED and sweep.ended.startswith(ERROR):
        why, again = sweep.ended.removeprefix(ERROR), again_command(sweep, word)
        return (Line(text=f"It ended with an error: {_stopped(why)} {_go_on(sweep, again)}", command=again),)
    if now.life is Life.NONE and not num_running:
        return (Line(text="No trial has started yet."),)
    lines = ownership.life_lines(sweep, now, num_running=num_running)
    name = f"'{sweep.spec.name}'"
    shown = [sentence(line.replace(name, "it", 1).removeprefix("it: ")) for line in lines]
    goes_on = now.life in (Life.GONE, Life.UNKNOWN)
    again = again_command(sweep, word) if goes_on else ""
    return tuple(Line(text=line, command=again if goes_on and i == 0 else "") for i, line in enumerate(shown))


def _go_on(sweep: SweepRecord, again: str) -> str:
    if again:
        return "Go on with:"
    config = sweep.spec.config
    what = "its command" if runs_trainer(config) or _runs_command(sweep) else "your program"
    return f"Run {what} again to go on."


def again_command(sweep: SweepRecord, word: str | None, *more: str) -> str:
    """Returns the command that goes on with a sweep; "" where its program or its own command line does."""
    words = own_words(sweep)
    return "" if words is None else commands.command("sweep", *words, *more, *stores.store_words(word))


def _headline(sweep: SweepRecord, best: TrialRecord | None, known: SweepSummary, failures: Sequence[Failure]) -> str:
    """Returns the best measured score in a sentence, or why there is none."""
    if best is not None:
        score = text.score(shown_score(best.score, sweep.spec.direction))
        return f"Best measured: trial {best.number}, score {score} in {text.seconds(best.run_seconds)}."
    num_ended = sum(number for end, number in known.ends.items() if end is not None)
    num_failed = sum(failure.count for failure in failures)
    if not num_ended:
        return "No trial has ended yet."
    if num_failed == num_ended:
        who = "The only trial" if num_ended == 1 else f"All {num_ended} trials"
        last = max(failures, key=lambda one: one.numbers[-1])
        why = f" Trial {last.numbers[-1]} ended with: {_stopped(last.reason or last.kind)}" if last.numbers else ""
        return f"{who} failed, so there is no score.{why}"
    if known.ends.get(TrialEnd.COMPLETE) and sweep.spec.limits:
        return f"No trial that was trained to its end keeps {' and '.join(map(str, sweep.spec.limits))}."
    return "No trial was trained to its end, so nothing can be recommended yet."


def _failures(store: Store, sweep: SweepRecord, known: SweepSummary) -> tuple[Failure, ...]:
    """Returns how trials have failed; those that were interrupted are none of them."""
    kinds = {end: n for end, n in known.ends.items() if end is not None and end.state is TrialState.FAILED and n}
    kinds.pop(TrialEnd.INTERRUPTED, None)
    if not kinds:
        return ()
    columns = store.columns(sweep.id, fields=("end",))
    last: dict[TrialEnd, list[int]] = {end: [] for end in kinds}
    for number, end in zip(columns.number.tolist(), columns.end, strict=True):
        if end in last:
            last[end] = [*last[end], number][-MAX_NUMBERS:]
    named = [numbers[-1] for numbers in last.values() if numbers]
    reasons = {trial.number: trial.reason for trial in store.trials(sweep.id, curves=False, numbers=named)}
    found = [
        Failure(
            kind=end.text,
            count=kinds[end],
            numbers=tuple(numbers),
            reason=text.cleaned(reasons.get(numbers[-1], ""), text.MAX_CELL).removeprefix(f"{end.text}: "),
        )
        for end, numbers in last.items()
        if numbers
    ]
    return tuple(sorted(found, key=lambda one: -one.count))


def _next_by_store(
    sweep: SweepRecord, known: SweepSummary, now: Alive, failures: Sequence[Failure], word: str | None
) -> list[Line]:
    """Returns what to do about failures, about a cap that ends many trials, and while there is no score."""
    found = []
    ended = sum(number for end, number in known.ends.items() if end is not None)
    failed = sum(failure.count for failure in failures)
    cut = sum(known.ends.get(end, 0) for end in CUT_SHORT)
    if failures and failed >= _MANY * ended:
        most = failures[0]
        why = most.kind if most.count == failed else f"{most.count} of them: {most.kind}"
        line = f"{failed} of {counted(ended, 'trial')} failed ({why}). Look at the last one, trial {most.numbers[-1]}:"
        words = ["show", sweep.spec.name, "--trial", str(most.numbers[-1]), *stores.store_words(word)]
        found.append(Line(text=line, command=commands.command(*words)))
    if cut and cut >= _MANY * ended:
        line = f"{cut} of {counted(ended, 'trial')} reached a limit of cost before the end. Allow more for one trial"
        budget = sweep.max_cost_seconds
        more = "" if budget is None else again_command(sweep, word, "--max-cost", format_duration(2.0 * budget))
        found.append(Line(text=f"{line}, with a larger budget:" if more else f"{line}.", command=more))
    if known.best is None and now.life is Life.RUNS:
        found.append(Line(text="Wait: nothing can be recommended until a trial has been trained to its end."))
    if known.best is None and now.life is Life.NONE:
        found.append(Line(text="Start it.", command=again_command(sweep, word)))
    return found


# What the models tell.


def num_ended(answers: Answers) -> int:
    """Returns how many trials of the search have ended."""
    known = zip(answers.columns.state, answers.columns.kind, strict=True)
    return sum(state.finished and kind is not SuggestionKind.REEVALUATION for state, kind in known)


def _best(sweep: SweepRecord, found: Recommendation, word: str | None, num_trials: int) -> Best:
    chosen, start = found.best, initial_params(sweep.spec)
    is_initial = found.initial is not None and found.initial.trial.number == chosen.trial.number
    return Best(
        text=sentence(summary(found, num_trials)),
        trial=chosen.trial.number,
        score=chosen.contender.score,
        cost_seconds=chosen.contender.expected_cost_seconds,
        runs=chosen.contender.runs,
        params={name: text.param(value) for name, value in chosen.contender.params.items()},
        changes=() if start is None or is_initial else changes(start, chosen.contender.params),
        is_initial=is_initial,
        command=train_command(sweep, chosen, word),
    )


def changes(start: Params, params: Params) -> tuple[Change, ...]:
    """Returns where two configs differ: values, and parameters that one of them has not."""
    both = (
        Change(
            name=name,
            value=text.param(params[name]) if name in params else None,
            initial=text.param(start[name]) if name in start else None,
        )
        for name in dict.fromkeys((*params, *start))
    )
    return tuple(one for one in both if one.value != one.initial)


def _runs_command(sweep: SweepRecord) -> bool:
    return "command" in sweep.spec.config


def train_command(sweep: SweepRecord, choice: Choice, word: str | None) -> str:
    """Returns the command that trains the recommended config, or runs it; "" for a sweep over a function."""
    spec = sweep.spec
    if _runs_command(sweep):
        from protein.api import command_sweep

        return command_sweep.command_line(spec, choice.trial, word)
    if not runs_trainer(spec.config):
        return ""
    return commands.command("train", "--env", spec.env, "--from", spec.name, *stores.store_words(word))


def _trust(answers: Answers, found: Recommendation) -> list[Line]:
    """Returns how far the recommended config can be trusted."""
    contender, number = found.best.contender, found.best.trial.number
    measured = [text.score(score) for score in contender.measured]
    expected = text.estimate(contender.score)
    if contender.runs == 1:
        first = f"Trial {number} was run once: it measured {measured[0]}, and its expected true score is {expected}."
    else:
        listed = ", ".join(measured[:5]) + (", ..." if len(measured) > 5 else "")
        first = f"It was run {contender.runs} times: {listed}. Its expected true score is {expected}."
    lines = [Line(text=first), *(Line(text=sentence(note)) for note in found.notes())]
    held = answers.held()
    return [*lines, Line(text=sentence(_held(held.verdict)))] if held.forecasts else lines


def _held(verdict: str) -> str:
    """Returns in plain words how well predictions held; see `protein.engine.forecasts`."""
    for long, short in _HELD.items():
        verdict = verdict.replace(long, short)
    return verdict.replace(" within the 80 % interval", " scores lay within their 80 % interval")


def ranking(answers: Answers) -> tuple[list[Factor], str]:
    """Returns the parameters, those that matter most first; or none, and why."""
    known = answers.matters()
    if known.problem:
        return [], sentence(known.problem)
    return [
        Factor(
            name=one.name,
            verdict=one.verdict,
            share=Estimate(value=one.share.value, low=one.share.low, high=one.share.high),
            best="" if one.verdict == "hardly" else text.best_values(one),
            law=one.law,
        )
        for one in known.parameters
    ], ""


def _next_by_models(answers: Answers, sweep: SweepRecord, found: Recommendation, word: str | None) -> list[Line]:
    """Returns what to do next: go on or stop, run the recommended config again, widen a range."""
    lines = []
    if found.best.contender.runs == 1 and len(answers.columns) > 1:
        lines.append(_again(sweep, found, word))
    ahead = answers.outlook()
    if ahead is not None:
        lines.append(_more(answers, sweep, ahead, found, word))
    return lines + wider_lines(sweep, answers.range_ends(), word)


def _more(answers: Answers, sweep: SweepRecord, ahead: Outlook, found: Recommendation, word: str | None) -> Line:
    """Says what more training is expected to bring, or that the sweep can stop."""
    seconds = ahead.horizons()[-1]
    span, num = f"{text.seconds(seconds)} more of training are", 0
    if seconds > ahead.spent_seconds:  # the shortest span that is told is longer than the whole sweep
        seconds, num = ahead.spent_seconds, num_ended(answers)
        span = f"{num} more trials are"
    rise = ahead.best(seconds)
    if ahead.room <= 0:
        return Line(text="Stop: the recommended config is expected to have the best possible score.")
    better = "lower" if sweep.spec.direction is Direction.MINIMIZE else "higher"
    gain = f"{text.score(rise.expected)} (0 to {text.score(rise.high)})"
    expected = f"{span} expected to bring a best score that is {better} by {gain}"
    needed, budget = math.ceil(ahead.spent_seconds + seconds), sweep.max_cost_seconds
    more = ["--max-cost", format_duration(needed)] if budget is None or budget < needed else []
    command = "" if num else again_command(sweep, word, *more)
    doubt = 0.5 * (found.best.contender.score.high - found.best.contender.score.low)
    if rise.high <= doubt:  # even a likely gain would hardly be noticed
        than = "less than the doubt about the recommended config's own score"
        return Line(text=f"Stop here, or go on for little: {expected}, {than}.", command=command)
    return Line(text=f"Go on if this is worth it: {expected}.", command=command)


def _again(sweep: SweepRecord, found: Recommendation, word: str | None) -> Line:
    """Says that the recommended config was run once, and how to run it again."""
    name = sweep.spec.name
    line = f"Run trial {found.best.trial.number} again: one run does not tell how much of its score was luck."
    if sweep.spec.method == IMPORTED:
        return Line(text=line)
    if not runs_trainer(sweep.spec.config) and not _runs_command(sweep):
        return Line(text=f"{line} In Python: Sweep(..., name={name!r}).confirm(...).")
    return Line(text=line, command=commands.command("best", name, "--confirm", *stores.store_words(word)))


def wider_lines(sweep: SweepRecord, ends: Sequence[RangeEnd], word: str | None) -> list[Line]:
    """Says which ranges to widen, with a command that does it in a new sweep, which learns from this one."""
    wide = {end.name: bound for end in ends if (bound := wider_bound(stored_space(sweep.spec), end)) is not None}
    lines = [sentence(end.text()) for end in ends]
    if not wide or not own_words(sweep):
        return [Line(text=line) for line in lines]
    sections: dict[str, list[str]] = {}
    for end in ends:
        if end.name in wide:
            section, _, key = end.name.partition(".")
            side = "min" if end.end == "low" else "max"
            sections.setdefault(section, []).append(f"{key} = {{ {side} = {wide[end.name]} }}")
    name = sweep.spec.name
    content = "".join("\\n".join([f"[{section}]", *found, ""]) for section, found in sections.items())
    file = f"{file_name(name)}-wider.toml"
    words = ["sweep", "--config", file, "--env", sweep.spec.env, "--name", f"{name}-wider", "--warm-start", name]
    if sweep.max_cost_seconds is not None:
        words += ["--max-cost", format_duration(sweep.max_cost_seconds)]
    command = f"printf {shlex.quote(content)} > {file} && {commands.command(*words, *stores.store_words(word))}"
    return [*(Line(text=line) for line in lines[:-1]), Line(text=lines[-1], command=command)]


def wider_bound(space: Space, end: RangeEnd) -> float | int | None:
    """Returns the end of a range that is wider by a quarter of it on its own scale; None: there is none to give."""
    parameter = next(one for one in space.parameters if one.name == end.name)
    if end.natural or isinstance(parameter, Categorical) or parameter.step is not None:
        return None
    low, high = float(parameter.low), float(parameter.high)
    sign = -1.0 if end.end == "low" else 1.0
    bound = low if end.end == "low" else high
    if parameter.scale == "logit":
        width = math.log(high / (1.0 - high)) - math.log(low / (1.0 - low))
        odds = math.log(bound / (1.0 - bound)) + sign * _WIDER * width
        far = 1.0 / (1.0 + math.exp(-odds))
        return 1.0 - float(f"{1.0 - far:.2g}") if far > 0.5 else float(f"{far:.2g}")
    if parameter.scale == "linear":
        far = bound + sign * _WIDER * (high - low)
        far = max(far, 0.0) if low >= 0.0 else far
    else:
        far = bound * (high / low) ** (sign * _WIDER)
    if parameter.scale == "pow2":
        far = 2.0 ** (math.floor(math.log2(far)) if sign < 0 else math.ceil(math.log2(far)))
    if not isinstance(parameter, Integer):
        return float(f"{far:.2g}") if parameter.scale != "pow2" else far
    least = 1 if parameter.low >= 1 else None
    whole = math.floor(far) if sign < 0 else math.ceil(far)
    whole = whole if least is None else max(whole, least)
    return None if whole in (parameter.low, parameter.high) else whole


def own_words(sweep: SweepRecord) -> list[str] | None:
    """Returns the words behind `protein sweep` that go on with a sweep of our trainer.

    None: they are not known, as values of its own were given to it, or it is none of our trainer.
    """
    from protein.api.definition import differences

    spec = sweep.spec
    if not runs_trainer(spec.config) or spec.method == IMPORTED:
        return None
    try:
        layers = base_layers(spec)
        today = dataclasses.replace(spec, config=layers.run_config().to_dict(), space=make_space(layers).to_dict())
        if differences(spec, today):
            return None
    except (ProteinError, ValueError):  # the environment is gone, or a value is unknown today
        return None
    usual = layers.sweep
    words = ["--env", spec.env, *([] if spec.name == file_name(spec.env) else ["--name", spec.name])]
    words += [] if spec.method == usual.method else ["--method", spec.method]
    words += [] if spec.seed == usual.seed else ["--seed", str(spec.seed)]
    return words + [word for limit in spec.limits for word in ("--require", str(limit))]
