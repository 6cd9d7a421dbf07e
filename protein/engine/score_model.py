"""What the engine believes about scores, given everything known: the one place where the score model is put together.

The search and the recommendation both ask here; the recommendation shows it no points of curves
(`protein.engine.recommend`).
"""

import numpy as np

from protein.engine.history import Known
from protein.engine.models import FormerTrials, ScoreModel, ScoreScale
from protein.engine.settings import Recipe
from protein.space import Space


def score_model(space: Space, known: Known, recipe: Recipe, former: FormerTrials | None = None) -> ScoreModel:
    """Fits the score model to final scores and points of curves; `known` has at least one score.

    The search may lean on a former sweep's scores; the recommendation goes by this sweep alone.
    """
    return ScoreModel.fit(
        space,
        np.concatenate([known.x_scored, known.x_curve]),
        np.concatenate([known.scores, known.curve_scores]),
        unfinished=np.concatenate([known.unfinished, known.curve_unfinished]),
        scale=ScoreScale.of(known.scores),
        trend=recipe.cost_trend,
        log_noise=recipe.log_noise,
        log_luck=recipe.log_luck,
        growth=recipe.growth,
        runs=np.concatenate([np.arange(len(known.scores)), known.curve_runs]),
        former=former,
    )
