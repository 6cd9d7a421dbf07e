"""A user's own network: `policy.module = "my_file:MyNet"`, a plain `nn.Module` with this contract.

Notation: `B` samples; `S` floats of memory of an agent; `shape` of an observation; `A` action numbers: one logit for
each choice of each discrete component, or the mean of each continuous action (2A: the means, then the log standard
deviations; with A alone the deviations are parameters that do not depend on the observation); `V` value numbers, 1 or
`policy.value_bins`.

    class MyNet(nn.Module):
        state_size = 0                     # S; may be set in __init__; above 0 the network has a memory

        def __init__(self, observation_shape, action_outputs, value_outputs):    # any of these, by their names
        def forward(self, observations):            # float32 `B x *shape` -> actions `B x A`, values `B x V`, or `B`
        def forward(self, observations, state):     # with a memory: also state `B x S` -> ..., new state `B x S`

`__init__` may also ask for `action_sizes` (the choices of each discrete component), `continuous_actions` (their
number), `hidden_size` and `num_layers` (those settings of `[policy]`, which a sweep may search).

A network with a memory is called once for each step, and its state is zeroed where an episode begins. The outputs of a
sample may depend on that sample alone. So there can be no BatchNorm or dropout: while PPO compares the policy with that
of a moment ago, nothing but the weights may have changed. `require` tries all this out when the network is built.
"""

import importlib
import inspect
import os
import sys
from typing import Any

import torch
from torch import nn

from protein.spelling import nearest

from ...envs_c import EnvSpec
from ..config import PolicyConfig
from ..errors import ConfigError

TRIED = 3  # samples of a trial call
TOLERANCE = 1e-3  # of the outputs, between samples alone and together: float32 rounds otherwise for another size


class OwnNetwork(nn.Module):
    """Calls the user's network on whole segments; `state_size` is its memory."""

    def __init__(
        self, spec: EnvSpec, config: PolicyConfig, *, action_outputs: int, value_outputs: int, seed: int
    ) -> None:
        """Builds the network and tries it out.

        Args:
            spec: of the environment.
            config: its `module` names the network.
            action_outputs: A.
            value_outputs: V.
            seed: of the weights that it draws.

        Raises:
            ConfigError: there is no such network, or it does not keep the contract.
        """
        super().__init__()
        self._name, self._shape = f"policy.module '{config.module}'", spec.observation_shape
        offered = {
            "observation_shape": spec.observation_shape,
            "action_outputs": action_outputs,
            "value_outputs": value_outputs,
            "action_sizes": spec.action_sizes,
            "continuous_actions": spec.continuous_actions,
            "hidden_size": config.hidden_size,
            "num_layers": config.num_layers,
        }
        kind = _find(config.module)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.module = self._called("could not be built", kind, **self._wanted(kind, offered))
        if not isinstance(self.module, nn.Module):
            raise ConfigError(f"{self._name} must be a torch.nn.Module, it made a {type(self.module).__name__}")
        self.state_size: int = getattr(self.module, "state_size", 0)
        self.action_outputs = self._require(spec, action_outputs, value_outputs)

    def forward(
        self, observations: torch.Tensor, state: torch.Tensor | None, resets: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Maps observations `T x M x D` to outputs `(T * M) x (A + V)` and the state after the last step, `M x S`."""
        steps, agents = observations.shape[:2]
        if not self.state_size:
            return self._joined(*self.module(observations.reshape(-1, *self._shape))), None
        if state is None:
            state = observations.new_zeros(agents, self.state_size, dtype=torch.float32)
        outputs = []
        for t in range(steps):
            if resets is not None:
                state = torch.where(resets[t].unsqueeze(1), 0.0, state)
            actions, values, state = self.module(observations[t].reshape(agents, *self._shape), state)
            state = state.float()
            outputs.append(self._joined(actions, values))
        return torch.cat(outputs), state

    @staticmethod
    def _joined(actions: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        return torch.cat([actions, values.unsqueeze(1) if values.ndim == 1 else values], dim=1)

    def _wanted(self, kind: Any, offered: dict[str, Any]) -> dict[str, Any]:
        """Returns what the constructor asks for, of what is offered."""
        variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        parameters = [p for p in inspect.signature(kind).parameters.values() if p.kind not in variable]
        unknown = [p.name for p in parameters if p.default is p.empty and p.name not in offered]
        if unknown:
            raise ConfigError(
                f"{self._name} asks for '{unknown[0]}', which is not offered{nearest(unknown[0], offered)}"
            )
        return {parameter.name: offered[parameter.name] for parameter in parameters if parameter.name in offered}

    def _require(self, spec: EnvSpec, action_outputs: int, value_outputs: int) -> int:
        """Tries the network out; returns how many action numbers it gives, A or (continuous) 2A.

        Raises:
            ConfigError: it does not keep the contract.
        """
        weights = list(self.module.parameters())
        if not any(weight.requires_grad for weight in weights):
            raise ConfigError(f"{self._name} has no weights to train: give it layers or an nn.Parameter")
        if (wrong := next((weight.dtype for weight in weights if weight.dtype != torch.float32), None)) is not None:
            raise ConfigError(f"{self._name} must have weights of float32, it has some of {wrong}: see train.precision")
        if type(self.state_size) is not int or self.state_size < 0:
            raise ConfigError(f"{self._name} must have a state_size, an int of 0 or more, got {self.state_size!r}")
        noise = torch.Generator().manual_seed(0)
        observations = torch.rand(TRIED, *spec.observation_shape, generator=noise)
        given: tuple[torch.Tensor, ...] = (observations,)
        if self.state_size:
            given += (torch.rand(TRIED, self.state_size, generator=noise),)
        with torch.no_grad():
            together = self._outputs(given)
            alone = [self._outputs(tuple(tensor[i : i + 1] for tensor in given)) for i in range(TRIED)]
        actions, values = together[:2]
        allowed = (action_outputs, 2 * action_outputs) if spec.continuous_actions else (action_outputs,)
        what = (
            f"the means of {action_outputs} continuous actions, or as many log standard deviations besides"
            if spec.continuous_actions
            else f"a logit for each choice of {' + '.join(map(str, spec.action_sizes))}"
        )
        self._require_shape("actions", actions, [(TRIED, count) for count in allowed], what)
        shapes = [(TRIED, value_outputs), *([(TRIED,)] if value_outputs == 1 else [])]
        self._require_shape("values", values, shapes, "the value" if value_outputs == 1 else "policy.value_bins")
        if self.state_size:
            self._require_shape("a state", together[2], [(TRIED, self.state_size)], "state_size")
        for index, one in enumerate(alone):
            for name, ours, theirs in zip(("actions", "values", "state"), one, together, strict=False):
                if not torch.allclose(ours[0].float(), theirs[index].float(), rtol=TOLERANCE, atol=TOLERANCE):
                    raise ConfigError(
                        f"{self._name} must map each sample by itself, but its {name} change with the other samples or "
                        "from call to call: use LayerNorm instead of BatchNorm, and no dropout"
                    )
        return int(actions.shape[1])

    def _outputs(self, given: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        found = self._called(f"failed on observations of shape {tuple(given[0].shape)}", self.module, *given)
        wanted = "(actions, values, state)" if self.state_size else "(actions, values)"
        parts = found if isinstance(found, tuple | list) else (found,)
        if len(parts) != wanted.count(",") + 1 or not all(isinstance(part, torch.Tensor) for part in parts):
            got = ", ".join(type(part).__name__ for part in parts)
            raise ConfigError(f"{self._name} must return {wanted}, tensors, got ({got}): see docs/own-policy.md")
        return tuple(parts)

    def _require_shape(self, name: str, found: torch.Tensor, allowed: list[tuple[int, ...]], what: str) -> None:
        if tuple(found.shape) not in allowed:
            shapes = " or ".join(map(str, allowed))
            raise ConfigError(
                f"{self._name} must return {name} of shape {shapes} ({what}) for {TRIED} samples of shape "
                f"{self._shape}, got {tuple(found.shape)}"
            )
        if not found.is_floating_point() or not bool(found.isfinite().all()):
            raise ConfigError(f"{self._name} must return {name} that are finite floats, got {found.dtype}: {found[0]}")

    def _called(self, failing: str, function: Any, *args: Any, **kwargs: Any) -> Any:
        """Calls the user's code. Whatever it raises becomes one line."""
        try:
            return function(*args, **kwargs)
        except Exception as error:
            reason = " ".join(str(error).split())
            raise ConfigError(f"{self._name} {failing}: {type(error).__name__}: {reason}") from error


def _find(reference: str) -> Any:
    """Returns the class or function that `my_package.my_file:MyNet` names.

    Raises:
        ConfigError: there is none.
    """
    module_name, colon, name = reference.partition(":")
    if not (module_name and colon and name):
        raise ConfigError(f"policy.module must be my_file:MyNet or my_package.my_file:MyNet, got '{reference}'")
    here = os.getcwd()  # noqa: PTH109
    if here not in sys.path:  # a module in the working directory is found, as it is by python itself
        sys.path.append(here)
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # the user's file may raise anything
        reason = " ".join(str(error).split())
        raise ConfigError(f"cannot load policy.module '{reference}': {type(error).__name__}: {reason}") from error
    if not callable(found := getattr(module, name, None)):
        public = [known for known in vars(module) if not known.startswith("_")]
        raise ConfigError(
            f"cannot load policy.module '{reference}': {module_name} has no '{name}'{nearest(name, public)}"
        )
    return found
