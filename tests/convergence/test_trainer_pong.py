"""Pong is solved from its configuration file: mean score >= 20 of 21 over the last 100 episodes, on every seed."""

from pathlib import Path

import pytest
from event_log import EventLog

from protein.envs_c import spec
from protein.trainer.config import RunConfig, load
from protein.trainer.run import run

CONFIG = Path(__file__).parents[2] / "configs" / "pong.toml"


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_pong_is_solved_on_every_seed(seed: int) -> None:
    nested = load(CONFIG).to_dict()
    nested["train"]["seed"] = seed
    events = EventLog()
    result = run(RunConfig.from_dict(nested), directory=None, report=events.record)
    solved = spec("pong").solved_score
    assert result.metrics["train_score"] >= solved
    assert result.score is not None and result.score >= solved
    reached = [
        event["steps"] for event in events if event["event"] == "measurement" and (event["score"] or -21) >= solved
    ]
    assert reached[0] < 0.8 * result.steps, "solved with a margin, not on the last steps"
