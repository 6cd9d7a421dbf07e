"""One cell of the comparison: a method on a task until a budget or a number of trials is spent, and its figures.

Notation
    total        the budget in seconds: a multiple of the mean cost of a random config (`Reference.mean_cost`)
    truth        true score of what was run, at the steps that it reached, normalised: 0 the median random config, 1 the
                 best known; below 0 counts as 0
    log cost     of the whole run, where a trial has gone on with an earlier one; the budget counts the rest alone
    incumbent    the trial that the method would recommend at that moment: the one that measured best among all that
                 gave a score, or the method's own recommendation where it has one
    start        "default": every method begins with the task's initial config;  "none": a blind run, without one

Figures
    best         truth of the incumbent at the end: of the config that the method hands over
    measured     truth of what measured best
    recommended  truth of what this project's recommender (`protein.engine.recommend`) takes of the run's trials
    tried        highest truth of all configs that were trained to their end
    initial      truth of the task's initial config, whoever tries it; None where it gives no score
    volume       hypervolume under (truth, log cost) of everything that was run, over that of the ideal front
    area         mean over the budget of the incumbent's truth;  area_measured: of the truth of what measured best
    fail         share of trials that failed
    to90, to95   mean random-trial costs spent until the incumbent's truth first reached .90, .95; None: it never did
    trials, pruned, spent (share of the budget), think (mean seconds for one suggestion)
    trace        truth of the incumbent, in thousandths, at the budget's shares `TRACE_SHARES`
    front        volume, in thousandths, at the same shares

A trial that would overrun the budget is not counted, and the rest of the budget is lost. A method that ignores the
budget begins a long run exactly as a short one, so the long run gives the figures of both.
"""

import dataclasses
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from engine.methods import make_method
from engine.protocol import ContinuableTask, Method, Task
from engine.reference import Reference, reference
from engine.tasks import make_task
from numpy.typing import NDArray

from protein.engine.recommend import contenders
from protein.engine.results import best
from protein.space import Space
from protein.types import Budget, Measurement, Observation, Params, TrialState

Array = NDArray[np.float64]

DEFAULT, BLIND = "default", "none"  # with and without an initial config
TRACE_SHARES = np.geomspace(0.01, 1.0, 40)
_ROUNDING = 1e-9  # of sums of costs
_references: dict[tuple[str, int], Reference] = {}


@dataclasses.dataclass(slots=True)
class Run:
    """What a method did: its trials, the seconds for each suggestion, and its own recommendation after each, if any."""

    history: list[Observation] = dataclasses.field(default_factory=list)
    think_seconds: list[float] = dataclasses.field(default_factory=list)
    advice: list[Params | None] = dataclasses.field(default_factory=list)


def run_cell(
    method: str, family: str, seed: int, limits: Sequence[tuple[float, int]], start: str = DEFAULT
) -> list[dict[str, Any]]:
    """Runs one method on one task, for each of some limits.

    Args:
        method: name for `make_method`.
        family: of the task.
        seed: of the task and of the method.
        limits: pairs of a budget, in mean random-trial costs, and a maximal number of trials; one result for each.
        start: `DEFAULT` or `BLIND`.
    """
    task = make_task(family, seed)
    if (family, seed) not in _references:
        _references[family, seed] = reference(task)
    scale, rows = _references[family, seed], []
    longest: Run | None = None
    for budget, cap in sorted(limits, reverse=True):
        optimiser = make_method(method, task.space, None if start == BLIND else task.start, seed)
        total = budget * scale.mean_cost
        if longest is None or not optimiser.budget_free or cap > len(longest.history):
            run = play(task, optimiser, total_seconds=total, cap=cap, seed=seed)
            longest = longest or run
        else:
            run = prefix(longest, total_seconds=total, cap=cap)
        rows.append(
            {"method": method, "family": family, "seed": seed, "budget": budget, "start": start, "cap": cap}
            | {"initial": initial_truth(task, scale, seed)}
            | figures(task, scale, run, total)
        )
    return rows


def initial_truth(task: Task, scale: Reference, seed: int) -> float | None:
    """Returns the truth of a task's initial config; None where it gives no score."""
    observation = task.run(task.start, seed=seed)
    if observation.score is None:
        return None
    return round(max(float(scale.normalise(np.array([task.true_score(observation)]))[0]), 0.0), 4)


def play(task: Task, method: Method, *, total_seconds: float, cap: int, seed: int) -> Run:
    """Runs a method on a task until the budget or the number of trials is used up, or until it suggests None."""
    run, spent = Run(), 0.0
    while len(run.history) < cap:
        began = time.perf_counter()
        budget = Budget(remaining_seconds=total_seconds - spent, remaining_trials=cap - len(run.history))
        params = method.ask(run.history, budget)
        thinking = time.perf_counter() - began
        if params is None:
            break
        left = total_seconds - spent

        def watch(curve: tuple[Measurement, ...], params: Params = params, left: float = left) -> bool:
            begins = method.continues is None  # the rule of early stopping knows runs from their first step only
            return curve[-1].elapsed_seconds > left or (begins and method.watch(params, curve))

        repeat = sum(dict(o.params) == dict(params) for o in run.history)
        earlier = run_before(run.history, method.continues)
        if isinstance(task, ContinuableTask) and earlier:
            observation = task.go_on(params, earlier=earlier, seed=seed, repeat=repeat, watch=watch)
        else:
            observation = task.run(params, seed=seed, repeat=repeat, watch=watch)
        can = isinstance(task, ContinuableTask) and repeat == 0  # `go_on` knows the luck of a config's first run alone
        resumable_seconds = observation.run_seconds if can else None
        observation = dataclasses.replace(observation, number=len(run.history), resumable_seconds=resumable_seconds)
        if spent + observation.cost_seconds > total_seconds * (1.0 + _ROUNDING):
            break
        spent += observation.cost_seconds
        run.history.append(observation)
        run.think_seconds.append(thinking)
        method.tell(observation)
        run.advice.append(method.recommend(run.history) if method.recommends else None)
    return run


def run_before(history: Sequence[Observation], number: int | None) -> list[Observation]:
    """Returns the trials of the run that reaches up to trial `number`, oldest first; none for None."""
    if number is None:
        return []
    return [*run_before(history, history[number].continues), history[number]]


def prefix(run: Run, *, total_seconds: float, cap: int) -> Run:
    """Returns the run of a method that ignores the budget, under a smaller budget."""
    spent = np.cumsum([o.cost_seconds for o in run.history])
    kept = min(int(np.sum(spent <= total_seconds * (1.0 + _ROUNDING))), cap)
    return Run(run.history[:kept], run.think_seconds[:kept], run.advice[:kept])


def figures(task: Task, scale: Reference, run: Run, total_seconds: float) -> dict[str, Any]:
    """Returns a run's figures: see the head of this file."""
    history = run.history
    cost = np.array([o.run_seconds for o in history])
    truth = np.full(len(history), np.nan)
    scored = [i for i, o in enumerate(history) if o.score is not None]
    if scored:
        truth[scored] = scale.normalise(np.array([task.true_score(history[i]) for i in scored]))
    truth = np.maximum(truth, 0.0)  # NaN, where there is no score, stays
    held = incumbents(history, run.advice, truth)
    measured = incumbents(history, [None] * len(history), truth)
    complete = [i for i in scored if history[i].state is TrialState.COMPLETE]
    end = np.cumsum([o.cost_seconds for o in history])
    # Between the ends of trials i and i + 1 the incumbent is that after trial i; before the first there is none.
    stays = np.diff(np.append(end, max(total_seconds, end[-1]))) if history else np.empty(0)
    done = np.searchsorted(end, TRACE_SHARES * total_seconds * (1.0 + _ROUNDING), side="right")
    before = np.concatenate([[0.0], held])
    front = [_volume(scale, truth[:n], cost[:n]) for n in range(len(history) + 1)]
    result: dict[str, Any] = {
        "best": round(float(before[-1]), 4),
        "measured": round(float(measured[-1]), 4) if history else 0.0,
        "recommended": round(_recommended(task.space, history, truth), 4),
        "tried": round(float(np.max(truth[complete], initial=0.0)), 4),
        "volume": round(front[-1], 4),
        "area": round(float(np.sum(held * stays)) / total_seconds, 4),
        "area_measured": round(float(np.sum(measured * stays)) / total_seconds, 4),
        "fail": round(1.0 - len(scored) / max(len(history), 1), 4),
    }
    for name, level in (("to90", 0.90), ("to95", 0.95)):
        reached = np.flatnonzero(held >= level)
        result[name] = round(float(end[reached[0]]) / scale.mean_cost, 2) if len(reached) else None
    return result | {
        "trials": len(history),
        "pruned": sum(o.state is TrialState.PRUNED for o in history),
        "spent": round(sum(o.cost_seconds for o in history) / total_seconds, 3),
        "think": round(sum(run.think_seconds) / max(len(history), 1), 4),
        "trace": [round(1000.0 * v) for v in before[done].tolist()],
        "front": [round(1000.0 * front[n]) for n in done.tolist()],
    }


def incumbents(history: Sequence[Observation], advice: Sequence[Params | None], truth: Array) -> Array:
    """Returns the incumbent's truth after each of n trials, `n`; 0 while nothing has given a score."""
    held, best_score, best_truth = np.zeros(len(history)), -np.inf, 0.0
    by_params: dict[frozenset[tuple[str, Any]], float] = {}
    for i, observation in enumerate(history):
        if observation.score is not None:
            if observation.state is TrialState.COMPLETE:
                by_params.setdefault(frozenset(observation.params.items()), float(truth[i]))
            if observation.score > best_score:
                best_score, best_truth = observation.score, float(truth[i])
        recommended = advice[i]
        held[i] = best_truth if recommended is None else by_params[frozenset(recommended.items())]
    return held


def _recommended(space: Space, history: Sequence[Observation], truth: Array) -> float:
    """Truth of what our recommender takes of these trials; 0 where no trial was trained to its end."""
    chosen = best(contenders(space, history))
    return 0.0 if chosen is None else float(truth[chosen.trials[0]])


def _volume(scale: Reference, truth: Array, cost: Array) -> float:
    scored = np.isfinite(truth)
    return scale.volume(truth[scored], cost[scored])
