"""How long tests wait for what another process or thread brings about.

It ends a test that would never end. It is no bound on speed: nothing waits so long where all is well, and on a machine
with sixty other programs a new process may take minutes to import torch.
"""

import time
from collections.abc import Callable

PATIENCE_SECONDS = 600.0


def wait_until(condition: Callable[[], object], what: str = "what the test waits for") -> None:
    """Waits until something holds. Fails where it never does."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"{what} never came"
        time.sleep(0.02)
