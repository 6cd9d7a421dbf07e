"""What README.md, CONTRIBUTING.md and docs/ promise: their links, code, commands and generated pages."""

import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from protein.cli.parse import COMMANDS, parse
from protein.config import resolve

ROOT = Path(__file__).resolve().parents[1]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md")), ROOT / "envs_c" / "README.md"]
FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
SHOWN = [page for page in PAGES if page.name != "reference.md" and page.parent.name != "envs_c"]


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as the usual hosts make them."""
    headings = re.findall(r"^#+ (.+)$", FENCED.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def blocks(language: str) -> list[tuple[str, str]]:
    """The fenced blocks of a language, each with the name of its page."""
    found = [(name(page), FENCED.findall(page.read_text())) for page in SHOWN]
    return [(where, text) for where, all_of in found for kind, text in all_of if kind == language]


def commands() -> list[str]:
    """The lines of all pages that call `protein`, in code blocks."""
    pattern = re.compile(rf"^(?: {{4}})?(protein (?:{'|'.join(COMMANDS)})\b.*)$", re.MULTILINE)
    return sorted({line for page in SHOWN for line in pattern.findall(page.read_text())})


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page: Path) -> None:
    text = FENCED.sub("", page.read_text())
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)", text):
        found = (page.parent / target).resolve() if target else page
        assert found.exists(), f"{name(page)} links to {target}"
        assert found.is_relative_to(ROOT)
        if anchor:
            assert anchor in anchors(found), f"{name(page)} links to {target}#{anchor}"


@pytest.mark.parametrize("page", [page for page in PAGES if page.name != "reference.md"], ids=name)
def test_prose_is_wrapped(page: Path) -> None:
    """Tables, pictures and code may be wider."""
    lines = FENCED.sub("", page.read_text()).splitlines()
    prose = [line for line in lines if not re.match(r"\||!\[|    |\s*`[^`]*`$", line)]
    assert [line for line in prose if len(line) > 120] == []


@pytest.mark.parametrize(("page", "text"), blocks("python"))
def test_code_is_that_of_an_example(page: str, text: str) -> None:
    examples = [path.read_text() for path in (ROOT / "examples").rglob("*.py")]
    assert any(f"\n{text.strip()}\n" in f"\n{example.strip()}\n" for example in examples), (
        f"a block of {page} is no part of any file in examples/, which the tests run"
    )


@pytest.mark.parametrize(("page", "text"), [one for one in blocks("toml") if "[env]" not in one[1]])
def test_a_space_is_that_of_an_example(page: str, text: str) -> None:
    assert text in [path.read_text() for path in (ROOT / "examples").rglob("*.toml")], page


@pytest.mark.parametrize("example", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.name)
def test_every_example_is_shown(example: Path) -> None:
    assert any(text.strip() == example.read_text().strip() for _, text in blocks("python"))


def configs() -> list[str]:
    return [text for _, text in blocks("toml") if "[env]" in text]


@pytest.mark.parametrize("text", configs())
def test_a_config_is_read_and_has_the_ranges_it_shows(text: str, tmp_path: Path) -> None:
    (tmp_path / "shown.toml").write_text(text)
    layers = resolve.load(tomllib.loads(text)["env"]["name"], config_file=tmp_path / "shown.toml", for_sweep=True)
    swept = {parameter.name for parameter in layers.parameters()}
    shown = re.findall(r"^(\S+) = \{.* min = ", text, flags=re.M)
    assert {name.rpartition(".")[2] for name in swept}.issuperset(shown)


@pytest.mark.parametrize("line", commands())
def test_commands_are_understood(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(ROOT / "examples" / "walk.py", tmp_path)
    [config] = [text for text in configs() if tomllib.loads(text)["env"] == {"name": "pong"}]
    (tmp_path / "mine.toml").write_text(config)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    words = shlex.split(line, comments=True)
    assert parse(words[1:]).name == words[1]


def test_the_unit_of_systemd_is_shown_and_can_be_read(tmp_path: Path) -> None:
    unit = ROOT / "examples" / "systemd" / "protein-pong.service"
    assert [text.strip() for _, text in blocks("ini")] == [unit.read_text().strip()]
    [line] = re.findall(r"^ExecStart=/usr/bin/env (protein .*)$", unit.read_text(), re.MULTILINE)
    assert parse(shlex.split(line)[1:]).name == "sweep"
    if shutil.which("systemd-analyze"):
        command = ["systemd-analyze", "verify", "--user", str(unit)]
        environment = {"XDG_RUNTIME_DIR": str(tmp_path), "HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
        ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert "protein-pong" not in ran.stderr, ran.stderr


def test_make_has_what_the_pages_ask_for() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    asked = {
        target for page in SHOWN for target in re.findall(r"(?:`|^)make ([a-z-]+)", page.read_text(), re.MULTILINE)
    }
    assert {"sweep", "test", "check", "docs"} <= asked <= targets


def test_pages_name_files_that_exist() -> None:
    paths = {}
    for page, folder in (("CONTRIBUTING.md", "protein/engine"), ("docs/how-the-engine-works.md", "protein/engine")):
        text = FENCED.sub("", (ROOT / page).read_text())
        for path in re.findall(r"`([\w./-]+(?:/|\.(?:cpp|h|md|py|toml|txt)))`", text):
            paths[path] = (ROOT / path).exists() or (ROOT / folder / path).exists()
    assert len(paths) > 60
    assert {path for path, exists in paths.items() if not exists} == {"configs/NAME.toml"}  # a new environment's


def test_the_reference_is_what_the_docstrings_say() -> None:
    command = [sys.executable, str(ROOT / "scripts" / "reference.py"), "--check"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
