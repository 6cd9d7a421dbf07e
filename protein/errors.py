"""Every error that a user can meet, as one line: the value, the limit and the remedy.

The command line prints the message of a `ProteinError` after `error: ` and exits with its `exit_code`;
anything else is a defect and shows its traceback.
"""

import errno

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # of a disk that takes no more
_REMEDIES = {
    **dict.fromkeys(FULL, "free some space"),
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), "change its permissions"),
}


def remedy(error: OSError) -> str:
    """Returns what may help where a file or a folder cannot be written, besides another path; "" if nothing does."""
    return _REMEDIES.get(error.errno or 0, "")


class ProteinError(Exception):
    """Base of all errors that are meant for the user."""

    exit_code = 2


class UsageError(ProteinError):
    """A flag, a duration, a name or a budget that cannot be used as given."""


class ConfigError(ProteinError):
    """A configuration file or value that cannot be used: unknown key, wrong type, violated constraint."""


class SpaceError(ProteinError):
    """A search space that cannot be searched: empty range, log range touching 0, unsatisfiable constraint."""


class StoreError(ProteinError):
    """A store that cannot be opened, read or written, or that a newer version wrote."""


class StoreMissing(StoreError):
    """There is no store yet at this place."""


class StoreUnavailable(StoreError):
    """A write or read that may succeed later as it is: the disk is full, the server is down, another process locks."""


class TrialLost(StoreError):
    """A write to a trial that is no longer this process's: it finished, was interrupted, or has another owner."""


class TrialFailed(ProteinError):
    """The work itself failed (as opposed to bad usage): training diverged, a process died."""

    exit_code = 1


def in_words(error: BaseException) -> str:
    """Returns an error in one line. Of one that is not ours the kind is named, as its text may say little."""
    text = " ".join(str(error).split())
    return text if text and isinstance(error, ProteinError) else f"{type(error).__name__}: {text}".removesuffix(": ")
