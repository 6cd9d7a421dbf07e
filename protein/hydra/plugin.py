"""What Hydra finds of Protein. The build puts this file into `hydra_plugins`, as `protein_sweeper.py` (CMakeLists.txt).

Hydra imports every module there whenever any of its programs starts. So this one imports nothing of ours, until a sweep
or one of its trials begins.
"""

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
    "in_trial": False,  # the sweep sets it in its trials
}

ConfigStore.instance().store(
    group="hydra/sweeper",
    name="protein",
    node={"_target_": "hydra_plugins.protein_sweeper.ProteinSweeper", **OPTIONS},
    provider="protein",
)


class ProteinSweeper(Sweeper):
    """Runs a sweep; in a process of one of its trials, that trial."""

    def __init__(self, **options: Any) -> None:
        self.in_trial = options["in_trial"]

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        self.hydra_context, self.task_function, self.config = hydra_context, task_function, config

    def sweep(self, arguments: list[str]) -> None:
        """Runs what is to be run, and exits with the code of `protein sweep` where that is not 0."""
        assert self.hydra_context is not None and self.config is not None
        if self.in_trial:
            from protein.hydra.trial import run as run_trial

            run_trial(self.hydra_context, self.task_function, self.config)
        else:
            from protein.hydra.sweep import run as run_sweep

            run_sweep(self.hydra_context, self.config, arguments, self.validate_batch_is_legal)
