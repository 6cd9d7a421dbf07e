"""What each command takes, as dataclasses that tyro turns into flags and help. A field's docstring is its help text.

Durations and sizes stay text here; the commands parse them, so that an error names the flag.
"""

import dataclasses
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from protein.cli.values import value_spec

_OF_CONFIG = "(default: the config's)"


def _arg(metavar: str, default: str = "", name: str | None = None) -> object:
    return arg(name=name, metavar=metavar, help_behavior_hint=default)


_SweepName = Positional[Annotated[str | None, _arg("[SWEEP]", "(default: the only one there is)")]]
_Config = Annotated[Path | None, _arg("FILE", "(default: none)")]
_Under = Annotated[str | None, _arg("DURATION", "(default: no limit)")]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Stored:
    """A command that reads or writes a store."""

    store: Annotated[str | None, _arg("URL", "(default: $PROTEIN_STORE, or runs/protein.db)")] = None
    """Where trials are kept: a path, sqlite:///PATH or postgresql+psycopg://USER@HOST/DATABASE."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sweep(Stored):
    """Search for good configs under a budget; run again, go on where it stopped.

    Any value of the run has a flag of its own: giving it fixes the value and takes it out of the search."""

    environment: Annotated[str | None, _arg("NAME", "(default: the one that --config names)", "env")] = None
    """Environment to train on; `protein envs` lists them."""
    name: Annotated[str | None, _arg("TEXT", "(default: the environment's)")] = None
    """Name of the sweep, to resume it and to ask for it."""
    max_cost: Annotated[str | None, _arg("DURATION", "(default: what it was before, or no limit)")] = None
    """Budget: training time of all trials together, as in 90s, 15m, 2h or 1h30m."""
    max_trial_cost: Annotated[str | None, _arg("DURATION", "(default: the config's, or budget / 4)")] = None
    """Cap on the training time of one trial."""
    max_trials: Annotated[int | None, value_spec(int, "--max-trials"), _arg("INT", "(default: no limit)")] = None
    """Number of trials of the whole sweep, failed ones included."""
    max_trial_memory: Annotated[str | None, _arg("SIZE", _OF_CONFIG)] = None
    """Cap on the memory of one trial, as in 4GiB."""
    workers: Annotated[int | None, value_spec(int, "--workers"), _arg("INT", _OF_CONFIG)] = None
    """Trials that run at the same time."""
    method: Annotated[str | None, _arg("TEXT", _OF_CONFIG)] = None
    """protein (cost-aware Bayesian search), random, or one of Optuna's samplers, as optuna:tpe."""
    prior: Annotated[str | None, _arg("SWEEP", "(default: none)")] = None
    """Begin from what another sweep of the store found: its trials count until this sweep's own say otherwise."""
    seed: Annotated[int | None, value_spec(int, "--seed"), _arg("INT", _OF_CONFIG)] = None
    """Source of the sweep's randomness."""
    early_stopping: Annotated[bool | None, value_spec(bool, "--early-stopping"), _arg("True|False", _OF_CONFIG)] = None
    """Stop trials whose learning curve shows that they will not come near the best."""
    config: _Config = None
    """A TOML file of your own, laid over configs/default.toml and the environment's."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Train(Stored):
    """Train one agent, from the config files or from the best trial of a sweep."""

    environment: Annotated[
        str | None, _arg("NAME", "(default: the sweep's, or the one that --config names)", "env")
    ] = None
    """Environment to train on; `protein envs` lists them."""
    from_: Annotated[str | None, _arg("SWEEP", "(default: none)", "from")] = None
    """Take the config of this sweep's best trial."""
    under: _Under = None
    """With --from: the best among configs that are expected to cost at most this much training time, as in 30s."""
    config: _Config = None
    """A TOML file of your own, laid over configs/default.toml and the environment's."""
    checkpoint: Annotated[Path | None, _arg("FILE", "(default: none)")] = None
    """Where to leave a copy of the final checkpoint, besides the run's own folder in runs/train."""
    nproc: Annotated[int, value_spec(int, "--nproc"), _arg("INT", "(default: 1)")] = 1
    """Processes that train together, on this machine; each takes its share of the environments and of the batch."""
    profile: Annotated[bool, arg(help_behavior_hint="")] = False
    """Say at the end where the time went. On a GPU each step then waits for the device, which is slower."""
    trace: Annotated[Path | None, _arg("FILE", "(default: none)")] = None
    """Write the last intervals of the profile as a Chrome trace, for ui.perfetto.dev or chrome://tracing."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Eval:
    """Play episodes with a trained agent and report its score."""

    checkpoint: Annotated[Path | None, _arg("FILE", "(required)")] = None
    """The checkpoint that training has written."""
    environment: Annotated[str | None, _arg("NAME", "(default: the checkpoint's)", "env")] = None
    """Environment to play."""
    episodes: Annotated[
        int | None, value_spec(int, "--episodes"), _arg("INT", "(default: 256; 1 with --render or --gif)")
    ] = None
    """Episodes to play."""
    seed: Annotated[int, value_spec(int, "--seed")] = 0
    """Source of the episodes' randomness."""
    greedy: Annotated[bool, arg(help_behavior_hint="")] = False
    """Take the most probable action instead of sampling."""
    render: Annotated[bool, arg(help_behavior_hint="")] = False
    """Watch one environment in the terminal, and leave what was seen as a GIF."""
    gif: Annotated[Path | None, _arg("FILE", "(default: with --render, beside the checkpoint)")] = None
    """Where the GIF goes; without --render nothing is shown in the terminal."""
    json: Annotated[bool, arg(help_behavior_hint="")] = False
    """Print JSON."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Status(Stored):
    """Say how sweeps are getting on: all of them, or one."""

    sweep: Positional[Annotated[str | None, _arg("[SWEEP]", "(default: all)")]] = None
    """Name of a sweep."""
    json: Annotated[bool, arg(help_behavior_hint="")] = False
    """Print JSON."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pareto(Stored):
    """Show a sweep's Pareto front: the best score for every cost."""

    sweep: _SweepName = None
    """Name of the sweep."""
    png: Annotated[Path | None, _arg("FILE", "(default: none)")] = None
    """Also draw the front into this PNG file."""
    json: Annotated[bool, arg(help_behavior_hint="")] = False
    """Print JSON."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Best(Stored):
    """Show a sweep's best config and its knee, by their expected true score, and the commands that train them."""

    sweep: _SweepName = None
    """Name of the sweep."""
    under: _Under = None
    """Also the best among configs that are expected to cost at most this much training time, as in 30s."""
    toml: Annotated[Path | None, _arg("FILE", "(default: none)")] = None
    """Also write the config as a TOML file, in the form of configs/."""
    json: Annotated[bool, arg(help_behavior_hint="")] = False
    """Print JSON."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Show(Stored):
    """Show a sweep's trials, everything about one of them, or how well the engine's predictions held."""

    sweep: _SweepName = None
    """Name of the sweep."""
    trial: Annotated[int | None, value_spec(int, "--trial"), _arg("INT", "(default: all)")] = None
    """Number of a trial."""
    calibration: Annotated[bool, arg(help_behavior_hint="")] = False
    """Compare predicted with measured scores and costs, and draw a picture into the sweep's folder."""
    json: Annotated[bool, arg(help_behavior_hint="")] = False
    """Print JSON."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Envs:
    """List the environments."""

    json: Annotated[bool, arg(help_behavior_hint="")] = False
    """Print JSON."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Doctor(Stored):
    """Check that this machine has what is needed."""

    json: Annotated[bool, arg(help_behavior_hint="")] = False
    """Print JSON."""
