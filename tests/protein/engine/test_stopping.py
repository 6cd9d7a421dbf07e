"""The rule that stops trials early, on hand-made histories: each clause has a case that it alone decides."""

import dataclasses
from typing import Any

import numpy as np
import pytest

from protein.engine.stopping import Rule, reason_to_stop
from protein.space import Categorical, Float, Integer, Space
from protein.types import Measurement, Observation, Params, TrialEnd, TrialState

SPACE = Space([Float("x", 0.0, 1.0), Integer("steps", 100, 100_000, scale="log")], cost_parameter="steps")
RULE = Rule(spared=0.0)
Curve = tuple[Measurement, ...]


def points(half: float, end: float, *, until: float = 1.0, steps: int = 1000, seconds: float = 10.0) -> Curve:
    """A curve through `half` at half of the run and `end` at its end, ten points a run, up to `until`."""
    shares = [i / 10 for i in range(1, 11) if i / 10 <= until + 1e-9]
    return tuple(
        Measurement(
            steps=round(steps * share),
            elapsed_seconds=seconds * share,
            score=half * 2 * share if share <= 0.5 else half + (end - half) * (2 * share - 1),
        )
        for share in shares
    )


def trial(
    x: float, half: float, end: float, *, steps: int = 1000, seconds: float = 10.0, curve: Curve | None = None
) -> Observation:
    return Observation(
        params={"x": x, "steps": steps},
        state=TrialState.COMPLETE,
        score=end,
        cost_seconds=seconds,
        curve=points(half, end, steps=steps, seconds=seconds) if curve is None else curve,
    )


# Twenty trials of one cost that rise straight to their ends, 0 to 19: at half they stand at half of that.
HISTORY = [trial(i / 100, i / 2, float(i)) for i in range(20)]


def ask(
    history: list[Observation],
    half: float = 1.0,
    *,
    until: float = 0.5,
    steps: int = 1000,
    seconds: float = 10.0,
    params: Params | None = None,
    rule: Rule = RULE,
    space: Space = SPACE,
) -> str | None:
    """Asks about a trial that stands at `half` at half of its run."""
    curve = points(half, 2 * half, until=until, steps=steps, seconds=seconds)
    return reason_to_stop(space, history, params or {"x": 0.77, "steps": steps}, curve, seed=0, rule=rule)


def test_a_trial_is_stopped_where_no_similar_one_came_near_the_front() -> None:
    assert ask(HISTORY) == (
        "at 50 % of its steps it ranked 18 of 21 comparable trials,"
        " and none of the 6 closest in rank ended near the front"
    )
    assert ask(HISTORY[::-1]) == ask(HISTORY)


def test_one_late_bloomer_that_stood_there_is_enough_to_go_on() -> None:
    assert ask([*HISTORY[1:], trial(0.5, 0.5, 19.0)]) is None


def test_near_the_front_is_good_enough() -> None:
    # The best fifth begins at 15.2: whoever ended there is no reason to stop, though it is not the best.
    history = [*HISTORY[1:], trial(0.5, 0.5, 17.0)]
    assert ask(history) is None
    assert ask(history, rule=dataclasses.replace(RULE, bar_quantile=1.0)) is not None


def test_the_front_is_that_of_its_own_cost() -> None:
    expensive = [trial(0.2 + i / 100, 40.0, 80.0, steps=8000, seconds=80.0) for i in range(8)]
    low = [trial(i / 100, 1.0, 2.0) for i in range(20)]
    own: Any = {"steps": 3000, "seconds": 30.0}  # what it will cost lies between them
    assert ask([*expensive, *low, trial(0.9, 0.5, 1.0)], half=0.9, **own) is None, "at its cost it is as good as any"
    best = trial(0.95, 5.0, 10.0)
    assert ask([*expensive, *low, trial(0.9, 0.5, 1.0), best], half=0.9, **own) is not None


def test_nothing_is_stopped_in_the_first_part_of_the_run_or_in_its_last() -> None:
    assert [ask(HISTORY, until=until) is None for until in (0.1, 0.3, 0.4, 0.9, 1.0)] == [
        True,
        True,
        False,
        False,
        True,
    ]


def test_nothing_is_stopped_among_the_first_trials() -> None:
    few = HISTORY[::2]
    assert ask(few) is not None
    assert ask(few[1:]) is None


def test_cheap_trials_run_on() -> None:
    cheap: Any = {"steps": 500, "seconds": 5.0}
    assert ask(HISTORY, **cheap) is None
    half_price = [dataclasses.replace(o, cost_seconds=4.0) for o in HISTORY]
    assert ask(half_price, **cheap) is not None


def test_trials_that_cost_much_less_are_no_yardstick() -> None:
    # Short runs end before learning takes off; they say nothing of one that costs six times as much.
    assert ask(HISTORY, steps=6000, seconds=60.0) is None
    as_expensive = [trial(0.5 + i / 100, i / 2, float(i), steps=3000, seconds=30.0) for i in range(10)]
    assert ask([*HISTORY, *as_expensive], steps=6000, seconds=60.0) is not None


def test_a_trial_in_the_upper_half_runs_on() -> None:
    # All that stood high fell to 0 (they overfit): the neighbours alone would stop what stands high.
    fallen = [trial(0.5 + i / 100, 10.0 + i / 10, 0.0) for i in range(8)]
    assert ask([*HISTORY, *fallen], half=10.3) is None
    assert ask([*HISTORY, *fallen, *[trial(0.8 + i / 100, 20.0 + i, 30.0) for i in range(20)]], half=10.1) is not None


def test_another_run_of_a_finished_config_runs_on() -> None:
    params = HISTORY[3].params
    assert ask(HISTORY, params=params) is None
    assert ask([o for o in HISTORY if o.params != params], params=params) is not None


def test_an_equal_choice_of_another_type_is_another_config() -> None:
    parameters = [*SPACE.parameters, Categorical("c", [1, True])]
    space = Space(parameters, cost_parameter="steps")
    history = [dataclasses.replace(one, params={**one.params, "c": True}) for one in HISTORY]
    assert ask(history, params=history[3].params, space=space) is None
    assert ask(history, params={**history[3].params, "c": 1}, space=space) is not None


def test_only_complete_trials_are_a_yardstick() -> None:
    cut = [dataclasses.replace(o, state=TrialState.PRUNED, end=TrialEnd.STOPPED_EARLY) for o in HISTORY]
    assert ask([*HISTORY[:9], *cut[9:]]) is None
    failed = [dataclasses.replace(o, state=TrialState.FAILED, score=None, end=TrialEnd.DIVERGED) for o in HISTORY]
    assert ask([*HISTORY[:9], *failed[9:]]) is None


def test_points_without_a_score_are_passed_over() -> None:
    def without(curve: Curve, *missing: int) -> Curve:
        return tuple(
            dataclasses.replace(point, score=None) if index in missing else point for index, point in enumerate(curve)
        )

    gaps = [dataclasses.replace(o, curve=without(o.curve, 0, 1)) for o in HISTORY]
    assert ask(gaps) == ask(HISTORY)
    late = [dataclasses.replace(o, curve=without(o.curve, *range(6))) for o in HISTORY]
    assert ask(late) is None, "no score to compare with at half of the run"
    params = {"x": 0.77, "steps": 1000}
    own = points(1.0, 2.0, until=0.6)
    seen = reason_to_stop(SPACE, HISTORY, params, without(own, 5), seed=0, rule=RULE)
    assert seen is not None and seen.startswith("at 50 % of its steps")
    assert reason_to_stop(SPACE, HISTORY, params, without(own, *range(6)), seed=0, rule=RULE) is None
    assert reason_to_stop(SPACE, HISTORY, params, (), seed=0, rule=RULE) is None
    bare = [dataclasses.replace(o, curve=()) for o in HISTORY]
    assert ask(bare) is None


def test_all_scores_equal_stop_nothing() -> None:
    assert ask([trial(i / 100, 1.0, 1.0) for i in range(20)], half=1.0) is None


def test_equal_costs_whose_mean_is_rounded_below_them_stop_nothing() -> None:
    history = [trial(i / 100, i / 2, float(i), seconds=0.1) for i in range(41)]
    assert np.mean([0.1] * 41) == 0.04 / 0.4 < 0.1
    point = Measurement(steps=400, elapsed_seconds=0.04, score=0.1)
    assert reason_to_stop(SPACE, history, {"x": 0.77, "steps": 1000}, [point], seed=0, rule=RULE) is None


def test_without_a_cost_parameter_all_runs_are_as_long_as_those_that_finished() -> None:
    space = Space([Float("x", 0.0, 1.0)])
    assert ask(HISTORY, space=space) == ask(HISTORY)
    uneven = [trial(i / 100, i / 2, float(i), steps=1000 + 500 * (i % 3)) for i in range(20)]
    assert ask(uneven, space=space) is None, "how long it will be is not known"


def test_a_cost_parameter_that_says_nothing_of_the_length_stops_nothing() -> None:
    wide = [dataclasses.replace(o, params={**o.params, "steps": 100 * (1 + i % 7)}) for i, o in enumerate(HISTORY)]
    assert ask(wide) is None


@pytest.mark.parametrize("spared", [0.0, 0.12, 1.0])
def test_a_share_of_the_losing_trials_may_finish_each_for_its_whole_run(spared: float) -> None:
    rule = dataclasses.replace(RULE, spared=spared)
    stopped = 0
    for i in range(400):
        params = {"x": 0.5 + i / 1000, "steps": 1000}
        reasons = [ask(HISTORY, until=until, params=params, rule=rule) for until in (0.5, 0.6, 0.7)]
        assert len({reason is None for reason in reasons}) == 1
        stopped += reasons[0] is not None
    assert abs(stopped / 400 - (1.0 - spared)) < 0.06
