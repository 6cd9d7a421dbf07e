"""The engine against random search at equal cost, paired seeds, on the benchmark's own tasks."""

from pathlib import Path

import numpy as np
import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
FAMILIES = ("ppo", "cliff", "supervised", "wide")
SEEDS = range(6)
BUDGET = 15.0  # mean random-trial costs


@pytest.mark.slow
def test_the_engine_beats_random_search_at_equal_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from engine.cells import run_cell

    rows = {
        (method, family, seed): run_cell(method, family, seed, [(BUDGET, 60)])[0]
        for method in ("protein", "random")
        for family in FAMILIES
        for seed in SEEDS
    }
    for metric, margin in (("best", 0.05), ("volume", 0.1), ("area", 0.05)):
        gap = np.array([rows["protein", f, s][metric] - rows["random", f, s][metric] for f in FAMILIES for s in SEEDS])
        resampled = gap[np.random.default_rng(0).integers(0, len(gap), (4000, len(gap)))].mean(axis=1)
        low = float(np.quantile(resampled, 0.025))
        assert low > margin, f"{metric}: mean gap {gap.mean():.3f}, 95 % interval from {low:.3f}"
    failures = np.mean([rows["protein", "cliff", s]["fail"] for s in SEEDS])
    assert failures <= 0.1
