"""The commands where they cannot work: each mistake, each unusable store, file or disk is one line."""

import contextlib
import errno
import re
import shlex
import sqlite3
from datetime import UTC, datetime
from pathlib import Path

import pytest
import ray_clusters
from commands import Run, sweep_command
from sample_trials import stored_layers

from protein.api import stores, training
from protein.api.plan import _OtherMachines
from protein.cli import main
from protein.cli.output import writing
from protein.errors import UsageError
from protein.types import Machine


def test_environments_that_cannot_be_made_are_one_line(folder: Path, run: Run) -> None:
    for command in ("train", "sweep"):
        assert re.fullmatch(
            r"cannot make 'gym:CartPool-v1': .*Did you mean: `CartPole`\?",
            run.error(f"{command} --env gym:CartPool-v1"),
        )
        assert run.error(f"{command} --env python:no_such:Env") == (
            "cannot make 'python:no_such:Env': ModuleNotFoundError: No module named 'no_such'"
        )
        assert "did you mean 'gym:'?" in run.error(f"{command} --env gmy:CartPole-v1")
    assert list(folder.iterdir()) == []


def test_a_store_that_cannot_be_read_is_one_line(folder: Path, run: Run) -> None:
    missing = "there is no store runs/protein.db yet; run protein sweep first, or name another with --store"
    for command in ("status", "pareto", "best", "show", "train --from pong"):
        assert run.error(command) == missing
    assert not (folder / "runs").exists()
    (folder / "text.db").write_text("not a database, but long enough to be taken for one" * 20)
    assert "text.db is not a SQLite database" in run.error("status --store text.db")
    assert "'mysql' is not supported" in run.error("status --store mysql://host/x")
    assert "cannot be made" in run.error("sweep --env pong --max-cost 1m --store /proc/none/x.db")
    assert "the store's URL is empty" in run.error("status --store ''")  # as from a variable that is not set


def test_a_store_of_a_newer_version_is_refused_and_left_alone(filled: Path, run: Run) -> None:
    with contextlib.closing(sqlite3.connect("runs/protein.db")) as database, database:
        database.execute("UPDATE protein_schema SET version_num = '9999'")
    for command in ("status", "sweep --env pong --max-cost 1m"):
        message = run.error(command)
        assert message.startswith(
            "store runs/protein.db has schema 9999, and this version of protein knows schemas up to "
        )
        assert "upgrade with" in message


def test_a_full_disk_is_one_line(filled: Path, run: Run) -> None:
    line = "/dev/full cannot be written (No space left on device); give another path or free some space"
    assert run.error("best --write /dev/full") == line
    assert run.error("pareto --png /dev/full") == line


def test_a_file_that_cannot_be_written_is_one_line(filled: Path, run: Run) -> None:
    (filled / "taken").mkdir()
    assert run.error("best --write taken") == ("taken cannot be written (Is a directory); give another path")
    assert run.error("pareto --png /proc/none/x.png").startswith("/proc/none/x.png cannot be written (")
    assert run.error("train --env pong --checkpoint taken") == "--checkpoint taken is a folder; give the path of a file"
    assert run.error("train --env pong --checkpoint /proc/none/x").startswith("/proc/none/x cannot be written (")
    assert not (filled / "runs" / "train").exists()


def test_what_must_not_be_written_is_not_a_matter_of_space(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    denied = PermissionError(errno.EACCES, "Permission denied")
    said = r"^x cannot be written \(Permission denied\); give another path or change its permissions$"
    with pytest.raises(UsageError, match=said), writing(Path("x")):
        raise denied

    def refuse(*_: object, **__: object) -> None:
        raise denied

    monkeypatch.setattr(Path, "mkdir", refuse)
    said = r"^runs/train cannot be written \(Permission denied\); work in another folder or change its permissions$"
    with pytest.raises(UsageError, match=said):
        training.new_directory(stored_layers().run_config())


def test_a_warm_start_of_a_sweep_that_began_without_one_is_refused(filled: Path, run: Run) -> None:
    assert run.error(sweep_command(filled, "--max-cost 5m --warm-start other")) == (
        "sweep 'pong' was started without a warm start; now --warm-start other is given; choose another name, or leave"
        " it as it was"
    )


SWEEP_MISTAKES = [
    ("sweep", "no environment is named; give --env NAME; known: "),
    ("sweep --env pung", "unknown environment 'pung'; did you mean 'pong'?"),
    ("sweep --env pong --max-cost 10x", "--max-cost '10x' is not a duration; write it like 90s, 15m, 2h, 1d or 1h30m"),
    ("sweep --env pong --max-cost ''", "--max-cost '' is not a duration; write it like 90s, 15m, 2h, 1d or 1h30m"),
    ("sweep --env pong --max-cost=-5m", "--max-cost '-5m' must be above 0; write it like 90s, 15m, 2h, 1d or 1h30m"),
    ("sweep --env pong --max-cost 0m", "--max-cost '0m' must be above 0; write it like 90s, 15m, 2h, 1d or 1h30m"),
    ("sweep --env pong --max-cost 0", "--max-cost '0' must be above 0; write it like 90s, 15m, 2h, 1d or 1h30m"),
    (
        "sweep --env pong --max-trial-cost 0",
        "--max-trial-cost '0' must be above 0; write it like 90s, 15m, 2h, 1d or 1h30m",
    ),
    (
        "sweep --env pong --stop-when 'gain > 1 per hour'",
        "--stop-when 'gain > 1 per hour' is not a condition; write it like 'gain < 0.5 per hour', 'gain < 2 per"
        " 10m' or 'score >= 20'",
    ),
    (
        "sweep --env pong --stop-when 'gain < 1 per hour' --method random",
        "--stop-when needs method 'protein', and the method is 'random'; drop one of the two",
    ),
    (
        "sweep --env pong --max-cost 30s --max-trial-cost 1m",
        "--max-cost 30s is smaller than one trial may cost, --max-trial-cost 1m; raise the budget or lower the cap",
    ),
    (
        "sweep --env pong --train.minibatch-size 131072 --train.horizon 64 --env.num-envs 1024",
        "train.minibatch_size (131072) is larger than the batch (1024 agents * horizon 64 = 65536): lower it or raise"
        " env.num_envs or train.horizon",
    ),
    ("sweep --env pong --train.learning-rate -1", "train.learning_rate must be at least 0 and finite, got -1.0"),
    ("sweep --env pong --train.device cuda:99", "train.device 'cuda:99' is not available on this machine: use 'auto'"),
    ("train --env pong --train.device cuda:99", "train.device 'cuda:99' is not available on this machine: use 'auto'"),
    (
        "train --env pong --selfplay.on true",
        "selfplay.on needs an environment with sides and scripts, and 'pong' has no",
    ),
    ("train --env pong --trace .", "--trace . is a folder; give the path of a file"),
    ("sweep --env pong --method bayes", "unknown method 'bayes'; known: "),
    ("sweep --env pong --warm-start old", "there is no store runs/protein.db yet; run protein sweep first"),
    ("sweep --env pong --workers 0", "--workers = 0 is below the limit of 1; use 1 or more"),
    ("sweep --env pong --seed -1", "--seed = -1 is below the limit of 0; use 0 or more"),
    (
        "sweep --env pong --max-trial-memory lots",
        "--max-trial-memory 'lots' is not a size; write it like 512MiB or 4GiB",
    ),
    (
        "sweep --env pong --name ../x",
        "--name '../x' must be 1 to 64 letters, digits, dots, dashes or underscores; choose another",
    ),
    ("sweep --env pong --config none.toml", "none.toml: no such config file; check the path"),
    ("train", "no environment is named; give --env NAME; known: "),
    ("train --env pong --train.minibatch-size 131072", "train.minibatch_size (131072) is larger than the batch "),
    (
        "train --env pong --under 30s",
        "--under 30s chooses among a sweep's trials; name the sweep with --from",
    ),
    (
        "eval",
        "eval needs a checkpoint; give --checkpoint RUN, the folder of a run or the file that protein train prints",
    ),
    ("eval --checkpoint x --episodes 0", "--episodes 0 is below the limit of 1; play at least one"),
    ("eval --checkpoint x --seed -1", "--seed -1 is below the limit of 0; use 0 or more"),
    (
        "eval --checkpoint x --seed 18446744073709551616",
        "--seed 18446744073709551616 is above the limit of 18446744073709551615; use a smaller one",
    ),
]


@pytest.mark.parametrize(("line", "message"), SWEEP_MISTAKES)
def test_a_mistake_is_one_line_and_makes_nothing(folder: Path, run: Run, line: str, message: str) -> None:
    assert run.error(line).startswith(message)
    assert list(folder.iterdir()) == []


def test_train_from_a_sweep_refuses_what_contradicts_it(filled: Path, run: Run) -> None:
    (filled / "own.toml").write_text("[train]\ngamma = 0.5\n")
    assert run.error("train --from pong --config own.toml") == (
        "--config own.toml would be overruled by --from pong, which brings a whole config; drop one of the two, or"
        " override single values with their flags"
    )
    assert run.error("train --env go --from pong") == (
        "--env go contradicts --from pong, a sweep of 'pong'; drop --env or name another sweep"
    )
    assert run.error("train --from pung") == "there is no sweep 'pung'; did you mean 'pong'?"
    assert run.error("train --from pong --train.horizon 1").startswith("train.minibatch_size (1024) is larger than the")


def test_another_definition_under_a_name_is_refused_and_says_what_differs(filled: Path, run: Run) -> None:
    message = run.error(sweep_command(filled, "--max-cost 5m --method random --seed 4 --train.adam-eps 0.5"))
    assert message == (
        "sweep 'pong' exists with method = protein (now random), seed = 0 (now 4), train.adam_eps = 1e-05 (now 0.5);"
        " choose another name, which can learn from this sweep by --warm-start pong, or leave those as they were"
    )
    message = run.error(sweep_command(filled, "--max-cost 5m --train.learning-rate 0.003"))
    assert re.match(
        r"sweep 'pong' exists with train.learning_rate = \S+, swept from 0.0005 to 0.05 \(log\) \(now 0.003\);", message
    )
    assert run.json("status pong --json")["max_cost_seconds"] == 240.0


def test_a_place_where_no_trial_can_run_leaves_nothing_behind(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ray_clusters.require_ray()
    for backend, said in (
        ("ray:127.0.0.1:1", "there is no Ray cluster at 127.0.0.1:1"),
        ("ray:no-such-host.invalid:6379", "there is no Ray cluster at no-such-host.invalid:6379"),
    ):
        line = f"sweep --env pong --max-cost 1m --backend {backend} --store sqlite:///new/protein.db"
        assert main(shlex.split(line)) == 2
        printed = capsys.readouterr()
        assert re.fullmatch(rf"error: {re.escape(said)}[^\n]+\n", printed.err)
        assert list(folder.iterdir()) == []


def test_machines_that_are_found_before_the_store_is_open_are_kept(folder: Path) -> None:
    def machine(name: str) -> Machine:
        return Machine(name=name, facts={}, calibration_seconds=1.0, measured_at=datetime.now(UTC))

    found = _OtherMachines("sqlite:///new.db")
    assert found.known == [] and list(folder.iterdir()) == []
    found.add(machine("before"))
    with stores.opened("sqlite:///new.db", create=True) as store:
        found.keep_in(store)
        found.add(machine("after"))
        assert [one.name for one in store.machines()] == ["before", "after"]
    assert [one.name for one in _OtherMachines("sqlite:///new.db").known] == ["before", "after"]
