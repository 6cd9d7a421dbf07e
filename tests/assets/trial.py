"""A trial's process for tests: speaks the trainer's protocol, and behaves as `train.behaviour` in its config says."""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

FAILURES = {  # reason and message, as the trainer gives them
    "full disk": ("disk", "no space is left; free some"),
    "no memory": ("memory", "out of memory: lower env.num_envs"),
    "lost process": ("process", "process 1 of 2 died: start the run again"),
    "user's error": ("error", "ValueError: no such level"),
    "bad config": ("config", "too many environments"),
}


def say(event: str, **fields: object) -> None:
    """Says an event in one write: a signal's handler may say one while another is being said."""
    os.write(1, json.dumps({"event": event, **fields}).encode() + b"\n")


def measure(step: int, score: float | None = 1.0) -> None:
    say("measurement", steps=step, elapsed_seconds=step / 10, score=score, metrics={"loss": 0.5})


def wait_for(path: str) -> None:
    """Waits until there is a file that the test makes."""
    while not Path(path).exists():
        time.sleep(0.05)


def spend(train: dict[str, Any]) -> int:
    """Costs all that it may, or what it has cost when it is told to end; it is evaluated for a while at its limit.

    With `waits_for` it spends nothing until there is that file. At step `hangs_at` it waits a minute to be told to end.
    """
    step = 0

    def end(*_: object) -> None:
        say("interrupted", score=None, steps=step, elapsed_seconds=step / 10, stopped="signal")
        sys.exit(130)

    signal.signal(signal.SIGTERM, end)
    if "waits_for" in train:
        wait_for(train["waits_for"])
    while step / 10 < train["max_seconds"]:
        step += 1
        time.sleep(0.02)
        measure(step, 1.0)
        if step == train.get("hangs_at"):
            time.sleep(60)
    time.sleep(0.5)
    say("result", score=2.0, steps=step, elapsed_seconds=step / 10, stopped="max_seconds")
    return 0


def save(train: dict[str, Any], arguments: argparse.Namespace) -> int:
    """Makes four steps. Each is saved in the trainer's format, then told; a resumed trial goes on from there.

    With `waits_for` it waits after its second step until there is that file. With `continuable` it can be continued.
    With `keeps_cap` it ends itself at its limit of cost.

    A file `hang-0001` beside the trials' folders makes trial 1 hang once: its text is a step, and "saved" or "unsaved".
    """
    first, checkpoint = 0, arguments.directory / "checkpoint.safetensors"
    goes_on_from = arguments.resume or arguments.continue_from
    if goes_on_from is not None:
        content = goes_on_from.read_bytes()
        length = int.from_bytes(content[:8], "little")
        first = json.loads(json.loads(content[8 : 8 + length])["__metadata__"]["run"])["steps"]
    if arguments.resume is None and first == 4:  # of a complete trial: a longer run, which counts its own steps
        first = 0
    behind = 0.0 if arguments.continue_from is None else first * train["cost"] / 4
    hangs = arguments.directory.parent / f"hang-{arguments.directory.name}"
    where = hangs.read_text().split() if hangs.exists() else ["0", ""]
    for step in range(first + 1, 5):
        seconds = step * train["cost"] / 4 - behind
        hangs_here = where[0] == str(step)
        if hangs_here and where[1] == "unsaved":
            hangs.unlink()
            say("measurement", steps=step, elapsed_seconds=seconds, score=step / 10, metrics={})
            time.sleep(600)
        run = {"config": {"train": {"seed": train["seed"]}}, "steps": step, "elapsed_seconds": seconds}
        header = json.dumps({"__metadata__": {"run": json.dumps(run)}}).encode()
        fresh = checkpoint.with_suffix(".new")
        fresh.write_bytes(len(header).to_bytes(8, "little") + header)
        fresh.replace(checkpoint)
        if hangs_here:
            hangs.unlink()
        say("measurement", steps=step, elapsed_seconds=seconds, score=step / 10, metrics={})
        if hangs_here:
            time.sleep(600)
        if "keeps_cap" in train and 0.0 < train["max_seconds"] <= seconds and step < 4:
            say("result", timings={}, score=step / 10, steps=step, elapsed_seconds=seconds, stopped="max_seconds")
            return 0
        if step == 2 and "waits_for" in train:
            wait_for(train["waits_for"])
        if train.get("hangs_at") == step:  # in each of its lives
            time.sleep(600)
    left: dict[str, object] = {}
    if "continuable" in train:
        left = {"continuable": str(checkpoint), "continuable_seconds": train["cost"]}
    ending = {
        "score": train["score"],
        "steps": 4,
        "elapsed_seconds": train["cost"] - behind,
        "checkpoint": str(checkpoint),
    }
    say("result", timings={}, **ending, **left)
    return 0


def sleeping(directory: Path) -> list[str]:
    """Returns the command line of a child that sleeps, by which a test can tell it from those of other tests."""
    return [sys.executable, "-c", "import time; time.sleep(600)", str(directory)]


def daemonize(directory: Path) -> None:
    """Leaves behind a process that no group or session leads to, as a daemon does."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.setsid()
            os.execv(sys.executable, sleeping(directory))
        os._exit(0)
    os.wait()


def tell(path: Path, gpu_given: bool) -> None:
    """Writes where this process runs and what it was given."""
    names = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "OMP_NUM_THREADS", "OF_THE_TEST")
    facts = {
        "cores": sorted(os.sched_getaffinity(0)),
        "environment": {name: os.environ[name] for name in names if name in os.environ},
        "arguments": sys.argv,
        "gpu_given": gpu_given,
        "directory": str(Path.cwd()),
    }
    if "torch" in sys.modules:
        import torch

        facts["cuda"] = {
            "initialized": torch.cuda.is_initialized(),
            "counted": torch.cuda._cached_device_count is not None,
            "threads": len(list(Path("/proc/self/task").iterdir())),
        }
    path.write_text(json.dumps(facts))


def main(command_line: list[str]) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", type=Path)
    parser.add_argument("--directory", type=Path)
    parser.add_argument("--continue-from", type=Path)
    parser.add_argument("--resume", type=Path)
    parser.add_argument("--nproc", type=int)
    parser.add_argument("--speed", type=float, default=1.0)
    parser.add_argument("--gpu-given", action="store_true")
    arguments = parser.parse_args(command_line)
    train = json.loads(arguments.config.read_text())["train"]
    behaviour = train.get("behaviour", "good")

    if behaviour == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if behaviour == "polite":

        def end(*_: object) -> None:
            say("interrupted", score=None, steps=2, elapsed_seconds=0.25, stopped="signal")
            sys.exit(130)

        signal.signal(signal.SIGTERM, end)
    say("start", pid=os.getpid())
    if behaviour == "saves":
        return save(train, arguments)
    if behaviour == "costs too much":
        say("measurement", steps=1, elapsed_seconds=1e300, score=1.0, metrics={})
        time.sleep(600)
    measure(1)
    began = time.process_time()
    if behaviour == "polite":
        measure(2, None)
        time.sleep(600 if train.get("score", 0.0) < 0.5 else 0.0)
    if behaviour in ("hang", "stubborn", "silent"):
        time.sleep(600)
    while behaviour == "works" and time.process_time() - began < 0.5:
        pass
    if behaviour == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    if behaviour == "exit":
        print("the last words", file=sys.stderr)
        return 3
    if behaviour == "garbage":
        sys.stdout.buffer.write(
            b"\xff\xfe{not json\n"
            + b"[" * 100_000
            + b"\n[1, 2]\n"
            + b'{"event": 7}\n'
            + b'{"event": "measurement"}\n{"event": "measurement", "steps": 1e300, "elapsed_seconds": 1}\n'
            + b"x" * 3_000_000
            + b"\n"
        )
        sys.stdout.flush()
    while behaviour == "firehose":
        os.write(1, b"garbage\n" * 10_000)
    if behaviour == "spend":  # to its limit, a tenth of a second at a time
        return spend(train)
    if behaviour in FAILURES:
        reason, message = FAILURES[behaviour]
        say("failed", reason=reason, message=message, steps=1, elapsed_seconds=0.1)
        return 1
    if behaviour == "memory":
        hoard = bytearray(300 * 2**20)
        time.sleep(600)
        print(len(hoard))
    if behaviour == "child":
        subprocess.Popen(sleeping(arguments.directory))
    if behaviour == "family":
        subprocess.run(sleeping(arguments.directory), check=False)
    if behaviour == "daemon":
        daemonize(arguments.directory)
    if behaviour == "noise":
        for number in range(40):
            os.write(2, b"%d" % number + b"." * 2**20 + b"\n")
    if behaviour == "tell":
        tell(arguments.directory / "told.json", arguments.gpu_given)
    if behaviour == "diverge":
        say("failed", reason="diverged", message="diverged as the loss is NaN at step 2", steps=2, elapsed_seconds=0.7)
        return 1
    if behaviour in ("nan", "huge"):
        score = "NaN" if behaviour == "nan" else "1e301"
        print(f'{{"event": "measurement", "steps": 2, "elapsed_seconds": 0.2, "score": {score}}}', flush=True)
        print(f'{{"event": "result", "score": {score}, "steps": 2, "elapsed_seconds": 0.2}}', flush=True)
        return 0
    time.sleep(train.get("sleep", 0.0))
    measure(2, None)
    measure(3)
    checkpoint = arguments.directory / "checkpoint"
    checkpoint.write_text("weights")
    stopped = {"stopped": "max_seconds"} if behaviour == "capped" else {}
    final, kept = train.get("score", 2.0), {}
    if behaviour == "kept":  # it can be continued, and its score counts the trials of its run
        state = arguments.directory / "state"
        state.write_text("x" + (arguments.continue_from.read_text() if arguments.continue_from else ""))
        final = len(state.read_text())
        kept = {"continuable": str(state), "continuable_seconds": 0.2}
    seconds = train.get("cost", 0.3)
    say(
        "result",
        score=final,
        steps=3,
        elapsed_seconds=seconds,
        timings={"evaluation": 0.1},
        checkpoint=str(checkpoint),
        **stopped,
        **kept,
    )
    if behaviour == "lingers":
        time.sleep(600)
    return 4 if behaviour == "late exit" else 0
