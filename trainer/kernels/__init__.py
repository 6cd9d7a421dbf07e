"""The trainer's fused kernels: the operations that take most of a small network's time, each in one pass over memory.

Every function takes torch tensors. In float32 on the CPU it runs compiled C++ (trainer/kernels/native); `attention`
takes bfloat16, too. Otherwise it runs a `..._by_torch` function that computes the same on any device and in any
precision. Two functions differ: that of `mlp` is `mlp_by_layers`, and `ppo_gradient` has none (see its docstring). The
compiled code comes in several instruction sets, and the best one that the processor has is used. Results are accurate
to float32. They differ between instruction sets in the last bits, and do not depend on the number of threads.
"""

from pathlib import Path

from protein.native import not_loaded

try:
    from ._native import LstmPolicy, get_threads, instruction_set, set_threads
except ImportError as error:
    raise not_loaded(error, __name__, Path(__file__).parent) from error

from .attention import attention, attention_by_torch
from .mlp import (
    Backward,
    backward_from,
    by_torch,
    channels_last,
    is_native,
    linear,
    linear_by_torch,
    mlp,
    mlp_by_layers,
    mlp_vjp,
    numbers,
)
from .ppo import advantages, advantages_by_torch, ppo_gradient, sample, sample_by_torch
from .recurrent import (
    lstm_policy,
    lstm_sequence,
    lstm_sequence_by_torch,
    mingru_sequence,
    mingru_sequence_by_torch,
)

__all__ = [
    "Backward",
    "LstmPolicy",
    "advantages",
    "advantages_by_torch",
    "attention",
    "attention_by_torch",
    "backward_from",
    "by_torch",
    "channels_last",
    "get_threads",
    "instruction_set",
    "is_native",
    "linear",
    "linear_by_torch",
    "lstm_policy",
    "lstm_sequence",
    "lstm_sequence_by_torch",
    "mingru_sequence",
    "mingru_sequence_by_torch",
    "mlp",
    "mlp_by_layers",
    "mlp_vjp",
    "numbers",
    "ppo_gradient",
    "sample",
    "sample_by_torch",
    "set_threads",
]
