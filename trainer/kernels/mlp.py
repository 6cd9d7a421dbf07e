"""A multilayer perceptron with ReLUs and a linear output: its output and its gradients, fused over blocks of rows.

Notation: `B` samples of `D` features; the output is feature-major, `rows x B`.

Between layers nothing goes through memory that the next one does not find in its core's cache, rows are shared among
threads, and the gradients of the weights are summed over parts of the batch in an order that its size alone decides:
the result does not depend on the number of threads.
"""

from collections.abc import Sequence

import torch

from protein.trainer.kernels import _native
from protein.trainer.kernels.tensors import address, rows


class FusedMLP:
    """Reads its parameters where they lie, so it sees every update; they must stay in their place.

    One object serves one caller at a time: it keeps what `backward` needs of the last `forward`.
    """

    def __init__(self, layers: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> None:
        """`layers` are weight `outputs x inputs` and bias `outputs` of each, the linear output last.

        Raises:
            ValueError: a tensor is not contiguous float32 on the CPU, or layers do not fit each other.
        """
        if len(layers) < 2:
            raise ValueError(f"layers must be a hidden layer or more and the linear output, got {len(layers)}")
        self._layers = [(weight.detach(), bias.detach()) for weight, bias in layers]
        self._inputs = inputs = self._layers[0][0].shape[1]
        described = []
        for index, (weight, bias) in enumerate(self._layers):
            outputs = weight.shape[0]
            at = address(f"weight {index}", weight, outputs, inputs), address(f"bias {index}", bias, outputs)
            described.append((*at, inputs, outputs))
            inputs = outputs
        self._rows = inputs
        self._native = _native.Mlp(described)

    def forward(self, observations: torch.Tensor, output: torch.Tensor, *, keep: bool = False) -> None:
        """Writes the network's output, and where `keep` keeps what `backward` will need.

        Args:
            observations: `B x D`, contiguous.
            output: `rows x B`, each row contiguous; written.
            keep: whether `backward` will follow.

        Raises:
            ValueError: a tensor is not as said.
        """
        batch = observations.shape[0]
        start, stride = rows("output", output, self._rows, batch)
        self._native.forward(address("observations", observations, batch, self._inputs), batch, start, stride, keep)

    def backward(
        self,
        observations: torch.Tensor,
        by_output: torch.Tensor,
        gradients: Sequence[tuple[torch.Tensor, torch.Tensor]],
    ) -> None:
        """Writes the gradients of every weight and bias, after a `forward` with `keep` and the same parameters.

        Args:
            observations: those of `forward`.
            by_output: the loss's derivative by the output, `rows x B`, each row contiguous.
            gradients: of each layer's weight and bias, of their shapes and contiguous; written.

        Raises:
            ValueError: a tensor is not as said.
            RuntimeError: there was no such `forward`.
        """
        batch = observations.shape[0]
        start, stride = rows("by_output", by_output, self._rows, batch)
        at = [
            (
                address(f"gradient of weight {index}", a, *weight.shape),
                address(f"gradient of bias {index}", b, *bias.shape),
            )
            for index, ((weight, bias), (a, b)) in enumerate(zip(self._layers, gradients, strict=True))
        ]
        self._native.backward(address("observations", observations, batch, self._inputs), batch, start, stride, at)
