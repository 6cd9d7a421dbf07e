"""Compares optimisers on the synthetic tasks at equal total cost, with paired seeds.

    python benchmarks/engine/suite.py --methods protein random tpe --seeds 10 --processes 2
    python benchmarks/engine/suite.py --table          # from what was measured before, nothing is run

Each cell (method, family, seed) is one line of a JSON-lines file and is run once: stop at any time, run again, and it
goes on. Figures of a run, all from noiseless truth and normalised (see `reference.py`):

    best   score of the config whose measured score was highest
    volume hypervolume under (score, log cost) of everything tried, over that of the ideal front
    area   mean over spent cost of the best-so-far (by measured score), below 0 counted as 0
    fail   share of trials that failed

A table shows means over families and seeds; the interval is that of the paired difference to the first method, by
bootstrap over (family, seed) cells.
"""

import argparse
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")  # before numpy loads: one process, one thread
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import machine  # noqa: E402
import numpy as np  # noqa: E402
from engine.methods import make_method  # noqa: E402
from engine.reference import Reference, reference  # noqa: E402
from engine.tasks import FAMILIES, make_task  # noqa: E402

METRICS = ("best", "volume", "area")
DETAILS = ("fail", "trials", "spent", "think")
BUDGET = 25.0  # mean random-trial costs
TRIAL_CAP = 120
_references: dict[tuple[str, int], Reference] = {}


def run_cell(method: str, family: str, seed: int, budget: float, cap: int) -> dict[str, Any]:
    """Runs one method on one task until its budget or the number of trials is spent."""
    task = make_task(family, seed)
    if (family, seed) not in _references:
        _references[family, seed] = reference(task)
    scale = _references[family, seed]
    engine = make_method(method, task.space, task.start, seed)
    total, spent = budget * scale.mean_cost, 0.0
    history, thinking = [], 0.0
    while len(history) < cap:
        began = time.perf_counter()
        params = engine.ask(history, total - spent)
        thinking += time.perf_counter() - began
        if params is None:
            break
        repeat = sum(o.params == params for o in history)
        observation = task.run(params, seed=seed, repeat=repeat)
        if spent + observation.cost_seconds > total:
            break  # cut off by the end of the budget: the rest is spent for nothing
        spent += observation.cost_seconds
        history.append(observation)
        engine.tell(observation)
    scored = [o for o in history if o.score is not None]
    result = {"method": method, "family": family, "seed": seed, "budget": budget, "cap": cap, "trials": len(history)}
    result["spent"] = round(spent / total, 3)
    if not scored:
        return {
            **result,
            "best": 0.0,
            "volume": 0.0,
            "area": 0.0,
            "fail": 1.0,
            "think": thinking / max(len(history), 1),
        }
    truth = scale.normalise(np.array([task.true_score(o) for o in scored]))
    costs = np.array([o.cost_seconds for o in scored])
    area, incumbent, measured, at = 0.0, 0.0, -np.inf, 0.0
    order = iter(truth.tolist())
    for observation in history:
        area += incumbent * observation.cost_seconds
        at += observation.cost_seconds
        if observation.score is not None:
            value = next(order)
            if observation.score > measured:
                measured, incumbent = observation.score, max(value, 0.0)
    area = (area + incumbent * (total - at)) / total
    best = float(truth[int(np.argmax([o.score for o in scored]))])
    return {
        **result,
        "best": round(best, 5),
        "volume": round(scale.volume(truth, costs), 5),
        "area": round(area, 5),
        "fail": round(1.0 - len(scored) / len(history), 4),
        "think": round(thinking / len(history), 4),
    }


def _run(job: tuple[str, str, int, float, int]) -> dict[str, Any]:
    return run_cell(*job)


def comparison(rows: Sequence[dict[str, Any]], methods: Sequence[str]) -> list[str]:
    """Returns the table's lines: means, and paired differences to the first method with 90 % intervals."""
    cells = {(r["method"], r["family"], r["seed"]): r for r in rows}
    head = "".join(f"{metric:>28}" for metric in METRICS)
    lines = [f"{'method':<34} cells  {head}   fail  trials  spent  think"]
    for method in methods:
        keys = [(f, s) for m, f, s in cells if m == method and (methods[0], f, s) in cells]
        if not keys:
            continue
        line = f"{method:<34} {len(keys):>5}  "
        for metric in METRICS:
            own = np.array([cells[method, *key][metric] for key in keys])
            line += f"{own.mean():>8.3f}"
            if method == methods[0]:
                line += " " * 20
                continue
            gap = own - np.array([cells[methods[0], *key][metric] for key in keys])
            resampled = gap[np.random.default_rng(0).integers(0, len(gap), (2000, len(gap)))].mean(axis=1)
            low, high = np.quantile(resampled, [0.05, 0.95])
            line += f" {gap.mean():+.3f} [{low:+.2f},{high:+.2f}]"
        mean = {m: np.mean([cells[method, *key].get(m, np.nan) for key in keys]) for m in DETAILS}
        lines.append(
            f"{line}  {mean['fail']:>5.2f}  {mean['trials']:>6.0f}  {mean['spent']:>5.2f}  {mean['think']:>5.3f}"
        )
    return lines


def by_family(rows: Sequence[dict[str, Any]], methods: Sequence[str]) -> list[str]:
    """Returns one block of lines for each metric: the means of each method in each family."""
    families = [family for family in FAMILIES if any(r["family"] == family for r in rows)]
    lines = []
    for metric in METRICS:
        lines += ["", f"{metric:<34}" + "".join(f"{family:>11}" for family in families)]
        for method in methods:
            line = f"{method:<34}"
            for family in families:
                own = [r[metric] for r in rows if r["method"] == method and r["family"] == family]
                line += f"{np.mean(own):>11.3f}" if own else f"{'-':>11}"
            lines.append(line)
    return lines


def main() -> None:
    """Runs what is missing and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="+", default=["protein", "random"])
    parser.add_argument("--families", nargs="+", default=list(FAMILIES), choices=FAMILIES)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--budget", type=float, default=BUDGET)
    parser.add_argument("--cap", type=int, default=TRIAL_CAP)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--file", type=Path, default=machine.RESULTS / "engine_suite.jsonl")
    parser.add_argument("--table", action="store_true", help="run nothing, print what is there")
    arguments = parser.parse_args()
    seeds = range(arguments.first_seed, arguments.first_seed + arguments.seeds)
    rows = [json.loads(line) for line in arguments.file.read_text().splitlines()] if arguments.file.exists() else []
    rows = [r for r in rows if r["budget"] == arguments.budget and r["cap"] == arguments.cap]
    done = {(r["method"], r["family"], r["seed"]) for r in rows}
    jobs = [
        (method, family, seed, arguments.budget, arguments.cap)
        for seed in seeds
        for family in arguments.families
        for method in arguments.methods
        if (method, family, seed) not in done and not arguments.table
    ]
    arguments.file.parent.mkdir(parents=True, exist_ok=True)
    with arguments.file.open("a") as file, multiprocessing.get_context("spawn").Pool(arguments.processes) as pool:
        for row in pool.imap_unordered(_run, jobs, chunksize=len(arguments.methods)):
            rows.append(row)
            file.write(json.dumps(row) + "\n")
            file.flush()
    wanted = [
        r for r in rows if r["method"] in arguments.methods and r["family"] in arguments.families and r["seed"] in seeds
    ]
    print(machine.headline())
    print(f"budget {arguments.budget:g} mean random-trial costs, at most {arguments.cap} trials\n")
    print("\n".join([*comparison(wanted, arguments.methods), *by_family(wanted, arguments.methods)]))


if __name__ == "__main__":
    main()
