"""When a contender is run again, which one, and when never."""

import dataclasses
import math
import random
from typing import Any

import numpy as np
import pytest

from protein.engine.reevaluation import MAX_RUNS, expected_gain
from protein.engine.settings import EngineSettings
from protein.space import Float, Integer, Space
from protein.sweep.methods import make_designer
from protein.types import Budget, Observation, Params, Suggestion, SuggestionKind, TrialState

SPACE = Space([Float("x", 0.0, 1.0), Integer("steps", 1000, 10_000, scale="log")], cost_parameter="steps")
SPENT = 30 * 10.0


def history(noise: float, num_trials: int = 30) -> list[Observation]:
    """Trials of 10 s each over a flat-topped hill; their numbers begin at 100, as if others had gone before."""
    rng = np.random.default_rng(3)
    found = []
    for i, x in enumerate(rng.permutation(np.linspace(0.0, 1.0, num_trials).round(4))):
        score = 1.0 - 3.0 * (x - 0.4) ** 2 + noise * rng.standard_normal()
        params: Params = {"x": float(x), "steps": 3000}
        found.append(
            Observation(params=params, state=TrialState.COMPLETE, score=score, cost_seconds=10.0, number=100 + i)
        )
    return found


def suggest(
    trials: list[Observation],
    *,
    remaining: float | None,
    share: float = 0.1,
    running: tuple[Params, ...] = (),
) -> Suggestion | None:
    designer = make_designer("protein", SPACE, None, settings=EngineSettings(reevaluation_share=share))
    return designer.suggest(trials, running, Budget(remaining_seconds=remaining), seed=0)


def repeats(trials: list[Observation], **arguments: Any) -> bool:
    suggestion = suggest(trials, **arguments)
    assert suggestion is not None
    again = suggestion.params in [trial.params for trial in trials]
    assert (
        again == (suggestion.kind is SuggestionKind.REEVALUATION) == suggestion.origin.startswith("re-evaluation of ")
    )
    return again


def test_at_the_end_of_the_budget_a_contender_is_run_again_and_named_by_its_number() -> None:
    trials = history(0.5)
    suggestion = suggest(trials, remaining=25.0)
    assert suggestion is not None
    (trial,) = (t for t in trials if t.params == suggestion.params)
    assert suggestion.origin == f"re-evaluation of trial {trial.number}, which may be the best"
    assert abs(float(trial.params["x"]) - 0.4) < 0.35
    assert suggestion.predicted_score is not None and suggestion.predicted_cost_seconds is not None
    unnumbered = suggest([dataclasses.replace(t, number=None) for t in trials], remaining=25.0)
    assert unnumbered is not None and unnumbered.params == suggestion.params
    assert unnumbered.origin == f"re-evaluation of the config that scored {trial.score:.4g}, which may be the best"


def test_the_order_of_the_history_does_not_matter() -> None:
    trials = history(0.5)
    trials += [dataclasses.replace(trials[7], number=200, score=0.9), dataclasses.replace(trials[7], number=201)]
    shuffled = random.Random(0).sample(trials, len(trials))
    assert suggest(trials, remaining=25.0) == suggest(shuffled, remaining=25.0)


def test_nothing_is_run_again_where_noise_is_small_or_before_the_end_or_without_a_budget() -> None:
    assert repeats(history(0.5), remaining=25.0)
    assert not repeats(history(0.0), remaining=25.0)
    assert not repeats(history(0.5), remaining=2.0 * SPENT)
    assert not repeats(history(0.5), remaining=None)
    assert not repeats(history(0.5), remaining=25.0, share=0.0)


def test_what_cannot_be_afforded_is_not_run_again() -> None:
    suggestion = suggest(history(0.5), remaining=8.0)  # every trial cost 10 s
    assert suggestion is None or suggestion.origin.startswith("re-evaluation") is False


def test_no_config_is_run_more_often_than_the_limit_nor_twice_at_once() -> None:
    trials = history(0.5)
    running: list[Params] = []
    for number in range(12):
        suggestion = suggest(trials, remaining=25.0)
        assert suggestion is not None
        trials.append(
            Observation(
                params=suggestion.params, state=TrialState.COMPLETE, score=0.8, cost_seconds=10.0, number=200 + number
            )
        )
    runs = [sum(trial.params == one.params for trial in trials) for one in trials]
    assert 1 < max(runs) <= MAX_RUNS
    for _ in range(3):
        parallel = suggest(history(0.5), remaining=25.0, running=tuple(running))
        assert parallel is not None and parallel.params not in running
        running.append(parallel.params)


def test_the_gain_is_the_expected_rise_of_the_best_posterior_mean() -> None:
    mean, sd, noise = np.array([0.0, 0.4, 1.0, 0.9]), np.array([0.8, 0.1, 0.3, 0.5]), 0.2
    rng = np.random.default_rng(0)
    for i, gain in enumerate(expected_gain(mean, sd, np.full(4, noise))):
        true = mean[i] + sd[i] * rng.standard_normal(400_000)
        measured = true + math.sqrt(noise) * rng.standard_normal(len(true))
        posterior = mean[i] + sd[i] ** 2 / (sd[i] ** 2 + noise) * (measured - mean[i])
        rise = np.maximum(posterior, np.max(np.delete(mean, i))) - np.max(mean)
        assert gain == pytest.approx(float(np.mean(rise)), abs=3e-3)
