"""A state of CARBS: a file carbs_Nobs.pt, the folder that has them, or a file with the text of its `serialize()`.

The score is the output, its direction the state's. An output or a cost has no unit: costs are taken as seconds. CARBS
keeps a run as a point of 32-bit numbers around its search centre; the values here are computed back from that.

The state is a pickle, which is read as data here: a name in it stays a name, and an object is its name with what the
file says of it. Nothing is imported or called, so that a stranger's file can do nothing. What it takes of memory is in
proportion to the file.

Source: carbs/carbs.py and carbs/utils.py of imbue-ai/carbs; torch/serialization.py for the file; Lib/pickletools.py.
"""

import array
import base64
import contextlib
import dataclasses
import io
import math
import pickletools
import re
import sys
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from protein.errors import SpaceError, UsageError
from protein.files import regular
from protein.imports.runs import Imported, Run, Source, experiment_of, parameters, reading
from protein.space.parameters import Float, Integer, Parameter, Scale, free_name, parameter_name
from protein.types import Direction, TrialEnd

WHAT = "a folder of CARBS, which has files as carbs_12obs.pt"
SCORE, COST = "output", "cost"
_STATES = "carbs_*obs.pt"
_ZIP, _ZIP_IN_BASE64 = b"PK\x03\x04", b"UEsDB"  # how a state begins, and its text
_PACKAGES = {"carbs", "torch", "collections", "numpy", "_codecs"}  # whose names a state has
_SCALES: Mapping[str, Scale] = {"LinearSpace": "linear", "LogSpace": "log", "LogitSpace": "logit"}
_CODES: Mapping[str, Literal["f", "d"]] = {"FloatStorage": "f", "DoubleStorage": "d"}


def is_one(place: Path) -> bool:
    """Whether a folder has states, or a file is one."""
    if place.is_dir():
        return any(place.glob(_STATES))
    try:
        return place.is_file() and b"carbs.utils" in _State(place).pickled
    except UsageError:
        return False


def read(source: Source) -> Imported:
    """Returns the observations of a state: of a folder's, the one that has most."""
    path = Path(source.place).expanduser()
    if not path.is_file():
        path = max(experiment_of(source, is_one, WHAT).glob(_STATES), key=_count)
    source.score_of([SCORE])
    source.require_cost([COST])
    state = _State(path)
    held = state.held()
    spaces: dict[str, _Object] = {}
    for one in held["params"]:
        spaces[free_name(parameter_name(_text(one.held["name"])), spaces)] = one.held["space"]
    runs = [
        _run(f"{kind} {number}", one.held, state.numbers(one.held["real_number_input"], len(spaces)), spaces, source)
        for kind, key in (("success", "success_observations"), ("failure", "failure_observations"))
        for number, one in enumerate(held[key], 1)
    ]
    config = held["config"].held
    ranges = {name: one for name, space in spaces.items() if (one := _range(name, space)) is not None}
    notes = [
        "the costs are taken as seconds; the search centres and the spaces' scales are not taken over, because a space"
        " here has ranges alone",
    ]
    if without := [f"{name} ({space.name})" for name, space in spaces.items() if name not in ranges]:
        notes.append(f"{', '.join(without)}: without bounds in CARBS; the range and its scale are those of the values")
    if held["failure_observations"]:
        notes.append("CARBS does not say why a run has failed, nor when; the failures stand behind the others")
    is_checkpoint = path.match(_STATES)
    name = _text(
        config["wandb_params"].held["run_name"] or (path.resolve().parent.name if is_checkpoint else path.stem)
    )
    return Imported(
        where=str(path),
        identity=str(path.resolve().parent if is_checkpoint else path.resolve()),
        experiment=name,
        score=SCORE,
        direction=source.direction
        or (Direction.MINIMIZE if config["better_direction_sign"] < 0 else Direction.MAXIMIZE),
        runs=runs,
        num_unfinished=len(held["outstanding_suggestions"]),
        parameters=ranges,
        notes=notes,
    )


def _count(path: Path) -> int:
    return int("".join(re.findall(r"\d", path.name)) or 0)


def _run(
    key: str, observed: Mapping[str, Any], point: list[float], spaces: Mapping[str, "_Object"], source: Source
) -> Run:
    failed = key.startswith("failure") and math.isfinite(observed["output"])
    return Run(
        key=key,
        params=parameters({name: _value(space, at) for (name, space), at in zip(spaces.items(), point, strict=True)}),
        end=TrialEnd.FAILED if failed else TrialEnd.COMPLETE,
        score=None if failed else float(observed["output"]),
        cost_seconds=source.seconds(observed["cost"], observed),
        reason="the program reported a failure" if failed else "",
    )


def _value(space: "_Object", at: float) -> float:
    """Returns the value of a parameter that a coordinate of CARBS's stands for."""
    held, at = space.held, at * space.held["scale"]
    if space.name == "LogitSpace":
        return 1 / (10**-at + 1)
    value = float(held["base"]) ** at if space.name == "LogSpace" else at
    return round(value / held["rounding_factor"]) * held["rounding_factor"] if held["is_integer"] else value


def _range(name: str, space: "_Object") -> Parameter | None:
    """Returns the range of a space; None for one without bounds, or with some that no range here has."""
    low, high, scale = space.held["min"], space.held["max"], _SCALES[space.name]
    with contextlib.suppress(SpaceError, TypeError, ValueError, OverflowError):
        if space.held["is_integer"] and scale != "logit":
            low, high, step = math.ceil(low), math.floor(high), space.held["rounding_factor"]
            return Integer(name, low, high, scale, step=step if step > 1 and low % step == 0 else None)
        return Float(name, float(low), float(high), scale)
    return None


@dataclasses.dataclass(slots=True)
class _Object:
    """What a pickle says of an object: the name of its class or function, what that is called with, what it holds."""

    name: str
    given: tuple[Any, ...] = ()
    held: Mapping[str, Any] = dataclasses.field(default_factory=dict)


class _State:
    """A file as `torch.save` writes it: a ZIP archive that is not compressed, or that as text."""

    def __init__(self, path: Path) -> None:
        """Raises `UsageError` unless `path` is such a file."""
        self._path = path
        self._read: dict[str, array.array[float]] = {}
        with reading(f"{path} cannot be read as a state of CARBS"):
            with regular(path).open("rb") as file:
                start = file.read(len(_ZIP_IN_BASE64))
            if not start.startswith((_ZIP, _ZIP_IN_BASE64)):
                raise UsageError(f"{path} is no state of CARBS, which is a ZIP file; give another")
            is_text = start == _ZIP_IN_BASE64
            unpacked = base64.b64decode(path.read_bytes().strip(), validate=True) if is_text else b""
            self._archive = zipfile.ZipFile(io.BytesIO(unpacked) if is_text else path)
            entries = self._archive.infolist()
            if sum(one.file_size for one in entries) > (len(unpacked) or path.stat().st_size):
                raise UsageError(f"{path} unpacks to more than it is, as no state of CARBS does; give another")
            names = [one.filename for one in entries if one.filename.endswith("/data.pkl")]
            self._root = names[0].removesuffix("data.pkl")
            self.pickled = self._archive.read(names[0])

    def held(self) -> Mapping[str, Any]:
        """Returns the state. Raises `UsageError` for a file that holds anything else."""
        with reading(f"{self._path} is no state of CARBS", "give another"):
            found = _described(self.pickled)
        if not isinstance(found, dict):
            raise UsageError(f"{self._path} holds no state of CARBS, as its save_to_file writes one; give another")
        return found

    def numbers(self, tensor: _Object, count: int) -> list[float]:
        """Returns the `count` numbers of a tensor of one dimension."""
        (_, kind, key, *_), start, size, (stride,) = tensor.given[:4]
        if size != (count,):
            raise UsageError(f"{self._path} is damaged: a point does not have {count} numbers; copy it again")
        if _text(key) not in self._read:
            found: array.array[float] = array.array(_CODES[kind.name])
            found.frombytes(self._archive.read(f"{self._root}data/{key}"))
            if sys.byteorder != "little":
                found.byteswap()
            self._read[key] = found
        return [self._read[key][start + i * stride] for i in range(count)]


def _text(value: Any) -> str:
    """Returns a text as it is. Of other values not even the hash is taken: what shares its parts may be endless."""
    if not isinstance(value, str):
        raise TypeError(f"a {type(value).__name__} stands where a text must be")
    return value


def _described(pickled: bytes) -> Any:
    """Returns what a pickle describes, of plain values and `_Object`. Nothing of it is imported or called.

    Raises:
        ValueError: it is none, is cut short, names what no state of CARBS does, or has an operation that `torch.save`
            does not write.
    """
    stack: list[Any] = []
    marks: list[int] = []
    memo: dict[int, Any] = {}

    def above() -> list[Any]:  # the last mark
        at = marks.pop()
        taken = stack[at:]
        del stack[at:]
        return taken

    operations: Iterator[tuple[pickletools.OpcodeInfo, Any, int | None]] = pickletools.genops(pickled)
    for operation, given, _ in operations:
        match operation.name:
            case "PROTO":
                pass
            case "STOP":
                return stack.pop()
            case "MARK":
                marks.append(len(stack))
            case "BINPUT" | "LONG_BINPUT":
                memo[given] = stack[-1]
            case "BINGET" | "LONG_BINGET":
                stack.append(memo[given])
            case "NONE":
                stack.append(None)
            case "NEWTRUE" | "NEWFALSE":
                stack.append(operation.name == "NEWTRUE")
            case "BININT" | "BININT1" | "BININT2" | "LONG1" | "BINFLOAT" | "BINUNICODE":
                stack.append(given)
            case "EMPTY_DICT":
                stack.append({})
            case "EMPTY_LIST":
                stack.append([])
            case "EMPTY_TUPLE":
                stack.append(())
            case "TUPLE":
                stack.append(tuple(above()))
            case "TUPLE1" | "TUPLE2" | "TUPLE3":
                stack[-int(operation.name[-1]) :] = [tuple(stack[-int(operation.name[-1]) :])]
            case "APPEND" | "APPENDS":
                added = above() if operation.name == "APPENDS" else [stack.pop()]
                stack[-1].extend(added)
            case "SETITEM" | "SETITEMS":
                added = above() if operation.name == "SETITEMS" else [stack.pop(-2), stack.pop()]
                stack[-1].update(zip(map(_text, added[::2]), added[1::2], strict=True))
            case "GLOBAL":
                module, _, name = given.partition(" ")
                if module.partition(".")[0] not in _PACKAGES:
                    raise ValueError(f"it names {module}.{name}, which none does, and which is not read")
                stack.append(_Object(name))
            case "REDUCE" | "NEWOBJ":
                arguments = stack.pop()
                stack[-1] = _Object(stack[-1].name, arguments)
            case "BUILD":
                held = stack.pop()
                stack[-1].held = held
            case "BINPERSID":
                stack[-1] = tuple(stack[-1])
            case other:
                raise ValueError(f"it has the operation {other}, which none has")
    raise ValueError("it was cut short")
