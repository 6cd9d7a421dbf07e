"""What confirmation buys: a share of the budget goes to running contenders again, within the budget or beside it.

    python benchmarks/engine/confirm.py --half development --seeds 3      # one process; stop and go on at any time

One search a task and seed spends the whole budget, so all rows of a search are paired.

within   of the search, the trials up to (1 - s) of the budget are kept, and s is spent on confirmations
         (`protein.engine.confirmation`) until they are settled; what is left over then is lost. The search did not know
         that it would end earlier
beside   all of the search is kept, and up to s of its budget is spent on confirmations in addition

Figures of a share
    best     truth of the config that is handed over, as in `engine.cells`
    tried    highest truth of all configs that were trained to their end
    sure     the probability that the leader is best of those in question, at the end;  good: whether it truly is,
             or worse by less than the indifference
    runs     confirmations;  spent: their share of the budget
"""

import argparse
import dataclasses
import json
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
from engine import recorded, rl
from engine.cells import play
from engine.methods import Engine, make_method
from engine.protocol import Task
from engine.reference import Reference, reference
from engine.tasks import DEVELOPMENT, make_task

from protein.engine.confirmation import Question, question
from protein.engine.recommend import contenders
from protein.engine.results import best
from protein.types import Observation, TrialState

RESULTS = machine.RESULTS / "engine_confirm.jsonl"
WITHIN, BESIDE = (0.0, 0.05, 0.1, 0.2), (0.1, 0.2, 0.5)
METHOD = "protein:num_continued=4"  # trials may go on, as in a sweep of our trainer
_FIRST_DEVELOPMENT_SEED = 30  # of families whose seeds are split, and not the families


def cells(half: str, seeds: int) -> list[tuple[str, int]]:
    """Returns families and seeds of one half (see `engine.tasks`), a seed of all families before the next one."""
    held_out = half == "held-out"
    found = []
    for seed in range(seeds):
        found += [(family, seed) for family in rl.FAMILIES if (family not in DEVELOPMENT) == held_out]
        found += [(family, seed + (0 if held_out else _FIRST_DEVELOPMENT_SEED)) for family in recorded.FAMILIES]
    return found


def run(family: str, seed: int, budget: float) -> list[dict[str, Any]]:
    """Returns a row for each share, within and beside the budget."""
    task = make_task(family, seed)
    scale = reference(task)
    total = budget * scale.mean_cost
    method = make_method(METHOD, task.space, task.start, seed)
    assert isinstance(method, Engine)
    method.recommends = False  # the recommendation after each trial is not asked for
    history = play(task, method, total_seconds=total, cap=200, seed=seed).history
    cell = {"family": family, "seed": seed, "budget": budget}
    ends = np.cumsum([o.cost_seconds for o in history])
    rows = []
    for share in WITHIN:
        kept = history[: int(np.sum(ends <= (1.0 - share) * total * (1.0 + 1e-9)))]
        rows.append({**cell, "way": "within", "share": share, **confirmed(task, scale, kept, total, share)})
    beside = [(share, confirmed(task, scale, history, total, share)) for share in BESIDE]
    return rows + [{**cell, "way": "beside", "share": share, **found} for share, found in beside]


def confirmed(
    task: Task, scale: Reference, searched: Sequence[Observation], total: float, share: float
) -> dict[str, Any]:
    """Returns the figures of a share of the budget `total`, spent after these trials."""
    history = list(searched)
    num_searched, spent, found = len(history), 0.0, None
    left = share * total
    while share and left - spent > 0.0:
        found = question(task.space, history, remaining_seconds=left - spent)
        if found is None or found.next is None:
            break
        params = found.contenders[found.next].params
        repeat = sum(dict(o.params) == dict(params) for o in history)
        one = task.run(params, seed=_seed(history), repeat=repeat)
        one = dataclasses.replace(one, number=len(history))
        if spent + one.cost_seconds > left:
            spent = left  # it was cut at the budget's end
            break
        spent += one.cost_seconds
        history.append(one)
    truth = {_key(o): _truth(task, scale, o) for o in history if o.state is TrialState.COMPLETE}
    chosen = best(contenders(task.space, history))
    return {
        "best": round(0.0 if chosen is None else truth[frozenset(chosen.params.items())], 4),
        "tried": round(max(truth.values(), default=0.0), 4),
        "runs": len(history) - num_searched,
        "spent": round(spent / total, 4),
        **_judged(task, history, found),
    }


def _judged(task: Task, history: Sequence[Observation], found: Question | None) -> dict[str, Any]:
    if found is None:
        return {"sure": None, "good": None, "in_question": 0}
    first = {_key(o): o for o in reversed(history) if o.state is TrialState.COMPLETE}
    scores = [task.true_score(first[frozenset(one.params.items())]) for one in found.contenders]
    good = scores[0] >= max(scores) - found.indifference
    return {"sure": round(found.sure, 4), "good": bool(good), "in_question": len(scores)}


def _key(observation: Observation) -> frozenset[tuple[str, Any]]:
    return frozenset(observation.params.items())


def _truth(task: Task, scale: Reference, observation: Observation) -> float:
    return max(float(scale.normalise(np.array([task.true_score(observation)]))[0]), 0.0)


def _seed(history: Sequence[Observation]) -> int:
    return 1000 + len(history)  # fresh luck


def table(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Returns the means of each share and their differences to none, with 95 % intervals over tasks and seeds."""
    lines = ["   way share  cells    best   tried     gain     +-   runs   spent   sure   good"]
    none = {(row["family"], row["seed"], row["budget"]): row["best"] for row in rows if row["share"] == 0.0}
    for way, share in sorted({(row["way"], row["share"]) for row in rows}, reverse=True):
        own = [row for row in rows if (row["way"], row["share"]) == (way, share)]
        gain = np.array([row["best"] - none[row["family"], row["seed"], row["budget"]] for row in own])
        half = 1.96 * float(np.std(gain, ddof=1)) / len(gain) ** 0.5 if len(gain) > 1 else float("nan")
        settled = [row for row in own if row["sure"] is not None]
        sure, good = ([float(row[name]) for row in settled] for name in ("sure", "good"))
        means = [float(np.mean([row[name] for row in own])) for name in ("best", "tried", "runs", "spent")]
        judged = f"{np.mean(sure):>7.3f}{np.mean(good):>7.3f}" if settled else ""
        lines.append(
            f"{way:>6}{share:>6.2f}{len(own):>7}{means[0]:>8.3f}{means[1]:>8.3f}{np.mean(gain):>+9.3f}{half:>7.3f}"
            f"{means[2]:>7.1f}{means[3]:>8.3f}{judged}"
        )
    return lines


def main() -> None:
    """Runs what is missing, and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--half", default="development", choices=["development", "held-out"])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--budget", type=float, default=25.0)
    parser.add_argument("--file", type=Path, default=RESULTS)
    parser.add_argument("--table", action="store_true", help="run nothing")
    arguments = parser.parse_args()
    kept = [json.loads(line) for line in arguments.file.read_text().splitlines()] if arguments.file.exists() else []
    rows = [row for row in kept if "family" in row]
    wanted = cells(arguments.half, arguments.seeds)
    done = {(row["family"], row["seed"], row["budget"]) for row in rows}
    if not arguments.table:
        with arguments.file.open("a") as file:
            file.write(json.dumps({"header": machine.describe()}) + "\n")
            for family, seed in wanted:
                if (family, seed, arguments.budget) in done:
                    continue
                began = time.process_time()
                new = run(family, seed, arguments.budget)
                rows += new
                file.writelines(json.dumps(row) + "\n" for row in new)
                file.flush()
                print(f"{family} {seed}: {time.process_time() - began:.0f} s", file=sys.stderr)
    shown = [row for row in rows if (row["family"], row["seed"]) in wanted and row["budget"] == arguments.budget]
    print("\n".join([machine.headline(), *table(shown)]))


if __name__ == "__main__":
    main()
