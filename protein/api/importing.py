"""Stores the runs of another tool as a sweep: it can be looked at, and other sweeps can start warm from it.

An imported sweep has the method "imported" and is never run here. Where it comes from is in its config, and in each
trial's origin. A trial's owner is the run's key at the source: what is imported again is only what is new.

Its space is the tool's own, a file's, or what the values of the runs show. Of values, the range is from the lowest to
the highest one. It is a log range where they are positive and spread over a factor of `LOG_SPREAD`, a logit range where
they crowd below 1 in the same way (as discounts do), and powers of two where all are. Texts and booleans are choices. A
parameter that never varies is a fixed value. Of a search that is defined while it runs, a parameter that some runs lack
is conditional where the values of one other parameter say exactly which runs lack it. Any other that more than a tenth
of the runs lack, or a text that is different nearly every time (a name, a path), is left out of the space. The trials
keep its values.
"""

import dataclasses
import importlib
import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from protein.api.definition import check_name
from protein.config import space_file
from protein.direction import stored_score
from protein.errors import SpaceError, UsageError
from protein.imports.runs import Imported, Run, Source, folders_below
from protein.names import NAME_LENGTH
from protein.ports import Store
from protein.space import Space, presence
from protein.space.constraints import Condition
from protein.space.parameters import Categorical, Float, Integer, Parameter, Scale, identity, parameter_name
from protein.spelling import nearest
from protein.sweep.provenance import collect, config_hash
from protein.types import (
    IMPORTED,
    Outcome,
    ParamValue,
    Provenance,
    Suggestion,
    SuggestionKind,
    SweepRecord,
    SweepSpec,
    TrialEnd,
)

TOOLS = ("optuna", "wandb", "mlflow", "pufferlib", "trackio", "ray", "syne-tune", "smac", "neps", "carbs")
LEASE_SECONDS = 600.0
_OWNER = "import:"
_CUT_SHORT = TrialEnd.INTERRUPTED.text  # the reason of a trial whose import was cut short, and of no other
LOG_SPREAD = 20.0  # the highest value is this many times the lowest
MIN_SHARE = 0.9  # of the runs have a parameter of the space; the engine leaves out the others
MAX_CHOICES = 64
MAX_DISTINCT_SHARE = 0.5  # more different texts for each run than this are names, and no choices
_MIN_POWERS = 3  # different powers of two that show a pow2 scale
_MAX_INTEGER = 10**12
_MAX_SIZE = 1e100  # of a number that may be searched; ranges of larger ones overflow


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """What an import did.

    Attributes:
        sweep: the sweep that holds the trials.
        created: whether it is new.
        added: trials that were added now.
        known: runs that it had already.
        unfinished: runs that still run at the source, and were left out.
        without_cost: runs whose cost is not known, left out.
        outside: trials added now that lie outside the sweep's space, so that the engine cannot learn from them.
        space: of the sweep.
        notes: what a new sweep's space lacks of what the runs show, a line each.
    """

    sweep: SweepRecord
    created: bool
    added: int
    known: int
    unfinished: int
    without_cost: int
    outside: int
    space: Space
    notes: tuple[str, ...] = ()


def read(tool: str, source: Source, *, rename: Mapping[str, str]) -> Imported:
    """Returns the runs of a source. `rename` has new names of parameters by their old ones.

    Raises:
        UsageError: there is no such tool or parameter, or the source cannot be read.
    """
    if tool not in TOOLS:
        raise UsageError(f"nothing can be imported from '{tool}'{nearest(tool, TOOLS)}")
    if source.params is not None and tool != "wandb":
        raise UsageError(f"--params is for wandb alone: {tool} tells what its parameters are")
    try:
        imported: Imported = dataclasses.replace(_reader(tool).read(source), tool=tool)
    except UsageError:
        raise
    except Exception as error:  # of whatever library has met what it does not know
        raise UsageError(
            f"{source.place} has another form than {tool} is known to write ({error!r:.80}): it is damaged, or of a"
            " version that is not known here"
        ) from error
    if not imported.runs:
        raise UsageError(f"{imported.where} holds no finished run; import it when one has ended")
    return _renamed(imported, rename)


def tool_of(place: str) -> str:
    """Returns the tool that a file, a folder or a URL holds the runs of.

    Raises:
        UsageError: it is of none, or of several.
    """
    path = Path(place.removeprefix("sqlite:///")).expanduser()
    if not path.exists():
        raise UsageError(
            f"'{place}' is neither a file nor a folder; of a server the tool has to be named, as in protein import"
            f" optuna URL; known are {', '.join(TOOLS)}"
        )
    found = [tool for tool in TOOLS if _reader(tool).is_one(path)]
    if not found and path.is_file():
        found = [tool for tool in TOOLS if _reader(tool).is_one(path.parent)]
    elif not found:
        found = [tool for tool in TOOLS if any(_reader(tool).is_one(one) for one in folders_below(path))]
    if len(found) != 1:
        fault = f"holds runs of {' and of '.join(found)}" if found else "holds runs of no tool that is known"
        raise UsageError(f"{place} {fault}; name the tool, as in protein import {(found or TOOLS)[0]} {place}")
    return found[0]


def _reader(tool: str) -> Any:
    """Returns the module that reads a tool's runs, with `read` and `is_one`."""
    return importlib.import_module(f"protein.imports.{tool.replace('-', '_')}")


def _renamed(imported: Imported, rename: Mapping[str, str]) -> Imported:
    if not rename:
        return imported
    known = {name for run in imported.runs for name in run.params}
    for old, new in rename.items():
        if old not in known:
            raise UsageError(f"--rename: no run has the parameter '{old}'{nearest(old, known)}")
        if new != parameter_name(new) or new in known - {old} or list(rename.values()).count(new) > 1:
            raise UsageError(f"--rename: '{new}' is no free name; give letters, digits, _ and dots, as in train.lr")

    def named(values: Mapping[str, Any]) -> dict[str, Any]:
        return {rename.get(name, name): value for name, value in values.items()}

    parameters: dict[str, Parameter] = {
        rename.get(name, name): dataclasses.replace(one, name=rename.get(name, name))
        for name, one in imported.parameters.items()
    }
    cost = imported.cost_parameter
    return dataclasses.replace(
        imported,
        runs=[dataclasses.replace(run, params=named(run.params)) for run in imported.runs],
        parameters=parameters,
        cost_parameter=None if cost is None else rename.get(cost, cost),
    )


def default_name(imported: Imported) -> str:
    """Returns a sweep's name that is like the experiment's."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", imported.experiment).strip("-._")[:NAME_LENGTH]
    return name or imported.tool


def store_runs(
    store: Store,
    imported: Imported,
    *,
    name: str,
    space_file: Path | None,
    cost_parameter: str | None,
    progress: Callable[[int, int], None],
) -> Done:
    """Stores runs as a sweep's trials: all of them in a new sweep, the new ones in the sweep that has the others.

    For the space and its cost parameter see `protein.api.importing`. `progress` is called with the number of runs that
    were stored and that there are.

    Raises:
        UsageError: the store has another sweep of this name; or the space cannot be made.
    """
    check_name(name, "--name")
    usable = [run for run in imported.runs if run.cost_seconds is not None or run.score is None]
    found = store.find_sweep(name)
    if not [run for run in usable if run.score is not None] and found is None and imported.runs:
        lacks = "a cost" if any(run.score is not None for run in imported.runs) else "a score"
        raise UsageError(f"no run of {imported.where} has {lacks}; name the metric with --score or --cost")
    created, notes = found is None, list[str]()
    if found is None:
        space, notes = infer(dataclasses.replace(imported, runs=usable), space_file, cost_parameter)
        found = store.create_sweep(_spec(imported, name, space), None)
    else:
        _check_same(found, imported)
        if space_file is not None or cost_parameter is not None:
            raise UsageError(
                f"sweep '{name}' has its space already, and no import can change that; drop --space and"
                " --cost-parameter, or choose another name"
            )
        space = Space.from_dict(found.spec.space)
    known, following = _known(store, found)
    new = [run for run in usable if run.key not in known]
    outside = 0
    for done, run in enumerate(new):
        _store_run(store, found, imported, run, number=following + done)
        outside += not space.is_valid({key: value for key, value in run.params.items() if key in space.names})
        progress(done + 1, len(new))
    return Done(
        sweep=found,
        created=created,
        added=len(new),
        known=len(usable) - len(new),
        unfinished=imported.num_unfinished,
        without_cost=len(imported.runs) - len(usable),
        outside=outside,
        space=space,
        notes=tuple(notes),
    )


def _spec(imported: Imported, name: str, space: Space) -> SweepSpec:
    config = {"own": {"start": None}, "imported": {**_identity(imported), "where": imported.where}}
    here = collect(config)
    return SweepSpec(
        name=name,
        env=imported.env,
        method=IMPORTED,
        seed=0,
        direction=imported.direction,
        space=space.to_dict(),
        config=config,
        provenance=Provenance(
            version=here.version,
            git_commit="",
            machine=f"imported from {imported.tool}: {imported.where}",
            config_hash=config_hash(config),
        ),
    )


def _identity(imported: Imported) -> dict[str, str]:
    return {"tool": imported.tool, "source": imported.identity, "score": imported.score}


def _check_same(found: SweepRecord, imported: Imported) -> None:
    """Raises `UsageError` unless a stored sweep was imported from the same source, in the same way."""
    name = found.spec.name
    if found.spec.method != IMPORTED:
        raise UsageError(f"sweep '{name}' was run here; choose another name for the imported one with --name")
    held: Mapping[str, Any] = found.spec.config.get("imported", {})
    for key, value in _identity(imported).items():
        if held.get(key) != value:
            raise UsageError(
                f"sweep '{name}' was imported with {key} {held.get(key)!r} (now {value!r}); choose another name with"
                " --name"
            )
    if found.spec.direction is not imported.direction:
        raise UsageError(f"sweep '{name}' was imported with --direction {found.spec.direction}; choose another name")


def _known(store: Store, sweep: SweepRecord) -> tuple[set[str], int]:
    """Returns the keys of the runs that a sweep holds, and the number of its next trial.

    A run whose import was cut short is ended, and does not count: it is imported again.
    """
    columns = store.columns(sweep.id, fields=("number", "owner", "state"))
    running = [owner for owner, state in zip(columns.owner, columns.state, strict=True) if not state.finished]
    if running:
        store.interrupt_orphans(sweep.id, running)
    columns = store.columns(sweep.id, fields=("number", "owner", "end", "reason"))
    known = {
        owner.removeprefix(_OWNER)
        for owner, end, reason in zip(columns.owner, columns.end, columns.reason, strict=True)
        if not (end is TrialEnd.INTERRUPTED and reason == _CUT_SHORT)
    }
    return known, len(columns)


def _store_run(store: Store, sweep: SweepRecord, imported: Imported, run: Run, *, number: int) -> None:
    direction, when = imported.direction, f", begun {run.began}" if run.began else ""
    here = sweep.spec.provenance
    trial = store.start_trial(
        sweep.id,
        Suggestion(
            params=run.params,
            kind=SuggestionKind.RANDOM,
            origin=f"imported from {imported.tool}: run {run.key}{when}",
        ),
        seed=0,
        owner=f"{_OWNER}{run.key}",
        lease_seconds=LEASE_SECONDS,
        suggest_seconds=0.0,
        provenance=dataclasses.replace(here, git_commit=run.git_commit, config_hash=config_hash(dict(run.params))),
        number=number,
    )
    if run.curve:
        points = [dataclasses.replace(point, score=stored_score(point.score, direction)) for point in run.curve]
        store.add_measurements(trial, points, LEASE_SECONDS)
    outcome = Outcome(
        end=run.end,
        score=stored_score(run.score, direction),
        cost_seconds=run.cost_seconds or 0.0,
        steps=run.steps,
        reason=f"{run.reason} at the source" if run.reason == _CUT_SHORT else run.reason,
        metrics=run.metrics,
    )
    store.finish_trial(trial, outcome)


def infer(imported: Imported, file: Path | None = None, cost_parameter: str | None = None) -> tuple[Space, list[str]]:
    """Returns the space of imported runs, and what it lacks of what they show, a line each.

    Args:
        imported: the runs, and the tool's own parameters where it has some.
        file: ranges, in any form of `--space` of a sweep; they count in place of everything else.
        cost_parameter: a parameter that makes runs expensive; None: the one that the file or the tool names.

    Raises:
        UsageError: the file cannot be used; nothing varies; there is no such cost parameter.
    """
    read = None if file is None else space_file.read(file)
    given = None if read is None else read.space
    notes = list(imported.notes if read is None else read.warnings)
    lacking: list[str] = []
    parameters, fixed = [], dict[str, ParamValue]()
    runs = [run for run in imported.runs if run.score is not None] or list(imported.runs)
    shown = _values(runs)
    rules = {} if given is not None else presence.rules([run.params for run in runs], shown.keys())
    rules |= {name: one.when for name, one in imported.parameters.items() if one.when is not None and name in shown}
    for name, values in shown.items():
        num_runs = len(values) if name in rules else len(runs)  # that could have it
        if given is not None:
            continue
        if len(values) == len(runs) and len(set(map(repr, values))) == 1 and name not in imported.parameters:
            fixed[name] = values[0]
            continue
        numbers = [value for value in values if type(value) in (int, float)]
        if len(values) - len(numbers) == values.count("None") and len(numbers) >= MIN_SHARE * num_runs:
            if len(numbers) < len(values):
                notes.append(f"{name} is None in {len(values) - len(numbers)} runs, which lie outside the space")
            values = numbers  # a number that a few runs do not have is no choice
        if len(values) < MIN_SHARE * num_runs:
            lacking.append(f"{name} ({len(runs) - len(values)} of {len(runs)})")
            continue
        own = imported.parameters.get(name)
        parameter = _widened(own, values)
        if own is not None and parameter is None:
            notes.append(f"{name}: the tool's own range does not hold the values of the runs; theirs is taken")
        elif own is not None and parameter != dataclasses.replace(own, default=None):
            notes.append(f"{name}: the tool's own range is widened to hold the values of all runs")
        parameter = parameter or from_values(name, values, num_runs)
        if parameter is None:
            distinct = len(set(map(repr, values)))
            why = (
                f"{distinct} different values are no choices"
                if distinct > 1
                else "it never varies, and some runs lack it"
            )
            notes.append(f"{name} is left out of the space: {why}")
        if parameter is not None:
            parameters.append(parameter)
    if lacking:
        notes.append(f"left out of the space, because runs lack them: {', '.join(lacking)}")
    if given is not None:
        parameters = [dataclasses.replace(parameter, default=None) for parameter in given.parameters]
    parameters, unfounded = _with_conditions(parameters, rules)
    notes += unfounded
    if not parameters:
        raise UsageError(
            f"no parameter varies over the {len(runs)} runs of {imported.where}, so they span no space; give the ranges"
            " with --space FILE"
        )
    cost = cost_parameter or (given and given.cost_parameter) or imported.cost_parameter
    names = {parameter.name: parameter for parameter in parameters}
    if cost is not None and (cost not in names or isinstance(names[cost], Categorical)):
        if cost_parameter is not None:
            raise UsageError(f"--cost-parameter '{cost}' is no numeric parameter of the space: {', '.join(names)}")
        cost = None
    fixed = {name: value for name, value in fixed.items() if name not in names}
    return Space(parameters, cost_parameter=cost, fixed=fixed), notes


def _with_conditions(parameters: list[Parameter], rules: Mapping[str, str]) -> tuple[list[Parameter], list[str]]:
    """Returns the parameters with their conditions, each behind the one that it depends on, and notes.

    Left out is one whose condition is on a parameter that is not in the space.
    """
    found = [parameter for parameter in parameters if parameter.name not in rules]
    waiting = [parameter for parameter in parameters if parameter.name in rules]
    while waiting:
        names = {parameter.name for parameter in found}
        ready = [parameter for parameter in waiting if Condition(rules[parameter.name], "when").names <= names]
        if not ready:
            break
        found += [dataclasses.replace(parameter, when=rules[parameter.name]) for parameter in ready]
        waiting = [parameter for parameter in waiting if parameter not in ready]
    without = {parameter.name: rules[parameter.name] for parameter in waiting}
    notes = [
        f"{name} is left out of the space: it exists when {rule}, which is not in it" for name, rule in without.items()
    ]
    conditional = [f"{parameter.name} when {parameter.when}" for parameter in found if parameter.when is not None]
    if conditional:
        notes.append(f"runs lack some parameters by these rules, which the space has: {'; '.join(conditional)}")
    return found, notes


def from_values(name: str, values: Sequence[ParamValue], num_runs: int) -> Parameter | None:
    """Returns the parameter that values of a run each show; None where they are no parameter of a search."""
    kinds = {type(value) for value in values}
    try:
        if kinds <= {int, float}:
            return _numeric(name, [float(value) for value in values], whole=kinds == {int})
        distinct = {identity(value): value for value in values}  # False and 0 are two choices
        choices = [distinct[key] for key in sorted(distinct, key=lambda key: (key[0].__name__, key[1]))]
        if len(choices) > MAX_CHOICES or (len(choices) > 4 and len(choices) > MAX_DISTINCT_SHARE * num_runs):
            return None
        return Categorical(name, tuple(choices))
    except (SpaceError, OverflowError):
        return None


def _numeric(name: str, values: Sequence[float], *, whole: bool) -> Parameter | None:
    low, high = min(values), max(values)
    if not low < high or max(abs(low), abs(high)) > _MAX_SIZE:
        return None
    distinct = set(values)
    scale: Scale = "linear"
    if low > 0 and len(distinct) >= _MIN_POWERS and all(math.frexp(value)[0] == 0.5 for value in distinct):
        scale = "pow2"
    elif low > 0 and high >= LOG_SPREAD * low:
        scale = "log"
    elif not whole and low >= 0.5 and high < 1.0 and (1.0 - low) >= LOG_SPREAD * (1.0 - high):
        scale = "logit"
    if whole and max(abs(low), abs(high)) <= _MAX_INTEGER:
        return Integer(name, int(low), int(high), scale)
    return Float(name, low, high, scale)


def _widened(parameter: Parameter | None, values: Sequence[ParamValue]) -> Parameter | None:
    """Returns the tool's own parameter, with a range that holds all values; None where it cannot hold them.

    Runs that the tool did not suggest, such as the user's first one, may lie outside.
    """
    if parameter is None or isinstance(parameter, Categorical):
        fits = parameter is not None and all(any(_same(value, one) for one in parameter.choices) for value in values)
        return parameter if fits else None
    if isinstance(parameter, Integer) and not all(isinstance(value, int) for value in values):
        return None
    if not all(isinstance(value, int | float) for value in values):
        return None
    numbers: list[Any] = [value if isinstance(parameter, Integer) else float(value) for value in values]
    bounds: dict[str, Any] = {"low": min(parameter.low, *numbers), "high": max(parameter.high, *numbers)}
    try:
        wider = dataclasses.replace(parameter, default=None, **bounds)
        for value in numbers:
            wider.check(value)
    except SpaceError:
        return None
    return wider


def _same(one: ParamValue, other: ParamValue) -> bool:
    return identity(one) == identity(other)


def _values(runs: Sequence[Run]) -> dict[str, list[ParamValue]]:
    """Returns the values of every parameter that some run has, in the order of the first runs."""
    found: dict[str, list[ParamValue]] = {}
    for run in runs:
        for name, value in run.params.items():
            found.setdefault(name, []).append(value)
    mixed = {name: Counter(type(value) for value in values) for name, values in found.items()}
    for name, kinds in mixed.items():
        if set(kinds) == {int, float}:
            found[name] = [float(value) for value in found[name]]
    return found
