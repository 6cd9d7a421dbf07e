"""Sweeps whose trials run on a GPU search what [gpu] of the config files adds; all others search what they did."""

import itertools
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from commands import Run

from protein.api.plan import Plan, as_begun
from protein.cli.parse import parse
from protein.cli.sweep import define, make_plan
from protein.config.resolve import CONFIG_DIRECTORY, load, make_space
from protein.errors import ConfigError
from protein.run import machine
from protein.run.machine import Gpu, trains_on_gpu
from protein.space import Space
from protein.space.parameters import Float, Integer
from protein.trainer.config import RunConfig, check_batch
from protein.trainer.config import load as trainers_load
from protein.trainer.environments import spec
from protein.trainer.errors import ConfigError as RunConfigError
from protein.types import SweepRecord, SweepSpec
from protein.view import tables

HAS_OWN = ("breakout", "cartpole", "entities", "g2048", "maze", "memory", "pendulum", "pong", "snake")


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], None]:
    """Says whether this machine has a GPU; it has one."""

    def set_to(present: bool) -> None:
        monkeypatch.setattr(machine, "installed_gpus", lambda: [Gpu(index=0, uuid="GPU-0")] if present else [])

    monkeypatch.setattr(machine, "_is_cpu_build", lambda: False)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    set_to(True)
    return set_to


def defined(line: str) -> SweepSpec:
    return define(parse(f"sweep {line}".split()), tables.make_console())[0]


def names(spec: SweepSpec) -> list[str]:
    return list(Space.from_dict(spec.space).names)


@pytest.mark.parametrize("env", [*HAS_OWN, "arena", "frontier", "pong2", "gym:Hopper-v5", "gym:New-v0", "text/python"])
def test_what_is_searched_on_a_gpu_holds_all_that_is_searched_on_a_cpu(env: str) -> None:
    """So a file with a value for a CPU, which keeps the range below it, can be used on a GPU."""
    cpu, gpu = (load(env, for_sweep=True, gpu=on_gpu) for on_gpu in (False, True))
    assert cpu.values() == gpu.values()  # the initial config is the shipped one
    before, after = make_space(cpu), make_space(gpu)
    assert set(after.names) - set(before.names) == ({"env.num_envs"} if env in HAS_OWN else set())
    assert "env.num_envs" not in before.names  # on a CPU it would be a parameter more that cannot win
    for one in before.parameters:
        wider = after.parameter(one.name)
        if isinstance(one, Float | Integer) and isinstance(wider, Float | Integer):
            assert wider.low <= one.low and wider.high >= one.high, one.name
        else:
            assert wider == one
    assert gpu.gpu_sources and not cpu.gpu_sources


@pytest.mark.parametrize("path", sorted(CONFIG_DIRECTORY.glob("*.toml")), ids=lambda path: path.stem)
def test_each_range_for_a_gpu_says_why(path: Path) -> None:
    _, _, lines = path.read_text().partition("[gpu.")
    for before, line in itertools.pairwise(lines.splitlines()):
        if " max = " in line and not line.startswith("#"):
            assert before.startswith("# "), line


@pytest.mark.parametrize("env", HAS_OWN)
def test_every_config_of_a_space_for_a_gpu_can_be_trained(env: str) -> None:
    """Whatever the number of environments, horizon and minibatch: no trial fails for them."""
    layers = load(env, for_sweep=True, gpu=True)
    space, of_env = make_space(layers), spec(env)
    for params in space.from_unit_many(space.sample(64, np.random.default_rng(0))):
        values = layers.with_values(params, "a trial").run_config()
        assert isinstance(values, RunConfig)
        has_memory = values.policy.recurrence != "none"
        check_batch(values, of_env.agents_per_env, has_memory=has_memory)
        batch = values.env.num_envs * of_env.agents_per_env * values.train.horizon
        assert batch % values.train.minibatch_size == 0


@pytest.mark.parametrize(
    ("device", "given", "remote", "visible", "expected"),
    [
        ("auto", False, False, None, True),
        ("auto", False, False, "", False),
        ("auto", False, False, "-1", False),
        ("auto", False, False, "0", True),
        ("auto", False, True, None, False),  # what other machines have is not known
        ("auto", True, True, None, True),
        ("cpu", True, False, None, False),
        ("mps", False, False, None, False),
        ("cuda:1", False, True, None, True),
    ],
)
def test_which_trials_run_on_a_gpu(
    device: str, given: bool, remote: bool, visible: str | None, expected: bool, gpu: Callable[[bool], None]
) -> None:
    environment = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    assert trains_on_gpu(device, given=given, remote=remote, environment=environment) == expected


def test_no_gpu_is_found_without_one_or_without_a_torch_for_it(
    gpu: Callable[[bool], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "_is_cpu_build", lambda: True)
    assert not trains_on_gpu("auto", given=False, remote=False, environment={})
    monkeypatch.setattr(machine, "_is_cpu_build", lambda: False)
    gpu(False)
    assert not trains_on_gpu("auto", given=False, remote=False, environment={})


def test_a_sweep_says_that_it_searches_for_a_gpu(
    gpu: Callable[[bool], None], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "env.num_envs" in names(defined("--env pong"))
    assert capsys.readouterr().out == "trials run on a GPU, so [gpu] of default.toml and pong.toml holds\n"
    fixed = defined("--env pong --env.num-envs 512")
    assert "env.num_envs" not in names(fixed) and Space.from_dict(fixed.space).fixed["env.num_envs"] == 512
    capsys.readouterr()
    assert "env.num_envs" not in names(defined("--env pong --train.device cpu"))
    assert capsys.readouterr().out == ""
    elsewhere = names(defined("--env pong --backend ray --gpus-per-trial 1"))
    assert "env.num_envs" in elsewhere
    assert "env.num_envs" not in names(defined("--env pong --backend ray"))


@pytest.mark.parametrize("begun_with_gpu", [False, True])
def test_a_sweep_keeps_the_ranges_with_which_it_began(
    begun_with_gpu: bool, gpu: Callable[[bool], None], folder: Path
) -> None:
    def planned(more: str = "") -> Plan:
        return make_plan(parse(f"sweep --env pong --max-cost 1s {more}".split()), tables.make_console())

    gpu(begun_with_gpu)
    begun = planned()
    gpu(not begun_with_gpu)
    other, another = planned(), planned("--train.gamma 0.9")
    assert names(begun.spec) != names(other.spec)
    notes: list[str] = []
    stored = SweepRecord(id=1, spec=begun.spec, max_cost_seconds=1.0, created_at=datetime.now(UTC))
    resumed = as_begun(stored, other, notes.append)
    assert (resumed.spec.space, resumed.spec.config) == (begun.spec.space, begun.spec.config)
    assert notes == ["sweep 'pong' keeps the ranges with which it began; [gpu] of files is for new sweeps"]
    assert as_begun(stored, another, notes.append) is another  # what differs is told when it is resumed
    assert as_begun(None, other, notes.append) is other and len(notes) == 1


def test_several_gpus_for_a_trial_share_its_environments_evenly(gpu: Callable[[bool], None], folder: Path) -> None:
    on_ray = "--backend ray --gpus-per-trial"
    constraints = Space.from_dict(defined(f"--env snake {on_ray} 4").space).constraints
    assert constraints[-1] == "env.num_envs >= 4"
    assert "env.num_envs" not in " ".join(Space.from_dict(defined(f"--env pong {on_ray} 4").space).constraints[1:])
    with pytest.raises(RunConfigError, match=r"env.num_envs \(256\) must be a multiple of 3"):
        defined(f"--env pong {on_ray} 3")
    (folder / "own.toml").write_text("[env]\nnum_envs = { value = 64, min = 16, max = 256, step = 2 }\n")
    with pytest.raises(RunConfigError, match=r"env.num_envs \(18\) must be a multiple of 4"):
        defined(f"--env pong --config own.toml {on_ray} 4")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gpu = 3", "own.toml: 'gpu' must hold sections, such as [gpu.train], not 3"),
        ("[gpu]\nnum_envs = 3", "own.toml [gpu]: unknown section 'num_envs'"),
        ("[gpu.trian]\nhorizon = 3", "own.toml [gpu]: unknown section 'trian'; did you mean 'train'?"),
        ("[gpu.train]\nhorizn = 3", "own.toml [gpu]: unknown key 'train.horizn'"),
        (
            "[gpu.train]\nhorizon = { min = 9, max = 3 }",
            "own.toml [gpu]: parameter 'train.horizon': min 9 is not below",
        ),
        ("[gpu.train]\nhorizon = { value = 9 }", "own.toml [gpu]: parameter 'train.horizon': value 9"),
        ("[gpu.gpu.train]\nhorizon = 3", "own.toml [gpu]: unknown section 'gpu'"),
        ("[gpu.model]\nnum_layers = 3", "own.toml [gpu]: [model] is a section of a language model run"),
        ("[gpu.sweep]\nworkrs = 3", "own.toml [gpu]: unknown key 'sweep.workrs'"),
        ("[gpus.train]\nhorizon = 3", "own.toml: unknown section 'gpus'; did you mean 'gpu'?"),
    ],
)
@pytest.mark.parametrize("on_gpu", [False, True])
def test_a_mistake_there_is_one_clear_line_on_every_machine(
    text: str, message: str, on_gpu: bool, folder: Path
) -> None:
    (folder / "own.toml").write_text(text + "\n")
    with pytest.raises(ConfigError) as raised:
        load("pong", config_file=folder / "own.toml", for_sweep=True, gpu=on_gpu)
    assert str(raised.value).startswith(message), str(raised.value)


def test_a_run_does_not_read_it(folder: Path, run: Run) -> None:
    (folder / "own.toml").write_text('[env]\nname = "pong"\n[gpu.env]\nnum_envs = { value = 64, min = 8, max = 128 }\n')
    assert trainers_load(folder / "own.toml").env.num_envs == RunConfig().env.num_envs
    assert trainers_load(CONFIG_DIRECTORY / "pong.toml").env.num_envs == 256
    config = load("pong", config_file=folder / "own.toml").run_config()
    assert isinstance(config, RunConfig) and config.env.num_envs == 256
    assert load("pong", config_file=folder / "own.toml", gpu=True).values()["env.num_envs"] == 64
