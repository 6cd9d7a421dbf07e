"""A store that somebody hands on: whatever its names and paths say, no command writes or deletes outside its folder.

Beside the store lie files that a careless command would take for the sweep's own, and a picture of all of them is
compared before and after. The commands are called as a user calls them.
"""

import contextlib
import dataclasses
import os
import shutil
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from protein import Float, Space, Sweep
from protein.api import keeping, stores, sweep_files, trackers
from protein.api.keeping import SweepFolder
from protein.cli import main
from protein.errors import UsageError
from protein.names import folder_name, is_name
from protein.run.slot import Copies
from protein.storage import open_store, open_whole_store
from protein.sweep import resuming
from protein.sweep.provenance import changes_since
from protein.trackers.exporter import Position, file_name, locked
from protein.types import (
    CONTINUABLE,
    CONTINUABLE_SECONDS,
    Artifact,
    Estimate,
    Outcome,
    Provenance,
    Suggestion,
    SuggestionKind,
    SweepSpec,
    TrialEnd,
)
from protein.web import artifacts
from protein.web.viewer import Viewer

Run = Callable[..., int]
NAMES = [
    "",
    "..",
    "../outside",
    "a/../../outside",
    "other/0001",
    "link",
    "/outside",
    "protein.db",
    "Protein.DB-wal",
    "_trackers",
    "a\nb",
    "\x1b]0;owned\x07\x1b[31mred",
]
MORE_NAMES = [
    ".",
    "/",
    "../..",
    "other/",
    "file.txt",
    "~",
    ".outside",
    "[red]with[/red] marks",
    "//outside",
    "a/./../..",
]
MORE_NAMES += ["é" * 200, "x" * 200, "x" * 5000, "\u202egnp.exe", "a\\..\\..\\outside", "link/inner", "..\n"]
NUMBERS = range(4)
PROVENANCE = Provenance(version="1.0.0", git_commit="abc1234", machine="box", config_hash="")


def fill(url: str, name: str, paths: Sequence[str] = ()) -> None:
    """Adds a sweep of four trials; the files of each are `paths`, as the store says."""
    space = Space([Float("x", 0.0, 1.0)])
    spec = SweepSpec(
        name="placeholder", env="own", method="protein", seed=0, space=space.to_dict(), config={}, provenance=PROVENANCE
    )
    store = open_store(url)
    sweep = store.create_sweep(spec, 600.0)
    artifacts = [Artifact(kind=kind, path=path) for path in paths for kind in ("checkpoint", "continuable", "log")]
    for number in NUMBERS:
        value = Estimate(value=1.0, low=0.5, high=2.0)
        suggestion = Suggestion(
            params={"x": number / 4},
            kind=SuggestionKind.SEARCH,
            origin="searched",
            predicted_score=value,
            predicted_cost_seconds=value,
        )
        trial = store.start_trial(
            sweep.id,
            suggestion,
            number=number,
            seed=0,
            owner="test",
            lease_seconds=1.0,
            suggest_seconds=0.0,
            provenance=PROVENANCE,
        )
        outcome = Outcome(end=TrialEnd.COMPLETE, score=float(number % 3), cost_seconds=10.0 + number, steps=1)
        store.finish_trial(trial, outcome, artifacts)
    store.close()
    # Not by the store, which takes no NUL and no name without an end.
    with contextlib.closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as database:
        database.execute("UPDATE sweeps SET name = ? WHERE name = 'placeholder'", (name,))
        database.execute("UPDATE artifacts SET path = replace(path, '<NUL>', char(0))")
        database.commit()


def precious(folder: Path) -> None:
    """Puts files into a folder that look like those of a sweep."""
    for number in NUMBERS:
        (folder / f"{number:04d}" / "checkpoint").mkdir(parents=True)
        (folder / f"{number:04d}" / "state.bin").write_bytes(b"precious")
        (folder / f"{number:04d}" / "checkpoint" / "state").write_bytes(b"precious")
        (folder / f"{number:04d}" / "checkpoint.safetensors").write_bytes(b"precious")
    for name in ("pareto.png", "calibration.png"):
        (folder / name).write_bytes(b"precious")


def picture(root: Path, *without: Path) -> dict[str, object]:
    """Returns all files and links below a folder with their content."""
    found: dict[str, object] = {}
    for folder, _, names in os.walk(root):
        place = Path(folder)
        if any(place == one or one in place.parents for one in without):
            continue
        found[str(place)] = ""
        for name in names:
            path = place / name
            if path not in without:
                found[str(path)] = path.readlink() if path.is_symlink() else path.read_bytes()
    return found


class World:
    """A folder with a store that was handed on, what lies around it, and what lies in it and is not the sweep's."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch | None) -> None:
        self.root, self.home = root, root / "home"
        self.runs = self.home / "runs"
        self.runs.mkdir(parents=True)
        self.url = f"sqlite:///{self.runs}/protein.db"
        for folder in (root, root / "outside", self.home, self.runs, self.runs / "other", self.runs / "other" / "0001"):
            precious(folder)
        (root / "a").mkdir()
        (self.runs / "a").mkdir()
        (self.runs / "link").symlink_to(root / "outside")
        (self.runs / "file.txt").write_text("precious")
        (self.runs / "_trackers" / "0000").mkdir(parents=True)
        (self.runs / "_trackers" / "0000" / "state.bin").write_bytes(b"precious")
        if monkeypatch is not None:
            monkeypatch.chdir(self.home)
            monkeypatch.delenv("PROTEIN_STORE", raising=False)
        self.folder = Path()  # of the sweep

    def fill(self, name: str, paths: Sequence[str]) -> None:
        fill(self.url, name, paths)
        self.folder = stores.artifact_directory(self.url, name)
        self.before = self.now()

    def now(self) -> dict[str, object]:
        """Everything but the store's file, the sweep's own folder, and what an export writes into the folder here."""
        own = [self.folder] if self.folder.parent == self.runs and not self.folder.is_symlink() else []
        store = [self.runs / f"protein.db{ending}" for ending in ("", "-wal", "-shm", "-journal")]
        return {
            name: content
            for name, content in picture(self.root, *own, *store).items()
            if not (Path(name).parent == self.home and name.endswith((".jsonl", ".html")))
        }


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, monkeypatch)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Iterator[Run]:
    """Runs a command; what it prints steers no terminal, and an error is one line."""

    def call(*words: str) -> int:
        code = main(list(words))
        printed = capsys.readouterr()
        assert not any(mark in printed.out + printed.err for mark in "\x1b\x07\u202e\r"), words
        assert "Traceback" not in printed.err
        assert code == 0 or printed.err.count("\n") == 1, printed.err
        return code

    yield call


def hostile_paths(world: World) -> list[str]:
    runs = world.runs
    return [
        str(world.root / "outside" / "0000" / "state.bin"),
        str(world.root / "outside"),
        "../outside/0000/state.bin",
        f"{runs}/other/0001/state.bin",
        f"{runs}/x/../../../outside/0001",
        f"{runs}/link/0002",
        str(runs / "protein.db"),
        "/",
        "",
        "a<NUL>b",
        "x" * 5000,
    ]


QUICK = ("..", "link", "/outside", "protein.db", "\x1b]0;owned\x07\x1b[31mred")  # one of each kind


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in NAMES]
)
def test_no_command_writes_or_deletes_outside_of_the_sweeps_folder(world: World, run: Run, name: str) -> None:
    name = str(world.root / "outside") if name == "/outside" else name
    world.fill(name, hostile_paths(world))
    assert run("clean", name, "--finished") == 0
    assert run("clean", "--all", "--finished") == 0
    assert run("show", name, "--calibration") == 0
    assert run("show", name, "--trial", "1") == 0
    run("export", name)  # which refuses a path with a NUL
    copied = run("store", "move", "--to", f"sqlite:///{world.root}/home/copy.db")
    assert copied == 2 and not (world.home / "copy.db").exists()  # because of the name, or of a path with a NUL
    assert world.now() == world.before
    assert run("rename", name, "proper") == 0
    moved = str(world.runs / "proper")
    assert {name: content for name, content in world.now().items() if not name.startswith(moved)} == world.before
    world.before = world.now()
    fill(world.url, name, hostile_paths(world))
    assert run("rm", name, "--yes") == 0
    assert world.now() == world.before
    assert run("show", "proper") == 0 and run("show", name) == 2
    store = open_store(world.url)
    assert {one.spec.name for one in store.list_sweeps()} == {"proper"}
    store.close()


@pytest.mark.parametrize("name", ["../outside", "protein.db"])
def test_what_is_recommended_and_reported_is_written_here(world: World, run: Run, name: str) -> None:
    world.fill(name, [])
    assert run("report", name) == 0
    for words in (("--write", "best.toml"), ("--ladder", "10m")):
        assert run("best", name, *words) == 2  # a function's sweep has no config file
    assert run("export", name) == 0
    assert (world.home / f"{folder_name(name)}.jsonl").exists()
    assert world.now() == world.before


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(name=st.text(max_size=80) | st.lists(st.sampled_from(["..", ".", "/", "a", "\\", "other", "~"])).map("".join))
@example("..")
@example("other/0001")
def test_a_name_is_one_part_of_a_path(name: str) -> None:
    for url, root in (
        ("sqlite:////work/runs/protein.db", Path("/work/runs")),
        ("sqlite:////work/runs/mine.db", Path("/work/runs/mine")),
        ("sqlite:////work/runs/mine", Path("/work/runs/mine_files")),
    ):
        found = stores.artifact_directory(url, name)
        assert found.parent == root and found.name not in ("", ".", "..", "_trackers") and "\0" not in str(found)
        assert len(os.fsencode(found.name)) <= 64
        assert (found.name == name) == is_name(name) or name.lower().startswith("protein.db")
        assert stores.artifact_directory(url, name, Path("/big")).parent == Path("/big")


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    name=st.text(min_size=1, max_size=30).filter(lambda text: "\0" not in text and text != "other"),
    path=st.text(max_size=60).map(lambda text: text.replace("\0", "<NUL>"))
    | st.lists(st.sampled_from(["..", "/", "link", "other", "0001", "state.bin", "."])).map("/".join),
)
@example(name="0", path="<NUL>")
def test_no_stored_name_and_path_leads_out(tmp_path_factory: pytest.TempPathFactory, name: str, path: str) -> None:
    try:
        (name + path).encode()
    except UnicodeEncodeError:
        return
    world = World(tmp_path_factory.mktemp("world"), None)
    try:
        paths = [path, f"{world.runs}/{path}", f"{world.runs}/{name}/{path}"]
        world.fill(name, paths)
        store = open_whole_store(world.url)
        sweep = stores.find(store, name)
        plan = keeping.plan_cleaning(sweep, store.trials(sweep.id), SweepFolder.of(world.url, name), goes_on=False)
        assert list(keeping.clean(plan)) == list(plan.freed)
        keeping.rename(store, world.url, name, "proper-one")
        keeping.remove(store, keeping.plan_removal(store, world.url, "proper-one"), keep_files=False)
        store.close()
        assert world.now() == world.before
    finally:
        shutil.rmtree(world.root)


@pytest.mark.parametrize("store", ["protein.db", "mine.db"])
def test_a_link_in_the_place_of_a_folder_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run, store: str
) -> None:
    """Of the sweep's folder, or, where a store has one of its own, of that one."""
    world = World(tmp_path, monkeypatch)
    url = f"sqlite:///{world.runs}/{store}"
    sweep = "link" if store == "protein.db" else "x"
    if store == "mine.db":
        (world.runs / "mine").symlink_to(tmp_path / "outside")
        precious(tmp_path / "outside" / "x")
    fill(url, sweep, [str(world.runs / "link" / "0000")])
    (world.runs / "empty").mkdir()
    before = picture(tmp_path / "outside")
    for words in (("clean", sweep, "--finished"), ("show", sweep, "--calibration")):
        assert run(*words, "--store", url) == 0
    assert picture(tmp_path / "outside") == before
    with pytest.raises(UsageError, match="is a symbolic link, through which nothing is written"):
        stores.require_unlinked(url, sweep)
    assert run("rename", sweep, "y", "--store", url) == 0
    assert picture(tmp_path / "outside") == before
    assert run("rm", "y", "--yes", "--store", url) == 0
    assert picture(tmp_path / "outside") == before


def test_a_picture_is_not_drawn_through_a_link(world: World, run: Run) -> None:
    world.fill("s", [])
    (world.runs / "s").mkdir()
    (world.runs / "s" / "calibration.png").symlink_to(world.root / "outside" / "pareto.png")
    before = picture(world.root / "outside")
    assert run("show", "s", "--calibration") == 0
    assert picture(world.root / "outside") == before
    assert (world.runs / "s" / "calibration.png").is_symlink()


def test_a_sweep_is_not_run_through_a_link(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    before = picture(world.root / "outside")
    (world.home / "space.toml").write_text("[x]\nvalue = 0.5\nmin = 0.0\nmax = 1.0\n")
    words = ["sweep", "--command", "echo score: {x}", "--space", "space.toml", "--name", "link", "--max-trials", "1"]
    assert main(words) == 2
    assert f"{world.runs / 'link'} is a symbolic link, through which nothing is written" in capsys.readouterr().err
    with pytest.raises(UsageError, match="is a symbolic link, through which nothing is written"):
        Sweep(Space([Float("x", 0.0, 1.0)]), name="link", store=world.runs / "protein.db", max_trials=1).run(
            lambda params, report: 1.0
        )
    assert picture(world.root / "outside") == before


def test_the_page_has_the_same_folder(world: World) -> None:
    world.fill("../outside", [])
    store = open_store(world.url)
    found = Viewer(store, world.url, threading.Event()).artifact_directory("../outside")
    assert found == stores.artifact_directory(world.url, "../outside")
    store.close()


def test_the_page_reads_nothing_behind_a_link(world: World) -> None:
    world.fill("link", [str(world.root / "outside" / "0000" / "state.bin"), str(world.runs / "link" / "pareto.png")])
    store = open_store(world.url)
    root = Viewer(store, world.url, threading.Event()).artifact_directory("link")
    for trial in store.trials(stores.find(store, "link").id):
        assert all(one.path is None for one in artifacts.files(root, trial))
    store.close()


def test_trackers_write_beside_the_store_alone(world: World) -> None:
    place = trackers.folder(world.url)
    for name in (*NAMES, *MORE_NAMES):
        for path in (
            place / "positions" / file_name(name, "wandb", "here"),
            trackers.log_file(world.url, name, "wandb"),
        ):
            assert path.parent == place / "positions" and len(path.name) < 120
    target = world.root / "outside" / "pareto.png"
    (place / "positions").mkdir()
    for link in (place / "positions" / "x.log", place / "tensorboard"):
        link.symlink_to(target)
        with pytest.raises(UsageError, match="through which no tracker writes"):
            trackers.start(["tensorboard"], world.url, "x", follow=False)
        link.unlink()
    assert target.read_bytes() == b"precious"


def test_a_position_is_not_written_through_a_link(world: World) -> None:
    world.fill("s", [])
    store = open_store(world.url)
    sweep = stores.find(store, "s")
    store.close()
    target, link = world.root / "outside" / "pareto.png", world.runs / "position.json"
    link.symlink_to(target)
    Position(link, sweep, "here").save()
    assert target.read_bytes() == b"precious" and not link.is_symlink()
    lock = world.runs / "position.lock"
    lock.symlink_to(target)
    with pytest.raises(OSError, match="symbolic link"), locked(link, "x"):
        pass
    assert target.read_bytes() == b"precious"


def test_trials_go_on_only_from_what_lies_in_the_sweeps_folder(world: World) -> None:
    inside, link = world.runs / "s" / "0001" / "state.bin", world.runs / "s" / "0002"
    inside.parent.mkdir(parents=True)
    inside.write_bytes(b"")
    link.symlink_to(world.root / "outside")
    world.fill("s", [])
    store = open_store(world.url)
    [trial, *_] = store.trials(stores.find(store, "s").id)
    store.close()
    for path in (*hostile_paths(world), str(link / "0000" / "state.bin"), str(inside)):
        one = trial.ended(
            Outcome(end=TrialEnd.COMPLETE, metrics={CONTINUABLE_SECONDS: 1.0}),
            (Artifact(kind=CONTINUABLE, path=path),),
        )
        kept = resuming.only_within(one, world.runs / "s")
        assert bool(kept.artifacts) == (path == str(inside)), path
        assert resuming.continuable_state(kept) == (inside if kept.artifacts else None)


def test_files_are_fetched_into_no_other_folder(world: World) -> None:
    there, here = world.root / "there" / "0000", world.runs / "s" / "0000"
    (there / "inner").mkdir(parents=True)
    for name in ("inner/state.bin", "pareto.png", "plain.bin"):
        (there / name).write_bytes(b"fetched")
    here.mkdir(parents=True)
    (here / "inner").symlink_to(world.root / "outside")
    (here / "pareto.png.part").symlink_to(world.root / "outside" / "pareto.png")
    before = picture(world.root / "outside")
    Copies(str(world.root / "there")).fetch("0000", here)
    assert picture(world.root / "outside") == before
    assert (here / "plain.bin").read_bytes() == (here / "pareto.png").read_bytes() == b"fetched"


def test_a_commit_is_no_option_of_git(world: World) -> None:
    target = world.root / "outside" / "pareto.png"
    for commit in (f"--output={target}", f"--output={target}-dirty", "-O/etc/passwd", "HEAD@{1}\n"):
        changes_since(dataclasses.replace(PROVENANCE, git_commit=commit))
        assert target.read_bytes() == b"precious"


def test_a_store_with_such_names_is_not_moved_into_another(world: World) -> None:
    world.fill("../outside", [])
    with pytest.raises(
        UsageError, match=r"the name '\.\./outside' can be no sweep's, .*; give it another with protein"
    ):
        sweep_files.move(world.url, f"sqlite:///{world.home}/copy.db", lambda *_: None)
    assert not (world.home / "copy.db").exists()


def test_names_that_differ_have_folders_that_differ() -> None:
    names = [*NAMES, *MORE_NAMES]
    assert len({folder_name(name) for name in names}) == len(names)
    assert folder_name("protein.db-x", taken="protein.db") != "protein.db-x"
    assert folder_name("protein.d", taken="protein.db") == "protein.d"
