"""What a tracker's process tells the process that started it: one JSON object a line.

{"event": "begun", "destination": ..., "how_to_look": ...}
{"event": "progress", "written": ..., "waiting": ...}      after every batch
{"event": "failed", "error": ..., "waiting": ...}          it tries again, unless it is to end
{"event": "ended", "written": ..., "waiting": ...}         its last line
"""

import contextlib
import json
import os
from collections.abc import Mapping
from typing import Any

Message = Mapping[str, Any]
MAX_ERROR = 300  # characters


def send(output: int, event: str, **fields: object) -> None:
    """Writes a message to a file descriptor. Where nobody listens any more, it does nothing."""
    with contextlib.suppress(BrokenPipeError):
        os.write(output, (json.dumps({"event": event, **fields}) + "\n").encode())


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
