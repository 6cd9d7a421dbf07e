"""Other people's tuning runs, through surrogates that others fitted: YAHPO Gym's networks in ONNX.

    lcbench-ID   8 d  multilayer perceptrons trained with SGD on an OpenML task; the score is validation accuracy in
                      percent; steps are epochs, 1 to 52
    xgboost-ID  13 d  XGBoost on an OpenML task, with trees (`gbtree`) or with dropped trees (`dart`, whose two
                      parameters are always in the space and 0 for `gbtree`); the score is accuracy from 0 to 1; steps
                      are rounds, 7 to 2,981

`data/yahpo/README.md` tells where they come from. They are deterministic: a repeat gives the same score, the truth is
what is measured, and a task's seed changes nothing but the methods. Seconds are predicted, too, and clipped where the
surrogate goes to 0 or below.

A learning curve is the prediction for the same config at fewer steps, whose seconds are never more than those at more
steps (the surrogate's own may be).

Initial configs, at which every method begins: XGBoost's own defaults (moved to the nearest end of the range where they
lie outside) with the 100 rounds of its scikit-learn interface. For the networks a plain choice of the middle of the
road: batch 128, learning rate .01 with momentum .9, weight decay 1e-4, three layers of at most 256 units, dropout .2,
all 52 epochs.
"""

import dataclasses
import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from engine.protocol import Watch, replay
from numpy.typing import NDArray

from protein.space import Categorical, Float, Integer, Space
from protein.types import Measurement, Observation, Params, TrialState

Array = NDArray[np.float64]
Columns = list[Array | float]  # one for each input, `n` or the same for all
Codes = dict[str, dict[str, int]]
MODELS = Path(__file__).resolve().parent / "data" / "yahpo"
NUM_CURVE_POINTS = 12

# The data sets to develop on that come with the data, and eight of each kind to report on (see `engine.tasks`).
DEVELOPMENT = (
    *(f"lcbench-{i}" for i in (189862, 167168, 168330, 189906, 126026, 167152, 189909, 7593)),
    *(f"xgboost-{i}" for i in (1590, 41161, 4541, 300, 375, 31, 1476, 554)),
)
HELD_OUT = (
    *(f"lcbench-{i}" for i in (168329, 167161, 3945, 146212, 167200, 189354, 168910, 167185)),
    *(f"xgboost-{i}" for i in (4538, 23381, 41146, 1056, 38, 1050, 40499, 11)),
)
FAMILIES = (*DEVELOPMENT, *HELD_OUT)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Scenario:
    """What is tuned. The last parameter is the steps."""

    folder: str
    space: Space
    start: Params
    task_key: str  # of the data sets in `encoding.json`
    inputs: Callable[[dict[str, Array], Codes], tuple[Columns, Columns]]  # the model's: whole numbers, numbers
    score: int  # column of the output
    seconds: int
    least_seconds: float


# The inputs in the models' order.
_LCBENCH = (
    "epoch",
    "batch_size",
    "learning_rate",
    "momentum",
    "weight_decay",
    "num_layers",
    "max_units",
    "max_dropout",
)
_XGBOOST = (
    *("nrounds", "eta", "gamma", "lambda", "alpha", "subsample", "max_depth", "min_child_weight"),
    *("colsample_bytree", "colsample_bylevel"),  # then rate_drop, skip_drop, trainsize, repl
)


def _lcbench_inputs(value: dict[str, Array], codes: Codes) -> tuple[Columns, Columns]:
    return [], [value[name] for name in _LCBENCH]


def _xgboost_inputs(value: dict[str, Array], codes: Codes) -> tuple[Columns, Columns]:
    dart = value["booster"] == 1.0
    booster = np.where(dart, float(codes["booster"]["dart"]), float(codes["booster"]["gbtree"]))
    dropped = [np.where(dart, value[name], 0.0) for name in ("rate_drop", "skip_drop")]
    impute = codes["num.impute.selected.cpo"]["impute.mean"]
    whole_data, last_repetition = 1.0, 10.0
    return [booster, impute], [*(value[name] for name in _XGBOOST), *dropped, whole_data, last_repetition]


_EXP_MINUS_7 = 0.0009118819655545162  # as the scenario writes it
SCENARIOS = {
    "lcbench": Scenario(
        folder="lcbench",
        space=Space(
            [
                Integer("batch_size", 16, 512, "log"),
                Float("learning_rate", 1e-4, 1e-1, "log"),
                Float("momentum", 0.1, 0.99),
                Float("weight_decay", 1e-5, 1e-1),
                Integer("num_layers", 1, 5),
                Integer("max_units", 64, 1024, "log"),
                Float("max_dropout", 0.0, 1.0),
                Integer("epoch", 1, 52, "log"),
            ],
            cost_parameter="epoch",
        ),
        start={
            "batch_size": 128,
            "learning_rate": 0.01,
            "momentum": 0.9,
            "weight_decay": 1e-4,
            "num_layers": 3,
            "max_units": 256,
            "max_dropout": 0.2,
            "epoch": 52,
        },
        task_key="OpenML_task_id",
        inputs=_lcbench_inputs,
        score=1,
        seconds=0,
        least_seconds=0.05,
    ),
    "xgboost": Scenario(
        folder="rbv2_xgboost",
        space=Space(
            [
                Categorical("booster", ("gbtree", "dart")),
                Float("eta", _EXP_MINUS_7, 1.0, "log"),
                Float("gamma", 4.5399929762484854e-05, 7.38905609893065, "log"),
                Float("lambda", _EXP_MINUS_7, 1096.6331584284585, "log"),
                Float("alpha", _EXP_MINUS_7, 1096.6331584284585, "log"),
                Float("subsample", 0.1, 1.0),
                Integer("max_depth", 1, 15),
                Float("min_child_weight", 2.718281828459045, 148.4131591025766, "log"),
                Float("colsample_bytree", 0.01, 1.0),
                Float("colsample_bylevel", 0.01, 1.0),
                Float("rate_drop", 0.0, 1.0),
                Float("skip_drop", 0.0, 1.0),
                Integer("nrounds", 7, 2981, "log"),
            ],
            cost_parameter="nrounds",
        ),
        start={
            "booster": "gbtree",
            "eta": 0.3,
            "gamma": 4.5399929762484854e-05,
            "lambda": 1.0,
            "alpha": _EXP_MINUS_7,
            "subsample": 1.0,
            "max_depth": 6,
            "min_child_weight": 2.718281828459045,
            "colsample_bytree": 1.0,
            "colsample_bylevel": 1.0,
            "rate_drop": 0.0,
            "skip_drop": 0.0,
            "nrounds": 100,
        },
        task_key="task_id",
        inputs=_xgboost_inputs,
        score=0,
        seconds=6,
        least_seconds=0.02,
    ),
}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SurrogateTask:
    """One data set of one scenario."""

    name: str
    scenario: Scenario
    code: int  # of the data set

    @property
    def family(self) -> str:
        return self.name

    @property
    def space(self) -> Space:
        return self.scenario.space

    @property
    def start(self) -> Params:
        return self.scenario.start

    def final(self, u: Array) -> tuple[Array, Array, NDArray[np.bool_]]:
        """Returns score, cost in seconds, and whether it gives a score, `n` each."""
        score, seconds = self.predict(u)
        return score, seconds, np.ones(len(u), dtype=bool)

    def spent(self, u: Array) -> Array:
        """Returns the seconds that runs take, `n`."""
        return self.predict(u)[1]

    def predict(self, u: Array, steps: Array | None = None) -> tuple[Array, Array]:
        """Returns scores and seconds, `n` each, at `n` step counts other than the configs' own if given."""
        scenario, n = self.scenario, len(u)
        value = {p.name: p.decode(u[:, i]) for i, p in enumerate(scenario.space.parameters)}
        if steps is not None:
            value[scenario.space.names[-1]] = steps
        session, codes = _model(scenario.folder)
        choices, numbers = scenario.inputs(value, codes)
        x_cat = np.column_stack([np.broadcast_to(column, n) for column in (self.code, *choices)]).astype(np.int32)
        x_cont = np.column_stack([np.broadcast_to(column, n) for column in numbers]).astype(np.float32)
        found = session.run(None, {"x_cat": x_cat, "x_cont": x_cont})[0].astype(np.float64)
        return found[:, scenario.score], np.maximum(found[:, scenario.seconds], scenario.least_seconds)

    def run(self, params: Params, *, seed: int, repeat: int = 0, watch: Watch | None = None) -> Observation:
        """Returns one trial's outcome; see `engine.protocol.Task`."""
        self.space.validate(params)
        u = self.space.to_unit(params)[None, :]
        axis = self.space.parameters[-1]
        low, steps = float(axis.decode(np.zeros(1))[0]), float(axis.decode(u[:, -1])[0])
        points = np.unique(np.round(np.geomspace(low, steps, NUM_CURVE_POINTS)))
        score, seconds = self.predict(np.repeat(u, len(points), axis=0), points)
        seconds = np.minimum.accumulate(seconds[::-1])[::-1]  # never more than at more steps
        curve = tuple(
            Measurement(steps=int(n), elapsed_seconds=float(t), score=float(s))
            for n, t, s in zip(points, seconds, score, strict=True)
        )
        return replay(params, curve, score=float(score[-1]), cost_seconds=float(seconds[-1]), reason="", watch=watch)

    def true_score(self, observation: Observation) -> float:
        """Returns the score at the steps that were reached: it has no noise."""
        u = self.space.to_unit(observation.params)[None, :]
        if observation.state is TrialState.COMPLETE:
            return float(self.predict(u)[0][0])
        return float(self.predict(u, np.array([float(observation.curve[-1].steps)]))[0][0])


@functools.cache
def make_surrogate(family: str, seed: int) -> SurrogateTask:
    """Returns a data set's task, the same for all seeds."""
    name, _, data_set = family.partition("-")
    scenario = SCENARIOS[name]
    return SurrogateTask(name=family, scenario=scenario, code=_model(scenario.folder)[1][scenario.task_key][data_set])


@functools.cache
def _model(folder: str) -> tuple[Any, Codes]:
    """Returns the ONNX session of a scenario, on one thread, and the codes of its choices."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    path = MODELS / folder
    session = onnxruntime.InferenceSession(str(path / "model.onnx"), options, providers=["CPUExecutionProvider"])
    return session, json.loads((path / "encoding.json").read_text())
