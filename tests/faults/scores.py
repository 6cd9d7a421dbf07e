"""A command that writes its scores as programs do, and what a plain reader finds in the files that it has left.

    python scores.py KIND DIRECTORY STEPS RATE

KIND is where the scores go: "csv", "jsonl", "tensorboard" or "lines". Trials of one sweep differ in how: they append to
their file, open it anew at each start, write it anew with every row, replace it, rotate it, or cut it back to their
checkpoint. Each writes its rows in two halves, so that a kill leaves half a row.
"""

import json
import os
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any

from tests.faults import evidence

HOLD = "FAULTS_HOLD"  # the environment variable with the step at which a trial waits for its end
STEP_SECONDS = 0.03
CHECKPOINT_STEPS = 5
WAYS = ("append", "repeat the header", "open anew", "write anew", "replace", "rotate", "cut back")
SPACE = """
cost_parameter = "steps"

[space]
steps = { min = 10, max = 60, scale = "log" }
rate = { min = 0.0, max = 1.0 }
"""
FLAGS = {  # of `protein sweep`, by kind
    "csv": ["--score-csv", "metrics.csv:acc,step"],
    "jsonl": ["--score-csv", "**/metrics.jsonl:acc,step"],
    "tensorboard": ["--score-tensorboard", "eval_*:acc"],
    "lines": [],
}


def command(kind: str) -> str:
    """Returns the command line of a sweep."""
    return f"{shlex.quote(sys.executable)} -S {shlex.quote(__file__)} {kind} {{directory}} {{steps}} {{rate}}"


def score(rate: float, step: int) -> float:
    """Returns the score after some steps. It rises, and swings: an earlier one may be better than the last."""
    return round((1 - (rate - 0.3) ** 2) * (1 - 0.9**step) + 0.01 * (step * 7 % 5), 6)


_is_held = False


class Rows:
    """A table or a file of JSON Lines."""

    def __init__(self, kind: str, folder: Path, way: str, done: list[tuple[int, float]]) -> None:
        self.kind, self.path, self.way, self.rows = kind, folder / f"metrics.{kind}", way, done
        self.with_loss = False
        was_there = self.path.exists()
        if way == "rotate" and was_there:
            self.path.replace(self.path.with_suffix(".old"))
        if way in ("write anew", "replace", "cut back"):
            self.write_anew()
        if way in ("open anew", "rotate") or not was_there:
            self.path.write_text(self.header)
        elif way == "repeat the header":
            self.append(self.header)

    @property
    def header(self) -> str:
        return ("loss," if self.with_loss else "") + "step,acc\n" if self.kind == "csv" else ""

    def line(self, step: int, value: float) -> str:
        loss = {"loss": 1.5} if self.with_loss else {}
        if self.kind == "csv":
            return ",".join(map(str, [*loss.values(), step, value])) + "\n"
        return json.dumps({**loss, "step": step, "acc": value}) + "\n"

    def append(self, text: str) -> None:
        with self.path.open("a") as file:
            halves(file, text)

    def write_anew(self) -> None:
        text = self.header + "".join(self.line(*row) for row in self.rows)
        new = self.path.with_suffix(".new") if self.way == "replace" else self.path
        with new.open("w") as file:
            halves(file, text)
        new.replace(self.path)

    def add(self, step: int, value: float) -> None:
        self.rows.append((step, value))
        if self.way in ("write anew", "replace"):
            self.with_loss = step > 2 * CHECKPOINT_STEPS
            self.write_anew()
        else:
            if self.way == "rotate" and step % 12 == 0:
                self.path.replace(self.path.with_suffix(".old"))
                self.path.write_text(self.header)
            self.append(self.line(step, value))


class Events:
    """Event files, in a folder for training and another one for evaluation; a run that goes on has files of its own."""

    def __init__(self, folder: Path, way: str) -> None:
        self.folder = folder / "runs"
        self.start = len(list(self.folder.rglob("eval_*/events.*")))
        self.number = 0 if way in WAYS[::2] else self.start  # the same folder, or a new one

    def add(self, step: int, value: float) -> None:
        import event_files

        for name, one in (("train", -1.0), ("eval", value)):
            folder = self.folder / f"{name}_{self.number}"
            folder.mkdir(parents=True, exist_ok=True)
            data = event_files.record("acc", step, one, time.time())
            with (folder / f"events.out.tfevents.{self.start:04}.host").open("ab") as file:
                halves(file, data)


def print_line(step: int, value: float) -> None:
    """Prints a JSON line; every third one as a logger does."""
    prefix = "INFO:root:" if step % 3 == 0 else ""
    halves(sys.stdout, f"{prefix}{json.dumps({'steps': step, 'score': value})}\n")


def halves(file: IO[Any], text: str | bytes) -> None:
    """Writes in two parts. A trial that is held waits between them for its end."""
    for half in (text[: len(text) * 2 // 3], text[len(text) * 2 // 3 :]):
        file.write(half)
        file.flush()
        if _is_held:
            evidence.write("held", int(os.environ["PROTEIN_TRIAL"]))
            time.sleep(600)


def train(kind: str, folder: Path, steps: int, rate: float) -> None:
    global _is_held
    number = int(os.environ["PROTEIN_TRIAL"])
    way, state = WAYS[number % len(WAYS)], Path(os.environ["PROTEIN_CHECKPOINT_DIR"], "step")
    done = int(state.read_text()) if state.exists() else 0
    before = [(step, score(rate, step)) for step in range(1, done + 1)]
    add: Callable[[int, float], None] = print_line
    if kind == "tensorboard":
        add = Events(folder, way).add
    elif kind != "lines":
        add = Rows(kind, folder, way, before).add
    for step in range(done + 1, steps + 1):
        time.sleep(STEP_SECONDS)
        _is_held = str(step) == os.environ.get(HOLD)
        add(step, score(rate, step))
        if step % CHECKPOINT_STEPS == 0 and step < steps:
            state.with_suffix(".new").write_text(str(step))
            state.with_suffix(".new").replace(state)


def plain(kind: str, folder: Path) -> float | None:
    """Returns the last score in a trial's final files, read without the code that is tested."""
    if kind == "tensorboard":
        from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

        last = max((folder / "runs").rglob("eval_*/events.*"), key=lambda path: path.name)
        values = [value for event in EventFileLoader(str(last)).Load() for value in event.summary.value]
        return float(values[-1].tensor.float_val[0])
    if kind == "csv":
        return float((folder / "metrics.csv").read_text().splitlines()[-1].split(",")[-1])
    file, name = ("trial.log", "score") if kind == "lines" else ("metrics.jsonl", "acc")
    return float(json.loads((folder / file).read_text().splitlines()[-1].removeprefix("INFO:root:"))[name])


def wrong(kind: str, trials: Sequence[dict[str, Any]], folder: Path) -> list[str]:
    """Every stored score of a complete trial is the one that a plain reader finds in its final files."""
    found = []
    for row in trials:
        if row["state"] != "complete":
            continue
        (own,) = folder.glob(f"**/disturbed/{row['number']:04}")
        params = json.loads((own / "params.json").read_text())
        right, last = plain(kind, own), score(params["rate"], params["steps"])
        if row["score"] != right or right is None or abs(right - last) > 1e-6:
            way = WAYS[row["number"] % len(WAYS)]
            found.append(f"trial {row['number']} ({way}) has the score {row['score']}; its files say {right} of {last}")
    return found


if __name__ == "__main__":
    lock = evidence.begin(int(os.environ["PROTEIN_TRIAL"]))
    train(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))
    evidence.write("end", int(os.environ["PROTEIN_TRIAL"]))
    os.close(lock)
