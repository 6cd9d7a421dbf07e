"""GPT-2's training as it is usually written in plain PyTorch: the baseline of `speed.py`. Prints one JSON line.

The structure is nanoGPT's (Karpathy 2022, github.com/karpathy/nanoGPT), written anew: a module per part, one product
for queries, keys and values, PyTorch's own attention with `is_causal`, LayerNorm and GELU, the head tied to the
embedding, `cross_entropy` of all logits in float32, `torch.optim.AdamW` with weight decay on matrices only, clipping to
norm 1, batches at random offsets of a memory map that is opened anew for each. As there, what runs on a CPU is float32
without autocast, the optimiser is fused only on a GPU, and a step of a small network is one batch (`--accumulation 1`).
"""

import argparse
import contextlib
import dataclasses
import json
import math
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional


@dataclasses.dataclass(frozen=True, kw_only=True)
class Size:
    """The network's sizes, and those of one step of the optimiser."""

    layers: int
    heads: int
    width: int
    vocabulary: int
    positions: int = 256
    rows: int = 32  # sequences of a step

    @property
    def tokens(self) -> int:
        return self.rows * self.positions


WARM_STEPS = 2  # of the optimiser, before the clock

# nanoGPT's own small recipe (for characters of Shakespeare) is 6 layers of 384: 10.8 M with bytes. Its vocabulary of
# GPT-2's tokens is 50,304, padded from 50,257.
SIZES = {
    "1M": Size(layers=5, heads=4, width=128, vocabulary=257),
    "10M": Size(layers=6, heads=6, width=384, vocabulary=257, rows=16),
    "1M-50k": Size(layers=5, heads=4, width=128, vocabulary=50304, rows=4),  # 1 million without the embedding
    "10M-50k": Size(layers=6, heads=5, width=160, vocabulary=50304, rows=16),
    "tiny": Size(layers=2, heads=2, width=32, vocabulary=64, positions=16, rows=4),
}


class Attention(nn.Module):
    def __init__(self, size: Size) -> None:
        super().__init__()
        self.heads = size.heads
        self.qkv = nn.Linear(size.width, 3 * size.width)
        self.proj = nn.Linear(size.width, size.width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, t, c = x.shape
        q, k, v = (part.view(b, t, self.heads, c // self.heads).transpose(1, 2) for part in self.qkv(x).split(c, dim=2))
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        out: torch.Tensor = self.proj(y.transpose(1, 2).contiguous().view(b, t, c))
        return out


class Mlp(nn.Module):
    def __init__(self, size: Size) -> None:
        super().__init__()
        self.up = nn.Linear(size.width, 4 * size.width)
        self.gelu = nn.GELU()
        self.proj = nn.Linear(4 * size.width, size.width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.proj(self.gelu(self.up(x)))
        return out


class Block(nn.Module):
    def __init__(self, size: Size) -> None:
        super().__init__()
        self.norm1, self.attention = nn.LayerNorm(size.width), Attention(size)
        self.norm2, self.mlp = nn.LayerNorm(size.width), Mlp(size)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm1(x))
        out: torch.Tensor = x + self.mlp(self.norm2(x))
        return out


class Gpt(nn.Module):
    def __init__(self, size: Size) -> None:
        super().__init__()
        self.tokens = nn.Embedding(size.vocabulary, size.width)
        self.positions = nn.Embedding(size.positions, size.width)
        self.blocks = nn.ModuleList([Block(size) for _ in range(size.layers)])
        self.norm = nn.LayerNorm(size.width)
        self.head = nn.Linear(size.width, size.vocabulary, bias=False)
        self.tokens.weight = self.head.weight
        self.apply(self._initialise)
        for name, parameter in self.named_parameters():
            if name.endswith("proj.weight"):
                nn.init.normal_(parameter, mean=0.0, std=0.02 / math.sqrt(2 * size.layers))

    def _initialise(self, module: nn.Module) -> None:
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, mean=0.0, std=0.02)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        position = torch.arange(tokens.shape[1], dtype=torch.long, device=tokens.device)
        x = self.tokens(tokens) + self.positions(position)
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        return functional.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1)


def batch(path: Path, size: Size, rows: int, device: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns inputs and targets, each `rows x positions`."""
    data = np.memmap(path, dtype=np.uint16, mode="r")
    offsets = torch.randint(len(data) - size.positions, (rows,))
    x = torch.stack([torch.from_numpy(data[i : i + size.positions].astype(np.int64)) for i in offsets])
    y = torch.stack([torch.from_numpy(data[i + 1 : i + 1 + size.positions].astype(np.int64)) for i in offsets])
    return x.to(device), y.to(device)


def optimizer_of(model: Gpt, device: str) -> torch.optim.AdamW:
    """Returns AdamW with its two groups: matrices decay, vectors do not. Fused on a GPU only."""
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    vectors = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
    fused = {"fused": True} if device.startswith("cuda") else {}
    return torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.95), **fused)


def write_tokens(path: Path, vocabulary: int, count: int = 2_000_000) -> None:
    """Writes random tokens whose frequency falls with their number, as text's does. Speed does not depend on them.

    The last token of the vocabulary begins documents, of 4,000 tokens each. Only our trainer keeps them apart.
    """
    draws = np.random.default_rng(0).random(count)
    tokens = np.floor((vocabulary - 1) * draws**3).astype(np.uint16)
    tokens[::4000] = vocabulary - 1
    tokens.tofile(path)


@dataclasses.dataclass
class Clock:
    """Seconds of training, after the first steps, by the wall and by the processor."""

    tokens: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    loss: float = math.nan

    def begin(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def long_enough(self, seconds: float) -> bool:
        """Whether `seconds` of processor time have passed, or four times as long by the clock."""
        return max(self.cpu_seconds, self.seconds / 4) >= seconds

    def stop(self, tokens: int, loss: float) -> None:
        self.tokens, self.loss = self.tokens + tokens, loss
        self.seconds = time.perf_counter() - self._wall
        self.cpu_seconds = time.process_time() - self._cpu


def train(
    size: Size, seconds: float, *, device: str, accumulation: int, bf16: bool, compiled: bool, data: Path
) -> Clock:
    """Trains until `seconds` have passed, after some steps that do not count."""
    torch.manual_seed(1337)
    network = Gpt(size).to(device)
    model = torch.compile(network) if compiled else network
    optimizer = optimizer_of(network, device)
    autocast = torch.autocast(device.split(":")[0], torch.bfloat16) if bf16 else contextlib.nullcontext()
    rows = size.rows // accumulation
    clock, steps = Clock(), 0
    x, y = batch(data, size, rows, device)
    while not clock.long_enough(seconds):
        if steps == WARM_STEPS:
            clock.begin()
        for group in optimizer.param_groups:
            group["lr"] = 1e-3 * min(1.0, (steps + 1) / 100)
        for _ in range(accumulation):
            with autocast:
                loss = model(x, y) / accumulation
            x, y = batch(data, size, rows, device)
            loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        steps += 1
        if steps > WARM_STEPS:
            clock.stop(size.tokens, loss.item() * accumulation)
    return clock


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=list(SIZES), default="1M")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--accumulation", type=int, default=1)
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--compile", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    size = SIZES[arguments.size]
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "train.bin"
        write_tokens(data, size.vocabulary)
        clock = train(
            size,
            arguments.seconds,
            device=arguments.device,
            accumulation=arguments.accumulation,
            bf16=arguments.bf16,
            compiled=arguments.compile,
            data=data,
        )
    print(json.dumps(dataclasses.asdict(clock)))


if __name__ == "__main__":
    main()
