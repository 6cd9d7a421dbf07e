import math
import sys

import neps


class Space(neps.PipelineSpace):
    lr = neps.Float(1e-4, 1e-1, log=True)
    layers = neps.Integer(1, 3)
    act = neps.Categorical(["relu", "tanh"])
    epochs = neps.IntegerFidelity(1, 4)


def evaluate_pipeline(lr, layers, act, epochs):
    if layers == 3:
        raise RuntimeError("out of luck")
    curve = [(math.log10(lr) + 2) ** 2 + 1 / epoch for epoch in range(1, epochs + 1)]
    return {
        "objective_to_minimize": curve[-1],
        "cost": float(epochs),
        "learning_curve": curve,
        "info_dict": {"acc": 0.5},
    }


if __name__ == "__main__":
    neps.run(
        evaluate_pipeline,
        Space(),
        root_directory=sys.argv[1],
        worker_evaluations_to_spend=9,
        optimizer=("hyperband"),
        ignore_errors=True,
    )
