"""Comparison of sweeps: figures against closed forms, and how often intervals over seeds hold."""

import dataclasses
import math
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from protein.analysis.comparison import NUM_GRID, Comparison, Side, SweepResult, compare, side_labels, without_seed
from protein.errors import UsageError
from protein.types import Direction, TrialState

BEGAN = datetime(2026, 3, 4, tzinfo=UTC)


@dataclasses.dataclass(frozen=True)
class Run:
    score: float | None
    cost_seconds: float
    state: TrialState = TrialState.COMPLETE
    finished_at: datetime | None = None
    continued_seconds: float = 0.0
    excluded: bool = False

    @property
    def run_seconds(self) -> float:
        return self.cost_seconds + self.continued_seconds


def sweep(name: str, *runs: Run, env: str = "pong", direction: Direction = Direction.MAXIMIZE) -> SweepResult:
    return SweepResult.of(name, env, runs, direction=direction)


def figures(comparison: Comparison, side: int = 0) -> dict[str, float]:
    return {name: estimate.value for name, estimate in comparison.sides[side].figures.items()}


def test_where_nothing_has_cost_anything_all_was_found_at_once() -> None:
    one = sweep("one", Run(1.0, 0.0), Run(2.0, 0.0), Run(3.0, 0.0))
    two = sweep("two", Run(1.0, 0.0), Run(1.0, 0.0), Run(2.0, 0.0))
    found = compare([Side(label="one", sweeps=(one,)), Side(label="two", sweeps=(two,))])
    for side in (0, 1):
        assert figures(found, side)["area"] == figures(found, side)["best"] > 0.0


def test_figures_of_two_sweeps_by_hand() -> None:
    # Medians with equal weight for each side: scores 0, 4, 10 of one, 2 and 8 of the other. The weights are
    # 1/3 each and 1/2 each: 0 (1/3), 2 (5/6), 4 (7/6): half of the total weight, 1, is reached at 4.
    one = sweep("one", Run(0.0, 10.0), Run(4.0, 20.0), Run(10.0, 40.0))
    two = sweep("two", Run(2.0, 10.0), Run(None, 30.0, TrialState.FAILED), Run(8.0, 20.0))
    found = compare([Side(label="one", sweeps=(one,)), Side(label="two", sweeps=(two,))])
    [env] = found.environments
    assert (env.low, env.high, env.common_seconds, env.cost_range) == (4.0, 10.0, 60.0, (10.0, 40.0))
    # At 60 s, the first has not finished its third trial (at 70 s).
    assert figures(found, 0)["best"] == 0.0
    assert figures(found, 1)["best"] == pytest.approx(4 / 6)
    # The second finds its best score at 60 s, which is the end: no area.
    assert figures(found, 1)["area"] == 0.0
    # Fronts: the first one is at 1 from 40 s, the end of the range, so it has no area; the second at 4/6 from 20 s on.
    assert figures(found, 0)["hypervolume"] == pytest.approx(0.0, abs=1e-6)
    assert figures(found, 1)["hypervolume"] == pytest.approx(4 / 6 * math.log(2) / math.log(4), rel=1e-6)
    assert found.differences["two"][0].value.value == pytest.approx(4 / 6)
    assert found.differences["two"][0].probability is None, "one seed has no interval"
    assert any("one seed" in note or "one sweep" in note for note in found.notes)
    assert any("budgets differ" not in note for note in found.notes)


def test_area_is_the_mean_of_the_best_so_far() -> None:
    runs = [Run(1.0, 10.0), Run(3.0, 10.0), Run(2.0, 20.0), Run(5.0, 10.0)]
    [side] = compare([Side(label="a", sweeps=(sweep("a", *runs),))]).sides
    low, high = 2.5, 5.0  # the median and the best
    rise = (3.0 - low) / (high - low)
    # 0 until 20 s, then 3.0 until 50 s, which is the whole budget
    assert side.figures["area"].value == pytest.approx(rise * 30 / 50)
    assert side.figures["best"].value == 1.0
    best = side.best["pong"]
    assert best.x[0] == 0.0 and best.x[-1] == 50.0 and len(best.x) == NUM_GRID
    assert math.isnan(best.value[0]), "there is no score before the first trial has ended"
    assert best.value[np.searchsorted(best.x, 10.0) + 1] == 1.0
    assert best.value[-1] == 5.0


def test_the_hypervolume_of_a_larger_budget_is_that_of_the_common_one() -> None:
    """Both sides are alike until the smaller budget is spent. What the other one finds later is no merit."""
    first = [Run(0.0, 10.0), Run(0.0, 40.0), Run(4.0, 20.0)]
    small, large = sweep("small", *first), sweep("large", *first, Run(10.0, 10.0))
    found = compare([Side(label="small", sweeps=(small,)), Side(label="large", sweeps=(large,))])
    assert figures(found, 0) == figures(found, 1)
    assert figures(found, 0)["hypervolume"] == pytest.approx(4 / 10 * math.log(2) / math.log(4), rel=1e-6)
    tiny = compare([Side(label="tiny", sweeps=(sweep("tiny", Run(1.0, 5.0)),)), Side(label="large", sweeps=(large,))])
    assert figures(tiny, 1)["hypervolume"] == 0.0, "it had no trial yet"


def test_trials_count_in_the_order_in_which_they_ended() -> None:
    late = Run(9.0, 30.0, finished_at=BEGAN + timedelta(seconds=30))
    early = Run(1.0, 10.0, finished_at=BEGAN + timedelta(seconds=10))
    result = sweep("a", late, early, Run(None, 5.0, TrialState.RUNNING))
    assert result.spent.tolist() == [10.0, 40.0]
    assert result.best.tolist() == [1.0, 9.0]


def test_a_continued_trial_costs_the_sweep_its_own_seconds_and_the_front_the_whole_run() -> None:
    result = sweep("a", Run(1.0, 10.0), Run(2.0, 5.0, continued_seconds=10.0))
    assert result.spent.tolist() == [10.0, 15.0]
    assert result.front_at(np.array([9.0, 10.0, 14.0, 15.0])).tolist() == [-math.inf, 1.0, 1.0, 2.0]


def test_a_side_is_the_mean_over_environments_of_the_mean_over_seeds() -> None:
    def side(label: str, last: dict[str, list[float]]) -> Side:
        sweeps = [
            sweep(f"{label}-{env}-{i}", Run(0.0, 1.0), Run(0.0, 1.0), Run(score, 1.0), env=env)
            for env, scores in last.items()
            for i, score in enumerate(scores)
        ]
        return Side(label=label, sweeps=tuple(sweeps))

    old = side("old", {"pong": [1.0, 3.0], "maze": [10.0]})
    new = side("new", {"pong": [4.0], "maze": [20.0, 40.0], "snake": [1.0]})
    found = compare([old, new])
    assert [env.name for env in found.environments] == ["pong", "maze"]
    assert figures(found, 0)["best"] == pytest.approx((2.0 / 4.0 + 10.0 / 40.0) / 2)
    assert figures(found, 1)["best"] == pytest.approx((1.0 + 30.0 / 40.0) / 2)
    assert any("left out" in note and "snake" in note for note in found.notes)
    assert found.sides[1].num_seeds == {"pong": 1, "maze": 2}
    only = compare([old, new], environments=["maze"])
    assert figures(only, 0)["best"] == pytest.approx(10.0 / 40.0)


def test_intervals_over_seeds_hold_as_often_as_they_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("protein.analysis.comparison.NUM_GRID", 2)  # curves are not looked at here
    rng = np.random.default_rng(0)
    for num_seeds in (3, 5, 10):
        held = 0
        for _ in range(200):
            scores = 10.0 + rng.normal(size=num_seeds)
            # A sweep of a second side fixes the scale: 0 is 0 and 1 is 20.
            fixed = Side(label="fixed", sweeps=(sweep("f", *[Run(0.0, 1.0)] * 50, Run(20.0, 1.0)),))
            own = Side(
                label="own",
                sweeps=tuple(sweep(f"o-{i}", *[Run(0.0, 1.0)] * 50, Run(s, 1.0)) for i, s in enumerate(scores)),
            )
            estimate = compare([fixed, own]).sides[1].figures["best"]
            held += estimate.low <= 0.5 <= estimate.high
        assert 0.7 <= held / 200 <= 0.92, (num_seeds, held)


def test_a_difference_between_many_seeds_is_seen() -> None:
    rng = np.random.default_rng(1)

    def side(label: str, mean: float) -> Side:
        return Side(
            label=label,
            sweeps=tuple(
                sweep(f"{label}-{i}", Run(0.0, 1.0), Run(0.5, 1.0), Run(mean + 0.1 * rng.normal(), 1.0))
                for i in range(6)
            ),
        )

    [best, *_] = compare([side("old", 1.0), side("new", 2.0)]).differences["new"]
    assert best.figure == "best" and best.value.low > 0 and best.probability is not None and best.probability > 0.99
    [same, *_] = compare([side("old", 1.0), side("new", 1.0)]).differences["new"]
    assert same.probability is not None and 0.02 < same.probability < 0.98


def test_no_interval_leaves_out_the_luck_of_a_single_seed() -> None:
    def side(label: str, num_seeds: dict[str, int]) -> Side:
        return Side(
            label=label,
            sweeps=tuple(
                sweep(f"{label}-{env}-{i}", Run(0.0, 1.0), Run(0.5, 1.0), Run(1.0 + i, 1.0), env=env)
                for env, number in num_seeds.items()
                for i in range(number)
            ),
        )

    one, three = side("one", {"pong": 1}), side("three", {"pong": 3})
    for found in (compare([one, three]), compare([three, one])):
        [(best, *_)] = found.differences.values()
        assert best.value.low == best.value.value == best.value.high and best.probability is None
        spread = {one.label: one.figures["best"].high - one.figures["best"].low for one in found.sides}
        assert spread["one"] == 0.0 < spread["three"]
    mixed = compare([side("old", {"pong": 3, "maze": 1}), side("new", {"pong": 3, "maze": 3})])
    old, new = mixed.sides
    assert old.figures["best"].low == old.figures["best"].high and (old.overall.low == old.overall.high).all()
    assert old.by_environment["pong"]["best"].low < old.by_environment["pong"]["best"].high
    assert new.figures["best"].low < new.figures["best"].high
    assert mixed.differences["new"][0].probability is None
    assert "old has one sweep in maze, so its mean figures have no interval" in mixed.notes


def test_equal_scores_and_equal_costs() -> None:
    found = compare([Side(label="a", sweeps=(sweep("a", Run(3.0, 5.0), Run(3.0, 5.0)),))])
    assert figures(found) == {"best": 1.0, "hypervolume": 1.0, "area": 0.5}
    front = found.sides[0].front["pong"]
    assert front.value[-1] == 3.0


@pytest.mark.parametrize(
    ("name", "stem"),
    [
        ("ppo-3", "ppo"),
        ("ppo_s3", "ppo"),
        ("ppo seed 3", "ppo"),
        ("ppo-seed-3", "ppo"),
        ("ppo/run12", "ppo"),
        ("g2048", "g2048"),
        ("pong", "pong"),
        ("3", "3"),
        ("gru2", "gru2"),
        ("pposeed3", "ppo"),
        ("gpt-layers4", "gpt-layers4"),
        ("runner12", "runner12"),
        ("lr-1e-3", "lr-1e-3"),
        ("lr-0.01", "lr-0.01"),
        ("lr-0.01-3", "lr-0.01"),
    ],
)
def test_the_seed_at_the_end_of_a_name(name: str, stem: str) -> None:
    assert without_seed(name) == stem


def test_an_excluded_trial_costs_and_has_no_score() -> None:
    result = sweep("a", Run(1.0, 10.0), Run(99.0, 10.0, excluded=True))
    assert result.spent.tolist() == [10.0, 20.0] and result.best.tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    ("sweeps", "labels"),
    [
        ([("old-pong-1", "pong"), ("old-maze-1", "maze"), ("new-pong-1", "pong")], ["old", "old", "new-pong-1"]),
        ([("old-1", "pong"), ("old-2", "pong"), ("new-1", "pong"), ("new-2", "pong")], ["old", "old", "new", "new"]),
        ([("pong", "pong"), ("pong-2", "pong")], ["pong", "pong-2"]),
        ([("a", "pong"), ("b", "pong")], ["a", "b"]),
        ([("pong_gru", "pong"), ("pong_mlp", "pong")], ["pong_gru", "pong_mlp"]),
        ([("x+(1", "g(2"), ("y", "g(2")], ["x+(1", "y"]),
        ([("layers4", "pong"), ("layers8", "pong"), ("base", "pong")], ["layers4", "layers8", "base"]),
    ],
)
def test_labels_of_sides(sweeps: list[tuple[str, str]], labels: list[str]) -> None:
    assert side_labels(sweeps) == labels


def test_what_cannot_be_compared_is_said() -> None:
    pong, maze = sweep("a", Run(1.0, 1.0)), sweep("b", Run(1.0, 1.0), env="maze")
    with pytest.raises(UsageError, match=r"no complete trial yet"):
        sweep("c", Run(None, 1.0, TrialState.FAILED))
    with pytest.raises(UsageError, match=r"no environment in common \(a: pong; b: maze\)"):
        compare([Side(label="a", sweeps=(pong,)), Side(label="b", sweeps=(maze,))])
    with pytest.raises(UsageError, match=r"b has no sweep of 'pong'"):
        compare([Side(label="a", sweeps=(pong,)), Side(label="b", sweeps=(maze,))], environments=["pong"])
    with pytest.raises(UsageError, match="different labels"):
        compare([Side(label="a", sweeps=(pong,)), Side(label="a", sweeps=(pong,))])
    lower = sweep("d", Run(1.0, 1.0), direction=Direction.MINIMIZE)
    with pytest.raises(UsageError, match="minimise"):
        compare([Side(label="a", sweeps=(pong,)), Side(label="d", sweeps=(lower,))])
