import copy
import math

import pytest
import torch

from trainer.policy import FlatGradients, MLPPolicy
from trainer.precision import autocast


def make_policy(num_layers: int, seed: int = 0) -> MLPPolicy:
    g = torch.Generator().manual_seed(seed)
    policy = MLPPolicy(5, 3, hidden_size=16, num_layers=num_layers, generator=g)
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=g))
    return policy


@pytest.mark.parametrize("num_layers", [1, 2, 3])
def test_the_gradients_by_the_chain_rule_are_those_of_autograd(num_layers: int) -> None:
    reference = make_policy(num_layers).double()
    policy = copy.deepcopy(reference)
    observations = torch.randn(40, 5, dtype=torch.float64)
    weight = torch.randn(4, 40, dtype=torch.float64)
    flat = FlatGradients(policy)
    for _ in range(2):  # the second time over what the first has left
        flat.by_chain_rule(observations, lambda output: 3 * output.square() * weight)
    (reference(observations).pow(3) * weight).sum().backward()
    for (name, ours), theirs in zip(policy.named_parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-9, atol=1e-12, msg=name)
    explicit = flat.gradients.clone()
    for _ in range(2):
        flat.by_autograd(
            observations, lambda output: 3 * output.double().square() * weight, autocast(torch.device("cpu"), "fp32")
        )
    torch.testing.assert_close(flat.gradients, explicit, rtol=1e-4, atol=1e-5)


def test_flat_vectors_are_the_policys_own_memory() -> None:
    policy = make_policy(2)
    expected = torch.cat([p.detach().flatten() for p in policy.parameters()])
    flat = FlatGradients(policy)
    assert torch.equal(flat.weights.detach(), expected)
    with torch.no_grad():
        flat.weights.add_(1)
    assert torch.equal(torch.cat([p.detach().flatten() for p in policy.parameters()]), expected + 1)
    assert all(p.grad is not None and p.grad.data_ptr() >= flat.gradients.data_ptr() for p in policy.parameters())


def test_the_initial_policy_is_nearly_uniform_and_its_layers_orthogonal() -> None:
    policy = MLPPolicy(8, 6, hidden_size=32, num_layers=2, generator=torch.Generator().manual_seed(0))
    output = policy(torch.randn(100, 8))
    assert output.shape == (7, 100)
    p = torch.softmax(output[:6], 0)
    assert (p - 1 / 6).abs().max() < 0.02
    square = policy.layers[1].weight.detach()
    torch.testing.assert_close(square @ square.t(), 2 * torch.eye(32), rtol=1e-4, atol=1e-4)
    assert policy.head.weight[6].norm().item() == pytest.approx(1.0, rel=1e-4)
    assert math.isclose(sum(p.detach().abs().sum().item() for n, p in policy.named_parameters() if "bias" in n), 0.0)
