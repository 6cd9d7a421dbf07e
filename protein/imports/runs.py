"""What a reader returns: the runs of another tool in our terms, and what the tool knows of the search."""

import contextlib
import dataclasses
import importlib
import json
import math
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from protein.config import json_space
from protein.errors import SpaceError, UsageError
from protein.files import regular
from protein.space.parameters import Parameter, free_name, parameter_name
from protein.spelling import counted, nearest
from protein.types import MAX_COST_SECONDS, Direction, Measurement, ParamValue, TrialEnd, is_score

EQUAL_COST = "equal"  # said in place of a column: every run counts as one second
MAX_LISTED = 12  # names in a message
MAX_POINTS = 2000  # of a run's curve, spread evenly
_DEPTH = 2  # folders below a source in which experiments are looked for


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """What is to be read, as the user gave it.

    Attributes:
        place: a file, a folder or a URL.
        experiment: the study or the experiment, where the place holds several.
        score: the metric that counts; None: the one that the tool names.
        cost: the metric that is the cost in seconds; `EQUAL_COST`; None: the run's own duration.
        direction: None: the one that the tool names.
        params: the columns that are parameters, for a table that does not tell; None: all that may be.
    """

    place: str
    experiment: str | None = None
    score: str | None = None
    cost: str | None = None
    direction: Direction | None = None
    params: Sequence[str] | None = None

    def score_of(self, known: Iterable[str], own: str | None = None, what: str = "--score") -> str:
        """Returns the metric that counts, of those that are known: the user's, or the tool's own."""
        return choose(what, self.score or own, known)

    def direction_of(self, score: str, own: Direction | None = None) -> Direction:
        """Returns the user's direction, or the tool's own. Raises `UsageError` where nobody has said it."""
        if found := self.direction or own:
            return found
        raise UsageError(f"say whether a higher {score} is better: --direction maximize or --direction minimize")

    def require_cost(self, known: Iterable[str]) -> None:
        """Raises `UsageError` where the user's cost is none of the metrics that are known."""
        if self.cost not in (None, EQUAL_COST):
            choose("--cost", self.cost, known)

    def seconds(self, own: Any, metrics: Mapping[str, Any]) -> Any:
        """Returns the cost of a run: its own duration, or what the user has chosen, as it stands in its metrics."""
        return 1.0 if self.cost == EQUAL_COST else own if self.cost is None else metrics.get(self.cost)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One finished run, as a store takes it. What a tool has written may be given as it is.

    A failure has a reason and no score; a run without a score, or with one that is no finite number, is one.

    Attributes:
        key: what the tool calls it; no other run of the source has the same.
        params: by names that a space can have (see `parameters`); values that cannot be stored are left out.
        end: how it ended.
        score: as the user knows it; None for a failure.
        cost_seconds: None where it is not known.
        steps: -1: those of the curve's last point.
        reason: why it failed or was stopped.
        git_commit: "" where it is not known.
    """

    key: str
    params: Mapping[str, ParamValue]
    end: TrialEnd = TrialEnd.COMPLETE
    score: float | None
    cost_seconds: float | None
    steps: int = -1
    reason: str = ""
    metrics: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    curve: tuple[Measurement, ...] = ()
    began: str = ""  # when, for people
    git_commit: str = ""

    def __post_init__(self) -> None:
        end, score, reason = _result(self.end, number(self.score), self.reason)
        last = self.curve[-1].steps if self.curve else 0
        steps = last if self.steps < 0 else int(self.steps)
        made = {"end": end, "score": score, "steps": steps, "cost_seconds": known_cost(self.cost_seconds)}
        texts = {name: storable(getattr(self, name)) for name in ("key", "began", "git_commit")}
        for name, value in {**made, **texts, "reason": storable(reason), "metrics": numbers(self.metrics)}.items():
            object.__setattr__(self, name, value)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """All finished runs of a source, oldest first.

    Attributes:
        where: the place and the experiment in words, without a password.
        identity: what stays the same when the same source is read again later.
        experiment: its name, for the sweep's.
        env: what was trained; "": the experiment.
        score: name of the metric that counts.
        direction: of the score.
        tool: as in "optuna"; `protein.api.importing` fills it in.
        runs: the finished ones.
        num_unfinished: runs that were left out, because they still run or wait.
        parameters: of the tool's own space, by name; empty where it keeps none.
        cost_parameter: the parameter that makes a run expensive, where the tool says that.
        notes: what of the tool's own space could not be taken over, a line each.
    """

    where: str
    identity: str
    experiment: str
    env: str = ""
    score: str
    direction: Direction
    tool: str = ""
    runs: Sequence[Run]
    num_unfinished: int = 0
    parameters: Mapping[str, Parameter] = dataclasses.field(default_factory=dict)
    cost_parameter: str | None = None
    notes: Sequence[str] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "env", self.env or self.experiment)
        for name in ("where", "identity", "experiment", "env", "score"):
            object.__setattr__(self, name, storable(getattr(self, name)))


def _result(end: TrialEnd, score: float | None, reason: str) -> tuple[TrialEnd, float | None, str]:
    if end is TrialEnd.COMPLETE and score is None:
        return TrialEnd.FAILED, None, reason or "it has no score"
    if score is not None and not is_score(score):
        return TrialEnd.DIVERGED, None, f"score {score}"
    if end.state == "failed":
        return end, None, reason or end.text
    return end, score, reason or end.text


def known_cost(seconds: Any) -> float | None:
    """Returns a cost that a store takes; None for what is no number of seconds, such as infinity or a text."""
    fits = isinstance(seconds, int | float) and not isinstance(seconds, bool) and 0 <= seconds <= MAX_COST_SECONDS
    return float(seconds) if fits else None


def number(value: Any) -> float | None:
    """Returns a value as a float, or None if it is not a number. Raises `OverflowError` for too large an integer."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def curve(points: Iterable[tuple[Any, Any, Any]]) -> tuple[Measurement, ...]:
    """Returns a learning curve of points, each its steps, seconds and score.

    Left out is a point that goes back, or whose steps or seconds no store takes.
    """
    found: list[Measurement] = []
    for steps, seconds, score in points:
        if known_cost(seconds) is None or not isinstance(steps, int | float) or not abs(steps) < 2**53:
            continue
        if found and (steps < found[-1].steps or seconds < found[-1].elapsed_seconds):
            continue
        kept = float(score) if isinstance(score, int | float) and is_score(score) else None
        found.append(Measurement(steps=max(int(steps), 0), elapsed_seconds=float(seconds), score=kept))
    stride = max(1, -(-len(found) // MAX_POINTS))
    return tuple(point for i, point in enumerate(found) if i % stride == 0 or i == len(found) - 1)


def parameters(values: Mapping[str, Any]) -> dict[str, ParamValue]:
    """Returns values as params: nested ones by dotted names, lists as text; without those that no store takes."""
    found: dict[str, ParamValue] = {}
    for name, value in flat(values).items():
        if value is None or (isinstance(value, int | float) and not _finite(value)):
            continue
        if isinstance(value, int) and not isinstance(value, bool) and abs(value) > 2**53:  # no range holds it exactly
            value = float(value)
        plain = value if isinstance(value, bool | int | float | str) else json.dumps(value, default=str)
        found[free_name(parameter_name(name), found)] = storable(plain) if isinstance(plain, str) else plain
    return found


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Returns nested mappings as one, by dotted names."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{prefix}{name}.")
        else:
            found[f"{prefix}{name}"] = value
    return found


def own_ranges(table: Any, path: Path) -> tuple[dict[str, Parameter], list[str]]:
    """Returns the ranges that a tool's own table of its space has, by name, and what of it is lost, a line each."""
    try:
        read = json_space.of_table(table, str(path))
    except (UsageError, SpaceError) as error:
        return {}, [f"the tool's own space cannot be one here, the ranges are those of the values: {error}"]
    notes = list(read.warnings)
    if read.space.constraints:
        count = counted(len(read.space.constraints), "forbidden clause")
        notes.append(f"the space does not have the {count} of {path.name}; a sweep with --space {path} has")
    return {one.name: dataclasses.replace(one, default=None) for one in read.space.parameters}, notes


def text_value(text: str) -> ParamValue | None:
    """Returns the value that a text stands for, as tools write them in tables: a bool, a number, or the text."""
    stripped = text.strip()
    if "_" in stripped:  # Python reads 2023_01 as a number, and no tool writes one in this way
        return text
    if stripped.lower() in ("true", "false"):
        return stripped.lower() == "true"
    if not stripped:
        return None
    if stripped in ("None", "null"):  # a choice of its own, as of no penalty
        return "None"
    for kind in (int, float):
        try:
            return kind(stripped)
        except ValueError:
            continue
    return text


def numbers(values: Mapping[str, Any]) -> dict[str, float]:
    """Returns the finite numbers among values."""
    return {
        storable(name): float(value)
        for name, value in values.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and _finite(value)
    }


def moment(seconds: Any) -> str:
    """Returns a time in seconds since 1970 as text, in UTC; "" for what is no time."""
    with contextlib.suppress(TypeError, ValueError, OverflowError, OSError):
        return datetime.fromtimestamp(seconds, UTC).isoformat(sep=" ", timespec="milliseconds")
    return ""


def storable(text: str) -> str:
    """Returns a text without what no store takes: the character 0, and halves of characters, which are "?" then."""
    return text.replace("\0", "").encode("utf-8", "replace").decode()


def needed(module: str, package: str) -> Any:
    """Returns a module of a package that not everybody has. Raises `UsageError` where it is not installed."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise UsageError(f"to read this, a package is needed ({error}); run pip install {package}") from error


def choose(what: str, wanted: str | None, known: Iterable[str]) -> str:
    """Returns a wanted name of several; without one, the only name there is.

    Errors begin with `what` it is, as in "--score".

    Raises:
        UsageError: it is not there, or several are.
    """
    names = list(dict.fromkeys(known))
    if wanted is None and len(names) == 1:
        return names[0]
    if not names:
        raise UsageError(f"{what} cannot be chosen: the source holds none; give another source")
    if wanted is None:
        raise UsageError(f"{what} is needed, one of: {listed(names)}")
    if wanted not in names:
        raise UsageError(f"{what} '{wanted}' is not there{nearest(wanted, names)}")
    return wanted


def listed(names: Sequence[str]) -> str:
    if not names:
        return "none"
    more = len(names) - MAX_LISTED
    return ", ".join(names[:MAX_LISTED]) + (f" and {more} more" if more > 0 else "")


def existing(place: str, what: str, *, folder: bool = False) -> Path:
    """Returns a path. Raises `UsageError` unless it is a file (or a folder)."""
    path = Path(place).expanduser()
    if path.is_dir() and not folder:
        raise UsageError(f"{place} is a folder; give {what}")
    if not (path.is_dir() if folder else path.is_file()):
        raise UsageError(f"there is no {'folder' if folder else 'file'} {place}; give {what}")
    return path


def experiment_of(source: Source, is_one: Callable[[Path], bool], what: str) -> Path:
    """Returns the folder of one experiment: the source's place, or the only one below it, or the one that is named.

    Args:
        source: its place is such a folder, a file in one, or a folder that has some below it.
        is_one: whether a folder holds an experiment.
        what: makes a folder one, as in "the folder of a run, which has a runhistory.json".

    Raises:
        UsageError: there is none, or several.
    """
    place = Path(source.place).expanduser()
    folder = place.parent if place.is_file() else existing(source.place, what, folder=True)
    if is_one(folder):
        if source.experiment is not None:
            choose("--experiment (the folder)", source.experiment, [folder.name])
        return folder
    below = {str(one.relative_to(folder)): one for one in folders_below(folder) if is_one(one)}
    if not below:
        raise UsageError(f"{source.place} is not {what}, and there is none below it; give another folder")
    return below[choose("--experiment (the folder)", source.experiment, sorted(below))]


def folders_below(folder: Path, depth: int = _DEPTH) -> Iterator[Path]:
    """Yields the folders in a folder, down to a depth; those that cannot be read are left out."""
    try:
        inner = sorted(one for one in folder.iterdir() if one.is_dir() and not one.name.startswith("."))
    except OSError:
        return
    for one in inner:
        yield one
        if depth > 1:
            yield from folders_below(one, depth - 1)


@contextlib.contextmanager
def reading(fault: str, remedy: str = "it may be damaged, or cut short: copy it again") -> Iterator[None]:
    """Makes one line of what a library says when it cannot read a source: "`fault` (what it says); `remedy`"."""
    try:
        yield
    except UsageError:
        raise
    except Exception as error:  # of any library
        raise UsageError(f"{fault} ({' '.join(str(error).split()):.200}); {remedy}") from error


def table_of(path: Path) -> dict[str, Any]:
    """Returns a JSON file that holds an object. Raises `UsageError` for any other, such as one that was cut short."""
    with reading(f"{path} cannot be read as JSON"):
        data = json.loads(regular(path).read_text(encoding="utf-8"))
    if not isinstance(data, dict):
        raise UsageError(f"{path} holds no JSON object, but a {type(data).__name__}; give another source")
    return data


def tables_of(path: Path) -> set[str] | None:
    """Returns the names of the tables of a SQLite file, without changing it; None where it is no such file.

    Raises:
        UsageError: it cannot be read, or is damaged.
    """
    with reading(f"{path} cannot be read"):
        with regular(path).open("rb") as file:
            if file.read(15) != b"SQLite format 3":
                return None
        with contextlib.closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as connection:
            return {name for (name,) in connection.execute("select name from sqlite_master where type = 'table'")}


def _finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer beyond every float
        return False
