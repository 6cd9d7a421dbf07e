"""ProteinSampler: Optuna's own published tests of samplers, then what is ours: costs, budget, curves, resuming."""

import math
from collections.abc import Callable
from datetime import datetime, timedelta, tzinfo
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import optuna
import pytest
from optuna.samplers import BaseSampler
from optuna.testing.pytest_samplers import BasicSamplerTestCase, RelativeSamplerTestCase, SingleOnlySamplerTestCase
from optuna.trial import TrialState

from protein import ProteinSampler
from protein.engine.designer import ProteinDesigner
from protein.engine.history import History
from protein.errors import UsageError
from protein.optuna import sampler as optuna_sampler
from protein.optuna.sampler import Joint, to_optunas, to_ours

optuna.logging.set_verbosity(optuna.logging.WARNING)


class TestOptunasOwn(BasicSamplerTestCase, RelativeSamplerTestCase, SingleOnlySamplerTestCase):
    @pytest.fixture
    def sampler(self) -> Callable[[], BaseSampler]:
        return lambda: ProteinSampler(seed=0)


def objective(trial: optuna.Trial) -> float:
    """Best at lr = 0.01; longer is better and more expensive."""
    lr = trial.suggest_float("lr", 1e-5, 1.0, log=True)
    epochs = trial.suggest_int("epochs", 1, 100, log=True)
    wide = trial.suggest_categorical("width", ["narrow", "wide", None])
    cost = 0.5 * epochs * (2.0 if wide == "wide" else 1.0)
    trial.set_user_attr("seconds", cost)
    return (1.0 - math.exp(-epochs / 30.0)) * (math.exp(-((math.log10(lr) + 2.0) ** 2)) + 0.1 * (wide == "wide"))


def sampler(**changes: Any) -> ProteinSampler:
    return ProteinSampler(**{"seed": 0, "cost_parameter": "epochs", "cost_attribute": "seconds", **changes})


def params(study: optuna.Study) -> list[dict[str, Any]]:
    return [trial.params for trial in study.trials]


@pytest.fixture
def storage(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'study.db'}"


@pytest.mark.parametrize("direction", ["maximize", "minimize"])
def test_it_finds_the_optimum_at_less_than_random_cost(direction: Literal["maximize", "minimize"]) -> None:
    sign = 1.0 if direction == "maximize" else -1.0
    study = optuna.create_study(direction=direction, sampler=sampler())
    study.optimize(lambda trial: sign * objective(trial), n_trials=30)
    assert sign * study.best_value > 0.9  # 1.07 at most
    predicted = study.trials[-1].user_attrs
    low, high = predicted["protein:predicted_score_interval"]
    assert low <= predicted["protein:predicted_score"] <= high
    assert abs(predicted["protein:predicted_score"] - sign * 0.5) < 1.0  # of the study's own sign
    low, high = predicted["protein:predicted_cost_seconds_interval"]
    assert 0.0 < low <= predicted["protein:predicted_cost_seconds"] <= high


def test_a_study_loaded_again_goes_on_as_if_nothing_had_happened(storage: str) -> None:
    whole = optuna.create_study(direction="maximize", sampler=sampler())
    whole.optimize(objective, n_trials=11)
    split = optuna.create_study(direction="maximize", sampler=sampler(), storage=storage, study_name="split")
    split.optimize(objective, n_trials=5)
    again = optuna.load_study(study_name="split", sampler=sampler(), storage=storage)
    again.optimize(objective, n_trials=6)
    assert params(again) == params(whole)
    assert again.trials[6].user_attrs["protein:origin"].startswith("initial design")


def test_workers_get_different_points() -> None:
    study = optuna.create_study(direction="maximize", sampler=sampler())
    study.optimize(objective, n_trials=12)
    space = study.trials[-1].distributions
    asked = [study.ask(space).params for _ in range(4)]  # the running ones have all of their params
    assert len({tuple(one.values()) for one in asked}) == 4
    slow = study.ask()
    slow.suggest_float("lr", 1e-5, 1.0, log=True)  # and this one has asked for one of three
    other = study.ask(space)
    assert slow.params["lr"] != other.params["lr"]
    study.optimize(objective, n_trials=4, n_jobs=2)


def test_threads_that_ask_at_once_get_different_points() -> None:
    study = optuna.create_study(direction="maximize", sampler=sampler())
    study.optimize(objective, n_trials=1)
    study.optimize(objective, n_trials=24, n_jobs=4)
    assert len({tuple(one.values()) for one in params(study)}) == 25


def test_what_another_process_took_meanwhile_is_not_taken_again(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []

    def late(*arguments: Any, **keywords: Any) -> Any:
        """The other process asks and is answered after this one has read the study."""
        with monkeypatch.context() as undone:
            undone.setattr(optuna_sampler, "ProteinDesigner", ProteinDesigner)
            if not asked:
                asked.append(study.ask(space).params)
        return ProteinDesigner(*arguments, **keywords)

    study = optuna.create_study(direction="maximize", sampler=sampler())
    for known in (2, 10):  # in the initial design, and by the models
        study.optimize(objective, n_trials=known)
        space = study.trials[-1].distributions
        asked.clear()
        with monkeypatch.context() as patched:
            patched.setattr(optuna_sampler, "ProteinDesigner", late)
            slower = study.ask(space).params
        assert len(asked) == 1 and slower != asked[0]


def test_a_cost_of_numpy_counts() -> None:
    trial = optuna.trial.create_trial(value=1.0, user_attrs={"seconds": np.float32(12.0)})
    assert sampler()._cost_seconds(trial) == 12.0


def test_the_budget_ends_the_study_and_is_kept() -> None:
    study = optuna.create_study(direction="maximize", sampler=sampler(budget_seconds=200.0))
    study.optimize(objective, n_trials=300)
    spent = sum(trial.user_attrs.get("seconds", 0.0) for trial in study.trials)
    assert 100.0 < spent < 220.0
    assert len(study.trials) < 300
    assert all(trial.state is TrialState.COMPLETE for trial in study.trials[:-1])


@pytest.mark.parametrize("state", [TrialState.RUNNING, TrialState.FAIL])
def test_a_trial_whose_process_was_killed_does_not_spend_the_budget(state: TrialState) -> None:
    """Its clock goes on until somebody says that it has failed."""
    study = optuna.create_study(direction="maximize", sampler=ProteinSampler(budget_seconds=600.0))

    def quick(trial: optuna.Trial) -> float:
        return trial.suggest_float("x", 0.0, 1.0)

    study.optimize(quick, n_trials=5)
    yesterday = datetime.now() - timedelta(days=1)
    lost = optuna.trial.create_trial(
        state=state,
        value=None,
        params={"x": 0.5},
        distributions={"x": optuna.distributions.FloatDistribution(0.0, 1.0)},
    )
    lost.datetime_start = yesterday
    lost.datetime_complete = datetime.now() if state is TrialState.FAIL else None
    study.add_trial(lost)
    study.optimize(quick, n_trials=5)
    assert sum(trial.state is TrialState.COMPLETE for trial in study.trials) == 10


@pytest.mark.parametrize("state", [TrialState.RUNNING, TrialState.FAIL])
def test_a_long_trial_that_was_predicted_to_be_long_is_charged_in_full(state: TrialState) -> None:
    now = datetime.now()
    short, long = (optuna.trial.create_trial(value=1.0) for _ in range(2))
    short.datetime_start, short.datetime_complete = now - timedelta(seconds=10), now
    long.state, long.datetime_start = state, now - timedelta(seconds=500)
    long.datetime_complete = now if state is TrialState.FAIL else None
    long.user_attrs = {"protein:predicted_cost_seconds": 70.0}
    finished, running = ([short, long], []) if state is TrialState.FAIL else ([short], [long])
    left = sampler(cost_attribute=None, budget_seconds=1000.0)._budget_left(finished, running).remaining_seconds
    assert left == pytest.approx(1000.0 - 10.0 - 500.0, abs=5.0)


def test_outside_of_optimize_a_spent_budget_gives_the_cheapest() -> None:
    study = optuna.create_study(direction="maximize", sampler=sampler(budget_seconds=30.0))
    study.enqueue_trial({"lr": 0.1, "epochs": 100, "width": "narrow"})
    for _ in range(2):
        trial = study.ask()
        study.tell(trial, objective(trial))
    assert study.trials[1].params["epochs"] == 1
    assert study.trials[1].user_attrs["protein:origin"] == "the budget is spent, cheapest params"


def test_what_the_engine_learns_of_each_end() -> None:
    study = optuna.create_study(sampler=sampler(cost_attribute=None))
    space: dict[str, Any] = {"epochs": optuna.distributions.IntDistribution(1, 100, log=True)}
    joint = Joint.of(tuple(space.items()), "epochs")
    for state, value, reports, violation in (
        (TrialState.COMPLETE, 2.0, {9: 1.0, 19: 2.0}, -1.0),
        (TrialState.COMPLETE, 2.0, {}, 0.5),
        (TrialState.COMPLETE, math.inf, {}, -1.0),
        (TrialState.FAIL, None, {}, -1.0),
        (TrialState.PRUNED, None, {0: 3.0, 4: 2.5}, -1.0),
        (TrialState.PRUNED, None, {0: math.nan}, -1.0),
    ):
        trial = study.ask(space)
        for step, reported in reports.items():
            trial.report(reported, step)
        trial.set_constraint("memory", violation)
        study.tell(trial, value, state)
    unit = joint.steps_per_report(study.trials[:1])
    assert unit is not None
    learnt = [joint.observations(trial, -1.0, 60.0, unit) for trial in study.trials]
    assert [(o.end, o.score, o.reason) for o, *_ in learnt] == [
        ("complete", -2.0, ""),
        ("failed", None, "violates constraint memory"),
        ("diverged", None, "value inf"),
        ("failed", None, "failed"),
        ("stopped_early", -2.5, ""),
        ("stopped_early", None, ""),
    ]
    assert [o.state for o, *_ in learnt] == ["complete", "failed", "failed", "failed", "pruned", "pruned"]
    assert [(o.state, o.cost_seconds, o.reason) for o in learnt[4][1:]] == [("failed", 0.0, "pruned")]
    curve, asked = learnt[0][0].curve, study.trials[0].params["epochs"]  # of the 20 reports, the 10th and the last
    assert [point.steps for point in curve] == [round(asked / 2), asked]
    assert [point.score for point in curve] == [-1.0, -2.0]
    assert [point.elapsed_seconds for point in curve] == [30.0, 60.0]


@pytest.mark.parametrize("reports", [True, False])
def test_pruned_trials_without_a_cost_parameter_do_not_make_a_run_look_cheap(reports: bool) -> None:
    study = optuna.create_study(direction="maximize")
    space: dict[str, Any] = {"x": optuna.distributions.FloatDistribution(0.0, 1.0)}
    joint, history = Joint.of(tuple(space.items()), None), []
    for number in range(12):
        trial = study.ask(space)
        for step in range(10 if number % 2 else 4) if reports else ():
            trial.report(0.1 * step, step)
        study.tell(trial, 0.9 if number % 2 else None, None if number % 2 else TrialState.PRUNED)
    unit = joint.steps_per_report(study.trials)
    for number, told in enumerate(study.trials):
        history += joint.observations(told, 1.0, 100.0 if number % 2 else 40.0, unit)
    data = History.of(joint.space, history, [])
    assert data.costs == pytest.approx(100.0)
    assert len(data.costs) == (12 if reports else 6)


def test_a_trial_of_several_days_costs_them_all() -> None:
    began = datetime(2026, 1, 1, 22)
    trial = optuna.trial.create_trial(value=1.0, user_attrs={"protein:suggest_seconds": 5.0})
    trial.datetime_start, trial.datetime_complete = began, began + timedelta(days=2, seconds=65)
    assert sampler(cost_attribute=None)._cost_seconds(trial) == 2 * 86_400.0 + 60.0


def test_a_region_that_fails_is_left_alone() -> None:
    def fallible(trial: optuna.Trial) -> float:
        x, y = trial.suggest_float("x", 0.0, 1.0), trial.suggest_float("y", 0.0, 1.0)
        trial.set_user_attr("seconds", 1.0)
        if x > 0.5:
            raise RuntimeError("diverged")
        return -((x - 0.3) ** 2) - (y - 0.3) ** 2

    study = optuna.create_study(direction="maximize", sampler=sampler(cost_parameter=None))
    optuna.logging.set_verbosity(optuna.logging.CRITICAL)  # each failure would be a traceback
    study.optimize(fallible, n_trials=24, catch=RuntimeError)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    failed = [trial.state is TrialState.FAIL for trial in study.trials]
    assert any(failed[:9])
    assert sum(failed[9:]) <= 5  # half of random ones


def test_a_study_whose_every_trial_failed_goes_on() -> None:
    def broken(trial: optuna.Trial) -> float:
        trial.suggest_float("x", 0.0, 1.0)
        return float("nan")

    study = optuna.create_study(sampler=ProteinSampler(seed=0))
    study.optimize(broken, n_trials=12)
    assert len({trial.params["x"] for trial in study.trials}) == 12
    study.optimize(lambda trial: trial.suggest_float("x", 0.0, 1.0) * float("inf"), n_trials=2)
    study.optimize(lambda trial: trial.suggest_float("x", 0.0, 1.0), n_trials=2)


def test_with_a_pruner_the_search_still_reaches_long_trials() -> None:
    """A pruned trial's score belongs to the epochs that it reached, and says nothing bad about long ones."""

    def reporting(trial: optuna.Trial) -> float:
        value = objective(trial)
        epochs, seconds = trial.params["epochs"], trial.user_attrs["seconds"]
        for step in range(epochs):
            grown = (1.0 - math.exp(-(step + 1) / 30.0)) / (1.0 - math.exp(-epochs / 30.0))
            trial.report(value * grown, step)
            trial.set_user_attr("seconds", seconds * (step + 1) / epochs)
            if trial.should_prune():
                raise optuna.TrialPruned
        return value

    pruner = optuna.pruners.PercentilePruner(75.0, n_startup_trials=4, n_min_trials=4)
    study = optuna.create_study(direction="maximize", sampler=sampler(), pruner=pruner)
    study.optimize(reporting, n_trials=30)
    assert any(trial.state is TrialState.PRUNED for trial in study.trials)
    assert study.best_value > 0.33  # what twelve epochs can give; the initial design has two


def test_the_enqueued_config_is_what_the_search_starts_from() -> None:
    found = []
    for lr in (1e-4, 0.5):
        study = optuna.create_study(direction="maximize", sampler=sampler())
        study.enqueue_trial({"lr": lr, "epochs": 3, "width": "wide"})
        study.optimize(objective, n_trials=3)
        found.append(params(study)[1:])
    assert found[0] != found[1]


def test_a_seed_repeats_a_study_whose_trials_are_shorter_than_the_clock_can_tell(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = np.random.default_rng(0)

    class Clock(datetime):
        """Of the storage, by which trials begin and end: each takes up to a fiftieth of a second, as is drawn."""

        passed = timedelta()

        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Self:
            cls.passed += timedelta(seconds=float(rng.uniform(0.0, 0.02)))
            return cls(2026, 1, 1) + cls.passed

    monkeypatch.setattr("optuna.storages._in_memory.datetime", Clock)

    def instant(trial: optuna.Trial) -> float:
        return -((trial.suggest_float("x", 0.0, 1.0) - 0.3) ** 2) - trial.suggest_float("y", 0.0, 1.0)

    studies = []
    for _ in range(2):
        study = optuna.create_study(direction="maximize", sampler=ProteinSampler(seed=0))
        study.optimize(instant, n_trials=12)
        studies.append(params(study))
    assert studies[0] == studies[1]


def test_parameters_that_come_and_go_are_searched() -> None:
    def conditional(trial: optuna.Trial) -> float:
        kind = trial.suggest_categorical("kind", ["linear", "tree"])
        x = trial.suggest_float("x", 0.0, 1.0)
        if kind == "tree":
            return x + 0.1 * trial.suggest_int("depth", 2, 30, step=4)
        return x + trial.suggest_float("slope", -1.0, 0.5)

    study = optuna.create_study(direction="maximize", sampler=ProteinSampler(seed=0))
    study.optimize(conditional, n_trials=30)
    assert study.best_value > 3.2  # 4 at most
    assert "protein:origin" in study.trials[-1].user_attrs


class Noting(ProteinSampler):
    """Notes what was sampled one by one."""

    def __init__(self) -> None:
        super().__init__(seed=0)
        self.alone: list[str] = []

    def sample_independent(self, study: Any, trial: Any, param_name: str, param_distribution: Any) -> Any:
        self.alone.append(param_name)
        return super().sample_independent(study, trial, param_name, param_distribution)


def dynamic(trial: optuna.Trial) -> float:
    """Best with model b, kernel q and x of 0.3 and y of 0.6; two levels of conditions."""
    if trial.suggest_categorical("model", ["a", "b"]) == "a":
        return 0.5 - abs(trial.suggest_float("depth", 0.0, 1.0) - 0.5)
    score = 1.0 - abs(trial.suggest_float("x", 0.0, 1.0) - 0.3)
    if trial.suggest_categorical("kernel", ["p", "q"]) == "p":
        return score - 0.5
    return score + 0.5 - abs(trial.suggest_float("y", 0.0, 1.0) - 0.6)


def test_the_conditions_of_a_dynamic_study_are_found_and_its_parameters_suggested_together() -> None:
    sampler = Noting()
    study = optuna.create_study(direction="maximize", sampler=sampler)
    for x in np.linspace(0.05, 0.95, 8):
        study.enqueue_trial({"model": "a", "depth": float(x)})
        study.enqueue_trial({"model": "b", "x": float(x), "kernel": "p"})
        study.enqueue_trial({"model": "b", "x": float(x), "kernel": "q", "y": float(x)})
    study.optimize(dynamic, n_trials=40)
    assert not sampler.alone
    found = [trial.params for trial in study.trials[24:]]
    assert {"model", "x", "kernel", "y"} in [set(one) for one in found]
    assert study.best_value > 1.4  # 1.5 at most
    assert len({str(one) for one in found}) == len(found)
    again = optuna.create_study(direction="maximize", sampler=Noting())
    again.add_trials(study.trials[:30])
    again.optimize(dynamic, n_trials=2)
    assert [trial.params for trial in again.trials[30:]] == [trial.params for trial in study.trials[30:32]]


@pytest.mark.filterwarnings("ignore:Choices for a categorical distribution")
def test_an_objective_gets_the_choices_of_its_own_study() -> None:
    for choices in ([True, False], [1, 0], [1.0, 0.0], [[64, 64], [128]], [None, "None"]):
        seen: list[str] = []

        def suggest(trial: optuna.Trial, choices: Any = choices, seen: list[str] = seen) -> float:
            seen.append(repr(trial.suggest_categorical("choice", choices)))
            return trial.suggest_float("x", 0.0, 1.0)

        optuna.create_study(sampler=ProteinSampler(seed=0)).optimize(suggest, n_trials=10)
        assert set(seen) == {repr(one) for one in choices}


def test_equal_choices_are_one() -> None:
    """Optuna keeps the first of them, whichever was suggested, which would then be suggested for ever."""
    for choices in ([None, "x", 1, True], [True, 1, 1.0], [0, False, 2]):

        def suggest(trial: optuna.Trial, choices: Any = choices) -> float:
            chosen = trial.suggest_categorical("choice", choices)
            return trial.suggest_int("x", 0, 9) + 0.1 * (chosen is not None)

        study = optuna.create_study(direction="maximize", sampler=ProteinSampler(seed=0))
        study.optimize(suggest, n_trials=12)
        tried = [(trial.params["x"], repr(trial.params["choice"])) for trial in study.trials]
        num_points = 10 * len(set(choices))
        assert len(set(tried)) >= min(num_points, 12) - 1, "the first trial, of Optuna's own, may be met again"


def test_a_cost_parameter_below_0_counts_no_steps() -> None:
    def reporting(trial: optuna.Trial) -> float:
        score = trial.suggest_float("log_share", -3.0, 0.0) + trial.suggest_float("x", 0.0, 1.0)
        trial.report(score, 1)
        return score

    study = optuna.create_study(direction="maximize", sampler=sampler(cost_parameter="log_share", cost_attribute=None))
    study.optimize(reporting, n_trials=4)
    assert len(study.trials) == 4


def test_steps_stay_on_their_grid_and_in_proportion() -> None:
    distribution = optuna.distributions.IntDistribution(20, 100, step=10)
    assert [to_ours(distribution, value) for value in (20, 50, 100)] == [2, 5, 10]
    assert [to_optunas(distribution, number) for number in (2, 5, 10)] == [20, 50, 100]
    uneven = optuna.distributions.FloatDistribution(-0.35, 0.95, step=0.1)
    for number in range(-3, 11):
        assert uneven._contains(to_optunas(uneven, number))
        assert to_ours(uneven, to_optunas(uneven, number)) == number


def test_what_cannot_be_is_said_in_one_line() -> None:
    for budget in (0.0, math.inf):
        with pytest.raises(UsageError, match="budget_seconds must be above 0 seconds"):
            ProteinSampler(budget_seconds=budget)
    with pytest.raises(UsageError, match="budget_seconds must be a number, got str '10m'"):
        ProteinSampler(budget_seconds="10m")  # type: ignore[arg-type]
    seeds: tuple[Any, ...] = (-1, "3")
    for seed in seeds:
        with pytest.raises(UsageError, match="seed must be a whole number, 0 or more"):
            ProteinSampler(seed=seed)
    for changes, message in (
        ({"cost_parameter": "epoch"}, "cost_parameter 'epoch' is in none .*; did you mean 'epochs'"),
        ({"cost_attribute": "second"}, "cost_attribute 'second' is in none .*; did you mean 'seconds'"),
        ({"cost_parameter": "width"}, "cost_parameter 'width' is categorical"),
    ):
        study = optuna.create_study(sampler=sampler(**changes))
        with pytest.raises(UsageError, match=message):
            study.optimize(objective, n_trials=2)
    study = optuna.create_study(directions=["maximize", "minimize"], sampler=sampler())
    with pytest.raises(ValueError, match="optimises one objective, this study has 2"):
        study.optimize(objective, n_trials=1)


def test_running_trials_are_expected_to_cost_what_the_one_rule_says() -> None:
    began = datetime.now() - timedelta(seconds=50)
    finished, unknown, predicted = (optuna.trial.create_trial(value=1.0) for _ in range(3))
    finished.datetime_start, finished.datetime_complete = began, began + timedelta(seconds=40)
    for running in (unknown, predicted):
        running.state, running.datetime_start, running.datetime_complete = TrialState.RUNNING, began, None
    predicted.user_attrs = {"protein:predicted_cost_seconds": 70.0}
    by_clock, noted = (sampler(cost_attribute=name, budget_seconds=200.0) for name in (None, "seconds"))
    assert by_clock._budget_left([finished], [predicted]).remaining_seconds == pytest.approx(
        200.0 - 40.0 - 70.0, abs=0.1
    )
    assert by_clock._budget_left([finished], [unknown]).remaining_seconds == pytest.approx(200.0 - 40.0 - 50.0, abs=1.0)
    finished.user_attrs = {"seconds": 3.0}  # in another unit than the clock
    assert noted._budget_left([finished], [unknown]).remaining_seconds == 200.0 - 3.0 - 3.0
    unknown.user_attrs = {"seconds": 5.0}
    assert noted._budget_left([finished], [unknown]).remaining_seconds == 200.0 - 3.0 - 5.0


def test_constraints_of_a_study_are_kept() -> None:
    def objective(trial: optuna.Trial) -> float:
        x, y = trial.suggest_float("x", 0.0, 1.0), trial.suggest_float("y", 0.0, 1.0)
        trial.set_constraint("memory", 2.0 * x + y - 1.0)
        return x + y

    study = optuna.create_study(direction="maximize", sampler=ProteinSampler(seed=1))
    study.optimize(objective, n_trials=18)
    late = study.trials[11:]
    assert sum(trial.constraints["memory"] <= 0.05 for trial in late) >= len(late) - 1
    assert study.best_value > 0.9, "1 is the best that keeps it, and 2 the best of all"
