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


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("MiniGrid-DoorKey-8x8-v0", {}),
        ("MiniGrid-DoorKey-5x5-v0", {"agent_view_size": 3}),
        ("MiniGrid-BlockedUnlockPickup-v0", {}),
        ("MiniGrid-Dynamic-Obstacles-6x6-v0", {"agent_view_size": 9}),
        ("MiniGrid-KeyCorridorS3R2-v0", {}),
        ("MiniGrid-LavaCrossingS9N2-v0", {}),
        ("MiniGrid-FourRooms-v0", {"see_through_walls": True}),
        ("BabyAI-UnlockPickup-v0", {}),
    ],
)
def test_what_is_seen_is_what_minigrid_computes(name: str, args: dict[str, Any]) -> None:
    """Wherever the agent is put and looks, with doors open and shut, and with something in its hands."""
    from minigrid.core.world_object import Door
    from minigrid.minigrid_env import MiniGridEnv

    from protein.trainer.environments.minigrid import observe

    of_minigrid: Any = MiniGridEnv.gen_obs
    made = {k: v for k, v in args.items() if k == "agent_view_size"}
    env: Any = gymnasium.make(name, disable_env_checker=True, **made).unwrapped
    env.see_through_walls = args.get("see_through_walls", env.see_through_walls)
    rng, images = np.random.default_rng(0), set()
    for episode in range(4):
        env.reset(seed=episode)
        things = [thing for thing in env.grid.grid if thing is not None and thing.can_pickup()]
        for _ in range(30):
            env.agent_pos = tuple(rng.integers(0, [env.width, env.height]).tolist())
            env.agent_dir = int(rng.integers(4))
            env.carrying = things[0] if things and rng.random() < 0.5 else None
            for thing in env.grid.grid:
                if isinstance(thing, Door):
                    thing.is_open = bool(rng.random() < 0.5)
            found, expected = observe(env), of_minigrid(env)
            np.testing.assert_array_equal(found["image"], expected["image"])
            assert found["image"].dtype == expected["image"].dtype and found["image"].flags.writeable
            assert {k: found[k] for k in ("direction", "mission")} == {k: expected[k] for k in ("direction", "mission")}
            images.add(found["image"].tobytes())
    assert len(images) >= 20, "the views must differ"


def test_an_environment_with_a_view_of_its_own_keeps_it() -> None:
    from minigrid.envs.empty import EmptyEnv

    from protein.trainer.environments.minigrid import observe, quicken_

    class Blind(EmptyEnv):
        def gen_obs(self) -> dict[str, Any]:
            return {"image": np.zeros((7, 7, 3), np.uint8), "direction": 0, "mission": self.mission}

    env: Any = Blind()
    quicken_(env)
    assert not env.reset(seed=0)[0]["image"].any()
    plain: Any = EmptyEnv()
    quicken_(plain)
    seen = plain.reset(seed=0)[0]["image"]
    np.testing.assert_array_equal(seen, observe(plain)["image"])
    assert seen.any() and "gen_obs" in vars(plain)


def test_a_grid_that_somebody_has_flattened_stays_as_it_is() -> None:
    with pytest.raises(ConfigError, match=r"takes no argument env.args.sice; did you mean 'size'"):
        spec("gym:MiniGrid-Empty-8x8-v0", {"sice": 9})
    assert spec("gym:MiniGrid-Empty-8x8-v0", {"size": 9, "agent_view_size": 5}).observation_shape == (24, 5, 5)


def test_pictures_that_a_wrapper_has_made_are_not_taken_for_codes_of_objects() -> None:
    from minigrid.wrappers import ImgObsWrapper, RGBImgPartialObsWrapper

    wrappers: Any = RGBImgPartialObsWrapper, ImgObsWrapper

    def pictured(*, wrapped_twice: bool = True) -> Any:
        env = wrappers[0](gymnasium.make("MiniGrid-Empty-5x5-v0"))
        return wrappers[1](env) if wrapped_twice else env

    register: Any = gymnasium.register
    register("Pictured-v0", entry_point=pictured)
    try:
        envs = make("gym:Pictured-v0", 2)
        observations = np.zeros((2, envs.spec.observation_size), envs.spec.observation_dtype)
        envs.reset(0, observations)
        envs.close()
        with pytest.raises(ConfigError, match=r"its observations have no fixed size: MissionSpace.*; wrap it"):
            make("gym:Pictured-v0", 2, args={"wrapped_twice": False})
    finally:
        gymnasium.registry.pop("Pictured-v0")
    assert observations.any()
