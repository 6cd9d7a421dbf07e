"""Keys and values of the tokens that were read, so that each new token costs one position and not the whole text."""

import torch

from ...errors import ConfigError


class Cache:
    """For one text or several of equal length. `GPT.forward` fills it; `length` counts the positions that it holds."""

    def __init__(self, num_layers: int, capacity: int) -> None:
        """`capacity`: the positions that it can hold, at most the network's."""
        self.capacity = capacity
        self.length = 0
        self._layers: list[tuple[torch.Tensor, torch.Tensor] | None] = [None] * num_layers

    def require_room(self, positions: int) -> None:
        """Raises `ConfigError` where `positions` more do not fit."""
        if self.length + positions > self.capacity:
            raise ConfigError(
                f"{self.length + positions} tokens do not fit into the {self.capacity} positions of this cache: "
                "begin again with the last ones"
            )

    def extend(self, layer: int, keys: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Appends one layer's new keys and values, `B x H x T x D`; returns all, `B x H x (length + T) x D`."""
        held = self._layers[layer]
        if held is None:
            rows, heads, _, size = keys.shape
            held = (
                keys.new_empty(rows, heads, self.capacity, size),
                values.new_empty(rows, heads, self.capacity, size),
            )
            self._layers[layer] = held
        end = self.length + keys.shape[2]
        for buffer, new in zip(held, (keys, values), strict=True):
            buffer[:, :, self.length : end] = new
        return held[0][:, :, :end], held[1][:, :, :end]

    def advance(self, positions: int) -> None:
        """Counts `positions` that every layer has appended."""
        self.length += positions
