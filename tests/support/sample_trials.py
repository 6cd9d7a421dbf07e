"""Hand-made trials for tests of the views and the command line, and a real store that holds a small sweep of them."""

import dataclasses
import math
from datetime import UTC, datetime, timedelta
from pathlib import Path

from protein.config.layers import Layers
from protein.config.resolve import load, make_space
from protein.ports import Store, SweepStatus
from protein.run.lease import current_owner
from protein.space import Space
from protein.storage import open_store
from protein.types import (
    Artifact,
    Estimate,
    Measurement,
    Outcome,
    Params,
    Provenance,
    Suggestion,
    SuggestionKind,
    SweepRecord,
    SweepSpec,
    Trial,
    TrialEnd,
    TrialRecord,
    TrialState,
    end_of,
)

BEGAN = datetime(2026, 3, 4, 18, 0, tzinfo=UTC)
PROVENANCE = Provenance(version="0.1.0", git_commit="abc", machine="host, 4 cores", config_hash="f" * 64)
PREDICTED = Estimate(value=10.0, low=8.0, high=11.5)
PARAMS: Params = {"train.total_timesteps": 5_000_000, "train.learning_rate": 0.00312345, "train.lr_schedule": "linear"}


def curve(top: float, seconds: float, num_points: int = 20) -> tuple[Measurement, ...]:
    """A learning curve that rises to `top`; its first points have no score yet."""
    return tuple(
        Measurement(
            steps=1000 * i,
            elapsed_seconds=seconds * i / num_points,
            score=None if i <= 2 else top - 20 * math.exp(-4 * i / num_points),
            metrics={"steps_per_second": 1e6},
        )
        for i in range(1, num_points + 1)
    )


def trial(
    number: int,
    cost_seconds: float,
    score: float | None,
    *,
    state: TrialState = TrialState.COMPLETE,
    reason: str = "",
    params: Params = PARAMS,
    predicted: bool = False,
) -> TrialRecord:
    cost = Estimate(value=30.0, low=25.0, high=40.0)
    return TrialRecord(
        id=number + 1,
        sweep_id=1,
        number=number,
        params=params,
        seed=100 + number,
        state=state,
        end=end_of(state, reason),
        owner="host:1:2.00",
        kind=SuggestionKind.SEARCH if number else SuggestionKind.INITIAL_CONFIG,
        origin="initial config" if number == 0 else "improving the front near 30 s",
        predicted_score=PREDICTED if predicted else None,
        predicted_cost_seconds=cost if predicted else None,
        suggest_seconds=0.25,
        score=score,
        cost_seconds=cost_seconds,
        steps=int(cost_seconds * 1000),
        reason=reason,
        timings={"startup": 2.0, "evaluation": 0.5},
        metrics={"train_score": 1.25},
        curve=curve(10.0, max(cost_seconds, 0.1)),
        artifacts=(Artifact(kind="checkpoint", path="/runs/pong/0001/checkpoint.safetensors"),),
        provenance=PROVENANCE,
        started_at=BEGAN + timedelta(minutes=number),
        finished_at=None if state is TrialState.RUNNING else BEGAN + timedelta(minutes=number, seconds=30),
    )


def failed(number: int, cost_seconds: float, reason: str = "diverged: loss is nan") -> TrialRecord:
    return trial(number, cost_seconds, None, state=TrialState.FAILED, reason=reason)


def running(number: int, cost_seconds: float = 3.0) -> TrialRecord:
    return trial(number, cost_seconds, None, state=TrialState.RUNNING, predicted=True)


def many(num_trials: int) -> list[TrialRecord]:
    """Trials whose score grows with their cost, and whose every seventh failed and every eleventh was stopped early."""
    trials = []
    for i in range(num_trials):
        cost = 1.5 * 1.17 ** (i * 7 % 30)
        score = 20 - 40 * math.exp(-cost / 30) - i % 5
        if i % 7 == 5:
            trials.append(failed(i, cost / 2))
        elif i % 11 == 8:
            reason = "stopped at its cost cap"
            trials.append(trial(i, cost, score, state=TrialState.PRUNED, reason=reason))
        else:
            trials.append(trial(i, cost, score, predicted=i > 8))
    return trials


def sweep_record(name: str = "pong", max_cost_seconds: float | None = 600.0) -> SweepRecord:
    spec = SweepSpec(name=name, env="pong", method="protein", seed=0, space={}, config={}, provenance=PROVENANCE)
    return SweepRecord(id=1, spec=spec, max_cost_seconds=max_cost_seconds, created_at=BEGAN)


def status(
    trials: list[TrialRecord],
    *,
    max_cost_seconds: float | None = 600.0,
    elapsed_seconds: float = 60.0,
    stopping: bool = False,
    max_trials: int | None = None,
) -> SweepStatus:
    return SweepStatus(
        sweep=sweep_record(max_cost_seconds=max_cost_seconds),
        trials=trials,
        elapsed_seconds=elapsed_seconds,
        engine_seconds=0.5,
        stopping=stopping,
        max_trials=max_trials,
    )


# What the sweep of `fill_store` holds: number -> (cost in seconds, score, state, reason).
STORED: tuple[tuple[float, float | None, TrialState, str], ...] = (
    (10.0, 5.0, TrialState.COMPLETE, ""),
    (40.0, 18.0, TrialState.COMPLETE, ""),
    (20.0, None, TrialState.FAILED, "diverged: loss is nan"),
    (25.0, 15.0, TrialState.COMPLETE, ""),
    (60.0, 18.0, TrialState.COMPLETE, ""),  # as good as number 1, and more expensive
    (70.0, 19.0, TrialState.PRUNED, "stopped at its cost cap"),
    (5.0, None, TrialState.FAILED, "interrupted"),
)


def stored_layers() -> Layers:
    return load("pong", flags={"env.num_envs": 64, "train.minibatch_size": 1024})


def stored_spec(name: str, space: Space) -> SweepSpec:
    """Returns a sweep of pong over a space."""
    return SweepSpec(
        name=name,
        env="pong",
        method="protein",
        seed=0,
        space=space.to_dict(),
        config=stored_layers().run_config().to_dict(),
        provenance=PROVENANCE,
    )


def fill_store(
    url: str,
    *,
    name: str = "pong",
    budget_seconds: float | None = 240.0,
    predicted: Estimate = PREDICTED,
) -> SweepRecord:
    """Makes a sweep of pong with the trials of `STORED`, all but the first with this predicted score; returns it."""
    space = make_space(stored_layers())
    store = open_store(url)
    sweep = store.create_sweep(stored_spec(name, space), budget_seconds)
    for number, (cost, score, state, reason) in enumerate(STORED):
        started = store.start_trial(
            sweep.id,
            Suggestion(
                params={**space.default(), "train.learning_rate": round(0.001 * (number + 1), 6)},
                kind=SuggestionKind.INITIAL_DESIGN if number else SuggestionKind.INITIAL_CONFIG,
                origin="initial config" if number == 0 else f"initial design {number} of 8",
                predicted_score=predicted if number else None,
                predicted_cost_seconds=Estimate(value=30.0, low=25.0, high=40.0) if number else None,
            ),
            seed=1000 + number,
            owner=current_owner(),
            lease_seconds=600.0,
            suggest_seconds=0.25,
            provenance=PROVENANCE,
        )
        store.add_measurements(started, curve(score or 3.0, cost), 600.0)
        end = end_of(state, reason)
        assert end is not None
        outcome = Outcome(end=end, score=score, cost_seconds=cost, steps=int(cost * 1000), reason=reason)
        store.finish_trial(started, dataclasses.replace(outcome, timings={"startup": 2.0}))
    store.close()
    return sweep


def store_url(folder: Path) -> str:
    return f"sqlite:///{folder}/protein.db"


def add_run(
    url: str,
    *,
    of: int,
    score: float | None = None,
    cost_seconds: float = 1.0,
    owner: str | None = None,
    checkpoint: Path | None = None,
) -> None:
    """Adds a trial to the sweep of `fill_store`: the config of trial `of`, run again; without a score it still runs."""
    store = open_store(url)
    [sweep] = store.list_sweeps()
    started = store.start_trial(
        sweep.id,
        Suggestion(
            params=store.trials(sweep.id)[of].params,
            kind=SuggestionKind.REEVALUATION,
            origin=f"running trial {of} again",
        ),
        seed=2000,
        owner=owner or current_owner(),
        lease_seconds=600.0,
        suggest_seconds=0.25,
        provenance=PROVENANCE,
    )
    if score is not None:
        outcome = Outcome(end=TrialEnd.COMPLETE, score=score, cost_seconds=cost_seconds, steps=1000)
        left = [] if checkpoint is None else [Artifact(kind="checkpoint", path=str(checkpoint))]
        store.finish_trial(started, outcome, left)
    store.close()


def start_trial(store: Store) -> Trial:
    """Starts a seventh trial of the only sweep, and reports two points of it."""
    [sweep] = store.list_sweeps()
    first = store.trials(sweep.id)[0]
    suggestion = Suggestion(params=first.params, kind=SuggestionKind.SEARCH, origin="improving the front near 9 s")
    trial = store.start_trial(
        sweep.id,
        suggestion,
        seed=1,
        owner=current_owner(),
        lease_seconds=600.0,
        suggest_seconds=0.1,
        provenance=first.provenance,
    )
    report(store, trial, 1, 2)
    return trial


def report(store: Store, trial: Trial, *tens: int) -> None:
    points = [Measurement(steps=10 * i, elapsed_seconds=float(i), score=1.0 * i) for i in tens]
    store.add_measurements(trial, points, 600)
