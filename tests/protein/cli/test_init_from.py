"""`policy.init_from` on the command line: which checkpoint is meant, and sweeps that choose among several."""

import json
from pathlib import Path

import pytest
from commands import Run, filled, folder, run
from policy_files import make_checkpoint
from sample_trials import add_run
from small_runs import small_config

from protein.api.training import with_checkpoints
from protein.config.resolve import load

__all__ = ["filled", "folder", "run"]

SIZES = {"hidden_size": 32, "num_layers": 1}


@pytest.fixture
def agent(filled: Path) -> Path:
    """Trial 7 of the sweep pong, whose network is another one than the shipped files have."""
    path = filled / "runs" / "pong" / "0007" / "checkpoint.safetensors"
    path.parent.mkdir(parents=True)
    make_checkpoint(path, "pong", SIZES, seed=7)
    add_run("sqlite:///runs/protein.db", of=4, score=19.0, checkpoint=path)
    return path


def test_a_checkpoint_is_named_as_elsewhere_and_brings_its_network(agent: Path) -> None:
    for name in (str(agent), "runs/pong/0007", "pong/7", "pong"):
        layers = load("pong2", flags={"policy.init_from": name, "policy.hidden_size": 8})
        found = with_checkpoints(layers, None, ["policy.hidden_size"], for_sweep=False)
        config = found.run_config().to_dict()["policy"]
        assert (config["init_from"], config["num_layers"], config["hidden_size"]) == (str(agent), 1, 8)
        assert "policy.hidden_size" not in [parameter.name for parameter in found.parameters()], "it is not searched"
    layers = load("pong")
    assert with_checkpoints(layers, None, [], for_sweep=True) is layers
    swept = Path("choices.toml")
    swept.write_text(
        '[policy]\ninit_from = { value = "", choices = ["", "pong/7", "runs/pong/0007"], belief = ["pong/7", 0.5] }'
    )
    found = with_checkpoints(load("pong", config_file=swept), None, [], for_sweep=True)
    setting = found.settings["policy.init_from"]
    assert setting.value == "" and setting.range["choices"] == ["", str(agent), str(agent)]
    assert setting.range["belief"] == [str(agent), 0.5]
    assert found.run_config().to_dict()["policy"]["hidden_size"] == 32, "all trials have the same network"


def test_what_cannot_be_begun_with_is_one_line_and_nothing_is_made(agent: Path, run: Run) -> None:
    make_checkpoint(Path("cartpole.safetensors"), "cartpole", SIZES)
    Path("text.safetensors").write_text("no checkpoint")
    make_checkpoint(Path("own.safetensors"), "pong", module="mine:Net")  # a file does not decide which code is loaded
    before = sorted(Path().rglob("*"))
    for name, said in (
        ("none", "policy.init_from: none is no checkpoint and no run's folder; and there is no sweep 'none'"),
        ("pong/99", "policy.init_from: pong/99 is no checkpoint and no run's folder; and sweep 'pong' has no trial 99"),
        ("pong/²", "policy.init_from: pong/² is no checkpoint and no run's folder; check its path"),
        ("pong/0", "policy.init_from: trial pong/0 has left no checkpoint; name another one"),
        ("text.safetensors", f"policy.init_from: {Path.cwd()}/text.safetensors is no whole checkpoint; name another"),
        ("own.safetensors", "it was trained with policy.module mine:Net, not : use the same [policy] settings"),
        ("cartpole.safetensors", "expects (observation shape, choices, continuous actions) ((4,), (2,), 0), 'pong'"),
        ("pong/7 --policy.num-layers 2", "it was trained with policy.num_layers 1, not 2: use the same [policy]"),
    ):
        error = run.error(f"train --env pong --policy.init-from {name}")
        assert said in error, error
    assert "begin with a checkpoint of that form" in (
        run.error("sweep --env pong --name new --max-trials 1 --policy.init-from cartpole.safetensors")
    )
    assert "the trial that sweep 'pong' recommends may become another one; name the trial, which is now pong/7" in (
        run.error("sweep --env pong --name new --max-trials 1 --policy.init-from pong")
    )
    Path("choices.toml").write_text('[policy]\ninit_from = { value = "", choices = ["", "cartpole.safetensors"] }\n')
    assert "begin with a checkpoint of that form" in (
        run.error("sweep --env pong --config choices.toml --name new --max-trials 1")
    )
    after = [path for path in sorted(Path().rglob("*")) if path.name != "choices.toml"]
    assert [path for path in after if "protein.db" not in path.name] == [
        path for path in before if "protein.db" not in path.name
    ]


@pytest.mark.slow
def test_a_sweep_chooses_what_its_trials_begin_with(agent: Path, run: Run) -> None:
    Path("stages.toml").write_text(
        small_config() + '[policy]\ninit_from = { value = "pong/7", choices = ["", "pong/7"] }\n'
    )
    line = "sweep --env pong2 --config stages.toml --name stages --max-trials"
    run(f"{line} 2")
    run(f"{line} 4")  # resumed: the same choices
    trials = run.json("show stages --json")["trials"]
    begun = {trial["number"]: trial["params"]["policy.init_from"] for trial in trials}
    assert begun[0] == str(agent) and set(begun.values()) <= {"", str(agent)}
    for number, name in begun.items():
        kept = json.loads((Path("runs/stages") / f"{number:04d}" / "config.json").read_text())
        assert kept["policy"]["init_from"] == name
    assert str(agent) in run("show stages --trial 0")
