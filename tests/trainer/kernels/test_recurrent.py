"""Recurrent kernels: outputs and gradients against plain torch in double precision, and that against its own."""

import itertools
from collections.abc import Callable

import numpy as np
import pytest
import torch
from instruction_sets import instruction_set  # noqa: F401 (fixtures)

from protein.trainer import kernels

Layer = Callable[..., tuple[torch.Tensor, ...]]


def normal(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def some_resets(steps: int, agents: int) -> torch.Tensor:
    return torch.rand(steps, agents, generator=torch.Generator().manual_seed(9)) < 0.3


def lstm_inputs(steps: int, agents: int, units: int, inputs: int = 0) -> tuple[torch.Tensor, ...]:
    inputs = inputs or units
    return (
        normal(steps, agents, inputs, seed=1),
        normal(4 * units, inputs, seed=5) / inputs**0.5,
        normal(4 * units, units, seed=2) / units**0.5,
        normal(4 * units, seed=6),
        normal(agents, 2 * units, seed=3),
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
    x: torch.Tensor,
    w_ih: torch.Tensor,
    w_hh: torch.Tensor,
    bias: torch.Tensor,
    state: torch.Tensor,
    resets: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """torch's own LSTM cell, agent by agent."""
    steps, agents, _ = x.shape
    hidden, last = [], []
    for m in range(agents):
        h, c = state[m : m + 1].chunk(2, dim=1)
        for t in range(steps):
            if resets[t, m]:
                h, c = torch.zeros_like(h), torch.zeros_like(c)
            h, c = torch.lstm_cell(x[t, m : m + 1], (h, c), w_ih, w_hh, bias, torch.zeros_like(bias))
            hidden.append(h)
        last.append(torch.cat([h, c], dim=1))
    return torch.cat(hidden).view(agents, steps, -1).transpose(0, 1), torch.cat(last)


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


def trained(inputs: tuple[torch.Tensor, ...]) -> int:
    """Returns how many of a layer's inputs, the first ones, get a gradient: all but the states and resets."""
    return len(inputs) - 2


def check(
    ours: Layer,
    slow: Layer,
    inputs: tuple[torch.Tensor, ...],
    tolerance: float,
) -> None:
    """Compares outputs, final states, and the gradients."""
    number = trained(inputs)
    given = [*(tensor.detach().requires_grad_() for tensor in inputs[:number]), *inputs[number:]]
    exact_given = [
        tensor.detach().double().requires_grad_(index < number) if tensor.is_floating_point() else tensor
        for index, tensor in enumerate(inputs)
    ]
    result, exact = ours(*given), slow(*exact_given)
    for a, b in zip(result, exact, strict=True):
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=tolerance, atol=tolerance)
    by_hidden = normal(*result[0].shape, seed=7)
    gradients = torch.autograd.grad(result[0], given[:number], by_hidden.to(result[0].dtype))
    exact_gradients = torch.autograd.grad(exact[0], exact_given[:number], by_hidden.double())
    for a, b in zip(gradients, exact_gradients, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=20 * tolerance, atol=20 * tolerance)
    with torch.inference_mode():
        for a, b in zip(ours(*inputs), result, strict=True):
            assert torch.equal(a, b.detach())


# Some are larger than a group of agents, a span of rows for the weights' gradient, or one thread's share.
SIZES = [(1, 1, 1, 1), (3, 7, 5, 5), (5, 30, 16, 24), (4, 26, 33, 7), (2, 3, 128, 128), (7, 37, 8, 8), (3, 300, 4, 3)]


@pytest.mark.parametrize(("steps", "agents", "units", "width"), SIZES)
def test_lstm_and_its_gradients_equal_the_reference(steps: int, agents: int, units: int, width: int) -> None:
    inputs = lstm_inputs(steps, agents, units, width)
    check(kernels.lstm_sequence, slow_lstm, inputs, 3e-6)
    wide = tuple(tensor.double() if tensor.is_floating_point() else tensor for tensor in inputs)
    check(kernels.lstm_sequence, slow_lstm, wide, 1e-12)


def test_an_lstm_reads_rows_that_are_apart() -> None:
    x, *others = lstm_inputs(3, 5, 8)
    apart = torch.full((3, 5, 20), float("nan"))[..., :8].copy_(x).detach().requires_grad_()
    x.requires_grad_()
    results = [kernels.lstm_sequence(inputs, *others)[0] for inputs in (x, apart)]
    for result in results:
        result.square().sum().backward()
    assert torch.equal(*results) and x.grad is not None and apart.grad is not None and torch.equal(x.grad, apart.grad)


@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("agents", [1, 31, 33, 700])
def test_a_policys_step_equals_its_layers(layers: int, agents: int) -> None:
    x, w_ih, w_hh, bias, state, resets = lstm_inputs(1, agents, 24, 5)
    sizes = [5] + [10] * (layers - 1) + [24]
    encoder = [(normal(b, a, seed=20 + b), normal(b, seed=30 + b)) for a, b in itertools.pairwise(sizes)]
    head = normal(4, 24, seed=40), normal(4, seed=41)
    w_ih = normal(96, 24, seed=5) / 5
    hidden = x[0]
    for weight, b in encoder:
        hidden = torch.relu(hidden @ weight.t() + b)
    hidden, after = kernels.lstm_sequence_by_torch(hidden.unsqueeze(0), w_ih, w_hh, bias, state, resets)
    expected = head[0] @ hidden[0].t() + head[1].unsqueeze(1)
    policy = kernels.lstm_policy((*(p for layer in encoder for p in layer), *head), w_ih, w_hh, bias)
    out = torch.empty(4, 2 * agents)[:, :agents]
    for threads in (1, 3):
        before = kernels.get_threads()
        kernels.set_threads(threads)
        written = state.clone()
        policy.step(x[0], written, resets[0], out, written)
        kernels.set_threads(before)
        torch.testing.assert_close(out, expected, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(written, after, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("steps", "agents", "units"), [(1, 1, 1), (3, 7, 5), (4, 2, 33)])
def test_mingru_and_its_gradients_equal_the_reference(steps: int, agents: int, units: int) -> None:
    inputs = mingru_inputs(steps, agents, units)
    check(kernels.mingru_sequence, slow_mingru, inputs, 3e-6)
    wide = tuple(tensor.double() if tensor.is_floating_point() else tensor for tensor in inputs)
    check(kernels.mingru_sequence, slow_mingru, wide, 1e-12)


def test_a_reset_cuts_off_the_past_whatever_it_was() -> None:
    lstm, mingru = (inputs for _, inputs in both_layers(4, 3, 8))
    by_torch: list[tuple[Layer, tuple[torch.Tensor, ...]]] = [
        (kernels.lstm_sequence_by_torch, lstm),
        (kernels.mingru_sequence_by_torch, mingru),
    ]
    for function, inputs in [*both_layers(4, 3, 8), *by_torch]:
        resets = torch.zeros(4, 3, dtype=torch.bool)
        resets[2] = True
        whole = function(*inputs[:-1], resets)[0]
        nothing = torch.full_like(inputs[-2], float("nan"))
        broken = function(*inputs[:-2], nothing, resets)[0]
        assert broken[:2].isnan().all() and torch.equal(broken[2:], whole[2:])


def test_one_call_equals_a_call_for_every_step() -> None:
    x, w_ih, w_hh, bias, state, resets = lstm_inputs(5, 30, 16)
    whole = kernels.lstm_sequence(x, w_ih, w_hh, bias, state, resets)
    for t in range(5):
        hidden, state = kernels.lstm_sequence(x[t : t + 1], w_ih, w_hh, bias, state, resets[t : t + 1])
        assert torch.equal(hidden[0], whole[0][t])
    assert torch.equal(state, whole[1])


@pytest.mark.parametrize("scale", [50.0, 1e4])
def test_extreme_inputs_stay_finite(scale: float) -> None:
    for function, inputs in both_layers(6, 3, 8):
        number = trained(inputs)
        given = [*((tensor * scale).detach().requires_grad_() for tensor in inputs[:number]), *inputs[number:]]
        hidden = function(*given)[0]
        hidden.sum().backward()
        gradients = [tensor.grad for tensor in given[:number]]
        assert hidden.isfinite().all()
        assert all(gradient is not None and gradient.isfinite().all() for gradient in gradients)


def test_threads_change_nothing() -> None:
    def everything() -> list[torch.Tensor]:
        results = []
        for function, inputs in (
            (kernels.lstm_sequence, lstm_inputs(8, 150, 64)),
            (kernels.mingru_sequence, mingru_inputs(8, 1100, 64)),
        ):
            number = trained(inputs)
            given = [*(tensor.detach().requires_grad_() for tensor in inputs[:number]), *inputs[number:]]
            hidden = function(*given)[0]
            results += [hidden, *torch.autograd.grad(hidden.square().sum(), given[:number])]
        return results

    before = kernels.get_threads()
    kernels.set_threads(4)
    parallel = everything()
    kernels.set_threads(before)
    assert all(torch.equal(a, b) for a, b in zip(parallel, everything(), strict=True))


def test_unfit_tensors_are_refused() -> None:
    x, w_ih, w_hh, bias, state, resets = lstm_inputs(3, 4, 8)
    with pytest.raises(ValueError, match=r"w_hh must be a contiguous torch.float32 CPU tensor of shape \(32, 8\)"):
        kernels.lstm_sequence(x, w_ih, w_hh.t(), bias, state, resets)
    with pytest.raises(ValueError, match="inputs must be a row-contiguous"):
        kernels.lstm_sequence(x.transpose(0, 1), w_ih, w_hh, bias, state, resets)
    with pytest.raises(ValueError, match="resets must be"):
        kernels.lstm_sequence(x, w_ih, w_hh, bias, state, resets[:2])
    with pytest.raises(ValueError, match="bias must be"):
        kernels.lstm_sequence(x, w_ih, w_hh, bias[1:], state, resets)
    with pytest.raises(ValueError, match="as many inputs as the encoder has outputs"):
        kernels.lstm_policy(
            (normal(7, 5, seed=1), normal(7, seed=1), normal(2, 7, seed=1), normal(2, seed=1)), w_ih, w_hh, bias
        )
    policy = kernels.lstm_policy((w_ih[:8], bias[:8], w_ih[:2], bias[:2]), w_ih, w_hh, bias)
    with pytest.raises(ValueError, match=r"output must be a row-contiguous .* of shape \(2, 4\)"):
        policy.step(x[0], state, resets[0], torch.empty(3, 4), None)
    gates, candidates, h, resets = mingru_inputs(3, 4, 8)
    with pytest.raises(ValueError, match="gate_logits and candidates must be laid out alike, got rows 16 and 8"):
        kernels.mingru_sequence(gates, candidates.contiguous(), h, resets)
    with pytest.raises(ValueError, match="gate_logits must be a row-contiguous"):
        kernels.mingru_sequence(gates.transpose(0, 1), candidates, h, resets)
