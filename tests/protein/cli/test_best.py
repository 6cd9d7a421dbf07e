"""`protein best` and the recommended config, as `protein pareto` shows it too."""

import dataclasses
import math
import re
import shlex
import tomllib
from pathlib import Path

import pytest
from commands import Run, sweep_command
from sample_trials import add_run, stored_layers, sweep_record, trial

from protein.api.recommended import Choice, Recommendation, score_range
from protein.cli.parse import parse
from protein.config.resolve import load, make_space, start_params
from protein.engine.results import MODEL, Contender
from protein.trainer.config import RunConfig
from protein.types import Direction, Estimate


def test_best_goes_by_the_expected_score_not_by_the_highest_measured_one(filled: Path, run: Run) -> None:
    # Trials 1 and 4 both measured 18.00; beside 1 stands a 5.00, beside 4 a 15.00 and a 19.00 that was stopped early.
    best = run.json("best --json")
    assert (best["answer"], best["number"], best["score"], best["expected_cost_seconds"]) == (
        "best expected",
        4,
        18.0,
        60,
    )
    assert best["command"] == "protein train --env pong --from pong"
    assert best["params"]["train.learning_rate"] == 0.005
    expected = best["expected_score"]
    assert 15.0 < expected["value"] < 18.0 and expected["low"] < expected["value"] < expected["high"]
    assert (best["trials"], best["measured"], best["basis"]) == ([4], [18.0], "score model")
    assert [answer["answer"] for answer in best["answers"]] == ["best expected", "knee"]


def choice(number: int, measured: float, cost_seconds: float, *took_seconds: float) -> Choice:
    """A config that is expected to cost `cost_seconds`, and whose runs took that, or what is given."""
    trials = tuple(trial(number + i, took, measured) for i, took in enumerate(took_seconds or (cost_seconds,)))
    contender = Contender(
        params=trials[0].params,
        score=Estimate(value=20.79, low=20.4, high=21.1),
        expected_cost_seconds=cost_seconds,
        trials=tuple(one.number for one in trials),
        measured=(measured,) * len(trials),
        basis=MODEL,
    )
    return Choice(name="best expected", contender=contender, trials=trials)


def recommending(best: Choice, *, best_measured: Choice | None = None) -> Recommendation:
    return Recommendation(
        best=best,
        under=None,
        knee=best,
        front=(best,),
        best_measured=best_measured,
        has_initial=False,
        initial=None,
        cut_short=None,
        direction=Direction.MAXIMIZE,
        trains=True,
    )


def test_a_more_expensive_trial_with_the_same_expected_score_is_not_called_lucky() -> None:
    found = recommending(choice(134, 20.62, 5.0), best_measured=choice(126, 20.79, 9.0))
    assert found.notes() == [
        "trial 126 measured higher (20.79), but its expected score is the same as that of trial 134, which costs less"
    ]


def test_a_cost_that_other_programs_raised_is_told_beside_the_lower_expected_one() -> None:
    assert recommending(choice(5, 1.0, 0.16, 0.63)).notes() == [
        "other programs kept the cores busy: trial 5 took 0.63s, and would take about 0.16s without them"
    ]
    assert recommending(choice(5, 1.0, 10.0, 12.0, 18.0)).notes() == [
        "other programs kept the cores busy: the runs of this config took 15.0s on average, and would take about 10.0s"
        " without them"
    ]
    assert recommending(choice(5, 1.0, 10.0, 12.0)).notes() == []
    assert recommending(choice(5, 1.0, 0.0, 0.0)).notes() == []  # a cost of 0 is not slowed down


def test_pareto_tells_of_the_cost_that_other_programs_raised(
    filled: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    note = "\nother programs kept the cores busy: trial 4 took 1m00s, and would take about 10.0s without them\n"
    assert "kept the cores busy" not in run("pareto")
    slowed = recommending(choice(4, 18.0, 10.0, 60.0))
    monkeypatch.setattr("protein.api.answers.Answers.recommendation", lambda self: slowed)
    assert note in run("pareto")


def test_a_better_trial_that_was_cut_at_its_cap_is_named_with_the_flag_that_lifts_the_cap(
    filled: Path, run: Run
) -> None:
    note = (
        "trial 5 had score 19.00 when it was stopped at the cap on one trial's cost, after 1m10s; only trials that"
        " reach their end are recommended: allow more with --max-trial-cost"
    )
    assert f"\n{note}\n" in run("best")
    assert run.json("best --json")["notes"] == [note]
    assert f"\n  {note.capitalize()}.\n" in run(sweep_command(filled, "--max-cost 3m"))
    assert f"\n{note}\n" in run("pareto")  # which names the best measured trial, of 18.00
    assert f"\n  {note.capitalize()}.\n" in run("status pong")
    assert note not in run("best --under 40s")  # it cost more than that
    add_run("sqlite:///runs/protein.db", of=0, score=19.0, cost_seconds=90.0)
    for command in ("pareto", "status pong"):
        assert "trial 5 had score" not in run(command)


def test_pareto_and_best_name_the_same_knee(filled: Path, run: Run) -> None:
    knee = run.json("best --json")["answers"][-1]
    assert knee["answer"] == "knee"
    assert run.json("pareto --json")["knee"] == knee["trials"][0]
    assert re.search(rf"^knee: trial {knee['trials'][0]}, expected score 1\d\.\d\d ", run("pareto"), re.MULTILINE)


def test_a_front_without_a_knee_says_so(filled: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("protein.engine.results.knee", lambda contenders: None)
    assert [answer["answer"] for answer in run.json("best --json")["answers"]] == ["best expected"]
    assert run.json("pareto --json")["knee"] is None
    for command in ("best", "pareto"):
        text = run(command)
        assert "\nno knee: no config between the cheapest and the best of the front lies above the line" in text
        assert not re.search(r"^knee", text, re.MULTILINE)


def test_intervals_keep_to_the_scores_that_an_environment_allows(filled: Path, run: Run) -> None:
    spec = sweep_record("pong").spec
    assert score_range(spec) == (-21.0, 21.0)
    others = [dataclasses.replace(spec, env=env) for env in ("train()", "gym:CartPole-v1")]
    assert [score_range(other) for other in others] == [None, None]
    rated = {"selfplay": {"on": True}}
    assert score_range(dataclasses.replace(spec, env="arena", config=rated)) is None, "a rating, not the game's score"
    assert score_range(dataclasses.replace(spec, env="arena", config={"selfplay": {"on": False}})) == (-4.0, 4.0)
    assert score_range(dataclasses.replace(spec, env="frontier_tribes", config=rated)) == (1.0, 1024.0), "no ratings"
    told = dataclasses.replace(others[0], config={"own": {"score_range": [0, None]}})
    assert score_range(told) == (0, math.inf), "what the user gave"
    add_run("sqlite:///runs/protein.db", of=0, score=20.9, cost_seconds=45.0)  # 5.00 before: much noise
    found = run.json("best --json")
    assert all(answer["expected_score"]["high"] <= 21.0 for answer in found["answers"])
    shown = run("best")
    highs = [float(high) for high in re.findall(r" to (\d+\.\d\d) ", shown)]
    assert highs and max(highs) <= 21.0


def test_best_shows_its_answers_as_a_table_and_says_what_looks_like_luck(filled: Path, run: Run) -> None:
    text = run("best --under 40s")
    assert text.startswith("trial 3 of sweep 'pong', best under 40s: expected score 1")
    assert re.search(r"^best expected +1\d\.\d\d +1\d\.\d\d to 1\d\.\d\d +1m00s +1 +4 +18.00$", text, re.MULTILINE)
    assert re.search(r"^best under 40s .* 25.0s +1 +3 +15.00$", text, re.MULTILINE)
    assert re.search(r"^knee ", text, re.MULTILINE)
    assert re.search(
        r"^trial 1 measured higher \(18.00\), which is probably luck: its expected score is 1\d.\d\d$", text, re.M
    )
    assert text.endswith("best under 40s, train it with\n  protein train --env pong --from pong --under 40s\n")


def test_the_command_of_the_knee_trains_the_knee(filled: Path, run: Run) -> None:
    knee = run.json("best --json")["answers"][1]
    under = shlex.split(knee["command"])[-1]
    assert run.json(f"best --under {under} --json")["trials"] == knee["trials"]


@pytest.mark.parametrize(("under", "number"), [("40s", 3), ("25s", 3), ("20s", 0), ("10s", 0), ("1d", 4)])
def test_under_goes_by_the_expected_cost(filled: Path, run: Run, under: str, number: int) -> None:
    best = run.json(f"best pong --under {under} --json")
    assert best["number"] == number
    assert best["command"] == f"protein train --env pong --from pong --under {under}"


def test_when_nothing_is_cheap_enough_the_cheapest_is_named(filled: Path, run: Run) -> None:
    message = "no trial of sweep 'pong' cost 9.5s or less; the cheapest took 10.0s, so give --under 10s or more"
    assert run.error("best --under 9.5s") == message
    assert run.error("train --from pong --under 9.5s") == message
    assert run.error("best --under soon") == (
        "--under 'soon' is not a duration; write it like 90s, 15m, 2h, 1d or 1h30m"
    )


def test_the_written_config_trains_the_very_same_config(filled: Path, run: Run) -> None:
    shown = run("best --write out/best.toml")
    assert "config: out/best.toml, best expected: expected score " in shown
    assert shown.rstrip().endswith("protein train --config out/best.toml")
    layers = load("pong", config_file=filled / "out" / "best.toml")
    trained = layers.run_config()
    assert isinstance(trained, RunConfig)
    assert trained.train.learning_rate == 0.005
    assert trained.train.seed == 1004  # the trial's own
    assert trained.env.num_envs == 64
    expected = RunConfig.from_dict(stored_layers().run_config().to_dict())
    assert trained.policy == expected.policy
    assert make_space(layers).names == make_space(stored_layers()).names
    assert start_params(layers)["train.learning_rate"] == 0.005


def test_the_written_config_is_short_and_says_where_each_value_comes_from(filled: Path, run: Run) -> None:
    run("best --write best.toml")
    text = (filled / "best.toml").read_text()
    written = tomllib.loads(text)
    assert written == {
        "env": {"name": "pong", "num_envs": 64},
        "train": {"seed": 1004, "minibatch_size": 1024, "learning_rate": {"value": 0.005}},
    }
    lines = text.splitlines()
    assert 'name = "pong"  # the environment' in lines
    assert "num_envs = 64  # fixed by the sweep; pong.toml has 256" in lines
    assert "learning_rate = { value = 0.005 }  # searched; pong.toml has 0.008" in lines
    assert "seed = 1004  # the trial's own; default.toml has 0" in lines
    head = [line for line in lines if line.startswith("#")]
    assert head[0] == "# sweep 'pong' of pong, best expected: trial 4 (initial design 4 of 8)"
    assert re.fullmatch(r"# expected score: [\d.]+ \([\d.]+ to [\d.]+\), with the central 80 % .*", head[1]), head[1]
    assert head[2] == "# measured score: 18.00 (1 run)"
    assert head[3] == "# expected cost: 1m00s of training on host, 4 cores"
    assert head[4].startswith("# found with version 0.1.0, commit abc, on 20")
    assert "# note: its cost was measured on another machine (host, 4 cores)" in head


def test_a_ladder_writes_the_best_config_under_each_limit(filled: Path, run: Run) -> None:
    found = run.json("best pong --ladder 10s,30s,2m --write out/p.toml --json")["written"]
    assert [one["path"] for one in found] == ["out/p_10s.toml", "out/p_30s.toml", "out/p_2m.toml"]
    for one, limit in zip(found, ("10s", "30s", "2m"), strict=True):
        assert one["trial"] == run.json(f"best pong --under {limit} --json")["number"]
        trained = load("pong", config_file=Path(one["path"])).run_config()
        assert trained.train.learning_rate == round(0.001 * (one["trial"] + 1), 6)
        assert f"best under {limit}: trial {one['trial']} " in Path(one["path"]).read_text()
    assert [one["trial"] for one in found][:2] == [0, 3]
    run("best --ladder 10s")
    assert (filled / "pong_10s.toml").read_text().count("protein train --config pong_10s.toml") == 1


def test_mistakes_of_a_ladder_write_nothing(filled: Path, run: Run) -> None:
    assert run.error("best --ladder 10s,9s") == (
        "no trial of sweep 'pong' cost 9s or less; the cheapest took 10.0s, so begin the --ladder with 10s or more"
    )
    assert run.error("best --ladder 10s,soon").startswith("--ladder 'soon' is not a duration; ")
    assert run.error("best --ladder 10s,30s,10s") == (
        "--ladder 10s,30s,10s would write pong_10s.toml twice; give each limit once"
    )
    assert run.error("best --ladder 10s --under 20s") == "--ladder 10s has limits of its own; drop --under 20s"
    assert not list(filled.glob("*.toml"))


def test_pareto_shows_the_expected_front_and_where_the_budget_went(filled: Path, run: Run) -> None:
    found = run.json("pareto --json")
    expected = [point["trials"][0] for point in found["expected_front"]]
    assert expected[-1] == found["best"] == run.json("best --json")["number"]
    scores = [point["expected_score"]["value"] for point in found["expected_front"]]
    assert scores == sorted(set(scores))
    spent = found["spending"]
    # Trials 0, 3 and 1 are the front; 4 scored no more than 1 and cost more; 5 was stopped, 2 and 6 failed.
    assert (spent["front"], spent["dominated_expensive"], spent["cut_short"], spent["failed"]) == (75, 60, 70, 25)
    assert spent["total"] == 230 and spent["share"] == 60 / 230 and spent["expensive_above"] == 32.5
    shown = run("pareto")
    assert "26 % of the cost went to 1 expensive trial that a cheaper one beats (expensive: over 32.5s)" in shown
    assert "★ best expected" in shown and "expected front: " in shown


def test_the_printed_command_can_be_run_as_it_is(filled: Path, run: Run) -> None:
    text = run("best --store sqlite:///runs/protein.db --under 30s")
    words = shlex.split(text.splitlines()[-1])
    assert words[:2] == ["protein", "train"]
    arguments = parse(words[1:]).arguments
    assert (arguments.from_, arguments.under, arguments.store) == ("pong", "30s", "sqlite:///runs/protein.db")


def test_pareto_shows_the_front(filled: Path, run: Run) -> None:
    front = run.json("pareto --json")
    assert [(point["number"], point["cost_seconds"], point["score"]) for point in front["front"]] == [
        (0, 10.0, 5.0),
        (3, 25.0, 15.0),
        (1, 40.0, 18.0),
    ]
    assert front["knee"] == 3
    text = run("pareto pong --png plots/front.png")
    assert re.search(r"^ +1 +40.0s +18.00 +\+3.00 +best", text, re.MULTILINE)
    assert "★" in text
    assert "a high measured score may be luck; for the recommended config run: protein best pong\n" in text
    assert (filled / "plots" / "front.png").read_bytes().startswith(b"\x89PNG")


def test_a_sweep_that_recommends_another_trial_than_its_fronts_best_says_why(filled: Path, run: Run) -> None:
    add_run("sqlite:///runs/protein.db", of=0, score=19.0, cost_seconds=45.0)  # it scored 5.00 before
    text = run(sweep_command(filled, "--max-cost 3m"))
    assert re.search(r"^ +7 +45.0s +19.00 +.* best", text, re.MULTILINE)
    assert re.search(
        r"^train the recommended config \(trial 4, .*\n  .*\n\ncan it be trusted\?\n  Trial 4 was run once: .*\n"
        r"  Trial 7 measured higher \(19.00\), which is probably luck: its expected score is 1\d.\d\d.\n"
        r"  Trial 5 had score 19.00 when it was stopped at the cap on one .*.*; .*--max-trial-cost.\n",
        text,
        re.MULTILINE,
    )
