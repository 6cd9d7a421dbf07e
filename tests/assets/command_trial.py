"""A program for tests of sweeps over a command: it reports by JSON lines, and behaves as its first argument says."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path


def say(**fields: object) -> None:
    print(json.dumps(fields), flush=True)


def sleeping() -> list[str]:
    """Returns the command line of a child that sleeps, by which a test can tell it from those of other tests."""
    return [sys.executable, "-c", "import time; time.sleep(600)", os.environ["PROTEIN_CHECKPOINT_DIR"]]


def fork_twice() -> None:
    """Leaves a process behind that has a session of its own and no parent."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.execv(sys.executable, sleeping())
        os._exit(0)
    os.wait()


def main(behaviour: str) -> int:
    checkpoints = Path(os.environ["PROTEIN_CHECKPOINT_DIR"])
    if behaviour == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if behaviour == "polite":

        def end(*_: object) -> None:
            say(steps=2, score=None, cost_seconds=0.25)
            sys.exit(0)

        signal.signal(signal.SIGTERM, end)
    if behaviour == "silent":  # its cost is the wall clock
        say(steps=1, score=1.0)
        time.sleep(600)
    say(steps=1, score=1.0, cost_seconds=0.1, metrics={"loss": 0.5})
    while behaviour == "works" and time.process_time() < 0.5:
        pass
    if behaviour == "polite":
        say(steps=2, score=None, cost_seconds=0.25)
    if behaviour in ("hang", "stubborn", "polite"):
        time.sleep(600)
    if behaviour == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    if behaviour == "exit":
        print("the last words", file=sys.stderr)
        return 3
    if behaviour == "no memory":
        raise MemoryError("cannot allocate 1 GiB")
    if behaviour == "full disk":
        raise OSError(28, "No space left on device")
    if behaviour == "garbage":
        sys.stdout.buffer.write(
            b"\xff\xfe{not json\n" + b"{" * 100_000 + b"\n[1, 2]\n" + b'{"event": 7}\n' + b"x" * 3_000_000 + b"\n"
        )
        sys.stdout.buffer.write(b'{"score": "high"}\n{"steps": -4, "score": true}\n{"score": 1e999, "steps": 1e300}\n')
        sys.stdout.flush()
    while behaviour == "firehose":
        os.write(1, b"garbage\n" * 10_000)
    if behaviour == "memory":
        hoard = bytearray(300 * 2**20)
        time.sleep(600)
        print(len(hoard))
    if behaviour == "child":
        subprocess.Popen(sleeping())
    if behaviour == "daemon":
        fork_twice()
    if behaviour == "diverge":
        say(steps=2, score=None, cost_seconds=0.7)
        print("the loss is NaN at step 2", file=sys.stderr)
        return 1
    if behaviour == "nan":
        say(steps=2, score=float("nan"), cost_seconds=0.2)
        return 0
    say(steps=2, score=None, cost_seconds=0.2)
    if behaviour == "back":
        say(steps=1, score=7.0)
    if behaviour == "capped":
        say(steps=3, score=2.0, cost_seconds=30.0)
        time.sleep(600)
    say(steps=3, score=1.0, cost_seconds=0.3)
    result = 2.0
    if behaviour == "kept":  # it can be continued, and its score counts the trials of its run
        state = checkpoints / "state"
        text = "x" + (state.read_text() if state.exists() else "")
        state.write_text(text)
        result = len(text)
    say(result=result)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
