"""A planted sweep with nested conditions: whatever reads trials is held to what each of them lacks."""

from planted_sweeps import Array, searched

from protein.space import Categorical, Float, Integer, Space

# An SVC is better than a tree. Of an SVC `C` and, where the kernel has it, `gamma` matter; of a tree its `depth` does.
CONDITIONAL = Space(
    [
        Categorical("model", ("svc", "tree")),
        Float("C", 1e-3, 1e3, scale="log", when="model == 'svc'"),
        Categorical("kernel", ("rbf", "linear"), when="model == 'svc'"),
        Float("gamma", 1e-4, 1.0, scale="log", when="kernel == 'rbf'"),
        Integer("depth", 1, 32, when="model == 'tree'"),
        Integer("steps", 10, 1000, scale="log"),
    ],
    cost_parameter="steps",
)


def _score(x: Array) -> float:
    if x[0] > 0.5:
        return float(x[5] - 4.0 * (x[4] - 0.3) ** 2)
    return float(x[5] + 1.5 - 4.0 * (x[1] - 0.5) ** 2 - (6.0 * (x[3] - 0.6) ** 2 if x[2] < 0.5 else 0.5))


TRIALS = searched(CONDITIONAL, _score, num_trials=90, seed=0, noise=0.05, seconds=lambda x: float(100.0 ** x[5]))
