"""Any Gymnasium environment behind our interface: `gym:ID`, and `gym-async:ID` with a process for each instance.

ID is what `gymnasium.make` takes, also with a module that registers it: `gym:CartPole-v1`, `gym:my_package:Maze-v0`.

    Gymnasium's space            ours
    Box observation              flattened; its shape kept where it is an image (last axis of up to 4 channels moved to
                                 the front); bytes, as in images, divided by their maximum
    any other observation        gymnasium.spaces.flatten: Discrete one-hot, Dict and Tuple side by side
    Discrete, MultiDiscrete,     discrete components with the same numbers of choices,
      MultiBinary action         counted from 0; the space's `start` is added
    Box action                   continuous components in [-1, 1], scaled to the space's bounds; clipped beyond

The vector environment is Gymnasium's SyncVectorEnv or AsyncVectorEnv in its mode SAME_STEP. Like ours, it starts the
next episode in the step that ends one. An environment's own vector entry point is not used. Those of Gymnasium itself
(CartPole's, for example) start the next episode a step later and draw all instances from one generator.

The frame skip is inside each instance, so that it stops where the episode ends. Seeds come from (seed, index).
Gymnasium environments cannot be saved: a resumed run begins new episodes (see `trainer.environments.resume`).
"""

import contextlib
import functools
import json
import math
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from ...envs_c import EnvSpec, Episodes
from ..errors import ConfigError, TrainerError
from .episodes import EpisodeCounter, require

try:
    import gymnasium
    from gymnasium import spaces
except ModuleNotFoundError as error:
    if error.name != "gymnasium":
        raise
    raise ConfigError(
        "Gymnasium is not installed, and environments 'gym:...' need it: pip install 'protein-sweep[gymnasium]'"
    ) from error

ASYNC = "gym-async"
IMAGE_CHANNELS_MAX = 4  # an image's last axis is no longer than this: grey, RGB, RGBA
CLOSE_SECONDS = 5.0  # for processes to end by themselves

Actions = npt.NDArray[Any]  # int32 or float32, `num_envs x components` or `num_envs`


class GymnasiumEnv:
    """`num_envs` instances of a Gymnasium environment, one agent each; see `trainer.environments.VectorEnv`."""

    resumable = False

    def __init__(
        self,
        name: str,
        num_envs: int,
        *,
        seed: int = 0,
        frame_skip: int = 1,
        first_index: int = 0,
        render_mode: str | None = None,
    ) -> None:
        """Makes the instances; `render_mode` as `gymnasium.make` takes it.

        Raises:
            ConfigError: there is no such environment, a package that it needs is missing, or its spaces are not ours.
        """
        self.spec = spec(name)
        self.num_envs = self.num_agents = num_envs
        self._first_index = first_index
        self._seed = seed
        self._steps = 0
        self._calling = False  # the vector environment has begun a call and not returned from it
        self._counter = EpisodeCounter(num_envs)
        kwargs = {} if render_mode is None else {"render_mode": render_mode}
        asynchronous = name.startswith(ASYNC + ":")
        vector_kwargs: dict[str, Any] = {"autoreset_mode": gymnasium.vector.AutoresetMode.SAME_STEP, "copy": False}
        if asynchronous:
            vector_kwargs["context"] = "spawn"  # a fork of a process with threads may hang
        with _one_line(name):
            if render_mode is not None:
                _require_render_mode(name, render_mode)
            self._vector = gymnasium.make_vec(
                _id(name),
                num_envs,
                vectorization_mode="async" if asynchronous else "sync",
                vector_kwargs=vector_kwargs,
                wrappers=[functools.partial(_Instance, frame_skip=frame_skip, owner=os.getpid())],
                disable_env_checker=True,
                **kwargs,
            )
            self._read = _Observations(self._vector.single_observation_space)
            self._act, _, _ = _actions(self._vector.single_action_space)
        self._observations_shape = (num_envs, self.spec.observation_size)

    def reset(self, seed: int, observations: npt.NDArray[np.float32]) -> None:
        """Seeds every instance anew and writes its first observation."""
        require("observations", observations, self._observations_shape, np.float32)
        self._seed, self._steps = seed, 0
        self._counter.reset()
        indices = range(self._first_index, self._first_index + self.num_envs)
        with self._call():
            first, _ = self._vector.reset(seed=[_instance_seed(seed, index) for index in indices])  # type: ignore[arg-type]
        self._read(first, observations)

    def step(
        self,
        actions: Actions,
        observations: npt.NDArray[np.float32],
        rewards: npt.NDArray[np.float32],
        terminals: npt.NDArray[np.bool_],
        truncations: npt.NDArray[np.bool_],
        final_observations: npt.NDArray[np.float32] | None = None,
    ) -> None:
        """Takes one decision in each instance."""
        require("observations", observations, self._observations_shape, np.float32)
        with self._call():
            after, reward, terminal, truncation, infos = self._vector.step(self._act(actions))
        rewards[:] = reward
        terminals[:] = terminal
        np.logical_and(truncation, np.logical_not(terminal), out=truncations)
        self._read(after, observations)
        self._steps += 1
        self._counter.add(rewards, terminals | truncations)
        if final_observations is not None and truncations.any():
            rows = np.flatnonzero(truncations)
            finals = np.empty((len(rows), self.spec.observation_size), np.float32)
            self._read(np.stack([infos["final_obs"][row] for row in rows]), finals)
            final_observations[rows] = finals

    def drain_episodes(self) -> Episodes:
        """Returns the episodes that finished since the last call."""
        return self._counter.drain()

    def get_state(self) -> bytes:
        """Returns what the new episodes of a resumed run are drawn from."""
        state = {"env": self.spec.name, "num_envs": self.num_envs, "seed": self._seed, "steps": self._steps}
        return json.dumps(state).encode()

    def set_state(self, state: bytes) -> None:
        """Checks that the state fits these environments; `trainer.environments.resume` then begins new episodes.

        Raises:
            ValueError: it does not.
        """
        with contextlib.suppress(ValueError, KeyError, TypeError):
            saved = json.loads(state)
            if (saved["env"], saved["num_envs"]) == (self.spec.name, self.num_envs):
                return
        raise ValueError(f"the state is not of {self.num_envs} environments '{self.spec.name}'")

    @property
    def render_fps(self) -> float:
        """Frames per second that the environment wants to be shown at; 0 where it gives none."""
        return float(self._vector.metadata.get("render_fps") or 0.0)

    def render(self) -> Any:
        """Returns what the first instance shows, in the `render_mode` that was asked for.

        Raises:
            ConfigError: it cannot: a package is missing.
        """
        with _one_line(self.spec.name):
            frames = self._vector.render()
        return None if frames is None else frames[0]

    def close(self) -> None:
        """Ends the instances, and their processes if they have any."""
        if self._vector.closed:
            return
        processes = getattr(self._vector, "processes", ())
        try:
            if not self._calling:  # else a process has died or is busy, and would not answer
                with contextlib.suppress(*(OSError, EOFError) if processes else ()):
                    self._vector.close(**({"timeout": CLOSE_SECONDS} if processes else {}))
        finally:
            self._vector.closed = True
            for process in processes:
                process.kill()
                process.join()

    @contextlib.contextmanager
    def _call(self) -> Iterator[None]:
        """Wraps a call of the vector environment: if one of its processes has died, the error is one line."""
        self._calling = True
        try:
            yield
        except (EOFError, ConnectionError) as error:
            raise TrainerError(f"a process of '{self.spec.name}' has died; its own message is above") from error
        self._calling = False


@functools.cache
def spec(name: str) -> EnvSpec:
    """Returns the description of `gym:ID`. Makes one instance to ask it for its spaces.

    The score is the return. The environment counts as solved at the threshold in Gymnasium's registry; without a
    threshold it never does.

    Raises:
        ConfigError: there is no such environment, a package that it needs is missing, or its spaces are not ours.
    """
    with _one_line(name):
        env = _Instance(gymnasium.make(_id(name), disable_env_checker=True), frame_skip=1, owner=os.getpid())
        try:
            read = _Observations(env.observation_space)
            _, sizes, continuous = _actions(env.action_space)
            registered = env.spec
        finally:
            env.close()
    assert registered is not None
    threshold, frames = registered.reward_threshold, registered.max_episode_steps
    return EnvSpec(
        name=name,
        description=f"{registered.id} of Gymnasium",
        observation_size=math.prod(read.shape),
        observation_shape=read.shape,
        action_sizes=sizes,
        continuous_actions=continuous,
        agents_per_env=1,
        score_range=(-math.inf, math.inf),
        solved_score=math.inf if threshold is None else float(threshold),
        max_episode_steps=frames or 0,
    )


class _Instance(gymnasium.Wrapper[Any, Any, Any, Any]):
    """One instance as the vector environment sees it: frames skipped, unusual observations flattened, no infos.

    Infos are dropped: they are not used, and batching them costs more than the step of many environments.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], *, frame_skip: int, owner: int) -> None:
        super().__init__(env)
        self._frame_skip = frame_skip
        self._space = env.observation_space
        self._flat = not isinstance(self._space, spaces.Box)
        if self._flat:
            flat = spaces.flatten_space(self._space)
            if not isinstance(flat, spaces.Box):
                raise ConfigError(f"its observations have no fixed size: {self._space}; wrap it so that they do")
            self.observation_space = flat
        if os.getpid() != owner and hasattr(os, "setsid"):
            # This runs in a process of its own. Ctrl-C and a sweep's SIGTERM go to the trainer's whole group. But only
            # the trainer can end in order, and until then it needs this process. When the trainer is gone, the closed
            # pipe ends this process.
            os.setsid()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        observation, _ = self.env.reset(seed=seed, options=options)
        return self._flatten(observation), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        total = 0.0
        for _ in range(self._frame_skip):
            observation, reward, terminal, truncation, _ = self.env.step(action)
            total += float(reward)
            if terminal or truncation:
                # A copy, since an environment may write its next first observation into the same array.
                return np.array(self._flatten(observation)), total, bool(terminal), bool(truncation), {}
        return self._flatten(observation), total, False, False, {}

    def _flatten(self, observation: Any) -> Any:
        return spaces.flatten(self._space, observation) if self._flat else observation


class _Observations:
    """Writes batched observations of a Box into rows of float32. `shape` is that of one."""

    def __init__(self, space: Any) -> None:
        assert isinstance(space, spaces.Box)
        shape = tuple(int(length) for length in space.shape)
        self._channels_last = len(shape) == 3 and shape[-1] <= IMAGE_CHANNELS_MAX
        if self._channels_last:
            shape = (shape[2], shape[0], shape[1])
        elif len(shape) == 2 and space.dtype == np.uint8:
            shape = (1, *shape)
        elif len(shape) != 3:
            shape = (math.prod(shape),)
        self.shape: tuple[int, ...] = shape
        high = float(space.high.max(initial=0.0)) if space.dtype == np.uint8 else 0.0
        self._scale = np.float32(1.0 / high) if high > 0.0 else None

    def __call__(self, batch: npt.NDArray[Any], out: npt.NDArray[np.float32]) -> None:
        """Maps `num_envs x <the space's shape>` to `out`, `num_envs x features`."""
        if self._channels_last:
            batch = np.moveaxis(batch, -1, 1)
        target = out.reshape(len(out), *batch.shape[1:])
        if self._scale is None:
            target[...] = batch
        else:
            np.multiply(batch, self._scale, out=target)


def _actions(space: Any) -> tuple[Callable[[Actions], Any], tuple[int, ...], int]:
    """Returns what maps our actions to the space's, the discrete components' sizes, the number of continuous ones."""
    if isinstance(space, spaces.Discrete):
        start = int(space.start)
        return lambda actions: actions.reshape(-1).astype(np.int64) + start, (int(space.n),), 0
    if isinstance(space, spaces.MultiDiscrete | spaces.MultiBinary):
        shape, dtype = tuple(space.shape), space.dtype
        sizes = space.nvec if isinstance(space, spaces.MultiDiscrete) else np.full(shape, 2)
        first = space.start if isinstance(space, spaces.MultiDiscrete) else np.zeros(shape, np.int64)

        def to_many(actions: Actions) -> Any:
            return (actions.reshape(-1, *shape) + first).astype(dtype)

        return to_many, tuple(sizes.flatten().tolist()), 0
    if isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating):
        if not space.is_bounded():
            raise ConfigError(f"its action space has no bounds to scale to: {space}; wrap it in RescaleAction")
        shape, dtype = tuple(space.shape), space.dtype
        low, high = space.low.astype(np.float64), space.high.astype(np.float64)
        middle, half = (high + low) / 2, (high - low) / 2

        def to_box(actions: Actions) -> Any:
            if not np.isfinite(actions).all():
                raise ValueError("actions must be finite")
            unit = np.clip(actions.reshape(-1, *shape), -1.0, 1.0)
            # Clipped again: the rounded sum may leave the bounds by its last digit.
            return np.clip((middle + unit * half).astype(dtype), space.low, space.high)

        return to_box, (), math.prod(shape)
    raise ConfigError(f"its action space {space} is neither Discrete, MultiDiscrete, MultiBinary nor a Box of floats")


def _require_render_mode(name: str, render_mode: str) -> None:
    env = gymnasium.make(_id(name), disable_env_checker=True)
    known = env.metadata.get("render_modes", [])
    env.close()
    if render_mode not in known:
        raise ConfigError(f"it has no render mode '{render_mode}', only: {', '.join(known) or 'none'}")


def _instance_seed(seed: int, index: int) -> int:
    """Returns an instance's seed: below 2^31, which every environment takes."""
    return int(np.random.SeedSequence([seed, index]).generate_state(1)[0] >> 1)


def _id(name: str) -> str:
    return name.partition(":")[2]


@contextlib.contextmanager
def _one_line(name: str) -> Iterator[None]:
    """Turns any error while an environment is made into a ConfigError of one line that names the environment."""
    here = os.getcwd()  # noqa: PTH109
    if here not in sys.path:  # for an ID with a module that lies in the working directory
        sys.path.append(here)
    try:
        yield
    except (gymnasium.error.Error, ImportError, ConfigError) as error:
        raise ConfigError(f"cannot make '{name}': {' '.join(str(error).split())}") from error
