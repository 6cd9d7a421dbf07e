"""One trial: runs the job, and says its score to the sweep. It imports little, as every trial waits for it."""

import gc
import os
import signal
import sys
import traceback
from types import FrameType

from hydra.core.utils import JobReturn, JobStatus, configure_log, run_job
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf, open_dict, read_write

from protein.reporting import report_result

# These run jobs on this machine, as the sweep's own processes do.
OWN_LAUNCHERS = (
    "hydra._internal.core_plugins.basic_launcher.BasicLauncher",
    "hydra_plugins.hydra_joblib_launcher.joblib_launcher.JoblibLauncher",
)


def run(context: HydraContext, function: TaskFunction, config: DictConfig) -> None:
    """Runs the job of this trial, and exits with 1 where it fails. What it returns is the score.

    The config was composed with the trial's overrides. So no launcher has to compose it again, as Hydra's own does for
    each job, unless jobs run elsewhere.
    """
    number = int(os.environ["PROTEIN_TRIAL"])
    returned = _job(context, function, config, number)
    if returned.status is JobStatus.FAILED:
        error = returned._return_value  # the property would print Hydra's own lines, and the last one is the reason
        traceback.print_exception(error)
        sys.exit(1)
    score = returned.return_value
    if score is None:
        return  # the last score of its learning curve counts
    try:
        report_result(float(score))
    except (TypeError, ValueError):
        print(f"the function returned {score!r:.80}, which is no number; return the score", file=sys.stderr)
        sys.exit(1)


def _job(context: HydraContext, function: TaskFunction, config: DictConfig, number: int) -> JobReturn:
    configure_log(config.hydra.hydra_logging, config.hydra.verbose)
    if OmegaConf.select(config, "hydra.launcher._target_") in OWN_LAUNCHERS:
        with read_write(config.hydra.job), open_dict(config.hydra.job):
            config.hydra.job.id = str(number)
            config.hydra.job.num = number
        return run_job(
            hydra_context=context,
            task_function=function,
            config=config,
            job_dir_key="hydra.sweep.dir",
            job_subdir_key="hydra.sweep.subdir",
        )
    from hydra.core.plugins import Plugins

    plugins = Plugins.instance()
    launcher = plugins.instantiate_launcher(hydra_context=context, task_function=function, config=config)
    signal.signal(signal.SIGTERM, _end)  # as the sweep stops it
    [returned] = launcher.launch([given_overrides(config, "task")], initial_job_idx=number)
    return returned


def given_overrides(config: DictConfig, what: str) -> list[str]:
    """Returns the overrides of Hydra ("hydra") or of the program ("task") as they were given.

    An interpolation in one, as in `hydra.sweep.subdir=${hydra.job.num}`, is for the config of the job.
    """
    return [str(one) for one in OmegaConf.to_container(config.hydra.overrides[what], resolve=False) or ()]


def _end(number: int, frame: FrameType | None) -> None:
    """Takes its job back from a scheduler, which would run it for nobody, and ends."""
    if (submitit := sys.modules.get("submitit")) is not None:
        for job in gc.get_objects():
            if isinstance(job, submitit.Job):
                job.cancel()
    sys.exit(128 + number)
