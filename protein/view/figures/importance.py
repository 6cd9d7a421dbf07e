"""Which parameters matter: a panel for each method, each named, because they answer different questions.

Bars are shares of the method's total, so they add up to 100 % in each panel. A method that has no answer says why.
"""

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from protein.analysis.importance import Importance
from protein.errors import UsageError
from protein.view import text
from protein.view.figures import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_PANEL_INCHES, _INCHES_A_BAR = 3.9, 0.27
_MAX_BARS = 25
_LETTERS_A_LINE = 46


def importance(found: Sequence[Importance], title: str) -> "Figure":
    """Returns the picture.

    Args:
        found: what each method says, of one sweep and target.
        title: stands above the panels.

    Raises:
        UsageError: no method has an answer.
    """
    answered = [one for one in found if one.shares]
    if not answered:
        problem = found[0].problem if found else "no method was asked"
        raise UsageError(f"the importance of parameters is not known: {problem}")
    names = _ordered(answered)
    with style.look():
        height = _INCHES_A_BAR * min(len(names), _MAX_BARS) + 2.4
        figure = style.new_figure(_PANEL_INCHES * len(found) + 1.4, height)
        grid = figure.subplots(1, len(found), squeeze=False, sharey=True)[0]
        for position, (axes, one) in enumerate(zip(grid, found, strict=True)):
            _panel(axes, one, names, style.ink(position).color)
        grid[0].set_yticks(range(len(names)), [style.plain(text.shorten(name, 34)) for name in names])
        grid[0].set_ylim(len(names) - 0.4, -0.6)
        figure.suptitle(title, x=0.01, ha="left", fontsize=11)
    return figure


def _ordered(answered: Sequence[Importance]) -> list[str]:
    """Returns the parameters by the mean of the shares, at most `_MAX_BARS`, the most important first."""
    names = list(answered[0].shares)
    mean = {name: float(np.mean([one.shares.get(name, 0.0) for one in answered])) for name in names}
    return sorted(names, key=lambda name: -mean[name])[:_MAX_BARS]


def _panel(axes: Any, one: Importance, names: Sequence[str], color: str) -> None:
    axes.set_title("\n".join(textwrap.wrap(one.title[:1].upper() + one.title[1:], _LETTERS_A_LINE)), fontsize=9.5)
    axes.grid(axis="y", visible=False)
    axes.xaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f} %")
    said = one.problem or ". ".join(filter(None, (one.meaning, one.warning)))
    words = "\n".join(textwrap.wrap(style.plain(said), _LETTERS_A_LINE))
    axes.set_xlabel(words, fontsize=8, color=style.MUTED if not one.warning else style.FAILED_COLOR)
    if not one.shares:
        axes.set_xlim(0, 1)
        axes.set_xticks([])
        axes.text(0.5, 0.5, "no answer", transform=axes.transAxes, ha="center", color=style.MUTED)
        return
    shares = [one.shares.get(name, 0.0) for name in names]
    axes.barh(range(len(names)), shares, height=0.62, color=color, zorder=2)
    top = max(shares) or 1.0
    for place, share in enumerate(shares):
        axes.text(share + 0.015 * top, place, f"{100 * share:.0f} %", va="center", fontsize=7.5, color=style.MUTED)
    axes.set_xlim(0, 1.14 * top)
