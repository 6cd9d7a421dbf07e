"""What more budget is expected to buy, as plain data, and how earlier outlooks came true."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.table import Table

from protein.view import tables, text

if TYPE_CHECKING:  # it loads the engine's models; a list of sweeps needs none
    from protein.engine.outlook import Hindsight
    from protein.engine.results import Outlook, Rise

HINDSIGHT_TITLE = (
    "earlier outlooks (the gain of the best score, with its 80 % interval), and what came by today's model"
)


def plain(found: "Outlook | None") -> list[dict[str, Any]] | None:
    """Returns gains as plain data with stable keys, the same for both directions: 0 or more, and more is better."""
    if found is None:
        return None
    return [
        {"seconds": seconds, "best": _plain(found.best(seconds)), "front": _plain(found.front(seconds))}
        for seconds in found.horizons()
    ]


def table(found: "Sequence[Hindsight]", width: int) -> Table:
    """One line an earlier outlook: by how much the best score was expected to improve, and what came."""
    rises = [one.forecast for one in found]
    highs = [rise.high for rise in rises]
    return tables.fitted(
        width,
        tables.Column("after", [text.seconds(one.after_seconds) for one in found], right=True, keep=9),
        tables.Column("next", [text.seconds(one.seconds) for one in found], right=True, keep=8),
        tables.Column("expected gain", [_gain(one.forecast, rises) for one in found], right=True, keep=7),
        tables.Column("gain", text.alike([one.rise for one in found], like=highs), right=True, keep=6),
        tables.Column("inside", ["yes" if one.inside else "no" for one in found], keep=5),
    )


def plain_hindsight(one: "Hindsight") -> dict[str, Any]:
    """Returns an earlier outlook as plain data with stable keys; gains are 0 or more."""
    return {
        "after_seconds": one.after_seconds,
        "seconds": one.seconds,
        "expected": _plain(one.forecast),
        "came": one.rise,
        "inside": one.inside,
    }


def _plain(rise: "Rise") -> dict[str, float]:
    return {"value": rise.expected, "low": 0.0, "high": rise.high}


def _gain(rise: "Rise", others: "Sequence[Rise]") -> str:
    """Returns a gain with its interval, with as many decimals as the others beside it."""
    expected, high = text.alike([rise.expected, rise.high], like=[one.high for one in others])
    return f"{expected} (0 to {high})"
