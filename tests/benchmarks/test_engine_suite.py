"""The comparison's runner: figures against a history worked out by hand, what may be resumed, and every peer."""

import dataclasses
import importlib
import importlib.util
import json
import math
import warnings
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from engine.cells import TRACE_SHARES, Run, figures, incumbents, initial_truth, play, prefix, run_cell
from engine.methods import PEERS, make_method
from engine.protocol import Peer, Watch
from engine.reference import Reference
from engine.report import best_peer, cell_weights, difference, mean, overtuning, tables, worse
from engine.suite import TRIAL_CAPS, key, main, missing, read, run
from engine.tasks import make_task
from engine.variants import variant

from protein.engine.settings import EngineSettings
from protein.space import Float, Space
from protein.types import Budget, Measurement, Observation, Params, TrialState

NOT_IN_DEV = ("logei", "qlognehvi", "smac", "hebo", "puffer", "puffer-short")  # the dev extra lacks their packages
SPACE = Space([Float("x", 0.0, 10.0)])
SCALE = Reference(median=0.0, best=10.0, mean_cost=2.0, max_cost=math.e**3, ideal_volume=2.0)


@pytest.fixture
def botorch_peers() -> ModuleType:
    """The module, where its package is installed (the dev extra leaves it out); importing it warns of torch's plans."""
    if importlib.util.find_spec("botorch") is None:
        pytest.skip("botorch is not installed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module("engine.botorch_peers")


@dataclasses.dataclass(frozen=True)
class _Line:
    """A task whose truth is x; it measures x plus an offset that flatters low values and costs what it is told."""

    name: str = "line"
    family: str = "line"
    space: Space = SPACE
    start: Params = dataclasses.field(default_factory=lambda: {"x": 1.0})

    def run(self, params: Params, *, seed: int, repeat: int = 0, watch: Watch | None = None) -> Observation:
        curve = tuple(Measurement(steps=i, elapsed_seconds=float(i), score=float(i)) for i in (1, 2, 3))
        for n in (1, 2):
            if watch is not None and watch(curve[:n]):
                return _observed(params, float(n), float(n), state=TrialState.PRUNED)
        return _observed(params, 3.0 + repeat, 3.0)

    def true_score(self, observation: Observation) -> float:
        return float(observation.params["x"])


class _Fixed(Peer):
    """Asks for the same config again and again; stops each run at its second point."""

    def ask(self, history: list[Observation], budget: Budget) -> Params | None:
        return {"x": 4.0}

    def watch(self, params: Params, curve: tuple[Measurement, ...]) -> bool:
        return len(curve) == 2


class _Recommending(_Fixed):
    recommends = True

    def watch(self, params: Params, curve: tuple[Measurement, ...]) -> bool:
        return False

    def recommend(self, history: list[Observation]) -> Params | None:
        return history[0].params


def _observed(params: Params, score: float | None, cost: float, state: TrialState = TrialState.COMPLETE) -> Observation:
    return Observation(
        params=params, state=state if score is not None else TrialState.FAILED, score=score, cost_seconds=cost
    )


def _history() -> list[Observation]:
    """Measured 2, failed, 9 (truth 8), 11 (truth 5: flattered), 3 (below the median): costs 1, e - 1, e^2, 1, 1."""
    return [
        _observed({"x": 2.0}, 2.0, 1.0),
        _observed({"x": 7.0}, None, math.e - 1.0),
        _observed({"x": 8.0}, 9.0, math.e**2),
        _observed({"x": 5.0}, 11.0, 1.0, state=TrialState.PRUNED),
        _observed({"x": 9.5}, 3.0, 1.0),
    ]


class TestFigures:
    def test_worked_out_by_hand(self) -> None:
        history = _history()
        total = 20.0
        row = figures(_Line(), SCALE, Run(history, [0.1] * 5, [None] * 5), total)
        end = np.cumsum([o.cost_seconds for o in history])
        assert row["best"] == row["measured"] == 0.5  # what measured best is truly 5
        assert row["tried"] == 0.95  # the last one, which measured 3
        assert row["recommended"] in (0.2, 0.8, 0.95)  # of those that were trained to their end
        assert row["area_measured"] == row["area"]
        assert row["fail"] == 0.2
        assert (row["trials"], row["pruned"], row["think"]) == (5, 1, 0.1)
        area = (0.2 * (end[2] - end[0]) + 0.8 * (end[3] - end[2]) + 0.5 * (total - end[3])) / total
        assert row["area"] == pytest.approx(area, abs=1e-4)
        # The staircase of (truth, ln cost): .95 at cost 1 holds up to ln cost 3.
        assert row["volume"] == pytest.approx(0.95 * 3.0 / 2.0, abs=1e-4)
        assert (row["to90"], row["to95"]) == (None, None)
        assert len(row["trace"]) == len(row["front"]) == len(TRACE_SHARES)
        assert row["trace"][-1] == 500
        at = int(np.searchsorted(TRACE_SHARES * total, end[2]))
        assert row["trace"][at - 1 : at + 1] == [200, 800]
        assert row["front"][at - 1] == 300  # .2 over three e-folds, over 2
        assert row["front"][at] == 600  # and .8 - .2 over the last one of them

    def test_own_recommendation_is_what_counts(self) -> None:
        history = _history()
        advice: list[Params | None] = [None, None, {"x": 8.0}, {"x": 8.0}, {"x": 9.5}]
        row = figures(_Line(), SCALE, Run(history, [0.0] * 5, advice), 20.0)
        assert (row["best"], row["measured"]) == (0.95, 0.5)
        assert row["area"] != row["area_measured"]
        assert row["to90"] == row["to95"] == pytest.approx(sum(o.cost_seconds for o in history) / 2.0, abs=0.01)

    def test_scores_below_the_median_count_as_zero_and_failures_have_none(self) -> None:
        history = [_observed({"x": 1.0}, None, 1.0), _observed({"x": 3.0}, 1.0, 1.0)]
        assert incumbents(history, [None, None], np.array([np.nan, 0.3])).tolist() == [0.0, 0.3]
        low = dataclasses.replace(SCALE, median=5.0)
        row = figures(_Line(), low, Run(history, [0.0] * 2, [None] * 2), 4.0)
        assert (row["best"], row["area"], row["volume"]) == (0.0, 0.0, 0.0)

    def test_the_initial_config_has_a_truth_whoever_tries_it(self) -> None:
        class Breaks(_Line):
            def run(self, params: Params, *, seed: int, repeat: int = 0, watch: Watch | None = None) -> Observation:
                return _observed(params, None, 1.0)

        assert initial_truth(_Line(), SCALE, 0) == 0.1
        assert initial_truth(_Line(start={"x": 9.0}), dataclasses.replace(SCALE, median=9.5, best=9.9), 0) == 0.0
        assert initial_truth(Breaks(), SCALE, 0) is None

    def test_a_run_without_a_trial_has_nothing(self) -> None:
        row = figures(_Line(), SCALE, Run(), 4.0)
        names = ("best", "measured", "recommended", "tried", "volume", "area", "area_measured", "trials", "spent")
        assert [row[name] for name in names] == [0.0] * len(names)
        assert set(row["trace"]) == set(row["front"]) == {0}


class TestPlay:
    def test_stops_runs_and_cuts_off_what_overruns(self) -> None:
        run = play(_Line(), _Fixed(), total_seconds=5.0, cap=10, seed=0)
        assert [(o.state, o.cost_seconds) for o in run.history] == [(TrialState.PRUNED, 2.0)] * 2

    def test_repeats_are_counted_and_the_recommendation_is_asked(self) -> None:
        run = play(_Line(), _Recommending(), total_seconds=100.0, cap=3, seed=0)
        assert [o.score for o in run.history] == [3.0, 4.0, 5.0]
        assert run.advice == [{"x": 4.0}] * 3

    @pytest.mark.parametrize("method", ["random", "tpe", "hyperband"])
    def test_prefix_equals_the_run_at_the_smaller_budget(self, method: str) -> None:
        long, short = run_cell(method, "cliff", 3, [(12.0, 30), (5.0, 8)])
        (alone,) = run_cell(method, "cliff", 3, [(5.0, 8)])
        assert short | {"think": 0.0} == alone | {"think": 0.0}
        assert long["trials"] > short["trials"]

    def test_a_prefix_keeps_what_fits(self) -> None:
        run = Run(_history(), [0.0] * 5, [None] * 5)
        assert len(prefix(run, total_seconds=math.e + math.e**2, cap=99).history) == 3
        assert len(prefix(run, total_seconds=99.0, cap=2).history) == 2


class TestEveryPeer:
    @pytest.mark.parametrize("name", [name for name in PEERS if name not in NOT_IN_DEV])
    def test_runs_without_a_violation(self, name: str) -> None:
        # `ppo` has a constraint, `supervised` categorical parameters. `gp` draws its first ten points.
        for family, cap in [("ppo", 11)] if name == "gp" else [("ppo", 6), ("supervised", 12)]:
            task = make_task(family, 0)
            method = make_method(name, task.space, task.start, 0)
            run = play(task, method, total_seconds=math.inf, cap=cap, seed=0)
            params = [o.params for o in run.history]
            assert params[0] == task.start
            assert len({tuple(p.values()) for p in params}) == cap

    @pytest.mark.parametrize("name", ["protein", *(name for name in PEERS if name not in NOT_IN_DEV)])
    def test_begins_without_an_initial_config(self, name: str) -> None:
        task = make_task("supervised", 0)
        run = play(task, make_method(name, task.space, None, 0), total_seconds=math.inf, cap=3, seed=0)
        params = [o.params for o in run.history]
        assert task.start not in params and len({tuple(p.values()) for p in params}) == 3

    def test_an_unknown_one_is_named(self) -> None:
        with pytest.raises(ValueError, match="unknown method 'protien'"):
            make_method("protien", SPACE, {"x": 1.0}, 0)

    def test_botorch_suggests_beyond_its_design(self, botorch_peers: ModuleType) -> None:
        task = make_task("supervised", 1)
        rng = np.random.default_rng(0)
        history = [task.run(p, seed=0) for p in task.space.from_unit_many(task.space.sample(12, rng))]
        for name in ("logei", "qlognehvi"):
            assert botorch_peers.BotorchPeer(name, task.space, None, 0).ask([], Budget()) != task.start
            params = botorch_peers.BotorchPeer(name, task.space, task.start, 0).ask(
                history, Budget(remaining_seconds=1.0, remaining_trials=9)
            )
            assert params is not None
            task.space.validate(params)
            assert params not in [o.params for o in history]

    def test_botorch_processes_are_at_the_mode_that_botorch_finds(self, botorch_peers: ModuleType) -> None:
        import torch
        from botorch.fit import fit_gpytorch_mll
        from botorch.models import SingleTaskGP
        from gpytorch.mlls import ExactMarginalLogLikelihood

        from protein.engine.gp import single_thread

        rng = np.random.default_rng(0)
        x = torch.from_numpy(rng.random((20, 4)))
        y = torch.sin(5.0 * x[:, :1]) + x[:, 1:2] ** 2 + 0.05 * torch.from_numpy(rng.standard_normal((20, 1)))

        def log_posterior(model: SingleTaskGP) -> float:
            model.train()
            objective = ExactMarginalLogLikelihood(model.likelihood, model)
            return float(objective(model(*model.train_inputs), model.train_targets).detach())

        theirs = SingleTaskGP(x, y)
        with single_thread():
            fit_gpytorch_mll(ExactMarginalLogLikelihood(theirs.likelihood, theirs))
            assert log_posterior(botorch_peers.fitted(x, y)) >= log_posterior(theirs) - 1e-4


class TestRunner:
    def test_a_cell_is_run_once(self, tmp_path: Path) -> None:
        path = tmp_path / "rows.jsonl"
        jobs = missing([], ["random", "sobol"], ["ppo"], range(2), [3.0])
        assert len(jobs) == 4
        run(jobs[:3], path, 1)
        rows = read(path)
        assert missing(rows, ["random", "sobol"], ["ppo"], range(2), [3.0]) == jobs[3:]
        run(jobs[3:], path, 1)
        assert [key(r) for r in read(path)][:3] == [key(r) for r in rows]
        assert not missing(read(path), ["random", "sobol"], ["ppo"], range(2), [3.0])
        header = json.loads(path.read_text().splitlines()[0])["header"]
        assert {"machine", "commit"} <= header.keys()

    def test_both_budgets_are_one_job_and_rows_of_an_older_form_do_not_count(self, tmp_path: Path) -> None:
        (job,) = missing([], ["tpe"], ["ppo"], [4], [25.0, 60.0])
        assert job == ("tpe", "ppo", 4, ((25.0, TRIAL_CAPS[25.0]), (60.0, TRIAL_CAPS[60.0])), "default")
        path = tmp_path / "rows.jsonl"
        path.write_text('{"method": "tpe", "family": "ppo", "seed": 4, "budget": 25.0, "best": 0.5}\n')
        assert read(path) == []

    def test_a_blind_run_is_another_cell_and_rows_of_old_have_an_initial_config(self, tmp_path: Path) -> None:
        path = tmp_path / "rows.jsonl"
        path.write_text('{"method": "random", "family": "ppo", "seed": 0, "budget": 2.0, "best": 0.5, "trace": []}\n')
        (old,) = read(path)
        assert old["start"] == "default"
        (job,) = missing([old], ["random"], ["ppo"], [0], [2.0], "none")
        run([job], path, 1)
        found = read(path)
        assert [row["start"] for row in found] == ["default", "none"]
        assert found[0]["initial"] == found[1]["initial"] > 0.0, "that of the old one is read from another file"
        assert not missing(read(path), ["random"], ["ppo"], [0], [2.0], "none")

    def test_of_a_cell_measured_twice_the_last_counts(self, tmp_path: Path) -> None:
        path = tmp_path / "rows.jsonl"
        rows = [
            {"method": "tpe", "family": "ppo", "seed": 0, "budget": 25.0, "best": b, "trace": []} for b in (0.1, 0.2)
        ]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        assert [row["best"] for row in read(path)] == [0.2]


class TestWords:
    @pytest.mark.parametrize(
        "words, said",
        [
            (["--methods", "protien"], "unknown method 'protien'; known: protein, random"),
            (["--methods", "random", "protein:nope=1"], "unknown setting 'nope' of the engine; known: num_initial, "),
            (
                ["--methods", "protein:price_floor=abc"],
                "price_floor cannot be 'abc'; write it as in 'price_floor=0.03'",
            ),
            (["--methods", "protein:price_floor"], "price_floor cannot be ''; write it as in 'price_floor=0.03'"),
            (["--methods", "protein:log_noise=(1.0,)"], "write it as in 'log_noise=(-4.6, 2.0)'"),
            (["--methods", "protein:num_initial=2.5"], "write it as in 'num_initial=8'"),
            (["--table"], "there is no file FILE; run python benchmarks/engine/suite.py --file FILE"),
            (["--ablations"], "there is no file FILE; run"),
            (["--figure", "never.svg"], "there is no file FILE; run"),
        ],
    )
    def test_a_mistake_is_one_line_and_measures_nothing(
        self, words: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        path = tmp_path / "rows.jsonl"
        with pytest.raises(SystemExit) as end:
            main([*words, "--file", str(path)])
        out, err = capsys.readouterr()
        assert end.value.code == 2 and not out and not path.exists()
        assert err.startswith("error: ") and err.count("\n") == 1 and said.replace("FILE", str(path)) in err

    def test_a_file_without_what_is_asked_for_says_so(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        path = tmp_path / "rows.jsonl"
        path.write_text('{"header": {}}\n')
        changed = "protein:num_initial=2"
        for words in (["--table"], ["--ablations", "--methods", "random"], ["--figure", "never.svg"]):
            if "random" in words:
                run(missing([], ["random", changed], ["ppo"], [0], [2.0]), path, 1)
            with pytest.raises(SystemExit) as end:
                main([*words, "--file", str(path)])
            out, err = capsys.readouterr()
            assert end.value.code == 2 and not out
            assert err.startswith(f"error: {path} has no cell of ") and err.count("\n") == 1
        main(["--file", str(path), "--methods", changed, "--families", "ppo", "--seeds", "1", "--budgets", "2"])
        assert changed in capsys.readouterr().out, "a run of nothing but a changed setting ends in its table"

    def test_settings_are_changed_by_words(self) -> None:
        assert variant("") == variant(";") == EngineSettings()
        assert variant("amplitude_slope=None").amplitude_slope is None and variant(
            "amplitude_slope=(1, 2)"
        ).amplitude_slope == (1.0, 2.0)
        changed = variant("num_initial=2; refine_widths=(1, .5);early_stopping=False;price_floor=1")
        assert changed == dataclasses.replace(
            EngineSettings(), num_initial=2, refine_widths=(1.0, 0.5), early_stopping=False, price_floor=1.0
        )


class TestReport:
    @staticmethod
    def _row(method: str, family: str, seed: int, best: float) -> dict[str, object]:
        rest = {"fail": 0.0, "to90": None, "to95": 3.0, "trials": 5, "think": 0.0, "budget": 25.0, "cap": 120}
        return {"method": method, "family": family, "seed": seed, "best": best, "volume": best, "area": best, **rest}

    def test_families_weigh_the_same_and_differences_are_paired(self) -> None:
        rows = [self._row("tpe", "ppo", seed, 0.2) for seed in range(3)] + [self._row("tpe", "wide", 0, 0.6)]
        rows += [
            self._row("protein", "ppo", 0, 0.5),
            self._row("protein", "wide", 0, 0.9),
            self._row("gp", "ppo", 0, 0.3),
        ]
        assert mean([r for r in rows if r["method"] == "tpe"], "best") == pytest.approx(0.4)
        assert best_peer(rows, "best") == "tpe"
        gap = difference(rows, "protein", "tpe", "best")
        assert gap == pytest.approx((0.3, 0.3, 0.3))
        assert difference(rows, "gp", "random", "best") is None

    def test_sources_weigh_the_same(self) -> None:
        """Synthetic: (.3 + .6) / 2; rl: 1."""
        rows = [self._row("tpe", "ppo", seed, best) for seed, best in enumerate((0.2, 0.4))]
        rows += [self._row("tpe", "wide", 0, 0.6), self._row("tpe", "rl-ppo-brax-ant", 0, 1.0)]
        assert mean(rows, "best") == pytest.approx((0.45 + 1.0) / 2)
        assert cell_weights(rows).tolist() == pytest.approx([0.125, 0.125, 0.25, 0.5])
        text = tables([*rows, self._row("gp", "ppo", 0, 0.9)])
        blocks = [i for i, line in enumerate(text) if line.startswith(("mean over sources: ", "synthetic: ", "rl: "))]
        assert [next(float(line.split()[3]) for line in text[i:] if line.startswith("tpe ")) for i in blocks] == [
            pytest.approx(v, abs=1e-3) for v in (0.725, 0.45, 1.0)
        ]
        assert best_peer([*rows, self._row("gp", "ppo", 0, 0.9)], "best") == "tpe", "gp was run on one source alone"

    def test_an_interval_resamples_cells_inside_families(self) -> None:
        """Gaps .1 and .3: means of two draws are .2 -+ .1 with probability a quarter each, widened by sqrt(2)."""
        rows = [self._row("random", "ppo", seed, 0.0) for seed in range(2)]
        rows += [self._row("tpe", "ppo", 0, 0.1), self._row("tpe", "ppo", 1, 0.3)]
        half = 0.1 * math.sqrt(2.0)
        assert difference(rows, "tpe", "random", "best") == pytest.approx((0.2, 0.2 - half, 0.2 + half))
        # A second family with one cell moves the mean and halves the width: the spread between families is left out.
        rows += [self._row("random", "wide", 0, 0.0), self._row("tpe", "wide", 0, 1.0)]
        assert difference(rows, "tpe", "random", "best") == pytest.approx((0.6, 0.6 - half / 2, 0.6 + half / 2))

    def test_tells_how_often_the_config_handed_over_is_worse_than_the_initial_one(self) -> None:
        def row(method: str, family: str, seed: int, best: float, **more: object) -> dict[str, object]:
            reached = {"initial": 0.5, "start": "default", "trace": [0, 500, 900, round(1000 * best)]}
            return self._row(method, family, seed, best) | reached | more

        rows = [row("tpe", "ppo", 0, 0.4), row("tpe", "ppo", 1, 0.5), row("tpe", "rl-ppo-brax-ant", 0, 0.9)]
        left_out = [row("tpe", "ppo", 2, 0.1, start="none"), row("tpe", "ppo", 3, 0.1, initial=None)]
        rows += [*left_out, self._row("tpe", "ppo", 4, 0.1), row("protein:price_floor=1", "ppo", 0, 0.9)]
        line = next(line for line in overtuning(rows) if line.startswith("tpe ")).split()
        assert line[1] == "25%", "half of one source's, none of the other's"
        assert float(line[line.index("(3)") - 1]) == pytest.approx((0.45 + 0.0) / 2, abs=1e-3), "lost since the best"
        assert any(line.startswith("protein:price_floor=1 ") for line in overtuning(rows))
        assert overtuning(left_out) == [] == overtuning([self._row("tpe", "ppo", 0, 0.1)])
        never = [{"family": "ppo", "worse": 0.0}] * 10
        assert worse(never) == pytest.approx((0.0, 0.0, 0.213), abs=1e-3), "Wilson's interval of 0 of 10"
        assert worse([{"family": "ppo", "worse": 1.0}] * 10)[1] == pytest.approx(0.787, abs=1e-3)

    def test_says_where_a_method_is_below_random(self) -> None:
        rows = [self._row("random", f, 0, 0.5) for f in ("ppo", "wide")]
        rows += [self._row("protein", "ppo", 0, 0.4), self._row("protein", "wide", 0, 0.9)]
        text = "\n".join(tables(rows))
        assert "protein below random: ppo best -0.100, ppo volume -0.100, ppo area -0.100" in text
        assert "0.650" in text
