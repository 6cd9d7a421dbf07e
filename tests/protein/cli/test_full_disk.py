"""Commands that write a file for the user, on a disk that is full: the old file stays, and no part of a new one."""

from pathlib import Path

import pytest
from commands import Run
from full_disk import full_disk, leave_free
from small_runs import small_config

ROOM = 500  # bytes of a file: less than any of these files has
STORE = Path("runs/protein.db")
COMMANDS = {
    "report.html": "report pong -o {}",
    "front.png": "plot front pong -o {}",
    "front.svg": "plot front pong -o {}",
    "front.pdf": "plot front pong -o {}",
    "pareto.png": "pareto pong --png {}",
    "best.toml": "best pong --write {}",
    "sweeps.jsonl": "export pong -o {}",
    "sweeps.parquet": "export pong -o {}",
}


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


SLOW = ("front.pdf", "front.svg", "pareto.png")  # written as front.png is
FITTED = ("report.html",)  # made for seconds, and then written as all others are


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in COMMANDS]
)
def test_a_full_disk_leaves_the_old_file_and_no_part_of_a_new_one(filled: Path, run: Run, name: str) -> None:
    if name.endswith(".parquet"):
        pytest.importorskip("pyarrow")
    old = filled / "out" / name
    run(COMMANDS[name].format(old.relative_to(filled)))
    before = old.read_bytes()
    assert len(before) > ROOM
    new = [] if name in FITTED else [filled / "out" / f"new-{name}", filled / "made" / name]
    for path in (old, *new):
        shown = path.relative_to(filled)
        with full_disk(STORE, ROOM):
            said = run.error(COMMANDS[name].format(shown))
        assert said.startswith(f"{shown} cannot be written (")
        assert said.endswith("; give another path or free some space")
    assert contents(old.parent) == {name: before}
    assert sorted(path.name for path in filled.iterdir()) == ["out", "runs"]


def test_of_a_ladder_all_configs_are_written_or_none(filled: Path, run: Run) -> None:
    (filled / "rung_10m.toml").write_text("old")
    (filled / "rung_1h.toml").mkdir()  # so the second file cannot be made
    said = run.error("best pong --ladder 10m,1h --write rung.toml")
    assert said == "rung_1h.toml cannot be written (Is a directory); give another path"
    assert (filled / "rung_10m.toml").read_text() == "old"
    (filled / "rung_1h.toml").rmdir()
    with full_disk(STORE, ROOM):
        said = run.error("best pong --ladder 10m,1h --write rung.toml")
    assert said.endswith("give another path or free some space")
    assert sorted(path.name for path in filled.iterdir()) == ["rung_10m.toml", "runs"]
    assert (filled / "rung_10m.toml").read_text() == "old"


def test_a_backup_that_does_not_fit_leaves_nothing(filled: Path, run: Run) -> None:
    with full_disk(STORE, 40_000):
        said = run.error("store backup -o made/copy.db")
    assert said.startswith("made/copy.db cannot be made a copy of store runs/protein.db (")
    assert [path.name for path in filled.iterdir()] == ["runs"]


def test_a_run_that_is_refused_leaves_no_folder(folder: Path, run: Run) -> None:
    """Its checkpoint will not fit, which only the training finds out: then it has a folder already."""
    (folder / "small.toml").write_text(small_config())
    train = "train --env pong --config small.toml --train.total-timesteps 1000"
    with pytest.MonkeyPatch.context() as patch:
        leave_free(patch, 1000)
        assert run.error(train).startswith("the run's checkpoints take about 0.")
    assert [path.name for path in folder.iterdir()] == ["small.toml"]
    run(train)
    [kept] = (folder / "runs" / "train").iterdir()
    with pytest.MonkeyPatch.context() as patch:
        leave_free(patch, 1000)
        run.error(train)
    assert list((folder / "runs" / "train").iterdir()) == [kept]
