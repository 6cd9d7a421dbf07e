"""The trainer's fused kernels: what a small network spends its time on, each in one pass over memory.

Every function takes torch tensors. In float32 on the CPU it runs compiled C++ (trainer/kernels/native), otherwise a
`..._by_torch` function that computes the same on any device and in any precision. Compiled code comes in several
instruction sets, of which the best that the processor has is taken; results are those of float32 and differ between
sets in the last bits. They do not depend on the number of threads.
"""

from protein.trainer.kernels._native import get_threads, instruction_set, set_threads
from protein.trainer.kernels.advantage import advantages, advantages_by_torch
from protein.trainer.kernels.categorical import ppo_gradient, ppo_gradient_by_torch, sample, sample_by_torch
from protein.trainer.kernels.linear import linear, linear_by_torch
from protein.trainer.kernels.mlp import FusedMLP
from protein.trainer.kernels.recurrent import (
    lstm_sequence,
    lstm_sequence_by_torch,
    mingru_sequence,
    mingru_sequence_by_torch,
)

__all__ = [
    "FusedMLP",
    "advantages",
    "advantages_by_torch",
    "get_threads",
    "instruction_set",
    "linear",
    "linear_by_torch",
    "lstm_sequence",
    "lstm_sequence_by_torch",
    "mingru_sequence",
    "mingru_sequence_by_torch",
    "ppo_gradient",
    "ppo_gradient_by_torch",
    "sample",
    "sample_by_torch",
    "set_threads",
]
