"""A checkpoint's policy as one small file for pages: what acting needs, and nothing else of the run.

The file is a safetensors file, as the checkpoint is: eight bytes with the length of a JSON head, the head, the numbers.
Its metadata have the key `policy`, JSON that says how the network is put together. The weights have the names that they
have in the checkpoint, `normalise.mean` and `normalise.scale` are the observations' where the run has normalised them.
`protein/web/static/play/policy.js` reads it.
"""

import json
from pathlib import Path

import torch
from safetensors.torch import save

from protein.envs_c import spec, worlds

from .errors import ConfigError
from .machine import checkpoint as checkpoints
from .model import saved as policies
from .model.policy import CNN, Policy
from .normalise import CLIP, saved_normalizer

FORMAT = "protein-policy-1"


def export_policy(path: Path, *, half: bool = False) -> bytes:
    """Returns the file for the policy of a checkpoint.

    Args:
        path: of the checkpoint.
        half: weights in 16 bits, which is half the size; outputs then differ in the third digit.

    Raises:
        CheckpointError: the checkpoint cannot be read, or belongs to another network or environment.
        ConfigError: its environment is none that a page can play, or its network is the user's own code.
    """
    saved = policies.read(path, prefix=policies.ACTING)
    config = saved.config
    try:
        worlds.require(config.env.name)
    except worlds.NoWorldError as error:
        raise ConfigError(f"{path}: {error}") from error
    if config.policy.module:
        raise ConfigError(
            f"{path} has a network of your own, {config.policy.module}, whose code a page cannot run: give a checkpoint"
            " of a built-in network"
        )
    of_env = spec(config.env.name)
    policies.require_env(saved, path, of_env)
    policy = Policy(of_env, config.policy, generator=torch.Generator())
    checkpoints.load_weights_(policy, saved.group("policy"), path)
    tensors = {name: weight.detach().float() for name, weight in policy.named_parameters()}
    normalizer = saved_normalizer(saved.group("scaling"), torch.device("cpu"))
    if half:
        tensors = {name: weight.half() for name, weight in tensors.items()}
    if normalizer is not None:  # of which 16 bits would change every input
        mean, scale = normalizer.factors
        tensors |= {"normalise.mean": mean, "normalise.scale": scale}
    encoder = policy.encoder
    head = {
        "env": config.env.name,
        "frameSkip": config.env.frame_skip,
        "greedy": config.eval.greedy,
        "steps": saved.checkpoint.steps,
        "seconds": saved.checkpoint.elapsed_seconds,
        "score": saved.checkpoint.score,
        "observationShape": of_env.observation_shape,
        "observationHigh": of_env.observation_high if of_env.observation_dtype == "uint8" else 0,
        "clip": CLIP,
        "actionSizes": of_env.action_sizes,
        "continuousActions": of_env.continuous_actions,
        "convolutions": encoder.strides_and_paddings if isinstance(encoder, CNN) else [],
        "layers": config.policy.num_layers,
        "activation": config.policy.activation,
        "recurrence": config.policy.recurrence,
        "separateValue": config.policy.separate_value,
        "valueBins": config.policy.value_bins,
        "valueLimit": config.policy.value_limit,
    }
    return save(tensors, {"format": FORMAT, "policy": json.dumps(head)})
