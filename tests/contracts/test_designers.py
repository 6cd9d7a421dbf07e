"""What every designer promises (see `protein.ports.Designer`), whatever its method."""

import dataclasses
import functools
import math
import random
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protein.engine.settings import EngineSettings
from protein.errors import UsageError
from protein.ports import Designer
from protein.space import Categorical, Float, Integer, Space
from protein.sweep.methods import make_designer
from protein.types import (
    Budget,
    Measurement,
    Observation,
    Params,
    Suggestion,
    SuggestionKind,
    TrialEnd,
    TrialState,
)

SPACE = Space(
    [
        Float("lr", 1e-5, 1e-1, scale="log", default=1e-3),
        Float("gamma", 0.9, 0.9999, scale="logit", default=0.99),
        Integer("steps", 1000, 1_000_000, scale="log", default=30_000),
        Integer("batch", 64, 4096, scale="pow2", default=512),
        Integer("horizon", 16, 256, scale="pow2", default=64),
        Categorical("opt", ("adam", "muon", "sgd")),
    ],
    cost_parameter="steps",
    constraints=["batch <= 16 * horizon"],
)
NO_COST_PARAMETER = Space(SPACE.parameters, constraints=SPACE.constraints)
START: Params = {"lr": 3e-3, "gamma": 0.995, "steps": 20_000, "batch": 256, "horizon": 32, "opt": "muon"}


def cost(params: Params) -> float:
    return float(params["steps"]) * 1e-3 * (1.0 + 64.0 / float(params["batch"]))


def score(params: Params) -> float:
    distance: float = (math.log10(float(params["lr"])) + 2.5) ** 2
    return (1.0 - math.exp(-float(params["steps"]) / 1e5)) * math.exp(-distance) + bool(params["opt"] == "muon") * 0.1


def complete(params: Params, value: float | None = None, seconds: float | None = None) -> Observation:
    value, seconds = score(params) if value is None else value, cost(params) if seconds is None else seconds
    curve = tuple(
        Measurement(steps=int(float(params["steps"]) * f), elapsed_seconds=seconds * f, score=value * f)
        for f in (0.25, 0.5, 1)
    )
    return Observation(params=params, state=TrialState.COMPLETE, score=value, cost_seconds=seconds, curve=curve)


def failed(params: Params, end: TrialEnd = TrialEnd.DIVERGED, seconds: float = 1.0) -> Observation:
    return Observation(params=params, state=end.state, score=None, cost_seconds=seconds, reason=end.value, end=end)


def suggest(
    designer: Designer,
    history: list[Observation],
    running: Sequence[Params] = (),
    *,
    remaining: float | None = None,
    cap: float | None = None,
    seed: int = 0,
) -> Suggestion | None:
    return designer.suggest(history, running, Budget(remaining_seconds=remaining, max_trial_seconds=cap), seed)


def play(
    designer: Designer,
    num_trials: int,
    observe: Callable[[Params], Observation] = complete,
    history: list[Observation] | None = None,
) -> list[Observation]:
    history = list(history or [])
    for number in range(num_trials):
        suggestion = suggest(designer, history, seed=number)
        assert suggestion is not None
        history.append(observe(suggestion.params))
    return history


@functools.cache
def _played(method: str, has_cost_parameter: bool) -> list[Observation]:
    return play(make_designer(method, SPACE if has_cost_parameter else NO_COST_PARAMETER, START), 30)


def played(method: str, num_trials: int, space: Space = SPACE) -> list[Observation]:
    """The first trials, at most 30, of a sweep by this method, with which many tests begin."""
    return _played(method, space is SPACE)[:num_trials]


# One Optuna sampler of each kind: one without a state, and one whose state the designer rebuilds. The others differ in
# nothing that the contract speaks of, and are run in tests/protein/optuna/test_designer.py.
HELD_TO_IT = ("protein", "random", "optuna:tpe", "optuna:cmaes")


@pytest.fixture(params=HELD_TO_IT)
def method(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=[SPACE, NO_COST_PARAMETER], ids=["cost parameter", "no cost parameter"])
def space(request: pytest.FixtureRequest) -> Space:
    assert isinstance(request.param, Space)
    return request.param


def test_the_first_trial_is_the_initial_config(method: str, space: Space) -> None:
    first = suggest(make_designer(method, space, START), [])
    assert first is not None
    assert first.params == START
    assert (first.kind, first.origin) == (SuggestionKind.INITIAL_CONFIG, "initial config")


def test_a_start_outside_the_space_is_moved_into_it(method: str) -> None:
    first = suggest(make_designer(method, SPACE, {**START, "lr": 3.0, "batch": 4096}), [])
    assert first is not None
    SPACE.validate(first.params)
    assert first.params["lr"] == 0.1


def test_every_suggestion_is_valid_and_new(method: str, space: Space) -> None:
    history = played(method, 30, space)
    for observation in history:
        space.validate(observation.params)
    tried = [tuple(sorted(o.params.items())) for o in history]
    assert len(set(tried)) == 30


def test_nothing_is_run_again_at_the_end_of_a_noisy_sweep(method: str, space: Space) -> None:
    rng, designer = np.random.default_rng(0), make_designer(method, space, START)

    def noisy(params: Params) -> Observation:
        return dataclasses.replace(complete(params, score(params) + 0.5 * rng.standard_normal(), 10.0), curve=())

    history = play(designer, 20, noisy)
    for number in range(6):
        suggestion = suggest(designer, history, remaining=0.08 * sum(o.cost_seconds for o in history), seed=number)
        assert suggestion is not None
        assert suggestion.params not in [o.params for o in history]
        assert suggestion.kind is not SuggestionKind.REEVALUATION
        history.append(noisy(suggestion.params))


def test_the_same_arguments_give_the_same_suggestion(method: str) -> None:
    history = played(method, 14)
    one, two = (suggest(make_designer(method, SPACE, START), history, [START], remaining=500.0) for _ in range(2))
    assert one == two


def test_a_resumed_sweep_goes_on_as_if_nothing_had_happened(method: str) -> None:
    designer = make_designer(method, SPACE, START)
    whole = play(designer, 16)
    for split in (1, 5, 12):
        resumed = list(whole[:split])
        for number in range(split, 16):
            again = suggest(make_designer(method, SPACE, START), resumed, seed=number)
            assert again is not None
            resumed.append(complete(again.params))
        assert resumed == whole


@pytest.mark.parametrize("method", ["protein", "random"])  # to Optuna's samplers, the age of a trial matters
def test_the_order_of_the_history_does_not_matter(method: str) -> None:
    designer, history = make_designer(method, SPACE, START), played(method, 14)
    shuffled = list(history)
    random.Random(0).shuffle(shuffled)
    assert suggest(designer, history) == suggest(designer, shuffled)


def test_an_excluded_trial_teaches_nothing(method: str) -> None:
    designer, history = make_designer(method, SPACE, START), played(method, 14)
    x = SPACE.from_unit_many(SPACE.sample(3, np.random.default_rng(3)))
    # Whole and stopped ones and failures, without a cost: spent seconds do count.
    exploits = [
        complete(x[0], 1e6, 0.0),
        dataclasses.replace(complete(x[1], 1e6, 0.0), state=TrialState.PRUNED, end=TrialEnd.CAPPED),
        failed(x[2], seconds=0.0),
    ]
    kept_out = [dataclasses.replace(exploit, excluded=True, number=100 + i) for i, exploit in enumerate(exploits)]
    without = suggest(designer, history, remaining=500.0)
    assert suggest(designer, [*kept_out, *history], remaining=500.0) == without
    running = history[-1]
    for points in (1, 2, 3):
        expected = ask_to_stop(designer, history[:-1], running, points)
        assert ask_to_stop(designer, [*kept_out, *history[:-1]], running, points) == expected


def test_an_excluded_config_is_not_tried_again(method: str) -> None:
    space = Space([Categorical("a", ("x", "y", "z")), Integer("b", 1, 3)])
    start: Params = {"a": "y", "b": 2}
    designer = make_designer(method, space, start)
    first = suggest(designer, [])
    assert first is not None and first.params == start
    history = [dataclasses.replace(complete_flat(start, 1e6), excluded=True)]
    for number in range(8):
        suggestion = suggest(designer, history, seed=number)
        assert suggestion is not None and suggestion.params != start
        history.append(complete_flat(suggestion.params, float(number)))
    assert len({tuple(sorted(o.params.items())) for o in history}) == 9
    everything = suggest(designer, history, seed=9)
    assert everything is None or everything.kind is SuggestionKind.REEVALUATION


def test_all_trials_may_be_excluded(method: str, space: Space) -> None:
    designer = make_designer(method, space, START)
    history = [dataclasses.replace(one, excluded=True) for one in played(method, 12, space)]
    suggestion = suggest(designer, history, remaining=500.0)
    assert suggestion is not None
    space.validate(suggestion.params)
    assert suggestion.params not in [dict(one.params) for one in history]


def complete_flat(params: Params, value: float) -> Observation:
    return Observation(params=params, state=TrialState.COMPLETE, score=value, cost_seconds=1.0)


def ask_to_stop(designer: Designer, history: list[Observation], running: Observation, points: int) -> str | None:
    return designer.should_stop(history, running.params, running.curve[:points], seed=1)


def test_only_a_trial_that_cannot_win_is_stopped_and_always_for_the_same_reason(method: str) -> None:
    designer = make_designer(method, SPACE, START)
    x = SPACE.sample(30, np.random.default_rng(0))
    history = [complete({**params, "steps": 100_000}) for params in SPACE.from_unit_many(x)]
    best = max(float(o.score) for o in history if o.score is not None)
    losing = [complete({**o.params, "lr": float(o.params["lr"]) * 1.001}, -best) for o in history]
    before = list(history)
    reasons = [ask_to_stop(designer, history, trial, points=2) for trial in losing]
    assert reasons == [ask_to_stop(designer, history[::-1], trial, points=2) for trial in losing]
    assert history == before
    assert (len(set(filter(None, reasons))) > 0) == (method == "protein")
    promising = [complete(trial.params, 2.0 * best) for trial in losing]
    assert not any(ask_to_stop(designer, history, trial, points=2) for trial in promising)
    assert not any(ask_to_stop(designer, [], trial, points=2) for trial in losing), "nothing to compare with"


def test_early_stopping_can_be_switched_off() -> None:
    designer = make_designer("protein", SPACE, START, settings=EngineSettings(early_stopping=False))
    x = SPACE.sample(30, np.random.default_rng(0))
    history = [complete({**params, "steps": 100_000}) for params in SPACE.from_unit_many(x)]
    losing = [complete({**o.params, "lr": float(o.params["lr"]) * 1.001}, -9.0) for o in history]
    assert not any(ask_to_stop(designer, history, trial, points=2) for trial in losing)


def test_nothing_is_written_into_the_arguments(method: str) -> None:
    history = played(method, 12)
    before, running = list(history), [dict(START)]
    suggest(make_designer(method, SPACE, START), history, running)
    assert history == before
    assert running == [START]


def test_workers_get_different_points(method: str, space: Space) -> None:
    designer = make_designer(method, space, START)
    for history in (played(method, number, space) for number in (0, 4, 12)):
        running: list[Params] = []
        for _ in range(6):
            suggestion = suggest(designer, history, running)  # the same seed: only what runs differs
            assert suggestion is not None
            assert suggestion.params not in running
            running.append(suggestion.params)


def test_an_interrupted_trial_says_nothing(method: str) -> None:
    designer, history = make_designer(method, SPACE, START), played(method, 12)
    cut = failed(SPACE.from_unit(np.full(6, 0.4)), TrialEnd.INTERRUPTED, 7.0)
    # Its cost is spent all the same: the whole budget, spent and left, is what stays equal.
    assert suggest(designer, [*history, cut], remaining=1e4 - 7.0) == suggest(designer, history, remaining=1e4)
    first = suggest(designer, [failed(START, TrialEnd.INTERRUPTED)])
    assert first is not None
    assert first.params == START


def test_failures_everywhere_do_not_end_the_search(method: str, space: Space) -> None:
    history = play(make_designer(method, space, START), 20, failed)
    assert len({tuple(sorted(o.params.items())) for o in history}) == 20


@pytest.mark.parametrize(
    "observe",
    [
        lambda p: complete(p, 1.0),
        lambda p: complete(p, seconds=0.0),
        lambda p: complete(p, 1e6 if p["opt"] == "sgd" else score(p)),
        lambda p: complete(p, -1e6 if p["opt"] == "sgd" else score(p)),
        lambda p: complete(p, -1e-9 * score(p)),
        lambda p: complete(p, 1e150 * score(p)),
        lambda p: complete(p, seconds=1e9),
        lambda p: failed(p) if p["opt"] == "adam" else complete(p),
        lambda p: dataclasses.replace(complete(p), state=TrialState.PRUNED, end=None),
    ],
    ids=["equal", "zero cost", "high outlier", "low outlier", "tiny", "huge", "expensive", "failures", "stopped early"],
)
def test_no_result_breaks_the_next_suggestion(
    method: str, space: Space, observe: Callable[[Params], Observation]
) -> None:
    for observation in play(make_designer(method, space, START), 14, observe):
        space.validate(observation.params)


def test_repeated_trials_do_not_break_the_next_suggestion(method: str) -> None:
    designer = make_designer(method, SPACE, START)
    history = [complete(START, value) for value in (0.1, 0.2, 0.15)] * 5 + [failed(START)]
    suggestion = suggest(designer, history)
    assert suggestion is not None
    assert suggestion.params != START


def test_trials_that_the_space_cannot_read_are_left_out(method: str) -> None:
    designer, history = make_designer(method, SPACE, START), played(method, 12)
    strange = [complete({**START, "opt": "lion"}), complete({**START, "lr": 7.0}), complete({"steps": 10}, 1.0, 1.0)]
    spent = sum(o.cost_seconds for o in strange)
    assert suggest(designer, [*strange, *history], remaining=1e4 - spent) == suggest(designer, history, remaining=1e4)


def test_at_least_one_trial_is_possible_at_the_start(method: str, space: Space) -> None:
    assert suggest(make_designer(method, space, START), [], remaining=0.5) is not None
    assert suggest(make_designer(method, space, None), [], remaining=0.5) is not None
    assert suggest(make_designer(method, space, START), [], remaining=0.0) is None


@pytest.mark.parametrize("num_trials", [1, 5, 30])
def test_no_trial_overruns_the_budget(method: str, num_trials: int) -> None:
    designer, history = make_designer(method, SPACE, START), played(method, num_trials)
    for limit in (3.0, 10.0, 40.0):
        for seed in range(2):
            for remaining, cap in ((limit, None), (1e6, limit)):
                suggestion = suggest(designer, history, seed=seed, remaining=remaining, cap=cap)
                assert suggestion is not None
                assert cost(suggestion.params) < limit * 1.3  # 0.1 s to 2,000 s in the whole space


def test_when_not_even_the_cheapest_trial_fits_the_sweep_ends(method: str) -> None:
    designer = make_designer(method, SPACE, START)
    for num_trials in (1, 5, 15):
        history = played(method, num_trials)
        assert suggest(designer, history, remaining=1e-3) is None
        assert suggest(designer, history, cap=1e-3) is None
        assert suggest(designer, history, remaining=-1.0) is None


def test_a_budget_is_spent_and_kept(method: str) -> None:
    designer, budget = make_designer(method, SPACE, START), 400.0
    history: list[Observation] = []
    for number in range(400):
        spent = sum(o.cost_seconds for o in history)
        suggestion = suggest(designer, history, remaining=budget - spent, cap=100.0, seed=number)
        if suggestion is None or number == 25:
            break
        history.append(complete(suggestion.params))
    assert len(history) >= 10
    assert sum(o.cost_seconds for o in history) < 1.3 * budget


def test_every_point_of_a_small_space_is_tried_once(method: str) -> None:
    space = Space(
        [Categorical("a", ("x", "y", "z")), Integer("b", 1, 4), Categorical("c", (True, False))],
        constraints=["b <= 3 or c"],
    )
    designer = make_designer(method, space, {"a": "y", "b": 2, "c": True})
    history: list[Observation] = []
    while (suggestion := suggest(designer, history, seed=len(history))) is not None:
        history.append(complete({**suggestion.params, "steps": 1, "batch": 64, "lr": 1.0, "opt": "x"}, 1.0, 1.0))
        history[-1] = dataclasses.replace(history[-1], params=suggestion.params)
    assert len(history) == 21
    assert len({tuple(o.params.values()) for o in history}) == 21


CONDITIONAL = Space(
    [
        Categorical("model", ("svm", "tree")),
        Float("C", 1e-3, 1e3, "log", when="model == 'svm'"),
        Categorical("kernel", ("linear", "rbf"), when="model == 'svm'"),
        Float("gamma", 1e-4, 1.0, "log", when="kernel == 'rbf'"),
        Integer("depth", 1, 20, when="model == 'tree'"),
    ],
    constraints=["gamma < C", "depth != 7"],
)


def test_what_does_not_exist_is_never_suggested_and_no_point_comes_twice(method: str) -> None:
    def observe(params: Params) -> Observation:
        return complete_flat(params, -abs(float(params.get("gamma", 1.0)) - 0.01) + (params["model"] == "svm"))

    start: Params = {"model": "tree", "depth": 3, "C": 1.0}
    history = play(make_designer(method, CONDITIONAL, start), 14, observe)
    assert history[0].params == {"model": "tree", "depth": 3}
    for observation in history:
        CONDITIONAL.validate(observation.params)
    assert len({CONDITIONAL.key(observation.params) for observation in history}) == 14
    again = suggest(make_designer(method, CONDITIONAL, start), history[:13], seed=13)
    assert again is not None
    assert again.params == history[13].params


def test_every_point_of_a_small_conditional_space_is_tried_once(method: str) -> None:
    space = Space(
        [
            Categorical("a", ("x", "y")),
            Integer("b", 1, 3, when="a == 'x'"),
            Categorical("c", (True, False), when="a == 'y' or b > 1"),
        ]
    )
    history: list[Observation] = []
    designer = make_designer(method, space, None)
    while (suggestion := suggest(designer, history, seed=len(history))) is not None:
        history.append(complete_flat(suggestion.params, float(len(suggestion.params))))
    assert len(history) == len({space.key(o.params) for o in history}) == 1 + 2 * 2 + 2


@given(data=st.data())
@settings(max_examples=25, deadline=None)
@pytest.mark.parametrize("method_name", HELD_TO_IT)
def test_any_history_gets_a_valid_new_suggestion(method_name: str, data: st.DataObject) -> None:
    x = SPACE.sample(16, np.random.default_rng(data.draw(st.integers(0, 10**6))))
    history = []
    for params in SPACE.from_unit_many(x[: data.draw(st.integers(0, 16))]):
        value = data.draw(st.one_of(st.none(), st.floats(-1e12, 1e12)))
        seconds = data.draw(st.floats(0.0, 1e8))
        history.append(failed(params, seconds=seconds) if value is None else complete(params, value, seconds))
    suggestion = suggest(make_designer(method_name, SPACE, START), history, seed=data.draw(st.integers(0, 2**31 - 1)))
    assert suggestion is not None
    SPACE.validate(suggestion.params)
    assert suggestion.params not in [o.params for o in history]
    for estimate in (suggestion.predicted_score, suggestion.predicted_cost_seconds):
        assert estimate is None or all(math.isfinite(v) for v in (estimate.low, estimate.value, estimate.high))


def test_an_unknown_method_names_the_nearest() -> None:
    with pytest.raises(UsageError, match="did you mean 'protein'"):
        make_designer("proteins", SPACE, START)
