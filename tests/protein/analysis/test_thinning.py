"""Fewer points of a scatter: bounded, with the extremes and what must be kept, and none where there are few."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from protein.analysis.thinning import thinned


@given(st.integers(0, 400), st.integers(1, 300), st.integers(0, 2**31), st.sampled_from([1.0, 1e-12, 1e12]))
def test_few_points_that_hold_the_extremes_and_what_must_be_kept(
    number: int, most: int, seed: int, size: float
) -> None:
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=number) * size, np.round(rng.normal(size=number), 1)
    keep = rng.permutation(number)[: number // 20]
    found = thinned(x, y, most, keep)
    assert found.tolist() == sorted(set(found.tolist()))
    if number <= most:
        assert found.tolist() == list(range(number))
        return
    assert set(keep) <= set(found)
    assert len(found) <= max(most, len(keep) + 5)
    for values in (x, y):
        assert values[found].min() == values.min() and values[found].max() == values.max()


def test_points_far_apart_all_stay_while_those_on_one_spot_become_one() -> None:
    x = np.concatenate([np.linspace(0.0, 1.0, 50), np.full(1000, 0.5)])
    y = np.concatenate([np.linspace(0.0, 1.0, 50), np.full(1000, 0.2)])
    found = thinned(x, y, 60, np.zeros(0, dtype=np.intp))
    assert set(range(50)) <= set(found.tolist()) and len(found) == 51
