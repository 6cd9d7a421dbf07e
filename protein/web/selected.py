"""The selection of trials in an address, `pong:1-4.7,breakout:3`: the same text as in `static/lib/selection.js`."""

from urllib.parse import unquote

from protein.errors import UsageError

MAX_LENGTH = 30_000  # characters


def selected(text: str, *, most: int) -> dict[str, list[int]]:
    """Returns the numbers of trials by sweep, in the order given, each once.

    Args:
        text: names are percent-encoded; numbers and ranges of them stand between points.
        most: trials.

    Raises:
        UsageError: the text cannot be read, or names more than `most` trials.
    """
    found: dict[str, dict[int, None]] = {}
    count = 0
    for part in filter(None, text.split(",")):
        name, colon, numbers = part.rpartition(":")
        if not colon:
            raise UsageError(f"sel: '{part[:80]}' has no numbers; write SWEEP:1-4.7")
        own = found.setdefault(unquote(name), {})
        for piece in numbers.split("."):
            first, last = _range(piece)
            count += last - first + 1
            if count > most:
                raise UsageError(f"sel names more than {most} trials; select fewer")
            own.update(dict.fromkeys(range(first, last + 1)))
    return {name: list(numbers) for name, numbers in found.items()}


def _range(piece: str) -> tuple[int, int]:
    first, dash, last = piece.partition("-")
    if not (first.isascii() and first.isdecimal()) or (dash and not (last.isascii() and last.isdecimal())):
        raise UsageError(f"sel: '{piece[:40]}' is not a number or a range of numbers such as 1-4")
    low, high = int(first[:18]), int((last or first)[:18])
    if high < low:
        raise UsageError(f"sel: the range '{piece[:40]}' ends before it begins")
    return low, high
