"""What a tracker's process tells the process that started it: one JSON object a line.

{"event": "begun", "destination": ..., "how_to_look": ...}
{"event": "progress", "written": ..., "waiting": ...}      after every batch
{"event": "failed", "error": ..., "waiting": ...}          it tries again, unless it is to end
{"event": "ended", "written": ..., "waiting": ...}         its last line
"""

import json
from collections.abc import Mapping
from typing import IO, Any

Message = Mapping[str, Any]
MAX_ERROR = 300  # characters


def send(output: IO[str], event: str, **fields: object) -> None:
    output.write(json.dumps({"event": event, **fields}) + "\n")
    output.flush()


def parse(line: str) -> Message | None:
    """Returns a message; None for a line that is none."""
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) and isinstance(found.get("event"), str) else None


def one_line(error: BaseException) -> str:
    """Returns an error in one line: its kind where its text does not say enough."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}"[:MAX_ERROR] if text else type(error).__name__
