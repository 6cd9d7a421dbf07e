"""What the rows of the network's output mean: a distribution over actions, and a value.

Notation: `rows` of the output that a distribution reads, `K` components of an action, `B` samples; any batch shape
`...` may stand for `B`. Everything is feature-major, `rows x ...`: one contiguous row per logit.

A `Discrete` action has one categorical component, or several independent ones, with logits z and probabilities p:
    d log p(a) / d z_k = [k = a] - p_k                d H / d z_k = -p_k (log p_k + H)
A `Gaussian` action is a normal with a mean mu (rows 0 .. K-1) and a log standard deviation s (rows K .. 2K-1), where
u = (a - mu) / exp(s):
    d log p(a) / d mu = u / exp(s)                    d log p(a) / d s = u^2 - 1                    d H / d s = 1
The environment clips what lies outside [-1, 1]; the probability is that of the action before clipping.

The value is one number, or a categorical distribution over returns. Its bins are dense near 0 and far apart at the
ends, symexp of an even grid, so that one setting serves small and large returns. The value is the mean of the bins.
The losses are in `protein.trainer.ppo.loss`.

Source: categorical values: Bellemare et al. 2017, "A distributional perspective on reinforcement learning"; two-hot
targets on symexp bins: Hafner et al. 2023, "Mastering diverse domains through world models", eq. 9 to 11.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import torch

from protein.envs_c import EnvSpec

from ..kernels import sample

HALF_LOG_TAU = 0.5 * math.log(2 * math.pi)


class Terms(NamedTuple):
    """Log-probabilities `logp` and entropies `entropy` of a minibatch, both `B`, and what their derivatives need."""

    logp: torch.Tensor
    entropy: torch.Tensor
    saved: Sequence[tuple[torch.Tensor, ...]]


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


class ScalarValue:
    """The value itself: `rows` of output, which `decode` maps from `rows x ...` to values `...`."""

    rows = 1

    def decode(self, output: torch.Tensor) -> torch.Tensor:
        return output[0]


class CategoricalValue:
    """A distribution over `bins` returns from -limit to limit; returns beyond count as the outermost bin."""

    def __init__(self, bins: int, limit: float) -> None:
        self.rows = bins
        half = math.log1p(limit)
        grid = torch.linspace(-half, half, bins, dtype=torch.float64)
        support = grid.sign() * grid.abs().expm1()
        self._support = support.float()

    def decode(self, output: torch.Tensor) -> torch.Tensor:
        support = self._on(output.device).view(-1, *[1] * (output.ndim - 1))
        # Not as a matrix product, which autocast would take in half precision.
        return (torch.softmax(output.float(), dim=0) * support).sum(dim=0)

    def two_hot(self, targets: torch.Tensor) -> torch.Tensor:
        """Returns the distribution `rows x B` on the two bins around each target, `B`, whose mean the target is."""
        support = self._on(targets.device)
        inside = targets.clamp(support[0], support[-1]).contiguous()
        above = torch.searchsorted(support, inside).clamp(1, self.rows - 1)
        low, high = support[above - 1], support[above]
        share = (inside - low) / (high - low)
        spread = targets.new_zeros(self.rows, len(targets))
        spread.scatter_(0, (above - 1).unsqueeze(0), (1 - share).unsqueeze(0))
        return spread.scatter_(0, above.unsqueeze(0), share.unsqueeze(0))

    def _on(self, device: torch.device) -> torch.Tensor:
        if self._support.device != device:
            self._support = self._support.to(device)
        return self._support
