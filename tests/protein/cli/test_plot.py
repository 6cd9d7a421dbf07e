"""`protein plot`: the files that it writes, and its one line for every mistake."""

from pathlib import Path

import pytest
from commands import Run


@pytest.mark.parametrize("words", ["front", "curves pong --x steps --log-x --smooth 0.5", "parallel pong"])
def test_plot_writes_a_picture(filled: Path, run: Run, words: str) -> None:
    assert run(f"plot {words} -o pictures/a.svg") == "plot: pictures/a.svg\n"
    assert "<svg" in (filled / "pictures" / "a.svg").read_text()


def test_without_a_file_the_picture_has_the_name_of_its_kind(filled: Path, run: Run) -> None:
    assert run("plot front") == "plot: front.png\n"
    assert (filled / "front.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("", "say what to plot: front, history, curves, parallel, importance, compare;"),
        ("frnt", "there is no plot 'frnt'; did you mean 'front'?"),
        ("front pnog", "there is no sweep 'pnog'; did you mean 'pong'?"),
        ("front -o a.gif", "a.gif ends in '.gif', which is no kind of picture; end it in .png, .svg, .pdf"),
        ("front -o a", "a has no ending; end it in .png, .svg, .pdf"),
        ("front -o", "flag '-o' needs a value"),
        ("front --by lr", "a plot of kind 'front' takes no --by"),
        ("parallel --x steps", "a plot of kind 'parallel' takes no --x; it takes --params"),
        ("curves --trials 1,x", "--trials '1,x' is not a list of trials; write it like 3,17,18"),
        ("curves --trials 7", "sweep 'pong' has no trial 7; it has 7, from 0 to 6"),
        ("curves --by train.lr", "no trial has a parameter 'train.lr'"),
        ("curves --smooth 1", "smooth 1.0 must be from 0 to below 1"),
        ("parallel --params train.gama", "no trial has a parameter 'train.gama'; did you mean 'train.gamma'?"),
        ("front -o /proc/none/x.png", "/proc/none/x.png cannot be written ("),
    ],
)
def test_mistakes_are_one_line(filled: Path, run: Run, words: str, message: str) -> None:
    assert run.error(f"plot {words}").startswith(message)
    assert sorted(path.name for path in filled.iterdir()) == ["runs"]
