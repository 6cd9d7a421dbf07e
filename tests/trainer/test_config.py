import dataclasses
import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from protein.cli.values import field_texts
from protein.trainer import kinds
from protein.trainer.config import RunConfig, check_batch, load
from protein.trainer.environments import spec
from protein.trainer.errors import ConfigError
from protein.trainer.settings import OF_SWEEPS, strip_ranges

CONFIGS = Path(__file__).parents[2] / "configs"


def test_the_dictionary_form_round_trips_exactly() -> None:
    config = RunConfig.from_dict({"env": {"num_envs": 3}, "train": {"learning_rate": 0.1 + 0.2, "compile": True}})
    assert RunConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config
    assert config.env.num_envs == 3 and config.train.compile is True


@pytest.mark.parametrize(
    ("nested", "message"),
    [
        ({"trian": {}}, "unknown section 'trian'; did you mean 'train'?"),
        ({"train": {"learning_rat": 0.1}}, "unknown key 'train.learning_rat'; did you mean 'learning_rate'?"),
        ({"train": {"compile": "false"}}, "train.compile must be true or false, got str 'false'"),
        ({"train": {"compile": 0}}, "train.compile must be true or false, got int 0"),
        ({"train": {"horizon": True}}, "train.horizon must be an int, got bool True"),
        ({"train": {"horizon": 64.0}}, "train.horizon must be an int, got float 64.0"),
        ({"train": {"horizon": "64"}}, "train.horizon must be an int, got str '64'"),
        ({"train": {"learning_rate": "0.1"}}, "train.learning_rate must be a number, got str '0.1'"),
        ({"train": {"learning_rate": True}}, "train.learning_rate must be a number, got bool True"),
        ({"env": {"name": 3}}, "env.name must be a string, got int 3"),
        ({"train": [1]}, "section 'train' must hold keys and values, got list [1]"),
        ({"train": {"precision": "fp23"}}, "train.precision cannot be 'fp23'; did you mean 'fp32'?"),
        ({"train": {"device": "gpu"}}, "train.device must be auto, cpu, cuda, cuda:N or mps, got 'gpu'"),
        ({"train": {"device": "cpu:0"}}, "train.device must be auto, cpu, cuda, cuda:N or mps, got 'cpu:0'"),
        ({"train": {"gamma": 1.5}}, "train.gamma must be between 0 and 1, got 1.5"),
        ({"train": {"gamma": float("nan")}}, "train.gamma must be between 0 and 1, got nan"),
        ({"train": {"learning_rate": 0.0}}, "train.learning_rate must be above 0, got 0"),
        ({"train": {"learning_rate": float("inf")}}, "train.learning_rate must be finite, got inf"),
        ({"train": {"beta2": 1.0}}, "train.beta2 must be below 1, got 1"),
        ({"train": {"beta1": 1.0}}, "train.beta1 must be below 1, got 1"),
        ({"train": {"warmup_fraction": 1.5}}, "train.warmup_fraction must be between 0 and 1, got 1.5"),
        (
            {"train": {"prio_alpha": 0.6}},
            "train.prio_alpha = 0.6 is not supported any more: it paid in no environment (docs/options.md)",
        ),
        ({"train": {"weight_decay": -1}}, "train.weight_decay must be at least 0 and finite, got -1.0"),
        ({"train": {"accumulation_steps": 0}}, "train.accumulation_steps must be between 1 and 65536, got 0"),
        ({"train": {"optimizer": "moun"}}, "train.optimizer cannot be 'moun'; did you mean 'muon'?"),
        ({"train": {"advantage": "vtrace"}}, "train.advantage = 'vtrace' is not supported any more"),
        ({"train": {"vf_clip_coef": 0.2}}, "train.vf_clip_coef = 0.2 is not supported any more"),
        ({"train": {"lr_schedule": "cos"}}, "train.lr_schedule cannot be 'cos'"),
        ({"policy": {"encoder": "cn"}}, "policy.encoder cannot be 'cn'; did you mean 'cnn'?"),
        ({"policy": {"recurrence": "gru"}}, "policy.recurrence cannot be 'gru'; did you mean 'mingru'?"),
        ({"policy": {"value_bins": 1}}, "policy.value_bins must be 0 or at least 2, got 1"),
        ({"policy": {"value_bins": -1}}, "policy.value_bins must be between 0 and 4096, got -1"),
        ({"policy": {"log_std_init": 3}}, "policy.log_std_init must be between -10 and 2, got 3"),
        ({"policy": {"value_limit": 0}}, "policy.value_limit must be between 0.001 and 1000000000.0, got 0.0"),
        (
            {"policy": {"separate_value": True, "recurrence": "lstm"}},
            "policy.separate_value needs a built-in policy without memory, got policy.recurrence lstm",
        ),
        (
            {"policy": {"separate_value": True, "module": "own:Net"}},
            "policy.separate_value needs a built-in policy without memory, got policy.module",
        ),
        (
            {"env": {"num_envs": 7, "double_buffer": True}},
            "env.num_envs must be even with env.double_buffer, got 7",
        ),
        ({"train": {"ent_coef": -0.1}}, "train.ent_coef must be at least 0 and finite, got -0.1"),
        ({"env": {"num_envs": 0}}, "env.num_envs must be between 1 and 1048576, got 0"),
        ({"eval": {"episodes": 10, "num_envs": 4}}, "eval.episodes (10) must be a multiple of eval.num_envs (4)"),
    ],
)
def test_a_bad_value_is_refused_in_one_line_that_says_why(nested: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        RunConfig.from_dict(nested)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_an_int_may_stand_for_a_float_and_becomes_one() -> None:
    gamma = RunConfig.from_dict({"train": {"gamma": 1}}).train.gamma
    assert gamma == 1.0 and isinstance(gamma, float)


def test_a_minibatch_larger_than_the_batch_is_refused_and_agents_count() -> None:
    config = RunConfig.from_dict({"env": {"num_envs": 4}, "train": {"horizon": 8, "minibatch_size": 64}})
    check_batch(config, agents_per_env=2, has_memory=False)
    with pytest.raises(ConfigError, match=r"train.minibatch_size \(64\) is larger than the batch .* = 32\)"):
        check_batch(config, agents_per_env=1, has_memory=False)


def test_a_minibatch_holds_a_sample_or_a_segment_for_each_part() -> None:
    def checked(accumulation_steps: int, recurrence: str = "none") -> None:
        train = {"horizon": 8, "minibatch_size": 16, "accumulation_steps": accumulation_steps}
        nested = {"env": {"num_envs": 4}, "policy": {"recurrence": recurrence}, "train": train}
        check_batch(RunConfig.from_dict(nested), agents_per_env=1, has_memory=recurrence != "none")

    checked(16)
    with pytest.raises(ConfigError, match=r"\(16\) is smaller than train.accumulation_steps \(17\) samples: raise it"):
        checked(17)
    checked(2, "lstm")
    with pytest.raises(ConfigError, match=r"\(16\) is smaller than train.accumulation_steps \(3\) segments .* \(8\)"):
        checked(3, "lstm")


@pytest.mark.parametrize("kind", kinds.KINDS, ids=lambda kind: str(kind.name))
def test_every_setting_has_a_help_text_in_its_place(kind: kinds.Kind) -> None:
    for section in dataclasses.fields(kind.config()):
        section_class: Any = section.type
        assert list(field_texts(section_class)) == [field.name for field in dataclasses.fields(section_class)]


def test_reading_a_file_keeps_values_and_drops_ranges_and_the_sweep(tmp_path: Path) -> None:
    file = tmp_path / "a.toml"
    file.write_text(
        """
        [env]
        num_envs = 8
        [train]
        gamma = { value = 0.5, min = 0.1, max = 0.9, scale = "logit" }
        horizon = { min = 8, max = 64, scale = "pow2" }
        lr_schedule = { value = "linear", choices = ["linear", "cosine"] }
        [sweep]
        method = "protein"
        """
    )
    config = load(file)
    assert (config.env.num_envs, config.train.gamma, config.train.lr_schedule) == (8, 0.5, "linear")
    assert config.train.horizon == RunConfig().train.horizon
    (tmp_path / "a.json").write_text(json.dumps(config.to_dict()))
    assert load(tmp_path / "a.json") == config


@pytest.mark.parametrize("table", [{"min": 1, "max": 2}, {"scale": 0.5}, {"value": 3}, {"choices": [1, 2]}])
def test_a_table_of_a_runs_json_is_an_argument_even_if_it_looks_like_a_range(tmp_path: Path, table: Any) -> None:
    config = RunConfig.from_dict({"env": {"name": "python:walk:Walk", "args": {"reward": table, "scale": 2}}})
    (tmp_path / "config.json").write_text(json.dumps(config.to_dict()))
    assert load(tmp_path / "config.json") == config
    (tmp_path / "a.json").write_text(json.dumps({"env": {"args": {"scale": 2}}}))
    assert load(tmp_path / "a.json").env.args == {"scale": 2}


def test_a_table_with_a_misspelt_range_key_is_not_taken_for_a_range() -> None:
    with pytest.raises(ConfigError, match=r"train\.gamma must be a number, got dict"):
        RunConfig.from_dict(strip_ranges({"train": {"gamma": {"value": 0.5, "mni": 0.1}}}))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.toml", "[train", "cannot read"),
        ("a.json", "{", "cannot read"),
        ("a.json", "[]", "must hold sections"),
        ("a.yaml", "", "ends in .toml or .json"),
        ("a.toml", "[train]\ngama = 1", "did you mean 'gamma'"),
        ("a.toml", None, "No such file"),
    ],
)
def test_a_file_that_cannot_be_used_is_named(tmp_path: Path, name: str, content: str | None, message: str) -> None:
    file = tmp_path / name
    if content is not None:
        file.write_text(content)
    with pytest.raises(ConfigError, match=message) as caught:
        load(file)
    assert str(file) in str(caught.value) and "\n" not in str(caught.value)


def test_the_default_file_says_what_the_dataclasses_say() -> None:
    nested = tomllib.loads((CONFIGS / "default.toml").read_text())
    assert load(CONFIGS / "default.toml") == RunConfig()
    given = {(section, key) for section, values in nested.items() if section not in OF_SWEEPS for key in values}
    known = {(section, key) for section, values in RunConfig().to_dict().items() for key in values}
    assert given == known


@pytest.mark.parametrize("file", sorted(CONFIGS.glob("*.toml")), ids=lambda file: file.stem)
def test_every_range_holds_its_value_and_has_a_reason_above_it(file: Path) -> None:
    config = kinds.load(file)
    config.validate()
    if isinstance(config, RunConfig):
        # Gymnasium's and Procgen's have one agent, and the packages of some may be missing here.
        agents = 1 if config.env.name.startswith(("gym:", "procgen:")) else spec(config.env.name).agents_per_env
        check_batch(config, agents, has_memory=config.policy.recurrence != "none")
    lines = file.read_text().splitlines()
    for section, values in tomllib.loads(file.read_text()).items():
        for key, value in values.items():
            is_table = (section, key) == ("env", "args")  # of values, not a range
            if section in OF_SWEEPS or is_table or not isinstance(value, dict) or value.keys() == {"value"}:
                continue
            above = lines[next(i for i, line in enumerate(lines) if line.startswith(f"{key} = {{")) - 1]
            assert above.startswith("# "), f"{file.name}: the range of {section}.{key} has no reason above it"
            if "choices" in value:
                assert value["value"] in value["choices"]
            else:
                assert value["min"] <= value["value"] <= value["max"]
                for edge in ("min", "max"):
                    type(config).from_dict({section: {key: value[edge]}})


def test_files_of_earlier_versions_are_read_where_what_is_gone_changed_nothing() -> None:
    gone = {"prio_alpha": 0.0, "prio_beta": 0.4, "advantage": "gae", "rho_clip": 1.0, "c_clip": 1.0, "vf_clip_coef": 0}
    assert RunConfig.from_dict({"train": {"gamma": 0.9, **gone}}) == RunConfig.from_dict({"train": {"gamma": 0.9}})
