"""Tries out whether a network of the user's own can be trained, before anything is made: one small pass each way.

That it keeps the contract of shapes is tried when it is built (`protein.trainer.model.custom`). Here it does what a run
does with it, on a few samples of the run's shapes, in its precision and on its device: it takes a step without
gradients, then gives the output of a minibatch, which is differentiated.
"""

import copy
import warnings

import torch

from protein.envs_c import EnvSpec

from ..config import RunConfig
from ..errors import ConfigError
from ..machine.precision import autocast, update_precision
from ..model.custom import CONTRACT, CustomNetwork
from ..model.policy import Policy

AGENTS, STEPS = 4, 3  # of the minibatch; a memory is carried over the steps


def try_out(config: RunConfig, spec: EnvSpec, device: torch.device) -> Policy:
    """Builds a run's policy and tries it out, where it is a network of the user's own.

    Raises:
        ConfigError: it does not keep the contract, or cannot be trained.
    """
    policy = Policy(spec, config.policy, generator=torch.Generator().manual_seed(config.train.seed)).to(device)
    require_trainable(policy, config, device)
    return policy


def require_trainable(policy: Policy, config: RunConfig, device: torch.device) -> None:
    """Tries a policy's passes out, if it is a network of the user's own. Its weights stay as they are.

    Args:
        policy: on its final device.
        config: of the run.
        device: where the policy is.

    Raises:
        ConfigError: a pass fails, or its gradient is missing or not finite.
    """
    custom = policy.own
    if custom is None:
        return
    if config.train.overlap or config.train.cpu_inference:
        custom.called("cannot be copied, which train.overlap and train.cpu_inference need", copy.deepcopy, policy)
    with torch.random.fork_rng():
        _step(policy, custom, config, device)
        _differentiate(policy, custom, config, device)


def _step(policy: Policy, custom: CustomNetwork, config: RunConfig, device: torch.device) -> None:
    """Takes one step as a rollout does."""
    observations, state, resets = _example(policy, custom, 1, device)
    out = torch.empty(policy.rows, AGENTS, device=device)
    with torch.no_grad(), autocast(device, config.train.precision):
        custom.called(
            f"failed in a step of {AGENTS} agents", policy.step, observations[0], state, resets[0], out, after=state
        )


def _differentiate(policy: Policy, custom: CustomNetwork, config: RunConfig, device: torch.device) -> None:
    """Computes the gradients of actions and values."""
    precision = update_precision(config.train)
    steps = min(STEPS, config.train.horizon) if policy.state_size else 1
    example = _example(policy, custom, steps, device)
    samples = f"a minibatch of {steps} x {AGENTS} samples" if policy.state_size else f"a minibatch of {AGENTS} samples"
    returned: list[tuple[torch.Tensor, ...]] = []
    hook = custom.module.register_forward_hook(lambda _module, _given, found: returned.append(found))
    with warnings.catch_warnings(record=True) as traces, torch.autograd.set_detect_anomaly(True):
        # Of an operation whose derivative fails, torch tells where it came from in a warning.
        warnings.simplefilter("always")
        try:
            with autocast(device, precision):
                output, _ = custom.called(f"failed on {samples}", policy, *example)
        finally:
            hook.remove()
        parts = {"actions": output[: policy.action_rows], "values": output[policy.action_rows :]}
        for index, (name, part) in enumerate(parts.items()):
            if not any(found[index].requires_grad for found in returned):
                raise ConfigError(
                    f"{custom.name} must return {name} that can be differentiated by its weights, but its {name} are"
                    f" cut off from them: leave out .detach(), .item(), .data, numpy and torch.no_grad: {CONTRACT}"
                )
            if not bool(part.isfinite().all()):
                begins = ", whose state begins as zeros" if policy.state_size else ""
                raise ConfigError(f"{custom.name} must return {name} that are finite, on {samples}{begins}: {CONTRACT}")
            weights = [weight for weight in custom.parameters() if weight.requires_grad]
            try:
                gradients = torch.autograd.grad(part.float().sum(), weights, retain_graph=True, allow_unused=True)
            except torch.OutOfMemoryError:
                raise
            except Exception as error:  # an operation of the user's own may raise anything
                trace = "\n".join(str(one.message) for one in traces)
                raise custom.failed(f"failed in the backward pass of its {name}, on {samples}", error, trace) from error
            if not all(bool(gradient.isfinite().all()) for gradient in gradients if gradient is not None):
                raise ConfigError(
                    f"{custom.name} must have finite gradients, but that of its {name} is not: {CONTRACT}"
                )


def _example(
    policy: Policy, custom: CustomNetwork, steps: int, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor]:
    """Returns observations, the state before them and where it is reset, as the policy takes them."""
    noise = torch.Generator().manual_seed(0)
    observations = torch.rand(steps, AGENTS, custom.observation_size, generator=noise)
    if policy.observation_dtype == torch.uint8:
        observations = observations.mul_(255)
    state = torch.zeros(AGENTS, policy.state_size, device=device) if policy.state_size else None
    resets = torch.zeros(steps, AGENTS, dtype=torch.bool, device=device)
    resets[0, 0] = True
    return observations.to(device, policy.observation_dtype), state, resets
