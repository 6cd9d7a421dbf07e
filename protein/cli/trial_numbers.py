"""Numbers of trials as flags give them."""

from protein.errors import UsageError


def trial_numbers(given: str | None) -> list[int]:
    """Returns the numbers of trials, as in "3" and "3,7". Raises `UsageError` where it is none."""
    if given is None:
        raise UsageError("--trial is missing: give the number of a trial, or numbers as in --trial 3,7")
    words = [word.strip() for word in given.split(",")]
    if not all(word.isascii() and word.isdigit() and len(word) <= 9 for word in words):
        raise UsageError(f"--trial {given:.80} is no list of trial numbers; give it as in --trial 3 or --trial 3,7")
    return sorted({int(word) for word in words})
