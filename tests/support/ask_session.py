"""A space, a function of its params and a short session, for tests of ask and tell."""

import math
from typing import Any

from protein import Categorical, Float, Integer, Protein, Space, Suggestion


def make_space() -> Space:
    return Space(
        [
            Float("lr", 1e-5, 1e-1, scale="log"),
            Float("gamma", 0.9, 0.9999, scale="logit"),
            Integer("steps", 10_000, 10_000_000, scale="log"),
            Categorical("opt", ["adam", "muon"]),
        ],
        cost_parameter="steps",
    )


def train(params: Any) -> tuple[float, float]:
    """A score in [0, 1] that grows with steps and wants a learning rate near 1e-3, and what it costs."""
    fit = math.exp(-((math.log10(params["lr"]) + 3) ** 2)) * (1.0 if params["opt"] == "muon" else 0.8)
    return fit * (1 - math.exp(-params["steps"] / 1e6)), params["steps"] / 1e5


def play(engine: Protein, trials: int, sign: float = 1.0) -> list[Suggestion]:
    made = []
    for _ in range(trials):
        suggestion = engine.suggest()
        assert suggestion is not None
        made.append(suggestion)
        score, seconds = train(suggestion.params)
        engine.observe(suggestion.params, score=sign * score, cost_seconds=seconds)
    return made
