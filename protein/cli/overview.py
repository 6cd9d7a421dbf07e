"""What a sweep has found, as `protein status NAME` and the end of a sweep print it: `protein.api.overview` in lines.

On a terminal sentences are wrapped to its width. Commands never are, so that they can be copied.
"""

from collections.abc import Sequence

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from protein.api.overview import Best, Factor, Findings, Line
from protein.view import tables, text


def show(console: Console, found: Findings, more: Sequence[Line] = ()) -> None:
    """Prints the recommended config, whether it can be trusted, what matters, and what to do next.

    Args:
        console: where to.
        found: what the models tell.
        more: what else to do next, before that.
    """
    if found.best is None:
        console.print(Text(found.why_none, style="bold"))
    else:
        _show_best(console, found.best)
        show_lines(console, "can it be trusted?", found.trust)
    if found.matters:
        _show_matters(console, found.matters)
    elif found.why_not_ranked:
        show_lines(console, "what matters?", [Line(text=found.why_not_ranked)])
    show_lines(console, "what next?", [*more, *found.next])


def _show_best(console: Console, best: Best) -> None:
    console.print(Text(best.text, style="bold"))
    if best.changes:
        columns = (
            tables.Column("changed", [one.name for one in best.changes], keep=3),
            tables.Column("recommended", [one.value or "none" for one in best.changes], keep=2, least=12),
            tables.Column("initial", [one.initial or "none" for one in best.changes], keep=1, least=8),
        )
        console.print(tables.fitted(console.width, *columns))
    elif not best.is_initial:
        console.print(tables.params(best.params))
    if best.command:
        verb = "train" if "train" in best.command.split() else "run"
        expected = f"score {text.estimate(best.score)} in {text.seconds(best.cost_seconds)}"
        console.print(f"\n{verb} the recommended config (trial {best.trial}, expected {expected}):")
        console.print(Text(f"  {best.command}"), soft_wrap=True)


def show_lines(console: Console, title: str, lines: Sequence[Line]) -> None:
    """Prints sentences below a title, each with its command; nothing where there are none."""
    if lines:
        console.print(Text(f"\n{title}", style="bold"))
    for line in lines:
        console.print(Padding(Text(line.text), (0, 0, 0, 2), expand=False))
        if line.command:
            console.print(Text(f"    {line.command}"), soft_wrap=True)


def _show_matters(console: Console, factors: Sequence[Factor]) -> None:
    console.print(Text("\nwhat matters?", style="bold"))
    first = [factor for factor in factors if factor.verdict == "matters"]
    if first:
        laws = [factor.law for factor in first]
        columns = (
            tables.Column("  matters", [f"  {factor.name}" for factor in first], keep=4),
            tables.Column("share", [_share(factor) for factor in first], keep=2, right=True),
            tables.Column("best", [factor.best for factor in first], keep=3, least=12),
            *([tables.Column("law", laws, keep=1, least=20)] if any(laws) else []),
        )
        console.print(tables.fitted(console.width, *columns))
    for verdict in ("maybe", "hardly"):
        names = [f"{factor.name} {_share(factor)}".strip() for factor in factors if factor.verdict == verdict]
        if names:
            console.print(Padding(Text(f"{verdict}: {', '.join(names)}"), (0, 0, 0, 2), expand=False))


def _share(factor: Factor) -> str:
    return "" if factor.share is None else f"{100 * factor.share.value:.0f} %"
