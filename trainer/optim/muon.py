"""Muon: momentum, whose matrix is orthogonalised before it is applied. For matrices between hidden layers.

Its step is scaled to the size of AdamW's, so that one learning rate can serve both.

Source: Jordan et al. 2024, "Muon: an optimizer for hidden layers in neural networks", with its coefficients; its scale:
Liu et al. 2025, "Muon is scalable for LLM training", section 2.2.
"""

import math
from collections.abc import Callable, Sequence

import torch
from torch import nn

from ..machine.precision import has_bf16_products
from .optimizer import Part, gradient_of

COEFFICIENTS = 3.4445, -4.7750, 2.0315  # of the quintic; chosen for its slope at 0, not to reach 1 exactly
ITERATIONS = 5
EPSILON = 1e-7
BATCHED_SIDE = 256  # on the CPU: from this smaller side on, one matrix after the other is faster than a batch of them
ADAM_RMS = 0.2  # root mean square of AdamW's usual step


class Muon(Part):
    """Trains some matrices as `torch.optim.Muon` does with `adjust_lr_fn="match_rms_adamw"`, with the same state.

    All small matrices of one shape take their step at once: they cost calls rather than arithmetic. For 16 matrices of
    width 64 a step takes less than half of the time of torch's class.
    """

    def __init__(
        self,
        parameters: Sequence[nn.Parameter],
        *,
        learning_rate: float,
        weight_decay: float = 0.0,
        momentum: float = 0.95,
        stacked: Sequence[int] | None = None,
    ) -> None:
        """Begins with momenta of zero.

        Args:
            parameters: matrices, on their final device.
            learning_rate: largest step size.
            weight_decay: per unit of the step size.
            momentum: the decay of the gradient's running mean.
            stacked: of each parameter, how many matrices of equal shape lie above each other in it: each is
                orthogonalised alone. None: one.
        """
        super().__init__(learning_rate, parameters[0].device)
        self._momentum = momentum
        self._keeps = self._follows(-weight_decay, 1.0) if weight_decay else None
        together: dict[tuple[torch.Size, int, int], list[int]] = {}
        for number, parameter in enumerate(parameters):
            count = 1 if stacked is None else stacked[number]
            assert parameter.ndim == 2 and parameter.shape[0] % count == 0
            rows, columns = parameter.shape[0] // count, parameter.shape[1]
            alone = _one_by_one(parameter.device, min(rows, columns))
            together.setdefault((parameter.shape, count, number if alone else -1), []).append(number)
        # Of each batch the parameters, their momenta `parameters x rows x columns`, how many each stacks, and minus the
        # length of the step.
        self._batches: list[tuple[list[nn.Parameter], torch.Tensor, int, torch.Tensor]] = []
        momenta: dict[int, torch.Tensor] = {}
        for (_, count, _), numbers in together.items():
            some = [parameters[number] for number in numbers]
            momentums = torch.zeros_like(torch.stack([parameter.detach() for parameter in some]))
            scale = ADAM_RMS * math.sqrt(max(momentums.shape[1] // count, momentums.shape[2]))
            self._batches.append((some, momentums, count, self._follows(-scale)))
            momenta |= dict(zip(numbers, momentums.unbind(), strict=True))
        self.states = [{"momentum_buffer": momenta[number]} for number in range(len(parameters))]

    @torch.no_grad()
    def step(self) -> None:
        """Takes a step with the parameters' gradients."""
        for parameters, momenta, stacked, moves in self._batches:
            gradients = torch.stack([gradient_of(parameter) for parameter in parameters])
            momenta.lerp_(gradients, 1 - self._momentum)
            update = gradients.lerp_(momenta, self._momentum)
            rows, columns = momenta.shape[1] // stacked, momenta.shape[2]
            update = orthogonalised(update.view(-1, rows, columns)).view_as(momenta).to(momenta.dtype)
            weights: list[torch.Tensor] = list(parameters)
            if self._keeps is not None:
                torch._foreach_mul_(weights, self._keeps)
            torch._foreach_addcmul_(weights, update.unbind(), [moves] * len(weights))


def orthogonalised(matrices: torch.Tensor) -> torch.Tensor:
    """Returns nearly the nearest matrix with orthonormal rows or columns to each: singular values from 0.7 to 1.2.

    Args:
        matrices: `N` of them, `N x r x c`.

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
