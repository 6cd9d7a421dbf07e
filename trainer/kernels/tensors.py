"""Which tensors the compiled kernels take. The kernels themselves check shapes and layout: native/tensors.hpp."""

import torch


def is_native(*tensors: torch.Tensor | None) -> bool:
    """Returns whether the compiled kernels take these: all in float32 on the CPU, apart from absent ones.

    While torch.compile traces, tensors have no addresses, so the answer is no.
    """
    return not torch.compiler.is_compiling() and all(
        t is None or (t.dtype == torch.float32 and t.is_cpu) for t in tensors
    )
