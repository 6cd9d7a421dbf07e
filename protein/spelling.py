"""Words in messages: the one "did you mean", and numbers of things. It imports nothing, so every package may use it."""

import difflib
import re
from collections.abc import Iterable, Mapping

MIN_LIKENESS = 0.66  # from here on a name counts as a slip of another; at 0.5 unrelated names were suggested
MIN_PART = 3  # letters that a name must have to be taken for a part of another


def counted(number: int, one: str, many: str = "") -> str:
    """Returns a number of things in words: `1 trial`, `2,000 trials`; `many` is needed where it is not `one` + "s"."""
    return f"1 {one}" if number == 1 else f"{number:,} {many or one + 's'}"


def nearest(name: str, known: Iterable[str], other_words: Mapping[str, str] | None = None) -> str:
    """Returns `; did you mean 'x'?` for the known name that `name` is a slip of, to end a message with.

    Where no known name is close enough, it returns the list of known names. Of dotted names, such as
    `train.learning_rate`, the sections that both share do not count as likeness. `other_words` are names by what others
    call them, and come first: `remove` is more like `rename` than like `rm`.
    """
    names = sorted(known)
    meant = (other_words or {}).get(name.lower())
    if meant in names:
        return f"; did you mean '{meant}'?"
    likeness = {candidate: _likeness(name, candidate) for candidate in names}
    closest = max(names, key=lambda candidate: likeness[candidate], default=None)
    if closest is not None and likeness[closest] >= MIN_LIKENESS:
        return f"; did you mean '{closest}'?"
    section = name.rpartition(".")[0]
    of_section = [candidate for candidate in names if section and candidate.startswith(section + ".")]
    return f"; known: {', '.join(of_section or names)}"


def is_slip(name: str, known: str) -> bool:
    """Returns whether a name is another one with a mistake in it."""
    return name != known and _likeness(name, known) >= MIN_LIKENESS


def _likeness(name: str, known: str) -> float:
    """Returns how alike two names are, in [0, 1].

    They are alike enough where one is part of the other, or letters changed places; wholly, where words did.
    """
    a, b = name.strip("-").lower(), known.strip("-").lower()
    section = a.rpartition(".")[0]
    if section and b.startswith(section + "."):
        a, b = a[len(section) + 1 :], b[len(section) + 1 :]
    if sorted(re.split(r"[-_.]", a)) == sorted(re.split(r"[-_.]", b)):
        return 1.0
    ratio = difflib.SequenceMatcher(None, a, b).ratio()
    part = min(len(a), len(b)) >= MIN_PART and (a in b or b in a)
    return max(ratio, MIN_LIKENESS) if part or (len(a) > 1 and sorted(a) == sorted(b)) else ratio
