"""Our environments with Gymnasium's interface: `protein/NAME-v0`, once this module has been imported.

    import protein.envs_c.gymnasium
    env = gymnasium.make("protein/pong-v0", frame_skip=8)  # one environment
    envs = gymnasium.make_vec("protein/pong-v0", num_envs=1024, threads=4)  # many, stepped in C

or in one call, `gymnasium.make("protein.envs_c.gymnasium:protein/pong-v0")`. An environment of several agents has only
the vector interface, with a row for each agent.

`observation_space` is a Box of `spec.observation_shape`, with the bounds in the comment of the environment's header or
looser ones. Actions are Discrete, MultiDiscrete or a Box from -1 to 1. At an episode's end `info["score"]` is its
score, which `envs_c.EnvSpec.score_range` and `solved_score` refer to. All randomness of the episodes comes from the
seed of `reset`. Frames are counted and episodes truncated in C.
"""

from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.vector.utils import batch_space

from protein import envs_c

from . import drawing

__all__ = ["NativeEnv", "NativeVectorEnv", "env_id"]

Array = npt.NDArray[Any]  # float32, or uint8

# The largest absolute value in each column of an observation, where it is not 1.
_LIMITS: dict[str, list[float]] = {"cartpole": [10.0, 10.0, 10.0, 10.0], "pendulum": [1.0, 1.0, 8.0]}


def env_id(name: str) -> str:
    """Returns the id under which Gymnasium knows one of `envs_c.names()`."""
    return f"protein/{name}-v0"


def _observation_space(spec: envs_c.EnvSpec) -> Any:
    if spec.observation_dtype == "uint8":
        return spaces.Box(0, int(spec.observation_high), spec.observation_shape, np.uint8)
    high = np.array(_LIMITS.get(spec.name, [1.0] * spec.observation_size), np.float32).reshape(spec.observation_shape)
    return spaces.Box(-high, high)


def _action_space(spec: envs_c.EnvSpec) -> Any:
    if spec.continuous_actions:
        return spaces.Box(-1.0, 1.0, (spec.continuous_actions,))
    if len(spec.action_sizes) == 1:
        return spaces.Discrete(spec.action_sizes[0])
    return spaces.MultiDiscrete(list(spec.action_sizes))


class _Batch:
    """A `VecEnv` with its arrays; `finals` keeps the last observations of episodes that ended."""

    def __init__(self, name: str, num_envs: int, frame_skip: int, threads: int) -> None:
        self.envs = envs_c.VecEnv(name, num_envs, frame_skip=frame_skip, threads=threads)
        rows, spec = self.envs.num_agents, self.envs.spec
        self.observations = np.zeros((rows, spec.observation_size), spec.observation_dtype)
        self.finals = np.zeros_like(self.observations)
        self.rewards = np.zeros(rows, np.float32)
        self.terminals = np.zeros(rows, np.bool_)
        self.truncations = np.zeros(rows, np.bool_)
        self.actions: npt.NDArray[Any] = np.zeros(
            (rows, spec.action_components), np.float32 if spec.continuous_actions else np.int32
        )

    def reset(self, generator: np.random.Generator) -> None:
        self.envs.reset(int(generator.integers(2**63)), self.observations)

    def step(self, actions: Any) -> envs_c.Episodes:
        """Takes actions of any integer or float type; returns the episodes that ended."""
        self.actions[:] = np.reshape(actions, self.actions.shape)
        self.envs.step(
            self.actions,
            self.observations,
            self.rewards,
            self.terminals,
            self.truncations,
            self.finals,
            all_finals=True,
        )
        return self.envs.drain_episodes()


class NativeEnv(gymnasium.Env[Array, Any]):
    """One environment with one agent."""

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 30}  # noqa: RUF012

    def __init__(self, name: str, *, frame_skip: int = 1, render_mode: str | None = None) -> None:
        """Makes it.

        Args:
            name: one of `envs_c.names()`.
            frame_skip: frames for which an action is held.
            render_mode: one of `metadata["render_modes"]`, or None.

        Raises:
            UnknownEnvError: there is no environment of that name.
            ValueError: it has several agents, or it lacks this render mode.
        """
        described = envs_c.spec(name)
        if described.agents_per_env > 1:
            raise ValueError(
                f"{name} has {described.agents_per_env} agents, which this interface cannot show: "
                f'use gymnasium.make_vec("{env_id(name)}", num_envs=...)'
            )
        if render_mode is not None and render_mode not in self.metadata["render_modes"]:
            raise ValueError(f"render_mode {render_mode!r} is none of {self.metadata['render_modes']}")
        self.render_mode = render_mode
        self.observation_space = _observation_space(described)
        self.action_space = _action_space(described)
        self._batch = _Batch(name, 1, frame_skip, threads=1)
        self._over = True
        frames_per_second = drawing.FRAMES_PER_SECOND.get(name, self.metadata["render_fps"])
        self.metadata = {**self.metadata, "render_fps": max(1, round(frames_per_second / frame_skip))}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        """Begins an episode. There are no options."""
        super().reset(seed=seed)
        self._batch.reset(self.np_random)
        self._over = False
        return self._row(self._batch.observations), {}

    def step(self, action: Any) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        """Takes one action. Raises ResetNeeded where the episode has ended."""
        if self._over:
            raise gymnasium.error.ResetNeeded("the episode has ended: call reset() first")
        batch = self._batch
        finished = batch.step(action)
        terminal, truncation = bool(batch.terminals[0]), bool(batch.truncations[0])
        self._over = terminal or truncation
        observation = self._row(batch.finals if self._over else batch.observations)
        info = {"score": float(finished.score[0])} if self._over else {}
        return observation, float(batch.rewards[0]), terminal, truncation, info

    def render(self) -> Any:
        """Returns a picture, `H x W x 3` of uint8, where `render_mode` is "rgb_array"."""
        if self.render_mode is None:
            return None
        return drawing.frame(self._batch.envs, self._batch.finals if self._over else self._batch.observations)

    def _row(self, rows: Array) -> Array:
        return np.array(rows[0].reshape(self._batch.envs.spec.observation_shape))


class NativeVectorEnv(gymnasium.vector.VectorEnv[Array, Any, Any]):
    """Many environments stepped in C. `num_envs` counts rows: agents, where an environment has several.

    An episode ends and the next one begins in the same step (AutoresetMode.SAME_STEP): `infos["final_obs"]` and
    `infos["score"]` belong to the ended episodes, in the rows that `infos["_final_obs"]` and `infos["_score"]` mark.
    Where agents come and go, `infos["playing"]` marks those that act in the next step. The step in which one comes is
    terminal in its row, and has no final observation.
    """

    metadata: dict[str, Any] = {  # noqa: RUF012
        "render_modes": [],
        "autoreset_mode": gymnasium.vector.AutoresetMode.SAME_STEP,
    }

    def __init__(self, name: str, num_envs: int = 1, *, frame_skip: int = 1, threads: int = 1) -> None:
        """Makes them.

        Args:
            name: one of `envs_c.names()`.
            num_envs: number of environments; `self.num_envs` is this number times the agents of one.
            frame_skip: frames for which an action is held.
            threads: that step the environments; results do not depend on them.

        Raises:
            UnknownEnvError: there is no environment of that name.
            ValueError: a number is out of range.
        """
        self._batch = _Batch(name, num_envs, frame_skip, threads)
        self.num_envs = self._batch.envs.num_agents
        self.render_mode = None
        self.single_observation_space = _observation_space(self._batch.envs.spec)
        self.single_action_space = _action_space(self._batch.envs.spec)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        """Begins all episodes anew. One seed serves all of them; a list of seeds, or options, raise a ValueError."""
        if isinstance(seed, list) or options:
            raise ValueError("these environments take one seed for all of them, and no options")
        super().reset(seed=seed)
        self._batch.reset(self.np_random)
        return self._rows(self._batch.observations), self._playing()

    def step(self, actions: Any) -> tuple[Array, Any, Any, Any, dict[str, Any]]:
        """Takes one action in each row."""
        batch = self._batch
        finished = batch.step(actions)
        infos = self._playing()
        if len(finished):
            ended = np.zeros(self.num_envs, np.bool_)
            ended[finished.agent] = True
            finals, scores = np.full(self.num_envs, None, object), np.zeros(self.num_envs, np.float32)
            for row in finished.agent:
                finals[row] = self._rows(batch.finals[row : row + 1])[0]
            scores[finished.agent] = finished.score
            infos |= {"final_obs": finals, "_final_obs": ended, "score": scores, "_score": ended.copy()}
        return (
            self._rows(batch.observations),
            batch.rewards.astype(np.float64),
            batch.terminals.copy(),
            batch.truncations.copy(),
            infos,
        )

    def _playing(self) -> dict[str, Any]:
        playing = self._batch.envs.playing
        return {} if playing is None else {"playing": playing.copy()}

    def _rows(self, rows: Array) -> Array:
        return np.array(rows.reshape(-1, *self._batch.envs.spec.observation_shape))


def _register() -> None:
    for name in envs_c.names():
        alone = envs_c.spec(name).agents_per_env == 1
        if env_id(name) not in gymnasium.registry:
            gymnasium.register(
                env_id(name),
                entry_point="protein.envs_c.gymnasium:NativeEnv" if alone else None,
                vector_entry_point="protein.envs_c.gymnasium:NativeVectorEnv",
                kwargs={"name": name},
            )


_register()
