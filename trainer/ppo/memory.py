"""How much memory of a GPU a run takes at least, found before any of it is taken.

A sweep searches the number of environments, and finds out the limits of the device by it. A trial that cannot fit ends
at once, as out of memory, with the settings that it should lower. What is counted is certain: the samples of an
iteration on the device, and what one minibatch keeps for its backward pass. Libraries and allocators take more, and a
run that fails later for lack of memory ends with the same reason.
"""

import math

import numpy as np
import torch

from protein.envs_c import EnvSpec

from ..config import RunConfig
from ..errors import OutOfMemoryError

GIB = 2.0**30
SCALARS = 3  # float32 of a sample: its log-probability, value and reward
LEAST_BYTES = 2  # of an activation that is kept, in half precision


def least_bytes(config: RunConfig, spec: EnvSpec, processes: int = 1) -> int:
    """Returns the bytes that a run takes at least on the device of each of its processes."""
    train, policy = config.train, config.policy
    outputs = sum(spec.action_sizes) + 2 * spec.continuous_actions
    components = len(spec.action_sizes) + spec.continuous_actions
    numbers = SCALARS + components + 2 * outputs  # the noise that draws actions, and the policy's outputs
    each = spec.observation_size * np.dtype(spec.observation_dtype).itemsize + 4 * numbers
    samples = config.env.num_envs // processes * spec.agents_per_env * train.horizon
    kept = spec.observation_size + (0 if policy.module else policy.hidden_size * policy.num_layers)
    minibatch = min(train.minibatch_size // processes, samples) // train.accumulation_steps
    return samples * each + minibatch * kept * LEAST_BYTES


def require_memory(config: RunConfig, spec: EnvSpec, free: float, processes: int = 1) -> None:
    """Raises `OutOfMemoryError` where a run cannot fit into `free` bytes of its device."""
    needed = least_bytes(config, spec, processes)
    if needed > free:
        agents = config.env.num_envs * spec.agents_per_env
        raise OutOfMemoryError(
            f"{agents:,} agents (env.num_envs {config.env.num_envs:,}) and train.horizon {config.train.horizon} need at"
            f" least {needed / GIB:.3g} GiB of the device, and {free / GIB:.3g} GiB are free: lower env.num_envs,"
            " train.horizon or train.minibatch_size"
        )


def free_bytes(device: torch.device) -> float:
    """Returns the memory of a GPU that is free; infinite on other devices, whose limits the system keeps."""
    return float(torch.cuda.mem_get_info(device)[0]) if device.type == "cuda" else math.inf
