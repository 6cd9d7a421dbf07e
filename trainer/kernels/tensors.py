"""Which tensors the compiled kernels take, and what bytes become.

The kernels themselves check shapes and layout: native/tensors.hpp.
"""

import torch


def is_native(*tensors: torch.Tensor | None) -> bool:
    """Returns whether the compiled kernels take these: all in float32 on the CPU, apart from absent ones.

    While torch.compile traces, tensors have no addresses, so the answer is no.
    """
    return not torch.compiler.is_compiling() and all(
        t is None or (t.dtype == torch.float32 and t.is_cpu) for t in tensors
    )


def numbers(
    observations: torch.Tensor, byte_scale: float, memory_format: torch.memory_format = torch.preserve_format
) -> torch.Tensor:
    """Returns observations as float32: bytes times `byte_scale`, others as they are.

    Bytes get another `memory_format` in the same pass, which takes a CPU half as long as a pass of its own.
    """
    if observations.dtype != torch.uint8:
        return observations.to(observations.dtype, memory_format=memory_format)
    floats = observations.to(torch.float32, memory_format=memory_format)
    return floats if byte_scale == 1.0 else floats.mul_(byte_scale)
