"""Every error of a training run that a user can meet, as one line: the value, the limit and the remedy.

`reason` is the word that the JSON-lines protocol reports; `exit_code` is 2 for bad usage and 1 when the work itself
failed.
"""

import difflib
from collections.abc import Iterable

MIN_LIKENESS = 0.66  # from here on a name counts as a slip of another; at 0.5 unrelated names were suggested
MIN_PART = 3  # letters that a name must have to be taken for a part of another


class TrainerError(Exception):
    """Base of all errors that are meant for the user."""

    reason = "error"
    exit_code = 1


class ConfigError(TrainerError):
    """A configuration that cannot be used: unknown key, wrong type, value out of range, violated constraint."""

    reason = "config"
    exit_code = 2


class CheckpointError(TrainerError):
    """A checkpoint that cannot be used: missing, damaged, of another environment or of another network shape."""

    reason = "checkpoint"
    exit_code = 2


class DiskError(TrainerError):
    """A file that could not be written: no space, no permission. Mending that and running again is all it takes."""

    reason = "disk"
    exit_code = 2


class DivergedError(TrainerError):
    """Training produced a loss or a weight that is not finite."""

    reason = "diverged"


class OutOfMemoryError(TrainerError):
    """The machine or the device has not the memory that the run asks for."""

    reason = "memory"


class LostProcessError(TrainerError):
    """Another process of a run of several has died or does not answer."""

    reason = "process"


def with_reason(reason: str, message: str) -> TrainerError:
    """Returns the error that `reason` stands for, as another process has reported it."""
    kinds = {kind.reason: kind for kind in TrainerError.__subclasses__()}
    return kinds.get(reason, TrainerError)(message)


def nearest(name: str, known: Iterable[str]) -> str:
    """Returns `; did you mean 'x'?` for the known name that `name` is a slip of, to end a message with.

    Where no known name is close enough, it returns the list of known names. Of dotted names, such as
    `train.learning_rate`, the sections that both share do not count as likeness.
    """
    names = sorted(known)
    likeness = {candidate: _likeness(name, candidate) for candidate in names}
    closest = max(names, key=lambda candidate: likeness[candidate], default=None)
    if closest is not None and likeness[closest] >= MIN_LIKENESS:
        return f"; did you mean '{closest}'?"
    section = name.rpartition(".")[0]
    of_section = [candidate for candidate in names if section and candidate.startswith(section + ".")]
    return f"; known: {', '.join(of_section or names)}"


def _likeness(name: str, known: str) -> float:
    """Returns how alike two names are, in [0, 1]: enough where one is part of the other, or letters changed places."""
    a, b = name.strip("-").lower(), known.strip("-").lower()
    section = a.rpartition(".")[0]
    if section and b.startswith(section + "."):
        a, b = a[len(section) + 1 :], b[len(section) + 1 :]
    ratio = difflib.SequenceMatcher(None, a, b).ratio()
    part = min(len(a), len(b)) >= MIN_PART and (a in b or b in a)
    return max(ratio, MIN_LIKENESS) if part or (len(a) > 1 and sorted(a) == sorted(b)) else ratio
