"""The engine's settings, in one place, so that a benchmark can switch each of them."""

import dataclasses

from protein.engine.acquisition import COST_EXPONENT, NUM_LEVELS


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """What the engine does where. `docs/log.md` has the measurements behind the defaults."""

    num_initial: int = 8  # space-filling trials after the user's own config
    initial_cost_share: float = 0.3  # they keep the cost parameter in this lowest share of its range
    initial_pull: float = 0.5  # every second one lies this far on the way to the user's own config
    initial_budget_share: float = 0.5  # the design is cut short once so much of the budget is spent and ...
    num_initial_least: int = 4  # ... so many trials have a score: a small budget is not to end within it
    former_levels: tuple[float, ...] = (0.15, 0.4, 0.65)  # after a former sweep: points of its front near these shares
    # of its range of log cost take the place of space-filling ones ...
    num_former_filling: int = 5  # ... but for so many, which find out a former sweep that misleads
    num_former_best: int = 3  # its best points are among the centers of the search
    former_careful_trials: int = 20  # until a sweep that leans on a former one has so many trials of its own, ...
    former_careful_share: float = 0.03  # ... none is to cost more than this share of the whole budget
    former_doubt: float = (
        1.0  # standard deviations by which a former sweep's front is lowered before it counts as known
    )
    cost_exponent: float = COST_EXPONENT
    num_levels: int = NUM_LEVELS
    price_floor: float = 0.03  # this share of the whole budget is added to the price of every trial, and ...
    slot_price: float = 1.0  # ... where their number is limited, this share of what is left of the budget for each
    front_floor: float = 0.35  # quantile of the known scores that stands for the front below the cheapest trial
    cost_trend: float = 1.0  # how much z is expected to rise over the cost parameter's range, before seeing data
    growth: tuple[float, float] | None = (0.7, 0.7)  # prior (mean, sd) of how much the log amplitude of z rises over it
    log_noise: tuple[float, float] = (-4.6, 2.0)  # prior of the log noise variance of z: mean, standard deviation
    log_luck: tuple[float, float] | None = (-7.0, 2.0)  # and of the variance that all points of a run have in common
    max_curve_points: int = 120  # points on the way that the score model learns from beside the final scores
    early_stopping: bool = True  # hopeless trials end early, by the rule of `protein.engine.stopping`
    reevaluation_share: float = 0.1  # of the whole budget, at its end, where contenders may be run again; 0: never
    reevaluation_gain: float = 0.02  # least gain, in units of z, for which one is
    failure_model: bool = True  # where trials failed, others are expected to
    failures_allowed: int = 5  # from so many failures on, and ...
    failure_share: float = 0.25  # ... above this share of all trials, a candidate must be likely to give a score
    num_uniform: int = 400  # candidates over the whole box
    num_local: int = 600  # candidates around the front, the top few and the user's own config
    num_rungs: int = 16  # candidates along the cost parameter, for each center
    num_centers: int = 12
    num_refined: int = 6  # best candidates that each round of refinement starts from
    num_refinements: int = 32  # candidates around each of them
    refine_widths: tuple[float, ...] = (0.1, 0.03)
