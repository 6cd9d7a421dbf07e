"""GAE against a slow reference that follows the definition: a sum over each step's own future, not a recursion."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from trainer.advantage import bootstrap_truncations_, gae


def slow_advantage(
    rewards: np.ndarray,
    values: np.ndarray,
    terminals: np.ndarray,
    truncations: np.ndarray,
    final_values: np.ndarray,
    gamma: float,
    gae_lambda: float,
) -> np.ndarray:
    """A[t] = sum over l of (gamma lambda)^l delta[t + l], up to and including the step that ends t's episode."""
    horizon, agents = rewards.shape
    result = np.zeros((horizon, agents))
    for agent in range(agents):
        for t in range(horizon):
            for later in range(t, horizon):
                if terminals[later, agent]:
                    follows = 0.0
                elif truncations[later, agent]:
                    follows = final_values[later, agent]
                else:
                    follows = values[later + 1, agent]
                delta = rewards[later, agent] + gamma * follows - values[later, agent]
                result[t, agent] += (gamma * gae_lambda) ** (later - t) * delta
                if terminals[later, agent] or truncations[later, agent]:
                    break
    return result


def advantages(
    rewards: np.ndarray,
    values: np.ndarray,
    terminals: np.ndarray,
    truncations: np.ndarray,
    final_values: np.ndarray,
    gamma: float,
    gae_lambda: float,
) -> np.ndarray:
    bootstrapped = torch.from_numpy(rewards.copy())
    cut = np.flatnonzero(truncations & ~terminals)
    bootstrap_truncations_(bootstrapped, torch.from_numpy(cut), torch.from_numpy(final_values.reshape(-1)[cut]), gamma)
    ends = torch.from_numpy(terminals | truncations)
    return gae(bootstrapped, torch.from_numpy(values), ends, gamma=gamma, gae_lambda=gae_lambda).numpy()


@settings(max_examples=60, deadline=None)
@given(
    horizon=st.integers(1, 12),
    agents=st.integers(1, 4),
    gamma=st.sampled_from([0.0, 0.5, 0.99, 1.0]),
    gae_lambda=st.sampled_from([0.0, 0.7, 0.95, 1.0]),
    seed=st.integers(0, 10**6),
)
def test_it_equals_the_slow_reference(horizon: int, agents: int, gamma: float, gae_lambda: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    given_arrays = (
        rng.normal(size=(horizon, agents)),
        rng.normal(size=(horizon + 1, agents)),
        rng.random((horizon, agents)) < 0.2,
        rng.random((horizon, agents)) < 0.2,
        rng.normal(size=(horizon, agents)),
    )
    expected = slow_advantage(*given_arrays, gamma, gae_lambda)
    np.testing.assert_allclose(advantages(*given_arrays, gamma, gae_lambda), expected, rtol=1e-10, atol=1e-12)


def one_step(terminal: bool, truncated: bool) -> float:
    array = np.array([[2.0]]), np.array([[0.5], [100.0]]), np.array([[terminal]]), np.array([[truncated]])
    return float(advantages(*array, np.array([[10.0]]), 0.9, 0.95)[0, 0])


def test_the_last_step_is_bootstrapped_from_the_next_observation() -> None:
    assert one_step(terminal=False, truncated=False) == pytest.approx(2.0 + 0.9 * 100.0 - 0.5)


def test_truncation_bootstraps_from_the_final_observation_and_termination_does_not() -> None:
    assert one_step(terminal=False, truncated=True) == pytest.approx(2.0 + 0.9 * 10.0 - 0.5)
    assert one_step(terminal=True, truncated=False) == pytest.approx(2.0 - 0.5)
    assert one_step(terminal=True, truncated=True) == pytest.approx(2.0 - 0.5)
