"""Packages that are not installed: one line names the extra that brings them."""

import subprocess
import sys

import pytest

pytest.importorskip("gymnasium")

MISSING = {
    "gym:LunarLander-v3": ("Box2D", "box2d"),
    "gym:HalfCheetah-v5": ("mujoco", "mujoco"),
    "gym:ALE/Pong-v5": ("ale_py", "atari"),
    "gym:MiniGrid-Empty-8x8-v0": ("minigrid", "minigrid"),
    "pettingzoo:mpe2.simple_spread_v3": ("mpe2", "pettingzoo"),
    "procgen:coinrun": ("procgen", "procgen"),
}


def test_a_missing_extra_is_named_in_one_line() -> None:
    code = (
        f"import sys; missing = {MISSING!r}\n"
        "for package, _ in missing.values(): sys.modules[package] = None\n"
        "from protein.trainer.environments import spec\n"
        "from protein.trainer.errors import ConfigError\n"
        "for name in missing:\n"
        "    try: spec(name)\n"
        "    except ConfigError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert len(lines) == len(MISSING)
    for line, (name, (_, extra)) in zip(lines, MISSING.items(), strict=True):
        assert f"'{name}'" in line and f"pip install 'protein-sweep[{extra}]'" in line
        assert line.count("pip install") == 1, "one remedy is enough"
