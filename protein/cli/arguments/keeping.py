"""Arguments of the commands that move, keep and clean up: export, import, sync, store, clean, rename, rm."""

import dataclasses
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, UseAppendAction

from protein.cli.arguments.shared import Artifacts, StoreArguments, SweepName, Switch, Trackers, shown


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExportArguments(StoreArguments):
    """Write sweeps into a file with all that the store holds of them. `protein import FILE` reads it."""

    sweeps: Positional[Annotated[tuple[str, ...], shown("[SWEEP ...]", "(default: the only sweep of the store)")]] = ()
    """Names of sweeps."""
    all: Switch = False
    """Every sweep of the store."""
    output: Annotated[Path | None, shown("FILE", "(default: the sweep's name with .jsonl)", short="-o")] = None
    """The file: .jsonl (JSON lines), or .parquet, which needs pyarrow. One that is there is replaced."""
    json: Switch = False
    """Print JSON."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ImportArguments(StoreArguments):
    """Store the sweeps of a file that protein export has written. Or take over the runs of another tool as a sweep.

    Runs of another tool can be looked at, and sweeps can start warm from them. The same command again adds new ones."""

    tool: Positional[Annotated[str | None, shown("[FILE|TOOL]", "(required)")]] = None
    """A .jsonl or .parquet file of protein export. Or optuna, wandb, mlflow or pufferlib, with a SOURCE."""
    source: Positional[Annotated[str | None, shown("[SOURCE]", "(required)")]] = None
    """URL or file of a study's storage or of MLflow, a CSV file (wandb), a folder of logs (pufferlib)."""
    name: Annotated[str | None, shown("TEXT", "(default: like the experiment's)")] = None
    """Name of the sweep."""
    experiment: Annotated[str | None, shown("TEXT", "(default: the only one)")] = None
    """The study or the experiment, where the source holds several."""
    score: Annotated[str | None, shown("METRIC", "(default: what the tool names)")] = None
    """The metric that counts."""
    direction: Annotated[str | None, shown("maximize|minimize", "(default: what the tool names)")] = None
    """Whether a higher score is better."""
    cost: Annotated[str | None, shown("METRIC", "(default: the run's duration)")] = None
    """What a run cost in seconds; the word equal stands for one second each."""
    params: Annotated[str | None, shown("COLUMN[,COLUMN...]", "(default: all that may be)")] = None
    """wandb: the columns that are parameters. Its file does not tell them from metrics."""
    rename: Annotated[tuple[str, ...], UseAppendAction, shown("OLD=NEW", "(default: none)")] = ()
    """Another name for a parameter, as in lr=train.learning_rate. Give it several times for several."""
    space: Annotated[str | None, shown("FILE", "(default: what the runs show)")] = None
    """Ranges in the form of configs/*.toml."""
    cost_parameter: Annotated[str | None, shown("NAME", "(default: what the tool names)")] = None
    """The parameter that makes a run expensive, as train.total_timesteps does."""
    json: Switch = False
    """Print JSON."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class SyncArguments(StoreArguments):
    """Write a sweep's trials to a tracker: all that it does not have yet."""

    sweep: SweepName = None
    """Name of the sweep."""
    tracker: Trackers = ()
    """mlflow, neptune, wandb, tensorboard or trackio. Give it several times for several."""
    json: Switch = False
    """Print JSON."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class StoreCommandArguments:
    """Look after a store. ACTION is check, upgrade, backup or move.

    check looks at every value and prints what is damaged. upgrade brings an older store to this version, with a backup
    first. backup copies a store while it is used. move copies all sweeps into another store."""

    action: Positional[Annotated[str | None, shown("ACTION", "(required)")]] = None
    """check, upgrade, backup or move."""
    url: Positional[Annotated[str | None, shown("[STORE]", "(default: $PROTEIN_STORE, or runs/protein.db)")]] = None
    """The store: a path, sqlite:///PATH or postgresql+psycopg://USER@HOST/DATABASE."""
    output: Annotated[Path | None, shown("FILE", "(default: beside the store)", short="-o")] = None
    """backup, upgrade: the file of the copy. Of a PostgreSQL store it is an export of all sweeps, such as all.jsonl."""
    to: Annotated[str | None, shown("STORE", "(default: none)")] = None
    """move: the store that the sweeps are copied to."""
    json: Switch = False
    """Print JSON."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class CleanArguments(StoreArguments):
    """Delete checkpoints that nothing needs any more, and say how much space that frees.

    Kept are those of the front, of the recommended config, and of trials that can go on. Logs and configs stay, too."""

    sweep: SweepName = None
    """Name of the sweep."""
    all: Switch = False
    """Every sweep of the store."""
    dry_run: Switch = False
    """Only say what would be deleted."""
    finished: Switch = False
    """The sweep gets no more budget: delete also what finished trials could go on from to more steps."""
    artifacts: Artifacts = None
    """Where its files are, if the sweep was given --artifacts."""
    json: Switch = False
    """Print JSON."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RenameArguments(StoreArguments):
    """Rename a sweep and its folder."""

    old: Positional[Annotated[str | None, shown("OLD", "(required)")]] = None
    """Name of the sweep."""
    new: Positional[Annotated[str | None, shown("NEW", "(required)")]] = None
    """Its new name."""
    artifacts: Artifacts = None
    """Where its files are, if the sweep was given --artifacts."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RemoveArguments(StoreArguments):
    """Delete a sweep with all of its trials and files."""

    sweep: Positional[Annotated[str | None, shown("SWEEP", "(required)")]] = None
    """Name of the sweep."""
    yes: Switch = False
    """Delete it without asking."""
    keep_files: Switch = False
    """Leave the sweep's folder as it is."""
    artifacts: Artifacts = None
    """Where its files are, if the sweep was given --artifacts."""
