"""A network of the user's own that keeps the contract of shapes and cannot be trained is found by one small pass."""

import copy
import dataclasses
from typing import Any

import pytest
import torch
from flawed_networks import Flawed, flaw
from torch import nn
from training_parts import CPU, make_spec

from protein.trainer.config import RunConfig
from protein.trainer.errors import ConfigError
from protein.trainer.ppo.trainable import require_trainable, try_out

HERE = __name__


class Overwrites(Flawed):
    def forward(self, observations: torch.Tensor, *state: torch.Tensor) -> Any:
        hidden = torch.exp(self.action(observations))
        hidden += 1
        return hidden, self.value(observations)


class OverwritesItsState(Flawed):
    state_size = 4

    def forward(self, observations: torch.Tensor, *state: torch.Tensor) -> Any:
        after = torch.tanh(self.action(observations) + state[0])
        actions = after * 2
        after.add_(1)
        return actions, self.value(observations), after


class Flips(nn.Module):
    """Fails at the dtype that autocast gives."""

    def __init__(self, **given: Any) -> None:
        super().__init__()
        self.layer = nn.Linear(24, 5)

    def forward(self, observations: torch.Tensor) -> Any:
        mixed = torch.zeros(len(observations), 5).index_put_(
            (torch.arange(len(observations)),), self.layer(observations)
        )
        return mixed[:, :4], mixed[:, 4]


class Backwards(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: torch.Tensor) -> torch.Tensor:
        return values * 1.0

    @staticmethod
    def backward(ctx: Any, *by_values: torch.Tensor) -> Any:
        raise KeyError("no such derivative")


class HoldsAGraph(Flawed):
    def __init__(self, observation_shape: tuple[int, ...], action_outputs: int, value_outputs: int) -> None:
        super().__init__(observation_shape, action_outputs, value_outputs)
        self.last = self.action.weight * 2


Cut = flaw(lambda actions, values: (actions, values.detach()))
CutByNumpy = flaw(lambda actions, values: (torch.from_numpy(actions.detach().numpy()), values))
RootOfZero = flaw(lambda actions, values: (actions + (values * 0).abs().sqrt(), values))
NormOfZero = flaw(
    lambda actions, values, state: (actions + state / state.norm(dim=1, keepdim=True), values, values + state),
    state_size=4,
)
OwnDerivative = flaw(lambda actions, values: (Backwards.apply(actions), values))  # type: ignore[no-untyped-call]
Sound = flaw(lambda actions, values: (actions, values))


def config(module: str, **train: Any) -> RunConfig:
    return RunConfig.from_dict({"policy": {"module": f"{HERE}:{module}"}, "train": {"device": "cpu", **train}})


@pytest.mark.parametrize(
    ("module", "message"),
    [
        ("Cut", "must return values that can be differentiated by its weights"),
        ("CutByNumpy", "must return actions that can be differentiated by its weights"),
        ("Overwrites", "failed in the backward pass of its actions, on a minibatch of 4 samples: RuntimeError: one of"),
        ("OverwritesItsState", "in the backward pass of its actions, on a minibatch of 3 x 4 samples: RuntimeError"),
        ("RootOfZero", "failed in the backward pass of its actions"),
        (
            "NormOfZero",
            "must return actions that are finite, on a minibatch of 3 x 4 samples, whose state begins as zeros",
        ),
        (
            "OwnDerivative",
            "failed in the backward pass of its actions, on a minibatch of 4 samples: KeyError: 'no such",
        ),
    ],
)
def test_what_cannot_be_trained_is_one_line_with_its_place_and_the_contract(module: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        try_out(config(module), make_spec((24,)), CPU)
    line = str(caught.value)
    assert line.startswith(f"policy.module '{HERE}:{module}' ") and message in line and "\n" not in line
    assert line.endswith("see the contract in docs/own-policy.md") and "Hint" not in line
    if "backward" in message:
        assert f"{HERE.replace('.', '/')}.py, line " in line


def test_the_precision_of_the_run_is_tried() -> None:
    try_out(config("Flips", precision="fp32"), make_spec((24,)), CPU)
    with pytest.raises(ConfigError, match="failed in a step of 4 agents: RuntimeError: Index put requires"):
        try_out(config("Flips", precision="bf16"), make_spec((24,)), CPU)


def test_a_network_that_must_be_copied_is_copied() -> None:
    try_out(config("HoldsAGraph"), make_spec((24,)), CPU)
    with pytest.raises(ConfigError, match=r"cannot be copied, which train\.overlap and train\.cpu_inference need"):
        try_out(config("HoldsAGraph", overlap=True), make_spec((24,)), CPU)


def test_a_sound_network_stays_as_it_is() -> None:
    policy = try_out(config("Sound"), make_spec((24,)), CPU)
    before, drawn = copy.deepcopy(policy.state_dict()), torch.get_rng_state()
    require_trainable(policy, config("Sound"), CPU)
    assert all(after.equal(before[name]) for name, after in policy.state_dict().items())
    assert all(weight.grad is None for weight in policy.parameters())
    assert torch.get_rng_state().equal(drawn) and not torch.is_anomaly_enabled()


def test_bytes_are_tried_as_bytes() -> None:
    seen: list[torch.Tensor] = []
    policy = try_out(config("Sound"), dataclasses.replace(make_spec((24,)), observation_dtype="uint8"), CPU)
    assert policy.own is not None
    policy.own.module.register_forward_pre_hook(lambda _module, given: seen.append(given[0]))
    require_trainable(policy, config("Sound"), CPU)
    assert all(rows.dtype == torch.float32 and rows.max() <= 1 and rows.max() > 0.5 for rows in seen) and seen
