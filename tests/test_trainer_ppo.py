"""The loss against a reference written out sample by sample; its gradient against automatic differentiation."""

import copy
import math

import pytest
import torch
from torch import nn

from trainer.config import TrainConfig
from trainer.errors import DivergedError
from trainer.policy import MLPPolicy
from trainer.ppo import PPO, Coefficients, Minibatch, loss_gradient, loss_terms, scheduled_rate
from trainer.rollout import Batch

COEFFICIENTS = [
    Coefficients(clip=0.2, clip_value=0.0, value=0.5, entropy=0.01),
    Coefficients(clip=0.1, clip_value=0.3, value=1.7, entropy=0.2),
    Coefficients(clip=0.3, clip_value=0.05, value=0.0, entropy=0.0),
]


def make_minibatch(size: int, actions: int, seed: int) -> tuple[torch.Tensor, Minibatch]:
    g = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=g, dtype=torch.float64)

    output = normal(actions + 1, size)
    taken = torch.randint(actions, (size,), generator=g)
    logprobs = torch.log_softmax(output[:-1] + 0.3 * normal(actions, size), dim=0)
    minibatch = Minibatch(
        actions=taken,
        logprobs=logprobs.gather(0, taken.unsqueeze(0)).squeeze(0),
        values=output[-1] + 0.3 * normal(size),
        advantages=normal(size),
        returns=normal(size),
    )
    return output, minibatch


def written_out_loss(output: torch.Tensor, batch: Minibatch, c: Coefficients) -> float:
    size, total = output.shape[1], 0.0
    for i in range(size):
        logits = output[:-1, i].tolist()
        normaliser = math.log(sum(math.exp(z) for z in logits))
        logp = [z - normaliser for z in logits]
        ratio = math.exp(logp[int(batch.actions[i])] - float(batch.logprobs[i]))
        gain = float(batch.advantages[i])
        total += max(-ratio * gain, -min(max(ratio, 1 - c.clip), 1 + c.clip) * gain)
        value, old, target = float(output[-1, i]), float(batch.values[i]), float(batch.returns[i])
        error = (value - target) ** 2
        if c.clip_value:
            near = old + min(max(value - old, -c.clip_value), c.clip_value)
            error = max(error, (near - target) ** 2)
        total += c.value * 0.5 * error
        total += c.entropy * sum(math.exp(lp) * lp for lp in logp)
    return total / size


@pytest.mark.parametrize("c", COEFFICIENTS)
def test_the_loss_is_the_written_out_one(c: Coefficients) -> None:
    output, batch = make_minibatch(40, 4, seed=1)
    terms = loss_terms(output, batch, c)
    assert terms["loss"].item() == pytest.approx(written_out_loss(output, batch, c), rel=1e-12)
    ratio = (torch.log_softmax(output[:-1], 0).gather(0, batch.actions[None])[0] - batch.logprobs).exp()
    assert terms["clip_fraction"].item() == pytest.approx(((ratio - 1).abs() > c.clip).double().mean().item())
    assert 0 < terms["clip_fraction"].item() < 1, "the example must have both clipped and unclipped samples"
    assert terms["approx_kl"].item() > 0


@pytest.mark.parametrize("c", COEFFICIENTS)
@pytest.mark.parametrize(("size", "actions"), [(1, 2), (300, 3), (50, 6)])
def test_the_gradient_in_closed_form_is_that_of_the_loss(c: Coefficients, size: int, actions: int) -> None:
    output, batch = make_minibatch(size, actions, seed=2)
    given_output = output.clone()
    gradient = loss_gradient(output, batch, c)
    assert torch.equal(output, given_output), "the network's output must not be written to"
    output.requires_grad_()
    (expected,) = torch.autograd.grad(loss_terms(output, batch, c)["loss"], output)
    torch.testing.assert_close(gradient, expected, rtol=1e-10, atol=1e-14)


def test_at_the_old_policy_nothing_is_clipped() -> None:
    output, batch = make_minibatch(64, 3, seed=3)
    same = torch.log_softmax(output[:-1], 0).gather(0, batch.actions[None])[0]
    batch = Minibatch(
        actions=batch.actions, logprobs=same, values=output[-1], advantages=batch.advantages, returns=batch.returns
    )
    tight = Coefficients(clip=1e-9, clip_value=1e-9, value=0.5, entropy=0.0)
    loose = Coefficients(clip=100.0, clip_value=0.0, value=0.5, entropy=0.0)
    torch.testing.assert_close(loss_gradient(output, batch, tight), loss_gradient(output, batch, loose))


def test_schedules() -> None:
    assert scheduled_rate("constant", 0.3, 0.9) == 0.3
    assert scheduled_rate("linear", 0.3, 0.25) == pytest.approx(0.225)
    assert scheduled_rate("cosine", 0.3, 0.0) == pytest.approx(0.3)
    assert scheduled_rate("cosine", 0.3, 0.5) == pytest.approx(0.15)
    assert scheduled_rate("cosine", 0.3, 1.0) == pytest.approx(0.0, abs=1e-12)


def make_batch(size: int, features: int = 5, actions: int = 3) -> Batch:
    g = torch.Generator().manual_seed(0)
    return Batch(
        observations=torch.randn(size, features, generator=g),
        actions=torch.randint(actions, (size,), generator=g),
        logprobs=torch.full((size,), -math.log(actions)),
        values=torch.randn(size, generator=g),
        advantages=torch.randn(size, generator=g),
        returns=10 * torch.randn(size, generator=g),
    )


def make_ppo(**train: object) -> tuple[MLPPolicy, PPO]:
    g = torch.Generator().manual_seed(0)
    policy = MLPPolicy(5, 3, hidden_size=8, num_layers=2, generator=g)
    return policy, PPO(policy, TrainConfig(**train), device=torch.device("cpu"), generator=g)  # type: ignore[arg-type]


def test_one_update_is_one_adam_step_along_the_clipped_gradient_of_the_mean_loss() -> None:
    """One epoch of one minibatch, against torch's own loss, clip and optimiser on a copy of the network."""
    batch = make_batch(96)
    policy, ppo = make_ppo(minibatch_size=96, update_epochs=1, max_grad_norm=0.05, learning_rate=0.01)
    reference = copy.deepcopy(policy)
    ppo.update(batch, 0.0)

    gains = (batch.advantages - batch.advantages.mean()) / (batch.advantages.std(correction=0) + 1e-8)
    minibatch = Minibatch(
        actions=batch.actions, logprobs=batch.logprobs, values=batch.values, advantages=gains, returns=batch.returns
    )
    c = Coefficients(clip=0.2, clip_value=0.0, value=0.5, entropy=0.01)
    loss_terms(reference(batch.observations), minibatch, c)["loss"].backward()
    norm = nn.utils.clip_grad_norm_(reference.parameters(), 0.05)
    assert norm > 0.5, "the example must be clipped"
    torch.optim.Adam(reference.parameters(), lr=0.01, eps=1e-5).step()
    for ours, theirs in zip(policy.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)


def test_gradients_are_clipped_by_their_global_norm() -> None:
    """With plain gradient descent in Adam's place the weights move by the learning rate times the clipped norm."""

    def distance_moved(max_grad_norm: float) -> float:
        train = {"minibatch_size": 96, "update_epochs": 1, "learning_rate": 0.5, "lr_schedule": "constant"}
        policy, ppo = make_ppo(max_grad_norm=max_grad_norm, **train)
        before = nn.utils.parameters_to_vector(policy.parameters()).detach().clone()
        ppo.optimizer = torch.optim.SGD(policy.parameters(), lr=0.5)  # type: ignore[assignment]
        ppo.update(make_batch(96), 0.0)
        return float((nn.utils.parameters_to_vector(policy.parameters()).detach() - before).norm())

    unclipped = distance_moved(1e6)
    assert unclipped > 0.5 * 2
    assert distance_moved(2.0) == pytest.approx(0.5 * 2.0, rel=1e-4)
    assert distance_moved(0.1) == pytest.approx(0.5 * 0.1, rel=1e-4)


def test_every_sample_is_used_once_an_epoch_even_in_a_short_last_minibatch() -> None:
    _, ppo = make_ppo(minibatch_size=40, update_epochs=3)
    seen: list[torch.Tensor] = []
    compute = ppo._gradients.by_chain_rule
    ppo._gradients.by_chain_rule = lambda x, of: (seen.append(x), compute(x, of))[1]  # type: ignore[method-assign]
    batch = make_batch(100)
    ppo.update(batch, 0.0)
    assert [len(x) for x in seen] == [40, 40, 20] * 3
    for epoch in range(3):
        used = torch.cat(seen[3 * epoch : 3 * epoch + 3])
        assert sorted(used[:, 0].tolist()) == sorted(batch.observations[:, 0].tolist())
    assert not torch.equal(torch.cat(seen[:3]), torch.cat(seen[3:6])), "each epoch has an order of its own"


def test_a_batch_of_one_sample_and_one_of_equal_advantages_are_fine() -> None:
    _, ppo = make_ppo(minibatch_size=1)
    assert all(map(math.isfinite, ppo.update(make_batch(1), 0.0).values()))
    batch = make_batch(8)
    batch.advantages.fill_(0.25)
    assert all(map(math.isfinite, ppo.update(batch, 0.0).values()))


@pytest.mark.parametrize("poison", ["advantages", "returns", "observations"])
def test_one_number_that_is_not_finite_is_noticed(poison: str) -> None:
    _, ppo = make_ppo(minibatch_size=25, update_epochs=1)
    batch = make_batch(100)
    getattr(batch, poison).view(-1)[3] = float("inf")
    with pytest.raises(DivergedError, match="not finite"):
        ppo.update(batch, 0.0)
