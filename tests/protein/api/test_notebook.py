"""A sweep in a notebook: what it prints, what it shows, its frame and its pages."""

import base64
import re
import subprocess
import tempfile
import webbrowser
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import protein
from protein import Categorical, Float, Report, Space, Sweep, SweepResult, storage
from protein.cli.arguments import ReportArguments
from protein.cli.parse import parse

MARKUP = "<script>alert('x')</script>"


def train(params: Mapping[str, Any], report: Report) -> float:
    report(1, params["x"], cost_seconds=1.0)
    return float(params["x"])


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    space = Space([Float("x", 0.0, 1.0), Categorical("kind", [MARKUP, "b"])])
    path = tmp_path_factory.mktemp("notebook") / "x.db"
    return Sweep(space, store=path, name="n1", max_trials=4, start={"x": 0.5, "kind": MARKUP}, quiet=True)


@pytest.fixture(scope="module")
def result(sweep: Sweep) -> SweepResult:
    return sweep.run(train)


def test_a_result_prints_five_short_lines_with_what_was_found(result: SweepResult) -> None:
    lines = repr(result).splitlines()
    assert len(lines) == 5 and max(map(len, lines)) <= 150
    assert lines[0].startswith("SweepResult 'n1': 4 trials, 4 complete; ")
    assert lines[1:3] == [f"  ended: {result.ended}", f"  best: {result.summary.splitlines()[0]}"]
    assert str(result) == repr(result) and result.store not in repr(result)


def test_it_is_shown_with_the_recommended_config_and_the_front(result: SweepResult) -> None:
    shown = result._repr_html_()
    assert result.best is not None
    assert f"rial {result.best.number} " in shown and "data:image/png;base64," in shown
    assert "<th>recommended</th>" in shown and "front: trial" in shown
    assert MARKUP not in shown and "&lt;script&gt;" in shown


def test_its_frame_has_a_row_for_each_trial(result: SweepResult) -> None:
    assert result.frame["x"].tolist() == [trial.params["x"] for trial in result.trials]


def test_its_pages_are_one_file_that_is_shown_inside(
    sweep: Sweep, result: SweepResult, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []

    def run(command: list[str], env: Mapping[str, str], **rest: Any) -> "subprocess.CompletedProcess[str]":
        assert env["PROTEIN_STORE"] == result.store
        given = parse(command[command.index("protein") + 1 :]).arguments
        assert isinstance(given, ReportArguments) and given.sweeps == ("n1",) and given.output is not None
        given.output.write_text(f'<!doctype html><p title="a">{MARKUP}')
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(webbrowser, "open", opened.append)
    page = sweep.view(height=300)
    assert opened == [page.path.as_uri()], "no notebook asks here"
    shown = page._repr_html_()
    document = re.fullmatch(r'<iframe src="data:text/html;base64,([^"]+)" style="[^"]*height: 300px[^"]*".*', shown)
    assert document is not None and base64.b64decode(document[1]) == page.path.read_bytes()


def test_a_sweep_that_is_gone_is_told_in_one_line_and_still_prints(tmp_path: Path) -> None:
    space = Space([Float("x", 0.0, 1.0)])
    path = tmp_path / "x.db"
    result = Sweep(space, store=path, max_trials=1, quiet=True).run(train)
    whole = storage.open_whole_store(str(path))
    whole.remove_sweep(whole.list_sweeps()[0].id)
    whole.close()
    assert result._repr_html_().startswith("<pre>SweepResult &#x27;sweep&#x27;: 1 trial")
    for ask in (lambda: result.frame, result.view):
        with pytest.raises(protein.UsageError, match="the store holds no sweep yet"):
            ask()


def test_the_package_lists_its_names_and_its_errors() -> None:
    assert set(protein.__all__) <= set(dir(protein))
    assert "plots" in dir(protein) and "TYPE_CHECKING" not in dir(protein)
    errors = [getattr(protein, name) for name in dir(protein) if name.endswith(("Error", "Missing", "Lost", "Failed"))]
    assert len(errors) >= 8 and all(issubclass(error, protein.ProteinError) for error in errors)
