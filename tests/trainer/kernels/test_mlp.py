"""The fused network: output and gradients against torch's automatic differentiation in double precision."""

import itertools

import numpy as np
import pytest
import torch
from instruction_sets import instruction_set  # noqa: F401 (fixtures)

from protein.trainer import kernels

Layers = list[tuple[torch.Tensor, torch.Tensor]]


def network(*sizes: int) -> Layers:
    generator = torch.Generator().manual_seed(0)
    return [
        (torch.randn(b, a, generator=generator) / a**0.5, torch.randn(b, generator=generator) * 0.1)
        for a, b in itertools.pairwise(sizes)
    ]


def normal(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def flat(layers: Layers) -> tuple[torch.Tensor, ...]:
    return tuple(itertools.chain.from_iterable(layers))


def forward(layers: Layers, observations: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return kernels.mlp(observations, flat(layers))


def run(layers: Layers, observations: torch.Tensor, by_output: torch.Tensor) -> tuple[torch.Tensor, Layers]:
    for parameter in flat(layers):
        parameter.grad = torch.full_like(parameter, 7.0)

    def added(parameter: torch.Tensor) -> torch.Tensor:
        assert parameter.grad is not None
        return parameter.grad - 7.0

    output, backward = kernels.mlp_vjp(observations, flat(layers))
    assert output.grad_fn is None, "these layers must take the fused network"
    backward(by_output)
    gradients = [(added(weight), added(bias)) for weight, bias in layers]
    apart = torch.empty(by_output.shape[0], 2 * by_output.shape[1])[:, : by_output.shape[1]]  # rows apart
    assert kernels.mlp(observations, flat(layers), apart) is apart
    assert torch.equal(apart, output) and torch.equal(forward(layers, observations), output)
    return output, gradients


@pytest.mark.parametrize(
    ("sizes", "batch"),
    [
        ((8, 64, 64, 4), 300),
        ((3, 16, 2), 1),
        ((5, 7, 4), 97),
        ((130, 33, 100, 17, 19), 95),
        ((1, 1, 1), 193),
        ((16, 128, 65), 1000),
    ],
)
def test_output_and_gradients_are_those_of_the_network(sizes: tuple[int, ...], batch: int) -> None:
    layers, observations = network(*sizes), normal(batch, sizes[0], seed=1)
    by_output = normal(sizes[-1], batch, seed=2)
    output, gradients = run(layers, observations, by_output)
    exact_layers = [(weight.double().requires_grad_(), bias.double().requires_grad_()) for weight, bias in layers]
    hidden = observations.double()
    for index, (weight, bias) in enumerate(exact_layers):
        hidden = torch.nn.functional.linear(hidden, weight, bias)
        if index + 1 < len(layers):
            hidden = hidden.relu()
    np.testing.assert_allclose(output.numpy(), hidden.t().detach().numpy(), rtol=1e-5, atol=1e-5)
    (hidden.t() * by_output.double()).sum().backward()
    for ours, exact in zip(gradients, exact_layers, strict=True):
        for a, b in zip(ours, exact, strict=True):
            assert b.grad is not None
            scale = float(b.grad.abs().max()) + 1e-3
            np.testing.assert_allclose(a.numpy(), b.grad.numpy(), rtol=1e-4, atol=1e-5 * scale)


@pytest.mark.parametrize(
    ("shape", "outputs"),
    [((1, 1), 1), ((3, 40, 16), 33), ((5, 60, 17), 64), ((200, 130), 300), ((193, 8), 128), ((5, 1100), 7)],
)
@pytest.mark.parametrize("relu", [False, True])
def test_a_layer_and_its_gradients_equal_torch_in_double(shape: tuple[int, ...], outputs: int, relu: bool) -> None:
    ((weight, bias),) = network(shape[-1], outputs)
    given = [tensor.requires_grad_() for tensor in (normal(*shape, seed=1), weight, bias)]
    exact = [tensor.detach().double().requires_grad_() for tensor in given]
    result = kernels.linear(*given, relu=relu)
    expected = torch.nn.functional.linear(*exact)
    expected = expected.relu() if relu else expected
    np.testing.assert_allclose(result.detach().numpy(), expected.detach().numpy(), rtol=1e-5, atol=1e-5)
    by_result = normal(*result.shape, seed=2)
    ours = torch.autograd.grad(result, given, by_result)
    for a, b in zip(ours, torch.autograd.grad(expected, exact, by_result.double()), strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-4, atol=1e-5 * (float(b.abs().max()) + 1e-3))
    with torch.no_grad():
        assert torch.equal(kernels.linear(*given, relu=relu), result)
        assert kernels.linear(*exact, relu=relu).dtype == torch.float64
    constant = kernels.linear(given[0].detach(), weight, bias, relu=relu)  # nothing by the inputs
    assert torch.equal(torch.autograd.grad(constant, weight, by_result)[0], ours[1])


def test_threads_change_nothing() -> None:
    layers, observations, by_output = network(8, 64, 64, 4), normal(5000, 8, seed=1), normal(4, 5000, seed=2)
    output, gradients = run(layers, observations, by_output)
    weight = layers[1][0].requires_grad_()
    hidden = normal(5000, 64, seed=3)

    def of_layer() -> torch.Tensor:
        return torch.autograd.grad(kernels.linear(hidden, weight, layers[1][1]).square().sum(), weight)[0]

    alone = of_layer()
    before = kernels.get_threads()
    try:
        for threads in (2, 3, 4):
            kernels.set_threads(threads)
            assert torch.equal(of_layer(), alone)
            again, parallel = run(layers, observations, by_output)
            assert torch.equal(again, output)
            assert all(torch.equal(a[i], b[i]) for a, b in zip(gradients, parallel, strict=True) for i in (0, 1))
    finally:
        kernels.set_threads(before)


def test_two_passes_do_not_disturb_each_other_and_their_gradients_add_up() -> None:
    layers = network(8, 32, 4)
    for parameter in flat(layers):
        parameter.grad = torch.zeros_like(parameter)
    given = [(normal(batch, 8, seed=batch), normal(4, batch, seed=1)) for batch in (10, 700)]
    expected = [run(layers, *each)[1] for each in given]
    for parameter in flat(layers):
        parameter.grad = torch.zeros_like(parameter)
    passes = [kernels.mlp_vjp(observations, flat(layers))[1] for observations, _ in given]
    for backward, (_, by_output) in zip(passes, given, strict=True):
        backward(by_output)
    for index, pair in enumerate(layers):
        for side, parameter in enumerate(pair):
            total = expected[0][index][side] + expected[1][index][side]
            torch.testing.assert_close(parameter.grad, total, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("way", ["double", "autocast", "large"])
def test_what_the_fused_network_does_not_take_goes_layer_by_layer(way: str) -> None:
    layers = network(8, 1024, 1024, 4) if way == "large" else network(8, 16, 4)
    observations, by_output = normal(5, 8, seed=1), normal(4, 5, seed=2)
    if way == "double":
        layers, observations = [(a.double(), b.double()) for a, b in layers], observations.double()
        by_output = by_output.double()
    for parameter in flat(layers):
        parameter.requires_grad_().grad = torch.zeros_like(parameter)
    with torch.autocast("cpu", torch.bfloat16, enabled=way == "autocast"):
        output, backward = kernels.mlp_vjp(observations, flat(layers))
        into = kernels.mlp(observations, flat(layers), torch.zeros(4, 5, dtype=output.dtype))
    assert output.grad_fn is not None
    torch.testing.assert_close(into, output.detach(), rtol=1e-2 if way == "autocast" else 1e-5, atol=1e-4)
    backward(by_output.to(output.dtype))
    expected = torch.autograd.grad(kernels.mlp(observations, flat(layers)), flat(layers), by_output)
    for parameter, gradient in zip(flat(layers), expected, strict=True):
        torch.testing.assert_close(parameter.grad, gradient, rtol=5e-2 if way == "autocast" else 1e-4, atol=5e-2)


def test_nan_does_not_hide_behind_a_relu() -> None:
    observations = normal(3, 8, seed=1)
    observations[1, 4] = float("nan")
    output = forward(network(8, 16, 2), observations)
    assert output[:, 1].isnan().all() and output[:, [0, 2]].isfinite().all()


def test_misuse_is_refused() -> None:
    layers = network(8, 16, 2)
    observations, output = normal(3, 8, seed=1), torch.empty(2, 3)
    with pytest.raises(ValueError, match="tuple of each layer's weight and bias, and have two layers or more"):
        forward(layers[1:], normal(3, 16, seed=1))
    with pytest.raises(ValueError, match=r"weight 1 must be a contiguous torch.float32 CPU tensor of shape \(2, 16\)"):
        forward([layers[0], (torch.zeros(2, 15), torch.zeros(2))], observations)
    with pytest.raises(ValueError, match=r"bias 0 must be a contiguous torch.float32 CPU tensor of shape \(16,\)"):
        forward([(layers[0][0], torch.zeros(15)), layers[1]], observations)
    with pytest.raises(ValueError, match="observations must be a contiguous"):
        forward(layers, normal(3, 9, seed=1))
    with pytest.raises(ValueError, match="output must be a row-contiguous"):
        kernels.mlp(observations, flat(layers), torch.empty(3, 2).t())
    _, backward = kernels.mlp_vjp(observations, flat(layers))
    with pytest.raises(ValueError, match="gradient of weight 0 must have 2 dimensions, got None"):
        backward(output)
    for parameter in flat(layers):
        parameter.grad = torch.zeros_like(parameter)
    with pytest.raises(ValueError, match=r"by_output must be a row-contiguous .* shape \(2, 3\), got .* \(2, 4\)"):
        backward(torch.empty(2, 4))


@pytest.mark.parametrize("sizes", [(363, 32, 16, 5), (3, 8, 2), (20, 600, 600, 4)], ids=str)
@pytest.mark.parametrize("batch", [1, 97, 1500])
def test_bytes_are_read_as_the_numbers_that_they_mean(
    sizes: tuple[int, ...],
    batch: int,
    instruction_set: None,  # noqa: F811
) -> None:
    layers = network(*sizes)
    read = torch.randint(0, 256, (batch, sizes[0]), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    by_output = normal(sizes[-1], batch, seed=2)
    seen = []
    for given in (read, read.float().mul_(1 / 255)):
        for parameter in flat(layers):
            parameter.requires_grad_().grad = torch.zeros_like(parameter)
        output, backward = kernels.mlp_vjp(given, flat(layers), 1 / 255)
        backward(by_output)
        with torch.no_grad():
            acted = kernels.mlp(given, flat(layers), torch.zeros(sizes[-1], batch), 1 / 255)
        seen.append([output.detach(), acted, *[parameter.grad for parameter in flat(layers)]])
    assert all(one is not None and one.equal(other) for one, other in zip(*seen, strict=True))
