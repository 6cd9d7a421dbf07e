"""When the step size of `wsd` (warm-up, stable, decay) begins to fall, and until when a longer run can go on.

Source: Hu et al. 2024, "MiniCPM", section 4.2.
"""

from ..config_rules import TrainSettings


def decay_is_next(settings: TrainSettings, total_steps: int, steps: int, *, next_size: int, full_size: int) -> bool:
    """Whether the step size of `wsd` begins to fall in the batch after `steps`, which goes by its middle.

    Args:
        settings: of the run.
        total_steps: that it will make.
        steps: that are made.
        next_size: steps of the batch that comes next; what the last one has beyond the run's end does not count.
        full_size: steps of every batch but the last one.
    """
    begins = (1 - settings.decay_fraction) * total_steps
    middle = steps + 0.5 * min(next_size, total_steps - steps)
    return settings.lr_schedule == "wsd" and steps - 0.5 * full_size <= begins < middle


def rate_stays(settings: TrainSettings, progress: float) -> bool:
    """Whether the step size has not fallen until `progress`, in [0, 1], so that a longer run can go on from there."""
    # With a `decay_fraction` of 0, or of less than half a batch, that of `wsd` never falls.
    return settings.lr_schedule == "constant" or (
        settings.lr_schedule == "wsd" and progress <= 1 - settings.decay_fraction
    )
