"""What each step from plain float32 to the whole trainer brings: GPT-2 of 124 M parameters on one GPU.

The table of the well-known reproduction of GPT-2 (Karpathy 2024, github.com/karpathy/build-nanogpt: 1,000 ms to 90 ms a
step, a factor of 11, on an A100), from the network of `plain.py`, one change after the other:
  fp32          attention from its own products, AdamW one parameter at a time, vocabulary of 50,257
  TF32          products of float32 on tensor cores
  bf16          autocast to bfloat16
  compile       torch.compile
  flash         attention in one kernel
  padded        vocabulary of 50,304, a multiple of 64
  fused         AdamW in one kernel
  ours, gpt2    this trainer with the same network and AdamW
  ours, modern  its own network, with Muon
  tokens/s      over steps of the optimiser after the first ones, with data and clipping
  of peak       the network's arithmetic a second as a share of a large product's in that precision, on this device
`--tiny` runs everything with small sizes, also on the CPU: a test of this file.
"""

import contextlib
import dataclasses
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import device_table
import machine
from language import ours, plain

from protein.trainer.language.config import TrainConfig
from protein.trainer.language.model import GPT

GPT2 = plain.Size(layers=12, heads=12, width=768, vocabulary=50257, positions=1024, rows=16)
TINY = plain.Size(layers=2, heads=2, width=32, vocabulary=100, positions=16, rows=4)
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
OURS = (("ours, gpt2", "gpt2", "adamw"), ("ours, modern", "modern", "muon"))


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


def ours_milliseconds(
    arch: str, optimizer: str, size: plain.Size, device: torch.device, data: Path, seconds: float, *, compiled: bool
) -> float:
    """Returns the mean time of a step of our trainer."""
    settings = TrainConfig(
        total_tokens=10**12,
        device=str(device),
        compile=compiled,
        batch_tokens=size.tokens,
        optimizer=optimizer,  # type: ignore[arg-type]  # one of its names
        lr_schedule="constant",
        checkpoint_seconds=0.0,
    )
    clock, _ = ours.train(size, seconds, settings, arch, data)
    return clock.seconds / (clock.tokens / size.tokens) * 1e3


def main() -> None:
    parser = device_table.make_parser(__doc__, "cuda, cuda:N or cpu")
    parser.add_argument("--no-compile", action="store_true", help="leave torch.compile out of all rows")
    arguments = parser.parse_args()
    until = time.monotonic() + 60 * arguments.minutes
    device, name = device_table.find_device(parser, arguments.device)
    size, measured = (TINY, 2) if arguments.tiny else (GPT2, MEASURED)
    print(f"GPT-2, {size.tokens:,} tokens a step, on {name}, torch {torch.__version__}: {machine.headline()}")
    peaks = device_table.measure_peaks(device, tiny=arguments.tiny)
    print(f"\n{'':<16}{'ms a step':>10}{'factor':>9}{'tokens/s':>12}{'of peak':>9}")
    rows: list[dict[str, Any]] = []

    def add(label: str, precision: str, spent: float, arch: str) -> None:
        flops = GPT(ours.model_config(size, arch), size.vocabulary, torch.Generator()).flops_per_token
        speed = size.tokens / spent * 1e3
        row = {"step": label, "precision": precision, "milliseconds": round(spent, 2)}
        row |= {"factor": round(float(rows[0]["milliseconds"]) / spent, 2) if rows else 1.0}
        row |= {"tokens_per_second": round(speed), "of_peak": round(speed * flops / peaks[precision], 3)}
        rows.append(row)
        print(f"{label:<16}{spent:>10.2f}{row['factor']:>9.2f}{speed:>12,.0f}{row['of_peak']:>9.3f}", flush=True)

    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "train.bin"
        plain.write_tokens(data, size.vocabulary)
        skipped = []
        for step in STEPS:
            if time.monotonic() >= until:
                skipped.append(step.name)
                continue
            step = dataclasses.replace(step, compiled=step.compiled and not arguments.no_compile)
            add(step.name, step.precision, milliseconds(step, size, device, data, measured), "gpt2")
        for label, arch, optimizer in OURS:
            if time.monotonic() >= until:
                skipped.append(label)
                continue
            compiled = not arguments.no_compile
            spent = ours_milliseconds(
                arch, optimizer, size, device, data, 0.1 if arguments.tiny else 5.0, compiled=compiled
            )
            add(label, "bf16", spent, arch)
    if skipped:
        print(f"\nno time was left (--minutes {arguments.minutes:g}) for: {', '.join(skipped)}")
    device_table.write_result("language_steps", rows, arguments, name, peaks)


if __name__ == "__main__":
    main()
