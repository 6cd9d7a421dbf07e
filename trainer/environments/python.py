"""A user's own vectorised environment behind our interface: `python:package.module:factory`.

`factory(num_envs, seed=..., frame_skip=..., first_index=..., **env.args)` returns an object that fills the arrays in
place. docs/environments.md lists its required and optional attributes, and so do `_REQUIRED` and `_OPTIONAL` here. If
the object does not count episodes, or cannot be saved, this module counts them, and begins new episodes in a resumed
run.
"""

import contextlib
import copy
import json
import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from protein.envs_c import EnvSpec, Episodes

from ..errors import ConfigError, TrainerError
from ..users_code import RAISED, fail, find, in_words
from . import arguments
from .base import CountedEnv, Rows
from .instances import check_observations, check_rewards

_COUNTED = b"protein: episodes counted\n"  # begins a state that has the running episodes' sums before the user's own
# The columns of `Episodes`.
_COLUMNS: dict[str, Any] = {"agent": np.int32, "score": np.float32, "return_": np.float32, "length": np.int32}
_GIVEN = ("num_envs", "seed", "frame_skip", "first_index")  # arguments of the factory that are the trainer's
_REQUIRED = ("num_envs", "observation_shape", "reset", "step")
_OPTIONAL: dict[str, Any] = {
    "action_sizes": (),  # one of these two ...
    "continuous_actions": 0,  # ... must be given
    "agents_per_env": 1,
    "description": "",
    "score_range": (-math.inf, math.inf),
    "solved_score": math.inf,
    "max_episode_steps": 0,  # no limit
    "observation_dtype": "float32",
    "observation_high": 255.0,
}


class PythonEnv(CountedEnv):
    """What a user's factory has made; see `trainer.environments.VectorEnv`."""

    def __init__(
        self,
        name: str,
        num_envs: int,
        *,
        seed: int = 0,
        frame_skip: int = 1,
        first_index: int = 0,
        args: Mapping[str, Any] | None = None,
    ) -> None:
        """Calls the factory.

        Raises:
            ConfigError: there is no such factory, it fails, it does not take the arguments, or what it returned lacks
                something.
        """
        factory, args = _factory(name), args or {}
        arguments.check(args, factory, name, ours=_GIVEN)
        try:
            with arguments.refusals(args, factory, name):
                self._envs = factory(
                    num_envs, seed=seed, frame_skip=frame_skip, first_index=first_index, **copy.deepcopy(dict(args))
                )
        except (TrainerError, MemoryError):
            raise
        except RAISED as error:  # the user's code may raise anything
            raise ConfigError(f"cannot make '{name}': {in_words(error)}") from error
        self._closed, self._first_index = False, first_index
        super().__init__(_describe(name, self._envs), num_envs, seed, counts=not hasattr(self._envs, "drain_episodes"))
        if self._envs.num_envs != num_envs:
            raise ConfigError(f"'{name}' made {self._envs.num_envs} environments, {num_envs} were asked for")
        self._idles = self.playing is not None
        self.resumable = hasattr(self._envs, "get_state") and hasattr(self._envs, "set_state")

    @property
    def playing(self) -> npt.NDArray[np.bool_] | None:
        """Which agents act in the next step, `A`, where the environment says so."""
        given = getattr(self._envs, "playing", None)
        if given is None:
            return None
        rows = np.asarray(given)
        if rows.dtype != np.bool_ or rows.shape != (self.num_agents,):
            raise ConfigError(
                f"'{self.spec.name}': playing must be bool of shape ({self.num_agents},), got {rows.dtype} of shape "
                f"{rows.shape}: see docs/environments.md"
            )
        return rows

    def _reset(self, seed: int, observations: npt.NDArray[Any]) -> None:
        with self._calling("reset"):
            returned = self._envs.reset(seed, observations)
        if hasattr(self._envs, "drain_episodes"):  # those before are not of this training: see `EpisodeCounter`
            with self._calling("drain_episodes"):
                self._envs.drain_episodes()
        self._require_written("reset", returned, (observations,))
        check_observations(observations, self._who)
        if (self.playing is not None) != self._idles:  # the trainer has looked already whether there are idle rows
            raise ConfigError(
                f"'{self.spec.name}': playing {'is gone' if self._idles else 'is there only'} after reset: it must be "
                "there from the beginning, so create it in the constructor"
            )

    def _step(self, actions: npt.NDArray[Any], out: Rows) -> None:
        # A copy, which the environment may keep or change.
        actions = np.clip(actions, -1.0, 1.0) if self.spec.continuous_actions else actions.copy()
        if self.spec.action_components == 1:
            actions = actions.reshape(-1)
        out.rewards[:], out.terminals[:], out.truncations[:] = 0.0, False, False  # they hold those of an earlier step
        try:
            returned = self._envs.step(actions, *out)
        except RAISED as error:  # the user's code may raise anything
            fail(f"'{self.spec.name}' failed in step", error)
        if returned is not None:
            self._require_written("step", returned, out)
        check_observations(out.observations, self._who)
        check_rewards(out.rewards, self._who)
        if (both := out.terminals & out.truncations).any():
            raise TrainerError(
                f"{self._who(int(np.flatnonzero(both)[0]))} is both terminal and truncated in one step: set only one, "
                "truncated where its episode would have continued"
            )
        if out.truncations.any():
            rows = np.flatnonzero(out.truncations)
            check_observations(out.finals[rows], lambda row: f"{self._who(int(rows[row]))} was truncated, and at last")

    def _who(self, row: int) -> str:
        index, agent = divmod(row, self.spec.agents_per_env)
        of = f"agent {agent} of " if self.spec.agents_per_env > 1 else ""
        return f"{of}instance {self._first_index + index} of '{self.spec.name}'"

    def drain_episodes(self) -> Episodes:
        """Returns the episodes that finished since the last call."""
        if self._counter is not None:
            return super().drain_episodes()
        with self._calling("drain_episodes"):
            given = self._envs.drain_episodes()
        return self._checked(given)

    def _checked(self, given: Any) -> Episodes:
        """Returns the episodes that the user's `drain_episodes` gave. Raises `TrainerError` where they are none."""
        failing = f"drain_episodes of '{self.spec.name}'"
        try:
            columns = {name: np.asarray(getattr(given, name), dtype).reshape(-1) for name, dtype in _COLUMNS.items()}
        except (AttributeError, TypeError, ValueError, OverflowError):
            columns = {}
        if len({len(column) for column in columns.values()}) != 1:
            raise TrainerError(
                f"{failing} returned a {type(given).__name__}: it must return protein.envs_c.Episodes of four "
                "arrays of one length: see docs/environments.md"
            )
        episodes = Episodes(**columns)
        for agent, score in zip(episodes.agent.tolist(), episodes.score.tolist(), strict=True):
            if not 0 <= agent < self.num_agents:
                raise TrainerError(
                    f"{failing} gave an episode of agent {agent}: rows go from 0 to {self.num_agents - 1}"
                )
            if not math.isfinite(score):
                raise TrainerError(f"{failing} gave a score of {score}: a score must be a finite number")
        return episodes

    def get_state(self) -> bytes:
        """Returns the environment's own state, or what the new episodes of a resumed run are drawn from."""
        if self.resumable:
            with self._calling("get_state"):
                state = self._envs.get_state()
            if not isinstance(state, bytes | bytearray | memoryview):
                raise TrainerError(
                    f"get_state of '{self.spec.name}' returned a {type(state).__name__}: it must return bytes, as "
                    "pickle.dumps does"
                )
            counted = b"" if self._counter is None else _COUNTED + self._counter.state()
            return counted + bytes(state)
        return json.dumps(
            {"env": self.spec.name, "seed": self._resumption.seed, "steps": self._resumption.steps}
        ).encode()

    def set_state(self, state: bytes) -> None:
        """Continues from `get_state`, if the environment can."""
        if not self.resumable:
            return
        if self._counter is not None and state.startswith(_COUNTED):  # not those of earlier versions
            sums = state[len(_COUNTED) :]
            self._counter.set_state(sums)
            state = sums[self._counter.state_bytes() :]
        with self._calling("set_state"):
            self._envs.set_state(state)

    @property
    def render_fps(self) -> float:
        """Frames per second that the environment wants to be shown at; 0 where it gives none."""
        return float(getattr(self._envs, "render_fps", 0.0))

    def render(self) -> Any:
        """Returns what the first instance shows, `H x W x 3`. Raises `ConfigError` where it has no `render()`."""
        if not hasattr(self._envs, "render"):
            raise ConfigError(f"'{self.spec.name}' cannot be drawn: it has no render(): see docs/environments.md")
        with self._calling("render"):
            return self._envs.render()

    def _require_written(self, method: str, returned: Any, given: Iterable[Any]) -> None:
        """Raises `ConfigError` where a method returns arrays of its own, as Gymnasium's do: nothing would read them."""
        parts = returned if isinstance(returned, tuple | list) else (returned,)
        own = [part for part in parts if isinstance(part, np.ndarray)]
        if any(all(part is not array for array in given) for part in own):
            raise ConfigError(
                f"'{self.spec.name}': {method} returned arrays of its own: it must write into those that it is given "
                "and return nothing: see docs/environments.md"
            )

    @contextlib.contextmanager
    def _calling(self, method: str) -> Iterator[None]:
        """Raises `UsersCodeError`, one line, for what a method of the user's raises inside."""
        try:
            yield
        except RAISED as error:  # the user's code may raise anything
            fail(f"'{self.spec.name}' failed in {method}", error)

    def close(self) -> None:
        """Closes the environment, if it has a `close`, which is called once."""
        close = None if self._closed else getattr(self._envs, "close", None)
        self._closed = True
        if close is not None:
            close()


def spec(name: str, args: Mapping[str, Any] | None = None) -> EnvSpec:
    """Returns the description of `python:module:factory`. Makes one instance to ask it.

    Raises:
        ConfigError: there is no such factory, or what it returned lacks something.
    """
    envs = PythonEnv(name, 1, args=args)
    try:
        envs.close()
    except RAISED as error:  # the user's code may raise anything
        raise ConfigError(f"cannot close '{name}': {in_words(error)}") from error
    return envs.spec


def _factory(name: str) -> Callable[..., Any]:
    module_name, colon, factory_name = name.removeprefix("python:").partition(":")
    if not (module_name and colon and factory_name):
        raise ConfigError(f"'{name}' must be python:package.module:factory")
    return find(module_name, factory_name, failing=f"cannot make '{name}'", what="function or class")[1]


def _counts(name: str, attribute: str, given: Any, example: str) -> tuple[int, ...]:
    """Returns a tuple of whole numbers above 0, or raises `ConfigError` that says what it was instead."""
    try:
        counts = tuple(operator.index(one) for one in given)
    except TypeError:
        counts = (0,)
    if any(count < 1 for count in counts):
        raise ConfigError(
            f"'{name}': {attribute} must be a tuple of whole numbers above 0, as in {example}, got {given!r}: "
            "see docs/environments.md"
        )
    return counts


def _describe(name: str, envs: Any) -> EnvSpec:
    missing = [needed for needed in _REQUIRED if not hasattr(envs, needed)]
    if missing:
        raise ConfigError(
            f"'{name}' made a {type(envs).__name__} without {', '.join(missing)}: see docs/environments.md"
        )
    given = {key: getattr(envs, key, None) for key in _OPTIONAL}
    found = {key: default if given[key] is None else given[key] for key, default in _OPTIONAL.items()}
    shape = _counts(name, "observation_shape", envs.observation_shape, "(4,) or (3, 84, 84)")
    if not shape:
        raise ConfigError(f"'{name}': observation_shape must name at least one length, as in (4,), got ()")
    sizes = _counts(name, "action_sizes", found["action_sizes"], "(2,)")
    if bool(sizes) == bool(found["continuous_actions"]):
        raise ConfigError(
            f"'{name}' must have either action_sizes or continuous_actions, got {sizes} and "
            f"{found['continuous_actions']}: see docs/environments.md"
        )
    try:
        dtype = str(np.dtype(found["observation_dtype"]))
    except TypeError:
        dtype = repr(found["observation_dtype"])
    if dtype not in ("float32", "uint8"):
        raise ConfigError(f"'{name}' has observation_dtype {dtype}; it must be float32 or uint8")
    low, high = (_real(name, "each of score_range", found["score_range"], at) for at in (0, 1))
    return EnvSpec(
        name=name,
        description=str(found["description"] or f"{name.rpartition(':')[2]} of {name.split(':')[1]}"),
        observation_size=math.prod(shape),
        observation_shape=shape,
        action_sizes=sizes,
        continuous_actions=_whole(name, "continuous_actions", found["continuous_actions"], 0),
        agents_per_env=_whole(name, "agents_per_env", found["agents_per_env"], 1),
        score_range=(low, high),
        solved_score=_real(name, "solved_score", found["solved_score"]),
        max_episode_steps=_whole(name, "max_episode_steps", found["max_episode_steps"], 0),
        observation_dtype=dtype,
        observation_high=_real(name, "observation_high", found["observation_high"], positive=True),
    )


def _whole(name: str, attribute: str, given: Any, least: int) -> int:
    """Returns a whole number, or raises `ConfigError` that says what it was instead."""
    try:
        number = operator.index(given)
    except TypeError:
        number = least - 1
    if number < least:
        raise ConfigError(f"'{name}': {attribute} must be a whole number, {least} or more, got {given!r}")
    return number


def _real(name: str, attribute: str, given: Any, at: int | None = None, *, positive: bool = False) -> float:
    """Returns a number, or of several the one `at` a place, or raises `ConfigError` that says what it was instead."""
    try:
        number = float(given if at is None else given[at])
    except (TypeError, ValueError, LookupError):
        number = math.nan
    if math.isnan(number) or (positive and number <= 0):
        raise ConfigError(f"'{name}': {attribute} must be a number{' above 0' if positive else ''}, got {given!r}")
    return number
