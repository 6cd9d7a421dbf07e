"""The step size over a run: warm-up, then constant or falling, to a floor.

Source: the schedule of warm-up, stable and decay: Hu et al. 2024, "MiniCPM", section 4.2.
"""

import math

from ..config_rules import TrainSettings


def rate_share(settings: TrainSettings, progress: float, final_fraction: float = 0.0) -> float:
    """Returns the share of the largest step size after the fraction `progress`, in [0, 1], of the run.

    It rises linearly over `warmup_fraction`, then follows the schedule over the rest. With `wsd` (warm-up, stable,
    decay) it is constant until the last `decay_fraction` of the run. `final_fraction`: the share at which it ends.
    """
    warmup = settings.warmup_fraction
    if progress < warmup:
        return progress / warmup
    if settings.lr_schedule == "constant" or warmup >= 1:
        return 1.0
    along = (progress - warmup) / (1 - warmup)
    if settings.lr_schedule == "wsd":
        left = min((1 - progress) / max(settings.decay_fraction, 1e-12), 1.0)
    elif settings.lr_schedule == "linear":
        left = 1 - along
    else:
        left = 0.5 * (1 + math.cos(math.pi * along))
    return final_fraction + (1 - final_fraction) * left
