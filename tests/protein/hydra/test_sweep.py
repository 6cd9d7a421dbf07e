"""Hydra's sweeper, over real programs: what it runs, where it leaves it, how it resumes, and what it refuses."""

import math
import os
import signal
import sys
import types
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("hydra")

import numpy as np
import torch
from hydra.types import TaskFunction
from hydra_calls import Told, program, run_trial, started, sweep, trials
from omegaconf import OmegaConf
from patience import PATIENCE_SECONDS, wait_until
from trial_processes import TrialHere, trial_here

from protein.__main__ import main
from protein.errors import UsageError
from protein.hydra import sweep as hydra_sweep
from protein.hydra import trial as hydra_trial
from protein.types import TrialRecord, TrialState

__all__ = ["trial_here"]


def test_a_sweep_runs_resumes_and_leaves_its_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = program("yaml", tmp_path)
    words = [
        "lr=tag(log, interval(1e-3, 1.0))",
        "model=small,large",
        "model.dropout=interval(0, 0.5)",
        "note='{a b}'",
        "hydra.sweeper.method=random",
        "hydra.sweeper.when={model.dropout: \"model == 'large'\"}",
    ]
    assert sweep(folder, monkeypatch, *words, "hydra.sweeper.max_trials=1") == 0
    first, *_ = (folder / "multirun").glob("*/*")
    [one] = trials(folder, "train")
    assert one.params == {"lr": 0.1, "model": "small"}  # the program's own config
    assert one.score == pytest.approx(1.0 - 0.09 - 0.2)
    said = capfd.readouterr().out
    assert "the highest score is the best" in said

    # The same command, with a larger limit: it is later by now, and the folder stays.
    assert sweep(folder, monkeypatch, *words, "hydra.sweeper.max_trials=3") == 0
    assert [*(folder / "multirun").glob("*/*")] == [first]
    found = trials(folder, "train")
    assert [one.state for one in found] == [TrialState.COMPLETE] * 3
    assert all(("model.dropout" in one.params) == (one.params["model"] == "large") for one in found)
    for one in found:
        job = first / str(one.number)
        given = [f"{name}={value}" for name, value in one.params.items()]
        assert sorted(OmegaConf.load(job / ".hydra" / "overrides.yaml")) == sorted(["note='{a b}'", *given])
        config = OmegaConf.load(job / ".hydra" / "config.yaml")
        assert (config.note, config.lr) == ("{a b}", one.params["lr"])
        hydra = OmegaConf.load(job / ".hydra" / "hydra.yaml").hydra
        assert (hydra.job.num, hydra.mode, hydra.runtime.output_dir) == (one.number, "MULTIRUN", str(job))
    assert (first / "multirun.yaml").is_file()
    best = OmegaConf.load(first / "optimization_results.yaml")
    assert (best.best_params, best.best_value) in [(one.params, one.score) for one in found]
    monkeypatch.setattr(sys, "argv", ["protein", "best", "train"])
    assert main() == 0
    said = capfd.readouterr().out
    assert " train.py " in said and "hydra/sweeper" not in said and "in_trial" not in said  # a run like any other


def test_a_trial_that_fails_fails_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = program("yaml", tmp_path)
    words = ["returns=raise,0.5", "hydra.sweeper.start={returns: raise}", "hydra.sweeper.max_trials=2"]
    sweep(folder, monkeypatch, *words, "hydra.sweeper.method=random")
    failed, other = trials(folder, "train")
    assert "exited with code 1: ArithmeticError: the loss diverged at 0.1" in failed.reason
    assert other.score == 0.5


def returns(value: Any) -> TaskFunction:
    return lambda config: value


def raises(error: Exception) -> TaskFunction:
    def function(config: Any) -> None:
        raise error

    return function


def test_a_job_returns_its_score_and_says_why_it_failed_in_its_last_line(
    trial: TrialHere, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = program("yaml", tmp_path)
    with trial.process() as said:
        for value in (1, np.float32(0.5), torch.tensor(0.5), math.nan, None):
            assert run_trial(folder, monkeypatch, returns(value)) == 0
    assert str([one["result"] for one in said]) == "[1.0, 0.5, 0.5, nan]"
    missing = "Missing mandatory value: lr full_key: lr object_type=dict"
    with trial.process() as said:
        for function, words, why in (
            *(
                (returns(value), [], f"the function returned {value!r}, which is no number; return the score")
                for value in (True, np.True_, "0.5", {"score": 1}, np.ones(2))
            ),
            (lambda config: config.lr, ["lr=???"], f"MissingMandatoryValue: {missing}"),
            (raises(ValueError("two\nlines")), [], "ValueError: two lines"),
            (returns(1), ["lrr=1"], "ConfigCompositionException: Could not override 'lrr'. To append to your config"),
            (returns(1), ["model=huge"], "MissingConfigException: In 'config': Could not find 'model/huge'"),
        ):
            assert run_trial(folder, monkeypatch, function, *words) == 1
            assert capsys.readouterr().err.splitlines()[-1].startswith(why)
    assert said == []


@pytest.mark.filterwarnings("ignore:hydra.utils.instantiate")  # 1.4, as it does for any callback of a program
def test_callbacks_of_hydra_see_the_job_in_a_trial_and_not_the_multirun(
    trial: TrialHere, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Told, "calls", [])
    with trial.process():
        told = "+hydra.callbacks={told: {_target_: hydra_calls.Told}}"
        assert run_trial(program("yaml", tmp_path), monkeypatch, returns(1), told) == 0
    assert Told.calls == ["on_job_start", "on_job_end"]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["lr=0.1"], "there is nothing to search"),
        (["lrr=interval(0,1)"], "Could not override 'lrr'. To append to your config use +lrr="),
        (["model=small,huge"], "model=huge: In 'config': Could not find 'model/huge'"),
        (
            ["model=small,null"],
            "model=null: ValueError: Config group override must be a string or a list. Got NoneType",
        ),
        (
            [
                "model=small,large",
                "+model.dropout=interval(0,1)",
                "hydra.sweeper.when={model.dropout: \"model == 'large'\"}",
            ],
            "Could not append to config. An item is already at 'model.dropout'",
        ),
        (["lr=interval(1,0)"], "its lowest value 1.0 is not below its highest 0.0; swap them"),
        (["lr=interval(0,1)", "hydra.sweeper.max_cost=abc"], "hydra.sweeper.max_cost 'abc' is not a duration"),
        (["lr=interval(0,1)", "hydra.sweeper.workers=many"], "hydra.sweeper.workers 'many' is not a whole number"),
        (["lr=interval(0,1)", "hydra.sweeper.direction=up"], "hydra.sweeper.direction 'up' must be maximize or"),
        (["lr=interval(0,1)", "hydra.sweeper.direction=[minimize,maximize]"], "one score decides"),
        (["lr=interval(0,1)", "hydra.sweeper.when={model: 'lr > 1'}"], "model is not searched; searched are lr"),
        (["lr=interval(0,1)", "hydra.sweeper.start={lr: 2}"], "lr"),
        (["lr=interval(0,1)", "hydra.sweeper.constraints=['lr > b']"], "'b'"),
        (["lr=interval(0,1)", "hydra.sweeper.name=a/b"], "a/b"),
        (["lr=interval(0,1)", "hydra.sweeper.backend=moon"], "moon"),
        (["lr=interval(0,1)", "hydra.sweeper.params={note: 'choice('}"], "hydra.sweeper.params: "),
        (["lr=interval(0,1)", "hydra.sweeper.params=[lr]"], "hydra.sweeper.params must map names to values"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(
    words: list[str], why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = program("yaml", tmp_path)
    before = sorted(folder.rglob("*"))
    assert sweep(folder, monkeypatch, *words) == 2
    said = [line for line in capsys.readouterr().err.splitlines() if line]
    assert len(said) == 1 and said[0].startswith("error: ") and why in said[0]
    assert sorted(folder.rglob("*")) == before


def test_a_stored_sweep_keeps_its_ranges_and_its_folder_also_from_one_that_starts_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = program("yaml", tmp_path)
    of_job = "${hydra.job.num}-${hydra.job.override_dirname}-${hydra.sweeper.max_trials}-${hydra:sweeper.store}"
    always = "hydra.sweeper.max_trials=1", f"hydra.sweep.subdir={of_job}"
    words = "lr=interval(0,1)", "hydra.sweep.dir=out", *always
    check = hydra_sweep._check

    def check_while_another_begins(*args: Any) -> None:
        monkeypatch.setattr(hydra_sweep, "_check", check)
        assert sweep(folder, monkeypatch, *words) == 0
        check(*args)

    with monkeypatch.context() as patch:
        patch.setattr(hydra_sweep, "_check", check_while_another_begins)
        assert sweep(folder, monkeypatch, *words, "hydra.sweeper.name=at-once") == 2
    assert "has the jobs of another sweep" in capsys.readouterr().err
    assert (folder / "out" / "0-lr=0.1-1-None" / ".hydra").is_dir(), "an interpolation is one of the job"
    for other, why in (
        (["lr=interval(0,2)", "hydra.sweep.dir=out"], "exists with lr = "),
        (["lr=interval(0,1)", "hydra.sweep.dir=other"], "exists with hydra.sweep.dir = out (now other)"),
        (["lr=interval(0,1)", "hydra.sweep.dir=out", "note=other"], "exists with --command = "),
        (["lr=interval(0,1)", "hydra.sweeper.name=b", "hydra.sweep.dir=out"], "has the jobs of another sweep"),
    ):
        capsys.readouterr()
        assert sweep(folder, monkeypatch, *other, *always) == 2
        assert why in capsys.readouterr().err
    assert not (folder / "other").exists()
    config = folder / "conf" / "config.yaml"
    config.write_text(config.read_text().replace("lr: 0.1", "lr: 0.5"))  # where it would begin, and no more
    assert sweep(folder, monkeypatch, *words) == 0
    assert len(trials(folder, "train")) == 1


def test_a_sweep_begins_with_the_program_s_own_values_of_all_kinds() -> None:
    own = {"name": "a b", "none": None, "end": TrialState.FAILED, "ends": [TrialState.FAILED, 1], "path": Path("/a")}
    config = OmegaConf.create({"hydra": {"runtime": {"choices": {"model": "small"}}}, **own})
    found = {key: hydra_sweep._value(config, key) for key in ("model", *own, "other")}
    assert found == {
        "model": "small",
        "name": "'a b'",
        "none": "null",
        "end": "FAILED",
        "ends": "[FAILED,1]",
        "path": "'/a'",
        "other": None,
    }


@pytest.mark.parametrize(("error", "said"), [(AssertionError(), "AssertionError"), (KeyError("x"), "KeyError: 'x'")])
def test_what_others_raise_while_a_config_is_composed_says_what_it_is(error: Exception, said: str) -> None:
    def validate(batch: object) -> None:
        raise error

    asked: Any = types.SimpleNamespace(overrides=lambda params: [])
    nothing: Any = types.SimpleNamespace(parameters=())
    with pytest.raises(UsageError) as caught:
        hydra_sweep._check(asked, nothing, {}, nothing, validate)
    assert str(caught.value) == said


@pytest.mark.slow
def test_structured_configs_with_nested_groups(tmp_path: Path) -> None:
    folder = program("structured", tmp_path)
    words = [
        "app.py",
        "train/optimizer@train.optim=adam,sgd",
        "train.optim.lr=tag(log, interval(1e-3, 1.0))",
        "data.batch_size=tag(pow2, int(interval(16, 256)))",
        "data.layers=[8],[8,8],[8,8,8]",
        "train.optim.momentum=range(0.5, 1.0, 0.1)",
        "hydra.sweeper.when={train.optim.momentum: \"train_optimizer_train.optim == 'sgd'\"}",
        "hydra.sweeper.direction=minimize",
        "hydra.sweeper.max_trials=12",
        "hydra.sweeper.workers=2",
    ]
    ran = started(folder, words)
    assert ran.wait(PATIENCE_SECONDS) == 0, (folder / "log").read_text()
    found = trials(folder, "app")
    assert [one.state for one in found] == [TrialState.COMPLETE] * 12
    assert min(one.score or 0.0 for one in found) < found[0].score  # type: ignore[operator]


@pytest.mark.slow
def test_killed_in_the_middle_the_same_command_goes_on(tmp_path: Path) -> None:
    """Some of its trials fail."""
    folder = program("yaml", tmp_path)
    words = ["train.py", "lr=tag(log, interval(1e-3, 4.0))", "model=small,large", "hydra.sweeper.workers=2"]
    words.append("hydra.sweeper.max_trials=12")
    ran = started(folder, words)

    def finished() -> list[TrialRecord]:
        is_there = (folder / "runs" / "protein.db").exists()
        return [one for one in (trials(folder, "train") if is_there else []) if one.state.finished]

    wait_until(lambda: len(finished()) >= 4)
    os.kill(ran.pid, signal.SIGKILL)
    ran.wait()
    before = {one.number: one for one in finished()}
    assert len(before) < 12
    again = started(folder, words)
    assert again.wait(PATIENCE_SECONDS) == 0, (folder / "log").read_text()
    found = trials(folder, "train")
    assert len(found) == 12 and all(one.state.finished for one in found)
    assert all(found[number].score == one.score for number, one in before.items())
    failed = [one for one in found if one.state is TrialState.FAILED]
    assert all("the loss diverged" in one.reason for one in failed)
    assert len([*(folder / "multirun").glob("*/*")]) == 1


@pytest.mark.slow
def test_a_torch_program_that_reports_is_stopped(tmp_path: Path) -> None:
    """It would go on for an hour. By its own word an epoch costs a second."""
    folder = program("torch", tmp_path)
    words = ["train.py", "lr=tag(log, interval(1e-6, 0.5))", "seed=1", "hydra.sweeper.max_cost=10m"]
    ran = started(folder, [*words, "hydra.sweeper.max_trial_cost=20s", "hydra.sweeper.max_trials=2"])
    assert ran.wait(PATIENCE_SECONDS) == 0, (folder / "log").read_text()
    found = trials(folder, "train")
    assert [one.state for one in found] == [TrialState.PRUNED] * 2
    assert all(one.steps >= 20 and one.curve[0].steps == 1 for one in found)


@pytest.mark.slow
@pytest.mark.parametrize(("launcher", "module"), [("joblib", "joblib"), ("submitit_local", "submitit")])
def test_launchers_of_hydra(launcher: str, module: str, tmp_path: Path) -> None:
    pytest.importorskip(f"hydra_plugins.hydra_{module}_launcher")
    folder = program("yaml", tmp_path)
    words = ["train.py", "lr=interval(0.01, 0.5)", f"hydra/launcher={launcher}", "hydra.sweeper.max_trials=3"]
    ran = started(folder, words)
    said = (folder / "log").read_text
    assert ran.wait(PATIENCE_SECONDS) == 0, said()
    assert [one.state for one in trials(folder, "train")] == [TrialState.COMPLETE] * 3
    assert ("is called once for each trial" in said()) == (launcher == "submitit_local")
    [top] = (folder / "multirun").glob("*/*")
    assert all((top / str(number) / ".hydra" / "overrides.yaml").is_file() for number in range(3))


def test_a_trial_that_is_stopped_takes_its_job_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """As submitit's jobs on a cluster outlive the process that waits for them."""
    cancelled: list[object] = []

    class Job:
        def cancel(self) -> None:
            cancelled.append(self)

    monkeypatch.setitem(sys.modules, "submitit", types.SimpleNamespace(Job=Job))
    jobs = [Job(), Job()]
    with pytest.raises(SystemExit) as ended:
        hydra_trial._end(signal.SIGTERM, None)
    assert ended.value.code == 128 + signal.SIGTERM
    assert {id(one) for one in jobs} <= {id(one) for one in cancelled}
