"""A tracker's process, as seen by the process that starts it: it is told when to end, listened to, and outlived.

It is in a session of its own, so Ctrl-C in the terminal does not reach it. Its standard input is a pipe that stays
open for as long as there may be news: when that closes, also because this process has died, it writes what is left and
ends. Nothing that it does can block this process: its output is read by a thread, and its end is waited for with a
limit.

It says what it does on its standard output, one JSON object a line:

    {"event": "begun", "destination": ..., "how_to_look": ...}
    {"event": "progress", "written": ..., "waiting": ...}      after every batch
    {"event": "failed", "error": ..., "waiting": ...}          it tries again, unless it is to end
    {"event": "ended", "written": ..., "waiting": ...}         its last line
"""

import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

Message = Mapping[str, Any]
MAX_ERROR = 300  # characters
MAX_UNREAD = 10_000  # messages that are kept; later ones are dropped


class TrackerProcess:
    """One tracker's process.

    Args:
        name: of the tracker.
        module: is started with `python -m`.
        words: its arguments, which every user of the machine can read.
        variables: of its environment, beside those of this process: what may hold a password.
        log: of what it and the tool print.

    Attributes:
        error: of its last try; "" where it has caught up since.
        has_warned: whether a person was told of the error.
        how_to_look: what a person does to see the result.
        num_written: trials.
    """

    def __init__(
        self, name: str, module: str, words: Sequence[str], *, variables: Mapping[str, str], log: Path
    ) -> None:
        self.name, self.log = name, log
        self.error = self.how_to_look = ""
        self.has_warned = False
        self.num_written = 0
        self._messages: queue.SimpleQueue[Message] = queue.SimpleQueue()
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("w") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", module, *words],  # -P: modules in the working directory are not ours
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=os.environ | variables,
                text=True,
                start_new_session=True,
            )
        assert self._process.stdout is not None
        self._reader = threading.Thread(target=self._read, args=(self._process.stdout,), daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def exit_code(self) -> int | None:
        """Returns the exit code of a process that has ended; negative: the signal that killed it."""
        return self._process.poll()

    def listen(self) -> list[Message]:
        """Takes over what it has said since the last call, and returns that. Does not wait."""
        found: list[Message] = []
        with contextlib.suppress(queue.Empty):
            while True:
                found.append(self._messages.get_nowait())
        for message in found:
            event = message["event"]
            if event == "begun":
                self.how_to_look = str(message.get("how_to_look", ""))
            elif event == "failed":
                self.error = str(message.get("error", ""))
            elif event == "progress":
                self.num_written = int(message.get("written", 0))
                if message.get("waiting") == 0:
                    self.error, self.has_warned = "", False
        return found

    def ask_to_end(self) -> None:
        """Tells it that there will be no more news."""
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()

    def wait(self, seconds: float) -> bool:
        """Waits for its end, and returns whether it has come."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        self._reader.join(timeout=1.0)  # the last messages; a process that it left behind may hold the pipe
        return True

    def kill(self) -> None:
        """Ends it at once. Safe to call twice."""
        self.ask_to_end()
        with contextlib.suppress(OSError):
            self._process.kill()
        self.wait(5.0)

    def why_ended(self) -> str:
        """Returns the last line of its log, or its exit code where the log is empty."""
        with contextlib.suppress(OSError):
            lines = self.log.read_text(errors="replace").split("\n")
            if last := next((line.strip()[:300] for line in reversed(lines) if line.strip()), ""):
                return last
        return f"its process ended with code {self.exit_code()}"

    def _read(self, output: IO[str]) -> None:
        with contextlib.suppress(OSError, ValueError), output:
            for line in output:
                message = parse_message(line)
                if message is not None and self._messages.qsize() < MAX_UNREAD:
                    self._messages.put(message)


def wait_all(processes: Sequence[TrackerProcess], seconds: float) -> None:
    """Waits until all have ended, or the time is over."""
    until = time.monotonic() + seconds
    for process in processes:
        process.wait(max(until - time.monotonic(), 0.0))


def send_message(output: int, event: str, **fields: object) -> None:
    """Writes a message to a file descriptor. Where nobody listens any more, it does nothing."""
    with contextlib.suppress(BrokenPipeError):
        os.write(output, (json.dumps({"event": event, **fields}) + "\n").encode())


def parse_message(line: str) -> Message | None:
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
