"""Acts on a sweep of `small_sweep` from outside, while it runs, and reads what became of it."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import small_sweep

from protein import storage
from protein.ports import Store, SweepStatus
from protein.types import SweepRecord, TrialRecord


def opened(folder: Path) -> Store:
    return storage.open_store(f"sqlite:///{folder}/protein.db")


def found(folder: Path) -> tuple[SweepRecord, list[TrialRecord]]:
    store = opened(folder)
    try:
        record = store.find_sweep("s")
        assert record is not None
        return record, store.trials(record.id)
    finally:
        store.close()


class AtPoint(small_sweep.Lines):
    """Does something once, when the last trial has a point of its curve."""

    def __init__(self, folder: Path, action: Callable[[Store, SweepStatus], None], *, number: int = 0) -> None:
        super().__init__()
        self._folder, self._action, self._number, self._done = folder, action, number, False

    def update(self, status: SweepStatus) -> None:
        super().update(status)
        if not self._done and len(status.trials) > self._number and status.trials[self._number].curve:
            self._done = True
            store = opened(self._folder)
            self._action(store, status)
            store.close()


def teller(folder: Path) -> str:
    """Returns a command that writes what it was told."""
    code = "import json, os; print(json.dumps({k: v for k, v in os.environ.items() if k.startswith('PROTEIN_')}))"
    return f'{sys.executable} -c "{code}" >> {folder}/told'


def told(folder: Path) -> list[dict[str, str]]:
    file = folder / "told"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
