"""Networks: layouts, initial values, and gradients by the fused kernel against automatic differentiation."""

import contextlib
import copy
import dataclasses
import math
from typing import Any

import pytest
import torch
from training_parts import GRID, POLICIES, make_policy, make_spec

from protein.trainer.config import PolicyConfig
from protein.trainer.errors import ConfigError
from protein.trainer.model.policy import Policy
from protein.trainer.optim.optimizer import FlatWeights

FEATURES = math.prod(GRID)
ACTIONS: dict[str, dict[str, Any]] = {
    "one": {"action_sizes": (4,)},
    "several": {"action_sizes": (3, 2)},
    "continuous": {"continuous_actions": 2},
}


def perturbed(policy: Policy) -> Policy:
    """Biases that are not 0, so that an error in them shows."""
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    return policy


@pytest.mark.parametrize("num_layers", [1, 2, 3])
@pytest.mark.parametrize("value_bins", [0, 5])
def test_the_gradients_of_the_kernel_and_of_autograd_are_those_in_float64(num_layers: int, value_bins: int) -> None:
    policy = perturbed(make_policy(make_spec(), num_layers=num_layers, value_bins=value_bins))
    reference = copy.deepcopy(policy).double()
    observations = torch.randn(4, 10, FEATURES)
    weight = torch.randn(policy.rows, 40)
    (reference(observations.double())[0].pow(3) * weight.double()).sum().backward()
    expected = torch.cat([p.grad.flatten() for p in reference.parameters() if p.grad is not None]).float()
    flat = FlatWeights(policy)
    for _ in range(2):  # the second time over what the first has left
        flat.clear()
        output, backward = policy.vjp(observations, None, None)
        backward(3 * output.detach().square() * weight)
    torch.testing.assert_close(flat.gradients, expected, rtol=1e-4, atol=1e-4)
    flat.gradients.zero_()
    (policy(observations)[0].pow(3) * weight).sum().backward()
    torch.testing.assert_close(flat.gradients, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("actions", ACTIONS)
@pytest.mark.parametrize("kind", POLICIES)
def test_flat_vectors_are_the_policys_own_memory(kind: str, actions: str) -> None:
    policy = make_policy(make_spec(**ACTIONS[actions]), **POLICIES[kind])
    expected = torch.cat([p.detach().flatten() for p in policy.parameters()])
    flat = FlatWeights(policy)
    assert torch.equal(flat.weights.detach(), expected)
    with torch.no_grad():
        flat.weights.add_(1)
    assert torch.equal(torch.cat([p.detach().flatten() for p in policy.parameters()]), expected + 1)
    output, backward = policy.vjp(torch.randn(3, 5, FEATURES), None, None)
    backward(torch.ones_like(output))
    own = torch.cat([p.grad.flatten() for p in policy.parameters() if p.grad is not None])
    assert torch.equal(own, flat.gradients)
    assert flat.weights.grad is flat.gradients


@pytest.mark.parametrize("actions", ACTIONS)
@pytest.mark.parametrize("kind", POLICIES)
def test_outputs_are_feature_major_and_time_major(kind: str, actions: str) -> None:
    """A sample's column does not depend on the other agents, and its place is t * M + m."""
    policy = make_policy(make_spec(**ACTIONS[actions]), **POLICIES[kind])
    observations = torch.randn(3, 5, FEATURES)
    with torch.no_grad():
        output, state = policy(observations)
        assert output.shape == (policy.rows, 15)
        assert policy.values(output).shape == (15,)
        for agent in range(5):
            own, own_state = policy(observations[:, agent : agent + 1].contiguous())
            torch.testing.assert_close(own, output[:, agent::5])
            if state is not None:
                torch.testing.assert_close(own_state, state[agent : agent + 1])
    assert (state is None) == (policy.state_size == 0)


def test_the_initial_policy_is_nearly_uniform_and_its_layers_orthogonal() -> None:
    spec = make_spec((8,), (6,))
    policy = Policy(spec, PolicyConfig(hidden_size=32), generator=torch.Generator().manual_seed(0))
    output, _ = policy(torch.randn(1, 100, 8))
    assert output.shape == (7, 100)
    p = torch.softmax(output[:6], 0)
    assert (p - 1 / 6).abs().max() < 0.02
    square = policy.encoder.get_parameter("layers.1.weight").detach()
    torch.testing.assert_close(square @ square.t(), 2 * torch.eye(32), rtol=1e-4, atol=1e-4)
    assert policy.head.weight[6].norm().item() == pytest.approx(1.0, rel=1e-4)
    assert math.isclose(sum(p.detach().abs().sum().item() for n, p in policy.named_parameters() if "bias" in n), 0.0)


@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize("kind", ["mlp", "separate", "lstm"])
def test_the_activation_that_is_set_follows_each_layer(kind: str, activation: str) -> None:
    policy = perturbed(make_policy(make_spec(), **POLICIES[kind], activation=activation))
    observations = torch.randn(1, 9, FEATURES)
    hidden = observations[0]
    for weight, bias in zip(*[iter(policy.encoder.parameters())] * 2, strict=True):
        hidden = getattr(torch, activation)(hidden @ weight.t() + bias)
    if policy.recurrence is not None:
        begun, resets = torch.zeros(len(hidden), policy.state_size), torch.zeros(1, len(hidden), dtype=torch.bool)
        hidden, _ = policy.recurrence(hidden.unsqueeze(0), begun, resets)
        hidden = hidden[0]
    expected = policy.head.weight @ hidden.t() + policy.head.bias.unsqueeze(1)
    output, _ = policy(observations)
    torch.testing.assert_close(output[: len(expected)], expected)
    stepped, state = torch.empty_like(output), torch.zeros(9, policy.state_size) if policy.state_size else None
    with torch.no_grad(), policy.held():
        policy.step(observations[0], state, torch.zeros(9, dtype=torch.bool), stepped)
    torch.testing.assert_close(stepped, output)


def test_continuous_actions_begin_with_the_deviation_that_is_set() -> None:
    spec = make_spec((8,), (), continuous_actions=2)
    policy = Policy(spec, PolicyConfig(log_std_init=-1.0), generator=torch.Generator().manual_seed(0))
    output, _ = policy(torch.zeros(1, 5000, 8))
    assert torch.equal(output[2:4], torch.full((2, 5000), -1.0))
    distribution = policy.distribution
    noise = torch.zeros(distribution.noise_rows, 5000)
    distribution.fill_noise_(noise, torch.Generator().manual_seed(1))
    actions, logprobs = torch.zeros(5000, 2), torch.zeros(5000)
    distribution.sample(output[:4].detach(), noise, actions, logprobs)
    assert actions.std(dim=0).tolist() == pytest.approx([math.exp(-1.0)] * 2, rel=0.05)


@pytest.mark.parametrize("encoder", ["mlp", "cnn"])
def test_a_separate_value_shares_nothing_with_the_policy(encoder: str) -> None:
    policy = make_policy(make_spec(), separate_value=True, encoder=encoder)
    apart = {name for name, _ in policy.named_parameters() if name.startswith("value_")}
    for rows, own in ((slice(policy.action_rows), False), (slice(policy.action_rows, None), True)):
        policy.zero_grad()
        output, _ = policy(torch.randn(1, 9, FEATURES))
        output[rows].square().sum().backward()
        moved = {name for name, p in policy.named_parameters() if p.grad is not None and p.grad.any()}
        assert moved and all((name in apart) == own for name in moved)


@pytest.mark.parametrize("actions", ACTIONS)
@pytest.mark.parametrize("kind", POLICIES)
def test_one_step_is_the_forward_pass_of_one_step_and_sees_updates(kind: str, actions: str) -> None:
    policy = make_policy(make_spec(**ACTIONS[actions]), **POLICIES[kind])
    flat = FlatWeights(policy)
    observations, resets = torch.randn(6, FEATURES), torch.arange(6) % 2 == 0
    state = torch.randn(6, policy.state_size) if policy.state_size else None
    out = torch.empty(policy.rows, 12)[:, 3:9]  # rows apart, as in a rollout's buffer
    for _ in range(2):
        with torch.no_grad():
            expected, expected_after = policy(observations.unsqueeze(0), state, resets.unsqueeze(0))
            for held in (False, True):
                with policy.held() if held else contextlib.nullcontext():
                    assert (policy._packed is not None) == (held and kind == "lstm")
                    places = (None,) if state is None else (None, torch.full_like(state, -1.0), state.clone())
                    for number, after in enumerate(places):
                        # The state after a step may be written over the one before it.
                        before = after if number == 2 else state
                        policy.step(observations, before, resets, out.fill_(-1.0), after)
                        torch.testing.assert_close(out, expected)
                        if after is not None:
                            torch.testing.assert_close(after, expected_after)
            flat.weights.mul_(1.5)


@pytest.mark.parametrize("shape", [(2, 3, 4), (1, 1, 1), (3, 36, 40), (4, 84, 84)])
def test_convolutions_take_grids_of_any_size(shape: tuple[int, int, int]) -> None:
    policy = make_policy(make_spec(shape), encoder="cnn")
    assert policy(torch.randn(1, 2, math.prod(shape)))[0].shape == (5, 2)


@pytest.mark.parametrize(("shape", "parts"), [((4, 11, 11), (1, 1)), ((4, 84, 84), (1, 2, 2))])
def test_convolutions_have_the_channels_that_are_set(shape: tuple[int, int, int], parts: tuple[int, ...]) -> None:
    policy = make_policy(make_spec(shape), encoder="cnn", channels=6)
    convolutions = [layer for layer in policy.encoder.modules() if isinstance(layer, torch.nn.Conv2d)]
    assert [layer.out_channels for layer in convolutions] == [6 * part for part in parts]
    assert policy(torch.randn(1, 2, math.prod(shape)))[0].shape == (5, 2)


def test_the_largest_layer_counts_each_place_of_a_convolution() -> None:
    """So threads are used for small networks over large images, too."""
    policy = make_policy(make_spec((4, 84, 84)), encoder="cnn", channels=16, hidden_size=16, num_layers=1)
    assert policy.largest_layer == 20 * 20 * 16 * 4 * 8 * 8
    assert make_policy(make_spec((8,)), hidden_size=16, num_layers=2).largest_layer == 16 * 16


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("shape", [(4, 11, 11), (4, 84, 84)])
def test_images_of_bytes_are_read_as_their_numbers(shape: tuple[int, int, int], half: bool) -> None:
    """Bytes are divided by the space's largest value, in whichever order the pixels lie."""
    spec = dataclasses.replace(make_spec(shape), observation_dtype="uint8", observation_high=200.0)
    seed = torch.Generator().manual_seed(1)
    config = PolicyConfig(encoder="cnn", hidden_size=16, num_layers=1, separate_value=True)
    policy = Policy(spec, config, generator=seed, half_convolutions=half)
    drawn = torch.randint(0, 201, (1, 7, math.prod(shape)), generator=seed, dtype=torch.uint8)
    torch.testing.assert_close(policy(drawn)[0], policy(drawn / 200)[0], rtol=1e-5, atol=1e-6)


def test_convolutions_over_large_images_may_be_in_bfloat16() -> None:
    """Outputs and gradients move by some of bfloat16's roundings, 2^-9 each; those of small grids do not move."""

    def run(shape: tuple[int, int, int], half: bool) -> tuple[torch.Tensor, torch.Tensor]:
        seed = torch.Generator().manual_seed(1)
        config = PolicyConfig(encoder="cnn", hidden_size=64, separate_value=True)
        policy = Policy(make_spec(shape), config, generator=seed, half_convolutions=half)
        observations = torch.rand(1, 16, math.prod(shape), generator=seed)
        output, _ = policy(observations)
        output.square().sum().backward()
        return output.detach(), torch.cat([p.grad.flatten() for p in policy.parameters() if p.grad is not None])

    for ours, exact in zip(run((4, 84, 84), True), run((4, 84, 84), False), strict=True):
        assert ours.dtype == torch.float32 and not torch.equal(ours, exact)
        assert float((ours - exact).norm() / exact.norm()) < 0.05
    for ours, exact in zip(run((4, 11, 11), True), run((4, 11, 11), False), strict=True):
        assert torch.equal(ours, exact)


def test_convolutions_do_not_read_a_vector() -> None:
    with pytest.raises(
        ConfigError, match=r"'cnn' needs observations that are grids .* have the shape \(8,\): use 'mlp'"
    ):
        make_policy(make_spec((8,)), encoder="cnn")
