"""Muon: momentum, whose matrix is orthogonalised before it is applied.

It does what `torch.optim.Muon` does, with `adjust_lr_fn="match_rms_adamw"`, on all small matrices of one shape at once:
they cost calls rather than arithmetic. For 16 matrices of width 64 a step takes less than half of the time, and the
class around torch's need not be loaded (see `adamw.py`).

Notation: `N` matrices of `r x c`.

Source: Jordan et al. 2024, "Muon: an optimizer for hidden layers in neural networks", with its coefficients; the scale,
which makes a step as large as AdamW's: Liu et al. 2025, "Muon is scalable for LLM training", section 2.2.
"""

import math
from collections.abc import Callable, Mapping

import torch

from ..machine.precision import has_bf16_products
from .groups import Group

COEFFICIENTS = 3.4445, -4.7750, 2.0315  # of the quintic; chosen for its slope at 0, not to reach 1 exactly
ITERATIONS = 5
EPSILON = 1e-7
BATCHED_SIDE = 256  # on the CPU: from this smaller side on, one matrix after the other is faster than a batch of them
ADAM_RMS = 0.2  # root mean square of AdamW's usual step

State = dict[str, torch.Tensor]


class Muon:
    """Trains one group of matrices. Its state is that of torch's class, parameter by parameter."""

    def __init__(self, group: Group) -> None:
        """The parameters are on their final device."""
        self.group, self.learning_rate = group, group.learning_rate
        stacked = [group.stacked] * len(group.parameters) if isinstance(group.stacked, int) else group.stacked
        together: dict[tuple[torch.Size, int, int], list[int]] = {}
        for number, (parameter, count) in enumerate(zip(group.parameters, stacked, strict=True)):
            assert parameter.ndim == 2 and parameter.shape[0] % count == 0
            rows, columns = parameter.shape[0] // count, parameter.shape[1]
            alone = _one_by_one(parameter.device, min(rows, columns))
            together.setdefault((parameter.shape, count, number if alone else -1), []).append(number)
        self._batches = list(together.values())
        self._stacked = [count for _, count, _ in together]
        self._momenta: list[torch.Tensor] = []  # of each batch, `parameters x rows x columns`

    @torch.no_grad()
    def step(self) -> None:
        """Takes a step with the parameters' gradients."""
        group, momentum = self.group, self.group.betas[0]
        if not self._momenta:
            self._make_momenta()
        for numbers, buffer, stacked in zip(self._batches, self._momenta, self._stacked, strict=True):
            parameters: list[torch.Tensor] = [group.parameters[n] for n in numbers]
            gradients = torch.stack([_gradient(parameter) for parameter in parameters])
            buffer.lerp_(gradients, 1 - momentum)
            update = gradients.lerp_(buffer, momentum)
            rows, columns = buffer.shape[1] // stacked, buffer.shape[2]
            update = orthogonalised(update.view(-1, rows, columns)).view_as(buffer).to(buffer.dtype)
            if group.weight_decay:
                torch._foreach_mul_(parameters, 1 - self.learning_rate * group.weight_decay)
            scale = ADAM_RMS * math.sqrt(max(rows, columns))
            torch._foreach_add_(parameters, update.unbind(), alpha=-self.learning_rate * scale)

    def state_bytes(self) -> int:
        """Returns the size of `state` after a step."""
        return sum(parameter.numel() * parameter.element_size() for parameter in self.group.parameters)

    def state(self) -> dict[int, State]:
        """Returns what the next step depends on, by the parameter's number; empty before the first step."""
        return {
            number: {"momentum_buffer": matrix}
            for numbers, buffer in zip(self._batches, self._momenta, strict=False)
            for number, matrix in zip(numbers, buffer.unbind(), strict=True)
        }

    def set_state(self, state: Mapping[int, State]) -> None:
        """Restores a `state` whose shapes fit."""
        if not state:
            self._momenta = []
            return
        self._make_momenta()
        for numbers, buffer in zip(self._batches, self._momenta, strict=True):
            for number, matrix in zip(numbers, buffer.unbind(), strict=True):
                matrix.copy_(state[number]["momentum_buffer"])

    def _make_momenta(self) -> None:
        parameters = self.group.parameters
        self._momenta = [torch.zeros_like(torch.stack([parameters[n].detach() for n in ns])) for ns in self._batches]


def orthogonalised(matrices: torch.Tensor) -> torch.Tensor:
    """Returns nearly the nearest matrix with orthonormal rows or columns to each: singular values from 0.7 to 1.2.

    Args:
        matrices: `N x r x c`.

    Returns:
        `N x r x c`, in bfloat16 where the device has products of it (the iteration bears its rounding), else float32.
    """
    dtype = torch.bfloat16 if has_bf16_products(matrices.device) else torch.float32
    tall = matrices.shape[1] > matrices.shape[2]
    flat = (matrices.mT if tall else matrices).to(dtype).contiguous()  # or each product would copy it
    flat = flat / flat.norm(dim=(1, 2), keepdim=True).clamp(min=EPSILON)  # so no singular value is above 1
    if _one_by_one(flat.device, flat.shape[1]):
        flat = torch.stack([_iterated(matrix, torch.addmm) for matrix in flat.unbind()])
    else:
        flat = _iterated(flat, torch.baddbmm)
    return (flat.mT if tall else flat).contiguous()


def _one_by_one(device: torch.device, smaller_side: int) -> bool:
    """Whether matrices are so large that one after the other is faster: what is between its steps stays in a cache."""
    return device.type == "cpu" and smaller_side >= BATCHED_SIDE


def _iterated(x: torch.Tensor, added_product: Callable[..., torch.Tensor]) -> torch.Tensor:
    """Applies the quintic to the singular values: a s + b s^3 + c s^5."""
    a, b, c = COEFFICIENTS
    for _ in range(ITERATIONS):
        gram = x @ x.mT
        x = added_product(x, added_product(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x


def _gradient(parameter: torch.Tensor) -> torch.Tensor:
    assert parameter.grad is not None
    return parameter.grad
