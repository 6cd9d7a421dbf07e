"""The benchmarks of the language model: the baseline computes what our GPT-2 does, and the scripts' dry runs."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from language import defaults, ours, plain
from patience import PATIENCE_SECONDS

from protein.trainer.language.model import GPT

FOLDER = Path(plain.__file__).parent


def script(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(FOLDER / name), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)


def test_the_baseline_is_the_same_network() -> None:
    size = plain.SIZES["tiny"]
    torch.manual_seed(0)
    theirs = plain.Gpt(size)
    mine = GPT(ours.model_config(size, "gpt2"), size.vocabulary, torch.Generator().manual_seed(0))
    weights = dict(theirs.named_parameters())
    names = {"embedding": "tokens", "positions": "positions", "norm": "norm"}
    blocks = {
        "attention.input": "attention.qkv",
        "attention.output": "attention.proj",
        "feed_forward.input": "mlp.up",
        "feed_forward.output": "mlp.proj",
        "attention_norm": "norm1",
        "feed_forward_norm": "norm2",
    }
    with torch.no_grad():
        for name, parameter in mine.named_parameters():
            part, kind = name.rsplit(".", 1)
            if part.startswith("blocks."):
                number, inner = part.removeprefix("blocks.").split(".", 1)
                source = weights[f"blocks.{number}.{blocks[inner]}.{kind}"]
            else:
                source = weights[f"{names[part]}.{kind}"]
            parameter.copy_(source)
    tokens = torch.randint(size.vocabulary, (3, size.positions), generator=torch.Generator().manual_seed(1))
    targets = tokens.roll(-1, 1)
    # Their GELU is the exact one, ours the approximation by a tanh of the released weights.
    torch.testing.assert_close(mine.loss(tokens, targets), theirs(tokens, targets), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", ["plain.py", "ours.py"])
def test_both_programs_train(name: str) -> None:
    done = script(name, "--size", "tiny", "--seconds", "0.05")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["tokens"] > 0 and found["tokens"] % plain.SIZES["tiny"].tokens == 0 and found["cpu_seconds"] > 0


@pytest.mark.slow
def test_the_table_of_speeds_has_every_program() -> None:
    done = script("speed.py", "--size", "tiny", "--threads", "1", "--seconds", "0.05", "--rounds", "1", "--no-result")
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith("tiny")]
    assert len(lines) == 6 and lines[0].split()[-3:-1] == ["1.00", "1.00"]


def test_the_table_of_the_defaults_has_means_over_seeds() -> None:
    common = {"settings": "gpt2", "threads": 1, "seconds": 60.0, "tokens": 500_000}
    rows = [common | {"seed": seed, "bits_per_byte": bits} for seed, bits in ((0, 3.0), (1, 2.0))]
    assert defaults.table(rows)[-1] == "| gpt2 | 1 | 60 | 2 | 2.500 | 0.707 | 0.50 |"
