"""Prints what the engine suggests for recorded sweeps, as JSON: golden file of `engine/test_suggestions.py`.

Run as a program of its own, because the libraries choose their instructions when they are first loaded: with the
settings of `reproducible.py` the figures are the same on every x86-64 processor. To record anew, after a change that is
meant to alter suggestions: `python tests/assets/suggestions.py > tests/golden/suggestions.json`.
"""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from reproducible import REPRODUCIBLE

os.environ.update(REPRODUCIBLE)  # before the libraries are loaded, which read it then

import dataclasses
import json
import math
from typing import Any

import numpy as np

from protein import Categorical, Float, Integer, Protein, Space, Suggestion
from protein.engine.results import Contender

RECORDED = Path(__file__).parents[2] / "benchmarks" / "engine" / "recorded"
CURVE_FRACTIONS = 16  # points of each recorded curve, at even shares of the run


def main() -> None:
    # numpy ignores the setting, all of it, where it does not know one of the names.
    used = np.show_config(mode="dicts")["SIMD Extensions"].get("found", [])
    if used:
        raise SystemExit(f"numpy uses instructions that not every processor has: {used}; disable them in REPRODUCIBLE")
    found = {
        "recorded pong": recorded("pong", budget_seconds=1500.0, sizes=(0, 1, 5, 9, 12, 25, 60, 120)),
        "recorded pong, nearly spent": recorded("pong", budget_seconds=400.0, sizes=(60, 61, 62)),
        "recorded breakout": recorded("breakout", budget_seconds=None, sizes=(3, 20, 45, 90)),
        "played maximize": played(direction=1.0),
        "played minimize": played(direction=-1.0),
        "no cost parameter": small_space(),
        "warm start": warm_start(),
    }
    print(json.dumps(found, indent=1))


def recorded(env: str, *, budget_seconds: float | None, sizes: tuple[int, ...]) -> list[Any]:
    """Suggestions after the first n trials of a recorded sweep, two running at a time, and what it recommends."""
    with np.load(RECORDED / f"{env}.npz") as table:
        space = Space.from_dict(json.loads(str(table["space"])))
        params, cost, score, failed = (table[name] for name in ("params", "cost", "score", "failed"))
        curves = table["curve"]
    rows = [dict(zip(space.names, row, strict=True)) for row in params.tolist()]
    rows = [{p.name: p.raw(row[p.name]) for p in space.parameters} for row in rows]
    start = {p.name: p.default for p in space.parameters if p.default is not None}
    found: list[Any] = []
    for size in sizes:
        engine = Protein(space, seed=7, start=start, budget_seconds=budget_seconds, max_trial_seconds=60.0)
        for i in range(size):
            steps = float(rows[i]["train.total_timesteps"])
            curve = [
                (int(steps * (k + 1) / CURVE_FRACTIONS), float(cost[i]) * (k + 1) / CURVE_FRACTIONS, float(value))
                for k, value in enumerate(curves[i])
                if math.isfinite(value)
            ]
            if failed[i]:
                engine.observe(rows[i], cost_seconds=float(cost[i]), failed="diverged")
            else:
                engine.observe(rows[i], cost_seconds=float(cost[i]), score=float(score[i]), curve=curve)
        found.append(told(engine.suggest()))
        if budget_seconds is None:  # what running trials are set aside for is another matter
            found.append(told(engine.suggest()))
        best, cheap = engine.best(), engine.best(under_seconds=3.0)
        found += [None if one is None else contender(one) for one in (best, cheap)]
        if size >= 20:
            points = [(100_000 * (k + 1), 0.5 * (k + 1), -20.0) for k in range(6)]
            found.append(engine.should_stop({**start, "train.total_timesteps": 1_000_000}, points) is not None)
    return found


def played(direction: float) -> list[Any]:
    """A whole search by ask and tell, with failures, stopped trials and a limit of trials."""
    space = Space(
        [
            Float("lr", 1e-5, 1e-1, scale="log"),
            Float("gamma", 0.9, 0.9999, scale="logit"),
            Integer("steps", 10_000, 10_000_000, scale="log"),
            Integer("width", 16, 256, scale="pow2"),
            Categorical("opt", ("adam", "muon")),
        ],
        cost_parameter="steps",
    )
    engine = Protein(
        space,
        seed=3,
        budget_seconds=900.0,
        max_trial_seconds=200.0,
        max_trials=40,
        direction="maximize" if direction > 0 else "minimize",
    )
    found: list[Any] = []
    for number in range(22):
        suggestion = engine.suggest()
        found.append(told(suggestion))
        if suggestion is None:
            break
        p = suggestion.params
        steps, rate = float(p["steps"]), math.log10(float(p["lr"]))
        cost = steps / 50_000 * float(p["width"]) / 64 + 0.5
        final = direction * (10 * (1 - math.exp(-steps / 1e6)) - (rate + 3) ** 2 + (p["opt"] == "muon"))
        curve = [(int(steps * k / 4), cost * k / 4, final * k / 4) for k in range(1, 5)]
        if rate > -1.5:
            engine.observe(p, cost_seconds=cost / 3, failed="diverged")
        elif number % 7 == 6:
            engine.observe(p, cost_seconds=cost / 2, score=final / 2, curve=curve[:2], stopped="hopeless")
        else:
            engine.observe(p, cost_seconds=cost, score=final, curve=curve)
    best = engine.best()
    assert best is not None
    return [*found, contender(best)]


def small_space() -> list[Any]:
    """A space whose points can be listed, without a cost parameter, until nothing is left."""
    space = Space([Integer("layers", 1, 4), Categorical("act", ("relu", "tanh", "gelu"))])
    engine = Protein(space, seed=1)
    found: list[Any] = []
    while (suggestion := engine.suggest()) is not None:
        found.append(told(suggestion))
        layers, act = suggestion.params["layers"], suggestion.params["act"]
        engine.observe(suggestion.params, cost_seconds=float(layers), score=float(layers) - 2.0 * (act == "tanh"))
    return [*found, engine.ended]


def warm_start() -> list[Any]:
    """A search that begins from another one's trials."""
    space = Space(
        [Float("lr", 1e-4, 1e-1, scale="log"), Integer("steps", 100, 10_000, scale="log")], cost_parameter="steps"
    )

    def run(engine: Protein, shift: float, trials: int) -> list[Any]:
        found = []
        for _ in range(trials):
            suggestion = engine.suggest()
            assert suggestion is not None
            found.append(told(suggestion))
            p = suggestion.params
            score = -((math.log10(float(p["lr"])) + shift) ** 2) + math.log(float(p["steps"]))
            engine.observe(p, cost_seconds=float(p["steps"]) / 100, score=score)
        return found

    first = Protein(space, seed=5, budget_seconds=500.0)
    run(first, 2.0, 14)
    second = Protein(space, seed=6, budget_seconds=500.0, warm_start=first.observations)
    return run(second, 2.2, 14)


def told(suggestion: Suggestion | None) -> Any:
    """A suggestion as JSON keeps it, without its origin: that is a text for people, and may be reworded."""
    if suggestion is None:
        return None
    return {
        "params": dict(suggestion.params),
        "score": suggestion.predicted_score and dataclasses.asdict(suggestion.predicted_score),
        "cost": suggestion.predicted_cost_seconds and dataclasses.asdict(suggestion.predicted_cost_seconds),
    }


def contender(one: Contender) -> dict[str, Any]:
    """Returns a recommended config; without limits there is no probability of keeping them."""
    assert one.keeps is None
    return {name: value for name, value in dataclasses.asdict(one).items() if name != "keeps"}


if __name__ == "__main__":
    main()
