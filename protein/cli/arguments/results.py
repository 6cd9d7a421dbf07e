"""Arguments of the commands that read the result: status, pareto, best, laws, show, note."""

import dataclasses
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional

from protein.cli.arguments.shared import StoreArguments, SweepName, Switch, Under, shown
from protein.cli.values import value_spec


@dataclasses.dataclass(frozen=True, kw_only=True)
class StatusArguments(StoreArguments):
    """Show how far sweeps are: all of them, or one with what more training is expected to change."""

    sweep: Positional[Annotated[str | None, shown("[SWEEP]", "(default: all)")]] = None
    """Name of a sweep."""
    watch: Switch = False
    """Go on showing it, until Ctrl-C."""
    json: Switch = False
    """Print JSON."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ParetoArguments(StoreArguments):
    """Show a sweep's Pareto fronts: the best score for every cost, as measured and as expected without luck."""

    sweep: SweepName = None
    """Name of the sweep."""
    png: Annotated[Path | None, shown("FILE", "(default: none)")] = None
    """Also draw the front into this PNG file."""
    json: Switch = False
    """Print JSON."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class BestArguments(StoreArguments):
    """Show the config with the best expected score, the knee, and the commands that train them."""

    sweep: SweepName = None
    """Name of the sweep."""
    under: Under = None
    """Also show the best among configs that are expected to cost at most this much training time, as in 30s."""
    write: Annotated[Path | None, shown("FILE", "(default: none)")] = None
    """Also write the config as a short TOML file for --config, with comments. With --ladder: FILE_10s, FILE_1m, ..."""
    ladder: Annotated[str | None, shown("DURATION[,DURATION...]", "(default: none)")] = None
    """Write the best config under each of these limits, as in 10s,1m,10m. The files begin with the sweep's name."""
    json: Switch = False
    """Print JSON."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class LawsArguments(StoreArguments):
    """Show how each parameter's best value changes with cost, and the config to try at a larger cost."""

    sweep: SweepName = None
    """Name of the sweep."""
    at: Annotated[str | None, shown("DURATION", "(default: none)")] = None
    """Also show the config to try at this cost, as in 8h. It may be far above that of the largest trial."""
    write: Annotated[Path | None, shown("FILE", "(default: none)")] = None
    """With --at: also write the config as a short TOML file for --config, with comments."""
    png: Annotated[Path | None, shown("FILE", "(default: none)")] = None
    """Also draw the laws into this PNG file."""
    json: Switch = False
    """Print JSON."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShowArguments(StoreArguments):
    """Show a sweep's trials, everything about one of them, or how good the engine's predictions were."""

    sweep: SweepName = None
    """Name of the sweep."""
    trial: Annotated[int | None, value_spec(int, "--trial"), shown("INT", "(default: all)")] = None
    """Number of a trial."""
    calibration: Switch = False
    """Compare predicted with measured scores and costs, and draw a picture into the sweep's folder."""
    json: Switch = False
    """Print JSON."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class NoteArguments(StoreArguments):
    """Tag a trial, write a note on it, or exclude it, so that the engine ignores it and nothing recommends it."""

    sweep: SweepName = None
    """Name of the sweep."""
    trial: Annotated[str | None, shown("INT[,INT...]", "(required)")] = None
    """Number of the trial, or numbers of several."""
    tag: Annotated[str | None, shown("TEXT[,TEXT...]", "(default: none)")] = None
    """Tags to add."""
    untag: Annotated[str | None, shown("TEXT[,TEXT...]", "(default: none)")] = None
    """Tags to take away."""
    note: Annotated[str | None, shown("TEXT", "(default: as it is)")] = None
    """The note, which replaces the one before; an empty one removes it."""
    exclude: Switch = False
    """From the next suggestion on, the engine learns nothing from the trial. A running sweep follows, too."""
    include: Switch = False
    """Take an exclusion back."""
    json: Switch = False
    """Print JSON."""
