"""Durations, sizes and probabilities as people write them: `90s 15m 2h 1d 1h30m`, `512MiB 4GiB`, `87 %`.

A duration is a sum of whole or decimal counts of d, h, m and s, largest unit first, each at most once. The units may be
written out, with spaces between: `10 min`, `1 hour 30 minutes`.
"""

import math
import re

from protein.errors import UsageError

SECONDS = {"d": 86400, "h": 3600, "m": 60, "s": 1}
MAX_DURATION_SECONDS = 3650 * 86400.0  # ten years: what is longer is a slip, and overflows dates
_WRITTEN = {"d": "d|days?", "h": "h|hrs?|hours?", "m": "m|mins?|minutes?", "s": "s|secs?|seconds?"}
_COUNT = r"(?:\d+(?:\.\d*)?|\.\d+)(?:e[+-]?\d+)?"
_DURATION = re.compile("".join(rf"(?:(?P<{unit}>{_COUNT})\s*(?:{words})\s*)?" for unit, words in _WRITTEN.items()))
_EXAMPLES = "write it like 90s, 15m, 2h, 1d or 1h30m"
_NOT_ABOVE_0 = re.compile(r"-.*\d.*|0+(?:\.0+)?")  # what begins with a minus, and a 0 without its unit
_SIZE = re.compile(r"(?P<count>\d+(?:\.\d+)?)\s*(?P<unit>[kmgt](?:i?b)?|b)", re.IGNORECASE)


def parse_duration(text: str, what: str) -> float:
    """Returns the seconds that a duration such as `1h30m` stands for; positive and finite.

    Errors begin with `what` it was given to, a flag or a key.

    Raises:
        UsageError: it does not parse, is zero, or is longer than ten years.
    """
    match = _DURATION.fullmatch(text.strip().lower())
    counts = {unit: count for unit, count in match.groupdict().items() if count is not None} if match else {}
    if not counts and _NOT_ABOVE_0.fullmatch(text.strip()):
        raise UsageError(_not_above_0(text, what))
    if not counts and re.fullmatch(_COUNT, number := text.strip().lower()):
        raise UsageError(f"{what} '{text}' has no unit; write {number}s, {number}m or {number}h")
    if not counts:
        raise UsageError(f"{what} '{text}' is not a duration; {_EXAMPLES}")
    seconds = sum(float(count) * SECONDS[unit] for unit, count in counts.items())
    if seconds <= 0:
        raise UsageError(_not_above_0(text, what))
    if seconds > MAX_DURATION_SECONDS:
        raise UsageError(f"{what} '{text}' is longer than the limit of 3650d; give a shorter one")
    return seconds


def _not_above_0(text: str, what: str) -> str:
    return f"{what} '{text}' must be above 0; {_EXAMPLES}"


def format_duration(seconds: float) -> str:
    """Returns a duration that `parse_duration` reads back to the same seconds (to a millisecond): `1h30m`, `12.5s`."""
    thousandths = round(seconds * 1000)
    parts = []
    for unit in ("d", "h", "m"):
        count, thousandths = divmod(thousandths, SECONDS[unit] * 1000)
        if count:
            parts.append(f"{count}{unit}")
    if thousandths or not parts:
        parts.append(f"{thousandths / 1000:.3f}".rstrip("0").rstrip(".") + "s")
    return "".join(parts)


def format_at_least(seconds: float) -> str:
    """Returns a duration rounded up to what reads easily: minutes from ten minutes on, seconds from ten seconds on."""
    if seconds >= 600.0:
        return format_duration(60.0 * math.ceil(seconds / 60.0))
    if seconds >= 10.0:
        return format_duration(math.ceil(seconds))
    return format_duration(max(math.ceil(seconds * 1000.0) / 1000.0, 0.001))


def parse_share(value: str | float, what: str, *, most: float = 1.0) -> float:
    """Reads a share, such as "10%" or 0.1, from 0 to `most`; `what` begins an error. Raises `UsageError` otherwise."""
    text = value.strip() if isinstance(value, str) else value
    try:
        share = float(text[:-1]) / 100.0 if isinstance(text, str) and text.endswith("%") else float(text)
    except (TypeError, ValueError):
        share = math.nan
    if isinstance(value, bool) or not 0.0 <= share <= most:
        raise UsageError(f"{what} {value!r:.40} is not a share from 0 to {100.0 * most:g}%; write it like 10% or 0.1")
    return share


def parse_size(text: str, what: str) -> int:
    """Returns the bytes that a size such as `4GiB` or `4G` (1024-based) or `4GB` (1000-based) stands for.

    Raises:
        UsageError: it does not parse, or is less than a byte.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None and (number := text.strip()).replace(".", "", 1).isdecimal():
        raise UsageError(f"{what} '{text}' has no unit; write {number}MiB or {number}GiB")
    if match is None:
        raise UsageError(f"{what} '{text}' is not a size; write it like 512MiB or 4GiB")
    unit = match["unit"].lower()
    base = 1000 if unit.endswith("b") and "i" not in unit else 1024
    size = float(match["count"]) * (base ** " kmgt".index(unit[0]) if unit != "b" else 1)
    if not math.isfinite(size):
        raise UsageError(f"{what} '{text:.20}...' is larger than any memory; write it like 512MiB or 4GiB")
    if size < 1:
        raise UsageError(f"{what} '{text}' must be more than 0; write it like 512MiB or 4GiB")
    return int(size)


def format_size(size: float) -> str:
    """Returns a size for people: `512 MiB`, `3.9 GiB`."""
    units = ["B", "KiB", "MiB", "GiB", "TiB"]
    while size >= 1024 and len(units) > 1:
        size /= 1024
        del units[0]
    return f"{size:.4g} {units[0]}"


def format_probability(value: float) -> str:
    """Returns a probability as a percentage, which is never rounded to 0 or 100."""
    percent = 100.0 * value
    return "over 99 %" if percent > 99.0 else "under 1 %" if percent < 1.0 else f"{percent:.0f} %"
