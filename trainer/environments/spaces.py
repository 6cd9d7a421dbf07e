"""Gymnasium's spaces as ours: observations become rows of float32 or bytes, actions are mapped to the space.

    Gymnasium's space            ours
    Box observation              flattened; its shape is kept where it is an image (a last axis of up to 4 channels is
                                 moved to the front); bytes stay bytes
    Discrete, MultiDiscrete,     one-hot; MultiBinary as it is
      MultiBinary observation
    Dict, Tuple observation      its parts side by side; bytes where every Box among them is of bytes
    Discrete, MultiDiscrete,     discrete components with the same numbers of choices,
      MultiBinary action         counted from 0; the space's `start` is added
    Box action                   continuous components in [-1, 1], scaled to the space's bounds; clipped beyond
    Dict, Tuple action           the components of its parts side by side; all are discrete, or all continuous

The policy divides bytes by `high`, the largest value of the space. So a one-hot among bytes is `high`, not 1, and a Box
with a smaller largest value is multiplied, by a whole number.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from protein.envs_c import EnvSpec

from ..errors import ConfigError, TrainerError

CHOICES_MAX = 2**20  # of a space: each is an input of the network, or a logit
IMAGE_CHANNELS_MAX = 4  # an image's last axis is no longer than this: grey, RGB, RGBA

Actions = npt.NDArray[Any]  # int32 or float32, `num_envs x components` or `num_envs`
Row = npt.NDArray[Any]  # of an observation, flat
Write = Callable[[Any, Row], None]  # one part of an observation into its part of a row


class Observations:
    """Writes observations of one space into rows. `shape`, `dtype` and `high` are those of a row."""

    def __init__(self, space: Any) -> None:
        """Raises `ConfigError` where the observations have no fixed size."""
        boxes = [leaf for leaf in _leaves(space) if isinstance(leaf, spaces.Box)]
        of_bytes = bool(boxes) and all(box.dtype == np.uint8 for box in boxes)
        if any(not isinstance(leaf, spaces.Box) and not _is_choice(leaf) for leaf in _leaves(space)):
            of_bytes = False
        self.dtype: type[np.generic] = np.uint8 if of_bytes else np.float32
        self.high = max((float(box.high.max(initial=0)) for box in boxes), default=0.0) if of_bytes else 255.0
        self.high = self.high or 255.0
        self._space = space
        self._write, size = self._part(space)
        self.shape: tuple[int, ...] = (size,)
        if isinstance(space, spaces.Box):
            self._write, self.shape = _whole(space)
        if not size:
            raise ConfigError(f"its observations are empty: {_short(space)}; give it at least one number to observe")

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    def __call__(self, observation: Any, row: Row) -> None:
        """Writes one observation. Raises `TrainerError` where it is not of the space."""
        try:
            self._write(observation, row)
        except (TypeError, ValueError, IndexError, KeyError, AttributeError) as error:
            shape = getattr(observation, "shape", None)
            got = type(observation).__name__ if shape is None else f"{observation.dtype} of shape {shape}"
            raise TrainerError(
                f"an observation is {got}, and its observation_space is {_short(self._space)}: {_short(error)}"
            ) from error

    def _part(self, space: Any) -> tuple[Write, int]:
        if isinstance(space, spaces.Dict):
            return self._parts([(key, part) for key, part in space.spaces.items()])
        if isinstance(space, spaces.Tuple):
            return self._parts(list(enumerate(space.spaces)))
        one = self.high if self.dtype is np.uint8 else 1.0
        if isinstance(space, spaces.Box):
            most = float(space.high.max(initial=0)) if self.dtype is np.uint8 else 0.0
            return _box(space, int(self.high // most) if most else 1), math.prod(space.shape)
        if isinstance(space, spaces.Discrete):
            _require_few([int(space.n)], f"its observations {_short(space)}")
            return _one_hot([int(space.n)], [int(space.start)], one), int(space.n)
        if isinstance(space, spaces.MultiDiscrete):
            sizes = [int(n) for n in space.nvec.flatten()]
            _require_few(sizes, f"its observations {_short(space)}")
            starts = [int(start) for start in np.asarray(space.start).flatten()]
            return _one_hot(sizes, starts, one), sum(sizes)
        if isinstance(space, spaces.MultiBinary):
            return _scaled(tuple(space.shape), one), math.prod(space.shape)
        try:
            flat = spaces.flatten_space(space)
        except NotImplementedError:
            flat = space
        if not isinstance(flat, spaces.Box):
            raise ConfigError(f"its observations have no fixed size: {_short(space)}; wrap it so that they do")
        return _flattened(space), math.prod(flat.shape)

    def _parts(self, parts: Sequence[tuple[Any, Any]]) -> tuple[Write, int]:
        keyed: list[tuple[Any, Write, slice]] = []
        end = 0
        for key, space in parts:
            write, size = self._part(space)
            keyed.append((key, write, slice(end, end + size)))
            end += size

        def write_parts(observation: Any, row: Row) -> None:
            for key, write, where in keyed:
                write(observation[key], row[where])

        return write_parts, end


def _leaves(space: Any) -> list[Any]:
    if isinstance(space, spaces.Dict):
        return [leaf for part in space.spaces.values() for leaf in _leaves(part)]
    if isinstance(space, spaces.Tuple):
        return [leaf for part in space.spaces for leaf in _leaves(part)]
    return [space]


def _is_choice(space: Any) -> bool:
    return isinstance(space, spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary)


def _require_few(sizes: Sequence[int], what: str) -> None:
    """Raises `ConfigError` for more choices than a network can have numbers."""
    if sum(sizes) > CHOICES_MAX:
        raise ConfigError(
            f"{what}: {sum(sizes):,} choices, and the limit is {CHOICES_MAX:,}; divide them into several components, "
            "or wrap it as a Box"
        )


def _whole(space: Any) -> tuple[Write, tuple[int, ...]]:
    """Returns how a single Box is written, and the shape that the policy sees."""
    shape = tuple(int(length) for length in space.shape)
    if len(shape) == 3 and shape[-1] <= IMAGE_CHANNELS_MAX:
        moved = (shape[2], shape[0], shape[1])
        write = _box(space)

        def write_image(observation: Any, row: Row) -> None:
            values = np.asarray(observation)
            if values.shape != shape:
                write(values, row)  # raises
            np.copyto(row.reshape(moved), np.moveaxis(values, -1, 0), casting="same_kind")

        return write_image, moved
    if len(shape) == 2 and space.dtype == np.uint8:
        return _box(space), (1, *shape)
    return _box(space), shape if len(shape) == 3 else (math.prod(shape),)


def _box(space: Any, factor: int = 1) -> Write:
    """Returns how a Box is written; `factor`: of bytes beside others that go further."""
    shape = tuple(int(length) for length in space.shape)
    casting: Any = "unsafe" if np.issubdtype(space.dtype, np.integer) and space.dtype != np.uint8 else "same_kind"

    def write(observation: Any, row: Row) -> None:
        values = np.asarray(observation)
        if values.shape != shape:
            raise ValueError(f"its shape is {values.shape}, not {shape}")
        np.copyto(row, values.reshape(-1) * factor if factor > 1 else values.reshape(-1), casting=casting)

    return write


def _one_hot(sizes: Sequence[int], starts: Sequence[int], one: float) -> Write:
    first = np.array([0, *np.cumsum(sizes)[:-1]])
    counts, offsets = np.array(sizes), np.array(starts)

    def write(observation: Any, row: Row) -> None:
        given = np.asarray(observation).reshape(-1)
        chosen = given - offsets
        if given.shape != counts.shape or (chosen < 0).any() or (chosen >= counts).any():
            raise ValueError(f"{observation} is none of its choices")
        row[:] = 0
        row[first + chosen] = one

    return write


def _scaled(shape: tuple[int, ...], one: float) -> Write:
    def write(observation: Any, row: Row) -> None:
        values = np.asarray(observation)
        if values.shape != shape:
            raise ValueError(f"its shape is {values.shape}, not {shape}")
        if ((values != 0) & (values != 1)).any():
            raise ValueError(f"{observation} has what is neither 0 nor 1")
        row[:] = values.reshape(-1) * one

    return write


def _flattened(space: Any) -> Write:
    def write(observation: Any, row: Row) -> None:
        flat: Any = spaces.flatten(space, observation)
        np.copyto(row, flat, casting="unsafe")

    return write


def described(
    name: str,
    description: str,
    read: Observations,
    actions: "ActionMap",
    *,
    agents_per_env: int = 1,
    solved_score: float = math.inf,
    max_episode_steps: int,
) -> EnvSpec:
    """Returns the description of an environment whose scores are its returns, given how its spaces become ours."""
    return EnvSpec(
        name=name,
        description=description,
        observation_size=read.size,
        observation_shape=read.shape,
        observation_dtype=np.dtype(read.dtype).name,
        observation_high=read.high,
        action_sizes=actions.sizes,
        continuous_actions=actions.continuous,
        agents_per_env=agents_per_env,
        score_range=(-math.inf, math.inf),
        solved_score=solved_score,
        max_episode_steps=max_episode_steps,
    )


class ActionMap(NamedTuple):
    """What maps our actions to the space's, one for each row; the choices; the number of continuous components."""

    to_space: Callable[[Actions], Any]
    sizes: tuple[int, ...]
    continuous: int


def actions_of(space: Any) -> ActionMap:
    """Returns how a space's actions are ours. Raises `ConfigError` where they cannot be."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        return _actions_of_parts(space)
    if isinstance(space, spaces.Box | spaces.MultiDiscrete | spaces.MultiBinary) and not math.prod(space.shape):
        raise ConfigError(f"its action space {_short(space)} is empty: give it at least one action")
    if isinstance(space, spaces.Discrete):
        start = int(space.start)
        _require_few([int(space.n)], f"its action space {_short(space)}")
        return ActionMap(lambda actions: actions.reshape(-1).astype(np.int64) + start, (int(space.n),), 0)
    if isinstance(space, spaces.MultiDiscrete | spaces.MultiBinary):
        shape, dtype = tuple(space.shape), space.dtype
        sizes = space.nvec if isinstance(space, spaces.MultiDiscrete) else np.full(shape, 2)
        _require_few([int(n) for n in sizes.flatten()], f"its action space {_short(space)}")
        first = space.start if isinstance(space, spaces.MultiDiscrete) else np.zeros(shape, np.int64)

        def to_many(actions: Actions) -> Any:
            return (actions.reshape(-1, *shape) + first).astype(dtype)

        return ActionMap(to_many, tuple(sizes.flatten().tolist()), 0)
    if isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating):
        return ActionMap(_to_box(space), (), math.prod(space.shape))
    raise ConfigError(
        f"its action space {_short(space)} is neither Discrete, MultiDiscrete, MultiBinary nor a Box of floats, "
        "nor a Dict or Tuple of these"
    )


def _actions_of_parts(space: Any) -> ActionMap:
    """Returns how the actions of a Dict or a Tuple are ours: a dict or a tuple for each row."""
    keys = list(space.spaces) if isinstance(space, spaces.Dict) else None
    parts = [actions_of(part) for part in (space.spaces if keys is None else space.spaces.values())]
    if not parts:
        raise ConfigError(f"its action space {_short(space)} is empty: give it at least one action")
    sizes, continuous = sum((part.sizes for part in parts), ()), sum(part.continuous for part in parts)
    if sizes and continuous:
        raise ConfigError(
            f"its action space {_short(space)} has choices and a Box: a policy's actions are all discrete or all "
            "continuous; make the Box a choice of steps, or the choices a Box, by Gymnasium's wrapper TransformAction"
        )
    _require_few(sizes, f"its action space {_short(space)}")
    ends = np.cumsum([len(part.sizes) + part.continuous for part in parts])

    def to_parts(actions: Actions) -> Any:
        columns = np.split(actions.reshape(-1, ends[-1]), ends[:-1], axis=1)
        rows = zip(*(part.to_space(own) for part, own in zip(parts, columns, strict=True)), strict=True)
        return [row if keys is None else dict(zip(keys, row, strict=True)) for row in rows]

    return ActionMap(to_parts, sizes, continuous)


def _to_box(space: Any) -> Callable[[Actions], Any]:
    if not space.is_bounded():
        raise ConfigError(
            f"its action space has no bounds to scale to: {_short(space)}; give it bounds, in its own code or by "
            "Gymnasium's wrapper TransformAction"
        )
    shape, dtype = tuple(space.shape), space.dtype
    low, high = space.low.astype(np.float64), space.high.astype(np.float64)
    middle, half = (high + low) / 2, (high - low) / 2

    def to_box(actions: Actions) -> Any:
        if not np.isfinite(actions).all():
            raise ValueError("actions must be finite")
        unit = np.clip(actions.reshape(-1, *shape), -1.0, 1.0)
        # Clipped again: the rounded sum may leave the bounds by its last digit.
        return np.clip((middle + unit * half).astype(dtype), space.low, space.high)

    return to_box


def _short(thing: Any, limit: int = 200) -> str:
    text = " ".join(str(thing).split())
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
