"""Writes a small database of today's schema, and what it holds, for the migration tests of later schemas.

Run once for every revision, before the next one is written: `python tests/assets/make_old_store.py`.
"""

import dataclasses
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from protein.ports import Store
from protein.storage import open_store
from protein.storage.upgrade import HEAD
from protein.types import (
    Artifact,
    Direction,
    Estimate,
    Machine,
    Measurement,
    Outcome,
    Provenance,
    Request,
    Suggestion,
    SuggestionKind,
    SweepSpec,
    Trial,
    TrialEnd,
    TrialState,
)

ASSETS = Path(__file__).parent
PROVENANCE = Provenance(version="0.1.0", git_commit="abc", machine="host", config_hash="0" * 64)


def contents(store: Store) -> Any:
    """Returns all that a store holds, as JSON values."""
    sweeps = store.list_sweeps()
    everything: list[Any] = [{"sweep": s, "trials": store.trials(s.id)} for s in sweeps]
    if machines := store.machines():
        everything.append(machines)
    return json.loads(json.dumps(everything, default=_plain))


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    return str(value)


def ok(end: TrialEnd) -> bool:
    """Whether a trial that ended so may have a score."""
    return end.state is not TrialState.FAILED


def fill(store: Store) -> None:
    for name in ("pong", "größe"):
        spec = SweepSpec(
            name=name,
            env="pong",
            method="protein",
            seed=3,
            direction=Direction.MAXIMIZE if name == "pong" else Direction.MINIMIZE,
            space={"parameters": [{"name": "train.learning_rate", "low": 0.001, "high": 0.1}]},
            config={"train": {"learning_rate": 0.01, "total_timesteps": 1000}},
            warm_start={"sweep": "older", "trials": []} if name == "pong" else {},
            provenance=PROVENANCE,
        )
        sweep = store.create_sweep(spec, 600.0 if name == "pong" else None)
        outcomes: list[Outcome | None] = [
            Outcome(end=TrialEnd.COMPLETE, score=20.5, cost_seconds=4.0, steps=40, timings={"startup": 1.5}),
            Outcome(end=TrialEnd.CAPPED, score=-3.0, cost_seconds=2.0, steps=20, reason=TrialEnd.CAPPED.text),
            Outcome(end=TrialEnd.DIVERGED, cost_seconds=1.0, steps=10, reason="diverged: loss is nan"),
            None,
        ]
        if name != "pong":
            outcomes += [Outcome(end=end, score=-1.0 if ok(end) else None, reason=end.text) for end in TrialEnd]
        kinds = list(SuggestionKind)
        for i, outcome in enumerate(outcomes):
            estimate = Estimate(value=1.0, low=0.5, high=2.0) if i else None
            continued = kinds[i % len(kinds)] is SuggestionKind.CONTINUATION
            trial = store.start_trial(
                sweep.id,
                Suggestion(
                    params={"train.learning_rate": 0.01 + i / 7},
                    kind=kinds[i % len(kinds)],
                    origin="test",
                    continues=0 if continued else None,
                    continued_seconds=4.0 if continued else 0.0,
                    predicted_score=estimate,
                ),
                seed=i,
                owner="host:1",
                lease_seconds=60.0,
                suggest_seconds=0.125,
                provenance=PROVENANCE,
            )
            curve = [
                Measurement(steps=j, elapsed_seconds=j / 3, score=j / 7 if j else None, metrics={"loss": 1 / (j + 1)})
                for j in range(4)
            ]
            store.add_measurements(trial, curve, 60.0)
            if outcome is not None:
                store.finish_trial(trial, outcome, [Artifact(kind="log", path=f"/runs/{name}/{i}.log")])
        if name != "pong":
            waits = _begin(store, sweep.id)
            store.release_trial(waits, "preempted: the node is gone")
            again = _begin(store, sweep.id)
            store.release_trial(again, "interrupted")
            store.take_up_trial(sweep.id, again.number, "host:2", 60.0, 1, 0.5)
            store.cancel(sweep.id, [again.number])
        store.annotate(sweep.id, 1, tags=["größer", 'with "quotes"'], note="an exploit\nof the ball", excluded=True)
        store.annotate(sweep.id, [0, 3], add_tags=["seen"])
        store.request(sweep.id, Request.PAUSE if name == "pong" else Request.RUN)

    store.set_ended(1, "the budget is spent")
    facts = {"processor": "größter", "cores": 4}
    moment = datetime(2026, 11, 1, tzinfo=UTC)
    for machine, seconds in (("host", 9.75), ("node", 1 / 3)):
        store.add_machine(Machine(name=machine, facts=facts, calibration_seconds=seconds, measured_at=moment))


def _begin(store: Store, sweep_id: int) -> Trial:
    """Returns a new trial that has a curve of three points."""
    trial = store.start_trial(
        sweep_id,
        Suggestion(params={"train.learning_rate": 0.5}, kind=SuggestionKind.SEARCH, origin="test"),
        seed=1,
        owner="host:1",
        lease_seconds=60.0,
        suggest_seconds=0.0,
        provenance=PROVENANCE,
    )
    curve = [Measurement(steps=i, elapsed_seconds=i / 3, score=i / 7) for i in range(3)]
    store.add_measurements(trial, curve, 60.0)
    return trial


def main() -> None:
    path = ASSETS / f"storage_{HEAD}.db"
    path.unlink(missing_ok=True)
    store = open_store(str(path))
    fill(store)
    (ASSETS / f"storage_{HEAD}.json").write_text(json.dumps(contents(store), indent=1, ensure_ascii=False) + "\n")
    store.close()


if __name__ == "__main__":
    main()
