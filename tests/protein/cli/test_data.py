"""The commands that treat sweeps as wholes: export, import, store, clean, rename and rm."""

import dataclasses
import json
import os
import re
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import damage
import pytest
import rich_store
from commands import Run
from store_samples import LEASE_SECONDS, complete, new_sweep, points, start, sweep_spec

import protein
from protein import storage
from protein.api import keeping, stores
from protein.api.keeping import SweepFolder
from protein.api.sweep_files import Moved
from protein.cli import main, output
from protein.cli.store import _cleaned as cleaning_line
from protein.errors import UsageError
from protein.run.lease import owner_of
from protein.types import CONTINUABLE, CONTINUABLE_SECONDS, Artifact, Direction, Outcome, TrialEnd

READING = (
    "status",
    "status s",
    "show s",
    "pareto s",
    "best s",
    "laws s",
    "compare s t",
    "plot front s",
    "report s",
    "note s --trial 1 --tag x",
    "pause s",
    "export s -o out.jsonl",
    "clean s",
    "rename s t",
    "rm s --yes",
    "sync s --tracker tensorboard",
    "train --env pong --from s",
)
FOREIGN = {
    "missing.db": None,
    "empty.db": b"",
    "short.db": b"x" * 100,
    "text.db": b"this is no database\n" * 100,
    "zeros.db": bytes(8192),
}


def listed(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("name", [*FOREIGN, "foreign.db", "tables.db"])
def test_no_reading_command_makes_a_store_or_a_file(name: str, folder: Path, run: Run) -> None:
    path = folder / name
    if content := FOREIGN.get(name):
        path.write_bytes(content)
    elif name == "empty.db":
        path.touch()
    elif name != "missing.db":
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("CREATE TABLE other (x)")
            connection.execute("DROP TABLE other" if name == "tables.db" else "INSERT INTO other VALUES (1)")
            connection.commit()
    before = listed(folder)
    for line in READING:
        said = run.error(f"{line} --store {name}")
        assert "store" in said or "database" in said, said
        assert listed(folder) == before, line
    for line in ("store check", "store upgrade", "store backup", "store move --to to.db", "view"):
        run.error(f"{line} {name}" if "--to" not in line else f"store move {name} --to to.db")
        assert listed(folder) == before, line


def test_a_sweep_goes_into_a_file_and_comes_back(filled: Path, run: Run) -> None:
    shown = run.json("show pong --json")
    for name in ("a.jsonl", "a.parquet"):
        said = run(f"export pong -o {name}")
        assert "7 trials with" in said and f"written: {name}" in said
        told = run.json(f"import {name} --name copy --store other.db --json")
        assert told["sweeps"][0]["sweep"] == "copy" and told["sweeps"][0]["trials"] == 7
        copy = run.json("show copy --json --store other.db")
        assert [trial["params"] for trial in copy["trials"]] == [trial["params"] for trial in shown["trials"]]
        assert [trial["score"] for trial in copy["trials"]] == [trial["score"] for trial in shown["trials"]]
        run("rm copy --yes --store other.db")
    assert "exists already" in run.error("import a.jsonl")
    assert "no file nothing.jsonl" in run.error("import nothing.jsonl")
    assert "--score is for runs of other tools" in run.error("import a.jsonl --score x")
    assert "ends with .jsonl or .parquet" in run.error("export pong -o a.csv")
    (filled / "folder.jsonl").mkdir()
    assert "is a folder" in run.error("export pong -o folder.jsonl")


def test_an_imported_sweep_of_a_function_is_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PROTEIN_STORE", raising=False)
    space = protein.Space([protein.Float("x", 0.0, 1.0)])

    def train(params: Any, report: Any) -> float:
        score = -abs(float(params["x"]) - 0.3)
        report(1, score, cost_seconds=1.0)  # on a busy machine the clock would lead the two sweeps apart
        return score

    def sweep(trials: int, store: str) -> list[Any]:
        protein.Sweep(space, max_trials=trials, name="mine", store=store, seed=3, quiet=True).run(train)
        return [trial["params"] for trial in run.json(f"show mine --json --store {store}")["trials"]]

    undisturbed = sweep(6, "whole.db")
    sweep(3, "a.db")
    run("export mine -o mine.parquet --store a.db")
    run("import mine.parquet --store b.db")
    assert sweep(6, "b.db") == undisturbed


def test_what_was_moved_is_told_in_good_english() -> None:
    several = Moved(name="a", num_trials=3, num_points=7, running=(1, 2))
    one = Moved(name="b", num_trials=1, num_points=0, running=(0,))
    end = "as interrupted when the copy is resumed"
    assert output.moved_lines([several, one]) == [
        f"a: 3 trials with 7 curve points; trials 1, 2 had not finished, and end {end}",
        f"b: 1 trial with 0 curve points; trial 0 had not finished, and ends {end}",
    ]


def test_a_backup_into_a_folder_that_may_not_be_written(
    filled: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("protein.storage.existing.os.access", lambda path, mode: mode != os.W_OK)
    assert "closed/copy.db cannot be written (Permission denied)" in run.error("store backup -o closed/copy.db")
    assert not (filled / "closed").exists()


def test_a_store_is_checked_copied_and_upgraded(filled: Path, run: Run) -> None:
    assert "runs/protein.db is whole: 1 sweep" in run("store check")
    assert "itself a store" in run("store backup -o copy.db")
    assert "7" in run("status --store copy.db")
    assert "never replaces a file" in run.error("store backup -o copy.db")
    assert "is up to date" in run("store upgrade")
    old = filled / "old.db"
    shutil.copy(Path(__file__).parents[2] / "assets" / "storage_0002.db", old)
    before = old.read_bytes()
    assert "has schema 0002" in run.error("store check old.db")
    assert old.read_bytes() == before
    assert "schema 0002 is now" in run("store upgrade old.db")
    assert (filled / "old.db.schema-0002").read_bytes()[100:] == before[100:]
    assert "is whole" in run("store check old.db")
    damage.spoil(Path("copy.db"), "UPDATE trials SET score = 'high' WHERE number = 3")
    assert main(["store", "check", "copy.db"]) == 1
    assert "did you mean 'check'" in run.error("store chek")
    assert "--to is for" in run.error("store check --to x.db")


def test_damage_is_printed_with_code_1(filled: Path, capsys: pytest.CaptureFixture[str]) -> None:
    damage.spoil(Path("runs/protein.db"), "UPDATE trials SET score = 'high' WHERE number = 3")
    assert main(["store", "check", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert any(re.search(r"sweep 'pong', trial 3: .*'high'", line) for line in found["damages"])


def test_a_store_is_moved(filled: Path, run: Run) -> None:
    said = run("store move --to there/new.db")
    assert "pong: 7 trials" in said and "delete the old store" in said
    assert run.json("show pong --json --store there/new.db") == run.json("show pong --json")
    assert "exists already" in run.error("store move --to there/new.db")
    assert "--to" in run.error("store move")


@pytest.fixture
def with_files(folder: Path) -> Path:
    """A store with a sweep of five finished trials, each with a checkpoint of 1,000 bytes, a log and a state."""
    return fill_with_files(folder, "runs")


def fill_with_files(folder: Path, artifacts: str) -> Path:
    store = storage.open_store("sqlite:///runs/protein.db")
    sweep = rich_store.fill(store, "odd", num_trials=5)
    sweep = store.create_sweep(
        dataclasses.replace(
            sweep.spec,
            name="s",
            method="random",
            direction=Direction.MAXIMIZE,
            space=protein.Space([protein.Float("lr", 0.001, 1.0)]).to_dict(),
            config={"own": {"start": None}},
            warm_start={},
        ),
        None,
    )
    for i in range(5):
        trial = start(store, sweep, params={"lr": 0.1 + i / 10})
        place = folder / artifacts / "s" / f"{i:04d}"
        place.mkdir(parents=True)
        for name in ("checkpoint.safetensors", "log.txt", "state.bin"):
            (place / name).write_bytes(b"x" * 1000)
        store.add_measurements(trial, points(0, 3), LEASE_SECONDS)
        kinds = {"checkpoint": "checkpoint.safetensors", "log": "log.txt", CONTINUABLE: "state.bin"}
        files = [Artifact(kind=kind, path=str(place / name)) for kind, name in kinds.items()]
        outcome = complete(cost_seconds=float(10 - i) if i else 20.0)  # trial 4 is the cheapest of equal scores
        metrics = {CONTINUABLE_SECONDS: 1.0}
        store.finish_trial(trial, dataclasses.replace(outcome, metrics=metrics), files)
    store.close()
    return folder


def remaining(folder: Path) -> list[str]:
    return sorted(f"{path.parent.name}/{path.name}" for path in folder.rglob("*.*") if path.parent.name.isdigit())


def test_clean_keeps_what_is_needed_and_says_what_it_frees(with_files: Path, run: Run) -> None:
    everything = remaining(with_files)
    said = run("clean s --dry-run")
    assert re.search(r"s: would delete checkpoints of \d trials, [\d.]+ KiB; \d trials? keeps? ", said)
    assert remaining(with_files) == everything
    plan = run.json("clean s --dry-run --json")[0]
    assert 4 in plan["kept"] and plan["bytes"] == 1000 * len(plan["files"]) > 0
    assert (plan["runs"], plan["to_go_on"]) == (False, [])
    said = run("clean s")
    assert "freed" in said
    left = remaining(with_files)
    assert "0004/checkpoint.safetensors" in left and "0004/state.bin" in left
    assert [name for name in left if "log.txt" in name] == [f"{i:04d}/log.txt" for i in range(5)]
    assert len(left) == len(everything) - len(plan["files"])
    assert "nothing to delete" in run("clean s")
    assert "is whole" in run("store check")
    assert run("show s --trial 0")


def test_clean_takes_no_empty_folder_for_a_checkpoint(with_files: Path, run: Run) -> None:
    """A command has a folder for its state, and most write nothing into it."""
    folders = [with_files / "runs" / "s" / f"{i:04d}" for i in range(5)]
    for folder in folders:
        (folder / "checkpoint.safetensors").unlink()
        (folder / "state.bin").unlink()
        (folder / "checkpoint" / "inner").mkdir(parents=True)
    assert run("clean s") == "s: nothing to delete; 0 trials keep their checkpoints\n"
    (folders[0] / "checkpoint" / "inner" / "state").write_bytes(b"x" * 2048)  # of the most expensive trial
    assert run("clean s") == (
        "s: deleting checkpoints of 1 trial, 2 KiB; 0 trials keep their checkpoints\nfreed 2 KiB\n"
    )
    assert not (folders[0] / "checkpoint").exists()
    assert (folders[1] / "checkpoint").is_dir()


def test_clean_follows_no_link_and_leaves_the_folder_of_others(with_files: Path, run: Run) -> None:
    outside = with_files / "precious"
    outside.mkdir()
    (outside / "state.bin").write_bytes(b"y" * 5000)
    place = with_files / "runs" / "s"
    (place / "0000" / "state.bin").unlink()
    (place / "0000" / "state.bin").symlink_to(outside / "state.bin")
    shutil.rmtree(place / "0001")
    (place / "0001").symlink_to(outside)
    store = storage.open_whole_store("runs/protein.db")
    sweep = store.find_sweep("s")
    assert sweep is not None
    trial = start(store, sweep, params={"lr": 0.9})
    files = [
        Artifact(kind="checkpoint", path=path) for path in (str(outside / "state.bin"), "/etc/hostname", "../../x")
    ]
    store.finish_trial(trial, Outcome(end=TrialEnd.DIVERGED, reason="x"), files)
    store.close()
    run("clean s --finished")
    assert (outside / "state.bin").read_bytes() == b"y" * 5000
    assert (place / "0000" / "state.bin").is_symlink() and (place / "0001").is_symlink()
    run("rm s --yes")
    assert (outside / "state.bin").read_bytes() == b"y" * 5000


def test_a_sweep_that_runs_is_left_alone(with_files: Path, run: Run) -> None:
    store = storage.open_store("runs/protein.db")
    sweep = store.find_sweep("s")
    assert sweep is not None
    start(store, sweep, "elsewhere:1:1.00", params={"lr": 0.9})
    before = remaining(with_files)
    for line in ("clean s", "rename s t", "rm s --yes", "store move --to x.db"):
        assert "is being run by process" in run.error(line)
    store.interrupt_orphans(sweep.id - 1, ["host-ü:3:1.00", "host-ü:4:1.00"])
    assert "s: a process runs it, so its files are left alone" in run("clean --all")
    plain = next(one for one in run.json("clean --all --json") if one["sweep"] == "s")
    assert plain == {
        "sweep": "s",
        "runs": True,
        "deleted": False,
        "bytes": 0,
        "files": [],
        "kept": None,
        "to_go_on": None,
        "to_begin": None,
    }
    assert remaining(with_files) == before
    store.close()


def test_a_sweep_whose_process_has_no_trial_now_is_left_alone_too(with_files: Path, run: Run) -> None:
    """As one that is paused: it would go on in the folder of its old name, or fail without its sweep."""
    store = storage.open_store("runs/protein.db")
    sweep = store.find_sweep("s")
    assert sweep is not None
    last = start(store, sweep, owner_of(os.getppid()), params={"lr": 0.9})
    store.finish_trial(last, Outcome(end=TrialEnd.COMPLETE, reason="", score=0.5, cost_seconds=1.0, steps=10))
    store.set_ended(sweep.id, "")
    before = remaining(with_files)
    for line in ("clean s", "rename s t", "rm s --yes"):
        assert f"is being run by process {os.getppid()} on" in run.error(line)
    assert remaining(with_files) == before
    store.set_ended(sweep.id, "interrupted")
    assert "is now 't'" in run("rename s t")
    store.close()


def test_rename_takes_folder_and_paths_along(with_files: Path, run: Run) -> None:
    before = run.json("show s --trial 2 --json")
    assert "is now 'july'; its files are in runs/july" in run("rename s july")
    assert not (with_files / "runs" / "s").exists()
    after = run.json("show july --trial 2 --json")
    store = storage.open_store("runs/protein.db")
    sweep = store.find_sweep("july")
    assert sweep is not None
    for trial in store.trials(sweep.id):
        assert all(Path(one.path).is_file() for one in trial.artifacts)
        assert len(trial.artifacts) == 3
    store.close()
    assert after["params"] == before["params"]
    assert "no sweep 's'" in run.error("show s")
    assert "exists already" in run.error("rename july odd")
    (with_files / "runs" / "june").mkdir()
    assert "exists already" in run.error("rename july june")
    assert run("show july")


def test_files_of_a_sweep_that_was_given_a_folder_for_them(folder: Path, run: Run) -> None:
    everything = len(remaining(fill_with_files(folder, "scratch")))
    assert "nothing to delete" in run("clean s")
    assert "freed" in run("clean s --artifacts scratch") and 0 < len(remaining(folder)) < everything
    assert "is now 't'; its files are in scratch/t" in run("rename s t --artifacts scratch")
    assert (folder / "scratch" / "t" / "0004" / "log.txt").is_file()
    assert "give the one that the sweep was given" in run.error("rm t --yes --artifacts nowhere")
    assert "give the one that the sweep was given" in run.error("view --artifacts nowhere")
    assert "files of its trials in scratch/t" in run("rm t --yes --artifacts scratch")
    assert remaining(folder) == []


def test_a_rename_that_was_killed_between_folder_and_store_is_finished_by_the_same_command(
    with_files: Path, run: Run
) -> None:
    (with_files / "runs" / "s").rename(with_files / "runs" / "t")
    assert "its files are in runs/t" in run("rename s t")
    store = storage.open_store("runs/protein.db")
    sweep = store.find_sweep("t")
    assert sweep is not None
    assert all(Path(one.path).is_file() for trial in store.trials(sweep.id) for one in trial.artifacts)
    store.close()


def test_an_interrupted_rename_or_removal_leaves_a_whole_store(
    with_files: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = storage.open_whole_store("runs/protein.db")

    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("protein.storage.values.check_artifact", interrupt)
        with pytest.raises(KeyboardInterrupt):
            keeping.rename(store, "runs/protein.db", "s", "t")
    assert (with_files / "runs" / "s").is_dir() and store.find_sweep("t") is None
    removal = keeping.plan_removal(store, "runs/protein.db", "s")
    assert removal.num_bytes == 15_000
    with monkeypatch.context() as patched:
        patched.setattr(keeping, "delete", interrupt)
        with pytest.raises(KeyboardInterrupt):
            keeping.remove(store, removal, keep_files=False)
    store.close()
    assert "is whole: 1 sweep" in run("store check")


def test_rm_asks_and_deletes_only_what_is_the_sweeps(with_files: Path, run: Run) -> None:
    place = with_files / "runs" / "s"
    (place / "notes.txt").write_text("mine")
    assert "--yes" in run.error("rm s")
    said = run("rm s --yes")
    assert "removed sweep 's' with 5 trials" in said and "notes.txt" in said
    assert [path.name for path in place.iterdir()] == ["notes.txt"]
    assert "no sweep 's'" in run.error("rm s --yes")
    assert "is whole" in run("store check")
    assert "rm needs the name" in run.error("rm")


def test_plan_of_trials_that_can_be_continued(with_files: Path) -> None:
    store = storage.open_store("runs/protein.db")
    sweep = store.find_sweep("s")
    assert sweep is not None
    engine = dataclasses.replace(sweep, spec=dataclasses.replace(sweep.spec, method="protein"))
    folder = SweepFolder.of("runs/protein.db", "s")
    trials = store.trials(sweep.id)
    store.close()
    apart = keeping.plan_cleaning(engine, trials, folder)
    assert {one.path.name for one in apart.freed} == {"checkpoint.safetensors", "state.bin"}
    assert not apart.to_go_on, "a function that leaves files need not be able to go on from them"
    trials[3] = dataclasses.replace(trials[3], continues=1)  # but this one is
    kept = keeping.plan_cleaning(engine, trials, folder)
    assert {one.path.name for one in kept.freed} == {"checkpoint.safetensors"}
    assert set(kept.to_go_on) == set(kept.kept) - set(apart.kept)
    number = len(kept.to_go_on)
    assert f", {number} of them to be continued (--finished frees these, too)" in cleaning_line(kept, True)
    done = keeping.plan_cleaning(engine, trials, folder, goes_on=False)
    assert {one.path.name for one in done.freed} == {"checkpoint.safetensors", "state.bin"}


@pytest.mark.parametrize("swept", [False, True])
def test_checkpoints_with_which_other_sweeps_begin_are_kept(with_files: Path, run: Run, swept: bool) -> None:
    before = run.json("clean s --dry-run --json")[0]
    one = next(one for one in before["files"] if one["path"].endswith(".safetensors"))
    path = str(Path(one["path"]).absolute())
    space = {"parameters": [{"type": "choice", "name": "policy.init_from", "choices": ["", path]}]} if swept else {}
    config = {"policy": {"init_from": "" if swept else path}}
    with stores.opened(None) as store:
        store.create_sweep(dataclasses.replace(sweep_spec("stage2"), space=space, config=config), 600.0)
    after = run.json("clean s --json")[0]
    assert after["to_begin"] == [one["trial"]] and Path(path).is_file()
    assert [file for file in before["files"] if file["path"] != one["path"]] == after["files"]
    assert "1 of them because agents of 'stage2' begin with these" in " ".join(run("clean s").split())
    assert run.json("clean stage2 --json")[0]["to_begin"] == []
    assert "agents of sweep 'stage2' begin with checkpoints of 's', which it names by" in run.error("rename s other")
    assert ", with which agents of stage2 begin" in " ".join(run("rm s --yes").split())


def test_load_gives_data_frames(filled: Path) -> None:
    sweep = protein.load("pong")
    assert sweep.name == "pong" and len(sweep.trials) == 7
    assert sweep.trials.index.name == "number"
    assert sweep.trials["train.learning_rate"].dtype == float
    assert sweep.trials.loc[4, "score"] == 18.0 and sweep.trials.loc[4, "run_seconds"] > 0
    assert str(sweep.trials["started_at"].dtype).endswith("UTC]")
    assert set(sweep.curves.columns) == {"trial", "steps", "elapsed_seconds", "score"}
    assert sweep.curves["trial"].nunique() == 7
    assert sweep.best["state"] == "complete"
    assert sweep.spec.env == "pong"
    with pytest.raises(UsageError, match="no sweep 'pung'; did you mean 'pong'"):
        protein.load("pung")


def test_load_knows_scores_as_the_user_does_and_columns_of_one_name(tmp_path: Path) -> None:
    url = f"{tmp_path}/x.db"
    space = protein.Space([protein.Float("score", 1.0, 2.0), protein.Float("x", 0.0, 1.0)])
    protein.Sweep(space, max_trials=4, name="mine", store=url, direction="minimize", seed=1, quiet=True).run(
        lambda params, report: params["x"]
    )
    frame = protein.load(store=url).trials
    assert (frame["score"] == frame["x"]).all()
    assert frame["params.score"].between(1.0, 2.0).all()
    assert (frame["predicted_score_low"].dropna() <= frame["predicted_score_high"].dropna()).all()


def test_load_keeps_every_parameter_whatever_it_is_called(tmp_path: Path) -> None:
    names = ("number", "steps", "params.steps")
    space = protein.Space([protein.Float(name, 10.0 * i, 10.0 * i + 1.0) for i, name in enumerate(names)])
    protein.Sweep(space, max_trials=2, name="mine", store=f"{tmp_path}/x.db", quiet=True).run(lambda *_: 1.0)
    frame = protein.load(store=f"{tmp_path}/x.db").trials
    assert len(frame.sort_values("number")) == 2
    for i, name in enumerate(("params.number", "params.params.steps", "params.steps")):
        assert frame[name].between(10.0 * i, 10.0 * i + 1.0).all()


def test_the_best_of_a_loaded_sweep_is_among_its_trials(tmp_path: Path) -> None:
    url = f"{tmp_path}/x.db"
    space = protein.Space([protein.Float("x", 0.0, 1.0)])
    start = {"max_trials": 4, "name": "mine", "store": url, "seed": 1, "quiet": True}
    protein.Sweep(space, **start).run(lambda params, report: params["x"])  # type: ignore[arg-type]
    loaded = protein.load(store=url)
    protein.Sweep(space, **{**start, "max_trials": 12}).run(lambda params, report: 100.0 + params["x"])  # type: ignore[arg-type]
    assert loaded.best.name in loaded.trials.index


@pytest.mark.parametrize("how", ["moved", "copied"])
def test_a_project_that_was_moved_or_copied_finds_its_own_files(
    with_files: Path, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    before = {**listed(with_files)}
    kept = [path for path in before if "checkpoint" in path]
    other = tmp_path.with_name(f"{tmp_path.name}_other")
    shutil.copytree(with_files, other)
    if how == "moved":
        for part in with_files.iterdir():
            shutil.rmtree(part) if part.is_dir() else part.unlink()
    monkeypatch.chdir(other)
    shown = run("show s --trial 1")
    assert str(other) in shown and str(with_files) not in shown.replace(str(other), "")
    assert "freed" in run("clean s") and "nothing to delete" in run("clean s")
    assert kept and not set(kept) <= set(listed(other)), "its own are gone"
    assert how == "moved" or {path for path in listed(with_files) if "checkpoint" in path} == set(kept)
    run("rename s t")
    assert str(other / "runs" / "t") in run("show t --trial 1")


def test_load_tells_none_from_what_a_trial_has_not(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/x.db"
    store = storage.open_store(url)
    engine = new_sweep(store)
    for params in ({"size": None, "depth": 3}, {"size": [8, 8]}, {"model": "svc"}):
        store.finish_trial(start(store, engine, params=params), complete())
    store.close()
    frame = protein.load(store=url).trials
    assert frame["size"].tolist()[:2] == ["null", "[8, 8]"] and frame["size"].isna().tolist() == [False, False, True]
    assert frame["depth"].dtype == float and frame["depth"].isna().tolist() == [False, True, True]
    assert frame["model"].isna().tolist() == [True, True, False]
