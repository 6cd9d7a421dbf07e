"""What this process uses of the machine at the moment: cores, memory, and the GPU that it trains on."""

import dataclasses
import shutil
import subprocess
import sys
import threading
import time

import psutil

from protein.trainer.machine.cores import usable_cores

GPU_SECONDS = 2.0  # between looks at the GPU's utilisation: asking takes a process of its own


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """Memory is what PyTorch holds. `utilisation` is the share of time in which something ran; None: not known."""

    memory_bytes: int
    total_bytes: int
    utilisation: float | None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """`busy_cores` is the process's CPU time over the time since the last look, 0 at the first one."""

    busy_cores: float
    cores: int
    memory_bytes: int
    total_bytes: int
    gpu: Gpu | None


class Machine:
    """Looks at this process; `sample` takes a tenth of a millisecond."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        self._process.cpu_percent()  # begins the first span
        self._cores = usable_cores()
        self._total = psutil.virtual_memory().total
        self._utilisation: float | None = None
        self._asked = -GPU_SECONDS
        self._asking: threading.Thread | None = None

    def sample(self, device: str) -> Usage:
        """Returns the usage now.

        Args:
            device: where the training runs, as torch names it; only `cuda` devices have GPU figures.
        """
        return Usage(
            busy_cores=self._process.cpu_percent() / 100,
            cores=self._cores,
            memory_bytes=self._process.memory_info().rss,
            total_bytes=self._total,
            gpu=self._gpu(device) if device.startswith("cuda") else None,
        )

    def _gpu(self, device: str) -> Gpu:
        torch = sys.modules["torch"]  # imported already by the training that is watched
        properties = torch.cuda.get_device_properties(device)
        now = time.monotonic()
        if now - self._asked >= GPU_SECONDS and (self._asking is None or not self._asking.is_alive()):
            self._asked = now
            # In a thread: the driver may be slow, and the view must not wait for it.
            self._asking = threading.Thread(target=self._ask, args=(f"GPU-{properties.uuid}",), daemon=True)
            self._asking.start()
        return Gpu(
            memory_bytes=torch.cuda.memory_reserved(device),
            total_bytes=properties.total_memory,
            utilisation=self._utilisation,
        )

    def _ask(self, uuid: str) -> None:
        self._utilisation = gpu_utilisation(uuid)


def gpu_utilisation(uuid: str) -> float | None:
    """Returns the share of the last moments, in [0, 1], in which the GPU was busy; None where that is not known."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return None
    query = [program, f"--id={uuid}", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=GPU_SECONDS, check=True)
        return float(done.stdout) / 100
    except (OSError, subprocess.SubprocessError, ValueError):  # ValueError: "[N/A]", as for a slice of a GPU
        return None
