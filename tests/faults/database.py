"""A PostgreSQL server that can be killed and started again on the same data. Unlike that of the other tests, it keeps
every commit through a `kill -9`."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import psutil
import psycopg
from postgresql import NOBODY, START_SECONDS, create_database, find_binaries


class Database:
    """One server with one empty database; `url` is that of the store."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._binaries = find_binaries()
        self._folder = Path(tempfile.mkdtemp(prefix="protein-faults-database-"))
        self._as_user: list[str] = []
        if os.geteuid() == 0:
            self._folder.chmod(0o755)
            os.chown(self._folder, NOBODY, NOBODY)
            self._as_user = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
        self._environment = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "TZ": "UTC", **environment}
        data = ["-D", str(self._folder / "data"), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync"]
        subprocess.run(
            [*self._as_user, str(self._binaries / "initdb"), *data],
            check=True,
            capture_output=True,
            env=self._environment,
            cwd=self._folder,
        )
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port = probe.getsockname()[1]
        self.start()
        create_database(f"postgresql+psycopg://postgres@127.0.0.1:{self._port}", "faults")

    @property
    def url(self) -> str:
        return f"postgresql+psycopg://postgres@127.0.0.1:{self._port}/faults"

    def start(self) -> None:
        """Starts the server and waits until it answers. Processes of a killed one may be in its way for a moment."""
        options = ["-D", str(self._folder / "data"), "-h", "127.0.0.1", "-p", str(self._port), "-k", ""]
        # The kernel keeps what was written before a process is killed: only a power cut needs a sync.
        command = [*self._as_user, str(self._binaries / "postgres"), *options, "-c", "fsync=off"]
        end = time.monotonic() + START_SECONDS
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                command, stdout=log, stderr=log, cwd=self._folder, env=self._environment, start_new_session=True
            )
            while time.monotonic() < end:
                with contextlib.suppress(psycopg.OperationalError):
                    psycopg.connect(host="127.0.0.1", port=self._port, user="postgres", dbname="postgres").close()
                    return
                if self._process.poll() is not None:
                    self._process = subprocess.Popen(
                        command, stdout=log, stderr=log, cwd=self._folder, env=self._environment, start_new_session=True
                    )
                time.sleep(0.1)
        raise RuntimeError(f"PostgreSQL did not start: {(self._folder / 'log').read_text()[-2000:]}")

    def kill(self) -> None:
        """Kills the whole server at once, as a crash of its machine would."""
        processes = psutil.Process(self._process.pid).children(recursive=True)
        for pid in (self._process.pid, *(process.pid for process in processes)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()

    def kill_one_connection(self) -> bool:
        """Kills a process that serves one connection; the server then ends all others, and recovers by itself."""
        for process in psutil.Process(self._process.pid).children():
            with contextlib.suppress(psutil.Error):
                if "postgres faults" in " ".join(process.cmdline()):
                    os.kill(process.pid, signal.SIGKILL)
                    return True
        return False

    def close(self) -> None:
        self._process.send_signal(signal.SIGINT)
        self._process.wait(START_SECONDS)
        shutil.rmtree(self._folder, ignore_errors=True)
