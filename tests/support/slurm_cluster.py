"""A real Slurm of one node for the tests, started with a configuration in a temporary folder; and backends on it.

The distribution's own binaries (`apt-get install slurmd slurmctld slurm-client munge`), run as root.
"""

import functools
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from patience import PATIENCE_SECONDS

from protein.ports import Backend
from protein.run.command import CommandBackend
from protein.run.fleet import Fleet
from protein.run.slot import SlotSettings, put_probe
from protein.run.slurm import SlurmTransport
from protein.run.trainer import TrainerBackend
from protein.types import Direction

ASSETS = str(Path(__file__).parents[1] / "assets")
CORES = 4  # of the node, whatever this machine has: tests wait for jobs more than they compute
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scancel", "sinfo")
START_SECONDS = 60.0
END_SECONDS = 10.0

CONFIGURATION = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
SlurmctldPort={controller_port}
SlurmdPort={node_port}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=batch_sched_delay=0,sched_interval=2
ReturnToService=2
MpiDefault=none
KillWait=10
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
NodeName={host} NodeAddr=127.0.0.1 CPUs={cores} State=UNKNOWN
PartitionName=test Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""


def why_not() -> str:
    """Returns why Slurm cannot be started here; "": it can."""
    missing = [program for program in PROGRAMS if shutil.which(program) is None]
    if missing:
        return f"Slurm is not installed ({', '.join(missing)}): apt-get install slurmd slurmctld slurm-client munge"
    return "" if os.geteuid() == 0 else "Slurm's daemons are started by root alone"


# What runs trials on the node: tests/assets/trial.py, or a command.
trainer = functools.partial(TrainerBackend, entry="trial:main", preload=(), silence_seconds=PATIENCE_SECONDS)
command = functools.partial(CommandBackend, Direction.MAXIMIZE, silence_seconds=PATIENCE_SECONDS)


def backend(
    artifacts: Path,
    make_backend: Callable[[], Backend],
    note: Callable[[str], None] = lambda line: None,
    **changes: Any,
) -> Fleet:
    """Returns a backend of jobs that run trials by `make_backend`, one core each."""
    settings = SlotSettings(
        make_backend=make_backend,
        artifacts=artifacts,
        probe=put_probe(artifacts),
        search_path=(*sys.path, ASSETS),
    )
    return Fleet(SlurmTransport("test", **{"workers": 1, "cores": 1} | changes), settings, note=note)


@contextmanager
def running() -> Iterator[None]:
    """Runs Slurm; its commands work in this process and in those that it starts."""
    folder = Path(tempfile.mkdtemp(prefix="protein-slurm-"))
    before = os.environ.get("SLURM_CONF")
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        folder.chmod(0o755)
        for name in ("state", "spool"):
            (folder / name).mkdir()
        key = folder / "munge.key"
        key.write_bytes(secrets.token_bytes(1024))
        key.chmod(0o400)
        configuration = folder / "slurm.conf"
        configuration.write_text(
            CONFIGURATION.format(
                folder=folder,
                host=socket.gethostname().partition(".")[0],
                cores=CORES,
                controller_port=_free_port(),
                node_port=_free_port(),
            ).lstrip()
        )
        names = {"key-file": "munge.key", "socket": "munge.sock", "pid-file": "munged.pid"}
        names |= {"log-file": "munged.log", "seed-file": "munge.seed"}
        files = [f"--{option}={folder / name}" for option, name in names.items()]
        _start(stack, folder, "munged", "--foreground", "--force", *files)
        _wait_for((folder / "munge.sock").exists, folder)
        _start(stack, folder, "slurmctld", "-D", "-f", str(configuration))
        _start(stack, folder, "slurmd", "-D", "-f", str(configuration))
        os.environ["SLURM_CONF"] = str(configuration)
        stack.callback(_restore, before)
        _wait_for(_node_is_idle, folder)
        yield


def _restore(value: str | None) -> None:
    if value is None:
        del os.environ["SLURM_CONF"]
    else:
        os.environ["SLURM_CONF"] = value


def _start(stack: ExitStack, folder: Path, *command: str) -> None:
    with (folder / f"{command[0]}.out").open("wb") as output:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    stack.callback(_end, process)


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _node_is_idle() -> bool:
    answer = subprocess.run(
        ["sinfo", "-h", "-o", "%T"], capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False
    )
    return answer.stdout.strip() == "idle"


def _wait_for(condition: object, folder: Path) -> None:
    assert callable(condition)
    until = time.monotonic() + START_SECONDS
    while not condition():
        if time.monotonic() > until:
            logs = "\n".join(file.read_text(errors="replace")[-500:] for file in sorted(folder.glob("*.log")))
            raise RuntimeError(f"Slurm did not start within {START_SECONDS:.0f} s:\n{logs}")
        time.sleep(0.2)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
