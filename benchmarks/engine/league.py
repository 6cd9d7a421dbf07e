"""A league with somebody else's referee: 24 hours of tuning a small GPT, on a surrogate of 11,172 real trainings.

    python benchmarks/engine/league.py --methods protein tpe random --seeds 5
    python benchmarks/engine/league.py --table        # from what was measured before: nothing is run
    python benchmarks/engine/league.py --check        # how far off the surrogate is

`data/autoresearch/README.md` tells where the trials come from. A trial trains for 300 s and has a score, less the bits
a byte of validation text (`val_bpb`), or it runs out of memory after half a minute. Three models serve it:

    truth     100 extra trees, at least three rows a leaf, fitted to the trials that ended well
    failure   100 extra trees that tell failures from successes: a trial fails where they say so with more than .5
    seconds   those of a recorded success or failure, drawn at random

The noise is normal, with the standard deviation of 47 runs of one config. So a config fails always or never, while its
score differs from run to run. A forest is flat between its rows and smooths cliffs: it has no optimum beyond what was
tried, and its best value is a mean of several rows. `check` compares with rows of a method that the models have not
seen, and replays the trials that the nine methods of the source made.

Every method begins with the default config. TPE is told of a failure what the source told it: a `val_bpb` of 100.
"""

import argparse
import csv
import dataclasses
import functools
import gzip
import json
import multiprocessing
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy loads: one process, one thread
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("MKL_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import machine
import numpy as np
from engine.cells import Run, play
from engine.methods import Engine, make_method
from engine.optuna_peers import OptunaPeer
from engine.protocol import Watch
from engine.suite import check_methods
from numpy.typing import NDArray

from protein.errors import UsageError
from protein.space import Categorical, Float, Integer, Parameter, Space
from protein.types import Observation, Params, ParamValue, TrialState

Array = NDArray[np.float64]
Row = dict[str, Any]

DATA = Path(__file__).resolve().parent / "data" / "autoresearch" / "trials.csv.gz"
RESULTS = machine.RESULTS / "engine_league.jsonl"
HOURS = 24.0
_NUM_TREES, _MIN_LEAF = 100, 3
_NOISE_SD = 0.0007
_FAILED_BPB = 100.0  # what the source told its methods of a failure
_MAX_TRIALS = 1000
_PATTERNS = ("SSSL", "SSLL", "SLSL", "LLLL", "SSSS", "LSSL")
# What the source reports after 24 hours: mean best val_bpb of three seeds, share of failures.
SOURCE = {
    "Centaur (CMA-ES+LLM)": (0.9763, 0.15),
    "TPE": (0.9768, 0.11),
    "SMAC": (0.9778, 0.36),
    "CMA-ES": (0.9785, 0.16),
    "Karpathy Agent (Code)": (0.9814, 0.12),
    "LLAMBO (Paper)": (0.9862, 0.48),
    "Random": (0.9873, 0.56),
}
SPACE = Space(
    [
        Integer("DEPTH", 4, 24),
        Integer("ASPECT_RATIO", 32, 128),
        Integer("HEAD_DIM", 64, 256, "pow2"),
        Integer("DEVICE_BATCH_SIZE", 32, 256, "pow2"),
        Integer("TOTAL_BATCH_SIZE", 65536, 2097152, "pow2"),
        Float("EMBEDDING_LR", 0.01, 2.0, "log"),
        Float("UNEMBEDDING_LR", 0.0005, 0.05, "log"),
        Float("MATRIX_LR", 0.005, 0.2, "log"),
        Float("SCALAR_LR", 0.05, 2.0, "log"),
        Float("WEIGHT_DECAY", 0.0, 0.5),
        Float("WARMUP_RATIO", 0.0, 0.3),
        Float("WARMDOWN_RATIO", 0.1, 0.8),
        Float("FINAL_LR_FRAC", 0.0, 0.2),
        Categorical("WINDOW_PATTERN", _PATTERNS),
    ]
)
START: dict[str, ParamValue] = {
    "DEPTH": 8,
    "ASPECT_RATIO": 64,
    "HEAD_DIM": 128,
    "DEVICE_BATCH_SIZE": 128,
    "TOTAL_BATCH_SIZE": 524288,
    "EMBEDDING_LR": 0.6,
    "UNEMBEDDING_LR": 0.004,
    "MATRIX_LR": 0.04,
    "SCALAR_LR": 0.5,
    "WEIGHT_DECAY": 0.2,
    "WARMUP_RATIO": 0.0,
    "WARMDOWN_RATIO": 0.5,
    "FINAL_LR_FRAC": 0.0,
    "WINDOW_PATTERN": "SSSL",
}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Trials:
    """The recorded trials inside the space, `n`, in the order of the file."""

    x_unit: Array  # `n x 14`
    val_bpb: Array  # NaN: failed
    seconds: Array
    method: NDArray[np.str_]
    seed: NDArray[np.int64]

    @property
    def ok(self) -> NDArray[np.bool_]:
        return np.isfinite(self.val_bpb)

    def only(self, chosen: NDArray[np.bool_]) -> "Trials":
        return Trials(**{field.name: getattr(self, field.name)[chosen] for field in dataclasses.fields(self)})


@functools.cache
def recorded() -> Trials:
    """Reads the trials that lie inside the space: nearly all but those of edited programs."""
    with gzip.open(DATA, "rt", newline="") as file:
        rows = list(csv.DictReader(file))
    values = np.column_stack([_column(p, [row[p.name] for row in rows]) for p in SPACE.parameters])
    x_unit = np.column_stack([p.encode(values[:, i]) for i, p in enumerate(SPACE.parameters)])
    decoded = np.column_stack([p.decode(x_unit[:, i]) for i, p in enumerate(SPACE.parameters)])
    same = np.asarray(np.isclose(decoded, values, rtol=1e-5, atol=1e-9), dtype=bool)  # others are moved, or missing
    whole = Trials(
        x_unit=x_unit,
        val_bpb=np.array([float(row["val_bpb"] or "nan") for row in rows]),
        seconds=np.array([float(row["seconds"]) for row in rows]),
        method=np.array([row["method"] for row in rows]),
        seed=np.array([int(row["seed"]) for row in rows]),
    )
    return whole.only(np.asarray(same.all(axis=1)))


def _column(parameter: Parameter, words: Sequence[str]) -> Array:
    """Returns one parameter's numbers, `n`; NaN where there is none, or a choice that the space lacks."""
    if isinstance(parameter, Categorical):
        return np.array([parameter.numeric(word) if word in parameter.choices else np.nan for word in words])
    return np.array([float(word or "nan") for word in words])


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Surrogate:
    """The models, fitted to recorded trials."""

    truth: Any
    failure: Any
    seconds: dict[bool, Array]  # by whether the trial failed

    @classmethod
    def fit(cls, trials: Trials) -> "Surrogate":
        from sklearn.ensemble import ExtraTreesClassifier, ExtraTreesRegressor

        x, ok = SPACE.features(trials.x_unit), trials.ok
        truth = ExtraTreesRegressor(_NUM_TREES, min_samples_leaf=_MIN_LEAF, random_state=0)
        failure = ExtraTreesClassifier(_NUM_TREES, random_state=0)
        return cls(
            truth=truth.fit(x[ok], trials.val_bpb[ok]),
            failure=failure.fit(x, ~ok),
            seconds={True: trials.seconds[~ok], False: trials.seconds[ok]},
        )

    def val_bpb(self, u: Array) -> Array:
        """Returns the true score of a run that ends well, `n`."""
        return np.asarray(self.truth.predict(SPACE.features(u)))

    def p_failure(self, u: Array) -> Array:
        """Returns the share of trees that expect a failure, `n`."""
        return np.asarray(self.failure.predict_proba(SPACE.features(u))[:, 1])


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class GptTask:
    """The surrogate as a task; see `engine.protocol.Task`. A seed draws noise and seconds."""

    surrogate: Surrogate
    name: str = "gpt"
    family: str = "gpt"
    space: Space = SPACE
    start: Params = dataclasses.field(default_factory=lambda: START)

    def run(self, params: Params, *, seed: int, repeat: int = 0, watch: Watch | None = None) -> Observation:
        """Returns one trial's outcome; it has no curve, so it cannot be stopped."""
        SPACE.validate(params)
        u = SPACE.to_unit(params)[None, :]
        rng = np.random.default_rng([seed, repeat, *np.frombuffer(u.tobytes(), dtype=np.uint32).tolist()])
        failed = bool(self.surrogate.p_failure(u)[0] > 0.5)
        score = None if failed else -float(self.surrogate.val_bpb(u)[0] + _NOISE_SD * rng.standard_normal())
        return Observation(
            params=params,
            state=TrialState.FAILED if failed else TrialState.COMPLETE,
            score=score,
            cost_seconds=float(rng.choice(self.surrogate.seconds[failed])),
            reason="out of memory" if failed else "",
        )

    def true_score(self, observation: Observation) -> float:
        return -float(self.surrogate.val_bpb(SPACE.to_unit(observation.params)[None, :])[0])


@functools.cache
def make_gpt() -> GptTask:
    """Fits the surrogate; once in a process, some seconds."""
    return GptTask(surrogate=Surrogate.fit(recorded()))


class Told(OptunaPeer):
    """Optuna's TPE as the source ran it: a failure is a bad score to it."""

    def tell(self, observation: Observation) -> None:
        if observation.score is None:
            self._study.tell(self._trial, -_FAILED_BPB)
        else:
            super().tell(observation)


def run_one(job: tuple[str, int]) -> Row:
    """Runs one method with one seed for 24 hours."""
    name, seed = job
    task = make_gpt()
    method = Told("tpe", SPACE, task.start, seed) if name == "tpe" else make_method(name, SPACE, task.start, seed)
    if isinstance(method, Engine):
        method.recommends = False  # asked at the end alone: below
    run = play(task, method, total_seconds=3600.0 * HOURS, cap=_MAX_TRIALS, seed=seed)
    chosen = method.recommend(run.history)
    return {"method": name, "seed": seed} | figures(task, run, chosen)


def figures(task: GptTask, run: Run, chosen: Params | None) -> Row:
    """Returns what the source reports of a run, and the truth of the config handed over."""
    hours = np.cumsum([o.cost_seconds for o in run.history]) / 3600.0
    best = np.minimum.accumulate([np.inf if o.score is None else -o.score for o in run.history])
    scored = [o for o in run.history if o.score is not None]
    lucky = max(scored, key=lambda o: o.score or 0.0)
    handed = lucky if chosen is None else next(o for o in scored if o.params == chosen)
    return {
        "trials": len(run.history),
        "failed": sum(o.score is None for o in run.history),
        "best": round(float(best[-1]), 6),
        "handed_over": round(-task.true_score(handed), 6),
        "tried": round(min(-task.true_score(o) for o in scored), 6),
        "think": round(sum(run.think_seconds) / len(run.history), 3),
        "hours": np.round(hours, 3).tolist(),
        "bests": [None if np.isinf(v) else round(float(v), 5) for v in best],
    }


def table(rows: Sequence[Row]) -> list[str]:
    """Returns a line for each method that was run, and for each of the source's."""
    final = [row["best"] for row in rows if row["method"] == "tpe"]
    target = sum(final) / len(final) if final else -np.inf
    lines = [f"{'':<24} seeds  best (sd)         truth handed over  tried   failed  trials  hours to TPE's best"]
    for method in dict.fromkeys(row["method"] for row in rows):
        own = [row for row in rows if row["method"] == method]
        best = np.array([row["best"] for row in own])
        sd = float(best.std(ddof=1)) if len(best) > 1 else float("nan")
        reached = [_hours_to(row, target) for row in own]
        lines.append(
            f"{method:<24} {len(own):>5}  {best.mean():.4f} ({sd:.4f})   {_mean(own, 'handed_over'):.4f}"
            f"             {_mean(own, 'tried'):.4f}  {_mean(own, 'failed') / _mean(own, 'trials'):>5.0%}"
            f"  {_mean(own, 'trials'):>6.0f}  {', '.join('-' if h is None else f'{h:.1f}' for h in reached)}"
        )
    lines.append("the source reports, mean of three seeds:")
    return [
        *lines,
        *(f"{name:<24} {'':>5}  {bpb:.4f}{'':<38} {failed:>5.0%}" for name, (bpb, failed) in SOURCE.items()),
    ]


def check() -> list[str]:
    """Returns how far off the surrogate is: on rows of a method that it has not seen, and on replays."""
    from scipy.stats import spearmanr
    from sklearn.metrics import r2_score, roc_auc_score

    trials, lines = recorded(), []
    whole = make_gpt().surrogate
    lines.append(f"{'':<24}  trials  R2    rank  failure: AUC  best of a run: source, replayed, truth of it")
    for name in np.unique(trials.method):
        own = trials.method == name
        if own.sum() < 100:
            continue
        fitted, rows = Surrogate.fit(trials.only(~own)), trials.only(own)
        said, ok = fitted.val_bpb(rows.x_unit), rows.ok
        auc = roc_auc_score(~ok, fitted.p_failure(rows.x_unit))
        score = whole.val_bpb(rows.x_unit)
        noisy = np.where(ok, score + _NOISE_SD * np.random.default_rng(0).standard_normal(len(ok)), np.inf)
        bests = []
        for seed in np.unique(rows.seed):
            run = np.flatnonzero(rows.seed == seed)
            lucky = run[np.argmin(noisy[run])]
            bests.append((np.nanmin(rows.val_bpb[run]), noisy[lucky], score[lucky]))
        real, replayed, truth = np.mean(bests, axis=0)
        r2, rank = r2_score(rows.val_bpb[ok], said[ok]), spearmanr(rows.val_bpb[ok], said[ok]).statistic
        lines.append(
            f"{name:<24}  {len(ok):>6}  {r2:>5.2f} {rank:>5.2f}  {auc:>12.3f}  {real:.4f}  {replayed:.4f}  {truth:.4f}"
        )
    return lines


def _hours_to(row: Row, target: float) -> float | None:
    """Returns the hours until the best measured score reached a target; None: it never did."""
    return next((h for h, v in zip(row["hours"], row["bests"], strict=True) if v is not None and v <= target), None)


def _mean(rows: Sequence[Row], name: str) -> float:
    return float(np.mean([row[name] for row in rows]))


def main(argv: Sequence[str] | None = None) -> None:
    """Runs what is missing, and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="+", default=["protein", "tpe", "random"])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--file", type=Path, default=RESULTS)
    parser.add_argument("--table", action="store_true", help="run nothing, print what is there")
    parser.add_argument("--check", action="store_true", help="run nothing, compare the surrogate with the trials")
    arguments = parser.parse_args(argv)
    if arguments.check:
        print("\n".join(check()))
        return
    try:
        if arguments.seeds < 1 or arguments.processes < 1:
            raise UsageError("seeds and processes must be at least 1")
        check_methods(arguments.methods)
    except UsageError as error:
        parser.exit(2, f"error: {error}\n")
    rows = _read(arguments.file)
    done = {(row["method"], row["seed"]) for row in rows}
    jobs = [(m, s) for s in range(arguments.seeds) for m in arguments.methods if (m, s) not in done]
    if jobs and not arguments.table:
        with arguments.file.open("a") as file, multiprocessing.get_context("spawn").Pool(arguments.processes) as pool:
            file.write(json.dumps({"header": machine.describe()}) + "\n")
            for row in pool.imap_unordered(run_one, jobs):
                file.write(json.dumps(row, separators=(",", ":")) + "\n")
                file.flush()
        rows = _read(arguments.file)
    rows = [row for row in rows if row["method"] in arguments.methods]
    if not rows:
        parser.exit(2, f"error: {arguments.file} has no run of these methods; leave out --table to run them\n")
    print("\n".join(table(rows)))


def _read(path: Path) -> list[Row]:
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return [row for row in lines if "method" in row]


if __name__ == "__main__":
    main()
