"""What Hydra finds of Protein. The build puts this file into `hydra_plugins`, as `protein_sweeper.py` (CMakeLists.txt).

Hydra imports every module there whenever any of its programs starts. So this one imports nothing of ours, until a sweep
or one of its trials begins.
"""

import sys
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig

# Those of `protein sweep`, in its order; None: as there.
_OF_SWEEP = (
    "store name max_cost max_trial_cost max_trials require stop_when confirm_share max_trial_memory min_free_disk"
    " workers pin_cores gpus gpus_per_trial trials_per_gpu max_trial_gpu_memory method warm_start seed early_stopping"
    " continue_trials calibrate until on_trial on_finish on_trouble tracker backend artifacts trial_cores resources"
    " slurm_options direction score_range resume_flag accept_exit_codes clock_counts max_silence accept_changes verbose"
)
OPTIONS: dict[str, Any] = {
    **dict.fromkeys(_OF_SWEEP.split()),
    "params": None,  # ranges by name, as on the command line, or as tables with min and max, or choices
    "when": None,  # by name, the condition under which a parameter exists
    "constraints": None,
    "cost_parameter": None,
    "start": None,  # the config that is tried first, in place of the program's own values
}
# A trial has none of the options: Hydra copies all of a config several times.
for _name, _class, _options in (("protein", "ProteinSweeper", OPTIONS), ("protein_trial", "ProteinTrial", {})):
    ConfigStore.instance().store(
        group="hydra/sweeper",
        name=_name,
        node={"_target_": f"hydra_plugins.protein_sweeper.{_class}", **_options},
        provider="protein",
    )

if "hydra/sweeper=protein_trial" in sys.argv:
    from protein.hydra.trial import begin

    begin()


class ProteinSweeper(Sweeper):
    """Runs a sweep."""

    def __init__(self, **options: Any) -> None:
        """Takes what the config says; the sweep reads it there."""

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        self.hydra_context, self.task_function, self.config = hydra_context, task_function, config

    def sweep(self, arguments: list[str]) -> None:
        """Runs the sweep, and exits with the code of `protein sweep` where that is not 0."""
        from protein.hydra.sweep import run

        assert self.hydra_context is not None and self.config is not None
        run(self.hydra_context, self.config, arguments, self.validate_batch_is_legal)


class ProteinTrial(ProteinSweeper):
    """Runs the job of one trial, in a process of its own."""

    def sweep(self, arguments: list[str]) -> None:
        """Runs the job, and exits with 1 where it fails."""
        from protein.hydra.trial import run

        assert self.hydra_context is not None and self.config is not None
        run(self.hydra_context, self.task_function, self.config)
