"""Distributions over actions, read from rows of the network's output; sampling, log-probabilities and derivatives.

Notation: `rows` of the output that a distribution reads, `K` components of an action, `B` samples; any batch shape
`...` may stand for `B`. Everything is feature-major, `rows x ...`: one contiguous row per logit.

A `Discrete` action has one categorical component, or several independent ones, with logits z and probabilities p:
    d log p(a) / d z_k = [k = a] - p_k                d H / d z_k = -p_k (log p_k + H)
A `Gaussian` action is a normal with a mean mu (rows 0 .. K-1) and a log standard deviation s (rows K .. 2K-1), where
u = (a - mu) / exp(s):
    d log p(a) / d mu = u / exp(s)                    d log p(a) / d s = u^2 - 1                    d H / d s = 1
The environment clips what lies outside [-1, 1]; the probability is that of the action before clipping.
"""

import math
from collections.abc import Sequence
from typing import Protocol

import torch

from ...envs_c import EnvSpec
from ..kernels import sample

HALF_LOG_TAU = 0.5 * math.log(2 * math.pi)


class Terms:
    """Log-probabilities `logp` and entropies `entropy` of a minibatch, both `B`, and what their derivatives need."""

    __slots__ = ("entropy", "logp", "saved")

    def __init__(self, logp: torch.Tensor, entropy: torch.Tensor, saved: Sequence[tuple[torch.Tensor, ...]]) -> None:
        self.logp = logp
        self.entropy = entropy
        self.saved = saved


class Distribution(Protocol):
    """`rows` of output, `noise_rows` of noise a sample, `components` of an action of type `dtype`."""

    rows: int
    noise_rows: int
    components: int
    dtype: torch.dtype

    def fill_noise_(self, noise: torch.Tensor, generator: torch.Generator) -> None:
        """Fills any tensor with the noise that `sample` needs."""

    def sample(self, output: torch.Tensor, noise: torch.Tensor, actions: torch.Tensor, logprobs: torch.Tensor) -> None:
        """Writes draws, `B x K`, and their log-probabilities, `B`, given `rows x B` and noise `noise_rows x B`."""

    def mode(self, output: torch.Tensor) -> torch.Tensor:
        """Returns the most probable actions, `B x K`."""

    def terms(self, output: torch.Tensor, actions: torch.Tensor) -> Terms:
        """Computes log-probabilities and entropies of actions `K x B`."""

    def gradient_(
        self, terms: Terms, by_logp: torch.Tensor, by_entropy: torch.Tensor | float, out: torch.Tensor
    ) -> None:
        """Writes d loss / d output, `rows x B`, given d loss / d log-probability and d loss / d entropy."""


class Discrete:
    """One or several categorical components of `sizes` choices each."""

    dtype = torch.int32

    def __init__(self, sizes: tuple[int, ...]) -> None:
        self.sizes = list(sizes)
        self.rows = sum(sizes)
        self.noise_rows = self.components = len(sizes)

    def fill_noise_(self, noise: torch.Tensor, generator: torch.Generator) -> None:
        noise.uniform_(generator=generator)

    def sample(self, output: torch.Tensor, noise: torch.Tensor, actions: torch.Tensor, logprobs: torch.Tensor) -> None:
        if self.components == 1:
            sample(output, noise[0], actions[:, 0], logprobs)
            return
        logprobs.zero_()
        of_component = torch.empty_like(logprobs)
        for index, logits in enumerate(torch.split(output, self.sizes)):
            sample(logits, noise[index].contiguous(), actions[:, index], of_component)
            logprobs.add_(of_component)

    def mode(self, output: torch.Tensor) -> torch.Tensor:
        parts = [part.argmax(dim=0) for part in torch.split(output, self.sizes)]
        return torch.stack(parts, dim=1).to(self.dtype)

    def terms(self, output: torch.Tensor, actions: torch.Tensor) -> Terms:
        logp, entropy, saved = None, None, []
        for index, logits in enumerate(torch.split(output, self.sizes)):
            logp_all = torch.log_softmax(logits, dim=0)
            p = logp_all.exp()
            plogp = p * logp_all
            own_entropy = plogp.sum(dim=0).neg_()
            action = actions[index : index + 1].long()
            taken = logp_all.gather(0, action).squeeze(0)
            logp = taken if logp is None else logp + taken
            entropy = own_entropy if entropy is None else entropy + own_entropy
            saved.append((p, plogp, own_entropy, action))
        assert logp is not None and entropy is not None
        return Terms(logp, entropy, saved)

    def gradient_(
        self, terms: Terms, by_logp: torch.Tensor, by_entropy: torch.Tensor | float, out: torch.Tensor
    ) -> None:
        by_logp = by_logp.unsqueeze(0)
        for part, (p, plogp, entropy, action) in zip(torch.split(out, self.sizes), terms.saved, strict=True):
            torch.addcmul(plogp, p, entropy.unsqueeze(0), out=part)
            part.mul_(-by_entropy).addcmul_(p, by_logp, value=-1)
            part.scatter_add_(0, action, by_logp)


class Gaussian:
    """`components` independent normals."""

    dtype = torch.float32

    def __init__(self, components: int) -> None:
        self.rows = 2 * components
        self.noise_rows = self.components = components

    def fill_noise_(self, noise: torch.Tensor, generator: torch.Generator) -> None:
        noise.normal_(generator=generator)

    def sample(self, output: torch.Tensor, noise: torch.Tensor, actions: torch.Tensor, logprobs: torch.Tensor) -> None:
        mean, log_std = output[: self.components], output[self.components :]
        actions.copy_(torch.addcmul(mean, log_std.exp(), noise).t())
        logprobs.copy_((noise.square() * -0.5 - log_std).sum(dim=0) - self.components * HALF_LOG_TAU)

    def mode(self, output: torch.Tensor) -> torch.Tensor:
        return output[: self.components].t().contiguous()

    def terms(self, output: torch.Tensor, actions: torch.Tensor) -> Terms:
        mean, log_std = output[: self.components], output[self.components :]
        inverse = log_std.neg().exp()
        u = (actions - mean) * inverse
        logp = (u.square() * -0.5 - log_std).sum(dim=0) - self.components * HALF_LOG_TAU
        entropy = log_std.sum(dim=0) + self.components * (0.5 + HALF_LOG_TAU)
        return Terms(logp, entropy, [(u, inverse)])

    def gradient_(
        self, terms: Terms, by_logp: torch.Tensor, by_entropy: torch.Tensor | float, out: torch.Tensor
    ) -> None:
        ((u, inverse),) = terms.saved
        torch.mul(u, inverse, out=out[: self.components]).mul_(by_logp)
        torch.sub(u.square(), 1.0, out=out[self.components :]).mul_(by_logp).add_(by_entropy)


def distribution_of(spec: EnvSpec) -> Distribution:
    """Returns the distribution for an environment's actions."""
    return Gaussian(spec.continuous_actions) if spec.continuous_actions else Discrete(spec.action_sizes)
