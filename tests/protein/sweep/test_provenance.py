"""What is said to have changed since a result was found, in real git repositories."""

import dataclasses
import subprocess
from pathlib import Path

import pytest

from protein.sweep import provenance
from protein.types import Provenance


class Repository:
    """A repository that looks like this one: an environment, the trainer, and other code."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.git("init", "--quiet")
        self.git("config", "user.email", "someone@example.org")
        self.git("config", "user.name", "someone")
        for name in ("envs_c/pong.h", "trainer/run.py", "protein/view.py"):
            self.write(name, "1")
        self.commit()

    def git(self, *words: str) -> str:
        return subprocess.run(["git", *words], cwd=self.root, check=True, capture_output=True, text=True).stdout.strip()

    def write(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def commit(self) -> str:
        self.git("add", ".")
        self.git("commit", "--quiet", "--message", "more", "--no-gpg-sign")
        return self.git("rev-parse", "HEAD")


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    made = Repository(tmp_path)
    monkeypatch.setattr(provenance, "_folders", lambda: (tmp_path / "protein", tmp_path))
    provenance._git_commit.cache_clear()
    monkeypatch.setattr(provenance, "_git_commit", provenance._git_commit.__wrapped__)  # changes between the calls
    return made


def test_nothing_changed_where_nothing_that_trains_changed(repository: Repository) -> None:
    then = provenance.collect({})
    assert provenance.changes_since(then) == []
    repository.write("protein/view.py", "2")
    assert provenance.changes_since(then) == []  # not committed
    repository.commit()
    assert provenance.collect({}).git_commit != then.git_commit
    assert provenance.changes_since(then) == []


def test_changes_of_the_environments_and_of_the_trainer_are_told(repository: Repository) -> None:
    then = provenance.collect({})
    since = f"changed since commit {then.git_commit[:10]}"
    repository.write("envs_c/pong.h", "2")
    assert provenance.changes_since(then) == [f"the code of the environments {since} (1 file)"]  # not committed
    repository.write("trainer/run.py", "2")
    repository.commit()
    assert provenance.changes_since(then) == [f"the code of the environments and of the trainer {since} (2 files)"]
    now = provenance.collect({})
    repository.write("trainer/run.py", "3")
    repository.commit()
    assert provenance.changes_since(now)[0].startswith("the code of the trainer changed since commit ")


def test_changes_that_were_not_committed_then_are_told(repository: Repository) -> None:
    repository.write("trainer/run.py", "2")
    then = provenance.collect({})
    assert then.git_commit.endswith("-dirty")
    repository.git("checkout", "--quiet", "trainer/run.py")
    [said] = provenance.changes_since(then)
    assert said == f"it was found with commit {then.git_commit[:10]} and changes that were not committed"


def test_an_unknown_commit_another_version_and_another_machine_are_told(repository: Repository) -> None:
    here = provenance.collect({})
    then = dataclasses.replace(
        here, version="0.0.1", git_commit="f" * 40, machine="host, a CPU, 4 cores, Linux, Python 3.9.0"
    )
    assert provenance.changes_since(then) == [
        f"it was found with version 0.0.1, this is {here.version}",
        f"it was found with commit {'f' * 10}, this is {here.git_commit[:10]}",
        f"its cost was measured on another machine ({then.machine})",
    ]
    newer = dataclasses.replace(here, machine=f"{here.machine.rpartition(' ')[0]} 9.9.9")
    assert provenance.changes_since(newer) == []  # another version of Python on the same machine


def test_without_a_commit_nothing_is_said_of_the_code(repository: Repository) -> None:
    then = dataclasses.replace(provenance.collect({}), git_commit="")
    assert provenance.changes_since(then) == []


def test_in_a_repository_of_the_users_own_each_changed_file_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Repository.__new__(Repository)
    made.root = tmp_path
    made.git("init", "--quiet")
    made.git("config", "user.email", "someone@example.org")
    made.git("config", "user.name", "someone")
    made.write("train.py", "1")
    first = made.commit()
    made.write("train.py", "2")
    made.commit()
    monkeypatch.setattr(provenance, "_folders", lambda: (Path("/"), tmp_path))
    monkeypatch.setattr(provenance, "_git_commit", provenance._git_commit.__wrapped__)
    then: Provenance = dataclasses.replace(provenance.collect({}), git_commit=first)
    assert provenance.changes_since(then) == [f"the code changed since commit {first[:10]} (1 file)"]
