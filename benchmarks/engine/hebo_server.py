"""HEBO behind a pipe, for `engine.hebo_peers`: it runs in an environment of its own and imports nothing of ours.

One JSON text a line on stdin, one answer a line on stdout:

    {"space": [k, ...], "seed": s, "initial": n}   parameters: 0 for a number in [0, 1], else the number of choices
    {"ask": true}                                  -> {"x": [...]}, for a choice its index
    {"x": [...], "y": value}                       an outcome, to be minimised
"""

import json
import os
import random
import sys
import warnings
from typing import Any

import numpy as np


def main() -> None:
    """Answers until stdin ends."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what HEBO prints is no answer
    warnings.simplefilter("ignore")
    import pandas as pd
    import torch
    from hebo.design_space.design_space import DesignSpace
    from hebo.optimizers.hebo import HEBO

    torch.set_num_threads(1)
    kinds: list[int] = []
    optimiser: Any = None
    for line in sys.stdin:
        message = json.loads(line)
        if "space" in message:
            kinds, seed = message["space"], message["seed"]
            random.seed(seed)
            np.random.seed(seed)  # noqa: NPY002
            torch.manual_seed(seed)
            optimiser = HEBO(
                DesignSpace().parse([_parameter(i, kind) for i, kind in enumerate(kinds)]),
                rand_sample=message["initial"],
                scramble_seed=seed,
            )
        elif "ask" in message:
            row = optimiser.suggest(n_suggestions=1).iloc[0]
            answers.write(json.dumps({"x": [float(row[f"p{i}"]) for i in range(len(kinds))]}) + "\n")
        else:
            row = zip(message["x"], kinds, strict=True)
            values = {f"p{i}": [str(int(x)) if kind else x] for i, (x, kind) in enumerate(row)}
            optimiser.observe(pd.DataFrame(values), np.array([[message["y"]]]))


def _parameter(i: int, kind: int) -> dict[str, Any]:
    if kind:
        return {"name": f"p{i}", "type": "cat", "categories": [str(choice) for choice in range(kind)]}
    return {"name": f"p{i}", "type": "num", "lb": 0.0, "ub": 1.0}


if __name__ == "__main__":
    main()
