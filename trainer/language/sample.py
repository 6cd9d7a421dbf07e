"""Text that a network writes: one token after the other, each drawn from what the network expects next.

Keys and values of earlier tokens are kept, so each token costs one position. Where the network's positions are used up,
it goes on from the last half of them. The document token ends a text.

The draws have a generator of their own, on the CPU, so the same seed gives the same text on every device, to rounding,
and looking changes nothing in a training.
"""

from pathlib import Path

import torch

from ..errors import ConfigError
from .data.tokenizers import Tokenizer, text_of
from .model import GPT
from .trained import Progress, ignore, open_trained

TEMPERATURE = 0.8
TOP_K = 50


def sample(
    checkpoint_path: Path,
    prompt: str = "",
    *,
    data: str = "",
    tokens: int = 256,
    temperature: float = TEMPERATURE,
    top_k: int = TOP_K,
    seed: int = 0,
    threads: int = 0,
    device: str = "cpu",
    progress: Progress = ignore,
) -> str:
    """Returns the prompt and what a checkpoint's network writes after it.

    Args:
        checkpoint_path: the file that a run has written, or a folder of GPT-2's released weights.
        prompt: beginning of the text; empty: the document's beginning.
        data: `data.path` of the text whose tokenizer is used; empty: that of the run, or the one in the folder.
        tokens: to write, at most.
        temperature: the logits are divided by it; 0: the most probable token, always.
        top_k: each token is drawn from the `top_k` most probable ones; 0: from all.
        seed: of the draws.
        threads: 0: one per core.
        device: as `train.device`.
        progress: is told "tokens written", how many, and of how many.

    Raises:
        CheckpointError: the file cannot be read, is of another kind of training, or of another tokenizer.
        DataError: the tokenizer cannot be read.
        ConfigError: a value out of range, or no such device.
    """
    check(tokens=tokens, temperature=temperature, top_k=top_k, seed=seed)
    trained = open_trained(checkpoint_path, data)
    with trained.loaded(device, threads, "fp32") as (model, _):
        return write(
            model,
            trained.tokenizer,
            prompt,
            tokens=tokens,
            temperature=temperature,
            top_k=top_k,
            seed=seed,
            progress=progress,
        )


def check(*, tokens: int, temperature: float, top_k: int, seed: int) -> None:
    """Raises `ConfigError` for a value out of range."""
    for name, value in (("tokens", tokens), ("temperature", temperature), ("top_k", top_k), ("seed", seed)):
        if not 0 <= value < float("inf"):
            raise ConfigError(f"the {name} of a sample must be 0 or more, got {value:g}")


def write(
    model: GPT,
    tokenizer: Tokenizer,
    prompt: str = "",
    *,
    tokens: int,
    temperature: float = TEMPERATURE,
    top_k: int = TOP_K,
    seed: int = 0,
    progress: Progress = ignore,
) -> str:
    """Returns the prompt and what the network writes after it; see `sample`."""
    begun = begin(tokenizer, prompt)
    written = continued(
        model,
        begun,
        tokens=tokens,
        temperature=temperature,
        top_k=top_k,
        seed=seed,
        end=tokenizer.document_token,
        progress=progress,
    )
    return text_of(tokenizer, [*begun, *written])


def begin(tokenizer: Tokenizer, prompt: str) -> list[int]:
    """Returns the tokens of a text that begins with the prompt. Raises `DataError` where they cannot be had."""
    text = prompt.encode(errors="surrogateescape")  # which is how Python reads a command line's bytes that are no UTF-8
    return [tokenizer.document_token, *tokenizer.encode(text).tolist()]


@torch.inference_mode()
def continued(
    model: GPT,
    begun: list[int],
    *,
    tokens: int,
    temperature: float,
    top_k: int,
    seed: int,
    end: int | None = None,
    progress: Progress = ignore,
) -> list[int]:
    """Returns up to `tokens` tokens that follow those of `begun`, at least one; `end` ends them and is left out."""
    generator = torch.Generator().manual_seed(seed)
    device, positions = next(model.parameters()).device, model.config.sequence_length
    text, written = list(begun), 0
    cache, unread = model.new_cache(), text[-positions:]
    while written < tokens:
        progress("tokens written", written, tokens)
        if cache.length + len(unread) > positions:
            cache, unread = model.new_cache(), text[-max(positions // 2, 1) :]
        logits = model(torch.tensor([unread], device=device), cache=cache)[0, -1].float().cpu()
        token = _draw(logits, temperature, top_k, generator)
        if token == end:
            break
        text.append(token)
        unread, written = [token], written + 1
    return text[len(begun) :]


def _draw(logits: torch.Tensor, temperature: float, top_k: int, generator: torch.Generator) -> int:
    """Returns a token drawn from the logits, `V`; where they are not finite, the first token."""
    logits = logits.nan_to_num(nan=-1e30, posinf=1e30, neginf=-1e30)
    if not temperature:
        return int(logits.argmax())
    if 0 < top_k < len(logits):
        least = logits.topk(top_k).values[-1]
        logits = logits.masked_fill(logits < least, float("-inf"))
    logits = logits.double()
    probabilities = torch.softmax((logits - logits.max()) / temperature, 0)  # the largest one cannot overflow
    return int(torch.multinomial(probabilities, 1, generator=generator))
