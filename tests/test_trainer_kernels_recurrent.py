"""Recurrent kernels: outputs and gradients against plain torch in double precision, and that against its own."""

from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch

from protein.trainer import kernels
from protein.trainer.kernels import _native

Layer = Callable[..., tuple[torch.Tensor, ...]]


@pytest.fixture(params=_native.instruction_sets(), autouse=True)
def instruction_set(request: pytest.FixtureRequest) -> Iterator[str]:
    before = _native.instruction_set()
    _native.use_instruction_set(request.param)
    yield request.param
    _native.use_instruction_set(before)


def normal(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def some_resets(steps: int, agents: int) -> torch.Tensor:
    return torch.rand(steps, agents, generator=torch.Generator().manual_seed(9)) < 0.3


def lstm_inputs(steps: int, agents: int, units: int) -> tuple[torch.Tensor, ...]:
    return (
        normal(steps, agents, 4 * units, seed=1),
        normal(4 * units, units, seed=2) / units**0.5,
        normal(agents, units, seed=3),
        normal(agents, units, seed=4),
        some_resets(steps, agents),
    )


def mingru_inputs(steps: int, agents: int, units: int) -> tuple[torch.Tensor, ...]:
    both = normal(steps, agents, 2 * units, seed=1).mul_(2)
    return both[..., :units], both[..., units:], normal(agents, units, seed=3), some_resets(steps, agents)


def both_layers(steps: int, agents: int, units: int) -> list[tuple[Layer, tuple[torch.Tensor, ...]]]:
    """Each layer with inputs of that size."""
    return [
        (kernels.lstm_sequence, lstm_inputs(steps, agents, units)),
        (kernels.mingru_sequence, mingru_inputs(steps, agents, units)),
    ]


def slow_lstm(
    gates_x: torch.Tensor, w_hh: torch.Tensor, h0: torch.Tensor, c0: torch.Tensor, resets: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """torch's own LSTM cell, agent by agent; without inputs of its own it takes ours for its bias."""
    steps, agents, _ = gates_x.shape
    none = gates_x.new_zeros(len(w_hh), 1)
    hidden, last = [], []
    for m in range(agents):
        h, c = h0[m : m + 1], c0[m : m + 1]
        for t in range(steps):
            if resets[t, m]:
                h, c = torch.zeros_like(h), torch.zeros_like(c)
            h, c = torch.lstm_cell(h.new_zeros(1, 1), (h, c), none, w_hh, gates_x[t, m])
            hidden.append(h)
        last.append(torch.cat([h, c]))
    final = torch.stack(last, dim=1)
    return torch.cat(hidden).view(agents, steps, -1).transpose(0, 1), final[0], final[1]


def slow_mingru(
    gates: torch.Tensor, candidates: torch.Tensor, h0: torch.Tensor, resets: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The definition, one number at a time."""
    steps, agents, units = gates.shape
    hidden: list[torch.Tensor] = []
    for t in range(steps):
        for m in range(agents):
            for j in range(units):
                old = h0[m, j] if t == 0 else hidden[((t - 1) * agents + m) * units + j]
                old = old * 0 if resets[t, m] else old
                z, x = 1 / (1 + (-gates[t, m, j]).exp()), candidates[t, m, j]
                new = x + 0.5 if x >= 0 else 1 / (1 + (-x).exp())
                hidden.append((1 - z) * old + z * new)
    result = torch.stack(hidden).view(steps, agents, units)
    return result, result[-1]


def check(
    ours: Layer,
    slow: Layer,
    inputs: tuple[torch.Tensor, ...],
    tolerance: float,
) -> None:
    """Compares outputs, final states, and the gradients by the first two inputs."""
    given = [*(tensor.detach().requires_grad_() for tensor in inputs[:2]), *inputs[2:]]
    exact_given = [
        tensor.detach().double().requires_grad_(index < 2) if tensor.is_floating_point() else tensor
        for index, tensor in enumerate(inputs)
    ]
    result, exact = ours(*given), slow(*exact_given)
    for a, b in zip(result, exact, strict=True):
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=tolerance, atol=tolerance)
    by_hidden = normal(*result[0].shape, seed=7)
    gradients = torch.autograd.grad(result[0], given[:2], by_hidden.to(result[0].dtype))
    exact_gradients = torch.autograd.grad(exact[0], exact_given[:2], by_hidden.double())
    for a, b in zip(gradients, exact_gradients, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=20 * tolerance, atol=20 * tolerance)
    with torch.inference_mode():
        for a, b in zip(ours(*inputs), result, strict=True):
            assert torch.equal(a, b.detach())


SIZES = [(1, 1, 1), (3, 7, 5), (5, 30, 16), (4, 26, 33), (2, 3, 128)]


@pytest.mark.parametrize(("steps", "agents", "units"), SIZES)
def test_lstm_and_its_gradients_equal_the_reference(steps: int, agents: int, units: int) -> None:
    inputs = lstm_inputs(steps, agents, units)
    check(kernels.lstm_sequence, slow_lstm, inputs, 3e-6)
    wide = tuple(tensor.double() if tensor.is_floating_point() else tensor for tensor in inputs)
    check(kernels.lstm_sequence, slow_lstm, wide, 1e-12)


@pytest.mark.parametrize(("steps", "agents", "units"), [(1, 1, 1), (3, 7, 5), (4, 2, 33)])
def test_mingru_and_its_gradients_equal_the_reference(steps: int, agents: int, units: int) -> None:
    inputs = mingru_inputs(steps, agents, units)
    check(kernels.mingru_sequence, slow_mingru, inputs, 3e-6)
    wide = tuple(tensor.double() if tensor.is_floating_point() else tensor for tensor in inputs)
    check(kernels.mingru_sequence, slow_mingru, wide, 1e-12)


def test_a_reset_cuts_off_the_past_whatever_it_was() -> None:
    for function, inputs in both_layers(4, 3, 8):
        resets = torch.zeros(4, 3, dtype=torch.bool)
        resets[2] = True
        whole = function(*inputs[:-1], resets)[0]
        nothing = [torch.full_like(state, float("nan")) for state in inputs[2:-1]]
        broken = function(*inputs[:2], *nothing, resets)[0]
        assert broken[:2].isnan().all() and torch.equal(broken[2:], whole[2:])


def test_one_call_equals_a_call_for_every_step() -> None:
    gates_x, w_hh, h, c, resets = lstm_inputs(5, 30, 16)
    whole = kernels.lstm_sequence(gates_x, w_hh, h, c, resets)
    for t in range(5):
        hidden, h, c = kernels.lstm_sequence(gates_x[t : t + 1], w_hh, h, c, resets[t : t + 1])
        assert torch.equal(hidden[0], whole[0][t])
    assert torch.equal(h, whole[1]) and torch.equal(c, whole[2])


@pytest.mark.parametrize("scale", [50.0, 1e4])
def test_extreme_inputs_stay_finite(scale: float) -> None:
    for function, inputs in both_layers(6, 3, 8):
        given = [*((tensor * scale).detach().requires_grad_() for tensor in inputs[:2]), *inputs[2:]]
        hidden = function(*given)[0]
        hidden.sum().backward()
        gradients = [tensor.grad for tensor in given[:2]]
        assert hidden.isfinite().all()
        assert all(gradient is not None and gradient.isfinite().all() for gradient in gradients)


def test_threads_change_nothing() -> None:
    def everything() -> list[torch.Tensor]:
        results = []
        for function, inputs in (
            (kernels.lstm_sequence, lstm_inputs(8, 150, 64)),
            (kernels.mingru_sequence, mingru_inputs(8, 1100, 64)),
        ):
            given = [*(tensor.detach().requires_grad_() for tensor in inputs[:2]), *inputs[2:]]
            hidden = function(*given)[0]
            results += [hidden, *torch.autograd.grad(hidden.square().sum(), given[:2])]
        return results

    before = kernels.get_threads()
    kernels.set_threads(4)
    parallel = everything()
    kernels.set_threads(before)
    assert all(torch.equal(a, b) for a, b in zip(parallel, everything(), strict=True))


def test_unfit_tensors_are_refused() -> None:
    gates_x, w_hh, h, c, resets = lstm_inputs(3, 4, 8)
    with pytest.raises(ValueError, match=r"w_hh must be a contiguous torch.float32 CPU tensor of shape \(32, 8\)"):
        kernels.lstm_sequence(gates_x, w_hh.t(), h, c, resets)
    with pytest.raises(ValueError, match="gates_x must be a contiguous"):
        kernels.lstm_sequence(gates_x.transpose(0, 1), w_hh, h, c, resets)
    with pytest.raises(ValueError, match="resets must be"):
        kernels.lstm_sequence(gates_x, w_hh, h, c, resets[:2])
    gates, candidates, h, resets = mingru_inputs(3, 4, 8)
    with pytest.raises(ValueError, match="gate_logits and candidates must be laid out alike, got rows 16 and 8"):
        kernels.mingru_sequence(gates, candidates.contiguous(), h, resets)
    with pytest.raises(ValueError, match="gate_logits must be a row-contiguous"):
        kernels.mingru_sequence(gates.transpose(0, 1), candidates, h, resets)
