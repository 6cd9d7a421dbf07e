"""How long tests wait for what another process or thread brings about, and how they find the processes that they left.

`PATIENCE_SECONDS` ends a test that would never end. It is no bound on speed: nothing waits so long where all is well,
and on a machine with sixty other programs a new process may take minutes to import torch.
"""

import time
from collections.abc import Callable
from pathlib import Path

import psutil

PATIENCE_SECONDS = 600.0


def wait_until(condition: Callable[[], object], what: str = "what the test waits for") -> None:
    """Waits until something holds. Fails where it never does."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"{what} never came"
        time.sleep(0.02)


def left_behind(folder: Path) -> list[psutil.Process]:
    """Returns the processes that have a test's folder on their command line and sleep.

    Only the folder tells them from those of tests that run at the same time, in another process or another checkout.
    """
    found = []
    for process in psutil.process_iter():
        try:
            words = " ".join(process.cmdline())
            if "sleep(" in words and str(folder) in words and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found
