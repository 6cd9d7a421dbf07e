"""Laws against the truth: sweeps of trials under a tenth of the full cost, best values and a config for the full cost.

    python benchmarks/engine/laws.py --half development --sweeps build/law_sweeps
    python benchmarks/engine/laws.py --half held-out --sweeps build/law_sweeps

The engine sweeps each task of `engine.law_tasks` with 25 mean random-trial costs (of trials under the cap), at most 100
trials. The sweep never sees a trial that costs more than a tenth of the full cost T. Then the laws are read off, and
compared with what is known of T:

    inside    share of the parameters that matter whose true best value at T lies in its 80 % interval
    width     of that interval, as a share of the parameter's range; 0.8 would be that of no knowledge
    error     mean distance of the median to the truth, as a share of the range: of the laws, of the recommended
              config's own value, and of the middle of the range
    score     true score at T of three configs, each with its cost parameter set so that it costs T exactly: that of the
              laws, the best of the front (the recommended config), and the best small config (which measured best).
              1 is the best config of T, 0 the median random one (recorded: the lowest score of the game)

The settings of the laws were chosen on the development seeds. Sweeps are kept in a folder, because they take most of
the time.
"""

import argparse
import dataclasses
import json
import math
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy loads: one process, one thread
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("MKL_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import machine
import numpy as np
from engine.law_tasks import FAMILIES, RECORDED, SHARE, LawTask, make_law_task

from protein import Protein
from protein.engine.laws import fit_laws
from protein.engine.recommend import contenders
from protein.engine.results import best
from protein.errors import UsageError
from protein.space import Categorical
from protein.types import Measurement, Observation, Params, TrialState

# Seeds. Nothing was chosen on the recorded tasks; three of their sweeps were looked at on the way.
HALVES = {"held-out": tuple(range(10, 15)), "development": tuple(range(10))}
RECORDED_HALVES = {"held-out": (*range(5), *range(8, 15)), "development": (5, 6, 7)}
NOISES = (0.0, 0.1, 0.3)
BUDGET = 25.0  # mean random-trial costs
TRIAL_CAP = 100
Row = dict[str, Any]


def sweep(task: LawTask, seed: int) -> list[Observation]:
    """Returns the trials of the engine's sweep."""
    cap = SHARE * task.full_seconds
    random = task.space.from_unit_many(task.space.sample(2000, np.random.default_rng(6)))
    costs = np.minimum(task.cost(task.full_space.to_unit_many(random)), cap)
    engine = Protein(
        task.space,
        seed=seed,
        budget_seconds=BUDGET * float(np.mean(costs)),
        max_trial_seconds=cap,
        max_trials=TRIAL_CAP,
        start=task.start,
    )
    while (suggestion := engine.suggest()) is not None:
        params = suggestion.params

        def watch(curve: tuple[Measurement, ...], params: Params = params) -> bool:
            return curve[-1].elapsed_seconds >= cap or engine.should_stop(params, _points(curve)) is not None

        repeat = sum(dict(o.params) == dict(params) for o in engine.observations)
        outcome = task.run(params, seed=seed, repeat=repeat, watch=watch)
        engine.observe(
            params,
            cost_seconds=outcome.cost_seconds,
            score=outcome.score,
            curve=_points(outcome.curve),
            stopped="stopped" if outcome.state is TrialState.PRUNED else "",
        )
    return list(engine.observations)


def kept_sweep(task: LawTask, noise: float, seed: int, folder: Path | None) -> list[Observation]:
    """Returns the trials of a sweep from the folder, or runs it and keeps it there."""
    path = None if folder is None else folder / f"{task.name}_{noise}_{seed}.json"
    if path is not None and path.exists():
        return [Observation(**trial) for trial in json.loads(path.read_text())]
    trials = sweep(task, seed)
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps([dataclasses.asdict(trial) for trial in trials]))
    return trials


def judge(task: LawTask, noise: float, seed: int, trials: Sequence[Observation]) -> Row:
    """Returns the figures of one sweep."""
    began = time.perf_counter()
    laws = fit_laws(task.space, trials)
    plan = laws.plan(task.full_seconds)
    seconds = time.perf_counter() - began
    recommended = best(contenders(task.space, trials))
    assert recommended is not None
    measured = max((o for o in trials if o.state is TrialState.COMPLETE), key=lambda o: o.score or -math.inf)
    known = {law.name: law for law in laws.laws}
    values = []
    for name, truth in task.best.items():
        parameter, estimate = task.space.parameter(name), plan.values[name].estimate
        if name == task.space.cost_parameter or isinstance(parameter, Categorical) or estimate is None:
            continue
        low, middle, high = parameter.encode(np.array([estimate.low, estimate.value, estimate.high])).tolist()
        own = float(parameter.encode(np.array([parameter.numeric(recommended.params[name])]))[0])
        slack = 0.5 / (parameter.high - parameter.low + 1) if name == "width" else 0.0
        values.append(
            {
                "parameter": name,
                "inside": bool(low - slack <= truth <= high + slack),
                "width": high - low,
                "error": abs(middle - truth),
                "error_own": abs(own - truth),
                "error_middle": abs(0.5 - truth),
                "known": known[name].known,
                "moves": known[name].moves,
                "slope": task.slopes[name],
            }
        )
    return {
        "family": task.name,
        "noise": noise,
        "seed": seed,
        "trials": len(trials),
        "times_largest": round(plan.times_largest, 2),
        "laws": round(task.normalised(plan.params), 4),
        "front": round(task.normalised(recommended.params), 4),
        "small": round(task.normalised(measured.params), 4),
        "unused_known": [known[name].known for name in task.space.names if name.startswith("unused")],
        "seconds": round(seconds, 2),
        "values": [{k: round(v, 4) if isinstance(v, float) else v for k, v in one.items()} for one in values],
    }


def table(rows: Sequence[Row]) -> list[str]:
    """Returns the lines of the table: by family, by noise, and all."""
    head = f"{'':<20}{'values':>7}{'inside':>8}{'width':>7}{'error':>7}{'own':>7}{'middle':>7}{'tasks':>7}"
    lines = [head + f"{'laws':>7}{'front':>7}{'small':>7}   laws - front, 80 %"]
    for family in (*FAMILIES, *RECORDED):
        lines += _line(family, [row for row in rows if row["family"] == family])
    synthetic = [row for row in rows if row["family"] in FAMILIES]
    for noise in NOISES:
        lines += _line(f"noise {noise:g}", [row for row in synthetic if row["noise"] == noise])
    return [*lines, *_line("all synthetic", synthetic)]


def _line(name: str, rows: Sequence[Row]) -> list[str]:
    if not rows:
        return []
    values = [value for row in rows for value in row["values"]]
    line = f"{name:<20}{len(values):>7}"
    for key, width in (("inside", 8), ("width", 7), ("error", 7), ("error_own", 7), ("error_middle", 7)):
        line += f"{np.mean([value[key] for value in values]):>{width}.2f}" if values else " " * (width - 1) + "-"
    scores = [float(np.mean([row[key] for row in rows])) for key in ("laws", "front", "small")]
    gain = np.array([row["laws"] - row["front"] for row in rows])
    half = 1.2816 * float(np.std(gain, ddof=1)) / math.sqrt(len(gain)) if len(gain) > 1 else math.inf
    line += f"{len(rows):>7}" + "".join(f"{score:>7.3f}" for score in scores)
    return [line + f"   {gain.mean():+.3f} ({gain.mean() - half:+.3f} to {gain.mean() + half:+.3f})"]


def _points(curve: Sequence[Measurement]) -> list[tuple[int, float, float | None]]:
    return [(point.steps, point.elapsed_seconds, point.score) for point in curve]


def main() -> None:
    """Prints the table; writes benchmarks/results/engine_laws.json for the held-out half."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--half", choices=list(HALVES), default="development")
    parser.add_argument("--families", nargs="+", default=[*FAMILIES, *RECORDED], choices=[*FAMILIES, *RECORDED])
    parser.add_argument("--sweeps", type=Path, help="folder in which finished sweeps are kept")
    arguments = parser.parse_args()
    rows = []
    for family in arguments.families:
        for noise in NOISES if family in FAMILIES else (0.0,):
            for seed in (HALVES if family in FAMILIES else RECORDED_HALVES)[arguments.half]:
                task = make_law_task(family, seed, noise)
                trials = kept_sweep(task, noise, seed, arguments.sweeps)
                try:
                    rows.append(judge(task, noise, seed, trials))
                except UsageError as error:  # the cap left too few trials
                    print(f"{family}, seed {seed}, left out: {error}")
    print(machine.headline())
    print("\n".join(table(rows)))
    zeros = [value for row in rows for value in row["values"] if value["slope"] == 0.0]
    unused = [known for row in rows for known in row["unused_known"]]
    print(
        f"a trend is claimed for {np.mean([v['moves'] for v in zeros]):.0%} of {len(zeros)} parameters with exponent 0;"
        f" a best value for {np.mean(unused):.0%} of {len(unused)} that do not matter;"
        f" {np.mean([row['seconds'] for row in rows]):.1f} s for the laws of a sweep"
    )
    if arguments.half == "held-out":
        print(f"written: {machine.write_result('engine_laws', rows, threads=1, budget=BUDGET)}")


if __name__ == "__main__":
    main()
