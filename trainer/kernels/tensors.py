"""What the compiled kernels ask of a tensor before they are given its address."""

import torch


def is_native(*tensors: torch.Tensor | None) -> bool:
    """Returns whether the compiled kernels take these: all in float32 on the CPU, apart from absent ones.

    While torch.compile traces there are no addresses: then they do not.
    """
    return not torch.compiler.is_compiling() and all(
        t is None or (t.device.type == "cpu" and t.dtype == torch.float32) for t in tensors
    )


def address(name: str, tensor: torch.Tensor | None, *shape: int, dtype: torch.dtype = torch.float32) -> int:
    """Returns where the tensor's numbers lie, 0 for None.

    Raises:
        ValueError: it is not a contiguous CPU tensor of this shape and dtype.
    """
    if tensor is None:
        return 0
    if tensor.shape != shape or tensor.dtype != dtype or tensor.device.type != "cpu" or not tensor.is_contiguous():
        raise _unfit(name, tensor, shape, dtype, "contiguous")
    return tensor.data_ptr()


def rows(name: str, tensor: torch.Tensor, *shape: int) -> tuple[int, int]:
    """Returns where a float32 matrix lies, each of its rows contiguous, and the distance between rows in elements.

    Raises:
        ValueError: it is not such a matrix of this shape on the CPU.
    """
    row_is_contiguous = tensor.ndim == 2 and (tensor.stride(1) == 1 or tensor.shape[1] == 1)
    if tensor.shape != shape or tensor.dtype != torch.float32 or tensor.device.type != "cpu" or not row_is_contiguous:
        raise _unfit(name, tensor, shape, torch.float32, "row-contiguous")
    return tensor.data_ptr(), tensor.stride(0)


def strided(name: str, tensor: torch.Tensor, *shape: int) -> tuple[int, int]:
    """Returns where a float32 tensor's first row lies and the distance, in elements, between rows, all as far apart.

    Raises:
        ValueError: it is not such a tensor of this shape (three dimensions) on the CPU.
    """
    if tensor.shape == shape and tensor.stride(0) == shape[1] * tensor.stride(1):
        return rows(name, tensor.flatten(0, 1), shape[0] * shape[1], shape[2])
    if tensor.shape == shape and 1 in shape[:2]:  # one step or one agent: its stride says nothing
        return rows(name, tensor.squeeze(1 if shape[1] == 1 else 0), shape[0] * shape[1], shape[2])
    raise _unfit(name, tensor, shape, torch.float32, "row-contiguous")


def _unfit(name: str, tensor: torch.Tensor, shape: tuple[int, ...], dtype: torch.dtype, order: str) -> ValueError:
    return ValueError(
        f"{name} must be a {order} {dtype} CPU tensor of shape {tuple(shape)}, got {tensor.dtype} on {tensor.device}, "
        f"shape {tuple(tensor.shape)}, strides {tensor.stride()}"
    )
