"""What a run takes of a GPU at least: known before it is taken, and never more than it takes."""

import gc
from typing import Any

import pytest
import torch
from ppo_runs import small
from whole_runs import go

from protein.trainer.environments import spec
from protein.trainer.errors import OutOfMemoryError
from protein.trainer.ppo import memory
from protein.trainer.ppo.update import PPO


def held_bytes() -> int:
    """Returns the bytes of all tensors that are in use."""
    gc.collect()  # those that earlier tests have left would go in between
    storages = {}
    for one in gc.get_objects():
        if type(one) in (torch.Tensor, torch.nn.Parameter) and one.device.type == "cpu":
            storages[one.untyped_storage().data_ptr()] = one.untyped_storage().nbytes()
    return sum(storages.values())


@pytest.mark.parametrize(
    ("env", "sections"),
    [
        ("pong", {}),
        ("pendulum", {"train": {"overlap": True}}),
        ("g2048", {"policy": {"recurrence": "mingru", "num_layers": 1}}),
    ],
)
def test_an_iteration_holds_more_than_the_least(
    env: str, sections: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    train = {"horizon": 16, "minibatch_size": 16, "total_timesteps": 128 * 16, "threads": 1}
    train |= sections.get("train", {})
    policy = {"hidden_size": 16} | sections.get("policy", {})
    config = small(env={"name": env, "num_envs": 128}, policy=policy, train=train)
    before, update, held = held_bytes(), PPO.update, list[int]()

    def watched(ppo: PPO, *arguments: Any) -> Any:
        held.append(held_bytes() - before)
        return update(ppo, *arguments)

    monkeypatch.setattr(PPO, "update", watched)
    go(config)
    assert held[0] / 20 < memory.least_bytes(config, spec(env)) < held[0]  # and no number of another size


def test_a_run_that_cannot_fit_says_so_before_anything_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    config = small(env={"num_envs": 4096}, train={"horizon": 256})
    monkeypatch.setattr(memory, "free_bytes", lambda device: 1e6)
    with pytest.raises(OutOfMemoryError) as raised:
        go(config)
    assert str(raised.value) == (
        "4,096 agents (env.num_envs 4,096) and train.horizon 256 need at least 0.0703 GiB of the device, and 0.000931"
        " GiB are free: lower env.num_envs, train.horizon or train.minibatch_size"
    )


def test_more_of_anything_takes_more() -> None:
    pong = spec("pong")
    least = memory.least_bytes(small(), pong)
    for more in ({"env": {"num_envs": 32}}, {"train": {"horizon": 64}}, {"policy": {"hidden_size": 16}}):
        assert memory.least_bytes(small(**more), pong) > least
    assert memory.least_bytes(small(), pong, processes=2) < least
    assert memory.free_bytes(torch.device("cpu")) == float("inf")
