"""The password of a store's URL is in nothing that a command prints, whatever is wrong with the URL."""

import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
import rich_store

from protein import storage
from protein.cli import main
from protein.cli.parse import COMMANDS
from protein.urls import hidden

SECRET = "geheim77"
# Of each command that takes a store, words with which it does something.
LINES = {
    "status": "status s",
    "pareto": "pareto s",
    "best": "best s",
    "laws": "laws s",
    "show": "show s",
    "compare": "compare s t",
    "plot": "plot front s",
    "play": "play s -o s.html",
    "report": "report s",
    "note": "note s --trial 3 --tag x",
    "try": "try s --lr 0.1",
    "pause": "pause s",
    "resume": "resume s",
    "stop": "stop s",
    "cancel": "cancel s --trial 3",
    "sync": "sync s --tracker tensorboard",
    "export": "export s -o s.jsonl",
    "clean": "clean s --dry-run",
    "rename": "rename s u",
    "rm": "rm s",
    "doctor": "doctor",
    "mcp": "mcp --allow-start pong --max-cost 1m",
    "train": "train --env pong --from s",
    "sweep": "sweep --env pong --name s --max-trials 1",
    "import": "import optuna x.db",
}
POSITIONAL = ("store check", "store upgrade", "store backup", "store move", "view")
BROKEN = (
    "postgresql://me:{s}@127.0.0.1:1/db",
    "postgresql://127.0.0.1:1/db?user=me&password={s}",
    "postgresql://127.0.0.1:1/db?passw%6Frd={s}",
    "postgresql://me:{s}@127.0.0.1:port/db",
    "postgresql://me:{s}@127.0.0.1:1",
    "postgresql://me:a@{s}@127.0.0.1:1/db",
    "postgresql://me:{s}?x@127.0.0.1:1/db",
    "postgresql://me:{s}/x@127.0.0.1:1/db",
    "postgresql:me:{s}@127.0.0.1/db",
    "postgres://me:{s}@127.0.0.1/db",
    "postgresql+asyncpg://me:{s}@127.0.0.1/db",
    "mysql://me:{s}@127.0.0.1/db",
    "postgresql://me:{s}@[::1/db",
    "sqlite://me:{s}@host/x.db",
    "host=127.0.0.1 password={s} dbname=x",
    "postgresql://me:{s}@127.0.0.1:1/db?unknown_option=x&sslmode=nonsense&password={s}",
)


def test_the_lists_here_name_every_command_that_takes_a_store() -> None:
    without = {"data", "eval", "envs", "worker", "serve"}
    assert {*LINES, *(words.split()[0] for words in POSITIONAL)} | without >= set(COMMANDS)


@pytest.mark.parametrize("url", BROKEN)
def test_no_command_prints_the_password_of_a_url_that_does_not_work(
    url: str, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    url = url.format(s=SECRET)
    assert SECRET not in hidden(url) or url.count(SECRET) > 1
    lines = ["status s", "export s -o s.jsonl", "sweep --env pong --max-trials 1", "store check", "doctor", "view"]
    lines.append(LINES["mcp"])
    for line in lines:
        words = shlex.split(line)
        words += [url] if line in POSITIONAL else ["--store", url]
        code = main(words)
        printed = capfd.readouterr()
        assert SECRET not in printed.out + printed.err, line
        assert code in (1, 2)
        assert line == "doctor" or (printed.err.startswith("error: ") and printed.err.count("\n") == 1), line
    assert not [path for path in folder.rglob("*") if SECRET in str(path)]


def test_no_command_prints_the_password_of_a_url_that_works(
    folder: Path, new_postgresql: Callable[..., str], postgresql_template: str, capfd: pytest.CaptureFixture[str]
) -> None:
    made = new_postgresql(postgresql_template)
    store = storage.open_store(made)
    sweep = rich_store.fill(store)
    rich_store.fill(store, "t")
    for one in (sweep.id, sweep.id + 1):
        store.interrupt_orphans(one, [f"host-ü:{i}:1.00" for i in range(30)])
    store.close()
    urls = [made.replace("postgres@", f"postgres:{SECRET}@"), f"{made}?password={SECRET}"]
    for url in urls:
        for name, line in LINES.items():
            if name in ("train", "sync", "sweep", "mcp") or (
                url != urls[0] and name not in ("status", "show", "rename")
            ):
                continue
            main([*shlex.split(line), "--store", url])
            printed = capfd.readouterr()
            assert SECRET not in printed.out + printed.err, line
            if name == "rename":
                assert main(["rename", "u", "s", "--store", url]) == 0
                capfd.readouterr()
        for words in (
            ["check", url],
            ["backup", url, "-o", f"{len(url)}.jsonl"],
            ["move", url, "--to", f"{len(url)}.db"],
        ):
            assert main(["store", *words]) == 0
            printed = capfd.readouterr()
            assert SECRET not in printed.out + printed.err, words
    assert not [path for path in folder.rglob("*") if SECRET in str(path)]


def test_a_sweep_that_ends_does_not_print_the_password(
    folder: Path, new_postgresql: Callable[..., str], capfd: pytest.CaptureFixture[str]
) -> None:
    url = new_postgresql().replace("postgres@", f"postgres:{SECRET}@")
    line = f"sweep --env cartpole --max-trials 1 --train.total-timesteps 20000 --calibrate False --store {url}"
    assert main(shlex.split(line)) == 0
    printed = capfd.readouterr()
    assert "--store" in printed.out and SECRET not in printed.out + printed.err


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("runs/protein.db", "runs/protein.db"),
        ("sqlite:////a/b.db", "sqlite:////a/b.db"),
        ("postgresql://me@host/db", "postgresql://me@host/db"),
        ("postgresql://me:pw@host:5/db?sslmode=require", "postgresql://me@host:5/db?sslmode=require"),
        ("postgresql://host/db?password=a&sslmode=require", "postgresql://host/db?sslmode=require"),
        ("host=x password='a b' dbname=y", "host=x password=*** dbname=y"),
    ],
)
def test_a_url_is_shown_without_its_password(url: str, shown: str) -> None:
    assert hidden(url) == shown
