"""A sweep over a Hydra program: what is asked for in Hydra's words, as `protein sweep --command` takes it.

A trial is a process of its own: the program, with the same flags, this sweeper, and the trial's values in place of the
ranges (`protein.hydra.trial`). So nothing waits for a batch, and whatever a sweep over a command can do works here. The
folder of the jobs is kept with the sweep: a resumed one goes on in the folder in which it began.
"""

import contextlib
import dataclasses
import enum
import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from hydra._internal.utils import get_args
from hydra.errors import HydraException
from hydra.types import HydraContext
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from protein import cli
from protein.api import stores
from protein.api.answers import at_the_end
from protein.api.plan import Plan
from protein.cli.arguments import SweepArguments
from protein.cli.parse import Command, parse
from protein.cli.sweep import carry_out, make_plan
from protein.config import space_toml
from protein.config.space_toml import SpaceFile
from protein.direction import shown_trial
from protein.errors import ProteinError, SpaceError, StoreMissing, UsageError, in_words
from protein.hydra.ranges import Asked, as_it_is, flat, read, word
from protein.hydra.trial import OWN_LAUNCHERS, given_overrides, in_one_line
from protein.names import NAME_LENGTH
from protein.run.command import SECTION
from protein.space import Space
from protein.view import tables

_PREFIX = "hydra.sweeper."
_FOLDER = "hydra.sweep.dir"  # as the program's config has it, in which it may be a time stamp
_JOBS = "folder of jobs"  # where it was when the sweep began
_OF_SPACE = ("params", "when", "constraints", "cost_parameter", "start")
_SWITCHES = ("clock_counts", "accept_changes", "verbose")
_REPEATED = ("require", "tracker")
_MULTIRUN, _RESULTS = "multirun.yaml", "optimization_results.yaml"  # which Hydra's sweepers write into their folder
# Of Hydra's own overrides, those that the sweep gives to its trials itself, and those that only a multirun reads.
_SET = re.compile(r"[+~]*hydra(/sweeper|\.sweeper|\.mode|\.sweep\.dir)\b")
_OF_MULTIRUN = re.compile(r"[+~]*hydra(/launcher|\.launcher|\.sweep)\b")
_USED = re.compile(r"\$\{hydra[.:]sweeper\.(\w+)")  # options to which a config refers
_ABSENT = object()

Validate = Callable[[Sequence[Sequence[str]]], None]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class HydraCommand(Command):
    """`protein sweep`, as it is called by a Hydra program."""

    def again(self, max_cost: str | None = None) -> str:
        budget = f"{_PREFIX}max_cost="
        if max_cost is None:
            return shlex.join(sys.orig_argv)
        return shlex.join([*(one for one in sys.orig_argv if not one.startswith(budget)), f"{budget}{max_cost}"])


def run(context: HydraContext, config: DictConfig, arguments: list[str], validate: Validate) -> None:
    """Creates the sweep or resumes it, and exits with the code of `protein sweep` where that is not 0.

    `validate` raises Hydra's own error for overrides that do not fit the program's config.
    """
    cli.prepare()
    with cli.lasting_streams():
        code = cli.answered(lambda: _run(context, config, arguments, validate), _in_words_of_hydra)
    if code:
        sys.exit(code)


def _run(context: HydraContext, config: DictConfig, arguments: list[str], validate: Validate) -> int:
    options = OmegaConf.to_container(config.hydra.sweeper, resolve=True)
    assert isinstance(options, dict)
    given = {str(name): value for name, value in options.items() if name != "_target_"}
    for name in ("params", "when", "start"):
        if not isinstance(given[name], dict | None):
            raise UsageError(f"{_PREFIX}{name} must map names to values, got {given[name]!r:.80}")
        given[name] = given[name] or {}
    console = tables.make_console()
    launcher = str(OmegaConf.select(config, "hydra.launcher._target_"))
    if launcher not in OWN_LAUNCHERS:
        console.print(
            f"{launcher.rpartition('.')[2]} is called once for each trial; a job on another machine says its score"
            f" only at its end, so that none is stopped early: {_PREFIX}backend=slurm or ray can do that",
            soft_wrap=True,
        )
    elif given["workers"] is None and "joblib" in launcher:
        given["workers"] = _workers(config.hydra.launcher.get("n_jobs"))
    if given["name"] is None:
        given["name"] = re.sub(r"[^A-Za-z0-9._-]+", "-", config.hydra.job.name).strip("-.")[:NAME_LENGTH] or "sweep"
    asked = read(given["params"], arguments, context.config_loader)
    space = _space(asked, given, config)
    text, in_trial = _command_line(asked, given_overrides(config, "hydra"))
    parsed = parse(["sweep", f"--command={text}", *_flags(given)])
    fields = {field.name: getattr(parsed, field.name) for field in dataclasses.fields(Command)}
    command = HydraCommand(**{**fields, "space": space})
    plan = make_plan(command, console)
    mark = f"# sweep {plan.spec.name} of {stores.shown(plan.url)}"
    own, is_new = _own(plan, config, has_start=bool(given["start"]))
    folder = Path(own[_JOBS])
    if is_new:
        _require_free(folder, config, mark, plan.spec.name)
    words = ["hydra/sweeper=protein_trial", "hydra.mode=MULTIRUN", f"{_FOLDER}={word(str(folder))}"]
    used = options.keys() & set(_USED.findall(OmegaConf.to_yaml(config)))  # else a trial has none of the options
    words += [f"++{_PREFIX}{option}={word(options[option])}" for option in sorted(map(str, used))]
    how = {**plan.spec.config[SECTION], "in_trial": shlex.join(map(as_it_is, [*in_trial, *words]))}
    spec = dataclasses.replace(plan.spec, config={**plan.spec.config, "own": own, SECTION: how})
    _check(asked, space.space, own["start"], context, validate)
    if given["direction"] is None:
        console.print(f"the highest score is the best; {_PREFIX}direction=minimize is for a loss", soft_wrap=True)
    folder.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError), (folder / _MULTIRUN).open("x", encoding="utf-8") as file:
        file.write(f"{mark}\n{OmegaConf.to_yaml(config)}")
    if is_new:  # another sweep may have begun there in the meantime
        _require_free(folder, config, mark, plan.spec.name)
    code = carry_out(command, dataclasses.replace(plan, spec=spec), console)
    with contextlib.suppress(ProteinError), stores.opened(plan.url) as store:  # no trial has a score, as yet
        sweep = stores.find(store, spec.name)
        best = shown_trial(at_the_end(sweep, store.trials(sweep.id), plan.url).best.trial, spec.direction)
        found = {"name": "protein", "best_params": dict(best.params), "best_value": best.score}
        (folder / _RESULTS).write_text(OmegaConf.to_yaml(found))
    return code


def _in_words_of_hydra(line: str) -> str:
    """Returns a message with the flags of `protein sweep` as options of the sweeper."""
    names = {field.name for field in dataclasses.fields(SweepArguments)} - {"command", "space", "params"}

    def option(found: re.Match[str]) -> str:
        name = found[1].replace("-", "_")
        return f"{_PREFIX}{name}" if name in names else found[0]

    return re.sub(r"--([a-z]+(?:-[a-z]+)*)", option, line)


def _workers(num_jobs: Any) -> int:
    """Returns how many jobs joblib would run at once."""
    cores = os.cpu_count() or 1
    return 1 if not num_jobs else num_jobs if num_jobs > 0 else max(1, cores + 1 + num_jobs)


def _flags(given: dict[str, Any]) -> list[str]:
    """Returns the options of the sweeper as flags. Raises `UsageError` for several directions."""
    direction = given["direction"]
    if isinstance(direction, list):
        if len(direction) != 1:
            raise UsageError(
                f"--direction {direction}: one score decides; say of the others what they must keep, as in"
                f" --require 'latency <= 20', and give one direction"
            )
        given = {**given, "direction": direction[0]}
    flags = []
    for name, value in given.items():
        flag = f"--{name.replace('_', '-')}"
        if value is None or name in _OF_SPACE or (name in _SWITCHES and not value):
            continue
        if name in _SWITCHES:
            flags.append(flag)
        elif isinstance(value, list) and name in _REPEATED:
            flags += [f"{flag}={one}" for one in value]
        elif isinstance(value, list):
            flags.append(f"{flag}={','.join('' if one is None else str(one) for one in value)}")
        else:
            flags.append(f"{flag}={json.dumps(value) if isinstance(value, dict) else value}")
    return flags


def _space(asked: Asked, given: dict[str, Any], config: DictConfig) -> SpaceFile:
    """Returns what is searched. It begins with the program's own values, unless others are given."""
    if not asked.tables:
        raise UsageError(
            "there is nothing to search: give a range, as in lr='interval(1e-4, 1e-1)' or model=small,large"
        )
    when, first = (flat(given[what]) for what in ("when", "start"))
    for what, names in (("when", when), ("start", first)):
        for name in names:
            if name not in asked.tables:
                raise UsageError(f"{_PREFIX}{what}: {name} is not searched; searched are {', '.join(asked.tables)}")
    conditions = {name: {"when": condition} for name, condition in when.items()}
    searched = {name: {**table, **conditions.get(name, {})} for name, table in asked.tables.items()}
    beside = {"constraints": given["constraints"] or [], "cost_parameter": given["cost_parameter"]}
    try:
        file = space_toml.of_data({"space": searched, **beside}, "hydra.sweeper")
        start = {name: word(value) for name, value in first.items()}
        for name, value in start.items():
            file.space.parameter(name).check(value)
    except SpaceError as error:
        raise UsageError(f"hydra.sweeper: {error}") from error
    own = {name: value for name, key in asked.keys.items() if (value := _value(config, key)) is not None}
    start = {**own, **start}
    return dataclasses.replace(file, start=file.space.snap({**file.space.default(), **start}) if start else None)


def _value(config: DictConfig, key: str) -> Any:
    """Returns the value that the program's config has without the sweep, as a choice; None: it has none."""
    key = key.lstrip("+")
    if key in (groups := config.hydra.runtime.choices):
        return word(groups[key])
    try:
        value = OmegaConf.select(config, key, default=_ABSENT)
    except OmegaConfBaseException:
        return None
    if OmegaConf.is_config(value):
        value = OmegaConf.to_container(value, enum_to_str=True)
    elif isinstance(value, enum.Enum | Path):  # as one writes it on a command line
        value = value.name if isinstance(value, enum.Enum) else str(value)
    return word(value) if isinstance(value, bool | int | float | str | list | dict | None) else None


def _command_line(asked: Asked, overrides: list[str]) -> tuple[str, list[str]]:
    """Returns the command line of one run, with placeholders, and what its trials get beside it."""
    words, flags = sys.orig_argv, sys.argv[1:]
    count = len(words) - len(flags)
    program = words[:count] if words[count:] == flags else [sys.executable, sys.argv[0]]
    if shutil.which(program[0]) is None:
        program = [sys.executable, *program[1:]]
    arguments = get_args()
    for name in ("config_path", "config_name", "config_dir"):
        if (value := getattr(arguments, name)) is not None:
            program = [*program, f"--{name.replace('_', '-')}", value]
    kept = [override for override in overrides if _SET.match(override) is None]
    in_trial = [override for override in kept if _OF_MULTIRUN.match(override)]
    of_run = [override for override in kept if override not in in_trial]
    return " ".join([shlex.join(map(as_it_is, [*program, *of_run])), *asked.words()]), in_trial


def _own(plan: Plan, config: DictConfig, *, has_start: bool) -> tuple[dict[str, Any], bool]:
    """Returns what defines the sweep beside its space, which is the initial config and where its jobs are.

    A stored sweep keeps both, as a time stamp and the program's own values are others by now. Also returns whether it
    is a new one.
    """
    stored: dict[str, Any] = {}
    with contextlib.suppress(StoreMissing), stores.opened(plan.url) as store:
        if (found := store.find_sweep(plan.spec.name)) is not None:
            stored = found.spec.config.get("own", {})
    raw = OmegaConf.to_container(config.hydra.sweep, resolve=False)
    assert isinstance(raw, dict)
    own = {**plan.spec.config["own"], _FOLDER: str(raw["dir"])}
    before, now = stored.get("start"), own["start"]
    if before and now and not has_start and before.keys() == now.keys():
        own["start"] = before
    given = os.path.abspath(str(config.hydra.sweep.dir))  # noqa: PTH100
    return {**own, _JOBS: stored.get(_JOBS, given)}, _JOBS not in stored


def _require_free(folder: Path, config: DictConfig, mark: str, name: str) -> None:
    """Raises `UsageError` where a folder of jobs is another sweep's."""
    used = [one for one in (_MULTIRUN, _RESULTS, "0") if (folder / one).exists()]
    file, given = folder / _MULTIRUN, config.hydra.sweep.dir
    if used and not (file.is_file() and file.read_text(errors="replace").startswith(f"{mark}\n")):
        raise UsageError(
            f"{_FOLDER}={given} has the jobs of another sweep ({used[0]}); give this one a folder of its own, as in"
            f" {_FOLDER}={given}/{name}, or the {_PREFIX}name of that sweep"
        )


def _check(asked: Asked, space: Space, start: dict[str, Any] | None, context: HydraContext, validate: Validate) -> None:
    """Raises `UsageError` where a config of the sweep cannot be composed: a name or a config that is not there."""
    first = space.default() if start is None else start
    configs = {"": dict(first)}
    for parameter in space.parameters:
        key = asked.keys[parameter.name]
        group = key.lstrip("+").partition("@")[0]
        if "choices" in asked.tables[parameter.name] and context.config_loader.get_group_options(group):
            choices = asked.tables[parameter.name]["choices"]
            configs |= {f"{key}={one}: ": space.snap({**first, parameter.name: one}) for one in choices}
    for what, params in configs.items():
        try:
            validate([asked.overrides(params)])
        except (HydraException, OmegaConfBaseException) as error:
            raise UsageError(f"{what}{in_one_line(error)}") from error
        except Exception as error:  # Hydra lets out those of others, too, such as a resolver's
            raise UsageError(f"{what}{in_words(error)}") from error
