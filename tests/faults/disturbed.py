"""One sweep under faults: its processes, its store, its clock, its disk, and what it has printed."""

import contextlib
import dataclasses
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Sequence
from pathlib import Path

import psutil
from small_runs import small_config

from tests.faults import checker, evidence, scores
from tests.faults.clock import Clock
from tests.faults.database import Database

PROGRAM = "tests.faults.program"
TESTS = Path(__file__).resolve().parent.parent
PATH = os.pathsep.join([str(TESTS / "support"), str(TESTS.parent)])
RIVAL_SECONDS = 90.0  # for the same command to be refused; a busy machine may take 20 s to import torch
DISK_BYTES = (512 + 64) << 20  # a sweep starts no trial where less than 512 MiB are free
SMALL = small_config(8_000, 2_000, 40_000)


@dataclasses.dataclass(frozen=True, slots=True)
class Subject:
    """What is swept, where it is stored, and by how many workers."""

    # "function", "processes", "ray", "folder" or "served", see `faults.sweeps`; "trainer": `protein sweep` on cartpole;
    # "csv", "jsonl", "tensorboard" or "lines": `protein sweep --command` of a program that writes its scores so, see
    # `faults.scores`.
    kind: str
    store: str  # "sqlite" or "postgresql"
    workers: int
    trials: int
    seed: int
    on_small_disk: bool = False

    @property
    def is_command(self) -> bool:
        return self.kind in scores.FLAGS

    @property
    def tells_costs(self) -> bool:
        """Whether its trials tell what they cost, step by step."""
        return self.kind != "trainer" and not self.is_command

    @property
    def name(self) -> str:
        kind = f"command with {self.kind}" if self.is_command else self.kind
        return f"{kind}, {self.store}, {self.workers} worker{'' if self.workers == 1 else 's'}"


class Disturbed:
    """A sweep that is started again and again by the same command, in a folder of its own."""

    def __init__(self, subject: Subject, root: Path | None = None) -> None:
        """Starts nothing yet, but for a database server.

        Args:
            subject: what is swept.
            root: a folder for everything, which stays; None: a temporary one.
        """
        self.subject = subject
        self._stays = root is not None
        self.root = root or Path(tempfile.mkdtemp(prefix="protein-faults-"))
        self.root.chmod(0o755)
        self.mark = uuid.uuid4().hex
        self.clock = Clock(self.root)
        self.folder = self.root / "sweep"
        self.folder.mkdir(exist_ok=True)
        self.disk = subject.on_small_disk
        if self.disk:
            subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", self.folder], check=True)
        self.database = Database(self.clock.environment) if subject.store == "postgresql" else None
        self.url = self.database.url if self.database else f"sqlite:///{self.folder}/protein.db"
        self.evidence_file = self.root / "evidence.jsonl"
        self._lives = len(list(self.root.glob("life-*.out")))
        self._process: subprocess.Popen[bytes] | None = None
        self._nodes: subprocess.Popen[str] | None = None
        self._ray_address = ""
        if subject.kind in ("ray", "folder", "served"):
            self._start_nodes()

    def _start_nodes(self) -> None:
        with (self.root / "nodes.out").open("w") as output:
            kind = "ray" if self.subject.kind == "ray" else "folder"
            self._nodes = subprocess.Popen(
                [sys.executable, "-m", f"tests.faults.{kind}_nodes", str(self.folder), self.subject.kind],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                text=True,
                cwd=self.root,
                env={**os.environ, evidence.FILE: str(self.evidence_file), "PYTHONPATH": PATH},
                start_new_session=True,
            )
        assert self._nodes.stdout is not None
        self._ray_address = self._nodes.stdout.readline().strip()
        assert self._ray_address, (self.root / "nodes.out").read_text()[-2000:]

    def kill_node(self, what: str = "kill") -> None:
        """Kills a node of the Ray cluster, or a worker, and adds another one; "serve": the server of workers."""
        assert self._nodes is not None and self._nodes.stdin is not None and self._nodes.stdout is not None
        self._nodes.stdin.write(f"{what}\n")
        self._nodes.stdin.flush()
        self._nodes.stdout.readline()

    @property
    def command(self) -> list[str]:
        subject = self.subject
        if subject.kind == "trainer":
            (self.root / "small.toml").write_text(SMALL)
            words = f"sweep --env cartpole --config {self.root}/small.toml --name disturbed --max-cost 10m"
            limits = f"--max-trials {subject.trials} --workers {subject.workers} --seed {subject.seed}"
            # A sweep on a new PostgreSQL store would measure the machine first, for longer than it runs.
            limits += " --calibrate False"
            return [sys.executable, "-m", "protein", *words.split(), *limits.split(), "--store", self.url]
        if subject.is_command:
            (self.root / "space.toml").write_text(scores.SPACE)
            words = f"sweep --space {self.root}/space.toml --name disturbed --max-cost 10m --calibrate False"
            limits = f"--max-trials {subject.trials} --workers {subject.workers} --seed {subject.seed}"
            how = ["--command", scores.command(subject.kind), *scores.FLAGS[subject.kind], "--store", self.url]
            return [sys.executable, "-m", "protein", *words.split(), *limits.split(), *how]
        limits = f"--trials {subject.trials} --workers {subject.workers} --seed {subject.seed}"
        return [sys.executable, "-m", PROGRAM, subject.kind, self.url, *limits.split()]

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None
        return self._process

    def start(self) -> None:
        self._process = self._run(f"life-{self._lives}")
        self._lives += 1

    def run_rival(self) -> tuple[int | None, str]:
        """Runs the same command beside the sweep; returns its exit code (None: it went on running) and its output."""
        rival = self._run("rival")
        try:
            code: int | None = rival.wait(RIVAL_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(rival.pid, signal.SIGKILL)
            rival.wait()
            code = None
        return code, (self.root / "rival.out").read_text()

    def _run(self, name: str) -> subprocess.Popen[bytes]:
        environment = {
            **os.environ,
            **self.clock.environment,
            evidence.FILE: str(self.evidence_file),
            checker.MARK: self.mark,
            "PYTHONPATH": PATH,
            "FAULTS_RAY": self._ray_address,
            "OMP_NUM_THREADS": "1",
        }
        with (self.root / f"{name}.out").open("ab") as output:
            return subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=self.folder,
                env=environment,
                start_new_session=True,
            )

    def last_line(self) -> str:
        """Returns the last line that the sweep's process has printed."""
        lines = (self.root / f"life-{self._lives - 1}.out").read_text(errors="replace").splitlines()
        return next((line for line in reversed(lines) if line.strip()), "")

    @property
    def outputs(self) -> Sequence[Path]:
        """Returns everything that its processes have printed, logs of trials included."""
        return [*sorted(self.root.glob("*.out")), *sorted(self.folder.rglob("trial.log"))]

    def trials(self) -> list[int]:
        """Returns the ids of the processes of running trials."""
        server = self.server()
        if server is None:
            return []
        with contextlib.suppress(psutil.Error):
            return [child.pid for child in psutil.Process(server).children()]
        return []

    def server(self) -> int | None:
        """Returns the id of the process that trials are forked from."""
        with contextlib.suppress(psutil.Error):
            for child in psutil.Process(self.process.pid).children():
                if "fork_server" in " ".join(child.cmdline()):
                    return int(child.pid)
        return None

    def fill_disk(self) -> None:
        with (self.folder / "filler").open("wb", buffering=0) as file, contextlib.suppress(OSError):
            free = os.statvfs(self.folder).f_bavail * os.statvfs(self.folder).f_bsize
            os.posix_fallocate(file.fileno(), 0, max(free - (1 << 20), 1))
            file.seek(0, os.SEEK_END)
            while True:
                file.write(bytes(1 << 14))

    def empty_disk(self) -> None:
        (self.folder / "filler").unlink()

    def wait_until_gone(self, seconds: float) -> list[str]:
        """Waits until no process of the sweep lives; returns those that live on after the given seconds."""
        end = time.monotonic() + seconds
        while (found := checker.left_behind(self.mark)) and time.monotonic() < end:
            time.sleep(0.1)
        return found

    def close(self) -> None:
        for process in checker.processes(self.mark):
            with contextlib.suppress(psutil.Error):
                process.kill()
        if self._process is not None:
            self._process.wait()
        if self._nodes is not None:
            self._nodes.communicate()  # it ends with its input
        if self.database is not None:
            self.database.close()
        if self.disk:
            subprocess.run(["umount", "-l", self.folder], check=True)
        if not self._stays:
            shutil.rmtree(self.root, ignore_errors=True)
