"""Protein: hyperparameter sweeps that count what a trial costs.

    from protein import Categorical, Float, Integer, Protein, Space, Sweep

`Sweep` runs a sweep over your own training function and stores every trial. `Protein` is the engine alone, by ask and
tell. `ProteinSampler` is the engine as a sampler of Optuna; `import *` leaves it out, because it needs Optuna. `Space`,
`Float`, `Integer` and `Categorical` describe what is searched. `load` reads a stored sweep into data frames. `plots`
draws sweeps. Errors derive from `ProteinError`.

A program that `protein sweep --command` runs calls `report` and `trial`; they do nothing outside a sweep.

A name is loaded when it is first used. So `import protein` takes no time, and the command line, whose help needs none
of them, answers at once. Nothing else is imported here, either: until `protein.__main__` runs, Ctrl-C would print a
traceback.
"""

TYPE_CHECKING = False  # as that of `typing`
if TYPE_CHECKING:
    __version__: str
    from protein import plots as plots
    from protein.api.ask_tell import Protein
    from protein.api.function_sweep import Sweep, SweepResult
    from protein.api.loading import LoadedSweep, load
    from protein.engine.laws import BestValue, Law, Laws, Plan
    from protein.engine.results import Contender
    from protein.errors import (
        ConfigError,
        ProteinError,
        SpaceError,
        StoreError,
        StoreMissing,
        StoreUnavailable,
        TrialFailed,
        TrialLost,
        UsageError,
    )
    from protein.optuna.sampler import ProteinSampler as ProteinSampler
    from protein.reporting import RunningTrial, report, report_result, trial
    from protein.run.function import Report, Stop
    from protein.space import Space
    from protein.space.parameters import Categorical, Float, Integer
    from protein.types import Estimate, Observation, Suggestion

__all__ = [
    "BestValue",
    "Categorical",
    "ConfigError",
    "Contender",
    "Estimate",
    "Float",
    "Integer",
    "Law",
    "Laws",
    "LoadedSweep",
    "Observation",
    "Plan",
    "Protein",
    "ProteinError",
    "Report",
    "RunningTrial",
    "Space",
    "SpaceError",
    "Stop",
    "StoreError",
    "StoreMissing",
    "StoreUnavailable",
    "Suggestion",
    "Sweep",
    "SweepResult",
    "TrialFailed",
    "TrialLost",
    "UsageError",
    "load",
    "report",
    "report_result",
    "trial",
]

_HOMES = {
    "BestValue": "protein.engine.laws",
    "Categorical": "protein.space.parameters",
    "ConfigError": "protein.errors",
    "Contender": "protein.engine.results",
    "Estimate": "protein.types",
    "Float": "protein.space.parameters",
    "Integer": "protein.space.parameters",
    "Law": "protein.engine.laws",
    "Laws": "protein.engine.laws",
    "LoadedSweep": "protein.api.loading",
    "Observation": "protein.types",
    "Plan": "protein.engine.laws",
    "Protein": "protein.api.ask_tell",
    "ProteinError": "protein.errors",
    "ProteinSampler": "protein.optuna.sampler",
    "Report": "protein.run.function",
    "RunningTrial": "protein.reporting",
    "Space": "protein.space",
    "SpaceError": "protein.errors",
    "Stop": "protein.run.function",
    "StoreError": "protein.errors",
    "StoreMissing": "protein.errors",
    "StoreUnavailable": "protein.errors",
    "Suggestion": "protein.types",
    "Sweep": "protein.api.function_sweep",
    "SweepResult": "protein.api.function_sweep",
    "TrialFailed": "protein.errors",
    "TrialLost": "protein.errors",
    "UsageError": "protein.errors",
    "load": "protein.api.loading",
    "report": "protein.reporting",
    "report_result": "protein.reporting",
    "trial": "protein.reporting",
}
_MODULES = ("plots",)


def __getattr__(name: str) -> object:
    import importlib

    if name == "__version__":
        from importlib.metadata import version

        return version("protein-sweep")
    if name in _MODULES:
        return importlib.import_module(f"protein.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'protein' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    """Returns the public names: nothing else is for users."""
    return sorted([*_HOMES, *_MODULES, "__version__"])
