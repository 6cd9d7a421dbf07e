"""What a sweep has found, in a sentence: its best expected config beside the initial one."""

from protein.api.recommended import Choice, Recommendation
from protein.view import text

SAME_COST = 0.1  # costs that differ by less than this share count as about the same
_PARTS = ("", "", "half", "a third", "a quarter", "a fifth", "a sixth", "a seventh", "an eighth", "a ninth", "a tenth")
_MAX_SHARE = 0.6  # a larger share of a cost is given as a percentage


def summary(found: Recommendation) -> str:
    """Returns the sentence. All its scores and costs are expected ones.

    Such as "trial 12 is expected to beat your initial config: score 20.60 instead of 15.20, at about a third of its
    cost", or "nothing beat your initial config (expected score 20.61 in 2.28s); trial 4, the knee, is expected to score
    15.75 at about 1/13 of its cost".
    """
    best, initial = found.best, found.initial
    if initial is None:
        unknown = "; your initial config was not trained to its end" if found.has_initial else ""
        return f"best found: trial {best.trial.number}, expected {best.phrase()}{unknown}"
    new, old = text.score(best.contender.score.value), text.score(initial.contender.score.value)
    if best.trial.number == initial.trial.number:
        return f"nothing beat your initial config (expected {initial.phrase()}){_cheaper(found, initial)}"
    cost = relative_cost(best, initial)
    if new == old:
        return f"trial {best.trial.number} is expected to score as well as your initial config ({old}), {cost}"
    return f"trial {best.trial.number} is expected to beat your initial config: score {new} instead of {old}, {cost}"


def relative_cost(one: Choice, other: Choice) -> str:
    """Returns what one config costs beside another, as in "at about a third of its cost"."""
    ratio = one.contender.expected_cost_seconds / max(other.contender.expected_cost_seconds, 1e-9)
    if abs(ratio - 1.0) < SAME_COST:
        return "at about the same cost"
    if ratio > 1.0:
        return f"at {ratio:.1f} times its cost" if ratio < 10 else f"at {ratio:.0f} times its cost"
    if ratio > _MAX_SHARE:
        return f"at {100 * ratio:.0f} % of its cost"
    part = round(1.0 / max(ratio, 1e-9))
    return f"at about {_PARTS[part] if part < len(_PARTS) else f'1/{part:,}'} of its cost"


def _cheaper(found: Recommendation, initial: Choice) -> str:
    """Returns what the knee gives for less, where it costs less than the initial config."""
    knee = found.knee
    if knee is None or knee.contender.expected_cost_seconds >= initial.contender.expected_cost_seconds:
        return ""
    score = text.score(knee.contender.score.value)
    return f"; trial {knee.trial.number}, the knee, is expected to score {score} {relative_cost(knee, initial)}"
