"""Proximal policy optimisation: the clipped loss, its gradient in closed form, and the update.

Notation, for a minibatch of `B` samples and `A` actions, everything feature-major (`A x B` logits, rows of `B`):
    z, p        logits and probabilities            pi, pi_old   probability of the action taken, now and then
    r = pi / pi_old                                 g            advantage (normalised)
    v, v_old, R value now, value then, its target   H            entropy of p
The loss, averaged over the minibatch, is
    max(-r g, -clip(r, 1 - c, 1 + c) g)  +  c_v / 2 max((v - R)^2, (v_old + clip(v - v_old, -d, d) - R)^2)  -  c_H H
whose derivatives are short:
    d/dz_k = w ([k = action] - p_k) + c_H p_k (log p_k + H),   w = -r g where the clip does not cut, else 0
    d/dv   = c_v (v - R) where the clip does not cut; where it does, 0
Handing these to the network's backward pass takes half the kernels that differentiating the loss would, and on small
networks kernels are what an update costs. `tests/test_trainer_ppo.py` holds them to automatic differentiation.

Source: Schulman et al. 2017, "Proximal policy optimization algorithms", eq. 7 and 9; value clipping and initial
settings: Huang et al. 2022, "The 37 implementation details of PPO".
"""

import dataclasses
import logging
import math
import time
from collections.abc import Mapping

import torch
from torch import nn

from trainer.config import TrainConfig
from trainer.errors import DivergedError
from trainer.policy import FlatGradients, MLPPolicy
from trainer.precision import autocast
from trainer.rollout import Batch


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Coefficients:
    """The loss's weights and ranges; `clip_value` 0 means that the value loss is not clipped."""

    clip: float
    clip_value: float
    value: float
    entropy: float


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Minibatch:
    """`B` samples: all `B`, actions int64, the rest float."""

    actions: torch.Tensor
    logprobs: torch.Tensor
    values: torch.Tensor
    advantages: torch.Tensor
    returns: torch.Tensor


def loss_gradient(output: torch.Tensor, batch: Minibatch, c: Coefficients) -> torch.Tensor:
    """Returns the derivative of the loss with respect to the network's output, both `(A + 1) x B`."""
    size = output.shape[1]
    logits, value = output[:-1], output[-1]
    logp = torch.log_softmax(logits, dim=0)
    p = logp.exp()
    plogp = p * logp
    entropy = plogp.sum(dim=0).neg_()
    action = batch.actions.unsqueeze(0)
    ratio = (logp.gather(0, action).squeeze(0) - batch.logprobs).exp_()
    weight = torch.mul(ratio, batch.advantages)
    # Where the clipped surrogate is the smaller one it is a constant. At equality nothing is cut: r is in range.
    uncut = weight <= ratio.clamp_(1 - c.clip, 1 + c.clip).mul_(batch.advantages)
    weight.mul_(uncut).mul_(-1 / size)
    gradient = torch.empty_like(output)
    by_logit = gradient[:-1]
    torch.addcmul(plogp, p, entropy.unsqueeze(0), out=by_logit)
    by_logit.mul_(c.entropy / size).addcmul_(p, weight.unsqueeze(0), value=-1)
    by_logit.scatter_add_(0, action, weight.unsqueeze(0))
    by_value = torch.sub(value, batch.returns, out=gradient[-1])
    if c.clip_value:
        moved = value - batch.values
        clipped = moved.clamp(-c.clip_value, c.clip_value)
        # Where the clip changes the value, it counts only if the clipped error is the larger one, and it is a constant.
        by_value.mul_((clipped == moved) | (by_value.square() >= (batch.values + clipped - batch.returns).square()))
    by_value.mul_(c.value / size)
    return gradient


def loss_terms(output: torch.Tensor, batch: Minibatch, c: Coefficients) -> dict[str, torch.Tensor]:
    """Returns the loss and what is worth watching in it, as scalars on the device (differentiable, for the tests).

    `loss`, `policy_loss`, `value_loss`, `entropy`, `approx_kl` (Schulman's low-variance estimate), `clip_fraction`
    and `explained_variance` of the returns by the old values.
    """
    logp_all = torch.log_softmax(output[:-1], dim=0)
    value = output[-1]
    log_ratio = logp_all.gather(0, batch.actions.unsqueeze(0)).squeeze(0) - batch.logprobs
    ratio = log_ratio.exp()
    clipped = ratio.clamp(1 - c.clip, 1 + c.clip)
    policy_loss = torch.max(-ratio * batch.advantages, -clipped * batch.advantages).mean()
    error = (value - batch.returns).square()
    if c.clip_value:
        near = batch.values + (value - batch.values).clamp(-c.clip_value, c.clip_value)
        error = torch.max(error, (near - batch.returns).square())
    value_loss = 0.5 * error.mean()
    entropy = -(logp_all.exp() * logp_all).sum(dim=0).mean()
    variance = batch.returns.var(correction=0)
    return {
        "loss": policy_loss + c.value * value_loss - c.entropy * entropy,
        "policy_loss": policy_loss,
        "value_loss": value_loss,
        "entropy": entropy,
        "approx_kl": ((ratio - 1) - log_ratio).mean(),
        "clip_fraction": ((ratio - 1).abs() > c.clip).float().mean(),
        "explained_variance": 1 - (batch.returns - batch.values).var(correction=0) / variance.clamp_min(1e-12),
    }


def scheduled_rate(kind: str, rate: float, progress: float) -> float:
    """Returns the step size after the fraction `progress`, in [0, 1], of the run."""
    if kind == "constant":
        return rate
    return rate * (1 - progress if kind == "linear" else 0.5 * (1 + math.cos(math.pi * progress)))


class PPO:
    """Holds the optimiser and carries out updates."""

    def __init__(
        self, policy: MLPPolicy, config: TrainConfig, *, device: torch.device, generator: torch.Generator
    ) -> None:
        """`generator` (on the CPU) shuffles. The policy's parameters move into one vector: see `FlatGradients`."""
        self._config = config
        self._device = device
        self._generator = generator
        self._gradients = FlatGradients(policy)
        self._coefficients = Coefficients(
            clip=config.clip_coef, clip_value=config.vf_clip_coef, value=config.vf_coef, entropy=config.ent_coef
        )
        self.compiled = False
        self.optimizer = torch.optim.Adam(
            [self._gradients.weights],
            lr=config.learning_rate,
            betas=(config.beta1, config.beta2),
            eps=config.adam_eps,
            fused=device.type in ("cpu", "cuda"),
        )

    def state(self) -> dict[str, torch.Tensor]:
        """Returns all that the next `update` depends on, apart from the weights."""
        adam: dict[str, torch.Tensor] = self.optimizer.state_dict()["state"].get(0, {})
        return {"shuffle_generator": self._generator.get_state(), **{f"adam.{name}": t for name, t in adam.items()}}

    def set_state(self, state: Mapping[str, torch.Tensor]) -> None:
        """Goes on where `state` was taken. Raises KeyError where something is missing."""
        self._generator.set_state(state["shuffle_generator"])
        adam = {name.removeprefix("adam."): tensor for name, tensor in state.items() if name.startswith("adam.")}
        groups = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict({"state": {0: adam} if adam else {}, "param_groups": groups})

    def compile(self, features: int) -> float:
        """Compiles the network's forward and backward pass; returns the seconds that it took.

        Where that fails (no compiler, an unsupported system), training goes on without, and `compiled` stays False.
        """
        began = time.perf_counter()
        eager = self._gradients.forward
        try:
            self._gradients.forward = torch.compile(eager)
            example = torch.zeros(self._config.minibatch_size, features, device=self._device)
            self._gradients.by_autograd(example, torch.zeros_like, autocast(self._device, self._config.precision))
            self.compiled = True
        except Exception as error:  # torch.compile raises whatever its many parts do
            logging.getLogger(__name__).warning("torch.compile failed, going on without it: %s", error)
            self._gradients.forward = eager
        return time.perf_counter() - began

    def update(self, batch: Batch, progress: float) -> dict[str, float]:
        """Goes over the batch `update_epochs` times in shuffled minibatches; returns the figures of the last one.

        Raises:
            DivergedError: a gradient, the loss or a weight is not finite. It is looked at once per update.
        """
        config = self._config
        for group in self.optimizer.param_groups:
            group["lr"] = scheduled_rate(config.lr_schedule, config.learning_rate, progress)
        advantages = batch.advantages
        if config.normalize_advantages and len(batch) > 1:
            deviation, mean = torch.std_mean(advantages, correction=0)
            advantages = (advantages - mean) / (deviation + 1e-8)
        columns = (batch.actions, batch.logprobs, batch.values, advantages, batch.returns)
        norms = torch.zeros((), device=self._device)
        terms: dict[str, torch.Tensor] = {}
        for epoch in range(config.update_epochs):
            order = torch.randperm(len(batch), generator=self._generator).to(self._device)
            observations = batch.observations.index_select(0, order)
            shuffled = [column.index_select(0, order) for column in columns]
            for start in range(0, len(batch), config.minibatch_size):
                end = min(start + config.minibatch_size, len(batch))
                last = end == len(batch) and epoch == config.update_epochs - 1
                minibatch = Minibatch(**dict(zip(_COLUMNS, (c[start:end] for c in shuffled), strict=True)))
                norms += self._step(observations[start:end], minibatch, terms if last else None)
        figures = torch.stack([*terms.values(), norms, self._gradients.weights.detach().sum()]).tolist()
        if not all(map(math.isfinite, figures)):
            raise DivergedError("a loss, gradient or weight is not finite: lower train.learning_rate or max_grad_norm")
        return dict(zip(terms, figures, strict=False))

    def _step(
        self, observations: torch.Tensor, minibatch: Minibatch, terms: dict[str, torch.Tensor] | None
    ) -> torch.Tensor:
        """Takes one step of the optimiser; returns the gradient's norm and fills `terms` where it is given."""

        def gradient_of(output: torch.Tensor) -> torch.Tensor:
            if terms is not None:
                terms.update(loss_terms(output, minibatch, self._coefficients))
            return loss_gradient(output, minibatch, self._coefficients)

        if self._config.precision == "fp32" and not self.compiled:
            self._gradients.by_chain_rule(observations, gradient_of)
        else:
            context = autocast(self._device, self._config.precision)
            self._gradients.by_autograd(observations, gradient_of, context)
        norm = nn.utils.clip_grad_norm_(self._gradients.weights, self._config.max_grad_norm)
        self.optimizer.step()
        return norm


_COLUMNS = ("actions", "logprobs", "values", "advantages", "returns")
