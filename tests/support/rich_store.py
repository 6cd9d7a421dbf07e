"""A store whose sweep has something of everything that a store can hold, for tests of copies and of damage."""

import dataclasses

from store_samples import LEASE_SECONDS, PROVENANCE, sweep_spec

from protein.ports import Store
from protein.types import (
    Artifact,
    Direction,
    Estimate,
    Measurement,
    Outcome,
    Request,
    Suggestion,
    SuggestionKind,
    SweepRecord,
    TrialEnd,
)

ODD = 'ünï\u2028"\\\n\t☃𝄞\u202e'  # what a text may hold
FLOATS = (0.1, 1 / 3, 5e-324, 1.7976931348623157e308, -2.2250738585072014e-308, 1e-7, 123456789.123456789)


def fill(store: Store, name: str = "s", *, num_trials: int = 30) -> SweepRecord:
    """Adds a sweep with trials in every state: the last of them run, the ones before them wait."""
    spec = dataclasses.replace(
        sweep_spec(name),
        direction=Direction.MINIMIZE,
        seed=2**62 + 1,
        space={"parameters": [{"type": "float", "name": "lr", "low": 1e-9, "high": 1.0, "scale": "log"}]},
        config={"own": {"start": None}, "odd": ODD, "floats": list(FLOATS), "none": None, "empty": {}},
        warm_start={"sweep": ODD, "trials": [{"number": 3, "params": {"lr": 0.02}, "score": None}]},
    )
    sweep = store.create_sweep(spec, 600.25)
    for i in range(num_trials):
        guess = Estimate(value=FLOATS[0] * i, low=-1 / 3 * i, high=i + 0.1) if i % 3 else None
        trial = store.start_trial(
            sweep.id,
            Suggestion(
                params={
                    "lr": 0.1 / (i + 1),
                    "kind": "ab"[i % 2],
                    "size": 2**i,
                    "flag": i % 2 == 0,
                    ODD: FLOATS[i % 7],
                    "hidden": [None, [], [64, None, {ODD: FLOATS[i % 7]}]][i % 3],
                    **({"depth": i} if i % 4 == 0 else {"depth": None, "gamma": 0.5} if i % 4 == 1 else {}),
                },
                kind=SuggestionKind.CONTINUATION if i == 7 else SuggestionKind.SEARCH,
                origin=f"improving {ODD}",
                predicted_score=guess,
                predicted_cost_seconds=guess if guess is None else Estimate(value=1.5, low=1.0, high=2 + i / 7),
                continues=3 if i == 7 else None,
                continued_seconds=1 / 7 if i == 7 else 0.0,
            ),
            seed=-i,
            owner=f"host-ü:{i}:1.00",
            lease_seconds=LEASE_SECONDS,
            suggest_seconds=0.1 * i,
            provenance=PROVENANCE,
        )
        points = [
            Measurement(
                steps=j * 10, elapsed_seconds=j / 7, score=None if j < 2 else -j / 3, metrics={"loss": 1 / (j + i + 1)}
            )
            for j in range(i % 9)
        ]
        store.add_measurements(trial, points, LEASE_SECONDS)
        if i >= num_trials - 2:
            continue
        if i >= num_trials - 4:
            store.release_trial(trial, f"preempted: {ODD}")
            continue
        end = (TrialEnd.COMPLETE, TrialEnd.COMPLETE, TrialEnd.CAPPED, TrialEnd.DIVERGED, TrialEnd.INTERRUPTED)[i % 5]
        has_score = end in (TrialEnd.COMPLETE, TrialEnd.CAPPED)
        store.finish_trial(
            trial,
            Outcome(
                end=end,
                score=-1.0 / (i + 3) if has_score else None,
                cost_seconds=FLOATS[1] * (i + 1),
                steps=100 * i,
                reason="" if end is TrialEnd.COMPLETE else f"{end.text or 'ended'} {ODD}",
                timings={"startup": 1 / 3, "evaluation": 2},
                metrics={"train_score": FLOATS[i % 7], "whole": 3},
            ),
            [
                Artifact(kind="log", path=f"/runs/ü/{i:04d}/log.txt"),
                Artifact(kind="checkpoint", path=f"/runs/{i}.ckpt"),
            ],
        )
    store.annotate(sweep.id, [1, 2], tags=["a", "ü b"], note="x\ny", excluded=True)
    store.annotate(sweep.id, min(5, num_trials - 1), note=ODD.replace("\u2028", ""))
    store.request(sweep.id, Request.PAUSE)
    store.set_ended(sweep.id, f"the budget is spent {ODD}")
    found = store.find_sweep(name)
    assert found is not None
    return found
