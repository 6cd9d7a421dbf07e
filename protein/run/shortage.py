"""Whether a trial has failed because its machine had no disk or no memory left, by the words that it ended with."""

import re

from protein.types import TrialEnd

_NO_MEMORY = re.compile(r"MemoryError|std::bad_alloc|out of memory", re.IGNORECASE)
_NO_SPACE = re.compile(r"No space left on device|Errno 28|Disk quota exceeded")
FREE = "; free some space"  # the remedy that a reason of `TrialEnd.DISK` ends with


def shortage(words: str) -> TrialEnd | None:
    """Returns `OUT_OF_MEMORY` or `DISK`; None where the words speak of neither."""
    if _NO_MEMORY.search(words):
        return TrialEnd.OUT_OF_MEMORY
    return TrialEnd.DISK if _NO_SPACE.search(words) else None
