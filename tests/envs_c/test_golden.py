"""Seeded trajectories against checked-in ones: an environment's behaviour never changes unnoticed, on any machine.

After a change that is meant, `python tests/envs_c/test_golden.py NAME ...` writes those environments' files in
tests/golden/ anew; without a name, all of them.
"""

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from env_buffers import GAMES, Stepper, as_floats

from protein import envs_c

GOLDEN = Path(__file__).parents[1] / "golden"
STEPS, EVERY, EPISODES = 1500, 100, 12


def trajectory(name: str) -> dict[str, Any]:
    """A few environments at frame skip 3: every output hashed, some of them in full to show where it parts."""
    few = envs_c.spec(name).agents_per_env <= 2
    stepper = Stepper(name, 4 if few else 2, seed=2026, frame_skip=3)
    digest = hashlib.sha256(as_floats(stepper.out.observations).tobytes())
    samples = []
    for step in range(1, (STEPS if few else STEPS // 5) + 1):
        out = stepper.step()
        digest.update(out.bytes())
        if stepper.vec.playing is not None:
            digest.update(stepper.vec.playing.tobytes())
        if step % EVERY == 0:
            samples.append({"step": step, "observation": out.observations[1].tolist(), "sha256": digest.hexdigest()})
    episodes = stepper.vec.drain_episodes()
    columns = (episodes.agent // stepper.vec.spec.agents_per_env, episodes.score, episodes.return_, episodes.length)
    return {
        "samples": samples,
        "num_episodes": len(episodes),
        "episodes_sha256": hashlib.sha256(b"".join(column.tobytes() for column in columns)).hexdigest(),
        "first_episodes": [
            {"env": int(env), "score": float(score), "return": float(return_), "length": int(length)}
            for env, score, return_, length in list(zip(*columns, strict=True))[:EPISODES]
        ],
    }


@pytest.mark.parametrize("name", GAMES)
def test_trajectory_is_the_golden_one(name: str) -> None:
    golden = json.loads((GOLDEN / f"{name}.json").read_text())
    assert trajectory(name) == golden
    assert golden["first_episodes"]


def write(name: str) -> None:
    """One line a sample and an episode, so that a change shows where trajectories part."""
    lines = [
        f' "{key}": ' + (f"[\n  {lines}\n ]" if isinstance(value, list) else json.dumps(value))
        for key, value in trajectory(name).items()
        for lines in [",\n  ".join(map(json.dumps, value)) if isinstance(value, list) else ""]
    ]
    (GOLDEN / f"{name}.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    for each in sys.argv[1:] or GAMES:
        write(each)
