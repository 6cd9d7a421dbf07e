"""From gradients to new weights, whatever the loss: AdamW or Muon for each group of parameters, and loss scaling.

Muon's step is scaled to the size of AdamW's, so that one learning rate can serve both. What `torch.optim` has would do
the same, but its classes load torch's compiler the first time that one is used: 816 modules, 70 MB and over a second of
every run's start. The function that AdamW's class calls in the end does not.

Source: AdamW: Loshchilov and Hutter 2019, "Decoupled weight decay regularization"; Muon: Jordan et al. 2024, "Muon: an
optimizer for hidden layers in neural networks", with its coefficients; its scale: Liu et al. 2025, "Muon is scalable
for LLM training", section 2.2; loss scaling: Micikevicius et al. 2018, "Mixed precision training", section 3.2.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import torch
from torch import nn
from torch.optim.adamw import adamw

from ..machine.precision import has_bf16_products

# Muon
COEFFICIENTS = 3.4445, -4.7750, 2.0315  # of the quintic; chosen for its slope at 0, not to reach 1 exactly
ITERATIONS = 5
EPSILON = 1e-7
BATCHED_SIDE = 256  # on the CPU: from this smaller side on, one matrix after the other is faster than a batch of them
ADAM_RMS = 0.2  # root mean square of AdamW's usual step
# Loss scaling
FIRST_SCALE = 2.0**16
GROWTH, BACKOFF = 2.0, 0.5
GROWTH_INTERVAL = 2000  # steps without overflow after which it grows
SMALLEST_SCALE = 1e-4  # where gradients overflow even at this scale, the scale is not the cause

State = dict[str, torch.Tensor]  # of one parameter


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Some of a network's parameters, and how they are trained."""

    parameters: Sequence[nn.Parameter]
    method: Literal["adamw", "muon"]
    """`muon`: all are matrices."""
    learning_rate: float
    """Largest step size."""
    weight_decay: float = 0.0
    """Per unit of the step size. Only parameters of two dimensions or more decay: biases and gains have none."""
    betas: tuple[float, float] = (0.9, 0.999)
    """Adam's two decays; Muon's momentum is the first one."""
    eps: float = 1e-8
    decays: torch.Tensor | None = None
    """Where the only parameter is a vector of many: 1 where an entry decays, else 0."""
    stacked: int | Sequence[int] = 1
    """Matrices of equal shape that lie above each other in each parameter, or the number for each parameter; Muon
    orthogonalises each matrix alone."""


class AdamW:
    """As `torch.optim.AdamW(fused=True)` computes it. Its state is that of torch's class, parameter by parameter."""

    def __init__(self, group: Group) -> None:
        """The parameters are on their final device."""
        self.group, self.learning_rate = group, group.learning_rate
        self._fused = group.parameters[0].device.type in ("cpu", "cuda")
        matrices = [n for n, parameter in enumerate(group.parameters) if parameter.ndim >= 2]
        vectors = [n for n, parameter in enumerate(group.parameters) if parameter.ndim < 2]
        # Those that share a decay take their step in one call.
        self._calls = [(matrices, group.weight_decay), (vectors, 0.0)]
        if not group.weight_decay:
            self._calls = [(list(range(len(group.parameters))), 0.0)]
        self._states: dict[int, State] = {}

    @torch.no_grad()
    def step(self) -> None:
        """Takes a step with the parameters' gradients."""
        group, parameters, states = self.group, self.group.parameters, self._states
        if not states:
            self._states = states = {n: _empty(parameter) for n, parameter in enumerate(parameters)}
        if group.decays is not None and group.weight_decay:
            vector = parameters[0]
            vector.addcmul_(vector, group.decays, value=-self.learning_rate * group.weight_decay)
        for numbers, weight_decay in self._calls:
            if not numbers:
                continue
            adamw(
                [parameters[n] for n in numbers],
                [_gradient(parameters[n]) for n in numbers],
                [states[n]["exp_avg"] for n in numbers],
                [states[n]["exp_avg_sq"] for n in numbers],
                [],
                [states[n]["step"] for n in numbers],
                foreach=False,
                fused=self._fused,
                amsgrad=False,
                beta1=group.betas[0],
                beta2=group.betas[1],
                lr=self.learning_rate,
                weight_decay=weight_decay,
                eps=group.eps,
                maximize=False,
            )

    def state_bytes(self) -> int:
        """Returns the size of `state` after a step."""
        return sum(2 * parameter.numel() * parameter.element_size() + 4 for parameter in self.group.parameters)

    def state(self) -> dict[int, State]:
        """Returns what the next step depends on, by the parameter's number; empty before the first step."""
        return {n: dict(values) for n, values in self._states.items()}

    def set_state(self, state: Mapping[int, State]) -> None:
        """Restores a `state` whose shapes fit."""
        parameters = self.group.parameters
        self._states = {
            n: {name: value.to(parameters[n].device).clone() for name, value in values.items()}
            for n, values in sorted(state.items())
        }


class Muon:
    """Momentum, whose matrix is orthogonalised before it is applied. Trains one group of matrices.

    It does what `torch.optim.Muon` does with `adjust_lr_fn="match_rms_adamw"`, and has the same state.

    All small matrices of one shape take their step at once: they cost calls rather than arithmetic. For 16 matrices of
    width 64 a step takes less than half of the time of torch's class.
    """

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


class Optimizer:
    """Several optimisers, each with its own step size, that rise and fall together."""

    def __init__(self, groups: Sequence[Group], share: Callable[[float], float]) -> None:
        """Sorts nothing: the groups are taken as they come, and a checkpoint counts on their order.

        Args:
            groups: those without parameters are left out.
            share: maps the fraction of the run, in [0, 1], to the share of the largest step sizes.
        """
        self._share = share
        self.parts = [AdamW(group) if group.method == "adamw" else Muon(group) for group in groups if group.parameters]

    def set_progress(self, progress: float) -> None:
        """Sets the step sizes for the fraction `progress`, in [0, 1], of the run."""
        share = self._share(progress)
        for part in self.parts:
            part.learning_rate = share * part.group.learning_rate

    @property
    def learning_rate(self) -> float:
        """The step size of the first group, now."""
        return self.parts[0].learning_rate

    def step(self) -> None:
        for part in self.parts:
            part.step()

    def state_bytes(self) -> int:
        """Returns the size of `state` after a step. Before the first one there is none yet."""
        return sum(part.state_bytes() for part in self.parts)

    def state(self) -> dict[str, torch.Tensor]:
        """Returns what the next step depends on, apart from weights and gradients."""
        return {
            f"{index}.{number}.{name}": value
            for index, part in enumerate(self.parts)
            for number, values in part.state().items()
            for name, value in values.items()
        }

    def set_state(self, state: Mapping[str, torch.Tensor]) -> None:
        """Restores a `state`. Raises ValueError where it comes from another optimiser or network."""
        values: list[dict[int, dict[str, torch.Tensor]]] = [{} for _ in self.parts]
        for key, tensor in state.items():
            index, number, name = key.split(".", 2)
            if int(index) < len(values):
                values[int(index)].setdefault(int(number), {})[name] = tensor
        for part, own in zip(self.parts, values, strict=True):
            shapes = [parameter.shape for parameter in part.group.parameters]
            names = {"momentum_buffer"} if isinstance(part, Muon) else {"step", "exp_avg", "exp_avg_sq"}
            fits = all(
                number < len(shapes)
                and tensors.keys() == names
                and all(not tensor.ndim or tensor.shape == shapes[number] for tensor in tensors.values())
                for number, tensors in own.items()
            )
            if state and (not fits or len(own) != len(shapes)):
                raise ValueError("it comes from another optimiser: use the same train.optimizer")
            part.set_state(own)


class Scaler:
    """Takes the optimiser's steps, with loss scaling where the precision is `fp16`.

    The smallest numbers of float16 are too large for many gradients. So the loss is multiplied by a scale before it is
    differentiated, and the gradients are divided by it before the optimiser uses them. Where a gradient overflows, the
    step is skipped and the scale is halved. After a while without overflow the scale grows again. It does what torch's
    GradScaler does, with the same state. Other precisions are not scaled.
    """

    def __init__(self, precision: str) -> None:
        self._enabled = precision == "fp16"
        self._scale = FIRST_SCALE
        self._good_steps = 0  # since the scale last changed

    def scale(self, gradient: torch.Tensor) -> torch.Tensor:
        """Returns the derivative of the scaled loss, given the loss's; or the scaled loss, given the loss."""
        return gradient * self._scale if self._enabled else gradient

    def step(self, optimizer: Optimizer, weights: nn.Parameter, max_norm: float) -> torch.Tensor:
        """Unscales the gradients, clips them to `max_norm` and takes the step; returns the norm before clipping.

        The norm of a skipped step is 0. `weights`: the vector of all; `max_norm` 0: gradients are not clipped.
        """
        assert weights.grad is not None
        if self._enabled:
            weights.grad.mul_(1.0 / self._scale)
        norm: torch.Tensor = torch.linalg.vector_norm(weights.grad)
        if self._enabled and not math.isfinite(norm.item()):
            self._scale, self._good_steps = self._scale * BACKOFF, 0
            return torch.zeros_like(norm)
        if max_norm:  # torch's own function takes three times as long, because it is made for lists of parameters
            weights.grad.mul_((max_norm / (norm + 1e-6)).clamp_(max=1.0))
        optimizer.step()
        self._good_steps += 1
        if self._good_steps == GROWTH_INTERVAL:
            self._scale, self._good_steps = self._scale * GROWTH, 0
        return norm

    @property
    def exhausted(self) -> bool:
        """Whether the scale is so small that the gradients themselves must be the cause of the overflow."""
        return self._enabled and self._scale < SMALLEST_SCALE

    def state(self) -> dict[str, torch.Tensor]:
        """Returns scale and growth; empty without scaling."""
        if not self._enabled:
            return {}
        return {
            "scale": torch.tensor(self._scale, dtype=torch.float64),
            "_growth_tracker": torch.tensor(self._good_steps),
        }

    def set_state(self, state: Mapping[str, torch.Tensor]) -> None:
        """Restores a `state`; a state that was taken without scaling changes nothing."""
        if self._enabled and state:
            self._scale, self._good_steps = float(state["scale"]), int(state["_growth_tracker"])


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


def _empty(parameter: torch.Tensor) -> State:
    return {
        "step": torch.zeros((), device=parameter.device),
        "exp_avg": torch.zeros_like(parameter, requires_grad=False),
        "exp_avg_sq": torch.zeros_like(parameter, requires_grad=False),
    }


def _gradient(parameter: torch.Tensor) -> torch.Tensor:
    assert parameter.grad is not None
    return parameter.grad
