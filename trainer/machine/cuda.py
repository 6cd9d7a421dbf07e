"""Copies to a GPU that the host does not wait for.

A copy from pinned memory runs on its own while the host goes on. A copy from other memory first waits until the device
has done everything that was queued, and that would stop the training loop. So every tensor that a loop sends to a GPU
goes through `to_device`, and buffers that are sent again and again are allocated by `host_zeros`.

Source: "CUDA C++ Programming Guide", Asynchronous Concurrent Execution; `torch.Tensor.pin_memory`. PyTorch keeps pinned
memory that is freed until the copies from it are done.
"""

import torch


def host_zeros(*shape: int, dtype: torch.dtype = torch.float32, pin: bool) -> torch.Tensor:
    """Returns zeros on the host, in pinned memory where `pin`."""
    return torch.zeros(*shape, dtype=dtype, pin_memory=pin)


def to_device(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Returns the tensor on `device`; itself where it is there.

    To a GPU it is copied in the order of the current stream, and the host does not wait. A tensor in pinned memory must
    not be written before that copy is done. Any other one may be: it is copied to pinned memory first.
    """
    if tensor.device == device:
        return tensor
    if device.type == "cuda" and tensor.device.type == "cpu":
        return (tensor if tensor.is_pinned() else tensor.pin_memory()).to(device, non_blocking=True)
    return tensor.to(device)
