"""What a file of `--space` says, whatever its form is: each reader of a form gives this."""

import dataclasses

from protein.errors import UsageError
from protein.space import Space
from protein.spelling import nearest
from protein.types import Direction, ParamValue


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SpaceFile:
    """What a file says of a sweep.

    Attributes:
        space: what is searched, with the fixed values.
        start: the config that is tried first; None: the file gives no values.
        direction: of the score; None: the file does not say.
        command: how the program is run, in the form of `--command`; None: the file does not say.
        params: how the program gets its parameters (`--params`); None: as usual.
        warnings: what the file holds and is not taken over, a line each.
    """

    space: Space
    start: dict[str, ParamValue] | None = None
    direction: Direction | None = None
    command: str | None = None
    params: str | None = None
    warnings: tuple[str, ...] = ()


def start_of(space: Space, *, given: bool) -> dict[str, ParamValue] | None:
    """Returns the config that is tried first, where the file has given any values; it is made valid."""
    return space.snap(space.default()) if given else None


def direction_of(value: object, source: str, key: str) -> Direction:
    """Returns the direction that a file gives. Raises `UsageError` for another word."""
    for direction in Direction:
        if value == direction.value:
            return direction
    close = nearest(str(value), [one.value for one in Direction])
    meant = close if "did you mean" in close else ""
    raise UsageError(f"{source}: {key} = {value!r} must be maximize or minimize{meant}")
