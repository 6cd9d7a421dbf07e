"""Arguments of the commands that show and compare: view, report, plot, compare."""

import dataclasses
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional

from protein.cli.arguments.shared import Artifacts, StoreArguments, Switch, shown
from protein.cli.values import value_spec


@dataclasses.dataclass(frozen=True, kw_only=True)
class ViewArguments(StoreArguments):
    """Look at sweeps in the browser: a page of this machine, live while they run."""

    of: Positional[Annotated[str | None, shown("[STORE]", "(default: $PROTEIN_STORE, or runs/protein.db)")]] = None
    """The store to show: a path, sqlite:///PATH or postgresql+psycopg://USER@HOST/DATABASE."""
    port: Annotated[int | None, value_spec(int, "--port"), shown("INT", "(default: 8742, or a free one)")] = None
    """Port to listen on."""
    host: Annotated[str, shown("ADDRESS", "(default: 127.0.0.1)")] = "127.0.0.1"
    """Address to listen on. One that other machines can reach needs --token."""
    token: Switch = False
    """Make a token, without which the server answers nobody. It is printed once, in the address."""
    artifacts: Artifacts = None
    """Where the files of sweeps are, if they were given --artifacts."""
    open: Switch = False
    """Open the page in the browser."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReportArguments(StoreArguments):
    """Write one or several sweeps as one HTML file: the pages of protein view, to send or to keep."""

    sweeps: Positional[Annotated[tuple[str, ...], shown("[SWEEP ...]", "(default: the only sweep of the store)")]] = ()
    """Names of sweeps."""
    output: Annotated[Path | None, shown("FILE", "(default: the sweep's name with .html)", short="-o")] = None
    """The file. It needs no server and no network, and holds no path of this machine."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlotArguments(StoreArguments):
    """Draw a picture of one or several sweeps.

    KIND is front (score against cost), curves (learning curves), parallel (the parameters, a line a trial), importance
    (which parameters matter) or compare (sweeps over each other)."""

    what: Positional[
        Annotated[tuple[str, ...], shown("KIND [SWEEP ...]", "(default: the only sweep of the store)")]
    ] = ()
    """What to plot, and the sweeps."""
    output: Annotated[Path | None, shown("FILE", "(default: KIND.png)", short="-o")] = None
    """The picture. Its ending says which kind of file: .png, .svg or .pdf."""
    x: Annotated[str | None, shown("seconds|steps|fraction", "(default: seconds)")] = None
    """Curves: what they run over."""
    trials: Annotated[str | None, shown("INT[,INT...]", "(default: those of the front)")] = None
    """Curves: the trials to draw in color."""
    by: Annotated[str | None, shown("PARAMETER", "(default: none)")] = None
    """Curves: the parameter whose value gives the color of a curve."""
    log_x: Switch = False
    """Curves: draw them over a logarithmic axis."""
    smooth: Annotated[float | None, value_spec(float, "--smooth"), shown("FLOAT", "(default: 0)")] = None
    """Curves: weight of the past in an exponential mean, from 0 to below 1."""
    params: Annotated[str | None, shown("NAME[,NAME...]", "(default: up to 10 in which trials differ)")] = None
    """Parallel: the parameters to draw, in this order."""
    target: Annotated[str | None, shown("score|cost", "(default: score)")] = None
    """Importance: for what the parameters matter."""
    env: Annotated[str | None, shown("NAME[,NAME...]", "(default: all that the sides have in common)")] = None
    """Compare: the environments."""
    reference: Annotated[str | None, shown("SIDE", "(default: the first)")] = None
    """Compare: the side that is drawn first."""
    each: Switch = False
    """Compare: make every sweep a side of its own."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class CompareArguments(StoreArguments):
    """Compare two or more sweeps: best score, hypervolume, and how soon it was found, with intervals over seeds.

    Sweeps whose names differ in a seed or an environment only, such as old-pong-1 and old-maze-2, are one side."""

    sweeps: Positional[Annotated[tuple[str, ...], shown("SWEEP SWEEP ...", "(required)")]] = ()
    """Names of sweeps. Where one is a pattern ('old-*') or a list (a,b,c), each argument is a side."""
    env: Annotated[str | None, shown("NAME[,NAME...]", "(default: all that the sides have in common)")] = None
    """Environments to compare in."""
    reference: Annotated[str | None, shown("SIDE", "(default: the first)")] = None
    """The side that the others are compared with."""
    each: Switch = False
    """Make every sweep a side of its own."""
    json: Switch = False
    """Print JSON."""
