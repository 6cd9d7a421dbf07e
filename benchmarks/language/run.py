"""Trains one config in a process of its own, for the benchmarks of this folder."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def train(config: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """Trains a config in a process of its own; returns its last event. Raises `RuntimeError` where it fails."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "config.json"
        path.write_text(json.dumps(config))
        command = [sys.executable, "-m", "protein.trainer", "--config", str(path), "--train.seed", str(seed)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, cwd=folder, check=False)
    event: dict[str, Any] = json.loads(done.stdout.splitlines()[-1]) if done.stdout else {}
    if event.get("event") != "result":
        raise RuntimeError(f"a run has failed: {event.get('message', 'its error is above')}")
    return event
