"""Text of other people's programs cannot steer the terminal, and is not endless."""

import io
import re
from typing import Any

import pytest
from commands import Run
from rich.text import Text
from sample_trials import many, status, sweep_record, trial

from protein import storage
from protein.types import Outcome, Suggestion, SuggestionKind, TrialEnd
from protein.view import tables, text
from protein.view.terminal import PlainWatcher, make_watcher
from protein.view.text import MAX_TEXT, STEERING, cleaned

EVIL = "a\x1b]0;title\x07b\x1b[2Jc\x9b31md\u202ee\u2066f\rg\x00h\x7f"
PLAIN = "a]0;titleb[2Jc31mdefgh"


def steers(printed: str) -> bool:
    return bool(STEERING.search(printed))


def test_only_what_steers_is_removed() -> None:
    assert cleaned(EVIL) == PLAIN
    assert cleaned("ünï ☃ 𝄞\n\tx") == "ünï ☃ 𝄞\n\tx"
    assert cleaned("x" * 900_000, 100) == "x" * 99 + "…"
    assert cleaned("\x1b" * 900_000 + "x", 100) == ""
    assert cleaned("short", 100) == "short"


@pytest.mark.parametrize("terminal", [True, False])
def test_a_console_prints_nothing_that_steers(terminal: bool) -> None:
    file: Any = io.StringIO()
    file.isatty = lambda: terminal
    console = tables.make_console(file)
    console.print(EVIL)
    console.print(Text(EVIL, style="bold"), soft_wrap=True)
    console.print(tables.fitted(80, tables.Column(EVIL, [EVIL, "x" * 900_000], keep=1, least=20)))
    assert "title" in file.getvalue() and len(file.getvalue()) < 100_000
    printed = re.sub("\x1b\\[[0-9;]*m", "", file.getvalue()) if terminal else file.getvalue()  # colors are rich's own
    assert not steers(printed)


def test_plain_lines_and_the_live_view_are_clean(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = trial(1, 3.0, None, state=many(7)[5].state, reason=f"{EVIL} {'x' * 900_000}", params={"p": EVIL * 9000})
    for terminal in (False, True):
        file: Any = io.StringIO()
        file.isatty = lambda terminal=terminal: terminal
        monkeypatch.setenv("TERM", "xterm")
        console = tables.make_console(file)
        with make_watcher(console) as watcher:
            assert isinstance(watcher, PlainWatcher) is not terminal
            watcher.log(EVIL + "x" * 900_000)
            watcher.update(status([ended, trial(2, 1.0, 1.0, params={EVIL: EVIL})]))
            watcher.finished(ended, status([ended]))
        printed = file.getvalue()
        assert len(printed) < 4 * MAX_TEXT + 20_000
        assert "\x07" not in printed and "\u202e" not in printed and "\x9b" not in printed and "]0;title" in printed
        if not terminal:
            assert not steers(printed)


def test_commands_print_nothing_that_steers(folder: Any, run: Run) -> None:
    store = storage.open_store("sqlite:///runs/protein.db")
    from rich_store import fill

    sweep = fill(store, "s", num_trials=12)
    for _ in range(2):
        made = store.start_trial(
            sweep.id,
            Suggestion(params={"lr": 0.01, "kind": EVIL.replace("\0", "")}, kind=SuggestionKind.SEARCH, origin=EVIL),
            seed=0,
            owner="o",
            lease_seconds=1.0,
            suggest_seconds=0.0,
            provenance=sweep.spec.provenance,
        )
        store.finish_trial(made, Outcome(end=TrialEnd.CRASHED, reason=EVIL + "x" * 900_000))
    store.close()
    for line in ("status", "status s", "show s", "show s --trial 13", "pareto s", "best s"):
        printed = run(line)
        assert not steers(printed), line
        assert len(printed) < 300_000, line


def test_an_error_is_clean(folder: Any, capsys: pytest.CaptureFixture[str]) -> None:
    from protein.cli import main

    assert main(["show", EVIL]) == 2
    assert not steers(capsys.readouterr().err)


def test_a_cost_beyond_reason_breaks_no_view() -> None:
    assert text.seconds(1e300) == "1e+300s"
    assert text.seconds(86_400 * 400.0) == "400d00h"
    file: Any = io.StringIO()
    file.isatty = lambda: False
    trials = [trial(0, 1e300, 3.0), trial(1, 2.0, 1.0), trial(2, 1e-300, 0.5)]
    console = tables.make_console(file)
    console.print(tables.trials(trials, 200))
    console.print(tables.front(trials[1:] + trials[:1], 200))
    console.print(tables.sweeps([(sweep_record(), trials)], 200))
    watcher = PlainWatcher(console)
    watcher.finished(trials[0], status(trials))
    assert "1e+300s" in file.getvalue()
