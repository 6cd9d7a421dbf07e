"""Parameters whose best values lie on the end of their range: planted ones are found, and others are not named."""

from collections.abc import Sequence

import pytest
from planted_sweeps import Array, searched

from protein.analysis.range_ends import MIN_TRIALS, range_ends
from protein.engine import recommend
from protein.engine.results import RangeEnd
from protein.space import Categorical, Float, Integer, Parameter, Space
from protein.types import Observation

SPACE = Space(
    [
        *(Float(f"p{i}", 1e-4, 1e-1, scale="log") for i in range(6)),
        Integer("steps", 100, 10_000, scale="log"),
    ],
    cost_parameter="steps",
)


def planted(slope: float) -> list[list[Observation]]:
    """Sweeps in which p0 rises, p1 and p2 have their best values inside, p3 to p5 do nothing, and steps help much."""

    def score(x: Array) -> float:
        inside = -4.0 * (x[1] - 0.35) ** 2 - 4.0 * (x[2] - 0.7) ** 2
        return float(slope * x[0] + inside + x[6])

    return [searched(SPACE, score, num_trials=60, seed=seed, num_random=10) for seed in range(10)]


def found_in(space: Space, trials: Sequence[Observation]) -> list[RangeEnd]:
    return range_ends(recommend.learn(space, trials))


def test_finds_a_planted_end_and_gives_no_false_alarm() -> None:
    found = [found_in(SPACE, trials) for trials in planted(2.0)]
    hits = [one for ends in found for one in ends if (one.name, one.end) == ("p0", "high")]
    others = [one for ends in found for one in ends if (one.name, one.end) != ("p0", "high")]
    assert len(hits) >= 7, "of 10 sweeps"
    assert len(others) <= 1, "of 50 chances; 'steps' is the cost parameter and is never named"
    assert all(one.probability >= 0.9 and one.effect >= 0.15 and one.bound == 0.1 for one in hits)


def test_where_nothing_matters_nothing_is_named() -> None:
    found = [
        found_in(SPACE, searched(SPACE, lambda x: 0.0, num_trials=40, seed=seed, num_random=10)) for seed in range(10)
    ]
    assert sum(map(len, found)) <= 1, "of 60 chances"


def test_a_low_end_of_few_values() -> None:
    space = Space([Integer("layers", 2, 6), Float("lr", 1e-4, 1e-1, scale="log"), Categorical("kind", ("a", "b"))])
    trials = searched(space, lambda x: -3.0 * x[0], num_trials=40, seed=0, num_random=12, noise=0.1)
    [found] = found_in(space, trials)
    assert (found.name, found.end, found.bound, found.best_value, found.natural) == ("layers", "low", 2, 2, False)
    assert found.text() == (
        "the best values of layers lie on the low end of its range (2): better ones may lie below, so widen the range"
        " in the next sweep"
    )


def test_a_bound_that_nothing_lies_beyond() -> None:
    space = Space([Float("dropout", 0.0, 0.5), Float("lr", 1e-4, 1e-1, scale="log")])
    [found] = found_in(space, searched(space, lambda x: -3.0 * x[0], num_trials=40, seed=1, num_random=12, noise=0.1))
    assert found.name == "dropout" and found.natural
    assert "could be fixed there" in found.text()


def test_two_values_and_choices_have_no_end() -> None:
    space = Space([Integer("two", 1, 2), Categorical("kind", ("a", "b", "c")), Float("lr", 1e-4, 1e-1)])
    trials = searched(space, lambda x: 2.0 * x[0] + 2.0 * x[1], num_trials=40, seed=0, num_random=12, noise=0.1)
    assert found_in(space, trials) == []


def test_few_trials_say_nothing() -> None:
    trials = planted(2.0)[0]
    assert found_in(SPACE, trials[: MIN_TRIALS - 1]) == []
    assert found_in(SPACE, []) == []


@pytest.mark.parametrize("end", ["low", "high"])
def test_a_log_scale_names_its_bound(end: str) -> None:
    one = RangeEnd(
        name="train.learning_rate",
        end="low" if end == "low" else "high",
        bound=1e-5 if end == "low" else 0.1,
        best_value=0.09,
        probability=0.9,
        effect=1.0,
        natural=False,
    )
    assert ("(1e-05)" if end == "low" else "(0.1)") in one.text()
    assert ("below" if end == "low" else "above") in one.text()


def test_a_parameter_that_the_best_configs_have_not_has_no_end() -> None:
    """Trees and SVCs have a parameter each whose best values lie on the high end; the best configs are SVCs."""
    kinds: list[Parameter] = [
        Categorical("model", ("svc", "tree")),
        Float("C", 1e-3, 1e3, scale="log", when="model == 'svc'"),
        Float("depth", 1.0, 32.0, when="model == 'tree'"),
    ]
    space = Space([*kinds, Float("other", 0.0, 1.0)])

    def score(x: Array) -> float:
        return float(2.0 * x[2] if x[0] > 0.5 else 4.0 + 2.0 * x[1])

    trials = searched(space, score, num_trials=60, seed=0, num_random=20, noise=0.1)
    assert [(one.name, one.end) for one in found_in(space, trials)] == [("C", "high")]
