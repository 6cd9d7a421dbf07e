"""Which parameters of a language model go to which optimiser; the state; a step that overfits."""

import dataclasses
from typing import Any

import pytest
import torch
from small_models import make_model, tokens

from protein.trainer.language.config import TrainConfig
from protein.trainer.language.model import DESIGNS, GPT
from protein.trainer.language.update import make_optimizer
from protein.trainer.optim.muon import Muon
from protein.trainer.optim.optimizer import AdamW, FlatWeights


def names(model: GPT, **settings: Any) -> dict[tuple[str, int, float], set[str]]:
    """The last two parts of the names that belong to each kind of group."""
    called = {id(parameter): name for name, parameter in model.named_parameters()}
    found: dict[tuple[str, int, float], set[str]] = {}
    total = 0
    config = TrainConfig(learning_rate=0.5, embedding_learning_rate=0.25, **settings)
    for part in make_optimizer(model, FlatWeights(model).weights, config).parts:
        kinds: list[tuple[torch.nn.Parameter, int]] = []
        kinds += [(p, stacked) for ps, _, stacked, _ in part._batches for p in ps] if isinstance(part, Muon) else []
        kinds += [(p, 1) for some, _ in part._calls for p, _ in some] if isinstance(part, AdamW) else []
        total += len(kinds)
        for parameter, stacked in kinds:
            kind = type(part).__name__.lower(), stacked, part.largest_rate
            own = ".".join(called[id(parameter)].split(".")[2:]) or called[id(parameter)]
            found.setdefault(kind, set()).add(own)
    assert total == len(called)
    return found


def test_muon_takes_the_matrices_of_blocks_and_adamw_all_others() -> None:
    assert names(make_model("modern")) == {
        ("muon", 1, 0.5): {"attention.output.weight", "feed_forward.output.weight"},
        ("muon", 2, 0.5): {"feed_forward.input.weight"},
        ("muon", 3, 0.5): {"attention.input.weight"},
        ("adamw", 1, 0.25): {"embedding.weight", "head"},
    }
    gelu = make_model(design=dataclasses.replace(DESIGNS["modern"], activation="gelu"))
    assert "feed_forward.input.weight" in names(gelu)["muon", 1, 0.5]
    gpt2 = names(make_model("gpt2"), optimizer="adamw")
    assert gpt2["adamw", 1, 0.5] == {
        f"{part}.weight"
        for part in ("attention.input", "attention.output", "feed_forward.input", "feed_forward.output")
    }
    rest = {"attention.input.bias", "feed_forward_norm.weight", "embedding.weight", "positions.weight", "norm.bias"}
    assert rest < gpt2["adamw", 1, 0.25]


@pytest.mark.parametrize("kind", ["adamw", "muon"])
@pytest.mark.parametrize("arch", ["gpt2", "modern"])
def test_one_batch_is_overfitted_and_the_state_carries_over(arch: str, kind: Any) -> None:
    inputs, targets = tokens(4, 50), tokens(4, 50, seed=1)
    config = TrainConfig(
        optimizer=kind, learning_rate=0.01, warmup_fraction=0.05, lr_schedule="cosine", final_fraction=0.1
    )

    def run(model: GPT, optimizer: Any, flat: FlatWeights, first: int, last: int) -> float:
        loss = torch.zeros(())
        for step in range(first, last):
            flat.clear()
            loss = model.loss(inputs, targets)
            loss.backward()
            optimizer.set_progress((step + 0.5) / 120)
            optimizer.step(1.0)
        return loss.item()

    model, other = make_model(arch), make_model(arch, seed=1)
    flats = FlatWeights(model), FlatWeights(other)
    optimizers = make_optimizer(model, flats[0].weights, config), make_optimizer(other, flats[1].weights, config)
    assert run(model, optimizers[0], flats[0], 0, 100) < 0.1
    with torch.no_grad():
        flats[1].weights.copy_(flats[0].weights)
    optimizers[1].set_state({name: value.clone() for name, value in optimizers[0].state().items()})
    assert run(model, optimizers[0], flats[0], 100, 120) == run(other, optimizers[1], flats[1], 100, 120)
    assert torch.equal(flats[0].weights, flats[1].weights)
    assert optimizers[0].learning_rate == pytest.approx(0.001, rel=0.01)
    wrong = make_optimizer(
        model, flats[0].weights, dataclasses.replace(config, optimizer="muon" if kind == "adamw" else "adamw")
    )
    with pytest.raises(ValueError, match=r"use the same train\.optimizer"):
        wrong.set_state(optimizers[0].state())


@pytest.mark.parametrize("arch", ["gpt2", "modern"])
def test_all_parameters_are_views_of_one_vector(arch: str) -> None:
    """Also a tied head, and gradients of two passes add up."""
    model, inputs, targets = make_model(arch), tokens(2, 50), tokens(2, 50, seed=1)
    model.loss(inputs, targets).backward()
    once = [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]
    flat = FlatWeights(model)
    assert flat.weights.numel() == sum(p.numel() for p in model.parameters())
    for _ in range(2):
        model.loss(inputs, targets).backward()
    torch.testing.assert_close(flat.gradients, 2 * torch.cat([gradient.flatten() for gradient in once]))
    flat.clear()
    assert not any(p.grad.any() for p in model.parameters() if p.grad is not None)
