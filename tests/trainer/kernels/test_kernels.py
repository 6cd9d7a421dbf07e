"""Advantages, sampling and PPO's gradient: every instruction set against plain loops in double precision."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from instruction_sets import four_threads, instruction_set  # noqa: F401 (fixtures)

from protein.trainer import kernels
from protein.trainer.kernels import _native

EXP, LOG, SIGMOID, TANH = range(4)


def uniform(*shape: int, seed: int, low: float = -1.0, high: float = 1.0) -> torch.Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed)) * (high - low) + low


def apply(function: int, x: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(x)
    _native.elementwise(function, x, y)
    return y


def relative_error(y: torch.Tensor, exact: torch.Tensor) -> float:
    return float(((y.double() - exact).abs() / exact.abs()).max())


def test_the_functions_keep_their_stated_errors() -> None:
    wide = torch.cat([uniform(200_001, seed=0, low=-87, high=87), uniform(100_001, seed=1), torch.tensor([-87.0, 87])])
    assert relative_error(apply(EXP, wide), wide.double().exp()) < 2e-7
    assert relative_error(apply(SIGMOID, wide), wide.double().sigmoid()) < 3e-7
    small = torch.cat([wide, uniform(100_001, seed=2, low=-1e-6, high=1e-6), torch.tensor([1e-30])])
    small = small[small != 0]
    assert relative_error(apply(TANH, small), small.double().tanh()) < 5e-7
    positive = wide.double().exp().float()
    error = (apply(LOG, positive).double() - positive.double().log()).abs()
    assert bool(((error < 1e-7) | (error < 3e-7 * positive.double().log().abs())).all())


def test_the_functions_are_exact_or_bounded_at_extremes() -> None:
    x = torch.tensor([0.0, -0.0, 1e4, -1e4, math.inf, -math.inf, math.nan])
    assert apply(EXP, x)[:2].tolist() == [1.0, 1.0]
    assert apply(EXP, x)[[2, 4]].min() > 1e37 and apply(EXP, x)[[3, 5]].max() < 2e-38
    assert apply(SIGMOID, x)[:2].tolist() == [0.5, 0.5]
    assert apply(TANH, x)[:6].tolist() == [0.0, 0.0, 1.0, -1.0, 1.0, -1.0]
    assert all(apply(function, x)[6].isnan() for function in range(4))
    assert apply(LOG, torch.tensor([1.0])).item() == 0.0


def slow_advantages(
    r: list[list[float]],
    v: list[list[float]],
    ends: list[list[bool]],
    ratio: list[list[float]],
    gamma: float,
    gae_lambda: float,
    rho_clip: float,
    c_clip: float,
) -> np.ndarray:
    """Each step's sum over its own future, up to the end of its episode: the definition, not the recursion."""
    steps, agents = len(r), len(r[0])
    result = np.zeros((steps, agents))
    for i in range(agents):
        for t in range(steps):
            trace = 1.0
            for later in range(t, steps):
                follows = 0.0 if ends[later][i] else v[later + 1][i]
                delta = min(rho_clip, ratio[later][i]) * (r[later][i] + gamma * follows - v[later][i])
                result[t, i] += trace * delta
                if ends[later][i]:
                    break
                trace *= gamma * gae_lambda * min(c_clip, ratio[later][i])
    return result


@pytest.mark.parametrize(("steps", "agents"), [(1, 1), (3, 5), (17, 37), (9, 130)])
@pytest.mark.parametrize(
    ("gamma", "gae_lambda", "clips"), [(0.99, 0.95, (1.0, 1.0)), (1.0, 1.0, (2.0, 0.5)), (0, 0, (1, 1))]
)
@pytest.mark.parametrize("corrected", [False, True])
def test_advantages_equal_the_definition(
    steps: int, agents: int, gamma: float, gae_lambda: float, clips: tuple[float, float], corrected: bool
) -> None:
    rewards, values = uniform(steps, agents, seed=1), uniform(steps + 1, agents, seed=2)
    ends = uniform(steps, agents, seed=3) > 0.7
    ratios = uniform(steps, agents, seed=4, low=0.0, high=3.0) if corrected else None
    known = {"gamma": gamma, "gae_lambda": gae_lambda, "rho_clip": clips[0], "c_clip": clips[1]}
    ones = torch.ones(steps, agents)
    exact = slow_advantages(
        rewards.tolist(),
        values.tolist(),
        ends.tolist(),
        (ones if ratios is None else ratios).tolist(),
        gamma,
        gae_lambda,
        *(clips if corrected else (1.0, 1.0)),
    )
    ours = kernels.advantages(rewards, values, ends, ratios, **known)
    np.testing.assert_allclose(ours.numpy(), exact, rtol=2e-5, atol=2e-6)
    wide = [None if t is None else t.double() for t in (rewards, values, ratios)]
    assert wide[0] is not None and wide[1] is not None
    np.testing.assert_allclose(kernels.advantages(wide[0], wide[1], ends, wide[2], **known).numpy(), exact, atol=1e-12)


def test_nothing_behind_an_end_matters_not_even_nan() -> None:
    values = torch.tensor([[1.0], [math.nan]])
    one = kernels.advantages(torch.tensor([[2.0]]), values, torch.tensor([[True]]), gamma=0.9, gae_lambda=0.9)
    assert one.item() == 1.0


def test_ratios_of_one_are_gae() -> None:
    rewards, values, ends = uniform(20, 40, seed=1), uniform(21, 40, seed=2), uniform(20, 40, seed=3) > 0.9
    without = kernels.advantages(rewards, values, ends, gamma=0.9, gae_lambda=0.8)
    with_ones = kernels.advantages(rewards, values, ends, torch.ones(20, 40), gamma=0.9, gae_lambda=0.8)
    np.testing.assert_allclose(with_ones.numpy(), without.numpy(), rtol=1e-5, atol=1e-6)


def slow_choice(logits: list[float], u: float) -> int:
    u = max(u, 2.0**-25)
    top = max(logits)
    weights = [math.exp(z - top) for z in logits]
    below = 0.0
    for k, weight in enumerate(weights[:-1]):
        below += weight
        if u * sum(weights) < below:
            return k
    return len(weights) - 1


@pytest.mark.parametrize("choices", [1, 2, 3, 18, 200])
@pytest.mark.parametrize("batch", [1, 15, 300])
def test_samples_invert_the_distribution_function(choices: int, batch: int) -> None:
    output = uniform(choices + 1, batch, seed=choices, low=-4, high=4)
    logits, u = output[:-1], uniform(batch, seed=batch, low=0.0, high=1.0)
    actions, logprobs = torch.full((batch, 2), -1, dtype=torch.int32), torch.empty(batch)
    kernels.sample(logits, u, actions[:, 1], logprobs)
    columns = logits.t().tolist()
    expected = [slow_choice(column, number) for column, number in zip(columns, u.tolist(), strict=True)]
    assert (actions[:, 0] == -1).all()
    assert (actions[:, 1] == torch.tensor(expected)).float().mean() > 0.99  # float32 may round across an edge
    assert (actions[:, 1] - torch.tensor(expected)).abs().max() <= 1
    exact = torch.log_softmax(logits.double(), 0).gather(0, actions[:, 1:].t().long())[0]
    np.testing.assert_allclose(logprobs.numpy(), exact.numpy(), rtol=1e-6, atol=1e-6)
    again, by_torch = torch.empty(batch, dtype=torch.int32), torch.empty(batch)
    kernels.sample_by_torch(logits.double(), u.double(), again, by_torch)
    assert (again == torch.tensor(expected)).all()


def test_samples_are_spread_as_the_probabilities_are() -> None:
    p = torch.tensor([0.5, 0.2, 0.0, 0.3])
    logits = (p + 1e-12).log().unsqueeze(1).expand(4, 40_000).contiguous()
    actions, logprobs = torch.empty(40_000, dtype=torch.int32), torch.empty(40_000)
    kernels.sample(logits, (torch.arange(40_000) + 0.5) / 40_000, actions, logprobs)
    shares = torch.bincount(actions, minlength=4) / 40_000
    np.testing.assert_allclose(shares.numpy(), p.numpy(), atol=2e-4)


def test_extreme_logits_and_draws_are_sampled() -> None:
    logits = torch.tensor([[1e4, -1e4, 0.0, 0.0], [-1e4, 1e4, 0.0, -200.0]])
    actions, logprobs = torch.empty(4, dtype=torch.int32), torch.empty(4)
    kernels.sample(logits, torch.tensor([1 - 2.0**-24, 0.0, 0.0, 1 - 2.0**-24]), actions, logprobs)
    assert actions.tolist() == [0, 1, 0, 0]
    np.testing.assert_allclose(logprobs.numpy(), [0, 0, math.log(0.5), 0], atol=1e-6)
    kernels.sample(torch.full((3, 1), math.nan), torch.tensor([0.5]), actions[:1], logprobs[:1])
    assert logprobs[0].isnan() and 0 <= actions[0] < 3


LOSS = {"clip": 0.2, "value_coef": 0.7, "entropy_coef": 0.03}


def ppo_gradient(output: torch.Tensor, columns: dict[str, torch.Tensor], **options: Any) -> torch.Tensor:
    """The kernel at the coefficients of `LOSS`; `columns` are its arguments of one number a sample."""
    arguments: dict[str, Any] = {**columns, **LOSS, **options}
    return kernels.ppo_gradient(output, **arguments)


def slow_loss(output: torch.Tensor, columns: dict[str, torch.Tensor], weights: torch.Tensor) -> torch.Tensor:
    """The loss as it is written in the paper, sample by sample, to be differentiated automatically."""
    total = output.new_zeros(())
    for i in range(output.shape[1]):
        logp = torch.log_softmax(output[:-1, i], 0)
        ratio = (logp[columns["actions"][i].long()] - columns["logprobs"][i]).exp()
        advantage, target = columns["advantages"][i], columns["returns"][i]
        clipped = ratio.clamp(1 - LOSS["clip"], 1 + LOSS["clip"])
        loss = -torch.min(ratio * advantage, clipped * advantage)
        error = (output[-1, i] - target).square()
        loss = loss + LOSS["value_coef"] * 0.5 * error + LOSS["entropy_coef"] * (logp.exp() * logp).sum()
        total = total + weights[i] * loss
    return total / output.shape[1]


def sampled_columns(choices: int, batch: int, output: torch.Tensor) -> dict[str, torch.Tensor]:
    actions = torch.randint(choices, (batch,), generator=torch.Generator().manual_seed(1), dtype=torch.int32)
    logprobs = torch.log_softmax(output[:-1], 0).gather(0, actions.long().unsqueeze(0))[0]
    return {
        "actions": actions,
        "logprobs": logprobs + uniform(batch, seed=5, low=-0.6, high=0.6),
        "advantages": uniform(batch, seed=7, low=-2, high=2),
        "returns": output[-1] + uniform(batch, seed=8),
    }


@pytest.mark.parametrize(("choices", "batch"), [(1, 3), (2, 17), (5, 300), (40, 33)])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_gradient_is_that_of_the_loss(choices: int, batch: int, weighted: bool) -> None:
    output = uniform(choices + 1, batch, seed=9, low=-3, high=3)
    columns = sampled_columns(choices, batch, output)
    weights = uniform(batch, seed=10, low=0.0, high=2.0) if weighted else None
    exact_output = output.double().requires_grad_()
    wide = {name: column.double() for name, column in columns.items()}
    ones = torch.ones(batch, dtype=torch.float64)
    slow_loss(exact_output, wide, ones if weights is None else weights.double()).backward()
    assert exact_output.grad is not None
    exact = exact_output.grad.numpy()
    gradient = ppo_gradient(output, columns, weights=weights)
    np.testing.assert_allclose(gradient.numpy(), exact, rtol=2e-5, atol=2e-6 / batch)
    # The rows of a larger tensor, and the mean of a larger batch.
    apart = torch.full((choices + 2, batch + 3), 7.0)[:-1, :batch].copy_(output)
    given = ppo_gradient(apart, columns, weights=weights, count=2 * batch)
    np.testing.assert_allclose(given.numpy() * 2, gradient.numpy(), rtol=1e-6, atol=1e-9)


def test_extreme_outputs_have_a_finite_gradient_and_nan_does_not_hide() -> None:
    output = torch.tensor([[1e4, -1e4, 50.0, 0.0], [-1e4, 1e4, -50.0, math.nan], [1e6, -1e6, 0.0, 0.0]])
    columns = {name: torch.zeros(4) for name in ("logprobs", "returns")}
    columns |= {"advantages": torch.ones(4), "actions": torch.zeros(4, dtype=torch.int32)}
    gradient = ppo_gradient(output, columns)
    assert gradient[:, :3].isfinite().all() and gradient[:2, 3].isnan().all()
    columns["advantages"][0] = math.nan
    assert ppo_gradient(output, columns)[:2, 0].isnan().all()


def test_threads_change_nothing(threads: None) -> None:
    output = uniform(4, 70_000, seed=1, low=-3, high=3)
    columns = sampled_columns(3, 70_000, output)
    rewards, values, ends = uniform(64, 5000, seed=1), uniform(65, 5000, seed=2), uniform(64, 5000, seed=3) > 0.9

    def everything() -> list[torch.Tensor]:
        actions, logprobs = torch.empty(70_000, dtype=torch.int32), torch.empty(70_000)
        kernels.sample(output[:-1], columns["advantages"].abs() / 2, actions, logprobs)
        advantages = kernels.advantages(rewards, values, ends, gamma=0.9, gae_lambda=0.9)
        return [actions, logprobs, advantages, ppo_gradient(output, columns)]

    parallel = everything()
    kernels.set_threads(1)
    assert all(torch.equal(a, b) for a, b in zip(parallel, everything(), strict=True))


def test_unfit_tensors_are_refused_with_what_was_expected() -> None:
    rewards, values, ends = torch.zeros(3, 4), torch.zeros(4, 4), torch.zeros(3, 4, dtype=torch.bool)
    with pytest.raises(ValueError, match=r"values must be a contiguous torch.float32 CPU tensor of shape \(4, 4\)"):
        kernels.advantages(rewards, values[:3], ends, gamma=1, gae_lambda=1)
    with pytest.raises(ValueError, match=r"ends must be .* torch.bool"):
        kernels.advantages(rewards, values, ends.byte(), gamma=1, gae_lambda=1)
    with pytest.raises(ValueError, match="rewards must be a contiguous"):
        kernels.advantages(torch.zeros(4, 3).t(), values, ends, gamma=1, gae_lambda=1)
    with pytest.raises(
        ValueError, match=r"actions must be a strided torch.int32 CPU tensor of shape \(4,\), got torch.bool"
    ):
        kernels.sample(rewards, values[0], ends[0], values[1])
    with pytest.raises(ValueError, match="logits must be a row-contiguous"):
        kernels.sample(torch.zeros(4, 3).t(), values[0], torch.zeros(4, dtype=torch.int32), values[1])
    output, actions, column = torch.zeros(3, 4), torch.zeros(4, dtype=torch.int32), torch.zeros(4)
    known: dict[str, Any] = LOSS
    with pytest.raises(ValueError, match=r"actions must be a contiguous torch.int32 .* got torch.int64"):
        kernels.ppo_gradient(output, actions.long(), column, column, column, **known)
    with pytest.raises(ValueError, match=r"returns must be a contiguous .* of shape \(4,\), got .* shape \(3,\)"):
        kernels.ppo_gradient(output, actions, column, column, column[:3], **known)
    with pytest.raises(ValueError, match=r"advantages must be .* strides \(2,\)"):
        kernels.ppo_gradient(output, actions, column, torch.zeros(8)[::2], column, **known)
    with pytest.raises(ValueError, match=r"output must have 2 dimensions, got shape \(4,\)"):
        kernels.ppo_gradient(column, actions, column, column, column, **known)
    with pytest.raises(ValueError, match="output must have at least 2 rows"):
        kernels.ppo_gradient(output[:1], actions, column, column, column, **known)
    with pytest.raises(ValueError, match="threads must be at least 1"):
        kernels.set_threads(0)
    with pytest.raises(ValueError, match="no kernels for the instruction set 'abacus'"):
        _native.use_instruction_set("abacus")


def test_a_backward_pass_from_a_gradient_is_torchs_own() -> None:
    inputs, weight = uniform(32, 5, seed=0), uniform(5, 3, seed=1)
    by_output = uniform(32, 3, seed=2)
    ours, theirs = (weight.clone().requires_grad_() for _ in range(2))
    for _ in range(2):  # gradients add up
        kernels.backward_from((inputs @ ours).tanh(), by_output)
        torch.autograd.backward((inputs @ theirs).tanh(), by_output)
    assert ours.grad is not None and theirs.grad is not None and ours.grad.equal(theirs.grad)
    with pytest.raises(RuntimeError, match="shape"):
        kernels.backward_from(inputs @ ours, by_output.t())


@pytest.mark.parametrize("channels", [1, 2, 3, 4, 12])
def test_bytes_of_images_become_numbers_with_channels_last(channels: int, threads: None) -> None:
    """Bit for bit as torch computes it, for any number of images and threads."""
    for count, height, width in ((0, 3, 5), (1, 7, 3), (40, 210, 160)):
        drawn = torch.randint(0, 256, (count, channels, height, width), dtype=torch.uint8)
        read = kernels.channels_last(drawn, 1 / 200)
        assert read.is_contiguous(memory_format=torch.channels_last)
        assert torch.equal(read, drawn.float() * (1 / 200))
    turned = drawn.transpose(2, 3)
    assert torch.equal(kernels.channels_last(turned, 1.0), turned.float())
    with pytest.raises(ValueError, match=r"out must be a contiguous torch\.float32 CPU tensor of shape \(1, 2, 2, 3\)"):
        _native.channels_last(torch.zeros(1, 3, 2, 2, dtype=torch.uint8), torch.zeros(1, 3, 2, 2), 1.0)
