"""Observations of bytes: kept as bytes in batches, and read by the policy as the numbers that they stand for."""

import dataclasses

import numpy as np
import pytest
import torch
from training_parts import POLICIES, make_policy, make_rollout, make_spec

from protein.envs_c import spec as native_spec
from protein.trainer.environments import make

BYTES = dataclasses.replace(make_spec(), observation_dtype="uint8", observation_high=15.0)


@pytest.mark.parametrize("name", POLICIES)
def test_a_policy_reads_bytes_as_their_share_of_the_largest(name: str) -> None:
    policy = make_policy(BYTES, **POLICIES[name])
    plain = make_policy(make_spec(), **POLICIES[name])
    generator = torch.Generator().manual_seed(0)
    seen = torch.randint(0, 16, (3, 5, BYTES.observation_size), dtype=torch.uint8, generator=generator)
    numbers = seen.float() * (1 / 15)
    for ours, theirs in zip(policy.parameters(), plain.parameters(), strict=True):
        assert torch.equal(ours, theirs)
    outputs = []
    for network, observations in ((policy, seen), (plain, numbers)):
        for parameter in network.parameters():
            parameter.grad = torch.zeros_like(parameter)
        output, backward = network.vjp(observations, None, None)
        backward(torch.ones_like(output))
        step = torch.zeros(network.rows, 5)
        state = torch.zeros(5, network.state_size) if network.state_size else None
        with torch.no_grad():
            network.step(observations[0], state, None, step)
        gradients = [parameter.grad for parameter in network.parameters() if parameter.grad is not None]
        outputs.append([output.detach(), step, *gradients])
    for ours, theirs in zip(*outputs, strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("name", ["snake", "g2048"])
def test_batches_of_ours_hold_bytes(name: str) -> None:
    described = native_spec(name)
    assert (described.observation_dtype, described.observation_high) == ("uint8", 1.0)
    envs = make(name, 1)
    rollout = make_rollout([envs], make_policy(described), 4)
    rollout.reset(0)
    batch = rollout.collect(4)
    assert batch.observations.dtype == torch.uint8
    assert set(batch.observations.unique().tolist()) == {0, 1}
    assert rollout.state()["observations"].dtype == torch.uint8
    with pytest.raises(ValueError, match="observations must be a writeable C-contiguous uint8 array"):
        envs.reset(0, np.zeros((envs.num_agents, described.observation_size), np.float32))
