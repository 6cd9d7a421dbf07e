"""MiniGrid's observations as planes of bytes, against MiniGrid's own one-hot wrapper."""

from typing import Any

import gymnasium
import numpy as np
import pytest

from protein.trainer.environments import make, spec
from protein.trainer.errors import ConfigError

pytest.importorskip("minigrid")

DOORKEY = "gym:MiniGrid-DoorKey-5x5-v0"


def test_planes_are_minigrids_own_one_hot_and_the_direction() -> None:
    from minigrid.wrappers import OneHotPartialObsWrapper

    described = spec(DOORKEY)
    assert (described.observation_shape, described.action_sizes) == ((24, 7, 7), (7,))
    assert (described.observation_dtype, described.observation_high) == ("uint8", 1.0)
    envs = make(DOORKEY, 1)
    observations = np.zeros((1, described.observation_size), np.uint8)
    envs.reset(4, observations)
    wrapper: Any = OneHotPartialObsWrapper
    theirs = wrapper(gymnasium.make("MiniGrid-DoorKey-5x5-v0"))
    seen, _ = theirs.reset(seed=int(np.random.SeedSequence([4, 0]).generate_state(1)[0] >> 1))
    rewards, ends = np.zeros(1, np.float32), np.zeros((2, 1), np.bool_)
    directions = set()
    for action in np.random.default_rng(0).integers(0, 7, 60):
        planes = observations[0].reshape(24, 7, 7)
        np.testing.assert_array_equal(planes[:20], np.moveaxis(seen["image"], -1, 0))
        assert planes[20:].sum(axis=(1, 2)).tolist() == [49 * (k == seen["direction"]) for k in range(4)]
        directions.add(int(seen["direction"]))
        seen, _, terminal, truncation, _ = theirs.step(action)
        envs.step(np.array([action], np.int32), observations, rewards, *ends)
        if terminal or truncation:
            break
    assert len(directions) > 1
    envs.close()


def test_a_grid_that_somebody_has_flattened_stays_as_it_is() -> None:
    with pytest.raises(ConfigError, match=r"takes no argument env.args.sice; did you mean 'size'"):
        spec("gym:MiniGrid-Empty-8x8-v0", {"sice": 9})
    assert spec("gym:MiniGrid-Empty-8x8-v0", {"size": 9, "agent_view_size": 5}).observation_shape == (24, 5, 5)
