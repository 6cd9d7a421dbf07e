"""Instances of a Gymnasium environment that are stepped one after the other and write rows; see `gym` and `pool`.

What an environment gives is checked here, where its instance is known: observations and rewards are finite numbers, and
of the space that it has named. Infos are dropped.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import TrainerError
from ..users_code import RAISED, fail
from .base import Rows
from .spaces import ActionMap, Observations


class Writer:
    """Writes observations of one space into rows, and checks them. `who` names a row in a message."""

    def __init__(self, read: Observations, who: Callable[[int], str]) -> None:
        self._read, self._who = read, who
        self._of_floats = read.dtype is np.float32

    def __call__(self, row: int, observation: Any, observations: npt.NDArray[Any]) -> None:
        """Writes one. Raises `TrainerError` where it is not of the space."""
        try:
            self._read(observation, observations[row])
        except TrainerError as error:
            raise TrainerError(f"{self._who(row)} has changed its space: {error}") from error

    def check(self, observations: npt.NDArray[Any], first: int = 0) -> None:
        """Raises `TrainerError` where rows, of which the first is `first`, have what is no finite number."""
        if self._of_floats:
            check_observations(observations, lambda row: self._who(first + row))


class Instances:
    """Several instances of one environment, each with its place in (seed, index)."""

    def __init__(
        self,
        make: Callable[[], Any],
        num: int,
        *,
        name: str,
        read: Observations,
        actions: ActionMap,
        frame_skip: int,
        first_index: int,
    ) -> None:
        """`make` makes one. `name` is the environment's, for messages."""
        self.envs: list[Any] = []
        try:
            for _ in range(num):
                self.envs.append(make())
        except BaseException:
            self.close()
            raise
        self._name, self._to_space = name, actions.to_space
        self._frame_skip, self._first_index = frame_skip, first_index
        self._write = Writer(read, self._who)

    def reset(self, seed: int, observations: npt.NDArray[Any]) -> None:
        """Seeds every instance anew and writes its first observation."""
        for row, env in enumerate(self.envs):
            observation = self._begin(row, env, seed=instance_seed(seed, self._first_index + row))
            self._write(row, observation, observations)
        self._write.check(observations)

    def step(self, actions: npt.NDArray[Any], out: Rows) -> None:
        """Takes one decision in each instance; where it ends the episode, begins the next one."""
        observations, rewards, terminals, truncations, finals = out
        skips = self._frame_skip > 1
        for row, (env, action) in enumerate(zip(self.envs, self._to_space(actions), strict=True)):
            total = 0.0
            for _ in range(self._frame_skip):
                try:
                    # Each frame has its own: an environment may scale it in place.
                    given = env.step(action.copy() if skips and isinstance(action, np.ndarray) else action)
                except RAISED as error:  # the user's code may raise anything
                    fail(f"{self._who(row)} failed in step", error)
                if type(given) is not tuple or len(given) != 5:
                    require_five(
                        given, self._who(row), "Gymnasium", "observation, reward, terminated, truncated and info"
                    )
                observation, reward, terminal, truncation, _ = given
                if type(reward) is not float:
                    reward = as_number(reward, self._who(row))
                total += reward
                if type(terminal) is not bool:
                    terminal = as_truth(terminal, self._who(row), "terminated")
                if type(truncation) is not bool:
                    truncation = as_truth(truncation, self._who(row), "truncated")
                if terminal or truncation:
                    break
            rewards[row], terminals[row] = total, terminal
            truncations[row] = truncation = truncation and not terminal
            if terminal or truncation:
                if truncation:
                    self._write(row, observation, finals)
                    self._write.check(finals[row : row + 1], row)
                observation = self._begin(row, env)
            self._write(row, observation, observations)
        self._write.check(observations)
        check_rewards(rewards, self._who)

    def close(self) -> None:
        """Closes every instance."""
        close_all_(self.envs)

    def _begin(self, row: int, env: Any, **seeded: int) -> Any:
        """Resets an instance; returns its first observation."""
        try:
            given = env.reset(**seeded)
        except RAISED as error:  # the user's code may raise anything
            fail(f"{self._who(row)} failed in reset", error)
        if not isinstance(given, tuple) or len(given) != 2:
            raise TrainerError(
                f"{self._who(row)} returned a {type(given).__name__} from reset: Gymnasium's reset returns two values, "
                "observation and info"
            )
        return given[0]

    def _who(self, row: int) -> str:
        return f"instance {self._first_index + row} of '{self._name}'"


def check_observations(observations: npt.NDArray[Any], who: Callable[[int], str]) -> None:
    """Raises `TrainerError` for rows, `N x D`, that hold what is no finite number."""
    if observations.dtype.kind != "f" or np.isfinite(observations).all():
        return
    row, column = (int(at) for at in np.argwhere(~np.isfinite(observations))[0])
    raise TrainerError(
        f"{who(row)} observed {observations[row, column]} in element {column}: observations must be finite numbers"
    )


def check_rewards(rewards: npt.NDArray[np.float32], who: Callable[[int], str]) -> None:
    """Raises `TrainerError` for a reward that is not finite."""
    if not np.isfinite(rewards).all():
        row = int(np.flatnonzero(~np.isfinite(rewards))[0])
        raise TrainerError(f"{who(row)} gave a reward of {rewards[row]}: a reward must be a finite number")


def as_number(reward: Any, who: str) -> float:
    """Returns a reward as a float. Raises `TrainerError` where it is no number."""
    if getattr(reward, "ndim", 0):
        raise TrainerError(f"{who} gave an array of shape {reward.shape} as reward: a reward is one number")
    try:
        return float(reward)
    except (TypeError, ValueError):
        raise TrainerError(f"{who} gave {reward!r} as reward: a reward is one number") from None


def as_truth(flag: Any, who: str, name: str) -> bool:
    """Returns whether an episode has ended. Raises `TrainerError` where `flag`, called so, is several."""
    try:
        return bool(flag)
    except (ValueError, RuntimeError):  # numpy's, torch's
        shape = tuple(getattr(flag, "shape", ()))
        raise TrainerError(f"{who} gave an array of shape {shape} as {name}: it must be True or False") from None


def require_five(given: Any, who: str, library: str, values: str) -> None:
    """Raises `TrainerError` unless a step of the user's has returned five `values`, as `library` has it."""
    several = isinstance(given, tuple | list)
    if several and len(given) == 5:
        return
    got = f"{len(given)} values" if several else f"a {type(given).__name__}"
    raise TrainerError(f"{who} returned {got} from step: {library}'s step returns five, {values}")


def close_all_(envs: list[Any]) -> None:
    """Closes every environment of a list and takes it out, even if some fail; then raises the first one's error."""
    failed: BaseException | None = None
    while envs:
        try:
            envs.pop().close()
        except RAISED as error:  # the user's code may raise anything
            failed = failed or error
    if failed is not None:
        raise failed


def instance_seed(seed: int, index: int) -> int:
    """Returns an instance's seed: below 2^31, which every environment takes."""
    return int(np.random.SeedSequence([seed, index]).generate_state(1)[0] >> 1)


def shares(num: int, parts: int) -> Sequence[slice]:
    """Returns `parts` slices of `num` rows, as even as they can be; fewer where there are fewer rows."""
    parts = min(parts, num)
    return [slice(num * part // parts, num * (part + 1) // parts) for part in range(parts)]
