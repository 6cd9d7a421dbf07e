"""`protein eval`: what it takes, what it says on the way, and what it refuses."""

import json
import math
import re
import sys
import time
from pathlib import Path

import pytest
import torch
from commands import Run
from safetensors import safe_open
from safetensors.torch import save_file

from protein.cli import main
from protein.cli.output import Progress

SMALL = (
    "--env.num-envs 4 --train.horizon 16 --train.minibatch-size 64 --train.total-timesteps 64 --train.threads 1"
    " --eval.episodes 4 --eval.num-envs 4 --train.device cpu --policy.hidden-size 8"
)


@pytest.fixture
def trained(folder: Path, run: Run) -> Path:
    """The folder of a finished run, in an empty working directory."""
    run(f"train --env cartpole {SMALL}")
    (found,) = (folder / "runs" / "train").iterdir()
    return found


def test_a_run_is_named_by_its_folder_or_by_its_checkpoint(trained: Path, run: Run) -> None:
    by_folder, by_file = (
        run.json(f"eval --checkpoint {path} --episodes 4 --json")
        for path in (trained, trained / "checkpoint.safetensors")
    )
    assert by_folder["scores"] == by_file["scores"]
    assert by_folder["checkpoint"] == by_file["checkpoint"] == str(trained / "checkpoint.safetensors")
    run(f"eval --checkpoint {trained} --episodes 1 --gif seen.gif")
    (trained / "checkpoint.safetensors").unlink()
    assert run.error(f"eval --checkpoint {trained}").startswith(
        f"--checkpoint {trained} is a folder without checkpoint.safetensors, which a run writes, and without GPT-2's"
    )


@pytest.mark.parametrize("flags", ["", " --gif seen.gif"])
def test_what_an_environment_prints_is_not_among_the_json(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], flags: str
) -> None:
    """As pygame does, when PettingZoo's environments load it. This one also goes to another folder."""
    (folder / "noisy_example.py").write_text(
        "import os, numpy as np\n"
        "print('Hello from the community')\n"
        "class Noisy:\n"
        "    observation_shape, action_sizes = (1,), (2,)\n"
        "    def __init__(self, num_envs, **_): self.num_envs = num_envs; os.chdir('/')\n"
        "    def reset(self, seed, observations): observations[:] = 0\n"
        "    def step(self, actions, observations, rewards, terminals, truncations, finals):\n"
        "        print('a step')\n"
        "        observations[:], terminals[:] = 0, True\n"
        "    def render(self): return np.zeros((2, 2, 3), np.uint8)\n"
    )
    monkeypatch.setattr(sys, "path", [*sys.path, str(folder)])
    monkeypatch.delitem(sys.modules, "noisy_example", raising=False)
    assert main(f"train --env python:noisy_example:Noisy {SMALL}".split()) == 0
    assert "--env python:noisy_example:Noisy" in capsys.readouterr().out  # the command that plays more episodes
    monkeypatch.delitem(sys.modules, "noisy_example")
    (trained,) = (folder / "runs" / "train").iterdir()
    trusted = "--env python:noisy_example:Noisy"
    assert main(f"eval --checkpoint {trained} {trusted} --episodes 2 --json{flags}".split()) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["scores"] == [0.0, 0.0]
    assert "community" in printed.err and "a step" in printed.err
    assert (folder / "seen.gif").is_file() == bool(flags)


@pytest.mark.parametrize("flags", ["", " --gif seen.gif"])
def test_weights_that_are_not_finite_are_one_line(trained: Path, run: Run, flags: str) -> None:
    path = trained / "checkpoint.safetensors"
    with safe_open(str(path), framework="pt") as file:
        metadata, tensors = file.metadata(), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    tensors["policy/head.bias"] = torch.tensor([0.0, math.nan, math.inf])
    sums = ("checksum", "checksums")  # a trainer that diverged has written the right ones
    save_file(tensors, str(path), {key: value for key, value in metadata.items() if key not in sums})
    said = run.error(f"eval --checkpoint {trained}{flags}")
    assert said.startswith(f"cannot use {path}: 2 of the 3 numbers of the network's 'head.bias' are not finite, the ")
    assert not Path("seen.gif").exists()


def test_it_says_how_far_it_is(
    trained: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Progress, "SECONDS", 0.0)
    for flags in ("", " --gif seen.gif"):
        assert main(f"eval --checkpoint {trained} --episodes 4{flags}".split()) == 0
        printed = capsys.readouterr()
        lines = printed.err.splitlines()
        assert lines[0] == "cartpole: 0 of 4 episodes played"
        assert all(
            re.fullmatch(r"cartpole: \d of 4 episodes played(, about (\d+h)?(\d+m)?(\d+s)? left)?", line)
            for line in lines
        )
        assert any("left" in line for line in lines) and "score " in printed.out
    assert main(f"eval --checkpoint {trained} --episodes 1 --gif seen.gif".split()) == 0
    assert "0 of 1 episodes played, about" in capsys.readouterr().err, "also of a single episode"


def test_progress_is_told_every_two_seconds_with_what_is_left(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    times = iter([0.0, 1.5, 2.5, 4.0, 5.0, 6.0, 8.0])
    monkeypatch.setattr(time, "monotonic", lambda: next(times))
    progress = Progress("trials written")
    for what, done in (
        ("pong", 0),
        ("pong", 10),
        ("pong", 0),
        ("pong", 40),
        ("pong", 1000),
        ("snake", 20),
        ("snake", 40),
    ):
        progress(what, done, 1000)
    assert capsys.readouterr().err.splitlines() == [
        "pong: 0 of 1,000 trials written",
        "pong: 1,000 of 1,000 trials written",
        "snake: 40 of 1,000 trials written, about 1m36s left",
    ]


def test_the_part_of_an_episode_that_was_played_tells_how_long_the_rest_takes(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    times = iter([0.0, 3.0, 6.0, 12.0])
    monkeypatch.setattr(time, "monotonic", lambda: next(times))
    progress = Progress("episodes played")
    for part in (0.0, 0.0, 0.25, 0.99):
        progress("pong", 0, 1, part=part)
    assert capsys.readouterr().err.splitlines() == [
        "pong: 0 of 1 episodes played",
        "pong: 0 of 1 episodes played, about 18s left",
        "pong: 0 of 1 episodes played, about 1s left",
    ]


class Screen:
    """Takes the place of the picture in a terminal: keeps the numbers that were shown."""

    def __init__(self) -> None:
        self.shown: list[tuple[int, float]] = []

    def view(self, *_: object, step: int, return_so_far: float, **__: object) -> str:
        self.shown.append((step, return_so_far))
        return ""


def test_the_last_picture_of_an_episode_has_its_last_reward(
    trained: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from protein.view import playback

    screen = Screen()
    monkeypatch.setattr(playback, "playback_view", screen.view)
    monkeypatch.setattr(playback, "pictures_of", lambda rate: (7, 0.0))  # few pictures, and none waits
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert main(f"eval --checkpoint {trained} --render --seed 5".split()) == 0
    score = re.search(r"score ([\d.]+)", capsys.readouterr().out)
    assert score is not None
    steps, last = screen.shown[-1]
    assert (steps, last) == (last, float(score[1])), "cartpole gives 1 for each step"
