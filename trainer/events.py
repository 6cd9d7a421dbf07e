"""The run's only way to speak to the outside: JSON objects, one a line, each flushed as it is written.

Events: `start`, `measurement` (a point of the learning curve), and then exactly one of `result`, `failed` or
`interrupted`. A number that is not finite is written as null, since JSON has no other word for it.
"""

import dataclasses
import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TextIO

Report = Callable[[dict[str, Any]], None]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """How a run ended. `score` is the evaluation's mean; None when the run was interrupted before it."""

    score: float | None
    steps: int
    elapsed_seconds: float
    timings: dict[str, float]
    metrics: dict[str, float]
    checkpoint: Path | None
    interrupted: bool


def ignore(event: dict[str, Any]) -> None:
    """Reports nothing: what all of several processes but the first one do."""


class JsonLines:
    """Writes events to a stream that the caller owns."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __call__(self, event: dict[str, Any]) -> None:
        self._stream.write(json.dumps(_plain(event), allow_nan=False) + "\n")
        self._stream.flush()


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value
