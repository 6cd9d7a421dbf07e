"""Two options on trainings that others have recorded: value clipping and the normalisation of advantages.

    python benchmarks/ablate_recorded.py

Six tables of PPO by another implementation (`engine/data/arlbench`, README.md there): 256 configs of a Sobol design,
up to ten seeds each. Every setting varies independently of every other, so an option's effect is that of the
configs with it against those without, whatever else they have. Scores are compared by rank, from 0 to 1.
"""

import dataclasses
import json
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy import stats

TABLES = Path(__file__).resolve().parent / "engine" / "data" / "arlbench"
Z90 = 1.645  # standard errors to either side of a 90 % interval


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """Of one table: the rank that normalised advantages add, and how ranks go with the value's clip range."""

    environment: str
    normalised: float
    half_interval: float
    share_of_best: float  # of the best tenth of the configs, how many normalise
    clip_correlation: float  # Spearman's, with the clip range: above 0 where a wider clip is better
    clip_p: float


def effect(
    environment: str, scores: npt.NDArray[np.float64], normalises: npt.NDArray[np.bool_], clip: npt.NDArray[np.float64]
) -> Effect:
    """Returns what the two options do.

    Args:
        environment: its name.
        scores: `configs`, each the mean over seeds.
        normalises: `configs`, whether it normalises advantages.
        clip: `configs`, the range of the value's clip.
    """
    ranks = stats.rankdata(scores) / len(scores)
    on, off = ranks[normalises], ranks[~normalises]
    correlation = stats.spearmanr(clip, scores)
    return Effect(
        environment=environment,
        normalised=float(on.mean() - off.mean()),
        half_interval=float(Z90 * np.sqrt(on.var(ddof=1) / len(on) + off.var(ddof=1) / len(off))),
        share_of_best=float(normalises[ranks > 0.9].mean()),
        clip_correlation=float(correlation.statistic),
        clip_p=float(correlation.pvalue),
    )


def read(path: Path) -> Effect:
    """Reads a table; configs of which every run has failed are left out."""
    about = json.loads(path.read_text(encoding="utf-8"))
    names = [parameter["name"] for parameter in about["params"]]
    with np.load(path.with_suffix(".npz")) as table:
        configs, final = table["configs"], table["scores"][:, :, -1]
    known = np.isfinite(final).any(axis=1)
    column = dict(zip(names, configs[known].T, strict=True))
    return effect(
        about["environment"],
        np.nanmean(final[known], axis=1),
        column["normalize_advantage"] == 1,
        column["vf_clip_eps"],
    )


def main() -> None:
    print("| environment | normalised advantages: rank added | of the best tenth | value clip: correlation, p |")
    print("|---|---|---|---|")
    for one in map(read, sorted(TABLES.glob("ppo_*.json"))):
        print(
            f"| {one.environment} | {one.normalised:+.2f} ± {one.half_interval:.2f} | {one.share_of_best:.0%} |"
            f" {one.clip_correlation:+.2f}, {one.clip_p:.2f} |"
        )


if __name__ == "__main__":
    main()
