"""A campaign of damage: flips bits in copies of a store, and runs every reading command on each.

    python tests/support/damage.py --flips 300 --seed 0

No command may end in a traceback, print more than one line of an error, or change what it reads into something else.
"""

import argparse
import contextlib
import io
import os
import random
import shlex
import sqlite3
import tempfile
import traceback
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import rich_store

import protein
from protein import storage
from protein.cli import main
from protein.errors import ProteinError
from protein.space import Float, Integer, Space

NUM_TRIALS = 30
RESUME = "(resume)"
LINES = (
    RESUME,
    "status",
    "status s",
    "show s",
    "show s --json",
    "show s --trial 3",
    "show s --calibration",
    "pareto s",
    "best s",
    "laws s",
    "store check",
    "export s -o out.jsonl",
    "clean s --dry-run",
    "report s -o out.html",
    "compare s t",
)
TABLES = ("sweeps", "trials", "measurements", "artifacts", "annotations")


def train(params: Mapping[str, Any], report: Any) -> float:
    """A function of which models can be made, and that fails now and then."""
    score = float(np.log10(params["lr"]) + params["steps"] / 100)
    for i in range(1, 11):
        report(steps=i, score=score * i / 10, cost_seconds=params["steps"] * i / 1000)
    if 3e-3 < params["lr"] < 2e-2:
        raise ValueError("it diverged")
    return score


def sweep(path: Path, num_trials: int) -> None:
    """Runs or resumes the sweep of the campaign."""
    space = Space(
        [Float("lr", 1e-5, 1.0, scale="log"), Integer("steps", 10, 1000, scale="log")], cost_parameter="steps"
    )
    protein.Sweep(space, max_trials=num_trials, name="s", store=path, method="random", quiet=True).run(train)


def whole(folder: Path) -> bytes:
    """Returns the bytes of a store with the campaign's sweep, and one with odd values."""
    path = folder / "whole.db"
    sweep(path, NUM_TRIALS)
    store = storage.open_store(str(path))
    odd = rich_store.fill(store, "t", num_trials=12)
    store.interrupt_orphans(odd.id, [f"host-ü:{i}:1.00" for i in range(30)])
    store.close()
    return path.read_bytes()


def spoil(path: Path, change: str) -> None:
    """Changes a store's file by a statement of SQL, also in ways that the schema does not allow."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA ignore_check_constraints=ON")
        connection.execute(change)


def damaged(content: bytes, draw: random.Random, path: Path) -> str:
    """Writes a damaged copy of a store and returns what was done to it: to one value, or to the file's own bytes."""
    path.write_bytes(content)
    if draw.random() < 0.4:
        changed = bytearray(content)
        for _ in range(count := draw.choice((1, 1, 4, 64))):
            changed[draw.randrange(len(changed))] ^= 1 << draw.randrange(8)
        path.write_bytes(changed)
        return f"{count} bits of the file"
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA ignore_check_constraints=ON")
        connection.execute("PRAGMA foreign_keys=OFF")
        table = draw.choice(TABLES)
        columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
        column = draw.choice(columns)
        keys = ("trial_id", "position") if table == "measurements" else ("rowid",)
        rows = connection.execute(f"SELECT {', '.join(keys)}, {column} FROM {table}").fetchall()
        *key, value = draw.choice(rows)
        new = _flipped(value, draw)
        where = " AND ".join(f"{name} = ?" for name in keys)
        with contextlib.suppress(sqlite3.IntegrityError, OverflowError):
            connection.execute(f"UPDATE {table} SET {column} = ? WHERE {where}", (new, *key))
        return f"{table}.{column} of {key}: {value!r:.40} -> {new!r:.40}"


def _flipped(value: object, draw: random.Random) -> object:
    """Returns a value like the one before with some of its bits changed, or of another type."""
    if draw.random() < 0.2:
        return draw.choice((None, "", "x", b"\xff\x00", 3, -1, 2.5, 1e300, float("inf"), 2**62, "[]", "{}", "NaN"))
    if isinstance(value, str):
        raw = bytearray(value.encode() or b" ")
        raw[draw.randrange(len(raw))] ^= 1 << draw.randrange(8)
        try:
            return raw.decode()
        except UnicodeDecodeError:
            return bytes(raw)
    if isinstance(value, float):
        bits = np.array([value]).view(np.uint64)
        bits ^= np.uint64(1 << draw.randrange(64))
        return float(bits.view(np.float64)[0])
    if isinstance(value, int):
        changed = value ^ (1 << draw.randrange(63))
        return changed if abs(changed) < 2**63 else -1
    return draw.choice((0, "x", 1.5))


def campaign(flips: int, seed: int, lines: tuple[str, ...] = LINES) -> Iterator[tuple[str, str, str]]:
    """Yields of each failure what was damaged, the command and what it did. Runs in a temporary folder."""
    draw, before = random.Random(seed), Path.cwd()
    with tempfile.TemporaryDirectory() as name:
        os.chdir(name)
        try:
            content = whole(Path(name))
            for i in range(flips):
                path = Path(name) / f"{i}.db"
                what = damaged(content, draw, path)
                for line in lines:
                    if said := run(line, path):
                        yield what, line, said
                for left in Path(name).glob(f"{i}.*"):
                    left.unlink() if left.is_file() else None
        finally:
            os.chdir(before)


def run(line: str, path: Path) -> str:
    """Runs a command on a store and returns what is wrong with how it ended; "" if nothing is."""
    if line == RESUME:
        return _resumed(path)
    words = shlex.split(line)
    words += [str(path)] if words[0] == "store" else ["--store", str(path)]
    out, err = io.StringIO(), io.StringIO()
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a damaged number may overflow in a model
            code = main(words)
    except Exception:
        return traceback.format_exc()
    if code not in (0, 1, 2):
        return f"ended with code {code}"
    if "Traceback" in out.getvalue() + err.getvalue():
        return err.getvalue()
    if code == 2 and not (err.getvalue().startswith("error: ") and err.getvalue().count("\n") == 1):
        return f"printed {err.getvalue()!r:.300}"
    return ""


def _resumed(path: Path) -> str:
    """Resumes the campaign's sweep for one more trial."""
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            sweep(path, NUM_TRIALS + 1)
    except ProteinError as error:
        return f"said {error}" if "\n" in str(error) else ""
    except Exception:
        return traceback.format_exc()
    return ""


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--flips", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    failures = 0
    for what, line, said in campaign(given.flips, given.seed):
        failures += 1
        print(f"--- {what}\n    protein {line}\n{said}", flush=True)
    print(f"{given.flips} damaged stores, {len(LINES)} commands each: {failures} failures")
    raise SystemExit(min(failures, 1))
