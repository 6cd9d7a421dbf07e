"""Generalised advantage estimation over a rollout of `horizon x num_agents`.

An episode that TERMINATED is worth nothing afterwards; one that was TRUNCATED (time limit) would have gone on, so the
value of its final observation stands in for the rest. At the rollout's last step the value of the next observation
does. Across either end of an episode nothing flows back from the next one.

Source: Schulman et al. 2016, "High-dimensional continuous control using generalized advantage estimation", eq. 16;
Pardo et al. 2018, "Time limits in reinforcement learning", for truncation.
"""

import torch


def bootstrap_truncations_(
    rewards: torch.Tensor, truncated: torch.Tensor, final_values: torch.Tensor, gamma: float
) -> None:
    """Adds to the reward of each truncated step the discounted value of its episode's final observation.

    Args:
        rewards: `horizon x num_agents`, contiguous; written in place.
        truncated: `count` flat indices into `rewards`, int64, each at most once.
        final_values: `count`, the value function at the final observations.
        gamma: the discount, in [0, 1].
    """
    rewards.view(-1).index_add_(0, truncated, final_values, alpha=gamma)


def gae(
    rewards: torch.Tensor, values: torch.Tensor, ends: torch.Tensor, *, gamma: float, gae_lambda: float
) -> torch.Tensor:
    """Returns the advantages, `horizon x num_agents`.

    Args:
        rewards: `horizon x num_agents`, truncated steps already bootstrapped by `bootstrap_truncations_`.
        values: `(horizon + 1) x num_agents`, of each step's observation and of the one after the last step.
        ends: `horizon x num_agents`, bool: the episode ended at this step, by termination or truncation.
        gamma: the discount, in [0, 1].
        gae_lambda: the weight of longer returns, in [0, 1].
    """
    continues = ends.logical_not().to(rewards.dtype)
    advantages = torch.addcmul(rewards, continues, values[1:], value=gamma).sub_(values[:-1])
    decay = continues.mul_(gamma * gae_lambda)
    rows, decays = advantages.unbind(0), decay.unbind(0)
    # The recursion A[t] = delta[t] + decay[t] A[t+1] is all that cannot be done for the whole rollout at once.
    for t in range(len(rows) - 2, -1, -1):
        rows[t].addcmul_(decays[t], rows[t + 1])
    return advantages
