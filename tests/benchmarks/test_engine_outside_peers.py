"""The peers that the dev extra leaves out (SMAC3, HEBO, PufferLib): suggestions, failures, and what they are told."""

import importlib
import importlib.util
import math
import random
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from engine.cells import play
from engine.fetch_pufferlib import cached
from engine.hebo_peers import interpreter
from engine.methods import make_method
from engine.tasks import make_task

from protein.errors import UsageError
from protein.space import Categorical, Float, Integer, Space
from protein.types import Budget, Measurement, Observation, Params, TrialState

BUDGET = Budget(remaining_seconds=100.0, remaining_trials=9)
SPACE = Space(
    [
        Float("momentum", 0.01, 0.99, scale="logit"),
        Float("rate", 1e-4, 1.0, scale="log"),
        Float("shift", -3.0, 5.0),
        Integer("layers", 1, 3),
        Integer("batch", 16, 64, scale="pow2"),
        Categorical("kind", ("adam", "sgd", "muon")),
        Categorical("norm", (False, True)),
        Integer("steps", 1, 1000, scale="log"),
    ],
    cost_parameter="steps",
    constraints=["norm or layers > 1", "shift + layers > k"],
    fixed={"k": 0.0},
)
START: dict[str, Any] = {
    "momentum": 0.9,
    "rate": 0.01,
    "shift": 1.0,
    "layers": 2,
    "batch": 32,
    "kind": "sgd",
    "norm": True,
    "steps": 1000,
}


@pytest.fixture
def peer(request: pytest.FixtureRequest) -> str:
    """A peer's name, where its package is installed and its file was fetched."""
    name = str(request.param)
    if name == "hebo":
        if not interpreter().exists():
            pytest.skip("HEBO's environment was not made")
        return name
    if importlib.util.find_spec("smac" if name == "smac" else "pyro") is None:
        pytest.skip(f"what {name} needs is not installed")
    if name != "smac" and not cached().exists():
        pytest.skip("PufferLib's sweep was not fetched")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        importlib.import_module("engine.smac_peers" if name == "smac" else "engine.puffer_peers")
    return name


@pytest.fixture
def puffer_peers() -> ModuleType:
    if importlib.util.find_spec("pyro") is None or not cached().exists():
        pytest.skip("PufferLib's sweep was not fetched, or Pyro is not installed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module("engine.puffer_peers")


def _trial(params: Params, score: float | None, curve: tuple[Measurement, ...] = ()) -> Observation:
    state = TrialState.FAILED if score is None else TrialState.COMPLETE
    return Observation(params=params, state=state, score=score, cost_seconds=float(params["steps"]), curve=curve)


@pytest.mark.parametrize("peer", ["smac", "hebo", "puffer-short"], indirect=True)
class TestEach:
    def test_begin_with_the_initial_config_and_keep_to_the_constraints(self, peer: str) -> None:
        for family, cap in [("ppo", 6 if peer == "puffer-short" else 4), ("supervised", 3)]:
            task = make_task(family, 0)
            run = play(task, make_method(peer, task.space, task.start, 0), total_seconds=math.inf, cap=cap, seed=0)
            params = [o.params for o in run.history]  # `run` refuses what is not valid
            assert params[0] == task.start
            assert len({tuple(p.values()) for p in params}) == cap

    def test_go_on_after_failures_of_a_blind_run(self, peer: str) -> None:
        method, history = make_method(peer, SPACE, None, 0), list[Observation]()
        rng = np.random.default_rng(0)
        for i in range(8 if peer == "puffer-short" else 10):
            params = method.ask(history, BUDGET)
            assert params is not None
            SPACE.validate(params)
            history.append(_trial(params, None if i in (0, 1, 4) else float(rng.standard_normal())))
            method.tell(history[-1])
        assert len({tuple(o.params.values()) for o in history}) == len(history)

    def test_leave_the_global_generators_alone_and_depend_on_the_seed(self, peer: str) -> None:
        asked = []
        for _ in range(2):
            before, state = random.getstate(), np.random.get_state()[1].copy()  # type: ignore[index] # noqa: NPY002
            method = make_method(peer, SPACE, START, 3)
            method.ask([], BUDGET)
            first = _trial(START, 1.0)
            method.tell(first)
            asked.append(method.ask([first], BUDGET))
            assert random.getstate() == before
            assert np.array_equal(np.random.get_state()[1], state)  # type: ignore[index] # noqa: NPY002
        assert asked[0] == asked[1]


class TestPuffer:
    def test_a_curve_is_told_as_trials_of_fewer_steps(self, puffer_peers: ModuleType) -> None:
        method = puffer_peers.PufferPeer("puffer-short", SPACE, START, 0)
        method.ask([], BUDGET)
        curve = tuple(Measurement(steps=40 * i, elapsed_seconds=float(i), score=float(i)) for i in range(1, 26))
        method.tell(_trial(START, 25.0, curve))
        told = method._sweep.success_observations
        # 24 points before the last: the last 20 of them in ten pairs, of points 5 and 6 to 23 and 24.
        assert [o["output"] for o in told] == pytest.approx([5.5 + 2.0 * i for i in range(10)] + [25.0])
        assert [o["cost"] for o in told] == pytest.approx([5.5 + 2.0 * i for i in range(10)] + [1000.0])
        steps = 2.0 * np.log(40.0 * (5.5 + 2.0 * np.arange(10))) / np.log(1000.0) - 1.0
        at = list(method._sweep.hyperparameters.flat_spaces).index("steps")
        assert [o["input"][at] for o in told] == pytest.approx([*steps.tolist(), 1.0])

    def test_a_failure_is_the_worst_score_so_far(self, puffer_peers: ModuleType) -> None:
        method = puffer_peers.PufferPeer("puffer-short", SPACE, START, 0)
        method.ask([], BUDGET)
        method.tell(_trial({**START, "rate": 1.0}, None))
        assert not method._sweep.success_observations
        method.tell(_trial(START, -2.0))
        method.tell(_trial({**START, "rate": 0.1}, 5.0))
        method.tell(_trial({**START, "rate": 0.5}, None))
        assert [o["output"] for o in method._sweep.success_observations] == [-2.0, -2.0, 5.0, -2.0]

    def test_every_value_of_a_short_range_can_be_reached(self, puffer_peers: ModuleType) -> None:
        method = puffer_peers.PufferPeer("puffer-short", SPACE, START, 0)
        method.ask([], BUDGET)
        hyperparameters = method._sweep.hyperparameters
        with puffer_peers._global_seed(0):
            drawn = [hyperparameters.to_dict(row, {}) for row in hyperparameters.sample(400)]
        assert {round(p["layers"]) for p in drawn} == {1, 2, 3}
        assert {round(p["batch"]) for p in drawn} == {16, 32, 64}
        assert {round(p["kind"]) for p in drawn} == {0, 1, 2}
        assert {round(p["norm"]) for p in drawn} == {0, 1}

    def test_one_sweep_does_not_change_another(self, puffer_peers: ModuleType) -> None:
        """Pyro keeps parameters by name for the process; each sweep has its own."""

        def play_alone(other: bool) -> list[Params | None]:
            methods = [
                puffer_peers.PufferPeer("puffer-short", SPACE, START, seed) for seed in ((0, 1) if other else (0,))
            ]
            histories: list[list[Observation]] = [[] for _ in methods]
            for i in range(4):
                for method, history in zip(methods, histories, strict=True):
                    history.append(_trial(method.ask(history, BUDGET), float(i % 3)))
                    method.tell(history[-1])
            return [o.params for o in histories[0]]

        assert play_alone(other=True) == play_alone(other=False)


@pytest.mark.parametrize("name", ["hebo", "puffer"])
def test_what_is_missing_is_said(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    if name == "puffer" and importlib.util.find_spec("pyro") is None:
        pytest.skip("Pyro is not installed")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("PROTEIN_BENCH_HEBO", raising=False)
    with pytest.raises(UsageError, match=f"there is no {tmp_path}"):
        make_method(name, SPACE, START, 0)
