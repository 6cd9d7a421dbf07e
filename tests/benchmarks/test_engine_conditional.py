"""The comparison on conditional spaces: its pipelines can be fitted, and its table says what was measured."""

import numpy as np
import pytest
from engine import conditional


@pytest.mark.parametrize("family", conditional.FAMILIES)
def test_any_config_of_a_family_has_a_score(family: str) -> None:
    space = conditional.SPACES[family]
    assert space.is_conditional
    for params in space.from_unit_many(space.sample(3, np.random.default_rng(1))):
        assert 0.0 <= conditional.score(family, params) <= 1.0


def test_the_table_has_means_on_the_scale_of_each_family_and_paired_differences() -> None:
    def rows(method: str, last: float) -> list[dict[str, object]]:
        scores = [0.0, 0.5, last]
        return [
            {"method": method, "family": family, "seed": seed, "scores": scores}
            for family in conditional.FAMILIES[:2]
            for seed in range(2)
        ]

    lines = conditional.table([*rows("protein", 1.0), *rows("random", 0.5), *rows("tpe-group", 0.75)])
    shown = {line.split()[0]: line for line in lines[1:4]}  # the median of random's configs is 0.5
    assert shown["protein"].split()[1:3] == ["4", "1.000"]
    assert "+0.500 [+0.500, +0.500]" in shown["protein"]
    assert shown["random"].split()[2] == "0.000"
