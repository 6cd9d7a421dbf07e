"""`protein import` of files as W&B and PufferLib write them."""

import csv
import json
import math
from pathlib import Path
from typing import Any

import pytest
from commands import Run, stored

from protein import Float, Space
from protein.errors import UsageError
from protein.imports import wandb
from protein.imports.runs import Source
from protein.space.parameters import Categorical, Integer
from protein.storage import open_store
from protein.types import Direction, TrialEnd

SWEEP = {
    "metric": "score",
    "goal": "maximize",
    "downsample": 5,
    "train": {
        "total_timesteps": {"distribution": "log_normal", "min": 3e7, "max": 2e8, "mean": 8e7, "scale": "auto"},
        "gamma": {"distribution": "logit_normal", "min": 0.8, "max": 0.9999, "scale": "auto"},
    },
    "policy": {"hidden_size": {"distribution": "uniform_pow2", "min": 32, "max": 1024, "scale": "auto"}},
}


def puffer_log(folder: Path, number: int, **changes: Any) -> None:
    """Writes a file in the form of PufferLib 4: the whole config, and the points of the curve by metric."""
    steps = 4e7 * (1 + number / 10)
    score = [1.0, 2.0, float(number)]
    log = {
        "env_name": "breakout",
        "log_dir": "logs",
        "seed": 73,
        "vec": {"total_agents": 4096},
        "policy": {"hidden_size": float(2 ** (5 + number % 5)), "num_layers": 2},
        "env": {},
        "train": {"total_timesteps": steps, "gamma": 0.9 + number / 1000, "seed": 42},
        "sweep": SWEEP,
        "tag": None,
        "metrics": {
            "agent_steps": [0.3 * steps, 0.6 * steps, steps],
            "uptime": [10.0, 20.0, 30.0 + number],
            "env/score": score,
            "env/perf": [0.1, 0.2, 0.3],
            "SPS": [1e6, 1e6, 1e6],
        },
        **changes,
    }
    (folder / f"{1_790_000_000_000 + 1000 * number}.json").write_text(json.dumps(log))


class TestPufferLib:
    @pytest.fixture
    def logs(self, folder: Path) -> Path:
        found = folder / "logs" / "breakout"
        found.mkdir(parents=True)
        for number in range(6):
            puffer_log(found, number)
        return found

    def test_ranges_goal_and_cost_are_the_sweeps_own(self, logs: Path, run: Run) -> None:
        metrics = {"agent_steps": [1e6, 2e6], "uptime": [1.0, 2.0], "env/score": [1.0, math.nan]}
        puffer_log(logs, 6, metrics=metrics)
        (logs / "half.json").write_text('{"metrics": {"agent_st')  # it is being written
        found = run.json("import pufferlib logs/breakout --json")
        assert (found["added"], found["outside"], found["score"]) == (7, 0, "env/score")
        sweep, trials = stored("breakout")
        space = Space.from_dict(sweep.spec.space)
        assert space.cost_parameter == "train.total_timesteps"
        kinds = {
            one.name: (one.low, one.high, one.scale) for one in space.parameters if not isinstance(one, Categorical)
        }
        assert kinds == {
            "train.total_timesteps": (3e7, 2e8, "log"),
            "train.gamma": (0.8, 0.9999, "logit"),
            "policy.hidden_size": (32, 1024, "pow2"),
        }
        assert trials[4].score == 4.0
        assert trials[4].cost_seconds == 34.0
        assert [(point.elapsed_seconds, point.score) for point in trials[4].curve] == [
            (10.0, 1.0),
            (20.0, 2.0),
            (34.0, 4.0),
        ]
        assert (trials[6].end, trials[6].score, trials[6].reason) == (TrialEnd.DIVERGED, None, "score nan")
        assert trials[6].cost_seconds == 2.0
        assert trials[0].params["policy.num_layers"] == 2
        assert run.json("best breakout --json")

    def test_a_range_that_cannot_be_one_is_named(self, logs: Path, run: Run) -> None:
        odd = {"train": {"gamma": {"distribution": "beta", "min": 0, "max": 1}}}
        puffer_log(logs, 9, sweep={**SWEEP, **odd})
        told = run("import pufferlib logs/breakout")
        assert "note: train.gamma: the range 'beta' from 0 to 1 cannot be one here; that of the values is taken" in told

    def test_mistakes_are_one_line(self, logs: Path, run: Run) -> None:
        assert run.error("import pufferlib logs") == (
            "logs holds no log of PufferLib (JSON files with metrics); give one of its folders: breakout"
        )
        assert "there is no folder nowhere" in run.error("import pufferlib nowhere")
        assert run.error("import pufferlib logs/breakout --score perff").startswith("--score 'perff' is not among")
        puffer_log(logs, 9, env_name="pong")
        assert "logs of several environments, breakout, pong" in run.error("import pufferlib logs/breakout")


def table(path: Path, header: str, *rows: str) -> None:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([line.split("|") for line in (header, *rows)])


class TestWandb:
    HEADER = "Name|State|Runtime|lr|train.layers|opt|eval/acc|reward|Created"
    ROWS = (
        "c|finished|62|0.1|2|sgd|0.5|3.5|2026-01-03",
        "b|crashed|61|0.01|4|adam|||2026-01-02",
        "d|running|5|0.02|1|adam|0.1|1|2026-01-04",
        "a|finished|60|0.001|1|adam|0.25|2.5|2026-01-01",
        "e|finished|64|0.03|3|adam|0.25|NaN|2026-01-05",
        "f|killed|65|0.03|3|adam|0.25|1|2026-01-06",
    )

    def test_a_table_becomes_a_sweep(self, folder: Path, run: Run) -> None:
        table(folder / "w.csv", self.HEADER, *self.ROWS)
        found = run.json("import wandb w.csv --score reward --direction maximize --json")
        assert (found["added"], found["unfinished"], found["without_cost"]) == (5, 1, 0)
        sweep, trials = stored("w")
        assert Space.from_dict(sweep.spec.space).parameters == (
            Float("lr", 0.001, 0.1, scale="log"), Integer("train.layers", 1, 2), Categorical("opt", ("adam", "sgd"))
        )  # fmt: skip
        assert [(trial.score, str(trial.end), trial.cost_seconds) for trial in trials] == [
            (2.5, "complete", 60.0),
            (None, "crashed", 61.0),
            (3.5, "complete", 62.0),
            (None, "diverged", 64.0),
            (None, "interrupted", 65.0),
        ]
        assert trials[0].metrics["eval/acc"] == 0.25
        assert trials[1].reason == "crashed"

    def test_a_later_export_adds_what_is_new(self, folder: Path, run: Run) -> None:
        table(folder / "w.csv", self.HEADER, *self.ROWS)
        words = "--name w --score reward --direction maximize --json"
        run(f"import wandb w.csv {words}")
        table(folder / "later.csv", self.HEADER, *self.ROWS[:2], "d|finished|70|0.02|1|adam|0.1|1|2026-01-04")
        assert run.json(f"import wandb later.csv {words}")["added"] == 1
        table(folder / "other.csv", self.HEADER.replace("reward", "return"), *self.ROWS)
        refused = run.error("import wandb other.csv --name w --score return --direction maximize")
        assert refused == ("sweep 'w' was imported with score 'reward' (now 'return'); choose another name with --name")

    @pytest.mark.parametrize(
        ("flags", "words"),
        [
            ("", "--score COLUMN is needed, one of: lr, train.layers, eval/acc, reward"),
            ("--score reward", "say whether a higher reward is better: --direction maximize or --direction minimize"),
            ("--score rewards", "--score 'rewards' is no column with numbers; did you mean 'reward'?"),
            ("--score reward --direction up", "--direction 'up' is neither maximize nor minimize"),
            ("--score reward --direction maximize --params lr,lay", "--params: there is no column 'lay'"),
            ("--score reward --direction maximize --rename lr", "--rename 'lr' is not of the form OLD=NEW"),
            (
                "--score reward --direction maximize --rename lr=x --rename train.layers=x",
                "--rename: 'x' is no free name",
            ),
            ("--score reward --direction maximize --rename x=y", "--rename: no run has the parameter 'x'"),
            ("--score reward --direction maximize --cost sec", "--cost 'sec' is no column with numbers"),
            ("--score reward --direction maximize --space no.toml", "--space no.toml: no such file"),
            (
                "--score reward --direction maximize --cost-parameter opt",
                "--cost-parameter 'opt' is no numeric parameter",
            ),
        ],
    )
    def test_mistakes_are_one_line(self, folder: Path, run: Run, flags: str, words: str) -> None:
        table(folder / "w.csv", self.HEADER, *self.ROWS)
        assert words in run.error(f"import wandb w.csv {flags}")
        assert open_store("runs/protein.db").find_sweep("w") is None

    ASKED = (
        ("val_loss", "called like one", "12.5 9.5 7.5 3.5 8.5 1.5"),
        ("bestReward", "called like one", "1 2 3 4 5 6"),
        ("f1", "called like one", "0.1 0.2 0.3 0.4 0.5 0.6"),
        ("wall", "only runs with a score have it", "10 - 30 - 20 40"),
    )

    @pytest.mark.parametrize(("name", "why", "values"), ASKED)
    def test_a_column_that_behaves_like_a_metric_is_asked_about(
        self, folder: Path, run: Run, name: str, why: str, values: str
    ) -> None:
        cells = [value.replace("-", "") for value in values.split()]
        scores = ["1", "" if "" in cells else "5", "3", "" if "" in cells else "2", "4", "0"]
        rows = [f"r{i}|0.0{i + 1}|{cell}|{scores[i]}|5" for i, cell in enumerate(cells)]
        table(folder / "w.csv", f"Name|lr|{name}|objective|Runtime", *rows)
        words = "import wandb w.csv --score objective --direction maximize"
        assert run.error(words) == (
            f"these columns may be metrics: {name} ({why}); name the parameters with --params lr, and add those of them"
            " that are parameters"
        )
        assert Space.from_dict(run.json(f"{words} --params lr --json")["space"]).names == ("lr",)
        kept = Space.from_dict(run.json(f"{words} --params lr,{name} --name both --json")["space"])
        assert len(kept.names) == 2

    def test_a_column_that_ranks_the_runs_as_the_score_does_is_asked_about(self, folder: Path, run: Run) -> None:
        rows = [f"r{i}|{(7 * i) % 12}|{(5 * i) % 12 + 0.5}|{-(((5 * i) % 12) ** 2)}|5" for i in range(12)]
        table(folder / "w.csv", "Name|depth|quality|objective|Runtime", *rows)
        refused = run.error("import wandb w.csv --score objective --direction maximize")
        assert "quality (it ranks the runs as objective does)" in refused and "--params depth," in refused

    @pytest.mark.parametrize("name", ["loss_weight", "reward_scale", "kl_coef", "val_size", "test_split", "layers"])
    def test_a_parameter_that_is_called_after_a_metric_is_one(self, folder: Path, run: Run, name: str) -> None:
        rows = [f"r{i}|{value}|{score}|5" for i, (value, score) in enumerate([(1, 3), (2, 9), (5, 4), (4, "")])]
        table(folder / "w.csv", f"Name|{name}|objective|Runtime", *rows)
        found = run.json("import wandb w.csv --score objective --direction maximize --json")
        assert Space.from_dict(found["space"]).names == (name,)

    def test_without_a_cost_the_user_says_what_to_count(self, folder: Path, run: Run) -> None:
        table(folder / "w.csv", "Name|lr|reward", "a|0.1|1", "b|0.2|2", "c|0.3|3")
        assert "no column tells what a run cost" in run.error("import wandb w.csv --score reward --direction maximize")
        run("import wandb w.csv --score reward --direction maximize --cost equal")
        assert [trial.cost_seconds for trial in stored("w")[1]] == [1.0, 1.0, 1.0]

    @pytest.mark.parametrize("cost", ["Infinity", "1e12", "NaN"])
    def test_a_run_whose_cost_is_no_time_is_left_out_and_the_others_are_taken(
        self, folder: Path, run: Run, cost: str
    ) -> None:
        table(folder / "w.csv", "Name|lr|reward|Runtime", "a|0.1|1|5", f"b|0.2|2|{cost}", "c|0.3|3|6")
        told = run("import wandb w.csv --score reward --direction maximize")
        assert "1 run left out: what they cost is not known" in told
        assert [trial.cost_seconds for trial in stored("w")[1]] == [5.0, 6.0]

    def test_a_text_with_digits_and_underscores_stays_a_text(self, folder: Path, run: Run) -> None:
        table(folder / "w.csv", "Name|lr|data|reward|Runtime", "a|1e-3|2023_01|1|5", "b|0.2|2023_02|2|6")
        run("import wandb w.csv --score reward --direction maximize")
        assert [trial.params["data"] for trial in stored("w")[1]] == ["2023_01", "2023_02"]

    def test_a_file_gives_the_ranges(self, folder: Path, run: Run) -> None:
        table(folder / "w.csv", self.HEADER, *self.ROWS)
        (folder / "s.toml").write_text(
            'lr = { min = 0.005, max = 1.0, scale = "log" }\n[train]\nlayers = { min = 1, max = 8 }'
        )
        found = run.json("import wandb w.csv --score reward --direction maximize --space s.toml --json")
        assert found["outside"] == 1  # its lr is 0.001
        assert Space.from_dict(found["space"]).parameters == (
            Float("lr", 0.005, 1.0, scale="log"), Integer("train.layers", 1, 8)
        )  # fmt: skip
        again = run.error("import wandb w.csv --score reward --direction maximize --space s.toml")
        assert "sweep 'w' has its space already" in again


def test_what_was_run_here_is_not_mixed_with_imported_runs(filled: Path, run: Run) -> None:
    table(filled / "pong.csv", TestWandb.HEADER, *TestWandb.ROWS)
    assert "sweep 'pong' was run here" in run.error("import wandb pong.csv --score reward --direction maximize")
    run("import wandb pong.csv --score reward --direction maximize --name old")
    assert "'old' was imported, and is never run here" in run("status old").splitlines()
    for command in ("pause", "resume", "stop"):
        said = run(f"{command} old")
        assert said == f"sweep 'old' was imported, and is never run here, so there is nothing to {command}\n"
    assert "sweep 'old' was imported and cannot be resumed" in run.error("sweep --env pong --name old --max-trials 1")


@pytest.mark.parametrize(
    ("text", "params", "reason"),
    [
        ("Name,lr,lr,acc\na,0.1,7,0.5\n", None, "has 2 columns 'lr', perhaps of the config and of the summary; rename"),
        ("Name,lr,acc,acc\na,0.1,7,0.5\n", None, "has 2 columns 'acc'"),
        ("Name,lr,acc\na,0,1,0,5\n", None, "row 1 has more cells than the header has names (3)"),
        ("Name,lr,acc\na,0.1,0.5\n", ["lr", "acc"], "--params: 'acc' is the score; leave it out"),
    ],
)
def test_a_table_whose_cells_may_stand_below_other_names_is_refused(
    tmp_path: Path, text: str, params: list[str] | None, reason: str
) -> None:
    (tmp_path / "w.csv").write_text(text)
    place = str(tmp_path / "w.csv")
    with pytest.raises(UsageError) as error:
        wandb.read(Source(place=place, score="acc", direction=Direction.MAXIMIZE, cost="equal", params=params))
    assert reason in str(error.value)


def test_a_column_that_stands_twice_and_is_not_taken_refuses_nothing(tmp_path: Path) -> None:
    (tmp_path / "w.csv").write_text('Name,x,x,lr,acc\na,1,2,0.1,0.5,\nb,1,2,0.1,"0,5"\n')
    found = wandb.read(
        Source(place=str(tmp_path / "w.csv"), score="acc", direction=Direction.MAXIMIZE, cost="equal", params=["lr"])
    )
    assert [(run.score, run.reason) for run in found.runs] == [
        (0.5, ""),
        (None, "its score is '0,5', which is no number"),
    ]
