"""An export of a table of runs from Weights & Biases: a CSV file, as its page writes it.

Which columns are parameters cannot be seen in the file, where a summary and a config look the same. A column counts as
a parameter unless it is one of W&B's own (`Name`, `State`, `Runtime`, `_step`, ...), the score or the cost, or holds a
sub-key of a metric (`eval/...`, `loss/...`) that the user has not named. Where another column may be a metric, the user
is asked: it is called like one, or only runs with a score have it, or it ranks the runs as the score does. Columns are
chosen by name with `params`.
"""

import csv
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from protein.errors import UsageError
from protein.imports.runs import (
    EQUAL_COST,
    Imported,
    Run,
    Source,
    existing,
    listed,
    number,
    parameters,
    reading,
    text_value,
)
from protein.spelling import nearest
from protein.types import ParamValue, TrialEnd

OWN = {"name", "id", "run id", "state", "runtime", "created", "created at", "end time", "updated", "user", "tags"} | {
    "notes", "group", "job type", "sweep", "github", "git", "hostname", "commit", "gpu count", "gpu type", "agent",
}  # fmt: skip
_ENDS = {
    "finished": TrialEnd.COMPLETE,
    "crashed": TrialEnd.CRASHED,
    "failed": TrialEnd.FAILED,
    "killed": TrialEnd.INTERRUPTED,
    "preempted": TrialEnd.INTERRUPTED,
}
_OF_METRICS = re.compile(  # words of a name
    r"(loss|reward|return|score|error)(es|s)?|acc|accuracy|err|f1|auc|auroc|recall|perplexity|ppl|bleu|rouge|mse|mae|rmse"
    r"|mape|iou|psnr|fid|kl|elo|winrate|elapsed|duration|runtime|fps|sps|throughput|val|valid|validation|eval|test|best"
)
_OF_PARAMETERS = re.compile(  # what makes a parameter of those: loss_weight, reward_scale, kl_coef, val_size
    r"coeff?|coefficient|weights?|scale|scaling|factor|threshold|margin|clip|target|limit|smoothing|type|fn|function|decay"
    r"|beta|alpha|gamma|lambda|bonus|penalty|power|norm|size|split|fraction|ratio|every|interval|freq|frequency|batch|seed"
    r"|patience|shaping|lr|set|dataset"
)
_HUMP = re.compile(r"(?<=[a-z])(?=[A-Z])")
_MIN_RANKED, _MIN_DISTINCT, _SAME_ORDER = 10, 0.8, 0.95  # runs, share of different values, rank correlation
_UNFINISHED = ("running", "pending", "preempting")
RUNTIMES = ("_runtime", "Runtime", "_wandb.runtime")
"""Columns that hold a run's duration in seconds, the first of which is taken."""


def is_one(place: Path) -> bool:
    """Whether a file may be such a table."""
    return place.is_file() and place.suffix.lower() == ".csv"


def read(source: Source) -> Imported:
    """Returns the runs of the file that is the source's place."""
    path = existing(source.place, "the CSV file that W&B's table of runs exports")
    with reading(f"{path} is no CSV file"), path.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.DictReader(file, strict=True)
        columns = list(reader.fieldnames or [])
        rows = list(reader)
    if not rows:
        raise UsageError(f"{path} holds no runs; export the table again")
    for place, row in enumerate(rows, 1):
        if any(row.get(None, ())):  # its cells may stand below the wrong names
            raise UsageError(
                f"{path}: row {place} has more cells than the header has names ({len(columns)}): a comma within a cell"
                " needs quotation marks around that; export the table again"
            )
    cells = [{name: text_value(row.get(name) or "") for name in columns} for row in rows]
    numeric = [name for name in columns if any(number(row[name]) is not None for row in cells)]
    score = _column("--score", source.score, numeric)
    direction = source.direction_of(score)
    cost = _cost(source.cost, numeric)
    chosen = _params(source.params, columns, {score, cost or ""})
    if score in chosen:
        raise UsageError(f"--params: '{score}' is the score; leave it out")
    if double := next((name for name in (score, cost, *chosen) if columns.count(name or "") > 1), None):
        raise UsageError(
            f"{path} has {columns.count(double)} columns '{double}', perhaps of the config and of the summary; rename"
            " them in the file, or name the parameters without it: --params COLUMN,..."
        )
    if source.params is None:
        _require_no_metric(chosen, cells, score)
    metrics = [name for name in numeric if name not in chosen and name.lower() not in OWN]
    state = next((name for name in columns if name.lower() == "state"), None)
    runs, taken = [], dict[str, int]()
    num_unfinished = 0
    for row, texts in zip(cells, rows, strict=True):
        word = str(row[state] or "finished").lower() if state is not None else "finished"
        if word in _UNFINISHED:
            num_unfinished += 1
            continue
        why = "" if word == "finished" else word
        if isinstance(row[score], str):
            why = why or f"its score is {row[score]!r:.40}, which is no number"
        key = _key(columns, texts)
        taken[key] = taken.get(key, 0) + 1
        runs.append(
            Run(
                key=key if taken[key] == 1 else f"{key} ({taken[key]})",
                params=parameters({name: row[name] for name in chosen}),
                end=_ENDS.get(word, TrialEnd.FAILED),
                score=number(row[score]),
                cost_seconds=1.0 if cost is None else number(row[cost]),
                steps=_steps(row),
                reason=why,
                metrics={name: row[name] for name in metrics},
                began=str(texts.get("Created") or texts.get("Created At") or ""),
            )
        )
    return Imported(
        where=str(path),
        identity="",  # each export is a file of another name; runs are known by their own
        experiment=path.stem,
        score=score,
        direction=direction,
        runs=sorted(runs, key=lambda run: run.began),  # in ISO form; where there is none, as in the file
        num_unfinished=num_unfinished,
    )


def _params(wanted: Sequence[str] | None, columns: Sequence[str], others: set[str]) -> list[str]:
    if wanted is not None:
        for name in wanted:
            if name not in columns:
                raise UsageError(f"--params: there is no column '{name}'{nearest(name, columns)}")
        return list(wanted)
    return [
        name
        for name in columns
        if name and name not in others and name.lower() not in OWN and not name.startswith("_") and "/" not in name
    ]


def _require_no_metric(chosen: Sequence[str], cells: Sequence[Mapping[str, Any]], score: str) -> None:
    """Raises `UsageError`, which asks what the columns are, where some of those chosen may be metrics."""
    found = {name: why for name in chosen if (why := _why_metric(name, cells, score))}
    others = ",".join(name for name in chosen if name not in found)
    if found:
        named = listed([f"{name} ({why})" for name, why in found.items()])
        raise UsageError(
            f"these columns may be metrics: {named}; name the parameters with --params {others or 'COLUMN,...'}, and"
            " add those of them that are parameters"
        )


def _why_metric(name: str, cells: Sequence[Mapping[str, Any]], score: str) -> str:
    """Returns why a column may be a metric; "" for one that does not look like one, or does not vary."""
    column, scores = [number(row[name]) for row in cells], [number(row[score]) for row in cells]
    if len({value for value in column if value is not None}) < 2:
        return ""
    words = re.split(r"[^a-z0-9]+", _HUMP.sub("_", name).lower())
    if any(map(_OF_METRICS.fullmatch, words)) and not any(map(_OF_PARAMETERS.fullmatch, words)):
        return "called like one"
    pairs = [(a, b) for a, b in zip(column, scores, strict=True) if a is not None and b is not None]
    without = [a for a, b in zip(column, scores, strict=True) if b is None]
    has_score = sum(b is not None for b in scores)
    if without and not any(a is not None for a in without) and len(pairs) == has_score:
        return "only runs with a score have it"
    distinct = min(len({a for a, _ in pairs}), len({b for _, b in pairs})) if pairs else 0
    if len(pairs) >= _MIN_RANKED and distinct >= _MIN_DISTINCT * len(pairs):
        ranks = np.argsort(np.argsort(np.array(pairs), axis=0), axis=0)
        if abs(np.asarray(np.corrcoef(ranks, rowvar=False))[0, 1]) >= _SAME_ORDER:
            return f"it ranks the runs as {score} does"
    return ""


def _column(what: str, wanted: str | None, numeric: Sequence[str]) -> str:
    if wanted is None:
        raise UsageError(f"{what} COLUMN is needed, one of: {listed([n for n in numeric if n.lower() not in OWN])}")
    if wanted not in numeric:
        raise UsageError(f"{what} '{wanted}' is no column with numbers{nearest(wanted, numeric)}")
    return wanted


def _cost(wanted: str | None, numeric: Sequence[str]) -> str | None:
    if wanted == EQUAL_COST:
        return None
    if wanted is not None:
        return _column("--cost", wanted, numeric)
    found = next((name for name in RUNTIMES if name in numeric), None)
    if found is None:
        raise UsageError(
            f"no column tells what a run cost; give one in seconds with --cost COLUMN, of {listed(numeric)}; with"
            f" --cost {EQUAL_COST} every run counts as one second"
        )
    return found


def _key(columns: Sequence[str], texts: Mapping[str, str]) -> str:
    """Returns what identifies a run: its id where the file has it, else its name and when it was made."""
    for name in columns:
        if name.lower() in ("id", "run id") and texts[name]:
            return texts[name]
    made = texts.get("Created") or texts.get("Created At") or ""
    return " ".join(part for part in (texts.get("Name") or "run", made) if part)


def _steps(row: Mapping[str, ParamValue | None]) -> int:
    found = [number(row.get(name)) for name in ("global_step", "_step")]
    value = next((one for one in found if one is not None and math.isfinite(one)), 0.0)
    return max(int(value), 0)
