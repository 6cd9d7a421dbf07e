"""Text that a network writes."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from language_data import write_bytes_corpus
from language_runs import small
from small_models import ARCHES, every_weight_drawn, make_model
from whole_runs import go

from protein.trainer.errors import ConfigError
from protein.trainer.language.sample import continued, sample
from protein.trainer.machine.checkpoint import FILE_NAME

GREEDY: dict[str, Any] = {"temperature": 0.0, "top_k": 0, "seed": 0}


@pytest.mark.parametrize("arch", ARCHES)
def test_greedy_text_is_that_of_whole_passes(arch: str) -> None:
    """Without a cache: each token from a pass over all that was read, as long as there are positions."""
    model = every_weight_drawn(make_model(arch, vocab_size=50))
    text = [3, 7, 1]
    for _ in range(13):
        text.append(int(model(torch.tensor([text]))[0, -1].argmax()))
    assert continued(model, [3, 7, 1], tokens=13, **GREEDY) == text[3:]


def test_it_goes_on_where_the_positions_end(arch: str = "modern") -> None:
    """After 16 positions it begins again with the last 8 tokens."""
    model = every_weight_drawn(make_model(arch, vocab_size=50))
    written = continued(model, list(range(20)), tokens=40, **GREEDY)
    text = [*range(20), *written]
    assert len(written) == 40
    # The first pass reads 16 of 20 tokens, which leaves no room for a second one.
    assert written[0] == int(model(torch.tensor([text[4:20]]))[0, -1].argmax())
    assert written[1] == int(model(torch.tensor([text[13:21]]))[0, -1].argmax())
    assert written[5] == int(model(torch.tensor([text[13:25]]))[0, -1].argmax())


def test_draws_follow_the_probabilities() -> None:
    model = every_weight_drawn(make_model(vocab_size=8))
    with torch.no_grad():
        logits = model(torch.tensor([[1, 2]]))[0, -1].double()
    draws = 400

    def shares(**options: Any) -> torch.Tensor:
        counts = torch.zeros(8, dtype=torch.float64)
        for seed in range(draws):
            counts[continued(model, [1, 2], tokens=1, seed=seed, **options)[0]] += 1
        return counts / draws

    tolerance = 4 * math.sqrt(0.25 / draws)
    torch.testing.assert_close(shares(temperature=2.0, top_k=0), torch.softmax(logits / 2, 0), rtol=0, atol=tolerance)
    best = logits.topk(3).indices
    expected = torch.zeros(8, dtype=torch.float64)
    expected[best] = torch.softmax(logits[best] / 3, 0)
    torch.testing.assert_close(shares(temperature=3.0, top_k=3), expected, rtol=0, atol=tolerance)


def test_next_to_no_temperature_is_greedy() -> None:
    model = every_weight_drawn(make_model(vocab_size=50), 0.3)
    cold = continued(model, [3], tokens=9, temperature=1e-320, top_k=5, seed=0)
    assert cold == continued(model, [3], tokens=9, **GREEDY)


def test_the_seed_decides_and_the_global_generator_is_left_alone() -> None:
    model = every_weight_drawn(make_model(vocab_size=50), 0.1)
    before = torch.get_rng_state()
    one, same, other = (continued(model, [1], tokens=30, temperature=1.0, top_k=0, seed=seed) for seed in (5, 5, 6))
    assert one == same != other
    assert torch.get_rng_state().equal(before)


def test_the_end_token_ends_a_text() -> None:
    model = every_weight_drawn(make_model(vocab_size=50))
    first, second, *_ = continued(model, [3], tokens=2, **GREEDY)
    assert continued(model, [3], tokens=9, end=second, **GREEDY) == [first]


def test_weights_that_are_not_finite_write_something() -> None:
    model = make_model(vocab_size=50)
    with torch.no_grad():
        model.embedding.weight.fill_(math.nan)
    assert len(continued(model, [3], tokens=3, temperature=1.0, top_k=5, seed=0)) == 3


def test_a_checkpoint_writes_what_it_has_learned(tmp_path: Path) -> None:
    text = b"".join(b"%d: the number %d is here.\n" % (n % 10, n % 10) for n in range(200))
    data = write_bytes_corpus(tmp_path / "numbers", [text], [text[:100]])
    rates = {"learning_rate": 0.01, "embedding_learning_rate": 0.03}
    result, _ = go(small(data, steps=120, train=rates, eval={"tokens": 64, "prompt": "3: the"}), tmp_path)
    path = tmp_path / FILE_NAME
    assert result.sample is not None and result.sample.startswith("3: the")
    assert sample(path, "3: the", tokens=20, seed=0, threads=1) == result.sample
    assert sample(path, "5: the ", tokens=9, temperature=0.0, threads=1).startswith("5: the number")
    assert sample(path, tokens=0, threads=1) == ""
    long = "0: the number 0 is here.\n" * 20
    assert sample(path, long + "1: the", tokens=4, temperature=0.0, threads=1)[len(long) :] == "1: the num"
    with pytest.raises(ConfigError, match="the temperature of a sample must be 0 or more, got -1"):
        sample(path, temperature=-1.0)


def test_a_prompt_may_hold_bytes_that_are_no_utf8(tmp_path: Path) -> None:
    data = write_bytes_corpus(tmp_path / "text", [b"some text. " * 40], [b"some text. " * 10])
    result, _ = go(small(data, steps=2, eval={"tokens": 64, "prompt": "caf\udcc3"}), tmp_path)
    assert result.sample is not None and result.sample.startswith("caf")
    result.sample.encode()  # what is written is UTF-8
    assert sample(tmp_path / FILE_NAME, "caf\udcc3", seed=0, tokens=20, threads=1) == result.sample
