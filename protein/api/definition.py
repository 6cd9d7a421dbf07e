"""What defines a sweep: creates it, or finds the stored one of its name and checks that it is the same one.

A sweep that runs the trainer is defined here, by layers of configuration. Commands have `protein.api.command_sweep`,
functions `protein.Sweep`.
"""

import contextlib
import dataclasses
import json
import shlex
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

from protein import validate
from protein.api.training import INIT_FROM, check_data
from protein.config.layers import Layers, flatten
from protein.config.resolve import file_name, make_space
from protein.config.settings import SweepConfig
from protein.errors import ConfigError, StoreError, UsageError
from protein.names import NAME_LENGTH, is_name
from protein.ports import Store
from protein.run.command import SECTION, CommandSettings
from protein.space import Space
from protein.space.parameters import Categorical, Parameter, identity
from protein.sweep import provenance
from protein.sweep.stop_conditions import Met, StopWhen
from protein.trainer import kinds
from protein.trainer.errors import ConfigError as RunConfigError
from protein.trainer.kinds import LANGUAGE, PPO
from protein.trainer.language.config import BUILT_IN
from protein.trainer.settings import is_retired
from protein.types import IMPORTED, Direction, Limit, Params, SweepRecord, SweepSpec, TrialRecord, runs_trainer

PATHS = ("data.path", "eval.hellaswag", "model.init_from")  # settings that may name a file or folder
MAX_DIFFERENCES = 3  # that a message names
MAX_VALUE_LENGTH = 200  # characters of a value in a message
_FLAGS = {  # field of a command's settings -> what a user knows it as
    "text": "--command",
    "params": "--params",
    "score_from": "where the score is read",
    "score": "the score there",
    "steps": "the steps there",
    "file": "the file with the score",
    "comma": "--score-comma",
    "metrics": "--metric-regex",
    "resume": "--resume-flag",
    "chdir": "--chdir",
    "called": "the program's names",
    "accept_exit_codes": "--accept-exit-codes",
    "clock_counts": "--clock-counts",
}
_NULL = ("null",)  # a value that is fixed to None, where one that is not given has none
_DATA_FILE = "data.json"  # of a folder of tokens; written when it is made


def check_name(name: object, what: str) -> None:
    """Raises `UsageError`, beginning with `what`, unless `name` can be a sweep's name and a folder's."""
    if not is_name(name):
        raise UsageError(
            f"{what} {name!r} must be 1 to {NAME_LENGTH} letters, digits, dots, dashes or underscores; choose another"
        )


def create_or_resume(
    store: Store, wanted: SweepSpec, budget_seconds: float | None, *, accept_changes: bool = False
) -> tuple[SweepRecord, bool]:
    """Returns the stored sweep of a name, and whether it was created now.

    The budget is that of a new sweep. With `accept_changes`, a command may be run and read in another way from now on.
    What is searched stays. Limits on measured values and the possible scores may change: they only say how it is
    searched and seen, and what is recommended. Without possible scores a sweep keeps its own.

    Raises:
        UsageError: the store holds another sweep of this name; the message names the differences.
    """
    found = store.find_sweep(wanted.name)
    if found is None:
        try:
            return store.create_sweep(wanted, budget_seconds), True
        except StoreError:
            found = store.find_sweep(wanted.name)
            if found is None:  # else another process has created it at this moment
                raise
    if found.spec.method == IMPORTED:
        raise UsageError(
            f"sweep '{wanted.name}' was imported and cannot be resumed; choose another name, and learn from it with a"
            f" warm start from '{wanted.name}'"
        )
    if _kind(found.spec) != _kind(wanted):
        raise UsageError(
            f"sweep '{wanted.name}' ran {found.spec.env} with {_kind(found.spec)}, and can only be resumed so; choose"
            " another name"
        )
    wanted = _with_stored_choices(found.spec, wanted)
    stored = found.spec.config
    possible = wanted.config.get("own", {}).get("score_range") or stored.get("own", {}).get("score_range")
    found = dataclasses.replace(found, spec=_with_score_range(found.spec, possible))
    harmless = _same_but_for_the_command(found.spec, wanted)
    if harmless and accept_changes:
        config = {**found.spec.config, SECTION: wanted.config[SECTION]}
        store.set_config(found.id, config)
        found = dataclasses.replace(found, spec=dataclasses.replace(found.spec, config=config))
    if found_differences := differences(found.spec, wanted):
        more = len(found_differences) - MAX_DIFFERENCES
        listed = ", ".join(found_differences[:MAX_DIFFERENCES]) + (f" and {more} more" if more > 0 else "")
        accept = ", or go on with the new ones by --accept-changes" if harmless else ""
        raise UsageError(
            f"sweep '{wanted.name}' exists with {listed}; choose another name, which can learn from this sweep by"
            f" --warm-start {shlex.quote(wanted.name)}, or leave those as they were{accept}"
        )
    if found.spec.limits != wanted.limits:
        found = dataclasses.replace(found, spec=found.spec.with_limits(wanted.limits))
        store.set_space(found.id, found.spec.space)
    if found.spec.config != stored:
        store.set_config(found.id, found.spec.config)
    return found, False


def _with_score_range(spec: SweepSpec, possible: list[float | None] | None) -> SweepSpec:
    """Returns what defines a sweep with the possible scores; unchanged for None."""
    if possible is None:
        return spec
    own = {**spec.config.get("own", {}), "score_range": possible}
    return dataclasses.replace(spec, config={**spec.config, "own": own})


def differences(stored: SweepSpec, wanted: SweepSpec) -> list[str]:
    """Returns what differs between two definitions of a sweep, each as `name = stored (now wanted)`."""
    old, new = _values(stored), _values(wanted)
    changed = [name for name in {**old, **new} if old.get(name) != new.get(name)]
    if not changed and (names := _names(stored)) != _names(wanted):  # the engine would suggest something else
        return [f"order of parameters = {', '.join(names)} (now {', '.join(_names(wanted))})"]
    return [f"{name} = {_shown(old.get(name))} (now {_shown(new.get(name))})" for name in changed]


def _kind(spec: SweepSpec) -> str:
    if runs_trainer(spec.config):
        return "protein sweep --env"
    return "protein sweep --command" if SECTION in spec.config else "protein.Sweep and a training function"


def _same_but_for_the_command(stored: SweepSpec, wanted: SweepSpec) -> bool:
    """Whether two sweeps over commands differ only in how the command is run and read."""
    if SECTION not in stored.config or stored.config[SECTION] == wanted.config[SECTION]:
        return False
    same = dataclasses.replace(wanted, config={**wanted.config, SECTION: stored.config[SECTION]})
    return not differences(stored, same)


def _with_stored_choices(stored: SweepSpec, wanted: SweepSpec) -> SweepSpec:
    """Returns a sweep over a command with the stored choices where the file's list of them is read as a range today.

    `values: [32, 64, 96]` were choices in earlier versions. The very same values are searched, so the sweep goes on.
    """
    if SECTION not in wanted.config:
        return wanted
    old = {one["name"]: one for one in stored.space.get("parameters", ())}
    parameters = list(wanted.space["parameters"])
    for i, parameter in enumerate(Space.from_dict(wanted.space).parameters):
        choices = old.get(parameter.name, {}).get("choices")
        values = None if choices is None or isinstance(parameter, Categorical) else parameter.values()
        if values is None or len(values) != len(choices):
            continue
        if sorted(map(repr, choices)) == sorted(repr(parameter.raw(value)) for value in values):
            parameters[i] = {**old[parameter.name], "default": parameters[i]["default"]}
    return dataclasses.replace(wanted, space={**wanted.space, "parameters": parameters})


def _names(spec: SweepSpec) -> tuple[str, ...]:
    return tuple(Space.from_dict(spec.space).names)


def _values(spec: SweepSpec) -> dict[str, Any]:
    """Returns everything that defines a sweep, by name, in a form that can be compared."""
    # Through JSON, as the store keeps it: a tuple becomes a list.
    config, space_values = json.loads(json.dumps([spec.config, spec.space]))
    if runs_trainer(config):  # a setting that is newer than the sweep has its default
        defaults = kinds.kind_of(config).config().to_dict()
        config = {name: {**defaults.get(name, {}), **values} for name, values in {**defaults, **config}.items()}
    space = Space.from_dict(space_values)
    found: dict[str, Any] = {"env": spec.env} if runs_trainer(config) else {}
    found |= {"method": spec.method, "seed": spec.seed, "direction": str(spec.direction)}
    own = {name: value for name, value in config.get("own", {}).items() if name != "score_range"}
    found |= flatten(config) if runs_trainer(config) else own
    command = CommandSettings.from_config(config).to_dict() if SECTION in config else {}  # newer ones have defaults
    found |= {_FLAGS.get(key, key): value for key, value in command.items() if key != "fixed"}
    fixed = {name: _NULL if value is None else value for name, value in space.fixed.items()}  # none is another thing
    found |= {name: value for name, value in fixed.items() if name not in found}
    if runs_trainer(config):
        found = {name: value for name, value in found.items() if not _changed_nothing(name, value)}
    found |= {parameter.name: _swept(parameter, found.get(parameter.name)) for parameter in space.parameters}
    return found | {"constraints": list(space.constraints), "cost_parameter": space.cost_parameter}


def _changed_nothing(name: str, value: Any) -> bool:
    """Whether a setting is gone, and was at the value with which it changed nothing."""
    try:
        return is_retired(name, value)
    except RunConfigError:
        return False


@dataclasses.dataclass(frozen=True, slots=True)
class _Swept:
    """A value with its range."""

    value: Any
    choices: tuple[Any, ...] = ()
    identities: tuple[Any, ...] = ()  # of the choices: 1 and True are equal, but different choices
    bounds: tuple[float, float] = (0.0, 0.0)
    scale: str = ""
    step: float | None = None
    belief: tuple[Any, ...] | None = None
    when: str | None = None

    def __str__(self) -> str:
        value = "" if self.value is None else f"{self.value}, "
        more = "" if self.belief is None else f", believed {self.belief[0]} ({self.belief[1]})"
        more += "" if self.when is None else f", when {self.when}"
        if self.choices:
            return f"{value}swept over {' '.join(map(str, self.choices))}{more}"
        steps = "" if self.step is None else f", in steps of {self.step}"
        return f"{value}swept from {self.bounds[0]} to {self.bounds[1]} ({self.scale}{steps}){more}"


def _swept(parameter: Parameter, value: Any) -> _Swept:
    value = parameter.default if value is None else value
    when = parameter.when
    if isinstance(parameter, Categorical):
        told_apart, choices = tuple(map(identity, parameter.choices)), tuple(parameter.choices)
        return _Swept(value, choices=choices, identities=told_apart, belief=parameter.belief, when=when)
    bounds, step = (parameter.low, parameter.high), parameter.step
    return _Swept(value, bounds=bounds, scale=parameter.scale, step=step, belief=parameter.belief, when=when)


def _shown(value: Any) -> str:
    if value is None or value in ([], ""):
        return "none"
    text = "; ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    return text if len(text) <= MAX_VALUE_LENGTH else text[:MAX_VALUE_LENGTH] + "..."


def define_trainer_sweep(
    layers: Layers, settings: SweepConfig, name: str | None, *, device: str | None = None
) -> SweepSpec:
    """Returns what defines the sweep; it has no warm start yet.

    Without a name, it is called after what is learnt. A network of the user's own is tried out on `device`; None: on
    that of its runs.

    Raises:
        UsageError: the name cannot be used.
        ConfigError: a value or a range cannot be used (`trainer.errors.ConfigError` for what the trainer refuses).
    """
    check_data(layers.run_config(), device=device)
    for choice in layers.settings[INIT_FROM].range.get("choices", ()) if layers.kind is PPO else ():
        check_data(layers.with_values({INIT_FROM: choice}, "the choices").run_config(), device=device)
    layers = _with_absolute_paths(layers)
    config = layers.run_config()
    space = make_space(layers)
    if name is None:
        name = file_name(config.subject)[:NAME_LENGTH]
    check_name(name, "--name")
    nested = config.to_dict()
    return SweepSpec(
        name=name,
        env=config.subject,
        method=settings.method,
        seed=settings.seed,
        space=space.to_dict(),
        config=nested,
        provenance=provenance.collect(nested),
    )


def _with_absolute_paths(layers: Layers) -> Layers:
    """Returns layers whose files are found from any folder: trials, and later commands, may run in another one.

    Raises:
        ConfigError: such a setting has a range.
    """
    if layers.kind is not LANGUAGE:
        return layers
    given = {name: layers.settings[name] for name in PATHS}
    for name, setting in given.items():
        if setting.range:
            why = ": scores of two texts cannot be compared" if name == LANGUAGE.subject else ""
            raise ConfigError(
                f"{setting.range_source}: {name} names files and cannot be swept{why}; give one value, and each other"
                " one a sweep of its own"
            )
        if setting.value not in ("", BUILT_IN):
            layers = layers.with_values({name: str(Path(setting.value).absolute())}, setting.source)
    return layers


def newer_text(sweep: SweepRecord) -> str:
    """Returns a line to print where the text of a language model's sweep was made after the sweep; else ""."""
    path = sweep.spec.config.get("data", {}).get("path", BUILT_IN)
    with contextlib.suppress(OSError):  # reading the text says what is wrong with it
        if path != BUILT_IN and (Path(path) / _DATA_FILE).stat().st_mtime > sweep.created_at.timestamp():
            return (
                f"the tokens in {path} are newer than this sweep: if their text has changed, scores before and after"
                " cannot be compared; give a new sweep with --name"
            )
    return ""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How to search and where to end. None: no limit, or none of it.

    Attributes:
        method: of the search (`protein.sweep.methods`).
        seed: the source of randomness.
        direction: whether a higher score is better, or a lower one.
        start: the initial config, tried first.
        budget_seconds: what all trials together may cost.
        max_trial_seconds: what one trial may cost.
        max_trials: how many trials there may be, failed ones included.
        max_memory_bytes: of one trial.
        min_free_disk_bytes: no trial starts while less is free; None: what the loop asks for.
        early_stopping: whether the engine may end trials whose curves are worse than those of similar ones.
        can_continue: whether finished trials may go on to more steps, where the sweep's trials can.
        require: limits on what trials measure beside the score; None: those that the stored sweep has.
        stop_when: no trial is started once this holds.
        until: no trial starts that is not expected to end by then.
        confirm_share: the share of the budget with which contenders are run again, after the search.
        warm_start: the sweeps of the store to learn from, in the form of `protein.api.plan.asked`.
        trackers: that the trials are also written to.
        on_trial: a line for the shell, or a function, called after each trial that has ended.
        on_finish: a line for the shell, called when the sweep has ended by itself.
        on_trouble: the same, when something is wrong.

    Raises:
        UsageError: a seed, a number of trials or a share that cannot be.
    """

    method: str = "protein"
    seed: int = 0
    direction: Direction = Direction.MAXIMIZE
    start: Params | None = None
    budget_seconds: float | None = None
    max_trial_seconds: float | None = None
    max_trials: int | None = None
    max_memory_bytes: int | None = None
    min_free_disk_bytes: int | None = None
    early_stopping: bool = True
    can_continue: bool = False
    require: tuple[Limit, ...] | None = None
    stop_when: StopWhen | Met | None = None
    until: datetime | None = None
    confirm_share: float = 0.0
    warm_start: str | list[str] | None = None
    trackers: tuple[str, ...] = ()
    on_trial: str | Callable[[TrialRecord], object] | None = None
    on_finish: str | None = None
    on_trouble: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "seed", validate.seed(self.seed))
        object.__setattr__(self, "max_trials", validate.most_trials(self.max_trials))
        if self.confirm_share and self.budget_seconds is None:
            raise UsageError("a share for confirmations is one of the budget, and no budget is given; give both")
        object.__setattr__(self, "start", validate.plain_params(self.start))
        if not (self.on_trial is None or isinstance(self.on_trial, str) or callable(self.on_trial)):
            raise UsageError(f"on_trial must be a function of a trial, got {validate.shown(self.on_trial)}")

    def check(self, space: Space) -> None:
        """Finds what does not fit the space to search.

        Raises:
            UsageError: it is no space, or has no cost parameter although trials are to be continued.
            SpaceError: `start` is not a point of it.
        """
        if not isinstance(space, Space):
            raise UsageError(f"space must be a Space, got {validate.shown(space)}; write Space([...])")
        if self.start is not None:
            space.validate(self.start)
        if self.can_continue and space.cost_parameter is None:
            raise UsageError("can_continue needs a cost_parameter in the space: the parameter that counts the steps")


def require_room_for_a_trial(budget_seconds: float | None, cap_seconds: float | None, budget: str, cap: str) -> None:
    """Raises `UsageError` where one trial may cost more than all; `budget` and `cap` say what was given."""
    if budget_seconds is not None and cap_seconds is not None and budget_seconds < cap_seconds:
        raise UsageError(f"{budget} is smaller than one trial may cost, {cap}; raise the budget or lower the cap")
