"""GPT-2 against the `transformers` library: its checkpoint folder is read, logits and greedy text are the same."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from released_weights import write_released
from safetensors.torch import load_file, save_file
from small_models import tokens

from protein.trainer.errors import CheckpointError
from protein.trainer.language.trained import read_released

VOCABULARY, POSITIONS = 101, 32


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, Path]]:
    """A network of theirs with weights of a size that gives every part an effect, and the folder that holds it."""
    folder = tmp_path_factory.mktemp("released")
    yield write_released(folder, VOCABULARY, POSITIONS), folder


def test_the_logits_are_theirs(reference: tuple[Any, Path]) -> None:
    theirs, folder = reference
    ours, rows = read_released(folder), tokens(4, VOCABULARY, length=POSITIONS)
    with torch.no_grad():
        expected = theirs(rows).logits
        torch.testing.assert_close(ours(rows), expected, rtol=1e-4, atol=1e-4)
        assert expected.abs().max() > 3  # not merely small numbers
        assert ours.loss(rows[:, :-1], rows[:, 1:]).item() == pytest.approx(theirs(rows, labels=rows).loss.item(), 1e-5)


def test_the_gradients_are_theirs(reference: tuple[Any, Path]) -> None:
    theirs, folder = reference
    ours, rows = read_released(folder), tokens(4, VOCABULARY, length=POSITIONS)
    ours.loss(rows[:, :-1], rows[:, 1:]).backward()
    theirs.zero_grad()
    theirs(rows, labels=rows).loss.backward()
    found: dict[str, Any] = {name: parameter.grad for name, parameter in theirs.transformer.named_parameters()}
    mine: dict[str, Any] = {name: parameter.grad for name, parameter in ours.named_parameters()}
    torch.testing.assert_close(mine["embedding.weight"][:VOCABULARY], found["wte.weight"], rtol=1e-3, atol=1e-5)
    torch.testing.assert_close(mine["positions.weight"], found["wpe.weight"], rtol=1e-3, atol=1e-5)
    layer = mine["blocks.1.feed_forward.input.weight"]
    torch.testing.assert_close(layer, found["h.1.mlp.c_fc.weight"].t(), rtol=1e-3, atol=1e-5)


def test_greedy_sampling_writes_the_same_text(reference: tuple[Any, Path]) -> None:
    theirs, folder = reference
    ours, prompt = read_released(folder), tokens(2, VOCABULARY, length=5, seed=3)
    length = POSITIONS - 5
    expected = theirs.generate(
        prompt, do_sample=False, min_new_tokens=length, max_new_tokens=length, pad_token_id=0, attention_mask=None
    )
    cache, written = ours.new_cache(), prompt
    with torch.no_grad():
        logits = ours(prompt, cache=cache)[:, -1]
        for _ in range(length):
            logits[:, 0] = -torch.inf  # their `min_new_tokens` forbids the end of text
            written = torch.cat([written, logits.argmax(-1, keepdim=True)], 1)
            if written.shape[1] < POSITIONS:
                logits = ours(written[:, -1:], cache=cache)[:, -1]
    assert torch.equal(written, expected)


def copied(folder: Path, to: Path) -> Path:
    for file in folder.iterdir():
        (to / file.name).write_bytes(file.read_bytes())
    return to


def test_released_files_name_the_weights_without_a_prefix(reference: tuple[Any, Path], tmp_path: Path) -> None:
    """And hold the causal mask of each block beside the weights."""
    theirs, folder = reference
    copied(folder, tmp_path)
    weights = load_file(folder / "model.safetensors")
    plain = {name.removeprefix("transformer."): tensor for name, tensor in weights.items()}
    plain["h.0.attn.bias"] = torch.ones(1, 1, POSITIONS, POSITIONS).tril()
    save_file(plain, tmp_path / "model.safetensors")
    rows = tokens(1, VOCABULARY)
    with torch.no_grad():
        torch.testing.assert_close(read_released(tmp_path)(rows), theirs(rows).logits, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "llama"}, "has model_type 'llama', only 'gpt2' can be loaded: use a checkpoint of GPT-2"),
        ({"activation_function": "relu"}, "has activation_function 'relu', only 'gelu_new' can be loaded"),
        ({"n_head": 5}, "has width 48 and 5 heads: the width must be a multiple of the heads"),
        ({"n_layer": None}, "does not say"),
        ({"train": {}}, "is a run of protein train, .* goes on with protein train --resume"),
        ({"n_positions": 64}, r"has 'wpe.weight' of shape \[32, 48\], config.json asks for \[64, 48\]"),
        ({"n_layer": 4}, "has no 'h.3.ln_1.weight': use the file that belongs to config.json"),
    ],
)
def test_another_network_is_refused(
    reference: tuple[Any, Path], tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    copied(reference[1], tmp_path)
    file = tmp_path / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))
    with pytest.raises(CheckpointError, match=message) as caught:
        read_released(tmp_path)
    assert "\n" not in str(caught.value)


def test_missing_and_damaged_files_are_named(reference: tuple[Any, Path], tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"cannot read .*config\.json.*: name a folder that holds"):
        read_released(tmp_path)
    copied(reference[1], tmp_path)
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(CheckpointError, match=r"cannot read .*model\.safetensors.*: write the checkpoint again"):
        read_released(tmp_path)
    weights.unlink()
    with pytest.raises(CheckpointError, match=r"cannot read .*model\.safetensors"):
        read_released(tmp_path)
