"""The entropy bonus along a line and adapted to a target; passes that end early at a target KL."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from event_log import EventLog
from training_parts import make_policy, make_spec
from updates import collected, make_ppo

from protein.trainer.config import RunConfig, TrainConfig
from protein.trainer.errors import ConfigError
from protein.trainer.machine import checkpoint as checkpoints
from protein.trainer.ppo.update import LEAST, MOST, RATE, EntropyBonus
from protein.trainer.run import run

SMALL: dict[str, dict[str, Any]] = {
    "env": {"num_envs": 16, "frame_skip": 16},
    "policy": {"hidden_size": 8},
    "train": {"total_timesteps": 16 * 32 * 30, "threads": 1, "device": "cpu", "horizon": 32, "minibatch_size": 128},
    "eval": {"episodes": 4, "num_envs": 4},
}


def go(directory: Path | None = None, **train: Any) -> EventLog:
    events = EventLog()
    config = RunConfig.from_dict(SMALL | {"train": SMALL["train"] | train})
    run(config, directory=directory, report=events.record)
    return events


def test_the_weight_follows_a_straight_line_or_stays() -> None:
    constant = EntropyBonus(TrainConfig(ent_coef=0.1))
    falling = EntropyBonus(TrainConfig(ent_coef=0.1, ent_coef_final=0.0))
    rising = EntropyBonus(TrainConfig(ent_coef=0.1, ent_coef_final=0.5))
    along = (0.0, 0.25, 1.0)
    assert [constant.coefficient(x) for x in along] == [0.1, 0.1, 0.1]
    assert [falling.coefficient(x) for x in along] == pytest.approx([0.1, 0.075, 0.0])
    assert [rising.coefficient(x) for x in along] == pytest.approx([0.1, 0.2, 0.5])
    assert not constant.state() and not falling.state()


def test_the_adapted_weight_rises_below_the_target_falls_above_it_and_is_bounded() -> None:
    bonus = EntropyBonus(TrainConfig(ent_coef=0.1, target_entropy=2.0))
    assert bonus.coefficient(0.5) == pytest.approx(0.1)
    bonus.adapt(1.5)
    assert bonus.coefficient(0.5) == pytest.approx(0.1 * math.exp(RATE * 0.5))
    bonus.adapt(-90.0)  # no further than a distance of 1 would move it
    assert bonus.coefficient(0.5) == pytest.approx(0.1 * math.exp(RATE * 1.5))
    for entropy, bound in ((50.0, LEAST), (-50.0, MOST)):
        for _ in range(100):
            bonus.adapt(entropy)
        assert bonus.coefficient(0.0) == pytest.approx(bound)
    other = EntropyBonus(TrainConfig(ent_coef=0.1, target_entropy=2.0))
    other.set_state(bonus.state())
    assert other.coefficient(0.0) == bonus.coefficient(0.0)


def test_an_update_uses_the_weight_of_its_place_in_the_run() -> None:
    """At the end of a schedule to 0.3 the gradients are those of a constant weight of 0.3."""
    weights = []
    settings: list[dict[str, Any]] = [{"ent_coef": 0.01, "ent_coef_final": 0.3}, {"ent_coef": 0.3}, {"ent_coef": 0.01}]
    for train in settings:
        policy = make_policy(make_spec())
        ppo = make_ppo(policy, minibatch_size=60, **train)
        figures = ppo.update(collected(policy), 1.0)
        assert figures.get("ent_coef") == (0.3 if "ent_coef_final" in train else None)
        weights.append(ppo.weights.clone())
    assert weights[0].equal(weights[1]) and not weights[0].equal(weights[2])


def test_a_target_keeps_the_entropy_near_it() -> None:
    """A target of half the highest entropy, against a run that a strong bonus keeps random."""
    target = 0.5 * math.log(3)
    free = go(ent_coef=0.3, lr_schedule="constant")[-2]["metrics"]["entropy"]
    held = go(ent_coef=0.3, target_entropy=target, lr_schedule="constant", total_timesteps=16 * 32 * 240)[-2]["metrics"]
    assert free > 0.9 * math.log(3)
    assert abs(held["entropy"] - target) < 0.5 * (free - target)
    assert held["ent_coef"] < 0.1


def test_a_target_kl_ends_the_passes_once_the_policy_has_moved_that_far() -> None:
    def update(target_kl: float, passes: int) -> tuple[torch.Tensor, dict[str, float]]:
        policy = make_policy(make_spec())
        ppo = make_ppo(policy, minibatch_size=20, update_epochs=passes, learning_rate=0.03, target_kl=target_kl)
        figures = ppo.update(collected(policy), 0.0)
        return ppo.weights.clone(), figures

    divergences = [update(0.0, passes)[1]["approx_kl"] for passes in range(1, 8)]
    assert divergences[0] < max(divergences[1:])
    limit = 0.5 * (divergences[0] + max(divergences))
    last = next(index for index, divergence in enumerate(divergences) if divergence > limit)
    stopped, figures = update(limit, 7)
    expected, _ = update(0.0, last + 1)
    assert figures["passes"] == last + 1 < 7 and figures["approx_kl"] == pytest.approx(divergences[last])
    assert stopped.equal(expected)
    whole, figures = update(1e9, 7)
    assert figures["passes"] == 7 and whole.equal(update(0.0, 7)[0])


def test_settings_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"ent_coef_final and train\.target_entropy both set"):
        go(ent_coef_final=0.1, target_entropy=0.5)
    with pytest.raises(ConfigError, match=r"ent_coef must be above 0 with train\.target_entropy"):
        go(ent_coef=0.0, target_entropy=0.5)
    with pytest.raises(ConfigError, match=r"train\.ent_coef_final must be at least -1"):
        go(ent_coef_final=-2.0)


def test_a_run_whose_entropy_bonus_changes_with_its_length_cannot_be_continued(tmp_path: Path) -> None:
    short: dict[str, Any] = {"total_timesteps": 16 * 32 * 2, "lr_schedule": "constant"}
    assert go(tmp_path / "a", **short)[-1]["continuable"] is not None
    assert go(tmp_path / "b", ent_coef_final=0.0, **short)[-1]["continuable"] is None
    wsd = short | {"lr_schedule": "wsd", "decay_fraction": 0.5}
    assert go(tmp_path / "c", **wsd)[-1]["continuable"] is not None
    assert go(tmp_path / "d", ent_coef_final=0.0, **wsd)[-1]["continuable"] is None
    assert not (tmp_path / "d" / checkpoints.STABLE_FILE_NAME).exists()
