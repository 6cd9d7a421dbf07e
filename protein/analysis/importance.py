"""Importance of parameters by three methods that are known elsewhere, beside `protein.analysis.matters`.

They answer three different questions, and may disagree.

    PED-ANOVA       which parameters separate the best tenth of the trials from all others (Optuna)
    permutation     how much worse a random forest predicts the results when one parameter is shuffled (scikit-learn)
    length scales   how far one has to move a parameter until the engine's model expects another result

No method is right for all purposes, so each result has a caveat, and none is called "the" importance. The trials of a
search are not a random sample: a parameter that the search settled early hardly varies any more, and looks unimportant
to all three.

Results are scores or the logarithm of costs. All methods see unit coordinates (`protein.space`), so a parameter on a
log scale counts by its logarithm. Trials that were stopped before their end count with what they reached.

A parameter that not all configs have is judged by the trials that have it. PED-ANOVA compares the best tenth of these
with all of these, and counts by their share of all trials. The forest is asked to do without its values there, and its
loss is that over all trials.

Sources: Watanabe, Bansal and Hutter, PED-ANOVA: Efficiently Quantifying Hyperparameter Importance in Arbitrary
Subspaces (2023); Breiman, Random Forests (2001), section 10.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protein.analysis.matters import TARGETS, Target
from protein.analysis.model_maps import weighted_parts
from protein.engine.gp import Array, single_thread
from protein.engine.history import History
from protein.engine.pareto import MIN_COST_SECONDS
from protein.engine.results import Matters
from protein.engine.score_model import ScoreScale, fit_score_model
from protein.engine.settings import EngineSettings
from protein.errors import UsageError
from protein.space import Categorical, Parameter, Space
from protein.spelling import counted
from protein.types import Observation

PED_ANOVA, PERMUTATION, LENGTH_SCALES = "ped-anova", "permutation", "length-scales"
ANOVA = "anova"  # of `protein.analysis.matters`
METHODS = (PED_ANOVA, PERMUTATION, LENGTH_SCALES)
MIN_TRIALS = 10
_TOP_SHARE = 0.1  # of the trials, the best ones of PED-ANOVA
_MIN_TOP = 5  # of them: Optuna's advice
_MAX_TRIALS = 3000  # of the forest and of PED-ANOVA: drawn at random from more
_MAX_COUNTED = 32  # values: a parameter with more is treated like a continuous one
_NUM_FOLDS, _NUM_REPEATS, _NUM_TREES = 3, 5, 100
_USEFUL_R2 = 0.2  # below that the forest explains too little to be read
_SEED = 5


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Importance:
    """What one method says of all parameters.

    Attributes:
        method: one of `METHODS`, or `ANOVA`.
        title: its name for people, with the library that it is from.
        meaning: what its numbers say, in a sentence.
        caveat: what they do not say.
        shares: by parameter, at least 0, adding up to 1 (all 0 where nothing matters). Empty if there is a `problem`.
        values: by parameter, the method's own number.
        spread: by parameter, the standard deviation of `values` over repeats; empty where there are none.
        num_trials: that it has used.
        warning: what is doubtful about this result; "" if nothing is.
        problem: why there is no result, in one line; "" if there is one.
    """

    method: str
    title: str
    meaning: str
    caveat: str
    shares: Mapping[str, float] = dataclasses.field(default_factory=dict)
    values: Mapping[str, float] = dataclasses.field(default_factory=dict)
    spread: Mapping[str, float] = dataclasses.field(default_factory=dict)
    num_trials: int = 0
    warning: str = ""
    problem: str = ""

    def ranking(self) -> list[str]:
        """Returns the parameters, the most important first."""
        return sorted(self.shares, key=lambda name: -self.shares[name])


_ABOUT: dict[str, Importance] = {
    PED_ANOVA: Importance(
        method=PED_ANOVA,
        title="PED-ANOVA (Optuna)",
        meaning="how much the values of the best tenth of the trials differ from those of all trials",
        caveat="it looks at one parameter at a time, so two that only matter together get too little; the best trials"
        " of a search also share values that do nothing, because they were bred from each other, and it may take that"
        " for importance",
    ),
    PERMUTATION: Importance(
        method=PERMUTATION,
        title="permutation importance of a random forest (scikit-learn)",
        meaning="how much of the explained variance is lost on unseen trials when the parameter is shuffled",
        caveat="of two parameters that the search moved together, each can stand in for the other: both get too little",
    ),
    LENGTH_SCALES: Importance(
        method=LENGTH_SCALES,
        title="length scales of the engine's model",
        meaning="the share of its range that a parameter has to move until the model expects another result (shorter"
        " matters more)",
        caveat="a short length scale says that the result changes quickly, not that it changes by much; a straight"
        " rise over the whole range has a long one",
    ),
}


def importances(
    space: Space,
    observations: Sequence[Observation],
    *,
    target: Target = "score",
    methods: Sequence[str] = METHODS,
) -> list[Importance]:
    """Returns what each method says, in the order of `methods`.

    A method that cannot answer (an optional package is missing, or too few trials have a score) says why in its
    `problem`. The others still answer.

    Args:
        space: what was searched; observations that it cannot read are left out.
        observations: of one sweep, in any state, oldest first; scores are to be maximised.
        target: "score"; or "cost", for what makes a trial cheap or expensive.
        methods: of `METHODS`.

    Raises:
        UsageError: there is no such method or target.
    """
    if target not in TARGETS:
        raise UsageError(f"importance is of {' or '.join(TARGETS)}, got '{target}'")
    for method in methods:
        if method not in METHODS:
            raise UsageError(f"there is no importance method '{method}'; choose of {', '.join(METHODS)}")
    with single_thread(), np.errstate(all="ignore"):
        data = History.of(space, observations, []).one_of_each_run()
        x, result = data.x_scored, data.scores
        if target == "cost":
            result = np.log(np.maximum(data.costs, MIN_COST_SECONDS))
        elif len(x):
            result = ScoreScale.of(data.scores).to_z(data.scores)
        if len(x) > _MAX_TRIALS:
            some = np.sort(np.random.default_rng(_SEED).permutation(len(x))[:_MAX_TRIALS])
            x, result = x[some], result[some]
        return [_answer(method, space, data, x, result, target) for method in methods]


def of_matters(found: Matters) -> Importance:
    """Returns what matters near the best configs in the form of the other methods, for a picture beside them."""
    shares = {one.name: one.share.value for one in found.parameters}
    return Importance(
        method=ANOVA,
        title="functional ANOVA of the engine's model",
        meaning="how much moving the parameter alone changes around the best configs",
        caveat="it is as good as the model",
        shares=shares,
        values=shares,
        num_trials=found.num_trials,
        problem=found.problem,
    )


def _answer(method: str, space: Space, data: History, x: Array, result: Array, target: Target) -> Importance:
    about = _ABOUT[method]
    if target == "cost" and method == PED_ANOVA:
        about = dataclasses.replace(
            about, meaning="how much the values of the cheapest tenth of the trials differ from those of all trials"
        )
    if len(x) < MIN_TRIALS:
        return dataclasses.replace(about, problem=f"needs {MIN_TRIALS} trials with a score, and has {len(x)}; run more")
    groups = _groups(space, x)
    rare = [space.names[i] for rows, own in groups for i in own if rows.sum() < MIN_TRIALS]
    fixed = [
        space.names[i] for rows, own in groups for i in own if space.names[i] not in rare and not np.ptp(x[rows, i])
    ]
    if len(fixed) == space.num_dims:
        return dataclasses.replace(
            about, problem=f"all {len(x)} trials have the same params: nothing can be told apart"
        )
    if float(np.ptp(result)) == 0.0:
        return dataclasses.replace(about, problem=f"all {len(x)} trials have the same {target}: nothing can matter")
    if target == "cost" and method == LENGTH_SCALES:
        return dataclasses.replace(
            about, problem="the cost model is a straight line in the first place, which has no length scale"
        )
    compute: dict[str, Callable[[], Importance]] = {
        PED_ANOVA: lambda: _ped_anova(about, space, x, -result if target == "cost" else result),
        PERMUTATION: lambda: _permutation(about, space, x, result),
        LENGTH_SCALES: lambda: _length_scales(about, space, data),
    }
    try:
        return dataclasses.replace(_without(fixed, rare, compute[method]()), num_trials=len(x))
    except ImportError as error:
        package = {"optuna": "Optuna", "sklearn": "scikit-learn"}.get((error.name or "").partition(".")[0])
        if package is None:
            raise
        return dataclasses.replace(about, problem=f"needs {package}: pip install 'protein-sweep[importance]'")
    except (ValueError, ArithmeticError, np.linalg.LinAlgError) as error:
        return dataclasses.replace(about, problem=f"failed on these trials ({type(error).__name__}: {error})")


def _without(fixed: Sequence[str], rare: Sequence[str], found: Importance) -> Importance:
    """Returns a result in which parameters have no share that had one value in all trials, or that few trials have.

    PED-ANOVA gives them one, because its densities of few trials are wider than those of many. The length scales give
    them that of the prior.
    """
    if not fixed and not rare:
        return found
    gone = {*fixed, *rare}
    shares = _shares({name: 0.0 if name in gone else share for name, share in found.shares.items()})
    said = [found.warning] if found.warning else []
    for names, why in ((fixed, "all trials have the same"), (rare, f"fewer than {MIN_TRIALS} trials have")):
        if names:
            them = "it" if len(names) == 1 else "them"
            said.append(f"{why} {', '.join(names)}, so nothing is known of {them}")
    return dataclasses.replace(found, shares=shares, warning="; ".join(said))


def _ped_anova(about: Importance, space: Space, x_unit: Array, result: Array) -> Importance:
    values, num_top = dict.fromkeys(space.names, 0.0), len(x_unit)
    for rows, own in _groups(space, x_unit):
        if (count := int(rows.sum())) < MIN_TRIALS:
            continue
        # The best tenth, but at least five, and at most half: below that its estimate is noise.
        share = min(max(_TOP_SHARE, _MIN_TOP / count), 0.5)
        found = _divergences([space.parameters[i] for i in own], x_unit[rows][:, own], result[rows], share)
        values |= {name: value * float(rows.mean()) for name, value in found.items()}
        num_top = min(num_top, math.ceil(share * count))
    few = counted(num_top, "trial counts as the best one", "trials count as the best ones")
    warning = "" if num_top > _MIN_TOP else f"only {few}; more will change this"
    return dataclasses.replace(about, values=values, shares=_shares(values), warning=warning)


def _groups(space: Space, x_unit: Array) -> list[tuple[NDArray[np.bool_], list[int]]]:
    """Returns in which of n trials, `n`, which parameters are active: a pair for those that the same trials have."""
    found: dict[bytes, tuple[NDArray[np.bool_], list[int]]] = {}
    for i, rows in enumerate(space.active(x_unit).T):
        found.setdefault(rows.tobytes(), (rows, []))[1].append(i)
    return list(found.values())


def _divergences(
    parameters: Sequence[Parameter], x_unit: Array, result: Array, top_share: float
) -> Mapping[str, float]:
    """Returns what Optuna's PED-ANOVA says of k parameters, from `n x k` coordinates and `n` results."""
    import optuna
    from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
    from optuna.importance import PedAnovaImportanceEvaluator

    distributions: dict[str, BaseDistribution] = {}
    columns: list[list[float | int]] = []
    for i, parameter in enumerate(parameters):
        listed = parameter.values()
        if listed is None or len(listed) > _MAX_COUNTED:
            distributions[parameter.name] = FloatDistribution(0.0, 1.0)
            columns.append(x_unit[:, i].tolist())
            continue
        position = np.searchsorted(np.array(listed, dtype=np.float64), parameter.decode(x_unit[:, i]))
        whole = range(len(listed))
        distributions[parameter.name] = (
            CategoricalDistribution(tuple(whole))
            if isinstance(parameter, Categorical)
            else IntDistribution(0, len(listed) - 1)
        )
        columns.append(position.tolist())
    trials = [
        optuna.trial.create_trial(
            params=dict(zip(distributions, row, strict=True)), distributions=distributions, value=v
        )
        for row, v in zip(zip(*columns, strict=True), result.tolist(), strict=True)
    ]
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        study = optuna.create_study(direction="maximize")
        study.add_trials(trials)
        return dict(PedAnovaImportanceEvaluator(target_quantile=top_share).evaluate(study))
    finally:
        optuna.logging.set_verbosity(verbosity)


def _permutation(about: Importance, space: Space, x_unit: Array, result: Array) -> Importance:
    from sklearn.ensemble import RandomForestRegressor
    from sklearn.model_selection import KFold

    drops: list[Array] = []
    explained: list[float] = []
    for train, test in KFold(_NUM_FOLDS, shuffle=True, random_state=_SEED).split(x_unit):
        forest = RandomForestRegressor(_NUM_TREES, min_samples_leaf=2, max_features=0.5, random_state=_SEED, n_jobs=1)
        forest.fit(x_unit[train], result[train])
        found = np.zeros((space.num_dims, _NUM_REPEATS))
        for rows, own in _groups(space, x_unit[test]):
            if rows.sum() > 1:  # shuffled where it is active alone; by the share of the variance of all trials
                more = _more_error(forest, x_unit[test][rows], result[test][rows], own)
                found[own] = more * float(rows.mean()) / (float(np.var(result[test])) or math.inf)
        drops.append(found)
        explained.append(float(forest.score(x_unit[test], result[test])))
    all_drops = np.concatenate(drops, axis=1)  # d x (folds times repeats)
    r2 = float(np.mean(explained))
    warning = (
        ""
        if r2 >= _USEFUL_R2
        else f"the forest explains only {max(r2, 0.0):.0%} of the variance of unseen trials, so do not rely on this"
    )
    values = dict(zip(space.names, all_drops.mean(axis=1).tolist(), strict=True))
    spread = dict(zip(space.names, all_drops.std(axis=1).tolist(), strict=True))
    meaning = f"{about.meaning} (the forest explains {max(r2, 0.0):.0%} of it)"
    return dataclasses.replace(
        about, values=values, shares=_shares(values), spread=spread, warning=warning, meaning=meaning
    )


def _more_error(forest: Any, x: Array, y: Array, columns: Sequence[int]) -> Array:
    """Returns what each shuffling of each of k columns adds to the mean squared error over n points, `k x repeats`.

    The shufflings are those of `sklearn.inspection.permutation_importance`. That asks the forest once for each, which
    takes 5 times as long.
    """
    seed = np.random.RandomState(_SEED).randint(np.iinfo(np.int32).max + 1)
    draws, order = np.random.RandomState(seed), np.arange(len(x))
    shuffled = np.tile(x, (len(columns), _NUM_REPEATS, 1, 1))
    values = x[:, columns].T
    for repeat in range(_NUM_REPEATS):
        draws.shuffle(order)
        values = values[:, order]
        shuffled[range(len(columns)), repeat, :, columns] = values
    wrong = forest.predict(shuffled.reshape(-1, x.shape[1])).reshape(shuffled.shape[:3]) - y
    return np.asarray(np.mean(wrong**2, axis=2) - np.mean((forest.predict(x) - y) ** 2))


def _length_scales(about: Importance, space: Space, data: History) -> Importance:
    process = fit_score_model(space, data, EngineSettings(), averaged=True).process
    groups = space.feature_groups()
    first = [groups.index(i) for i in range(space.num_dims)]  # the columns of a categorical share a length scale
    log_scale = np.zeros(space.num_dims)
    squared = np.zeros(space.num_dims)
    for weight, part in weighted_parts(process):
        log_one = np.log(part.kernel.lengthscale[first])
        log_scale += weight * log_one
        squared += weight * log_one**2
    scale = np.exp(log_scale)
    spread = scale * np.sqrt(np.maximum(squared - log_scale**2, 0.0))
    inverse = 1.0 / scale
    names = space.names
    caveat = about.caveat
    if space.cost_parameter is not None:
        caveat = (
            f"{caveat}; the model expects {space.cost_parameter} to help along a straight line, which is not counted"
        )
    return dataclasses.replace(
        about,
        values=dict(zip(names, scale.tolist(), strict=True)),
        shares=dict(zip(names, (inverse / inverse.sum()).tolist(), strict=True)),
        spread={} if not spread.any() else dict(zip(names, spread.tolist(), strict=True)),
        warning=process.fallback,
        caveat=caveat,
    )


def _shares(values: Mapping[str, float]) -> dict[str, float]:
    """Returns each value's share of what is above 0."""
    above = {name: max(value, 0.0) for name, value in values.items()}
    total = math.fsum(above.values())
    return {name: value / total if total > 0 else 0.0 for name, value in above.items()}
