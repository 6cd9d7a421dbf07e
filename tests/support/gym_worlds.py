"""Small Gymnasium environments whose every number can be predicted, registered as `gym_worlds:NAME-v0`."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

LIMIT = 7  # steps until `Counter` is truncated
DEADLY = 2  # the action that ends an episode of `Counter`


class Counter(gymnasium.Env[np.ndarray, np.int64]):
    """Observes (draw of this episode, steps since it began); rewards the steps so far. It returns one and the same
    array always, as environments do that save allocations."""

    observation_space = spaces.Box(-1.0, 1e6, (2,), np.float64)
    action_space = spaces.Discrete(3, start=5)
    metadata = {"render_modes": ["rgb_array"], "render_fps": 12}  # noqa: RUF012

    def __init__(self, render_mode: str | None = None) -> None:
        self.now, self.render_mode = np.zeros(2), render_mode

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.now[:] = self.np_random.uniform(), 0
        return self.now, {"infos": "are dropped"}

    def step(self, action: np.int64) -> Any:
        assert self.action_space.contains(action)
        self.now[1] += 1
        terminal = action == 5 + DEADLY
        return self.now, self.now[1], terminal, self.now[1] >= LIMIT, {"step": self.now.copy()}

    def render(self) -> Any:
        return np.full((4, 6, 3), self.now[1], np.uint8)


class Echo(gymnasium.Env[Any, Any]):
    """Of any spaces: observes a sample of the one and asserts that actions are of the other. Reward: their sum."""

    def __init__(self, observations: spaces.Space[Any], actions: spaces.Space[Any]) -> None:
        self.observation_space, self.action_space = observations, actions

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action), action
        reward = 0.0 if isinstance(action, dict | tuple) else float(np.sum(action))
        return self.observation_space.sample(), reward, False, False, {}


class Faulty(gymnasium.Env[Any, np.int64]):
    """Keeps its promises until it is told to break one, by action 1."""

    observation_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, fault: str) -> None:
        self.fault = fault

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        first = np.zeros(2, np.float32)
        if self.fault == "begin":
            raise ConnectionError("no\nserver")
        if self.fault == "three":
            return np.zeros(3, np.float32)
        return first if self.fault == "first" else (first, {})

    def step(self, action: np.int64) -> Any:
        seen: dict[str, Any] = {
            "nan": np.array([0.0, np.nan], np.float32),
            "shape": np.zeros(3, np.float32),
            "none": None,
        }
        rewards: dict[str, Any] = {
            "reward": np.ones(2),
            "row": np.full(1, 0.5),
            "word": "much",
            "inf": np.float64(np.inf),
        }
        wrong = self.fault if action else ""
        if wrong == "raise":
            raise KeyError("door")
        if wrong == "four":  # as in gym before version 0.26
            return np.zeros(2, np.float32), 1.0, False, {}
        if wrong == "nothing":
            return None
        if wrong in ("ends", "cuts"):
            flags = np.zeros(2, np.bool_)
            return np.zeros(2, np.float32), 1.0, *((flags, False) if wrong == "ends" else (False, flags)), {}
        return seen.get(wrong, np.zeros(2, np.float32)), rewards.get(wrong, np.float32(1.0)), False, False, {}


class Unpacking(gymnasium.Wrapper[Any, Any, Any, Any]):
    """A wrapper that takes apart what it is given, as most do; `old`: into the four values of gym before 0.26."""

    def __init__(self, env: Any, old: bool = False) -> None:
        super().__init__(env)
        self.old = old

    def reset(self, **given: Any) -> Any:
        seen, infos = self.env.reset(**given)
        return seen, infos

    def step(self, action: Any) -> Any:
        if self.old:
            seen, reward, ended, infos = self.env.step(action)  # type: ignore[misc]
            return seen, reward, ended, False, infos
        return self.env.step(action)


def wrapped(fault: str) -> Any:
    return Unpacking(Faulty("" if fault == "old" else fault), old=fault == "old")


class Unseeded(Faulty):
    """Cannot be given a seed, as environments are that were written for one person's own loop."""

    def __init__(self) -> None:
        super().__init__("")

    def reset(self) -> Any:  # type: ignore[override]
        return np.zeros(2, np.float32), {}


ECHOES: dict[str, tuple[spaces.Space[Any], spaces.Space[Any]]] = {
    "Many": (spaces.Discrete(4), spaces.MultiDiscrete([3, 5], start=[1, -1])),
    "Switches": (spaces.MultiBinary(3), spaces.MultiBinary((2, 2))),
    "Box": (spaces.Box(-1, 1, (2, 3)), spaces.Box(np.array([-2, 0], np.float32), np.array([2, 10], np.float32))),
    "Image": (spaces.Box(0, 255, (6, 5, 3), np.uint8), spaces.Discrete(2)),
    "Grey": (spaces.Box(0, 15, (6, 5), np.uint8), spaces.Discrete(2)),
    "Frames": (spaces.Box(0, 255, (4, 6, 5), np.uint8), spaces.Discrete(2)),
    "Nested": (
        spaces.Dict({"a": spaces.Discrete(3), "b": spaces.Tuple((spaces.Box(-1, 1, (2,)), spaces.Discrete(2)))}),
        spaces.Discrete(2),
    ),
    "Bytes": (
        spaces.Dict(
            {
                "key": spaces.Discrete(3),
                "image": spaces.Box(0, 255, (6, 5, 3), np.uint8),
                "switches": spaces.MultiBinary(2),
            }
        ),
        spaces.Discrete(2),
    ),
    "Mixed": (spaces.Tuple((spaces.Box(0, 255, (6, 5, 3), np.uint8), spaces.Box(-1, 1, (2,)))), spaces.Discrete(2)),
    "Endless": (spaces.Sequence(spaces.Discrete(3)), spaces.Discrete(2)),
    "Unbounded": (spaces.Discrete(2), spaces.Box(-np.inf, np.inf, (1,))),
    "Whole": (spaces.Discrete(2), spaces.Box(0, 3, (1,), np.int64)),
    "Named": (
        spaces.Discrete(2),
        spaces.Dict(
            {
                "move": spaces.Discrete(3, start=4),
                "hands": spaces.Tuple(
                    (spaces.MultiDiscrete(np.array([[2, 3]])), spaces.Dict({"b": spaces.MultiBinary(2)}))
                ),
            }
        ),
    ),
    "Both": (spaces.Discrete(2), spaces.Tuple((spaces.Discrete(2), spaces.Dict({"x": spaces.Box(-1, 1, (2,))})))),
    "Text": (spaces.Discrete(2), spaces.Tuple((spaces.Discrete(2), spaces.Text(3)))),
    "Void": (spaces.Discrete(2), spaces.Dict({})),
}

if "Counter-v0" not in gymnasium.registry:
    gymnasium.register("Faulty-v0", f"{__name__}:Faulty")
    gymnasium.register("Limited-v0", f"{__name__}:Faulty", max_episode_steps=50)
    gymnasium.register("Wrapped-v0", f"{__name__}:wrapped", max_episode_steps=50)
    gymnasium.register("Batched-v0", vector_entry_point=f"{__name__}:Faulty")
    gymnasium.register("Unseeded-v0", f"{__name__}:Unseeded")
    gymnasium.register("Counter-v0", f"{__name__}:Counter", reward_threshold=20.0)
    for _name, (_observations, _actions) in ECHOES.items():
        gymnasium.register(
            f"{_name}-v0", f"{__name__}:Echo", kwargs={"observations": _observations, "actions": _actions}
        )
