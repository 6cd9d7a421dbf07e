"""A node of a Ray cluster as a process of its own: `python -m ray_node ADDRESS CORES [FOLDER]`.

The node lives as long as this process, which ends with its input. A folder is empty for this process and all that it
starts, whatever others have there: it has its own mounts. So it shares that folder with nobody.
"""

import ctypes
import subprocess
import sys
from pathlib import Path
from typing import Any

from ray_clusters import OBJECT_STORE_BYTES, PORTS, free_ports, patient

CLONE_NEWNS = 0x00020000  # as in sched.h; `os.unshare` is there from Python 3.12 on


def hide(folder: str) -> None:
    """Mounts an empty file system over a folder, for this process and those that it starts."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNS) != 0:
        raise OSError(ctypes.get_errno(), "unshare")
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)  # so that others do not see what is mounted here
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", folder], check=True)
    assert not list(Path(folder).iterdir())


def main(address: str, cores: str, folder: str = "") -> None:
    if folder:
        hide(folder)
    from ray._private import node, parameter

    ports: dict[str, Any] = dict(zip(PORTS, free_ports(len(PORTS)), strict=True))
    parameters: Any = parameter.RayParams
    wanted = parameters(
        gcs_address=address,
        num_cpus=int(cores),
        num_gpus=0,
        object_store_memory=OBJECT_STORE_BYTES,
        include_log_monitor=False,
        min_worker_port=0,
        max_worker_port=0,
        **ports,
    )
    with patient(ports):
        started: Any = node.Node(wanted, head=False, shutdown_at_exit=True, spawn_reaper=True)
    print("it runs", flush=True)
    sys.stdin.read()
    started.kill_all_processes(check_alive=False, allow_graceful=False)


if __name__ == "__main__":
    main(*sys.argv[1:])
