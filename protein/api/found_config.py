"""A found config as a file for `--config`, as `protein best --write` writes it, and what has changed since."""

import dataclasses
import re
import shlex
from pathlib import Path

from protein import envs_c
from protein.api.recommended import Choice, stored_values
from protein.config.layers import Layers, unflatten
from protein.config.resolve import find_env, load
from protein.config.write import to_toml
from protein.errors import UsageError
from protein.run.job import runs_trainer
from protein.space import Space
from protein.sweep.provenance import changes_since
from protein.trainer import kinds
from protein.trainer.errors import ConfigError as RunConfigError
from protein.types import SweepRecord, SweepSpec
from protein.view import commands, text

_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9._-]+")
MAX_MEASURED = 8  # scores of runs that the head of a file lists


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class FoundConfig:
    """A config file. `changes` are reasons why its expected score and cost may not hold here, in short sentences."""

    content: str
    changes: tuple[str, ...]


def found_config(sweep: SweepRecord, choice: Choice, path: Path) -> FoundConfig:
    """Returns the config of a recommendation as a file that is laid over today's config files.

    Args:
        sweep: as it is stored; it runs the trainer.
        choice: of its recommendation.
        path: where the file will be, for its head.

    Raises:
        UsageError: the sweep ran a function, or its environment or a value of it no longer exists.
    """
    below, trial = base_layers(sweep.spec), choice.trial
    values = stored_values(sweep.spec, trial)
    try:
        kinds.read(unflatten(values))
    except (RunConfigError, ValueError) as error:
        raise UsageError(
            f"the config of trial {trial.number} of sweep '{sweep.spec.name}' does not work with this version"
            f" ({error}); use version {trial.provenance.version} of protein-sweep, which found it"
        ) from error
    changes = config_changes(sweep.spec, choice, below)
    contender, origin = choice.contender, trial.provenance
    runs = "1 run" if contender.runs == 1 else f"{contender.runs} runs"
    measured = [text.score(score) for score in contender.measured]
    listed = ", ".join(measured[:MAX_MEASURED]) + (", ..." if len(measured) > MAX_MEASURED else "")
    head = [
        f"sweep '{sweep.spec.name}' of {sweep.spec.env}, {choice.name}: trial {trial.number} ({trial.origin})",
        f"expected score: {text.estimate(contender.score)}, with the central 80 % interval, by the {contender.basis}",
        f"measured score: {listed} ({runs})",
        f"expected cost: {text.seconds(contender.expected_cost_seconds)} of training on {origin.machine}",
        f"found with version {origin.version}, commit {origin.git_commit or 'unknown'}, on {trial.started_at:%Y-%m-%d}",
        *(f"note: {change}" for change in changes),
        f"train it with: {shlex.join([commands.NAME, 'train', '--config', str(path)])}",
        "Values that are not listed are those of the config files below this one.",
    ]
    space = Space.from_dict(sweep.spec.space)
    return FoundConfig(content=to_toml(values, space, below, head, found="searched"), changes=tuple(changes))


def base_layers(spec: SweepSpec) -> Layers:
    """Returns the config files of a sweep's environment as they are today, without the user's own file and flags.

    Raises:
        UsageError: the sweep ran a function, or its environment no longer exists.
    """
    if not runs_trainer(spec.config):
        raise UsageError(f"sweep '{spec.name}' ran {spec.env}, which has no config file; use --json")
    return load(find_env(spec.env, None, envs_c.names()))


def config_changes(spec: SweepSpec, choice: Choice, below: Layers) -> list[str]:
    """Returns what has changed since a config was found, and may change its score or its cost."""
    values = stored_values(spec, choice.trial)
    changes = changes_since(choice.trial.provenance)
    if new := [name for name in below.settings if name not in values]:
        changes.append(f"values that did not exist then keep today's default: {', '.join(new)}")
    return changes


def rung_path(path: Path | None, sweep: str, limit: str) -> Path:
    """Returns the file of one limit of a ladder: `pong.toml` and 10s give `pong_10s.toml`."""
    stem = Path(f"{_NOT_IN_A_NAME.sub('-', sweep)}.toml") if path is None else path
    suffix = stem.suffix or ".toml"
    return stem.with_name(f"{stem.stem}_{_NOT_IN_A_NAME.sub('-', limit.strip().lower())}{suffix}")
