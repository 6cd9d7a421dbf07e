"""The network: an encoder, perhaps a recurrent layer, and one output layer for the policy and the value function.

Notation: `T` steps of `M` agents, `B = T * M` samples in time-major order, `D` observations per sample; `rows` of
output, which the distribution over actions and the value head share; `S` floats of recurrent state per agent; `H`
hidden units. `resets`, `T x M`, are True where the state is zeroed before that step, because an episode has ended. Of a
recurrent layer the products with the inputs are computed for all steps at once. The rest runs step by step in
`trainer.kernels`.

The output is laid out feature-major, `rows x B`: one contiguous row per logit and the value's rows last, so that
everything after the network (sampling, log-probabilities, the loss) reads whole rows. With `policy.module` all of the
network is the user's own (`protein.trainer.model.custom`).

The layers use ReLU, because on a CPU a tanh costs as much as the matrix product before it. `policy.activation` may give
the fully connected ones tanh, whose outputs are bounded, however far an observation is from all that were seen.

Source: orthogonal initialisation with gain sqrt(2) in the trunk, 0.01 for logits and 1 for the value: Andrychowicz et
al. 2021, "What matters in on-policy reinforcement learning?", and Huang et al. 2022, "The 37 implementation details of
PPO", detail 2. The large-image convolutions: Mnih et al. 2015, "Human-level control through deep reinforcement
learning". LSTM: Hochreiter and Schmidhuber 1997, "Long short-term memory"; a forget gate that begins at 1: Jozefowicz
et al. 2015, "An empirical exploration of recurrent network architectures"; minGRU: Feng et al. 2024, "Were RNNs all we
needed?", with the positive candidate g of its appendix; gate biases initialised to a range of memory lengths: Tallec
and Ollivier 2018, "Can recurrent neural networks warp time?", section 2.
"""

import contextlib
import itertools
import math
from collections.abc import Iterator

import torch
from torch import nn

from protein.envs_c import EnvSpec

from ..config import PolicyConfig
from ..errors import ConfigError
from ..kernels import (
    Backward,
    LstmPolicy,
    backward_from,
    channels_last,
    is_native,
    linear,
    lstm_policy,
    lstm_sequence,
    mingru_sequence,
    mlp,
    mlp_vjp,
    numbers,
)
from .custom import CustomNetwork
from .heads import CategoricalValue, Gaussian, ScalarValue, distribution_of

LARGE_IMAGE = 36  # pixels of the shorter side; from here on strides shrink the image before it becomes features
LONGEST_MEMORY = 256.0  # time constant, in steps, of a minGRU's slowest unit at initialisation


class Policy(nn.Module):
    """An actor-critic for an environment. `state_size` 0: it has no memory."""

    def __init__(
        self,
        spec: EnvSpec,
        config: PolicyConfig,
        *,
        generator: torch.Generator,
        half_convolutions: bool = False,
    ) -> None:
        """Draws its weights from `generator`.

        Args:
            spec: of the environment.
            config: of the network.
            generator: on the CPU.
            half_convolutions: those over large images in bfloat16 (see `machine.precision.half_convolutions`).

        Raises:
            ConfigError: the encoder cannot read the observations, or the user's network does not keep its contract.
        """
        super().__init__()
        self.distribution = distribution_of(spec)
        self.value_head: CategoricalValue | ScalarValue = (
            CategoricalValue(config.value_bins, config.value_limit) if config.value_bins else ScalarValue()
        )
        self.action_rows = self.distribution.rows
        self.observation_dtype = getattr(torch, spec.observation_dtype)
        self._byte_scale = 1.0 / spec.observation_high  # bytes become numbers from 0 to 1 here, on the device
        # A normal's deviation does not depend on the observation: its rows are parameters of their own.
        self.log_std: nn.Parameter | None = None
        gaussian = isinstance(self.distribution, Gaussian)
        self._head_rows = head_rows = self.distribution.components if gaussian else self.action_rows
        self.state_size = 0
        self.recurrence: LSTM | MinGRU | None = None
        self.own: CustomNetwork | None = None  # under this name its weights are in checkpoints
        self.value_encoder: MLP | CNN | None = None  # where the value function shares nothing with the policy
        if config.module:
            seed = int(torch.randint(2**62, (), generator=generator))
            self.own = CustomNetwork(
                spec, config, action_outputs=head_rows, value_outputs=self.value_head.rows, seed=seed
            )
            self.state_size = self.own.state_size
            gaussian = gaussian and self.own.action_outputs == head_rows
        else:
            self._build(spec, config, generator, half_convolutions)
        if gaussian:
            self.log_std = nn.Parameter(torch.full((self.distribution.components,), config.log_std_init))
        # Where the network is one fused kernel, an MLP with or without an LSTM: its layers in the order of
        # `kernels.mlp`, and what `kernels.lstm_policy` has made of those around an LSTM while the weights are held.
        self._layers: tuple[torch.Tensor, ...] | None = None
        self._packed: LstmPolicy | None = None
        encoder = self.encoder if self.own is None else None
        fused = self.log_std is None if self.recurrence is None else isinstance(self.recurrence, LSTM)
        if isinstance(encoder, MLP) and encoder.relu and fused and self.value_encoder is None:
            self._layers = (*encoder.weights_and_biases, self.head.weight, self.head.bias)

    def _build(self, spec: EnvSpec, config: PolicyConfig, generator: torch.Generator, half: bool) -> None:
        """Builds encoder, recurrence and output layer."""
        hidden, rows, value_rows = config.hidden_size, self._head_rows, self.value_head.rows
        self.encoder = _encoder(spec, config, generator, half)
        if config.recurrence != "none":
            self.recurrence = (LSTM if config.recurrence == "lstm" else MinGRU)(hidden, generator)
            self.state_size = self.recurrence.state_size
        self.head = nn.Linear(hidden, rows + (0 if config.separate_value else value_rows))
        # At first all bins are equally likely, which is a value of 0.
        gain = 0.01 if config.value_bins else 1.0
        with torch.no_grad():
            nn.init.orthogonal_(self.head.weight[:rows], 0.01, generator=generator)
            if not config.separate_value:
                nn.init.orthogonal_(self.head.weight[rows:], gain, generator=generator)
            self.head.bias.zero_()
        if config.separate_value:
            self.value_encoder = _encoder(spec, config, generator, half)
            self.value_output = nn.Linear(hidden, value_rows)
            initialise_(self.value_output, gain, generator)

    @property
    def rows(self) -> int:
        """Rows of the output: the distribution's, then the value head's."""
        return self.action_rows + self.value_head.rows

    @property
    def largest_layer(self) -> int:
        """Products of the largest layer for one sample: its weights, but for a convolution.

        How many threads compute it depends on it, and how.
        """
        matrices = max((parameter.numel() for parameter in self.parameters() if parameter.ndim >= 2), default=1)
        encoder = getattr(self, "encoder", None)  # a network of the user's own has none
        return max(matrices, encoder.products) if isinstance(encoder, CNN) else matrices

    def forward(
        self,
        observations: torch.Tensor,
        state: torch.Tensor | None = None,
        resets: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Computes the output and the state after the last step.

        Args:
            observations: `T x M x D`, float32 or bytes.
            state: `M x S` before the first step; None: zeros.
            resets: `T x M`, bool: where the state is zeroed before that step; None: nowhere.

        Returns:
            The output `rows x (T * M)`, and the new state `M x S` (None without memory).
        """
        if self._layers is not None and self.recurrence is None:
            return mlp(observations.flatten(0, 1), self._layers, byte_scale=self._byte_scale), state
        if self.own is not None:
            by_sample, state = self.own(numbers(observations, self._byte_scale), state, resets)
            output = by_sample.t().contiguous()
        else:
            hidden = self.encoder(observations.flatten(0, 1))
            if self.recurrence is not None:
                steps, agents = observations.shape[:2]
                if state is None:
                    state = hidden.new_zeros(agents, self.state_size, dtype=torch.float32)
                if resets is None:
                    resets = torch.zeros(steps, agents, dtype=torch.bool, device=hidden.device)
                hidden, state = self.recurrence(hidden.view(steps, agents, -1), state, resets)
                hidden = hidden.flatten(0, 1)
            output = _rows(self.head, hidden)
            if self.value_encoder is not None:
                output = torch.cat([output, _rows(self.value_output, self.value_encoder(observations.flatten(0, 1)))])
        return self._with_deviations(output), state

    def vjp(
        self, observations: torch.Tensor, state: torch.Tensor | None, resets: torch.Tensor | None
    ) -> tuple[torch.Tensor, Backward]:
        """Returns the output as `forward` does, and a function that differentiates it.

        The function takes d loss / d output, `rows x (T * M)`, and adds to every parameter's `grad`.
        """
        if self._layers is not None and self.recurrence is None:
            return mlp_vjp(observations.flatten(0, 1), self._layers, self._byte_scale)
        output, _ = self.forward(observations, state, resets)
        return output, lambda by_output: backward_from(output, by_output)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Makes each `step` inside cheaper. The weights must not change there, so they are packed once."""
        lstm, layers = self.recurrence, self._layers
        native = layers is not None and is_native(layers[0]) and not torch.is_autocast_enabled("cpu")
        if native and isinstance(lstm, LSTM) and layers is not None:
            self._packed = lstm_policy(layers, lstm.input.weight, lstm.weight_hh, lstm.input.bias)
        try:
            yield
        finally:
            self._packed = None

    def step(
        self,
        observations: torch.Tensor,
        state: torch.Tensor | None,
        resets: torch.Tensor | None,
        out: torch.Tensor,
        after: torch.Tensor | None = None,
    ) -> None:
        """Takes one step without gradients: `forward` for `T` = 1.

        Args:
            observations: `M x D`.
            state: `M x S`, or None.
            resets: `M`, or None.
            out: `rows x M`, each row contiguous; the output is written here.
            after: `M x S`, where to write the state after the step: perhaps `state` itself; None: nowhere.
        """
        if self._layers is not None and self.recurrence is None:
            mlp(observations, self._layers, out, self._byte_scale)
        elif self._packed is not None and state is not None and resets is not None:
            of_head = out if self.log_std is None else out.new_empty(self.head.out_features, out.shape[1])
            self._packed.step(numbers(observations, self._byte_scale), state, resets, of_head, after)
            if of_head is not out:
                out.copy_(self._with_deviations(of_head))
        else:
            resets = None if resets is None else resets.unsqueeze(0)
            output, new_state = self.forward(observations.unsqueeze(0), state, resets)
            out.copy_(output)
            if after is not None and new_state is not None:
                after.copy_(new_state)

    def _with_deviations(self, output: torch.Tensor) -> torch.Tensor:
        """Adds a normal's rows of log standard deviations, between means and value, to those of the output layer."""
        if self.log_std is None:
            return output
        mean, value = output[: self._head_rows], output[self._head_rows :]
        log_std = self.log_std.to(output.dtype).unsqueeze(1).expand(-1, output.shape[1])
        return torch.cat([mean, log_std, value])

    def values(self, output: torch.Tensor) -> torch.Tensor:
        """Maps the output `rows x ...` to values `...`."""
        return self.value_head.decode(output[self.action_rows :])


class MLP(nn.Module):
    """Fully connected layers, each followed by a ReLU, or a tanh."""

    def __init__(
        self, features: int, config: PolicyConfig, generator: torch.Generator, byte_scale: float = 1.0
    ) -> None:
        super().__init__()
        self._byte_scale = byte_scale
        self.relu = config.activation == "relu"
        sizes = [features] + [config.hidden_size] * config.num_layers
        linears = [nn.Linear(a, b) for a, b in itertools.pairwise(sizes)]
        self.layers = nn.ModuleList(linears)
        for layer in linears:
            initialise_(layer, math.sqrt(2), generator)
        self.weights_and_biases = [parameter for layer in linears for parameter in (layer.weight, layer.bias)]

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        """Maps `B x D`, float32 or bytes, to `B x hidden_size`."""
        hidden = numbers(observations, self._byte_scale)
        for weight, bias in zip(self.weights_and_biases[::2], self.weights_and_biases[1::2], strict=True):
            hidden = linear(hidden, weight, bias, relu=self.relu)
            if not self.relu:
                hidden = torch.tanh(hidden)
        return hidden


class CNN(nn.Module):
    """Convolutions over a grid `channels x height x width`, then fully connected layers."""

    def __init__(self, spec: EnvSpec, config: PolicyConfig, generator: torch.Generator, *, half: bool = False) -> None:
        super().__init__()
        shape = spec.observation_shape
        if len(shape) != 3:
            raise ConfigError(
                f"policy.encoder 'cnn' needs observations that are grids (channels, height, width), "
                f"this environment's have the shape {shape}: use 'mlp'"
            )
        self._shape, self._byte_scale = shape, 1.0 / spec.observation_high
        large = min(shape[1:]) >= LARGE_IMAGE
        self._large, self._half = large, half and large
        one, two = config.channels, 2 * config.channels
        # Output channels, kernel, stride, padding of each layer.
        plan = [(one, 8, 4, 0), (two, 4, 2, 0), (two, 3, 1, 0)] if large else [(one, 3, 1, 1), (one, 3, 2, 1)]
        channels = [shape[0]] + [out for out, *_ in plan]
        self._convolutions = [
            nn.Conv2d(inputs, out, kernel, stride, padding)
            for inputs, (out, kernel, stride, padding) in zip(channels, plan, strict=False)
        ]
        self.convolutions = nn.ModuleList(self._convolutions)
        for layer in self._convolutions:
            initialise_(layer, math.sqrt(2), generator)
        self.products = 0  # of the largest convolution, for one sample: its weights, times the places it is applied to
        hidden = torch.zeros(1, *shape)
        with torch.no_grad():
            for layer in self._convolutions:
                hidden = layer(hidden)
                self.products = max(self.products, layer.weight.numel() * hidden[0, 0].numel())
        self.mlp = MLP(hidden.numel(), config, generator)

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        """Maps `B x D`, float32 or bytes, D the product of the shape, to `B x hidden_size`."""
        hidden: torch.Tensor = self.mlp(self._convolve(observations))
        return hidden

    def _convolve(self, observations: torch.Tensor) -> torch.Tensor:
        hidden = observations.view(-1, *self._shape)
        # An update in float32 takes .6 of the time with channels last.
        last = self._large and not self._half and hidden.device.type == "cpu"
        hidden = (channels_last if last else numbers)(hidden, self._byte_scale)
        with torch.autocast(hidden.device.type, torch.bfloat16) if self._half else contextlib.nullcontext():
            for layer in self._convolutions:
                hidden = torch.relu_(layer(hidden))
        hidden = hidden.flatten(1)
        return hidden.float() if self._half else hidden


class LSTM(nn.Module):
    """One LSTM layer; gates in the order input, forget, cell, output. The state is hidden and cell, side by side."""

    def __init__(self, hidden_size: int, generator: torch.Generator) -> None:
        super().__init__()
        self.state_size = 2 * hidden_size
        self.input = nn.Linear(hidden_size, 4 * hidden_size)
        self.weight_hh = nn.Parameter(torch.empty(4 * hidden_size, hidden_size))
        _initialise_gates_(self.input, generator, self.weight_hh)
        with torch.no_grad():
            self.input.bias[hidden_size : 2 * hidden_size] = 1.0

    def forward(
        self, inputs: torch.Tensor, state: torch.Tensor, resets: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Maps inputs `T x M x H` to outputs `T x M x H` and the state after the last step."""
        return lstm_sequence(inputs, self.input.weight, self.weight_hh, self.input.bias, state, resets)


class MinGRU(nn.Module):
    """One minGRU layer with a residual connection: neither gate nor candidate reads the state, so a step is cheap."""

    def __init__(self, hidden_size: int, generator: torch.Generator) -> None:
        super().__init__()
        self.state_size = hidden_size
        self.input = nn.Linear(hidden_size, 2 * hidden_size)
        _initialise_gates_(self.input, generator)
        with torch.no_grad():
            # Units forget over 2 to LONGEST_MEMORY steps, evenly in the logarithm: 1 / sigmoid(bias) = memory.
            memory = torch.logspace(math.log10(2.0), math.log10(LONGEST_MEMORY), hidden_size)
            self.input.bias[:hidden_size] = -torch.log(memory - 1)

    def forward(
        self, inputs: torch.Tensor, state: torch.Tensor, resets: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Maps inputs `T x M x H` to outputs `T x M x H` and the state after the last step."""
        gates, candidates = linear(inputs, self.input.weight, self.input.bias).float().chunk(2, dim=-1)
        outputs, state = mingru_sequence(gates, candidates, state, resets)
        return inputs.float() + outputs, state


@torch.no_grad()
def initialise_(layer: nn.Linear | nn.Conv2d, gain: float, generator: torch.Generator) -> None:
    """Draws orthogonal weights and zeroes the bias."""
    nn.init.orthogonal_(layer.weight, gain, generator=generator)
    assert layer.bias is not None
    layer.bias.zero_()


@torch.no_grad()
def _initialise_gates_(layer: nn.Linear, generator: torch.Generator, *others: torch.Tensor) -> None:
    """Draws the square matrices that a recurrent layer's parameters stack, gate by gate, and zeroes the bias."""
    for first in range(0, layer.out_features, layer.in_features):
        for matrix in (layer.weight, *others):
            gate = matrix[first : first + layer.in_features]
            nn.init.orthogonal_(gate, 1.0, generator=generator)
    layer.bias.zero_()


def _encoder(spec: EnvSpec, config: PolicyConfig, generator: torch.Generator, half: bool) -> MLP | CNN:
    if config.encoder == "cnn":
        return CNN(spec, config, generator, half=half)
    return MLP(spec.observation_size, config, generator, 1.0 / spec.observation_high)


def _rows(layer: nn.Linear, hidden: torch.Tensor) -> torch.Tensor:
    """Returns an output layer's rows of hidden units `B x H`, `rows x B`."""
    return torch.addmm(layer.bias.unsqueeze(1), layer.weight, hidden.t())
