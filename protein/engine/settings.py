"""The engine's settings, in one place, so that a benchmark can change each of them."""

import dataclasses

from protein.engine.acquisition import COST_EXPONENT, NUM_LEVELS


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """All settings of the engine. `docs/decisions/engine.md` has the measurements behind the defaults.

    Attributes:
        num_initial: space-filling trials after the initial config.
        initial_cost_share: the initial design keeps the cost parameter in this lowest share of its range.
        initial_pull: every second point of the initial design lies this share of the way to the initial config.
        initial_budget_share: the initial design ends early once this share of the budget is spent and ...
        min_initial_scores: ... this many trials have a score. A small budget must not end within the design.
        source_front_levels: with a source sweep, points of its front replace space-filling points. One is taken near
            each of these shares of its range of log cost.
        num_beside_source: space-filling trials that remain beside them. They show whether the source sweep misleads.
        num_source_best: this many of the source sweep's best points are among the centers of the search.
        cautious_trials: until a sweep that uses a source sweep has this many trials of its own ...
        cautious_share: ... no trial may cost more than this share of the whole budget.
        source_front_margin: the source sweep's front is lowered by this many standard deviations before the search has
            to beat it.
        cost_exponent: a of `protein.engine.acquisition`.
        best_share: b of `protein.engine.acquisition`.
        num_levels: J of `protein.engine.acquisition`.
        price_floor: this share of the whole budget is added to the price of every trial, and ...
        slot_price: ... where the number of trials is limited, this share of what is left of the budget for each.
        front_floor: this quantile of the posterior means stands for the front below the cheapest trial.
        cost_trend: how much z is expected to rise over the cost parameter's range, before any data.
        amplitude_slope: prior (mean, sd) of how much the log amplitude of z rises over it; None: it does not rise.
        log_noise: prior (mean, sd) of the log noise variance of z, of the search.
        averaged_log_noise: the same of the recommendation, which is averaged over it (`protein.engine.gp`).
        log_run_variance: prior (mean, sd) of the log of the variance between runs; None: there is none.
        max_curve_points: the score model learns from at most this many points of curves beside the final scores.
        early_stopping: trials whose curve is worse than that of similar trials are stopped, by the rule of
            `protein.engine.stopping`.
        always_running: where the caller can wait, this many trials may run side by side, and more of them only as long
            as ...
        running_share: ... they hold at most this share of the whole budget (`protein.engine.budget`).
        failure_model: where trials failed, others are expected to fail.
        failures_allowed: from this many failures on and ...
        failure_share: ... above this share of failures, a candidate must be likely to give a score.
        num_uniform: candidates over the whole box.
        num_local: candidates around the front, the best few and the initial config.
        num_rungs: candidates along the cost parameter, for each center.
        num_centers: points around which candidates are drawn.
        num_refined: the best candidates that each round of refinement starts from.
        num_refinements: candidates around each of them.
        refine_widths: the widest step of each round, in unit coordinates.
        num_continued: finished trials that may be continued, for each suggestion; 0: none ever is.
        score_range: the lowest and the highest possible score, to be maximised; None: not known. Predictions stay
            inside, and no candidate is expected to improve beyond it.
        belief_fade: B of `protein.engine.beliefs`.
        belief_doubt: w of `protein.engine.beliefs`.
        belief_dropped: above this probability that it is wrong, a belief is ignored.
        belief_every: one suggestion in this many follows the beliefs. The others ignore them.
        num_believed: candidates that are drawn from the beliefs, as far as there are any.
    """

    num_initial: int = 8
    initial_cost_share: float = 0.3
    initial_pull: float = 0.5
    initial_budget_share: float = 0.5
    min_initial_scores: int = 4
    source_front_levels: tuple[float, ...] = (0.15, 0.4, 0.65)
    num_beside_source: int = 5
    num_source_best: int = 3
    cautious_trials: int = 20
    cautious_share: float = 0.03
    source_front_margin: float = 1.0
    cost_exponent: float = COST_EXPONENT
    num_levels: int = NUM_LEVELS
    best_share: float = 0.15
    price_floor: float = 0.03
    slot_price: float = 1.0
    front_floor: float = 0.35
    cost_trend: float = 1.0
    amplitude_slope: tuple[float, float] | None = (0.7, 0.7)
    log_noise: tuple[float, float] = (-4.6, 2.0)
    averaged_log_noise: tuple[float, float] = (-1.5, 1.5)
    log_run_variance: tuple[float, float] | None = (-7.0, 2.0)
    max_curve_points: int = 120
    early_stopping: bool = True
    always_running: int = 4
    running_share: float = 0.25
    failure_model: bool = True
    failures_allowed: int = 5
    failure_share: float = 0.25
    num_uniform: int = 400
    num_local: int = 600
    num_rungs: int = 16
    num_centers: int = 12
    num_refined: int = 6
    num_refinements: int = 32
    refine_widths: tuple[float, ...] = (0.1, 0.03)
    num_continued: int = 4
    score_range: tuple[float, float] | None = None
    belief_fade: float = 10.0
    belief_doubt: float = 0.1
    belief_dropped: float = 0.5
    num_believed: int = 200
    belief_every: int = 2
