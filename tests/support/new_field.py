"""Follows a new field of trials, `mood`, from the store to everything that shows trials.

`python new_field.py OLD_STORE` prints as JSON where the field has arrived. The package that it imports is a copy that
has the field and its migration (`tests/storage/test_new_field.py`).
"""

import io
import json
import sys
from pathlib import Path
from typing import Any

# An editable install would find its own files rather than the copy's.
sys.meta_path[:] = [finder for finder in sys.meta_path if "editable" not in type(finder).__module__]

import rich.console  # noqa: E402
from store_samples import new_sweep, start  # noqa: E402

from protein import storage  # noqa: E402
from protein.api import loading, sweep_files  # noqa: E402
from protein.trackers import facts  # noqa: E402
from protein.types import Outcome, TrialEnd  # noqa: E402
from protein.view import data, tables  # noqa: E402
from protein.web import frame  # noqa: E402


def main(old: str) -> None:
    outcome: Any = Outcome(end=TrialEnd.COMPLETE, score=0.5, cost_seconds=1.0, steps=100, mood=0.75)  # type: ignore[call-arg]
    store = storage.open_whole_store("new.db")
    sweep = new_sweep(store)
    store.finish_trial(start(store, sweep), outcome)
    record: Any
    [record] = store.trials(sweep.id)
    read: Any = store.columns(sweep.id)
    found: dict[str, Any] = {"record": record.mood, "columns": read.mood.tolist()}
    found["table"] = frame.Frame.empty(sweep).updated(sweep, read).columns["mood"].listed()
    found["json"] = data.trial(record, curve=False)["mood"]
    printed = io.StringIO()
    rich.console.Console(width=100, file=printed).print(tables.trial(record, 100))
    found["text"] = [line.split() for line in printed.getvalue().splitlines() if "mood" in line]
    found["data frame"] = loading.load("s", store="new.db").trials["mood"].tolist()
    found["tracker"] = facts.results(record)["mood"]
    for ending in ("jsonl", "parquet"):
        path = Path(f"sweeps.{ending}")
        sweep_files.write(path, ["s"], store.read_sweeps([sweep.id]))
        found[ending] = written(f"{ending}.db", sweep_files.read(path))
    earlier = list(store.read_sweeps([sweep.id]))
    del earlier[1].values["mood"]  # type: ignore[attr-defined]
    found["earlier file"] = written("earlier.db", earlier)
    found["damages"] = [*map(str, store.damages(lambda *_: None))]
    store.close()
    upgraded = storage.open_store(old)
    trials: list[Any] = [trial for known in upgraded.list_sweeps() for trial in upgraded.trials(known.id)]
    found["upgraded"] = sorted({trial.mood for trial in trials})
    upgraded.close()
    print(json.dumps(found))


def written(name: str, items: Any) -> Any:
    other = storage.open_whole_store(name)
    other.write_sweeps(items, lambda *_: None)
    [sweep] = other.list_sweeps()
    trial: Any
    [trial] = other.trials(sweep.id)
    other.close()
    return trial.mood


if __name__ == "__main__":
    main(sys.argv[1])
