"""The schedule in closed form, AdamW and Muon against torch's own on a copy, and the loss scaler."""

import copy
import math
from collections.abc import Iterable
from typing import Any

import pytest
import torch
from torch import nn
from training_parts import GRID, POLICIES, make_policy, make_spec

from protein.trainer.config import TrainConfig
from protein.trainer.model.policy import Policy
from protein.trainer.optim.muon import BATCHED_SIDE, COEFFICIENTS, ITERATIONS, Muon, orthogonalised
from protein.trainer.optim.optimizer import AdamW, FlatWeights, Optimizer
from protein.trainer.ppo.update import make_optimizer as policy_optimizer
from protein.trainer.progress import rate_share


@pytest.mark.parametrize(
    ("schedule", "warmup", "progress", "share"),
    [
        ("constant", 0.0, 0.9, 1.0),
        ("linear", 0.0, 0.25, 0.75),
        ("cosine", 0.0, 0.0, 1.0),
        ("cosine", 0.0, 0.5, 0.5),
        ("cosine", 0.0, 1.0, 0.0),
        ("cosine", 0.0, 1 / 3, 0.75),
        ("constant", 0.2, 0.05, 0.25),
        ("linear", 0.2, 0.1, 0.5),
        ("linear", 0.2, 0.2, 1.0),
        ("linear", 0.2, 0.6, 0.5),
        ("cosine", 0.2, 0.0, 0.0),
        ("cosine", 0.2, 0.6, 0.5),
        ("cosine", 1.0, 0.5, 0.5),
        ("cosine", 1.0, 1.0, 1.0),
        ("wsd", 0.2, 0.1, 0.5),
        ("wsd", 0.2, 0.2, 1.0),
        ("wsd", 0.2, 0.6, 1.0),
        ("wsd", 0.2, 0.8, 0.5),
        ("wsd", 0.0, 1.0, 0.0),
    ],
)
def test_the_schedules_closed_forms(schedule: Any, warmup: float, progress: float, share: float) -> None:
    config = TrainConfig(lr_schedule=schedule, warmup_fraction=warmup, decay_fraction=0.4)
    assert rate_share(config, progress) == pytest.approx(share, abs=1e-12)
    floored = share if progress < warmup else 0.1 + 0.9 * share
    assert rate_share(config, progress, 0.1) == pytest.approx(floored, abs=1e-12)


def make_optimizer(policy: Policy, **train: Any) -> tuple[FlatWeights, Optimizer]:
    flat = FlatWeights(policy)
    return flat, policy_optimizer(policy, flat.weights, TrainConfig(**train))


def fill_gradients(policy: nn.Module, step: int) -> None:
    generator = torch.Generator().manual_seed(step)
    for parameter in policy.parameters():
        gradient = torch.randn(parameter.shape, generator=generator)
        if parameter.grad is None:
            parameter.grad = gradient
        else:
            parameter.grad.copy_(gradient)


HIDDEN = {
    "mlp": {"encoder.layers.1.weight", "encoder.layers.2.weight"},
    "continuous": {"encoder.layers.1.weight", "encoder.layers.2.weight"},
    "cnn": {"encoder.mlp.layers.0.weight"},
    "lstm": {"encoder.layers.1.weight", "recurrence.input.weight", "recurrence.weight_hh"},
    "mingru": {"encoder.layers.1.weight", "recurrence.input.weight"},
    "shallow": set(),
}


def policy_for(kind: str) -> Policy:
    spec = make_spec(continuous_actions=2) if kind == "continuous" else make_spec()
    layers = {"mlp": {"num_layers": 3}, "continuous": {"num_layers": 3}, "shallow": {"num_layers": 1}}
    return make_policy(spec, **(POLICIES.get(kind, {}) | layers.get(kind, {})))


@pytest.mark.parametrize("kind", HIDDEN)
def test_muon_takes_exactly_the_hidden_matrices_and_adamw_the_rest(kind: str) -> None:
    """Three steps with decay, against torch's two optimisers on a copy of the network, chosen by name.

    A recurrent layer's gates are matrices of their own: for torch's Muon they are taken apart.
    """
    policy = policy_for(kind)
    start, reference = copy.deepcopy(policy), copy.deepcopy(policy)
    train = {"learning_rate": 0.02, "lr_schedule": "constant", "weight_decay": 0.1, "beta1": 0.8, "adam_eps": 1e-6}
    _, optimizer = make_optimizer(policy, optimizer="muon", **train)
    named = dict(reference.named_parameters())
    assert HIDDEN[kind] <= named.keys()
    others = [parameter for name, parameter in named.items() if name not in HIDDEN[kind]]
    theirs: list[torch.optim.Optimizer] = [
        torch.optim.AdamW(matrices_alone(others, 0.1), lr=0.02, betas=(0.8, 0.999), eps=1e-6)
    ]
    parts: dict[str, list[nn.Parameter]] = {}
    if HIDDEN[kind]:
        whole = {name: named[name] for name in sorted(HIDDEN[kind])}
        parts = {
            name: [nn.Parameter(gate.detach().clone()) for gate in matrix.split(gate_rows(name, matrix))]
            for name, matrix in whole.items()
        }
        hidden = [gate for gates in parts.values() for gate in gates]
        theirs.append(torch.optim.Muon(hidden, lr=0.02, weight_decay=0.1, momentum=0.8, adjust_lr_fn="match_rms_adamw"))
    for step in range(3):
        fill_gradients(policy, step)
        fill_gradients(reference, step)
        for name, gates in parts.items():
            gradient = named[name].grad
            assert gradient is not None
            for gate, own in zip(gates, gradient.split(len(gates[0])), strict=True):
                gate.grad = own
        optimizer.set_progress(0.5)
        optimizer.step(0.0)
        for each in theirs:
            each.step()
        with torch.no_grad():
            for name, gates in parts.items():
                named[name].copy_(torch.cat(tuple(gates)))
    began = dict(start.named_parameters())
    for name, parameter in policy.named_parameters():
        if name in HIDDEN[kind]:  # products of bfloat16, here in batches
            moved = (named[name] - began[name]).norm()
            assert (parameter - named[name]).norm() < 0.02 * moved, name
        else:
            torch.testing.assert_close(parameter, named[name], rtol=1e-4, atol=1e-6, msg=name)


def gate_rows(name: str, matrix: torch.Tensor) -> int:
    return matrix.shape[1] if name.startswith("recurrence.") else matrix.shape[0]


def matrices_alone(parameters: Iterable[nn.Parameter], weight_decay: float) -> list[dict[str, Any]]:
    """The groups of a torch optimiser of which only matrices decay."""
    parameters = list(parameters)
    return [
        {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": weight_decay},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]


@pytest.mark.parametrize("kind", ["mlp", "cnn", "continuous"])
def test_adamw_is_torchs_and_only_matrices_decay(kind: str) -> None:
    policy = policy_for(kind)
    reference = copy.deepcopy(policy)
    _, optimizer = make_optimizer(policy, learning_rate=0.1, weight_decay=0.3, beta2=0.9, lr_schedule="linear")
    groups = matrices_alone(reference.parameters(), 0.3)
    theirs = torch.optim.AdamW(groups, lr=0.075, betas=(0.9, 0.9), eps=1e-5)
    for step in range(3):
        fill_gradients(policy, step)
        fill_gradients(reference, step)
        optimizer.set_progress(0.25)
        optimizer.step(0.0)
        theirs.step()
    for ours, other in zip(policy.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(ours, other, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("kind", ["adamw", "muon"])
def test_the_state_carries_over(kind: str) -> None:
    first, second = policy_for("lstm"), policy_for("lstm")
    (_, ours), (weights, other) = (make_optimizer(policy, optimizer=kind) for policy in (first, second))
    fill_gradients(first, 0)
    ours.set_progress(0.0)
    ours.step(0.5)
    with torch.no_grad():
        weights.weights.copy_(torch.cat([p.flatten() for p in first.parameters()]))
    other.set_state({})  # as earlier versions saved before a run's first step
    other.set_state({name: value.clone() for name, value in ours.state().items()})
    before = moments(other)
    for wrong in ("adamw" if kind == "muon" else "muon", kind):
        _, foreign = make_optimizer(policy_for("lstm" if wrong != kind else "mlp"), optimizer=wrong)
        with pytest.raises(ValueError, match=r"use the same train\.optimizer"):
            other.set_state(foreign.state())
    assert all(torch.equal(value, before[name]) for name, value in moments(other).items()), "nothing is half restored"
    for policy, optimizer in ((first, ours), (second, other)):
        fill_gradients(policy, 1)
        optimizer.set_progress(0.4)
        optimizer.step(0.5)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))


def moments(optimizer: Optimizer) -> dict[str, torch.Tensor]:
    """Copies of what the optimisers keep, without the scale of the loss."""
    return {name: value.clone() for name, value in optimizer.state().items() if name.startswith("optimizer.")}


@pytest.mark.parametrize("kind", ["adamw", "muon"])
@pytest.mark.parametrize("bad", [math.inf, math.nan])
@pytest.mark.parametrize("place", ["encoder.layers.1.weight", "head.bias"])
def test_a_step_that_overflowed_is_left_out_whole_and_the_scale_halves(kind: str, bad: float, place: str) -> None:
    """Whichever of the two optimisers owns the weight that overflowed."""
    policy = policy_for("mlp")
    flat, optimizer = make_optimizer(policy, optimizer=kind, precision="fp16")
    factor = optimizer.scaled(torch.ones(())).item()
    fill_gradients(policy, 0)
    flat.gradients.mul_(factor)
    assert optimizer.step(0.5).item() > 0.5
    before, state = flat.weights.detach().clone(), moments(optimizer)
    fill_gradients(policy, 1)
    gradient = dict(policy.named_parameters())[place].grad
    assert gradient is not None
    gradient.view(-1)[1] = bad
    assert optimizer.step(0.5).item() == 0
    assert flat.weights.detach().equal(before)
    assert all(torch.equal(value, state[name]) for name, value in moments(optimizer).items())
    assert optimizer.scaled(torch.ones(())).item() == factor / 2
    fill_gradients(policy, 2)
    flat.gradients.mul_(factor / 2)
    assert math.isfinite(optimizer.step(0.5).item())
    assert not torch.equal(flat.weights.detach(), before) and flat.weights.isfinite().all()


def test_a_scaled_step_is_the_unscaled_one() -> None:
    steps = []
    for precision in ("fp32", "fp16"):
        policy = policy_for("mlp")
        flat, optimizer = make_optimizer(policy, learning_rate=0.05, precision=precision)
        fill_gradients(policy, 0)
        flat.gradients.mul_(optimizer.scaled(torch.ones(())))
        norm = optimizer.step(0.5)
        steps.append((norm.item(), flat.weights.detach().clone()))
    assert steps[0][0] == pytest.approx(steps[1][0], rel=1e-6)
    torch.testing.assert_close(steps[0][1], steps[1][1], rtol=1e-6, atol=1e-7)


def test_the_scaler_is_exhausted_after_a_few_dozen_overflows_and_its_state_carries_over() -> None:
    policy = policy_for("mlp")
    flat, optimizer = make_optimizer(policy, precision="fp16")
    overflows = 0
    while not optimizer.exhausted:
        flat.gradients.fill_(math.inf)
        optimizer.step(1.0)
        overflows += 1
    assert overflows == 30  # 2^16 / 2^30 is the first below 1e-4
    _, other = make_optimizer(policy_for("mlp"), precision="fp16")
    assert not other.exhausted
    other.set_state(optimizer.state())
    assert other.exhausted and other.state().keys() == optimizer.state().keys()
    assert other.state()["scaler.scale"].equal(optimizer.state()["scaler.scale"])
    _, unscaled = make_optimizer(policy_for("mlp"), precision="bf16")
    unscaled.set_state(optimizer.state())
    assert unscaled.state().keys() == moments(optimizer).keys() and not unscaled.exhausted


def test_gradients_are_clipped_by_their_global_norm() -> None:
    """With plain gradient descent in AdamW's place the weights move by the learning rate times the clipped norm."""
    for limit, moved in ((0.0, 5.0), (1e6, 0.5 * math.sqrt(GRID[0] * 50)), (2.0, 1.0), (0.1, 0.05)):
        policy = policy_for("mlp")
        flat, optimizer = make_optimizer(policy)
        optimizer.parts = [torch.optim.SGD([flat.weights], lr=0.5)]  # type: ignore[list-item]
        before = flat.weights.detach().clone()
        flat.gradients.zero_()[:100] = 1.0
        norm = optimizer.step(limit)
        assert norm.item() == pytest.approx(10.0)
        assert (flat.weights.detach() - before).norm().item() == pytest.approx(moved, rel=1e-4)


# AdamW without torch's class around it: the same steps and the same state.

BETAS, EPS, DECAY = (0.9, 0.99), 1e-5, 0.1


def steps(optimizer: AdamW | torch.optim.AdamW, weights: torch.nn.Parameter, first: int, last: int) -> None:
    for step in range(first, last):
        rate = 0.01 / (1 + step)
        if isinstance(optimizer, AdamW):
            optimizer.learning_rate = rate
        else:
            optimizer.param_groups[0]["lr"] = rate
        weights.grad = torch.sin(weights.detach() * step)
        optimizer.step()


def test_steps_and_state_are_torchs() -> None:
    start = torch.randn(9, 37, generator=torch.Generator().manual_seed(0))
    ours, theirs = torch.nn.Parameter(start.clone()), torch.nn.Parameter(start.clone())
    one = AdamW([ours], learning_rate=0.01, weight_decay=DECAY, betas=BETAS, eps=EPS)
    other = torch.optim.AdamW([theirs], fused=True, lr=0.01, betas=BETAS, eps=EPS, weight_decay=DECAY)
    steps(one, ours, 0, 4)
    steps(other, theirs, 0, 4)
    assert torch.equal(ours, theirs)
    for name, value in other.state_dict()["state"][0].items():
        assert torch.equal(one.states[0][name], value)
    # Each goes on from the other's state.
    states = copy.deepcopy(one.states[0]), copy.deepcopy(other.state_dict()["state"][0])
    Optimizer(ours, [one], lambda _: 1.0).set_state({f"optimizer.0.0.{name}": v for name, v in states[1].items()})
    other.load_state_dict({"state": {0: states[0]}, "param_groups": other.state_dict()["param_groups"]})
    steps(one, ours, 4, 7)
    steps(other, theirs, 4, 7)
    assert torch.equal(ours, theirs) and not torch.equal(ours, start)


def test_of_a_vector_of_all_weights_only_the_marked_ones_decay() -> None:
    start = torch.randn(40, generator=torch.Generator().manual_seed(0))
    decays = (torch.arange(40) % 3 > 0).float()
    whole, marked, others = (
        torch.nn.Parameter(part) for part in (start.clone(), start[decays > 0], start[decays == 0])
    )
    parts: list[tuple[AdamW | torch.optim.AdamW, torch.nn.Parameter]] = [
        (AdamW([whole], learning_rate=0.01, weight_decay=DECAY, betas=BETAS, eps=EPS, decays=decays), whole),
        (torch.optim.AdamW([marked], lr=0.01, betas=BETAS, eps=EPS, weight_decay=DECAY), marked),
        (torch.optim.AdamW([others], lr=0.01, betas=BETAS, eps=EPS, weight_decay=0.0), others),
    ]
    for optimizer, weights in parts:
        steps(optimizer, weights, 0, 5)
    torch.testing.assert_close(whole[decays > 0], marked)
    torch.testing.assert_close(whole[decays == 0], others)


# Muon's iteration against the singular values that it shall reach; stacked matrices; many shapes in one step.


@pytest.mark.parametrize("shape", [(3, 8, 8), (2, 8, 24), (4, 24, 8), (2, BATCHED_SIDE, BATCHED_SIDE + 8)])
def test_singular_values_are_mapped_by_the_quintic(shape: tuple[int, int, int]) -> None:
    matrices = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    left, values, right = torch.linalg.svd(matrices.double(), full_matrices=False)
    values = values / values.norm(dim=1, keepdim=True)
    a, b, c = COEFFICIENTS
    for _ in range(ITERATIONS):
        values = a * values + b * values**3 + c * values**5
    expected = left @ torch.diag_embed(values) @ right
    found = orthogonalised(matrices)
    assert found.shape == shape and found.is_contiguous()
    assert (found.double() - expected).norm() < 0.03 * expected.norm()


def muon(parameters: list[nn.Parameter], stacked: int = 1) -> Muon:
    count = [stacked] * len(parameters)
    return Muon(parameters, learning_rate=0.1, weight_decay=0.2, momentum=0.9, stacked=count)


def drawn(*shapes: tuple[int, int]) -> list[nn.Parameter]:
    generator = torch.Generator().manual_seed(1)
    parameters = [nn.Parameter(torch.randn(shape, generator=generator)) for shape in shapes]
    for parameter in parameters:
        parameter.grad = torch.randn(parameter.shape, generator=generator)
    return parameters


def test_stacked_matrices_move_as_if_each_were_alone() -> None:
    (whole,) = drawn((24, 8))
    assert whole.grad is not None
    parts = [nn.Parameter(part.clone()) for part in whole.detach().split(8)]
    for part, gradient in zip(parts, whole.grad.split(8), strict=True):
        part.grad = gradient.clone()
    one, other = muon([whole], stacked=3), muon(parts)
    for _ in range(3):
        one.step()
        other.step()
    assert torch.equal(whole, torch.cat(list(parts)))
    before = whole.detach().clone()
    muon([whole]).step()  # not split: another step
    assert not torch.allclose(whole, before)


def test_shapes_may_come_in_any_order_and_the_state_is_by_number() -> None:
    shapes = (8, 8), (8, 16), (8, 8), (16, 8), (8, 16)
    together, alone = drawn(*shapes), drawn(*shapes)
    one, others = muon(together), [muon([parameter]) for parameter in alone]
    for _ in range(2):
        for optimizer in (one, *others):
            optimizer.step()
    for number, (ours, theirs) in enumerate(zip(together, alone, strict=True)):
        torch.testing.assert_close(ours, theirs)
        expected = others[number].states[0]["momentum_buffer"]
        torch.testing.assert_close(one.states[number]["momentum_buffer"], expected)
