"""Instances of a Gymnasium environment that are stepped one after the other and write rows; see `gym` and `pool`.

What an environment gives is checked here, where its instance is known: observations and rewards are finite numbers, and
of the space that it has named. Infos are dropped.
"""

import copy
import functools
import math
import re
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from protein.spelling import counted

from ..errors import TrainerError
from ..users_code import RAISED, fail
from .base import Rows
from .spaces import ActionMap, Observations

STEP_RETURNS = "Gymnasium's step returns five, observation, reward, terminated, truncated and info"
RESET_RETURNS = "Gymnasium's reset returns two values, observation and info"
# What Python says where values are taken apart that are too few, too many or no values at all.
_UNPACKED = re.compile(
    r"(?:not enough|too many) values to unpack \(expected (?P<due>\d+)(?:, got (?P<got>\d+))?\)"
    r"|cannot unpack non-iterable (?P<kind>\w+) object"
)


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
                    given = env.step(copy.deepcopy(action) if skips else action)
                except RAISED as error:  # the user's code may raise anything
                    check_wrapped(error, self._who(row), "step", STEP_RETURNS)
                    fail(f"{self._who(row)} failed in step", error)
                if type(given) is not tuple or len(given) != 5:
                    require_five(given, self._who(row), STEP_RETURNS)
                observation, reward, terminal, truncation, _ = given
                if type(reward) is not float:
                    reward = as_number(reward, self._who(row), is_first=self._first_index + row == 0)
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
            check_wrapped(error, self._who(row), "reset", RESET_RETURNS)
            fail(f"{self._who(row)} failed in reset", error)
        if not isinstance(given, tuple) or len(given) != 2:
            raise TrainerError(f"{self._who(row)} returned a {type(given).__name__} from reset: {RESET_RETURNS}")
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


def as_number(reward: Any, who: str, *, is_first: bool) -> float:
    """Returns a reward as a float. An array or a list of one number is that number.

    Args:
        reward: as the environment gave it.
        who: gave it.
        is_first: of all agents of the run, it is the one for which a remark is made.

    Raises:
        TrainerError: it is no number.
    """
    try:
        if shape := () if np.isscalar(reward) else np.shape(reward):
            if math.prod(shape) != 1:
                raise TrainerError(f"{who} gave an array of shape {tuple(shape)} as reward: a reward is one number")
            if is_first:
                _say_once(f"note: {who} gives its reward in an array of shape {tuple(shape)}: its one number is taken")
            return float(reward.item() if hasattr(reward, "item") else np.asarray(reward).item())
        return float(reward)
    except (TypeError, ValueError):
        raise TrainerError(f"{who} gave {reward!r} as reward: a reward is one number") from None


@functools.cache
def _say_once(line: str) -> None:
    print(line, file=sys.stderr)


def as_truth(flag: Any, who: str, name: str) -> bool:
    """Returns whether an episode has ended. Raises `TrainerError` where `flag`, called so, is several."""
    try:
        return bool(flag)
    except (ValueError, RuntimeError):  # numpy's, torch's
        shape = tuple(getattr(flag, "shape", ()))
        raise TrainerError(f"{who} gave an array of shape {shape} as {name}: it must be True or False") from None


def require_five(given: Any, who: str, returns: str) -> None:
    """Raises `TrainerError` unless a step of the user's has returned five values; `returns` says which those are."""
    several = isinstance(given, tuple | list)
    if several and len(given) == 5:
        return
    got = counted(len(given), "value") if several else f"a {type(given).__name__}"
    raise TrainerError(f"{who} returned {got} from step: {returns}")


def check_wrapped(error: BaseException, who: str, method: str, returns: str) -> None:
    """Raises `TrainerError` where a wrapper has failed because it was given another number of values than it takes.

    That is told by the error alone: a wrapper takes the values apart before anybody else sees them.

    Args:
        error: what `method`, "step" or "reset", has raised.
        who: failed.
        method: was called.
        returns: says which values it is to return.
    """
    found = _UNPACKED.match(str(error)) if isinstance(error, ValueError | TypeError) else None
    *_, last = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
    wrapper: Any = last.f_locals.get("self")
    if found is None or last.f_code.co_name != method or not hasattr(wrapper, "env"):
        return
    inner = wrapper.env
    while type(inner).__module__.startswith("gymnasium.wrappers") and hasattr(inner, "env"):  # they pass it on
        inner = inner.env
    if found["due"] not in (None, "5" if method == "step" else "2"):
        fault = f"the wrapper {type(wrapper).__name__} takes {found['due']} values from {method}"
    else:
        got = f"a {found['kind']}" if found["kind"] else f"{found['got'] or 'more than ' + found['due']} values"
        fault = f"{type(inner).__name__} returned {got} from {method} to its wrapper {type(wrapper).__name__}"
    raise TrainerError(f"{who}: {fault}: {returns}") from error


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
