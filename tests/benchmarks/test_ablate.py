"""The ablation: its differences by hand, its settings for every environment, and that it goes on where it ended."""

import json
from pathlib import Path
from typing import Any

import ablate
import ablate_recorded
import ablate_speed
import ablate_table
import numpy as np
import pytest
from ablate_table import Side, differences

from protein.trainer.environments import spec


def side(env: str, option: str, at_steps: list[float], at_cost: list[float] | None = None, ratio: float = 1.0) -> Side:
    return Side(env=env, option=option, at_steps=at_steps, at_cost=at_cost or [], cost_ratio=ratio)


def test_differences_weigh_each_environment_alike() -> None:
    sides = [
        side("a", "base", [0.1, 0.3]),
        side("a", "muon", [0.5, 0.5, 0.8], ratio=4.0),
        side("b", "base", [0.6]),
        side("b", "muon", [0.5], [0.4], ratio=1.0),
        side("c", "muon", [1.0]),  # without a base it says nothing
    ]
    (found,) = differences(sides)
    assert found.mean == pytest.approx(((0.6 - 0.2) + (0.5 - 0.6)) / 2)
    assert {env: mean for env, (mean, _, _) in found.by_env.items()} == pytest.approx({"a": 0.4, "b": -0.1})
    assert {env: mean for env, (mean, _, _) in found.by_env_at_cost.items()} == pytest.approx({"b": -0.2})
    assert found.runs == 4 and found.cost_ratio == pytest.approx(2.0)


def test_the_interval_holds_the_truth_as_often_as_it_says() -> None:
    """Many small studies of two environments, two seeds each, with a true difference of .3 between normal scores."""
    rng, inside = np.random.default_rng(0), 0
    for _ in range(1000):
        sides = []
        for env, noise in (("a", 0.1), ("b", 0.2)):
            sides.append(side(env, "base", list(rng.normal(0.2, noise, 2))))
            sides += [side(env, option, list(rng.normal(0.5, noise, 2))) for option in ("muon", "vtrace")]
        found = differences(sides)[0]
        inside += found.low <= 0.3 <= found.high
    assert 0.87 < inside / 1000 < 0.95


def test_the_interval_of_one_environment_is_students() -> None:
    """Worked out by hand: pooled variance .02 of 2 degrees of freedom, whose 95th percentile of Student's t is 2.92."""
    (found,) = differences([side("a", "base", [0.1, 0.3]), side("a", "muon", [0.4, 0.6])])
    half = 2.92 * (0.02 * (1 / 2 + 1 / 2)) ** 0.5
    assert found.by_env["a"] == pytest.approx((0.3, 0.3 - half, 0.3 + half), abs=1e-4)
    assert (found.low, found.high) == pytest.approx((0.3 - half, 0.3 + half), abs=1e-4)


def test_of_one_seed_no_difference_is_certain() -> None:
    (found,) = differences([side("a", "base", [0.1]), side("a", "muon", [0.9])])
    assert (found.low, found.high) == (-float("inf"), float("inf"))


def test_scores_far_beyond_the_solved_one_are_cut() -> None:
    (found,) = differences([side("a", "base", [1.0]), side("a", "muon", [5.0])])
    assert found.mean == pytest.approx(ablate_table.LARGEST - 1.0)


def test_the_tables_mark_what_is_no_chance() -> None:
    sides = [side("a", "base", [0.5, 0.5]), side("b", "base", [0.5, 0.5])]
    sides += [side("a", "muon", [0.9, 0.9], [0.4, 0.6], ratio=1.5), side("b", "muon", [0.1, 0.9])]
    lines = ablate_table.markdown(sides).splitlines()
    assert "| muon | +0.200 |" in lines[2] and "2, 4" in lines[2]
    assert lines[-1] == "| muon | **+0.40**, +0.00 | +0.00 |"


@pytest.mark.parametrize("name", [name for name in ablate.GAMES if ":" not in name])
def test_every_side_of_every_environment_is_a_valid_config_that_changes_something(name: str) -> None:
    found = ablate.sides(name)
    assert found["base"] == {} and len(found) >= 8 and spec(name).solved_score > spec(name).score_range[0]
    base = ablate.settings(name, {}, steps=1000, rate=None, seed=1)
    for option, changes in found.items():
        config = ablate.settings(name, changes, steps=1000, rate=None, seed=1)
        assert (config == base) == (option == "base")
    assert base.policy.value_bins == 0 and "value bins" in found


@pytest.mark.slow  # an interruption after each of its runs
def test_it_goes_on_where_it_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Interrupted after each run, it makes the runs of one go: each once, the trials with even seeds."""
    made: list[Any] = []

    def train(config: Any) -> dict[str, Any]:
        made.append(config)
        learnt = config.train.total_timesteps / 1e6 + (0.5 if config.train.optimizer == "muon" else 0.0)
        cpu = config.train.total_timesteps * (2e-6 if config.train.optimizer == "muon" else 1e-6)
        return {"score": 20 + 455 * learnt, "steps": config.train.total_timesteps, "cpu_seconds": cpu, "seconds": 1.0}

    monkeypatch.setattr(ablate, "train", train)
    whole = ablate.Ablation(tmp_path / "whole.jsonl")
    words = list(whole.go(["cartpole"], ["muon"], 3))
    in_one_go, made[:] = list(made), []
    again = []
    while True:
        step = next(iter(ablate.Ablation(tmp_path / "parts.jsonl").go(["cartpole"], ["muon"], 3)), None)
        if step is None:
            break
        again.append(step)
    assert again == words and made == in_one_go
    rows = [json.loads(line) for line in (tmp_path / "parts.jsonl").read_text().splitlines()]
    trials = [row for row in rows if row["part"] == "trial"]
    assert len(trials) == 2 * ablate.TRIALS and all(row["seed"] % 2 == 0 for row in trials)
    assert [row["seed"] for row in rows if row["part"] == "steps" and row["option"] == "base"] == [1, 3, 5]
    # Muon is better at equal steps and costs twice as much: it runs again, with half of them.
    costly = [row for row in rows if row["part"] == "cost"]
    assert {row["option"] for row in costly} == {"muon"} and {row["asked"] for row in costly} == {50_000}
    ((muon),) = differences(list(whole.sides()))
    assert muon.by_env["cartpole"][0] == pytest.approx(0.5, abs=1e-4) and muon.cost_ratio == pytest.approx(2.0)
    assert muon.by_env_at_cost["cartpole"][0] == pytest.approx(0.45, abs=1e-4)


def test_lines_of_runs_of_another_length_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ablate, "train", lambda _: {"score": 1.0, "steps": 64, "cpu_seconds": 1.0, "seconds": 1.0})
    path = tmp_path / "runs.jsonl"
    next(iter(ablate.Ablation(path).go(["cartpole"], ["muon"], 1)))
    assert len(ablate.Ablation(path).rows) == 2  # the untrained policy and the first trial
    monkeypatch.setitem(ablate.GAMES, "cartpole", ablate.Game(50_000, 50.0))
    assert not ablate.Ablation(path).rows


def test_a_run_that_diverges_counts_as_one_that_has_learnt_nothing() -> None:
    config = ablate.settings("cartpole", {"train.max_grad_norm": 1e9}, steps=20_000, rate=1e30, seed=1)
    found = ablate.train(config)
    assert found["score"] is None and "not finite" in found["failed"]


def test_a_real_run_has_a_score_and_costs_something() -> None:
    found = ablate.train(ablate.settings("cartpole", {}, steps=4096, rate=None, seed=1))
    assert 0 < found["score"] <= 500 and found["steps"] == 4096 and found["cpu_seconds"] > 0


@pytest.mark.parametrize("option", ["double_buffer", "overlap", "cpu_inference", "bf16"])
def test_the_options_for_speed_run_in_every_case(option: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for case, (settings, _) in ablate_speed.CASES.items():
        monkeypatch.setitem(ablate_speed.CASES, case, (settings, 4096))
        found = ablate_speed.measure(case, ablate_speed.OPTIONS[option], "cpu")
        assert found["seconds"] > 0 and found["cpu_seconds"] > 0


def test_recorded_trainings_tell_an_option_that_helps_from_one_that_does_nothing() -> None:
    rng = np.random.default_rng(0)
    normalises, clip = rng.random(400) < 0.5, rng.random(400)
    found = ablate_recorded.effect("a", normalises + rng.normal(0, 1, 400), normalises, clip)
    assert found.normalised - found.half_interval > 0.15 and found.share_of_best > 0.6
    assert found.clip_p > 0.05 and abs(found.clip_correlation) < 0.1
    clipped = ablate_recorded.effect("a", -clip + rng.normal(0, 0.1, 400), normalises, clip)
    assert clipped.clip_correlation < -0.8 and abs(clipped.normalised) < 2 * clipped.half_interval
    # Every other config, in order: the mean rank of the upper of two neighbours is 1 / n higher.
    alternating = ablate_recorded.effect("a", np.arange(10.0), np.arange(10) % 2 == 1, np.arange(10.0))
    assert alternating.normalised == pytest.approx(0.1) and alternating.clip_correlation == pytest.approx(1.0)


def test_the_recorded_tables_can_be_read() -> None:
    found = ablate_recorded.read(ablate_recorded.TABLES / "ppo_minigrid_door_key.json")
    assert found.environment == "MiniGrid-DoorKey-5x5" and found.normalised > found.half_interval
