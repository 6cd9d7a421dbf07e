"""One trial: runs the job, and says its score to the sweep. It imports little, as every trial waits for it."""

import gc
import os
import signal
import sys
import traceback
from types import FrameType, TracebackType

from hydra._internal.callbacks import Callbacks
from hydra.core.utils import JobReturn, configure_log, run_job
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf, open_dict, read_write
from omegaconf.errors import OmegaConfBaseException

from protein.reporting import is_truth, report_result

# These run jobs on this machine, as the sweep's own processes do.
OWN_LAUNCHERS = (
    "hydra._internal.core_plugins.basic_launcher.BasicLauncher",
    "hydra_plugins.hydra_joblib_launcher.joblib_launcher.JoblibLauncher",
)


def begin() -> None:
    """Prepares this process, before Hydra composes the config of the trial."""
    os.environ["HYDRA_FULL_ERROR"] = "1"  # else Hydra prints what has failed, with a hint as the last line
    sys.excepthook = _print
    # The sweep, which is the multirun, calls these.
    Callbacks.on_multirun_start = Callbacks.on_multirun_end = lambda *_, **__: None  # type: ignore[method-assign]


def run(context: HydraContext, function: TaskFunction, config: DictConfig) -> None:
    """Runs the job of this trial, and exits with 1 where it fails. What it returns is the score.

    The config was composed with the trial's overrides. So no launcher has to compose it again, as Hydra's own does for
    each job, unless jobs run elsewhere.
    """
    number = int(os.environ["PROTEIN_TRIAL"])
    returned = _job(context, function, config, number)
    try:
        score = returned.return_value
    except Exception as error:  # here, so that Hydra's own frames are not in the log
        _print(type(error), error, error.__traceback__)
        sys.exit(1)
    if score is None:
        return  # the last score of its learning curve counts
    try:
        if isinstance(score, str | bytes) or is_truth(score):  # float() would take them
            raise TypeError
        report_result(float(score))
    except (TypeError, ValueError):
        print(f"the function returned {score!r:.80}, which is no number; return the score", file=sys.stderr)
        sys.exit(1)


def in_one_line(error: BaseException) -> str:
    """Returns what an error says. One of Hydra says what it was doing, and its cause what is wrong."""
    texts = [" ".join(str(error).split())]
    if isinstance(error.__cause__, OmegaConfBaseException):
        texts.append(in_one_line(error.__cause__))
    return ": ".join(text for text in texts if text)


def _print(kind: type[BaseException], error: BaseException, frames: TracebackType | None) -> None:
    """Prints an error, so that the last line of the log says what has failed: it is the reason of the trial."""
    text = "".join(traceback.format_exception(kind, error, frames))
    last = ": ".join(filter(None, (kind.__name__, in_one_line(error))))
    print(text if text.endswith(f"{last}\n") else f"{text}{last}\n", end="", file=sys.stderr)


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
            if issubclass(type(job), submitit.Job):  # `isinstance` would ask, and so wake up, what stands for another
                job.cancel()
    sys.exit(128 + number)
