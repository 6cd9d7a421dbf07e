"""Two short runs learn their games: seconds each, so that every run of the tests would notice a trainer that does not.

The long ones, on several seeds and to the solved score, are in `convergence/`.
"""

from pathlib import Path

import pytest

from protein.trainer.config import RunConfig, load
from protein.trainer.events import ignore
from protein.trainer.run import run

CONFIGS = Path(__file__).parents[2] / "configs"


@pytest.mark.parametrize(
    ("name", "steps", "score"),
    [("pong", 1_200_000, 17.0), pytest.param("cartpole", 500_000, 400.0, marks=pytest.mark.slow)],
)
def test_a_short_run_learns(name: str, steps: int, score: float) -> None:
    """Random play scores -20 in pong and 25 in cartpole; three seeds reached 20.2 and 500 and more."""
    nested = load(CONFIGS / f"{name}.toml").to_dict()
    nested["train"] |= {"total_timesteps": steps, "threads": 1}
    nested["eval"] |= {"episodes": 64, "num_envs": 64}
    result = run(RunConfig.from_dict(nested), directory=None, report=ignore)
    assert result.score is not None and result.score >= score
