"""The steps from plain float32 to a fast trainer: GPT-2 of 124 M parameters on one GPU, as gpu.py measures them.

The table of the well-known reproduction of GPT-2 (Karpathy 2024, github.com/karpathy/build-nanogpt), from the network
of `plain.py`, one change after the other:
  fp32      attention from its own products, AdamW one parameter at a time, vocabulary of 50,257
  TF32      products of float32 on tensor cores
  bf16      autocast to bfloat16
  compile   torch.compile
  flash     attention in one kernel
  padded    vocabulary of 50,304, a multiple of 64
  fused     AdamW in one kernel
"""

import contextlib
import dataclasses
import statistics
import time
from pathlib import Path
from typing import Any

import torch
from language import plain
from torch import nn

GPT2 = plain.Size(layers=12, heads=12, width=768, vocabulary=50257, positions=1024, rows=16)
TINY = plain.Size(layers=2, heads=2, width=32, vocabulary=100, positions=16, rows=4)
SHIPPED = plain.Size(layers=4, heads=4, width=128, vocabulary=257, positions=256, rows=8)  # of configs/gpt.toml
MULTIPLE = 64  # to which the vocabulary is padded
WARM, MEASURED = 5, 20  # steps of the optimiser


@dataclasses.dataclass(frozen=True)
class Step:
    """What has been changed so far."""

    name: str
    precision: str
    compiled: bool = False
    flash: bool = False
    padded: bool = False
    fused: bool = False


STEPS = (
    Step("fp32", "fp32"),
    Step("TF32", "tf32"),
    Step("bf16", "bf16"),
    Step("compile", "bf16", True),
    Step("flash", "bf16", True, True),
    Step("padded", "bf16", True, True, True),
    Step("fused", "bf16", True, True, True, True),
)


class SpelledOut(nn.Module):
    """Attention whose weights are all written to memory, in place of `plain.Attention`."""

    def __init__(self, attention: plain.Attention, positions: int) -> None:
        super().__init__()
        self.heads, self.qkv, self.proj = attention.heads, attention.qkv, attention.proj
        self.register_buffer("seen", torch.ones(positions, positions, dtype=torch.bool).tril())
        self.seen: torch.Tensor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, t, c = x.shape
        q, k, v = (part.view(b, t, self.heads, c // self.heads).transpose(1, 2) for part in self.qkv(x).split(c, dim=2))
        weights = (q @ k.transpose(-2, -1)) * (c // self.heads) ** -0.5
        weights = weights.masked_fill(~self.seen[:t, :t], float("-inf")).softmax(dim=-1)
        out: torch.Tensor = self.proj((weights @ v).transpose(1, 2).contiguous().view(b, t, c))
        return out


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def milliseconds(step: Step, size: plain.Size, device: torch.device, data: Path, measured: int) -> float:
    """Returns the median time of a step of the optimiser."""
    torch.manual_seed(1337)
    torch.set_float32_matmul_precision("highest" if step.precision == "fp32" else "high")
    padded = -(-size.vocabulary // MULTIPLE) * MULTIPLE if step.padded else size.vocabulary
    network = plain.Gpt(dataclasses.replace(size, vocabulary=padded))
    if not step.flash:
        for block in network.blocks:
            assert isinstance(block, plain.Block)
            block.attention = SpelledOut(block.attention, size.positions)  # type: ignore[assignment]
    network.to(device)
    model = torch.compile(network) if step.compiled else network
    one_call: dict[str, Any] = {"fused": True} if step.fused else {"foreach": False, "fused": False}
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-4, betas=(0.9, 0.95), **one_call)
    context = torch.autocast(device.type, torch.bfloat16) if step.precision == "bf16" else contextlib.nullcontext()
    found = []
    for _ in range(WARM + measured):
        wait(device)
        began = time.perf_counter()
        tokens, targets = plain.batch(data, size, size.rows, str(device))
        with context:
            loss = model(tokens, targets)
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        wait(device)
        found.append(time.perf_counter() - began)
    return float(statistics.median(found[WARM:])) * 1e3
