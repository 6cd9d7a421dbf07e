"""Files of the user's own, networks, environments and configs: what is wrong in them is one line, and nothing is made.

`protein train` and `protein sweep` say the same.
"""

from pathlib import Path

import pytest
from commands import Run

from protein.cli import main

NETWORK = """\
from torch import nn

class Net(nn.Module):
    def __init__(self, observation_shape, action_outputs, value_outputs):
        super().__init__()
        self.layer = nn.Linear(observation_shape[0], action_outputs + value_outputs)

    def forward(self, observations):
        actions, values = self.layer(observations).split([2, 1], dim=1)
        return BODY
"""


@pytest.fixture
def beside(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, whose modules are found here alone."""
    monkeypatch.syspath_prepend(str(folder))
    return folder


@pytest.mark.parametrize(
    ("name", "body", "message"),
    [
        ("cut_net", "actions.detach(), values", "must return actions that can be differentiated by its weights"),
        ("overwriting_net", "actions.exp().add_(1), values", "on a minibatch of 4 samples: RuntimeError: one of"),
        ("narrow_net", "actions[:, :1], values", "must return actions of shape (3, 2)"),
        ("infinite_net", "actions / 0, values", "must return actions that are finite floats"),
        ("failing_net", "actions @ actions, values", "RuntimeError: mat1 and mat2 shapes cannot be multiplied"),
    ],
)
def test_a_network_that_cannot_be_trained_is_one_line_and_nothing_is_made(
    beside: Path, run: Run, name: str, body: str, message: str
) -> None:
    (beside / f"{name}.py").write_text(NETWORK.replace("BODY", body))
    for command in ("train", "sweep --max-cost 1m"):
        line = run.error(f"{command} --env cartpole --policy.module {name}:Net")
        assert line.startswith(f"policy.module '{name}:Net' ") and message in line
    assert {path.name for path in beside.iterdir()} <= {f"{name}.py", "__pycache__"}


def test_a_network_without_memory_takes_minibatches_smaller_than_a_segment(beside: Path, run: Run) -> None:
    (beside / "flat_net.py").write_text(NETWORK.replace("BODY", "actions, values"))
    (beside / "mind_net.py").write_text(
        NETWORK.replace("observations):", "observations, state):")
        .replace("BODY", "actions, values, state")
        .replace("        super().__init__()\n", "        super().__init__()\n        self.state_size = 3\n")
    )
    small = (
        "--env.num-envs 4 --train.horizon 16 --train.minibatch-size 8 --train.total-timesteps 128 --train.threads 1"
        " --eval.episodes 4 --eval.num-envs 4 --train.device cpu"
    )
    assert "128 steps" in run(f"train --env cartpole --policy.module flat_net:Net {small}")
    line = run.error(f"train --env cartpole --policy.module mind_net:Net {small}")
    assert line.startswith("train.minibatch_size (8) is smaller than train.accumulation_steps (1) segments of")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import os\ndef broken(:\n    pass\n", "SyntaxError: invalid syntax (MODULE.py, line 2)"),
        ("import os\nimport numpi\n", "ModuleNotFoundError: No module named 'numpi' (MODULE.py, line 2)"),
        ("import os\n\nSIZE = height\n", "NameError: name 'height' is not defined (MODULE.py, line 3)"),
    ],
)
def test_a_file_that_cannot_be_loaded_is_one_line_with_its_place(
    beside: Path, run: Run, text: str, message: str, request: pytest.FixtureRequest
) -> None:
    module = f"unloadable_{request.node.callspec.indices['text']}"
    (beside / f"{module}.py").write_text(text)
    message = message.replace("MODULE", module)
    for env in (f"python:{module}:Env", f"gym:{module}:Env-v0"):
        assert run.error(f"train --env {env}") == f"cannot make '{env}': {message}"
    line = run.error(f"sweep --env cartpole --policy.module {module}:Net")
    assert line == f"cannot load policy.module '{module}:Net': {message}"
    assert not (beside / "runs").exists()


def test_an_environment_that_fails_when_it_is_made_is_one_line_with_its_place(beside: Path, run: Run) -> None:
    (beside / "levels.py").write_text("def make(num_envs, **given):\n    raise ValueError('no such level')\n")
    line = run.error("train --env python:levels:make")
    assert line == "cannot make 'python:levels:make': ValueError: no such level (levels.py, line 2)"


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("learning_rate = { value = 0.01, min = 0.1, max = 0.001 }", "min 0.1 is not below max 0.001"),
        ("learning_rate = { value = 0.01, min = 0.001, max = 0.1, scale = 'lgo' }", "scale 'lgo'; did you mean 'log'?"),
        ("learning_rate = { value = 0.01, min = -1, max = 0.1, scale = 'log' }", "min -1 of a log range"),
        ("learning_rate = { value = 0.5, min = 0.001, max = 0.1 }", "value 0.5 is outside its range [0.001, 0.1]"),
        ("optimizer = { value = 'adamw', choices = ['adamw', 'adam'] }", "cannot be 'adam'; did you mean 'adamw'?"),
        ("optimizer = { value = 'adamw', choices = 'adamw' }", "choices = 'adamw' must be a list"),
        ("lr_schedule = { value = 'cosine', min = 1, max = 2 }", "is not a number, so it has no min and max"),
    ],
)
def test_a_range_that_no_sweep_could_use_is_refused_by_training_as_well(
    folder: Path, run: Run, setting: str, message: str
) -> None:
    (folder / "mine.toml").write_text(f"[train]\n{setting}\n")
    lines = {run.error(f"{command} --env cartpole --config mine.toml") for command in ("train", "sweep")}
    assert len(lines) == 1 and message in (line := lines.pop()) and line.startswith("mine.toml: ")
    assert [path.name for path in folder.iterdir()] == ["mine.toml"]


def test_a_range_that_a_sweep_can_use_does_not_keep_a_run_from_its_value(folder: Path) -> None:
    (folder / "mine.toml").write_text("[train]\nlearning_rate = { value = 0.01, min = 0.001, max = 0.1 }\n")
    given = "--train.learning-rate 0.5 --train.total-timesteps 64 --env.num-envs 1 --train.horizon 64"
    small = "--train.minibatch-size 64 --eval.episodes 1 --eval.num-envs 1 --train.device cpu --train.threads 1"
    assert main(f"train --env cartpole --config mine.toml {given} {small}".split()) == 0
