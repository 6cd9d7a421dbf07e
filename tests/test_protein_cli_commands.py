"""The commands on a real store: what they print, what their JSON holds and what they choose."""

import re
import shlex
import tomllib
from datetime import UTC, datetime
from pathlib import Path

import pytest
from commands import Run, sweep_command
from viewing import STORED, add_run, fill_store, store_url, stored_layers, trial

from protein import storage
from protein.api import stores
from protein.api.recommended import Choice, Recommendation, score_range
from protein.cli import doctor, main, sweep_plan
from protein.cli.arguments.search import SweepArguments
from protein.cli.parse import parse
from protein.config.resolve import load, make_space, start_params
from protein.engine import contender
from protein.engine.recommend import MODEL, Contender
from protein.sweep import calibration
from protein.sweep.lease import current_owner
from protein.trainer.config import RunConfig
from protein.types import Direction, Estimate, Machine
from protein.view import tables


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


def test_a_more_expensive_trial_with_the_same_expected_score_is_not_called_lucky() -> None:
    def choice(number: int, measured: float, cost_seconds: float) -> Choice:
        one = trial(number, cost_seconds, measured)
        contender = Contender(
            params=one.params,
            score=Estimate(value=20.79, low=20.4, high=21.1),
            expected_cost_seconds=cost_seconds,
            trials=(number,),
            measured=(measured,),
            basis=MODEL,
        )
        return Choice(name="best expected", contender=contender, trials=(one,))

    best = choice(134, 20.62, 5.0)
    found = Recommendation(
        best=best,
        under=None,
        knee=best,
        front=(best,),
        best_measured=choice(126, 20.79, 9.0),
        has_initial=False,
        initial=None,
        cut_short=None,
        direction=Direction.MAXIMIZE,
        trains=True,
    )
    assert found.notes() == [
        "trial 126 measured higher (20.79), but its expected score is the same as that of trial 134, which costs less"
    ]


def test_a_better_trial_that_was_cut_at_its_cap_is_named_with_the_flag_that_lifts_the_cap(
    filled: Path, run: Run
) -> None:
    note = (
        "trial 5 had score 19.00 when it was stopped at the cap on one trial's cost, after 1m10s; only trials that"
        " reach their end are recommended: allow more with --max-trial-cost"
    )
    assert f"\n{note}\n" in run("best")
    assert run.json("best --json")["notes"] == [note]
    assert f"\n{note}\n" in run(sweep_command(filled, "--max-cost 3m"))
    for command in ("pareto", "status pong"):  # which name the best measured trial, of 18.00
        assert f"\n{note}\n" in run(command)
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
    monkeypatch.setattr(contender, "knee", lambda contenders: None)
    assert [answer["answer"] for answer in run.json("best --json")["answers"]] == ["best expected"]
    assert run.json("pareto --json")["knee"] is None
    for command in ("best", "pareto"):
        text = run(command)
        assert "\nno knee: no config between the cheapest and the best of the front lies above the line" in text
        assert not re.search(r"^knee", text, re.MULTILINE)


def test_intervals_keep_to_the_scores_that_an_environment_allows(filled: Path, run: Run) -> None:
    assert score_range("pong") == (-21.0, 21.0)
    assert score_range("train()") is None and score_range("gym:CartPole-v1") is None
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


def test_a_sweep_that_is_asked_to_continue_trials_says_why_it_cannot(filled: Path, run: Run) -> None:
    reason = (
        "trials are never continued: with train.lr_schedule = cosine the step size has fallen when a run ends; constant"
        " or wsd allow it"
    )
    assert f"\n{reason}\n" in run(sweep_command(filled, "--max-cost 3m --continue-trials True"))
    for flag in ("", "--continue-trials False"):
        assert "never continued" not in run(sweep_command(filled, f"--max-cost 3m {flag}"))


@pytest.mark.parametrize(
    ("flags", "asks"),
    [
        ("", False),
        ("--train.lr-schedule constant", False),
        ("--train.lr-schedule wsd", True),
        ("--train.lr-schedule wsd --continue-trials False", False),
        ("--continue-trials True", True),
    ],
)
def test_continued_trials_are_asked_for_by_their_flag_or_by_the_schedule_made_for_them(flags: str, asks: bool) -> None:
    command = parse(shlex.split(f"sweep --env pong {flags}"))
    assert isinstance(command.arguments, SweepArguments)
    assert sweep_plan.read(command, tables.make_console()).asks_to_continue is asks


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


def test_status_of_all_sweeps_and_of_one(filled: Path, run: Run) -> None:
    fill_store("sqlite:///runs/protein.db", name="other", budget_seconds=None)
    spent = sum(cost for cost, *_ in STORED)
    listed = run.json("status --json")
    assert [sweep["name"] for sweep in listed] == ["pong", "other"]
    one = run.json("status pong --json")
    assert one == {**listed[0], "outlook": None, "range_ends": []}  # after four complete trials
    assert one["trials"] == {
        "running": 0,
        "waiting": 0,
        "complete": 4,
        "pruned": 1,
        "stopped_early": 0,
        "capped": 1,
        "out_of_budget": 0,
        "failed": 1,
        "interrupted": 1,
    }
    assert (one["spent_seconds"], one["max_cost_seconds"], one["best"]["number"]) == (spent, 240.0, 1)
    assert listed[1]["max_cost_seconds"] is None
    assert re.search(r"^pong +pong +protein +7 +1 +0 +3m50s +4m00s +18.00 +40.0s", run("status"), re.MULTILINE)
    assert "best measured: trial 1, score 18.00 in 40.0s" in run("status other")
    assert run.error("best") == "there are 2 sweeps; name one of them: pong, other"
    assert run.error("status pung") == "there is no sweep 'pung'; did you mean 'pong'?"


def test_status_tells_a_trial_that_runs_from_one_whose_process_is_gone(filled: Path, run: Run) -> None:
    host, _, _ = current_owner().rsplit(":", 2)
    add_run("sqlite:///runs/protein.db", of=0, owner=current_owner())
    add_run("sqlite:///runs/protein.db", of=0, owner=f"{host}:{2**22 + 1}:0.00")  # no process has this id
    text = run("status pong")
    assert "trial 8 of 'pong' was interrupted: its process is gone; resume the sweep\n" in text
    assert re.search(r"^running\n.*\n +7  running .*\n\ninterrupted\n.*\n +8  running ", text, re.MULTILINE)


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


def test_show_lists_trials_and_shows_one(filled: Path, run: Run) -> None:
    shown = run.json("show --json")
    assert [trial["number"] for trial in shown["trials"]] == list(range(len(STORED)))
    assert shown["sweep"]["name"] == "pong"
    assert "diverged: loss is nan" in run("show pong")
    one = run.json("show pong --trial 3 --json")
    assert (one["sweep"], one["number"], one["seed"], len(one["curve"])) == ("pong", 3, 1003, 20)
    text = " ".join(run("show --trial 3").split())
    assert "score 15.00 predicted 10.00 (8.00 to 11.50) off by +5.00 (4.3 sd)" in text
    assert "predicted 30.0s (25.0s to 40.0s) off by -17 % (1.3 sd)" in text
    assert "█" in text
    assert run.error("show --trial 7") == "sweep 'pong' has no trial 7; it has 0 to 6"


def test_a_prediction_outside_the_possible_scores_reads_the_same_everywhere(folder: Path, run: Run) -> None:
    fill_store("sqlite:///runs/protein.db", predicted=Estimate(value=21.59, low=14.0, high=27.5))
    inside = {"value": 21.0, "low": 14.0, "high": 21.0}
    listed = run.json("show --json")["trials"]
    assert [one["predicted_score"] for one in listed] == [None, *[inside] * (len(STORED) - 1)]
    assert run.json("show --trial 3 --json")["predicted_score"] == inside
    assert run.json("best --json")["predicted_score"] in (None, inside)
    text = " ".join(run("show --trial 3").split())
    assert "score 15.00 predicted 21.00 (14.00 to 21.00) off by -6.00 (1.1 sd)" in text
    assert re.search(r"^ +3 +complete +15.00 +21.00 +25.0s", run("show"), re.MULTILINE)
    found = run.json("show --calibration --json")["score"]["forecasts"]  # of the predictions as they were made
    assert {forecast["predicted"]["high"] for forecast in found} == {27.5}


def test_show_calibration_sets_predictions_against_what_was_measured(filled: Path, run: Run) -> None:
    found = run.json("show pong --calibration --json")
    assert [forecast["measured"] for forecast in found["score"]["forecasts"]] == [18.0, 15.0, 18.0]
    assert (found["score"]["above"], found["cost"]["inside"], found["cost"]["coverage"]) == (3, 2, 2 / 3)
    text = run("show --calibration")
    assert re.search(r"^score +3 +0 +0 +3 +0 % ", text, re.MULTILINE)
    assert "3 predicted scores: too few to judge (10 are needed)" in text
    assert text.endswith("plot: runs/pong/calibration.png\n")
    assert (filled / "runs" / "pong" / "calibration.png").read_bytes().startswith(b"\x89PNG")
    assert run.error("show --calibration --trial 1").startswith("--calibration is about the whole sweep")


def test_envs_lists_the_environments(folder: Path, run: Run) -> None:
    (pong,) = (spec for spec in run.json("envs --json") if spec["name"] == "pong")
    assert pong["score_range"] == [-21.0, 21.0]
    assert (pong["observation_shape"], pong["action_sizes"], pong["continuous_actions"]) == ([8], [3], 0)
    assert re.search(r"^pong +8 +3 +1 +-21 to 21 +20 ", run("envs"), re.MULTILINE)


def test_a_sweep_of_a_gymnasium_environment_has_a_name_that_files_can_bear(folder: Path) -> None:
    command = parse(shlex.split("sweep --env gym:CartPole-v1"))
    spec, _ = sweep_plan.define(command, tables.make_console())
    assert (spec.name, spec.env) == ("gym-CartPole-v1", "gym:CartPole-v1")


def test_the_store_may_be_named_by_the_environment(
    filled: Path, run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    fill_store(store_url(elsewhere), name="there")
    monkeypatch.setenv("PROTEIN_STORE", store_url(elsewhere))
    assert [sweep["name"] for sweep in run.json("status --json")] == ["there"]
    assert run.json("best --json")["command"] == "protein train --env pong --from there"
    assert [sweep["name"] for sweep in run.json("status --json --store runs/protein.db")] == ["pong"]


def test_artifacts_of_two_stores_in_one_folder_stay_apart(folder: Path) -> None:
    named = {
        url: stores.artifact_directory(url, "pong") for url in ("sqlite:///runs/protein.db", "sqlite:///runs/b.db")
    }
    assert named["sqlite:///runs/protein.db"] == folder / "runs" / "pong"
    assert named["sqlite:///runs/b.db"] == folder / "runs" / "b" / "pong"
    server = stores.artifact_directory("postgresql+psycopg://me:x@host/sweeps?sslmode=require", "pong")
    assert server == folder / "runs" / "sweeps" / "pong"


def test_an_empty_store_says_how_to_start(folder: Path, run: Run) -> None:
    storage.open_store("sqlite:///runs/protein.db").close()
    hint = "start one with protein sweep --env NAME --max-cost 10m"
    assert hint in run("status")
    assert hint in run.error("best")
    assert run.json("status --json") == []


def test_a_spent_budget_says_how_to_go_on_and_shows_what_came_of_it(filled: Path, run: Run) -> None:
    text = run(sweep_command(filled, "--max-cost 3m"))
    assert "sweep 'pong': 4 complete, 1 capped, 1 failed, 1 interrupted; 3m50s spent" in text
    assert re.search(
        r"train the recommended config \(trial 4, expected score 1\d.* in 1m00s\):\n"
        r"  protein train --env pong --from pong\n",
        text,
    )
    assert text.endswith(
        "the budget of 3m00s is spent (3m50s); resume with a larger one:\n"
        "  protein sweep --env pong --env.num-envs 64 --train.minibatch-size 1024 --max-cost 6m\n"
    )
    assert (filled / "runs" / "pong" / "pareto.png").exists()
    assert "of wall clock" not in text  # the engine had nothing to do
    stored = run.json("status pong --json")
    assert (stored["max_cost_seconds"], stored["trials"]["complete"]) == (180.0, 4)


def test_a_sweep_that_recommends_another_trial_than_its_fronts_best_says_why(filled: Path, run: Run) -> None:
    add_run("sqlite:///runs/protein.db", of=0, score=19.0, cost_seconds=45.0)  # it scored 5.00 before
    text = run(sweep_command(filled, "--max-cost 3m"))
    assert re.search(r"^ +7 +45.0s +19.00 +.* best", text, re.MULTILINE)
    assert re.search(
        r"^trial 7 measured higher \(19.00\), which is probably luck: its expected score is 1\d.\d\d\n"
        r"trial 5 had score 19.00 when it was stopped at the cap on one trial's cost, after 1m10s; .*--max-trial-cost\n"
        r"train the recommended config \(trial 4, ",
        text,
        re.MULTILINE,
    )


def test_a_sweep_that_ends_says_why(filled: Path, run: Run) -> None:
    text = run(sweep_command(filled, "--max-cost 10m --max-trials 7"))
    assert "1 failed, 1 interrupted; 3m50s spent; the limit of 7 trials is reached\n" in text


def test_doctor_finds_this_machine_in_order(folder: Path, run: Run) -> None:
    checks = {check["name"]: check["state"] for check in run.json("doctor --json")}
    assert {
        "python",
        "package",
        "torch",
        "device",
        "envs",
        "gym",
        "threads",
        "memory",
        "compiler",
        "trackers",
        "machine",
        "store",
        "disk",
    } == set(checks)
    assert "broken" not in checks.values()
    assert list(folder.iterdir()) == []  # what it tried, it took away


def test_doctor_calibrates_this_machine_and_lists_it(folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration, "MAX_SECONDS", 0.01)  # two rounds
    lines = [line for line in run("doctor --calibrate --workers 2 --device cpu").splitlines() if "speed " in line]
    assert len(lines) == 1
    assert "1 threads a trial, cpu: the reference machine (" in lines[0]
    assert lines[0].endswith(", this machine")
    checks = [check for check in run.json("doctor --json --device cpu --workers 999") if check["name"] == "speed"]
    assert len(checks) == 1, "999 workers have one thread each, as two have on this machine, or it is another one"
    assert run.error("doctor --workers 0") == "--workers 0 is below the limit of 1; use 1 or more"


def test_a_sweep_beside_a_known_machine_is_in_its_seconds(
    folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calibration, "MAX_SECONDS", 0.01)
    facts = calibration.facts(threads=1, device="cpu") | {"host": "a machine a thousand times as fast"}
    with stores.opened(None, create=True) as store:
        store.add_machine(Machine(name="fast", facts=facts, calibration_seconds=1e-3, measured_at=datetime.now(UTC)))
    words = "sweep --env pong --max-trials 1 --train.total-timesteps 20000 --train.device cpu --train.threads 1"
    text = run(words + " --max-cost 10m")
    assert "measuring how fast this machine trains, once, about 0 s, so that costs of several machines can be" in text
    (factor,) = re.findall(r"this machine is (\d\.\d\d) times as fast as the reference machine", text)
    assert 0.0 <= float(factor) < 0.1
    (trial,) = run.json("show pong --json")["trials"]
    assert trial["cost_seconds"] < 0.1 * trial["timings"]["startup"] + 1.0


def test_doctor_and_the_package_ask_for_the_same_versions() -> None:
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    [torch] = (line for line in project["dependencies"] if line.startswith("torch"))
    [gymnasium] = project["optional-dependencies"]["gymnasium"]
    assert torch == f"torch>={doctor.least_version('torch')}"
    assert gymnasium == f"gymnasium>={doctor.least_version('gymnasium')}"
    assert project["requires-python"] == f">={doctor.least_version('python')}"
    assert doctor.least_version("no-such-package") == ""


def test_doctor_finds_a_torch_that_is_too_old(
    folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("torch.__version__", "2.1.0+cpu")
    assert main(["doctor"]) == 1
    least = doctor.least_version("torch")
    assert re.search(
        rf"^broken torch +2\.1\.0\+cpu; {least} or newer is needed$", capsys.readouterr().out, re.MULTILINE
    )


def test_doctor_finds_a_broken_store(folder: Path, run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "text.db").write_text("not a database" * 100)
    assert main(["doctor", "--store", "text.db"]) == 1
    assert re.search(r"^broken store +.*text.db is not a SQLite database", capsys.readouterr().out, re.MULTILINE)
