"""`protein laws` on a real store: the table, the strips, JSON, the config for a cost, and mistakes."""

import dataclasses
import json
import math
import re
import shlex
import shutil
import tomllib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from commands import Run
from hypothesis import assume, given
from hypothesis import strategies as st
from sample_trials import PROVENANCE, stored_layers, stored_spec

from protein.cli.parse import parse
from protein.config.resolve import load, make_space
from protein.engine.laws import BestValue, Law, Laws, Plan
from protein.engine.results import Matter, Matters, Share
from protein.run.lease import current_owner
from protein.space import Categorical, Float, Integer, Space
from protein.storage import open_store
from protein.trainer.config import RunConfig
from protein.types import Estimate, Outcome, Suggestion, SuggestionKind, TrialEnd
from protein.view import laws as views

URL = "sqlite:///runs/protein.db"
SECONDS_A_STEP = 1e-5


def fill(num_trials: int, *, url: str = URL, name: str = "pong", cost_parameter: bool = True) -> Space:
    """Stores a sweep of pong whose best learning rate falls with the square root of the cost."""
    space = make_space(stored_layers())
    if not cost_parameter:
        space = Space.from_dict({**space.to_dict(), "cost_parameter": None})
    store = open_store(url)
    sweep = store.create_sweep(stored_spec(name, space), 3600.0)
    for number, params in enumerate(space.from_unit_many(space.sample(num_trials, np.random.default_rng(0)))):
        seconds = float(params["train.total_timesteps"]) * SECONDS_A_STEP
        miss = math.log(float(params["train.learning_rate"]) * math.sqrt(seconds) / 0.05)
        suggestion = Suggestion(params=params, kind=SuggestionKind.RANDOM, origin="random")
        started = store.start_trial(
            sweep.id,
            suggestion,
            seed=number,
            owner=current_owner(),
            lease_seconds=600.0,
            suggest_seconds=0.1,
            provenance=PROVENANCE,
        )
        score = 10.0 + math.log(seconds) - 3.0 * miss**2
        end = TrialEnd.DIVERGED if number % 10 == 9 else TrialEnd.COMPLETE
        outcome = Outcome(end=end, score=score, cost_seconds=seconds, steps=int(seconds / SECONDS_A_STEP))
        if end is TrialEnd.DIVERGED:
            outcome = dataclasses.replace(outcome, score=None, reason="diverged: loss is nan")
        store.finish_trial(started, outcome)
    store.close()
    return space


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a store with a sweep."""
    folder = tmp_path_factory.mktemp("made")
    fill(50, url=f"sqlite:///{folder}/protein.db")
    return folder / "protein.db"


@pytest.fixture
def swept(made: Path, folder: Path) -> Path:
    (folder / "runs").mkdir()
    shutil.copy(made, folder / "runs" / "protein.db")
    return folder


@pytest.fixture(scope="module")
def kept() -> dict[str, str]:
    return {}


@pytest.fixture
def ask(swept: Path, run: Run, kept: dict[str, str]) -> Callable[[str], str]:
    """Runs a command that only reads the sweep, once for all tests: each would fit the same trials."""

    def call(line: str) -> str:
        if line not in kept:
            kept[line] = run(line)
        return kept[line]

    return call


def test_the_table_names_each_parameter_with_its_law(ask: Callable[[str], str], run: Run) -> None:
    shown = ask("laws")
    head = shown.splitlines()[0].split()
    assert head[:2] == ["best", "value"] and head[-1] == "law"
    rate = re.findall(r"^train.learning_rate .*$", shown, re.MULTILINE)[0]
    exponent = re.search(r"cost\^(-0\.\d\d) \((-?\d\.\d\d) to (-?\d\.\d\d)\) +falls with cost", rate)
    assert exponent is not None and float(exponent[2]) < -0.5 < float(exponent[3])
    assert re.search(r"^train.total_timesteps .* cost\^1\.0\d .*rises with cost, beyond its range *$", shown, re.M)
    assert re.search(
        r"^train.vf_coef +(maybe|hardly) .* - +the data do not tell: stays as recommended *$", shown, re.MULTILINE
    )
    assert views.LEGEND in shown and re.search(r"^train.learning_rate +\S+ ┤.*━●━.*├ \S+ +at ", shown, re.MULTILINE)
    assert "\nfrom 45 trials that cost up to " in shown  # 5 of the 50 failed
    line = shown.splitlines()[-1]
    assert re.fullmatch(r"  protein laws pong --at \w+", line)
    assert "config to try at" in run(shlex.join(shlex.split(line)[1:]))  # the command that is printed works


def test_trials_that_teach_nothing_are_not_counted(swept: Path, run: Run) -> None:
    run("note pong --trial 0,1,2 --exclude")
    assert "\nfrom 42 trials that cost up to " in run("laws")


def test_json_holds_the_laws_the_values_and_the_plan(ask: Callable[[str], str]) -> None:
    found = json.loads(ask("laws --json"))
    assert found["plan"] is None and found["sweep"] == "pong"
    by_name = {law["parameter"]: law for law in found["laws"]}
    rate = by_name["train.learning_rate"]
    assert (rate["kind"], rate["known"], rate["moves"]) == ("power", True, True)
    seconds = [value["seconds"] for value in rate["values"]]
    assert seconds[0] == pytest.approx(found["cheapest_seconds"])
    assert seconds[-1] == pytest.approx(10.0 * found["largest_seconds"])
    last = rate["values"][-1]["estimate"]
    assert last["low"] < 0.05 / math.sqrt(seconds[-1]) < last["high"]
    plan = json.loads(ask("laws --at 20m --json"))["plan"]
    assert plan["seconds"] == 1200.0 and set(plan["params"]) == set(plan["values"]) == set(by_name)
    assert plan["params"]["train.total_timesteps"] == pytest.approx(1200.0 / SECONDS_A_STEP, rel=0.1)


def test_the_command_of_a_plan_trains_its_config(ask: Callable[[str], str]) -> None:
    plan = json.loads(ask("laws --at 20m --json"))["plan"]
    command = parse(shlex.split(plan["command"])[1:])
    assert command.name == "train" and command.arguments.from_ == "pong"
    assert dict(command.values) == plan["params"]
    assert plan["command"] in ask("laws --at 20m")


def test_a_plan_keeps_what_the_data_do_not_tell_and_says_so(ask: Callable[[str], str], run: Run) -> None:
    found = json.loads(ask("laws --at 20m --json"))
    recommended = run.json("best --json")["params"]
    kept = {law["parameter"] for law in found["laws"] if not law["followed"]}
    assert "train.vf_coef" in kept and not kept & {"train.learning_rate", "train.total_timesteps"}
    assert {name: found["plan"]["params"][name] for name in kept} == {name: recommended[name] for name in kept}
    shown = ask("laws --at 20m")
    line = re.search(r"^the same as in the recommended config: (.*)$", shown, re.MULTILINE)
    assert line is not None and set(line[1].split(", ")) == kept


def test_what_the_constraints_have_changed_is_not_called_the_same(
    swept: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = Laws.plan

    def planned(laws: Laws, seconds: float) -> Plan:
        return dataclasses.replace(theirs(laws, seconds), constrained=("train.vf_coef",))

    monkeypatch.setattr(Laws, "plan", planned)
    assert run.json("laws --at 20m --json")["plan"]["constrained"] == ["train.vf_coef"]
    shown = run("laws --at 20m")
    assert "\nchanged so that the constraints hold: train.vf_coef\n" in shown
    line = re.search(r"^the same as in the recommended config: (.*)$", shown, re.MULTILINE)
    assert line is not None and "train.vf_coef" not in line[1]


def test_the_file_holds_the_config_and_trains(swept: Path, ask: Callable[[str], str], run: Run) -> None:
    shown = run("laws --at 20m --write far.toml")
    assert shown.endswith("train it with\n  protein train --config far.toml\n")
    assert "train.total_timesteps is beyond the range that the sweep has searched" in shown
    plan = json.loads(ask("laws --at 20m --json"))["plan"]
    assert (swept / "far.toml").read_text().startswith("# laws of sweep 'pong' at a cost of 20m00s, ")
    written = tomllib.loads((swept / "far.toml").read_text())
    assert written["train"]["total_timesteps"]["value"] == plan["params"]["train.total_timesteps"]
    config = load("pong", config_file=swept / "far.toml").run_config()
    assert isinstance(config, RunConfig)
    assert config.train.learning_rate == plan["params"]["train.learning_rate"]
    assert config.train.total_timesteps == plan["params"]["train.total_timesteps"]


def test_a_picture_is_drawn(swept: Path, run: Run) -> None:
    assert run("laws --png out/laws.png").find("plot: out/laws.png") > 0
    assert (swept / "out" / "laws.png").read_bytes().startswith(b"\x89PNG")


def test_mistakes_are_one_line(swept: Path, run: Run) -> None:
    assert run.error("laws --at soon") == "--at 'soon' is not a duration; write it like 90s, 15m, 2h, 1d or 1h30m"
    assert run.error("laws --at 0s").startswith("--at '0s' must be above 0; ")
    assert re.fullmatch(
        r"--at 1s is below \S+, where the laws of sweep 'pong' begin; give --at \w+ or more", run.error("laws --at 1s")
    )
    assert run.error("laws --write x.toml") == (
        "--write x.toml needs the cost that the config is for; give it with --at, as in 8h"
    )
    assert run.error("laws --png /proc/none/x.png").startswith("/proc/none/x.png cannot be written (")
    assert run.error("laws none").startswith("there is no sweep 'none'")


def test_the_least_cost_that_a_mistake_names_is_accepted(swept: Path, run: Run) -> None:
    least = re.search(r"give --at (\S+) or more", run.error("laws --at 1s"))
    assert least is not None and "config to try at" in run(f"laws --at {least[1]}")


def test_sweeps_without_laws_say_why(folder: Path, run: Run) -> None:
    (folder / "runs").mkdir()
    fill(3)
    fill(20, name="plain", cost_parameter=False)
    assert run.error("laws pong") == (
        "laws need 10 configs that were trained to their end, and have 3; run more trials"
    )
    assert run.error("laws plain").startswith("laws need a cost parameter above 0, and the space has no cost parameter")


class HandMade:
    """Laws with figures made by hand, as far as the views ask for them."""

    space = Space(
        [
            Float("rate", 1e-5, 1e-1, scale="log"),
            Float("gamma", 0.9, 0.9999, scale="logit"),
            Float("clip", 0.0, 1.0),
            Integer("width", 8, 512, scale="log"),
            Categorical("kind", ("a", "b", "c")),
            Integer("steps", 1000, 1_000_000, scale="log"),
        ],
        cost_parameter="steps",
    )
    cheapest_seconds, largest_seconds = 4.0, 40.0

    @staticmethod
    def _law(
        name: str, kind: str, exponent: tuple[float, float, float] | None, effect: float, known: bool, followed: bool
    ) -> Law:
        found = None if exponent is None else Estimate(low=exponent[0], value=exponent[1], high=exponent[2])
        return Law(name=name, kind=kind, exponent=found, effect=effect, known=known, followed=followed)  # type: ignore[arg-type]

    @property
    def laws(self) -> tuple[Law, ...]:
        return (
            self._law("rate", "power", (-0.61, -0.5, -0.4), 1.0, True, True),
            self._law("gamma", "odds", (-0.1, 0.25, 0.5), 0.8, True, True),
            self._law("clip", "line", (-0.2, 0.0, 0.2), 0.02, False, False),
            self._law("width", "power", (-0.2, -0.1, 0.05), 0.3, False, True),
            self._law("kind", "shares", None, 0.4, True, False),
            self._law("steps", "power", (0.9, 1.0, 1.1), 1.0, True, True),
        )

    def values(self, seconds: float) -> dict[str, BestValue]:
        far = seconds > 40.0

        def value(low: float, middle: float, high: float, known: bool = True, at_end: str = "") -> BestValue:
            estimate = Estimate(low=low, value=middle, high=high)
            return BestValue(estimate=estimate, shares={}, known=known, at_end=at_end)

        return {
            "rate": value(1e-5, 1e-5, 3e-4, at_end="low") if far else value(1e-4, 1e-3, 1e-2),
            "gamma": value(0.98, 0.995, 0.9985),
            "clip": value(0.1, 0.5, 0.9, known=False),
            "width": value(10, 60, 400, known=False),
            "kind": BestValue(estimate=None, shares={"a": 0.25, "b": 0.75, "c": 0.0}, known=True, at_end=""),
            "steps": value(3e6, 5e6, 7e6, at_end="beyond") if far else value(400e3, 500e3, 650e3),
        }


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (0.9, 0.9999, [0.9, 0.99, 0.999, 0.9999]),
        (0.8, 0.995, [0.8, 0.9, 0.95, 0.98, 0.99, 0.995]),
        (0.01, 0.99, [0.01, 0.1, 0.5, 0.9, 0.99]),
        (0.3, 0.7, [0.3, 0.4, 0.5, 0.6, 0.7]),
        (0.985, 0.989, [0.985, 0.986, 0.987, 0.988, 0.989]),
    ],
)
def test_a_logit_axis_has_a_few_round_numbers(low: float, high: float, ticks: list[float]) -> None:
    assert views.logit_ticks(low, high) == pytest.approx(ticks, abs=1e-12)


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (1e-5, 1e-1, [1e-5, 1e-4, 1e-3, 1e-2, 1e-1]),
        (8.0, 512.0, [10.0, 20.0, 50.0, 100.0, 200.0, 500.0]),
        (1e-9, 1e3, [1e-9, 1e-5, 1e-1, 1e3]),
        (3.0, 4.0, [3.0, 3.5, 4.0]),
    ],
)
def test_a_log_axis_has_a_few_round_numbers(low: float, high: float, ticks: list[float]) -> None:
    assert views.log_ticks(low, high) == pytest.approx(ticks)


@pytest.mark.parametrize("ticks", [views.log_ticks, views.logit_ticks])
@given(one=st.floats(1e-7, 1.0 - 1e-7), other=st.floats(1e-7, 1.0 - 1e-7))
def test_every_axis_has_three_to_eight_numbers_inside(
    ticks: Callable[[float, float], list[float]], one: float, other: float
) -> None:
    low, high = min(one, other), max(one, other)
    assume(high - low > 1e-7)
    found = ticks(low, high)
    assert found == sorted(set(found)) and 3 <= len(found) <= 8
    assert low - 1e-9 <= found[0] and found[-1] <= high + 1e-9


def test_the_table_as_it_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    from protein.view import tables

    half, none = Share(value=0.5, low=0.3, high=0.7), Share(value=0.01, low=0.0, high=0.02)
    shares = {"clip": none, "gamma": half}
    rest = ("rate", "width", "kind", "steps")
    matters = [
        Matter(name=name, share=shares.get(name, half), whole=half, alone=half) for name in (*rest, "clip", "gamma")
    ]
    known = Matters(target="score", parameters=tuple(matters))
    tables.make_console().print(views.table(HandMade(), known, 400.0, 200))  # type: ignore[arg-type]
    lines = [re.sub(r" {2,}", " | ", line.strip()) for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        "best value of | share | at 40.0s | at 6m40s | law",
        "rate | matters 50 % [30, 70] | 0.001 (0.0001 to 0.01) | 1e-05 (1e-05 to 0.0003)"
        " | cost^-0.50 (-0.61 to -0.40) | falls with cost, at the low end of its range",
        "width | matters 50 % [30, 70] | 60 (10 to 400) | 60 (10 to 400) | -"
        " | the data do not tell, seems to fall with cost",
        "kind | matters 50 % [30, 70] | b 75 %, a 25 % | b 75 %, a 25 % | -",
        "steps | matters 50 % [30, 70] | 500k (400k to 650k) | 5M (3M to 7M) | cost^1.00 (0.90 to 1.10)"
        " | rises with cost, beyond its range",
        "clip | hardly 1 % [0, 2] | 0.5 (0.1 to 0.9) | 0.5 (0.1 to 0.9) | -"
        " | the data do not tell: stays as recommended",
        "gamma | matters 50 % [30, 70] | 0.995 (0.98 to 0.9985) | 0.995 (0.98 to 0.9985)"
        " | v / (1 - v) ~ cost^0.25 (-0.10 to 0.50) | no trend seen",
    ]


def test_the_strips_as_they_are_printed() -> None:
    assert views.strips(HandMade(), 400.0, 60) == [  # type: ignore[arg-type]
        "rate   1e-05 ┤       ━━━━━━━●━━━━━━━      ├ 0.1     at 40.0s",
        "             ┤●━━━━━━━━━━                 ├         at 6m40s",
        "gamma    0.9 ┤      ━━━━━━●━━━━━          ├ 0.9999  at 40.0s",
        "             ┤      ━━━━━━●━━━━━          ├         at 6m40s",
    ]
    assert all(len(line) <= 110 for line in views.strips(HandMade(), 400.0, 110))  # type: ignore[arg-type]
