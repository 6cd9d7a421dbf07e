"""Slurm's own commands: a job is submitted, and what they refuse becomes one line."""

import contextlib
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence

from protein.errors import UsageError

COMMAND_SECONDS = 60.0  # within which Slurm's commands must answer
MAX_CHARACTERS = 300  # of what a command said
_SPEAKER = re.compile(r"^(sbatch|squeue|scancel): ((error|fatal): )?")
# `squeue -t all` also lists jobs that have ended, for some minutes. A job in any other state lives, also one that is
# just signalled, resized, or waits for its node to be switched on.
ENDED = frozenset(
    (
        *("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED"),
        *("REVOKED", "TIMEOUT"),
    )
)
_FORGOTTEN = "Invalid job id"  # what squeue says where it is asked for a single job, which has ended long ago
_UNUSABLE = {  # options for sbatch, short and long
    ("a", "array"): "each worker is a job of its own, and --workers says how many there are",
    ("W", "wait"): "the sweep does not wait for one job's end",
    ("M", "clusters"): "the sweep asks for its jobs on this machine's own cluster",
}
_ADVICE = re.compile(r"^Try .* for more information")


def parse(options: str) -> list[str]:
    """Returns options for sbatch as words, from a text such as "--partition=gpu --time=4:00:00".

    Raises:
        UsageError: it cannot be split into words, or has an option with which the sweep would lose sight of its jobs.
    """
    try:
        words = shlex.split(options)
    except ValueError as error:
        raise UsageError(f"--slurm-options {options} cannot be read: {error}") from error
    for word in words:
        for (short, long), why in _UNUSABLE.items():
            if word.partition("=")[0] == f"--{long}" or re.match(f"-{short}(?!-)", word):
                raise UsageError(f"--slurm-options: {word} cannot be used, as {why}; leave it out")
    return words


def resources(cores: int, gpus: int, options: Sequence[str]) -> list[str]:
    """Returns the words for sbatch that say what a job needs. The user's own come last, so they win."""
    return [f"--cpus-per-task={cores}", *([f"--gpus={gpus}"] if gpus else []), *options]


def check(asked: Sequence[str]) -> None:
    """Asks Slurm whether it takes a job of these `resources`. No job runs.

    Raises:
        UsageError: there is no Slurm here, or it refuses the job.
    """
    if shutil.which("sbatch") is None:
        raise UsageError("--backend slurm needs Slurm's sbatch on this machine, and there is none: use a login node")
    if attempt("sbatch", "--test-only", *asked, "--wrap=true") is None:
        # That also fails where no node is up just now. Then a job may wait, and only submitting one tells. A job that
        # is too large for every node passes here, and is refused when the first worker is submitted.
        attempt("scancel", submit("--hold", "--job-name=protein-check", "--output=/dev/null", *asked, "--wrap=true"))


def submit(*words: str) -> str:
    """Submits a job and returns its number. Raises `UsageError` where Slurm refuses it."""
    return call("sbatch", "--parsable", *words).strip().splitlines()[-1].partition(";")[0]


def states(numbers: Sequence[str]) -> Mapping[str, str] | None:
    """Returns the states of jobs by number, without those that Slurm has forgotten; None: it does not answer."""
    try:
        answer = call("squeue", "-h", "-t", "all", "-o", "%i %T", "-j", ",".join(numbers))
    except UsageError as error:
        return {} if _FORGOTTEN in str(error) else None
    return dict(line.split()[:2] for line in answer.splitlines() if len(line.split()) >= 2)


def reasons(numbers: Sequence[str]) -> list[str]:
    """Returns why jobs wait, in Slurm's words, such as Resources or PartitionTimeLimit; none where it is not known."""
    answer = attempt("squeue", "-h", "-t", "PENDING", "-o", "%r", "-j", ",".join(numbers)) if numbers else None
    return [line.strip() for line in (answer or "").splitlines() if line.strip() not in ("", "None")]


def call(*command: str) -> str:
    """Runs one of Slurm's commands and returns what it prints. Raises `UsageError` where that fails.

    Filters that the user has set for squeue and scancel would hide jobs: one that is not seen is taken for ended. So
    would the variables that stand for the options that `parse` refuses.
    """
    hiding = ("SQUEUE_", "SCANCEL_", "SBATCH_ARRAY_INX", "SBATCH_WAIT", "SBATCH_CLUSTERS")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(hiding)}
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            env=environment,
            timeout=COMMAND_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UsageError(f"{command[0]} does not work: {error}") from error
    if done.returncode:
        words = said(done.stderr) or f"exit code {done.returncode}"
        raise UsageError(f"{command[0]} refused: {words}; see --slurm-options")
    return done.stdout


def attempt(*command: str) -> str | None:
    """Runs one of Slurm's commands and returns what it prints; None: it fails."""
    with contextlib.suppress(UsageError):
        return call(*command)
    return None


def said(text: str) -> str:
    """Returns in one line what a command has printed on several, without who says it and where to read on."""
    lines = [_SPEAKER.sub("", " ".join(line.split())) for line in text.splitlines()]
    kept = [line for line in lines if line and not _ADVICE.match(line)]
    return "; ".join(dict.fromkeys(kept))[:MAX_CHARACTERS]
