"""What makes two definitions of a sweep the same one."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from protein.api.definition import create_or_resume, differences
from protein.errors import UsageError
from protein.run.command import CommandSettings
from protein.space import Categorical, Float, Integer, Parameter, Space
from protein.storage import open_store
from protein.trainer.config import RunConfig
from protein.types import Provenance, SweepSpec


def spec(config: dict[str, Any], *more: Parameter) -> SweepSpec:
    space = Space([Float("train.gamma", 0.9, 0.999), *more]).to_dict()
    provenance = Provenance(version="", git_commit="", machine="", config_hash="")
    return SweepSpec(name="a", env="pong", method="protein", seed=0, space=space, config=config, provenance=provenance)


def test_a_sweep_from_before_a_setting_existed_has_its_default() -> None:
    new = spec(RunConfig().to_dict())
    older = {section: dict(values) for section, values in new.config.items()}
    del older["train"]["decay_fraction"]
    assert differences(dataclasses.replace(new, config=older), new) == []
    changed = {**new.config, "train": {**new.config["train"], "decay_fraction": 0.5}}
    found = differences(dataclasses.replace(new, config=older), dataclasses.replace(new, config=changed))
    assert found == ["train.decay_fraction = 0.2 (now 0.5)"]
    command = CommandSettings(text="train {train.gamma}").to_dict()
    older = {"own": {}, "command": {name: value for name, value in command.items() if name != "comma"}}
    assert differences(spec(older), spec({"own": {}, "command": command})) == []
    changed = {"own": {}, "command": {**command, "comma": "decimal"}}
    assert differences(spec(older), spec(changed)) == ["--score-comma = none (now decimal)"]


def test_a_sweep_from_before_a_setting_was_removed_is_the_same_where_that_changed_nothing() -> None:
    new = spec(RunConfig().to_dict())

    def older(**gone: Any) -> SweepSpec:
        return dataclasses.replace(new, config={**new.config, "train": {**new.config["train"], **gone}})

    neutral = {"advantage": "gae", "rho_clip": 1.0, "c_clip": 1.0, "vf_clip_coef": 0.0, "prio_alpha": 0.0}
    assert differences(older(**neutral), new) == []
    assert differences(older(advantage="vtrace"), new) == ["train.advantage = vtrace (now none)"]


def test_choices_of_other_types_are_another_definition() -> None:
    old, new = (spec({"own": {}}, Categorical("x", [one, "a"])) for one in (1, True))
    assert differences(old, old) == []
    assert differences(old, new) == ["x = swept over 1 a (now swept over True a)"]


def test_a_fixed_null_and_choices_in_lists_are_told_apart() -> None:
    config: dict[str, Any] = {"own": {}}
    choice = Categorical("x", [[1], "a"])
    old, new = (spec(config, choice), spec(config, Categorical("x", [[True], "a"])))
    assert differences(old, new) == ["x = swept over [1] a (now swept over [True] a)"]
    fixed = dataclasses.replace(old, space={**old.space, "fixed": {"clip": None}})
    assert differences(fixed, fixed) == [] and differences(old, fixed) == ["clip = none (now null)"]


def test_listed_values_that_are_a_range_today_go_on_as_the_choices_that_they_were(tmp_path: Path) -> None:
    """In a sweep over a command, whose file lists the very same values."""
    command = {"own": {}, "command": CommandSettings(text="train {width}").to_dict()}
    store = open_store(str(tmp_path / "protein.db"))
    old, _ = create_or_resume(store, spec(command, Categorical("width", [96, 32, 64])), 60.0)
    again, created = create_or_resume(store, spec(command, Integer("width", 32, 96, step=32)), 60.0)
    assert not created and again.spec.space == old.spec.space
    for other in (Integer("width", 32, 128, step=32), Float("width", 32.0, 96.0, step=32.0)):
        with pytest.raises(UsageError, match=r"width = swept over 96 32 64 \(now swept from 32"):
            create_or_resume(store, spec(command, other), 60.0)
    store.close()


def test_a_sweep_that_another_process_creates_at_this_moment_is_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, wanted = open_store(str(tmp_path / "protein.db")), spec(RunConfig().to_dict())
    first, created = create_or_resume(store, wanted, 60.0)
    assert created
    find, seen = store.find_sweep, []

    def find_too_early(name: str) -> object:
        seen.append(name)
        return find(name) if len(seen) > 1 else None

    monkeypatch.setattr(store, "find_sweep", find_too_early)
    assert create_or_resume(store, wanted, 60.0) == (first, False)
    store.close()
