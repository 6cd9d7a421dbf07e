"""A wall clock that can be set for some processes alone (see `clock.c`)."""

import atexit
import functools
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

SOURCE = Path(__file__).with_name("clock.c")


@functools.cache
def library() -> Path | None:
    """Returns the compiled library; None where there is no C compiler."""
    compiler = next((found for name in ("cc", "gcc", "clang") if (found := shutil.which(name))), None)
    if compiler is None:
        return None
    target = Path(tempfile.mkdtemp(prefix="protein-clock-")) / "clock.so"
    atexit.register(shutil.rmtree, target.parent, ignore_errors=True)
    target.parent.chmod(0o755)  # a database server runs as another user
    subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", target, SOURCE], check=True)
    return target


class Clock:
    """The wall clock of the processes that are started with `environment`."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "clock"
        self._file.write_bytes(struct.pack("q", 0))
        self._file.chmod(0o644)
        self.offset_seconds = 0

    @property
    def environment(self) -> Mapping[str, str]:
        preload = library()
        return {} if preload is None else {"LD_PRELOAD": str(preload), "FAULTS_CLOCK": str(self._file)}

    def jump(self, seconds: int) -> None:
        self.offset_seconds += seconds
        with self._file.open("r+b") as file:  # in place: the processes have mapped it
            file.write(struct.pack("q", self.offset_seconds))
