"""A custom network, the user's own: `policy.module = "my_file:MyNet"`, a plain `nn.Module` with this contract.

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
number), `hidden_size` and `num_layers` (those settings of `[policy]`, which a sweep may search). With `**kwargs` it is
given everything.

A network with a memory is called once for each step, and its state is zeroed where an episode begins. The outputs of a
sample may depend on that sample alone. So there can be no BatchNorm or dropout: while PPO compares the policy with that
of a moment ago, nothing but the weights may have changed. All this is tried out when the network is built. Whether it
can be trained, `protein.trainer.ppo.trainable` tries.
"""

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import nn

from protein.envs_c import EnvSpec
from protein.spelling import nearest

from ..config import PolicyConfig
from ..errors import ConfigError
from ..users_code import RAISED, argument_names, find, in_words

CONTRACT = "see the contract in docs/own-policy.md"
T = TypeVar("T")
TRIED = 3  # samples of a trial call
TOLERANCE = 1e-3  # of the outputs, between samples alone and together: float32 rounds otherwise for another size


class CustomNetwork(nn.Module):
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
        self.name, self._shape = f"policy.module '{config.module}'", spec.observation_shape
        self.observation_size = spec.observation_size
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
            given = self._wanted(kind, offered)
            shown = ", ".join(f"{name}={value!r}" for name, value in given.items())
            self.module = self.called(f"could not be built from ({shown})", kind, **given)
            if not isinstance(self.module, nn.Module):
                raise ConfigError(f"{self.name} must be a torch.nn.Module, it made a {type(self.module).__name__}")
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
        """Returns what the constructor asks for, of what is offered: all of it where it takes any names."""
        if getattr(kind, "__init__", None) is nn.Module.__init__:  # it takes any names, and refuses them all
            return {}
        names, open_ended = argument_names(kind)
        try:
            parameters = list(inspect.signature(kind).parameters.values())
        except (TypeError, ValueError):  # without a signature; the call tells what is wrong
            parameters = []
        variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        asked = [p.name for p in parameters if p.default is p.empty and p.kind not in variable]
        if unknown := [name for name in asked if name not in offered]:
            raise ConfigError(
                f"{self.name} asks for '{unknown[0]}', which is not offered{nearest(unknown[0], offered)}"
            )
        return {name: value for name, value in offered.items() if open_ended or name in names}

    def _require(self, spec: EnvSpec, action_outputs: int, value_outputs: int) -> int:
        """Tries the network out; returns how many action numbers it gives, A or (continuous) 2A.

        Raises:
            ConfigError: it does not keep the contract.
        """
        weights = list(self.module.parameters())
        if not any(weight.requires_grad for weight in weights):
            raise ConfigError(f"{self.name} has no weights to train: give it layers or an nn.Parameter")
        if (wrong := next((weight.dtype for weight in weights if weight.dtype != torch.float32), None)) is not None:
            raise ConfigError(f"{self.name} must have weights of float32, it has some of {wrong}: see train.precision")
        if type(self.state_size) is not int or self.state_size < 0:
            raise ConfigError(f"{self.name} must have a state_size, an int of 0 or more, got {self.state_size!r}")
        noise = torch.Generator().manual_seed(0)
        observations = torch.rand(TRIED, *spec.observation_shape, generator=noise)
        given: tuple[torch.Tensor, ...] = (observations,)
        if self.state_size:
            given += (torch.rand(TRIED, self.state_size, generator=noise),)
        before = [tensor.clone() for tensor in given]
        with torch.no_grad():
            together = self._outputs(given)
            for name, now, then in zip(("observations", "state"), given, before, strict=False):
                if not torch.equal(now, then):  # an update reads the very tensor again
                    raise ConfigError(
                        f"{self.name} must not change its {name} in place: write x = x * 2 in place of x *= 2 or "
                        f"x.mul_(2): {CONTRACT}"
                    )
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
                        f"{self.name} must map each sample by itself, but its {name} change with the other samples or "
                        "from call to call: use LayerNorm instead of BatchNorm, and no dropout"
                    )
        return int(actions.shape[1])

    def _outputs(self, given: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        state = f" and a state of shape {tuple(given[1].shape)}" if self.state_size else ""
        failing = f"failed on float32 observations of shape {tuple(given[0].shape)}{state}"
        found = self.called(failing, self.module, *given)
        wanted = "(actions, values, state)" if self.state_size else "(actions, values)"
        parts = found if isinstance(found, tuple | list) else (found,)
        if len(parts) != wanted.count(",") + 1 or not all(isinstance(part, torch.Tensor) for part in parts):
            got = ", ".join(type(part).__name__ for part in parts)
            raise ConfigError(f"{self.name} must return {wanted}, tensors, got ({got}): {CONTRACT}")
        return tuple(parts)

    def _require_shape(self, name: str, found: torch.Tensor, allowed: list[tuple[int, ...]], what: str) -> None:
        if tuple(found.shape) not in allowed:
            shapes = " or ".join(map(str, allowed))
            raise ConfigError(
                f"{self.name} must return {name} of shape {shapes} ({what}) for {TRIED} samples of shape "
                f"{self._shape}, got {tuple(found.shape)}"
            )
        if not found.is_floating_point() or not bool(found.isfinite().all()):
            raise ConfigError(f"{self.name} must return {name} that are finite floats, got {found.dtype}: {found[0]}")

    def called(self, failing: str, function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Calls the user's code. Whatever it raises becomes one line.

        Raises:
            ConfigError: it failed.
        """
        try:
            return function(*args, **kwargs)
        except (ConfigError, MemoryError, torch.OutOfMemoryError):
            raise
        except RAISED as error:
            raise self.failed(failing, error) from error

    def failed(self, failing: str, error: BaseException, trace: str = "") -> ConfigError:
        """Returns the error for what the user's code has raised; `trace` as in `in_words`."""
        return ConfigError(f"{self.name} {failing}: {in_words(error, trace)}: {CONTRACT}")


def _find(reference: str) -> Callable[..., Any]:
    """Returns the class or function that `my_package.my_file:MyNet` names.

    Raises:
        ConfigError: there is none.
    """
    module_name, colon, name = reference.partition(":")
    if not (module_name and colon and name):
        raise ConfigError(f"policy.module must be my_file:MyNet or my_package.my_file:MyNet, got '{reference}'")
    return find(module_name, name, failing=f"cannot load policy.module '{reference}'", what="class or function")[1]
