"""Protein: cost-aware hyperparameter sweeps.

    from protein import Categorical, Float, Integer, Protein, Space, Sweep

`Protein` is the engine by ask and tell, `Sweep` runs it over a training function of your own and keeps every trial, the
others say what is searched; `ProteinSampler` is the engine in a study of Optuna's, and not among the names of
`import *`, because it needs Optuna. All are loaded when they are first used, so that the command line, which needs none
of them for its help, answers at once.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from protein.api.ask_tell import Protein
    from protein.api.function_sweep import Sweep, SweepResult
    from protein.engine.recommend import Contender
    from protein.optuna.sampler import ProteinSampler as ProteinSampler
    from protein.space import Space
    from protein.space.parameters import Categorical, Float, Integer
    from protein.sweep.backends.function import Report, Stop
    from protein.types import Estimate, Observation, Suggestion

__all__ = [
    "Categorical",
    "Contender",
    "Estimate",
    "Float",
    "Integer",
    "Observation",
    "Protein",
    "Report",
    "Space",
    "Stop",
    "Suggestion",
    "Sweep",
    "SweepResult",
]

_HOMES = {
    "Categorical": "protein.space.parameters",
    "Contender": "protein.engine.recommend",
    "Estimate": "protein.types",
    "Float": "protein.space.parameters",
    "Integer": "protein.space.parameters",
    "Observation": "protein.types",
    "Protein": "protein.api.ask_tell",
    "ProteinSampler": "protein.optuna.sampler",
    "Report": "protein.sweep.backends.function",
    "Space": "protein.space",
    "Stop": "protein.sweep.backends.function",
    "Suggestion": "protein.types",
    "Sweep": "protein.api.function_sweep",
    "SweepResult": "protein.api.function_sweep",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'protein' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
