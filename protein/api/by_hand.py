"""Trials by hand: configs that a person queues in a stored sweep, whether a process runs it now or not.

A queued trial is a trial like any other, which waits for its first start (`TrialRecord.is_queued`). Whoever runs the
sweep takes it up at the next free worker, before it asks the designer. Values that are not given are those of the
initial config.
"""

import csv
import json
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from protein.api.recommended import initial_params, stored_space
from protein.config.layers import flatten
from protein.engine.candidates import middle
from protein.errors import SpaceError, TrialLost, UsageError
from protein.ports import Store
from protein.space import Space
from protein.space.parameters import Categorical, Float, Parameter
from protein.spelling import nearest
from protein.sweep import provenance
from protein.sweep.limits import trial_seed
from protein.types import (
    CUT_SHORT,
    IMPORTED,
    Params,
    Suggestion,
    SuggestionKind,
    SweepRecord,
    SweepSpec,
    TrialRecord,
    runs_trainer,
)
from protein.validate import listed, plain_params, shown

MAX_QUEUED = 1000  # at once
_MAX_ATTEMPTS = 20  # to be the next one, while a running sweep starts trials of its own
_PARAMS = "params"  # what holds the parameters in a trial that was written as JSON, and begins their columns


def queue(
    store: Store,
    sweep: SweepRecord,
    points: Sequence[Params],
    *,
    skip_if_exists: bool = False,
    origin: str = "by hand",
) -> list[int]:
    """Queues configs in a sweep, all of them or none, and returns the numbers of the trials.

    Args:
        store: holds the sweep.
        sweep: the sweep.
        points: values by name, at least one point; see `completed`.
        skip_if_exists: leave out those that a trial has already, or that are given twice, rather than refuse them.
        origin: of the trials, in words.

    Raises:
        UsageError: the sweep was imported; a value that is fixed is given another one; or a trial has this config.
        SpaceError: an unknown name, a value out of its range, or a constraint that is broken.
    """
    if sweep.spec.method == IMPORTED:
        raise UsageError(f"sweep '{sweep.spec.name}' was imported, and is never run here; queue trials in another one")
    if not 1 <= len(points) <= MAX_QUEUED:
        raise UsageError(f"1 to {MAX_QUEUED} configs are queued at once, got {len(points)}")
    space = stored_space(sweep.spec)
    asked = _all_completed(sweep.spec, points)
    here = provenance.collect(sweep.spec.config)
    for _ in range(_MAX_ATTEMPTS):
        trials = store.trials(sweep.id, curves=False)
        asked = _new_ones(space, asked, trials, skip=skip_if_exists)
        first = max((trial.number for trial in trials), default=-1) + 1
        queued = [
            (
                Suggestion(params=params, kind=SuggestionKind.BY_HAND, origin=origin),
                trial_seed(sweep.spec.seed, first + i)[1],
            )
            for i, params in enumerate(asked)
        ]
        try:
            store.queue_trials(sweep.id, queued, number=first, provenance=here)
        except TrialLost:  # the sweep has started one just now, perhaps with such a config
            continue
        return [first + i for i in range(len(queued))]
    raise UsageError(f"sweep '{sweep.spec.name}' starts trials faster than one can be queued; pause it, and try again")


def completed(spec: SweepSpec, given: Params) -> dict[str, Any]:
    """Returns the config of a trial by hand: what is given, and else what the initial config has.

    Raises:
        UsageError: a value that the sweep does not search is given another one.
        SpaceError: it is no point of the sweep's space.
    """
    space, given = stored_space(spec), dict(_mapping(given))
    fixed = _fixed(spec, space)
    for name in [name for name in given if name not in space.names]:
        if name not in fixed:
            raise SpaceError(f"unknown parameter '{name}'{nearest(str(name), [*space.names, *space.fixed])}")
        if given.pop(name) != fixed[name]:
            raise UsageError(
                f"'{name}' is not searched in sweep '{spec.name}', where it is {fixed[name]}; leave it out"
            )
    return whole(space, initial_params(spec), given)


def whole(space: Space, start: Params | None, given: Params) -> dict[str, Any]:
    """Returns a point of a space: what is given, and else what the initial config has; None: the middle.

    Raises:
        SpaceError: it is no point of the space.
    """
    for name, value in given.items():
        space.parameter(name).check(value)
    base = space.from_unit(middle(space)) if start is None else space.snap(start)
    every = {**base, **given}
    for parameter in space.parameters:
        every.setdefault(parameter.name, _usual(parameter))
    active = space.active(space.to_unit_many([every]))[0]
    params = {name: every[name] for name, exists in zip(space.names, active, strict=True) if exists or name in given}
    space.validate(params)
    return params


def read_file(path: Path, spec: SweepSpec) -> list[dict[str, Any]]:
    """Returns the configs in a file: JSON, JSON Lines, CSV with a header, or TOML. Its ending says which.

    A trial that was written as JSON has them under "params", and a table in columns `params.NAME`. Several configs in
    TOML are tables `[[trials]]`.

    Raises:
        UsageError: it cannot be read, or holds no config.
    """
    kind = path.suffix.lower()
    readers: Mapping[str, Callable[[str], Any]] = {
        ".json": json.loads,
        ".jsonl": _json_lines,
        ".csv": lambda text: _rows(text, spec),
        ".toml": tomllib.loads,
    }
    if kind not in readers:
        raise UsageError(f"{path}: '{kind}' is no known kind of file; give one of {', '.join(readers)}")
    try:
        found = readers[kind](path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}; check the path") from error
    except (ValueError, RecursionError, csv.Error) as error:
        raise UsageError(f"{path} cannot be read as {kind[1:]}: {' '.join(str(error).split()):.200}") from error
    if isinstance(found, Mapping):
        found = found["trials"] if isinstance(found.get("trials"), list) else [found]
    if not isinstance(found, list) or not found:
        raise UsageError(f'{path} holds no config; give objects of names and values, as in {{"lr": 0.001}}')
    names, configs = stored_space(spec).names, [_mapping(one) for one in found]
    held = [one[_PARAMS] if isinstance(one.get(_PARAMS), Mapping) else one for one in configs]
    return [_flat(one, names) for one in held]


def value_of(spec: SweepSpec, name: str, text: str) -> tuple[str, Any]:
    """Returns a parameter's own name and its value, where a person has written `name` and `text`.

    Dashes in the name may stand for underscores. A choice is found by its text, or by the JSON that it is.

    Raises:
        SpaceError: there is no such parameter, or the text is no value of it.
    """
    space = stored_space(spec)
    fixed = _fixed(spec, space)
    names = [*space.names, *fixed]
    own = next((one for one in names if one == name or one.replace("_", "-") == name.replace("_", "-")), None)
    if own is None:
        raise SpaceError(f"unknown parameter '{name}'{nearest(name, [*space.names, *space.fixed])}")
    if own in fixed:
        return own, _choice([fixed[own]], text)
    parameter = space.parameter(own)
    if isinstance(parameter, Categorical):
        return own, _choice(parameter.choices, text)
    with_fraction = isinstance(parameter, Float)
    try:
        number = float(text)
        return own, number if with_fraction or not number.is_integer() else int(number)
    except (ValueError, OverflowError):
        return own, text  # its range says what is wrong


def queued_note(sweep: SweepRecord, numbers: Sequence[int], *, runs: bool) -> str:
    """Returns what a person should know who has queued trials."""
    them = f"trial {numbers[0]} is" if len(numbers) == 1 else f"trials {numbers[0]} to {numbers[-1]} are"
    it = "it" if len(numbers) == 1 else "they"
    then = f"{it} {'starts' if it == 'it' else 'start'} at the next free worker"
    if not runs:
        then = f"no process runs it now: {it} {'starts' if it == 'it' else 'start'} when its command is run again"
    return f"{them} queued in sweep '{sweep.spec.name}'; {then}"


def _fixed(spec: SweepSpec, space: Space) -> dict[str, Any]:
    """Returns the values that the sweep does not search, by name."""
    values = flatten(spec.config) if runs_trainer(spec.config) else {}
    return {name: value for name, value in {**values, **space.fixed}.items() if name not in space.names}


def _usual(parameter: Parameter) -> Any:
    """Returns a parameter's default, or the middle of its range."""
    if parameter.default is not None:
        return parameter.default
    return parameter.raw(float(parameter.decode(np.array([0.5]))[0]))


def _new_ones(
    space: Space, asked: list[dict[str, Any]], trials: Sequence[TrialRecord], *, skip: bool
) -> list[dict[str, Any]]:
    """Returns the configs that no trial has, each once. Unless they are to be skipped, the others are refused.

    A trial that told nothing of its config does not count: it was interrupted, excluded, or cut short by a limit.
    """
    found = {
        space.key(one.params): one
        for one in trials
        if not one.excluded and one.end not in CUT_SHORT and (one.end is None or one.end.teaches)
    }
    new: dict[tuple[Any, ...], dict[str, Any]] = {}
    for i, params in enumerate(asked):
        key = space.key(params)
        if (one := found.get(key)) is not None and not skip:
            how = "queued" if one.is_queued else str(one.state)
            raise UsageError(
                f"{_which(i, len(asked))}trial {one.number} has this config already ({how}); change a value, or exclude"
                " that trial by protein note"
            )
        if key in new and not skip:
            raise UsageError(f"{_which(i, len(asked))}it is given twice; give each config once")
        if one is None:
            new.setdefault(key, params)
    return list(new.values())


def _which(position: int, count: int) -> str:
    return "" if count == 1 else f"config {position + 1} of {count}: "


def _all_completed(spec: SweepSpec, points: Sequence[Params]) -> list[dict[str, Any]]:
    """Returns each point `completed`. An error says which of them is wrong."""
    found = []
    for position, one in enumerate(points):
        try:
            found.append(completed(spec, one))
        except (SpaceError, UsageError) as error:
            raise type(error)(f"{_which(position, len(points))}{error}") from error
    return found


def _mapping(given: Any) -> Mapping[str, Any]:
    found = plain_params(given)
    if not isinstance(found, Mapping) or not all(isinstance(name, str) for name in found):
        raise UsageError(f"a config maps names to values, as in {{'lr': 0.001}}, got {shown(given)}")
    return found


def points_of(given: Any) -> list[Mapping[str, Any]]:
    """Returns one config or several as a list. Raises `UsageError` for anything else."""
    if isinstance(given, Mapping):
        return [_mapping(given)]
    return [_mapping(one) for one in listed(given, "give a config, or a list of them, as in {'lr': 0.001}")]


def _flat(values: Mapping[str, Any], names: Sequence[str], prefix: str = "") -> dict[str, Any]:
    """Returns nested tables by dotted names; a table that is a choice of a parameter stays one."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        own = f"{prefix}{name}"
        is_table = isinstance(value, Mapping) and own not in names
        found |= _flat(value, names, f"{own}.") if is_table else {own: value}
    return found


def _json_lines(text: str) -> list[Any]:
    found = []
    for number, line in enumerate(text.split("\n"), 1):  # within a text other ends of a line may stand
        try:
            found += [json.loads(line)] if line.strip() else []
        except json.JSONDecodeError as error:
            raise ValueError(f"line {number}, column {error.colno}: {error.msg}") from error
    return found


def _rows(text: str, spec: SweepSpec) -> list[dict[str, Any]]:
    """Returns the rows of a CSV file as configs; empty fields are not given."""
    reader = csv.DictReader(text.splitlines(), strict=True)
    names = list(reader.fieldnames or [])
    own = [name for name in names if name.startswith(f"{_PARAMS}.")] or names
    rows = []
    for row in reader:
        if None in row or None in row.values():
            raise ValueError(f"line {reader.line_num} has another number of fields than the header")
        given = {name.removeprefix(f"{_PARAMS}."): row[name].strip() for name in own if row[name].strip()}
        rows.append(dict(value_of(spec, name, value) for name, value in given.items()))
    return rows


def _choice(choices: Sequence[Any], text: str) -> Any:
    """Returns the choice that a text means, or the text."""
    for one in choices:
        if one == text or (not isinstance(one, str) and str(one) == text):
            return one
    try:
        read = json.loads(text)
    except ValueError:
        return text
    return next((one for one in choices if type(one) is type(read) and one == read), read)
