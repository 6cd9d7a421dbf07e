"""What makes two definitions of a sweep the same one."""

import dataclasses
from typing import Any

from protein.api.definition import differences
from protein.space import Categorical, Float, Parameter, Space
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


def test_choices_of_other_types_are_another_definition() -> None:
    old, new = (spec({"own": {}}, Categorical("x", [one, "a"])) for one in (1, True))
    assert differences(old, old) == []
    assert differences(old, new) == ["x = swept over 1 a (now swept over True a)"]
