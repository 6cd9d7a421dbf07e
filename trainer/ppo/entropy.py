"""The weight of the entropy bonus: constant, along a straight line, or adapted to a target.

Adapted, the weight c rises while the policy's entropy H is below the target H* and falls while it is above it:
    log c  <-  log c + `RATE` clip(H* - H, -1, 1)        within [`LEAST`, `MOST`], once an update
H is that of the update's last minibatch, in nats, summed over the components of an action. That of continuous actions
may be negative.

Source: the dual ascent on a constraint of entropy in Haarnoja et al. 2018, "Soft actor-critic algorithms and
applications", section 5, here with steps of bounded size in the logarithm, because an update of PPO comes seldom.
"""

from collections.abc import Mapping

import torch

from ..config import TrainConfig

RATE = 0.2  # at most a factor of 1.22 an update: from the usual .01 to `LEAST` or `MOST` in 25 to 46 of them
LEAST, MOST = 1e-6, 1.0


class EntropyBonus:
    """The weight in the present update. `adapts`: whether it depends on the entropies of earlier ones."""

    def __init__(self, config: TrainConfig) -> None:
        self._config = config
        self.adapts = bool(config.target_entropy)
        # A tensor of float64, so that a resumed run continues with the very number.
        self._log = torch.tensor(max(config.ent_coef, LEAST), dtype=torch.float64).log()

    def coefficient(self, progress: float) -> float:
        """Returns the weight after the fraction `progress`, in [0, 1], of the run."""
        config = self._config
        if self.adapts:
            return float(self._log.exp())
        if config.ent_coef_final < 0 or config.ent_coef_final == config.ent_coef:
            return config.ent_coef
        return config.ent_coef + (config.ent_coef_final - config.ent_coef) * progress

    def adapt(self, entropy: float) -> None:
        """Moves the weight after an update that ended with this entropy."""
        if self.adapts:
            gap = torch.tensor(self._config.target_entropy - entropy, dtype=torch.float64).clamp(-1.0, 1.0)
            limits = torch.tensor([LEAST, MOST], dtype=torch.float64).log()
            self._log = (self._log + RATE * gap).clamp(limits[0], limits[1])

    def state(self) -> dict[str, torch.Tensor]:
        """Returns what the next weight depends on; nothing where it does not adapt."""
        return {"entropy.log_coefficient": self._log} if self.adapts else {}

    def set_state(self, state: Mapping[str, torch.Tensor]) -> None:
        """Restores a `state`. One of a run that did not adapt leaves the weight where it begins."""
        if self.adapts and "entropy.log_coefficient" in state:
            self._log = state["entropy.log_coefficient"].clone()
