"""The sentence that says what a sweep has found."""

import dataclasses

import pytest
from sample_trials import sweep_record, trial

from protein.api.answers import relative_cost, summary, sweep_outlook
from protein.api.recommended import Choice, Recommendation, recommendation
from protein.engine.results import MODEL, Contender
from protein.errors import UsageError
from protein.space import Categorical, Space
from protein.types import Direction, Estimate, TrialEnd, TrialState


def choice(number: int, score: float, cost_seconds: float) -> Choice:
    one = trial(number, cost_seconds, score)
    contender = Contender(
        params=one.params,
        score=Estimate(value=score, low=score - 1.0, high=score + 1.0),
        expected_cost_seconds=cost_seconds,
        trials=(number,),
        measured=(score,),
        basis=MODEL,
    )
    return Choice(name="", contender=contender, trials=(one,))


def found(best: Choice, initial: Choice | None, knee: Choice | None = None) -> Recommendation:
    return Recommendation(
        best=best,
        under=None,
        knee=knee,
        front=(best,),
        best_measured=None,
        has_initial=initial is not None,
        initial=initial,
        cut_short=None,
        direction=Direction.MAXIMIZE,
        trains=True,
    )


INITIAL = choice(0, 20.61, 26.0)


@pytest.mark.parametrize(
    ("best", "initial", "knee", "said"),
    [
        (
            INITIAL,
            INITIAL,
            choice(4, 15.75, 2.0),
            "this is your initial config: nothing beat it (expected score 20.61 (19.61 to 21.61) in 26.0s); trial 4,"
            " the knee, is expected to score 15.75 at about 1/13 of its cost",
        ),
        (
            INITIAL,
            INITIAL,
            None,
            "this is your initial config: nothing beat it (expected score 20.61 (19.61 to 21.61) in 26.0s)",
        ),
        (
            choice(12, 20.6, 9.0),
            choice(0, 15.2, 26.0),
            None,
            "trial 12 is expected to beat your initial config: score 20.60 instead of 15.20, at about a third of its"
            " cost",
        ),
        (
            choice(7, 20.61, 13.0),
            INITIAL,
            None,
            "trial 7 is expected to score as well as your initial config (20.61), at about half of its cost",
        ),
        (choice(3, 5.0, 2.0), None, None, "best found: trial 3, expected score 5.000 (4.000 to 6.000) in 2.00s"),
    ],
)
def test_what_was_found_is_one_sentence(best: Choice, initial: Choice | None, knee: Choice | None, said: str) -> None:
    assert summary(found(best, initial, knee)) == said


def test_an_initial_config_without_a_final_score_is_named() -> None:
    without = dataclasses.replace(found(choice(3, 5.0, 2.0), None), has_initial=True)
    assert summary(without) == (
        "best found: trial 3, expected score 5.000 (4.000 to 6.000) in 2.00s; your initial config was not trained to"
        " its end"
    )


@pytest.mark.parametrize(
    ("cost_seconds", "said"),
    [
        (100.0, "at about the same cost"),
        (108.0, "at about the same cost"),
        (250.0, "at 2.5 times its cost"),
        (2000.0, "at 20 times its cost"),
        (85.0, "at 85 % of its cost"),
        (52.0, "at about half of its cost"),
        (11.0, "at about a ninth of its cost"),
        (0.05, "at about 1/2,000 of its cost"),
    ],
)
def test_a_cost_is_said_beside_another(cost_seconds: float, said: str) -> None:
    assert relative_cost(choice(1, 1.0, cost_seconds), choice(0, 1.0, 100.0)) == said


def test_a_stored_space_that_cannot_be_read_is_named() -> None:
    with pytest.raises(UsageError, match="the stored space of sweep 'pong' cannot be read, so nothing"):
        recommendation(sweep_record("pong"), [])
    assert sweep_outlook(sweep_record("pong"), []) is None  # it must not hide the rest of a status


def test_a_sweep_whose_trials_all_failed_is_not_given_more_time() -> None:
    failed = dataclasses.replace(trial(0, 1.0, 1.0), score=None, state=TrialState.FAILED, end=TrialEnd.USER_ERROR)
    with pytest.raises(UsageError, match=r"all 1 that ended .*; protein status pong says why"):
        recommendation(sweep_record("pong"), [failed], contenders=[])
    stopped = dataclasses.replace(failed, end=TrialEnd.INTERRUPTED)
    with pytest.raises(UsageError, match="give it more time"):
        recommendation(sweep_record("pong"), [failed, stopped], contenders=[])


def test_the_initial_config_is_not_one_with_an_equal_choice_of_another_type() -> None:
    contenders = [
        dataclasses.replace(choice(number, 1.0, 1.0).contender, params={"x": value})
        for number, value in enumerate((1, True))
    ]
    sweep = sweep_record("pong")
    space = Space([Categorical("x", [1, True])]).to_dict()
    spec = dataclasses.replace(sweep.spec, space=space, config={"own": {"start": {"x": True}}})
    trials = [trial(0, 1.0, 1.0), trial(1, 1.0, 1.0)]
    found = recommendation(dataclasses.replace(sweep, spec=spec), trials, contenders=contenders)
    assert found.initial is not None and found.initial.contender.params["x"] is True
