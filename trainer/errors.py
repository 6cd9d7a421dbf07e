"""Every error of a training run that a user can meet, as one line: the value, the limit and the remedy.

`reason` is the word that the JSON-lines protocol reports; `exit_code` is 2 for bad usage and 1 when the work itself
failed.
"""


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


class DataError(TrainerError):
    """Text or tokens to train on that cannot be used: missing, damaged, of another tokenizer."""

    reason = "data"
    exit_code = 2


class DiskError(TrainerError):
    """A file that could not be written: no space, no permission. Once that is fixed, the run can be started again."""

    reason = "disk"
    exit_code = 2


class DivergedError(TrainerError):
    """Training produced a loss or a weight that is not finite."""

    reason = "diverged"


class OutOfMemoryError(TrainerError):
    """The machine or the device has less memory than the run needs."""

    reason = "memory"


class UsersCodeError(TrainerError):
    """The user's own code raised something while the run went on; `__cause__` is what it raised."""

    reason = "environment"


class LostProcessError(TrainerError):
    """Another process of a run of several has died or does not answer."""

    reason = "process"


def with_reason(reason: str, message: str) -> TrainerError:
    """Returns the error that `reason` stands for, as another process has reported it."""
    kinds = {kind.reason: kind for kind in TrainerError.__subclasses__()}
    return kinds.get(reason, TrainerError)(message)
