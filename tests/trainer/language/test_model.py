"""The network of a language model: its first loss, what a token may see, the cache, learning."""

import dataclasses
import math
from typing import Any

import pytest
import torch
from small_models import ARCHES, every_weight_drawn, make_model, tokens
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

from protein.trainer.errors import ConfigError
from protein.trainer.kernels.attention import rotate
from protein.trainer.language import model as network
from protein.trainer.language.model import (
    DESIGNS,
    GPT,
    LARGEST_ATTENTION,
    RMS_NORM_EPSILON,
    make_linear,
    padded,
    rms_norm,
    rotations,
)


def drawn(arch: Any) -> GPT:
    """A network whose weights are all drawn, so that nothing is zero."""
    return every_weight_drawn(make_model(arch))


def test_the_first_loss_is_that_of_chance() -> None:
    """With a head of zeros exactly, with GPT-2's initialisation nearly."""
    inputs, targets = tokens(64, 97), tokens(64, 97, seed=1)
    assert make_model("modern", vocab_size=97).loss(inputs, targets).item() == pytest.approx(math.log(97), rel=1e-6)
    assert make_model("gpt2", vocab_size=97).loss(inputs, targets).item() == pytest.approx(math.log(97), abs=0.03)


def test_gpt2s_initialisation() -> None:
    model = make_model("gpt2", num_layers=8, width_ratio=16.0, vocab_size=1000)
    for name, parameter in model.named_parameters():
        if name.endswith("output.weight"):
            assert parameter.std().item() == pytest.approx(0.02 / 4, rel=0.05), name
        elif "norm" in name:
            assert torch.all(parameter == (1 if name.endswith("weight") else 0)), name
        elif name.endswith("bias"):
            assert not parameter.any(), name
        else:
            assert parameter.std().item() == pytest.approx(0.02, rel=0.05), name


def test_weights_follow_the_generator_alone() -> None:
    state = torch.get_rng_state()
    one, other, third = make_model(seed=3), make_model(seed=3), make_model(seed=4)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))
    assert not torch.equal(one.embedding.weight, third.embedding.weight)


@pytest.mark.parametrize("arch", ARCHES)
def test_no_token_sees_a_later_one(arch: Any) -> None:
    model, rows = drawn(arch), tokens(2, 50)
    changed = rows.clone()
    changed[:, 9] = (changed[:, 9] + 1) % 50
    with torch.no_grad():
        before, after = model(rows), model(changed)
    assert torch.equal(before[:, :9], after[:, :9])
    assert (before[:, 9:] != after[:, 9:]).any(-1).all()


@pytest.mark.parametrize("arch", ARCHES)
def test_no_document_sees_another(arch: Any) -> None:
    model, rows = drawn(arch), tokens(2, 50)
    documents = torch.zeros_like(rows)
    documents[0, 5:], documents[0, 11:], documents[1, 8:] = 1, 2, 1
    changed = rows.clone()
    changed[:, 6] = (changed[:, 6] + 1) % 50
    with torch.no_grad():
        before, after = model(rows, documents), model(changed, documents)
    moved = (before != after).any(-1)
    assert moved[0].nonzero().flatten().tolist() == list(range(6, 11))
    assert moved[1].nonzero().flatten().tolist() == [6, 7]
    with torch.no_grad():
        alone = model(rows[:1, :5])
        torch.testing.assert_close(before[:1, :5], alone)
        torch.testing.assert_close(model(rows, torch.zeros_like(rows)), model(rows))


def test_rotary_documents_do_not_depend_on_their_place_in_the_row() -> None:
    model, rows = drawn("modern"), tokens(1, 50)
    documents = (torch.arange(rows.shape[1]) >= 7).long()[None]
    with torch.no_grad():
        torch.testing.assert_close(model(rows, documents)[:, 7:], model(rows[:, 7:]), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("arch", ARCHES)
def test_with_a_cache_the_logits_are_the_same(arch: Any) -> None:
    model, rows = drawn(arch), tokens(2, 50)
    cache = model.new_cache()
    with torch.no_grad():
        parts = [model(part, cache=cache) for part in rows.split([5, 1, 1, 4, rows.shape[1] - 11], dim=1)]
        torch.testing.assert_close(torch.cat(parts, 1), model(rows))
    assert cache.length == rows.shape[1] == cache.capacity
    with pytest.raises(ConfigError, match="17 tokens are more than the network's 16 positions"):
        model(rows[:, :1], cache=cache)


def test_a_sequence_longer_than_the_positions_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"17 tokens are more than the network's 16 positions.*sequence_length"):
        make_model()(tokens(1, 50, length=17))


@pytest.mark.parametrize("arch", ARCHES)
def test_padded_rows_neither_get_a_logit_nor_enter_the_loss(arch: Any) -> None:
    model, inputs, targets = every_weight_drawn(make_model(arch, vocab_size=70)), tokens(4, 70), tokens(4, 70, seed=1)
    assert model.head_weight.shape[0] == padded(70) == 128
    logits = model(inputs)
    assert logits.shape == (4, 16, 70)
    value = model.loss(inputs, targets)
    with torch.no_grad():
        expected = functional.cross_entropy(logits.flatten(0, 1).double(), targets.flatten())
    assert value.item() == pytest.approx(expected.item(), rel=1e-5)
    value.backward()
    assert model.embedding.weight.grad is not None and not model.embedding.weight.grad[70:].any()
    if model.head is not None:
        assert model.head.grad is not None and not model.head.grad[70:].any() and model.head.grad[:70].any()
    with torch.no_grad():
        model.head_weight[70:] = 1e3
    torch.testing.assert_close(model.loss(inputs, targets), value)


@pytest.mark.parametrize("head_size", [4, 32])
@pytest.mark.parametrize("positions", ["rotary", "learned"])
def test_normed_queries_and_keys_agree_at_the_same_size_whatever_the_heads(positions: Any, head_size: int) -> None:
    """A query that equals its key has the largest logit that attention can have."""
    design = dataclasses.replace(DESIGNS["modern"], positions=positions)
    model = make_model(design=design, head_size=head_size)
    assert model.rotation is not None
    heads = rms_norm(torch.randn(1, 16, 3, head_size, generator=torch.Generator().manual_seed(0)))
    turned = rotate(heads, model.rotation)
    logits = turned.square().sum(-1) / head_size**0.5
    torch.testing.assert_close(logits, torch.full_like(logits, LARGEST_ATTENTION), rtol=1e-3, atol=0.0)
    assert torch.allclose(turned / turned.norm(dim=-1, keepdim=True), heads / head_size**0.5) == (
        positions == "learned"
    )


@pytest.mark.parametrize("arch", ARCHES)
def test_ignored_targets_do_not_count(arch: Any) -> None:
    model, inputs, targets = every_weight_drawn(make_model(arch)), tokens(2, 50), tokens(2, 50, seed=1)
    with torch.no_grad():
        each = model.losses(inputs, targets)
        assert model.loss(inputs, targets).item() == pytest.approx(each.mean().item(), rel=1e-5)
        targets[1, 3:] = -1
        some = model.losses(inputs, targets)
        assert torch.equal(some[0], each[0]) and not some[1, 3:].any()
        assert model.loss(inputs, targets).item() == pytest.approx(some.sum().item() / 19, rel=1e-5)


@pytest.mark.parametrize("arch", ARCHES)
def test_one_batch_is_overfitted(arch: Any) -> None:
    model = make_model(arch)
    inputs, targets = tokens(4, 50), tokens(4, 50, seed=1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.0)
    for _ in range(150):
        optimizer.zero_grad()
        value = model.loss(inputs, targets)
        value.backward()
        optimizer.step()
    assert value.item() < 0.02


def test_rotations_turn_pairs_by_their_angle() -> None:
    """As complex numbers: entries i and i + D/2 are real and imaginary part."""
    generator = torch.Generator().manual_seed(0)
    heads = torch.randn(2, 5, 3, 8, generator=generator, dtype=torch.float64)
    angles = torch.arange(5.0)[:, None] * 10_000.0 ** (-torch.arange(4.0) / 4)
    turned = torch.complex(heads[..., :4], heads[..., 4:]) * torch.polar(torch.ones_like(angles), angles)[:, None]
    expected = torch.cat([turned.real, turned.imag], -1)
    torch.testing.assert_close(rotate(heads, rotations(5, 8)), expected, rtol=1e-5, atol=1e-6)


def test_rotary_positions_need_an_even_head_size() -> None:
    with pytest.raises(ConfigError, match="head_size must be even with rotary positions, got 5"):
        make_model("modern", head_size=5)


def test_the_operations_of_a_token_count_every_product() -> None:
    """Against the count of a profiler, which has no entry for the CPU's attention."""
    model = make_model("gpt2", vocab_size=64)  # no padded rows
    inputs = tokens(2, 64)
    with FlopCounterMode(display=False) as counter:
        model.loss(inputs, inputs).backward()
    queries_with_keys = 2 * 16 * model.width / 2  # of two layers, each token with half of the row on average
    weights_with_values = queries_with_keys
    counted = counter.get_total_flops() / inputs.numel()
    assert counted + 6 * (queries_with_keys + weights_with_values) == model.flops_per_token


def test_layers_without_biases_have_none() -> None:
    assert make_linear(3, 4, DESIGNS["modern"]).bias is None
    assert all(parameter.ndim == 2 for parameter in make_model("modern").parameters())


def test_the_norm_is_torchs_with_its_gradient() -> None:
    def theirs(x: torch.Tensor) -> torch.Tensor:
        return functional.rms_norm(x, x.shape[-1:], eps=RMS_NORM_EPSILON)

    generator = torch.Generator().manual_seed(0)
    x = torch.randn(3, 4, 6, generator=generator, dtype=torch.float64, requires_grad=True)
    torch.testing.assert_close(rms_norm(x), theirs(x))
    assert torch.autograd.gradcheck(rms_norm, x)
    half = x.detach().bfloat16().requires_grad_()
    assert rms_norm(half).dtype == torch.bfloat16
    torch.testing.assert_close(rms_norm(half).double(), theirs(x), rtol=0.03, atol=0.03)
    weights = torch.randn(3, 4, 6, generator=generator)
    (gradient,) = torch.autograd.grad((rms_norm(half) * weights).sum(), half)
    (expected,) = torch.autograd.grad((theirs(x) * weights).sum(), x)
    torch.testing.assert_close(gradient.double(), expected, rtol=0.05, atol=0.05)


@pytest.mark.parametrize("tokens_at_once", [1, 7, 100])
def test_the_loss_in_parts_is_torchs_with_its_gradients(tokens_at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "_tokens_at_once", lambda hidden, vocab_size: tokens_at_once)
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(20, 6, generator=generator, dtype=torch.float64).float().requires_grad_()
    head = torch.randn(16, 6, generator=generator).requires_grad_()
    targets = tokens(1, 11, length=20)[0]
    targets[[3, 8]] = -1
    arguments = hidden, head, targets, 11
    logits = functional.linear(hidden.double(), head.double())[:, :11]
    expected = functional.cross_entropy(logits, targets, ignore_index=-1)
    found = network.mean_cross_entropy(*arguments)
    assert found.item() == pytest.approx(expected.item(), rel=1e-6)
    ours, theirs = (torch.autograd.grad(3 * value, (hidden, head)) for value in (found, expected))
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)
    each = functional.cross_entropy(logits, targets, ignore_index=-1, reduction="none")
    torch.testing.assert_close(network.cross_entropies(*arguments).double(), each, rtol=1e-5, atol=1e-6)
    with torch.no_grad():
        assert torch.equal(network.mean_cross_entropy(*arguments), found)


@pytest.mark.parametrize("arch", ARCHES)
def test_bfloat16_is_near_float32(arch: Any) -> None:
    model, inputs, targets = every_weight_drawn(make_model(arch), scale=0.5), tokens(4, 50), tokens(4, 50, seed=1)

    def gradients() -> tuple[float, torch.Tensor]:
        model.zero_grad()
        value = model.loss(inputs, targets)
        value.backward()
        return value.item(), torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])

    exact, expected = gradients()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rounded, found = gradients()
    assert rounded != exact and rounded == pytest.approx(exact, rel=0.02)
    assert (found - expected).norm() < 0.1 * expected.norm()
