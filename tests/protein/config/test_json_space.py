"""Spaces in JSON: of Ray Tune in the forms that are in use, of Optuna's own writer, of ConfigSpace."""

import json
from pathlib import Path
from typing import Any

import optuna
import pytest
from hypothesis import given
from hypothesis import strategies as st
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution, distribution_to_json

from protein.config import json_space, space_file
from protein.config.space_toml import SpaceFile
from protein.errors import SpaceError, UsageError
from protein.space.parameters import Categorical, Float, Integer

SMAC = Path(__file__).parents[2] / "assets/imports/smac/plain/0/configspace.json"


def read(data: Any) -> SpaceFile:
    return json_space.read(data if isinstance(data, str) else json.dumps(data), "f.json")


RAYS: dict[str, Any] = {  # each as a call, and what it is here
    "tune.uniform(0, 1)": Float("x", 0.0, 1.0),
    "tune.loguniform(1e-4, 0.1)": Float("x", 1e-4, 0.1, "log"),
    "loguniform(lower=1e-4, upper=0.1, base=10)": Float("x", 1e-4, 0.1, "log"),
    "tune.quniform(0.0, 0.5, 0.05)": Float("x", 0.0, 0.5, step=0.05),
    "ray.tune.qloguniform(1.0, 64.0, 1)": Integer("x", 1, 64, "log", step=1),
    "tune.randint(1, 4)": Integer("x", 1, 3, step=1),
    "tune.qrandint(32, 128, 32)": Integer("x", 32, 128, step=32),
    "tune.lograndint(1, 1000)": Integer("x", 1, 999, "log", step=1),
    "tune.randn(1.0, 0.5)": Float("x", -0.5, 2.5),
    "tune.choice(['relu', None, [8, 8]])": Categorical("x", ("relu", None, [8, 8])),
    "tune.grid_search([16, 32, 64])": Integer("x", 16, 64, "pow2"),
}


class TestRay:
    @pytest.mark.parametrize("call", RAYS)
    def test_calls_are_what_ray_draws(self, call: str) -> None:
        assert read({"x": call}).space.parameters == (RAYS[call],)

    def test_tables_sections_and_fixed_values(self) -> None:
        found = read(
            {
                "trainer": {"lr": {"space": "loguniform", "lower": 1e-4, "upper": 0.1}, "type": "adam"},
                "layers": {"type": "randint", "lower": 1, "upper": 4},
                "act": {"grid_search": ["relu", "tanh"]},
                "units": {
                    "domain_cls": "Integer",
                    "domain_kwargs": {"lower": 1, "upper": 8},
                    "sampler_cls": "LogUniform",
                },
                "drop": {"domain_cls": "FiniteRange", "domain_kwargs": {"lower": 0.0, "upper": 0.5, "size": 6}},
                "batch-size": 64,
                "sizes": [8, 8],
                "text": "Linear(3)",
                "none": None,
            }
        )
        assert found.space.parameters == (
            Float("trainer.lr", 1e-4, 0.1, "log"),
            Integer("layers", 1, 3, step=1),
            Categorical("act", ("relu", "tanh")),
            Integer("units", 1, 8, "log", step=1),
            Float("drop", 0.0, 0.5, step=0.1),
        )
        assert found.space.fixed == {
            "trainer.type": "adam", "batch_size": 64, "sizes": [8, 8], "text": "Linear(3)", "none": None
        }  # fmt: skip
        assert found.called == {
            "trainer.lr": ("trainer", "lr"),
            "trainer.type": ("trainer", "type"),
            "batch_size": ("batch-size",),
        }

    @given(low=st.integers(-50, 50), width=st.integers(2, 50), log=st.booleans())
    def test_the_upper_end_of_whole_numbers_is_never_drawn(self, low: int, width: int, log: bool) -> None:
        low = max(low, 1) if log else low
        [found] = read({"x": f"{'log' * log}randint({low}, {low + width})"}).space.parameters
        assert isinstance(found, Integer)
        assert (found.low, found.high) == (low, low + width - 1)

    @pytest.mark.parametrize(
        ("given", "said"),
        [
            ("tune.sample_from(lambda c: 3)", "'x' = sample_from cannot be a range here"),
            ("tune.logunifrom(1, 2)", "did you mean"),
            ("hp.uniform(0, 1)", r"'x' = hp\.uniform cannot be a range here"),
            ("tune.uniform(a, 1)", "is not of plain values"),
            ("uniform(0, 1", "is not of plain values"),
            ("tune.uniform(0)", "uniform needs upper"),
            ("tune.uniform(0, 1, 2)", "uniform has 3 values, but takes lower, upper"),
            ("tune.uniform(0, 1, q=2)", "uniform has no 'q'"),
            ("tune.uniform(1, 0)", "x"),
            ("tune.loguniform(0, 1)", "x"),
            ("tune.uniform(0, 'a')", "'a', which is no finite number"),
            ("tune.choice([])", "'x' has 0 choices"),
            ({"_type": "CLOUDPICKLE_FALLBACK", "value": "80"}, "'x' is pickled by Ray, and to read that would run"),
            ({"space": "loguniform", "low": 1, "high": 2}, "loguniform has no 'low'"),
            ({"space": "normal", "lower": 1, "upper": 2}, "'x' = normal cannot be a range here"),
            ({"low": 1, "high": 2}, "'x' looks like a range, but of none of the forms"),
            ({"domain_cls": "Float", "domain_kwargs": {}, "sampler_cls": "Normal"}, "a Float that is drawn by Normal"),
            ({"domain_cls": "Float"}, "is no such file as its tool writes"),
            ({"name": "UniformDistribution", "attributes": {"low": 0, "high": 1}}, "UniformDistribution of an older"),
            ({"name": "FloatDistribution", "attributes": {"low": 0}}, "is no such file as its tool writes"),
        ],
    )
    def test_what_cannot_be_said_is_refused_with_its_name(self, given: Any, said: str) -> None:
        with pytest.raises((UsageError, SpaceError), match=said) as error:
            read({"x": given})
        assert "\n" not in str(error.value)

    @pytest.mark.parametrize("text", ["", "[]", "{}", '{"x": ', "3", "[" * 9999, '{"a":' * 9999])
    def test_no_table_is_one_line(self, text: str) -> None:
        with pytest.raises(UsageError, match=r"^f\.json: (not valid JSON|holds no parameters)"):
            read(text)


finite = st.floats(-1e6, 1e6)
DISTRIBUTIONS = st.one_of(
    st.tuples(finite, st.floats(0.1, 1e3)).map(lambda pair: FloatDistribution(pair[0], pair[0] + pair[1])),
    st.tuples(st.floats(1e-6, 1e3), st.floats(2, 1e3)).map(lambda p: FloatDistribution(p[0], p[0] * p[1], log=True)),
    st.tuples(st.integers(-99, 99), st.integers(1, 50), st.sampled_from([0.05, 0.5, 3.0])).map(
        lambda p: FloatDistribution(p[0], p[0] + p[1] * p[2], step=p[2])
    ),
    st.tuples(st.integers(-99, 99), st.integers(1, 99), st.integers(1, 9)).map(
        lambda p: IntDistribution(p[0], p[0] + p[1] * p[2], step=p[2])
    ),
    st.tuples(st.integers(1, 99), st.integers(1, 99)).map(lambda p: IntDistribution(p[0], p[0] + p[1], log=True)),
    st.lists(
        st.one_of(st.none(), st.booleans(), st.integers(2, 9), st.floats(10, 20), st.text("ab", min_size=1)),
        min_size=2, max_size=5, unique_by=repr,
    ).map(CategoricalDistribution),
)  # fmt: skip


class TestOptuna:
    @given(DISTRIBUTIONS, st.booleans())
    def test_whatever_optuna_draws_is_in_the_space(
        self, distribution: optuna.distributions.BaseDistribution, as_text: bool
    ) -> None:
        written = distribution_to_json(distribution)
        [found] = read({"a/x": written if as_text else json.loads(written)}).space.parameters
        assert found.name == "a.x"
        trials = optuna.samplers.RandomSampler(seed=0)
        study = optuna.create_study(sampler=trials)
        for _ in range(4):
            trial = study.ask({"a/x": distribution})
            found.check(trial.params["a/x"])
        if isinstance(distribution, FloatDistribution | IntDistribution):
            assert not isinstance(found, Categorical)
            assert (found.low, found.high) == (distribution.low, distribution.high)
            assert (found.scale == "log") == distribution.log

    def test_a_single_value_is_fixed(self) -> None:
        found = read({"x": "uniform(0, 1)", "y": distribution_to_json(IntDistribution(3, 3))})
        assert found.space.fixed == {"y": 3}


class TestConfigSpace:
    def test_conditions_defaults_and_forbidden_clauses(self) -> None:
        found = space_file.read(SMAC)
        assert found.space.parameters == (
            Integer("layers", 1, 3, default=2),
            Float("lr", 1e-4, 0.1, "log", 0.01),
            Categorical("optimizer", ("adam", "sgd"), "adam"),
            Float("momentum", 0.0, 0.9, default=0.45, when="optimizer == 'sgd'"),
        )
        assert found.start == {"layers": 2, "lr": 0.01, "optimizer": "adam"}
        space = found.space
        assert space.is_valid({"layers": 2, "lr": 0.01, "optimizer": "adam"})
        assert not space.is_valid({"layers": 1, "lr": 0.01, "optimizer": "adam"}), "it is forbidden"
        assert space.is_valid({"layers": 1, "lr": 0.01, "optimizer": "sgd", "momentum": 0.1})

    def test_other_clauses(self) -> None:
        numbers = [{"type": "uniform_int", "name": name, "lower": 0, "upper": 9, "default_value": 5} for name in "ab"]
        kind = {"type": "ordinal", "name": "k", "sequence": ["s", "m", "l"], "default_value": "m"}
        more = {"type": "normal_float", "name": "c", "mu": 0, "sigma": 1, "lower": -2, "upper": 2, "default_value": 0}
        conditions = [
            {
                "type": "AND",
                "child": "c",
                "conditions": [
                    {"type": "GT", "child": "c", "parent": "a", "value": 3},
                    {"type": "IN", "child": "c", "parent": "k", "values": ["m", "l"]},
                ],
            }
        ]
        forbidden = [{"type": "LESS", "left": "a", "right": "b"}, {"type": "IN", "name": "b", "values": [7, 8]}]
        found = read({"hyperparameters": [*numbers, kind, more], "conditions": conditions, "forbiddens": forbidden})
        space = found.space
        assert space.parameter("c").when == "(a > 3) and (k in ['m', 'l'])"
        assert "the shape of 'normal_float' is not taken over" in found.warnings[0]
        valid = {"a": 5, "b": 4, "k": "m", "c": 0.5}
        assert space.is_valid(valid)
        assert not space.is_valid({**valid, "a": 3, "b": 4})
        assert space.is_valid({"a": 3, "b": 2, "k": "m"})
        assert not space.is_valid({**valid, "a": 9, "b": 8})

    @pytest.mark.parametrize(
        ("given", "said"),
        [
            ({"type": "uniform_float", "name": "x", "lower": 0}, "is no such file"),
            ({"type": "magic", "name": "x"}, "'x': a parameter of the kind 'magic'"),
            ("x", "is no such file"),
        ],
    )
    def test_another_kind_is_refused(self, given: Any, said: str) -> None:
        with pytest.raises(UsageError, match=said):
            read({"hyperparameters": [given]})


def test_a_sweep_of_wandb_may_be_json() -> None:
    found = read({"method": "bayes", "parameters": {"x": {"min": 0.0, "max": 1.0}}})
    assert found.space.parameters == (Float("x", 0.0, 1.0),)
