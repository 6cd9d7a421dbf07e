"""Running moments, normalised observations and scaled rewards, against slow references; and whole runs with them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from env_buffers import GAMES
from training_parts import CPU, POLICIES, make_policy, make_rollout, make_spec, scripted
from whole_runs import go, same, tensors

from protein.trainer.config import RunConfig
from protein.trainer.errors import CheckpointError, TrainerError
from protein.trainer.evaluate import evaluate
from protein.trainer.machine import checkpoint as checkpoints
from protein.trainer.machine.distributed import ALONE
from protein.trainer.normalise import CLIP, Conditioning, Moments, Normalizer, RewardScaler, discounted_returns
from protein.trainer.watch import Player

SMALL: dict[str, dict[str, Any]] = {
    "env": {"name": "python:scaled_twins:pong", "num_envs": 8, "frame_skip": 40},
    "policy": {"hidden_size": 8},
    "train": {"total_timesteps": 8 * 16 * 4, "threads": 1, "device": "cpu", "horizon": 16, "minibatch_size": 64},
    "eval": {"episodes": 8, "num_envs": 8},
}


def small(env: dict[str, Any] | None = None, **train: Any) -> RunConfig:
    return RunConfig.from_dict(SMALL | {"env": SMALL["env"] | (env or {}), "train": SMALL["train"] | train})


@pytest.mark.parametrize("offset", [0.0, 1e7])
def test_moments_are_those_of_all_samples_however_they_are_merged(offset: float) -> None:
    """Far from 0, too, where sums of squares would have lost everything."""
    rng = np.random.default_rng(0)
    samples = offset + rng.normal(size=(20_000, 3)) * [1e-3, 1.0, 1e3]
    whole = Moments.of(torch.from_numpy(samples))
    merged = Moments.none(3)
    for part in np.split(samples, [1, 5, 5000, 5001]):
        merged = merged.merged(Moments.of(torch.from_numpy(part)))
    for moments in (whole, merged, Moments.none(3).merged(whole), whole.merged(Moments.none(3))):
        assert moments.count == 20_000
        np.testing.assert_allclose(moments.mean, samples.mean(axis=0), rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(moments.variance, samples.var(axis=0), rtol=1e-6)
    assert (Moments.none(3).variance == 0).all()


def test_moments_leave_their_samples_alone() -> None:
    samples = torch.arange(6.0, dtype=torch.float64).view(3, 2)
    Moments.of(samples)
    assert samples.flatten().tolist() == [0, 1, 2, 3, 4, 5]


def test_observations_are_centred_scaled_and_cut_off_and_a_constant_only_centred() -> None:
    seen = torch.tensor([[0.0, 1000.1, 7.0], [2.0, 1000.3, 7.0]])
    normalizer = Normalizer(Moments.of(seen), CPU)
    found = normalizer.apply(torch.tensor([[3.0, 1000.3, 7.5], [-30.0, 1000.2, 7.0]]))
    np.testing.assert_allclose(found, [[2, 1, 0.5], [-CLIP, 0, 0]], atol=1e-3)
    bytes_too = normalizer.apply(torch.tensor([[3, 0, 7]], dtype=torch.uint8))
    assert bytes_too.dtype == torch.float32 and bytes_too[0].tolist() == pytest.approx([2, -CLIP, 0])


@pytest.mark.parametrize("kind", ["mlp", "lstm"])
@pytest.mark.parametrize("halves", [False, True])
def test_a_rollout_normalises_by_what_all_batches_before_it_have_shown(kind: str, halves: bool) -> None:
    """Within one it is frozen: what the update reads is what the network acted on, final observations too."""
    spec = make_spec()
    policy = make_policy(spec, **POLICIES[kind])
    raw = make_rollout(scripted(18, 6, spec, halves=halves), policy, horizon=6, gamma=0.9)
    rollout = make_rollout(scripted(18, 6, spec, halves=halves), policy, horizon=6, gamma=0.9)
    warm = np.random.default_rng(1).normal(3.0, 2.0, (50, spec.observation_size)).astype(np.float32)
    rollout.condition(Conditioning(Normalizer(Moments.of(torch.from_numpy(warm)), CPU)))
    for each in (raw, rollout):
        each.reset(0)
    seen = [warm]
    for steps in (6, 5, 6):
        samples = np.concatenate(seen).astype(np.float64)
        plain, batch = raw.collect(steps), rollout.settle(rollout.collect(steps), ALONE)
        exact = (plain.observations.numpy() - samples.mean(axis=0)) / samples.std(axis=0)
        np.testing.assert_allclose(batch.observations, exact.clip(-CLIP, CLIP), rtol=1e-4, atol=1e-4)
        with torch.no_grad():
            output, _ = policy(batch.observations, batch.state, batch.resets)
        logp = policy.distribution.terms(output[: policy.action_rows], batch.actions.flatten(1)).logp
        torch.testing.assert_close(batch.logprobs.flatten(), logp, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(batch.values[:-1].flatten(), policy.values(output), rtol=1e-4, atol=1e-4)
        seen.append(plain.observations.flatten(0, 1).numpy().copy())


def slow_returns(rewards: np.ndarray, ended: np.ndarray, gamma: float) -> list[float]:
    """The discounted return of every step of every agent, by its definition."""
    found = []
    for agent in range(rewards.shape[1]):
        for t in range(len(rewards)):
            first = max([0, *(s + 1 for s in range(t) if ended[s, agent])])
            found.append(sum(gamma ** (t - s) * float(rewards[s, agent]) for s in range(first, t + 1)))
    return found


@pytest.mark.parametrize("clip", [0.0, 0.4])
@pytest.mark.parametrize("kind", ["mlp", "lstm"])
def test_rewards_are_divided_by_the_deviation_of_the_return_before_final_values_are_added(
    kind: str, clip: float
) -> None:
    spec, lengths = make_spec(), (6, 5, 6)
    policy = make_policy(spec, **POLICIES[kind])
    (envs,) = scripted(sum(lengths), 6, spec)
    terminals, truncations, rewards = envs.table
    raw, rollout = (make_rollout(scripted(sum(lengths), 6, spec), policy, horizon=6, gamma=0.9) for _ in range(2))
    rollout.condition(Conditioning(None, RewardScaler(6, gamma=0.9, scales=True, clip=clip)))
    for each in (raw, rollout):
        each.reset(0)
    start = 0
    for steps in lengths:
        plain, batch = raw.collect(steps), rollout.settle(rollout.collect(steps), ALONE)
        ended, span = terminals | truncations, slice(start, start + steps)
        start += steps
        deviation = np.std(slow_returns(rewards[:start], ended[:start], 0.9))
        final_values = plain.rewards.numpy() - rewards[span]
        cut = truncations[span] & ~terminals[span]
        assert cut.any() and (np.abs(final_values[cut]) > 1e-3).any() and (final_values[~cut] == 0).all()
        scaled = rewards[span] / deviation
        expected = (scaled.clip(-clip, clip) if clip else scaled) + final_values
        np.testing.assert_allclose(batch.rewards, expected, rtol=1e-4, atol=1e-5)
        assert batch.follows is None


def test_returns_begin_anew_with_each_episode_and_carry_over() -> None:
    rewards = np.array([[1, 1], [1, 1], [1, 1]], np.float32)
    begins = np.array([[False, True], [False, False], [True, False]])
    found = discounted_returns(rewards, begins, np.array([8.0, 8.0]), 0.5)
    assert found.tolist() == [[5, 1], [3.5, 1.5], [1, 1.75]]


def test_rewards_that_never_vary_stay_as_they_are() -> None:
    scaler = RewardScaler(3, gamma=0.0, scales=True, clip=0.0)
    scaler.absorb(scaler.observe(np.full((5, 3), 700.0, np.float32), np.zeros((5, 3), np.bool_)))
    assert scaler.factor == 1.0


@pytest.mark.parametrize("name", [name for name in GAMES if name != "snake"] + ["snake"])
def test_our_own_games_are_left_alone_and_measuring_changes_nothing(name: str, tmp_path: Path) -> None:
    """Bit for bit: the weights, the environments' random numbers and episodes, and the evaluation."""
    env = {"name": name, "frame_skip": 1, "num_envs": 1 if name == "snake" else 8}
    scores = []
    for how in ("off", "auto"):
        rewards = "off" if name == "pendulum" else how  # as its own file says, because its returns are large
        train = {"normalize_observations": how, "reward_scaling": rewards}
        result, events = go(small(env, total_timesteps=1024, minibatch_size=128, **train), tmp_path / how)
        assert (events[0]["normalize_observations"], events[0]["scale_rewards"], events[0]["notes"]) == (
            False,
            False,
            [],
        )
        scores.append((result.score, result.metrics))
    assert scores[0] == scores[1]
    assert same(tensors(tmp_path / "off"), tensors(tmp_path / "auto"))


def test_a_badly_scaled_twin_is_noticed_and_the_start_says_why(tmp_path: Path) -> None:
    result, events = go(small(reward_scaling="auto"), tmp_path)
    assert events[0]["normalize_observations"] and events[0]["scale_rewards"]
    first, second = events[0]["notes"]
    assert first.startswith("observations are normalised: feature ") and "in random play (limit 10)" in first
    assert second.startswith("rewards are scaled: discounted returns deviate by ")
    assert result.score is not None and -21 <= result.score <= 21, "scores are those of the game itself"
    # The twin differs in its observations alone, or in its rewards alone.
    _, events = go(small({"name": "python:scaled_twins:pong_rewards"}, reward_scaling="auto"))
    assert (events[0]["normalize_observations"], events[0]["scale_rewards"]) == (False, True)
    _, events = go(small({"name": "python:scaled_twins:pong_observations"}, reward_scaling="auto"))
    assert (events[0]["normalize_observations"], events[0]["scale_rewards"]) == (True, False)
    # What is clipped is bounded already.
    _, events = go(small({"name": "python:scaled_twins:pong_rewards"}, reward_clip=1.0))
    assert (events[0]["normalize_observations"], events[0]["scale_rewards"]) == (False, False)


def test_an_image_of_large_floats_is_left_alone_and_the_user_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "large_image.py").write_text(
        "import numpy as np\n"
        "class Image:\n"
        "    observation_shape, action_sizes, max_episode_steps = (1, 2, 2), (2,), 8\n"
        "    def __init__(self, num_envs, *, seed, frame_skip, first_index, high):\n"
        "        self.num_envs, self.high, self.age = num_envs, high, 0\n"
        "    def reset(self, seed, observations): observations[:] = self.high\n"
        "    def step(self, actions, observations, rewards, terminals, truncations, finals):\n"
        "        self.age += 1\n"
        "        observations[:], terminals[:] = self.high - self.age % 2 / 1000, self.age % 8 == 0\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    for high, train, told in ((255.0, {}, True), (1.0, {}, False), (255.0, {"normalize_observations": "on"}, False)):
        env = {"name": "python:large_image:Image", "args": {"high": high}, "frame_skip": 1}
        _, events = go(small(env, reward_scaling="auto", **train))
        assert events[0]["normalize_observations"] == bool(train)
        assert len(events[0]["notes"]) == told
        if told:
            (note,) = events[0]["notes"]
            assert note.startswith("observations are an image, and left as they are: feature 0 reaches 255 in random")


def test_the_evaluation_of_a_checkpoint_repeats_that_of_the_run_with_frozen_statistics(tmp_path: Path) -> None:
    config = small(reward_scaling="return")
    result, _ = go(config, tmp_path)
    path = tmp_path / checkpoints.FILE_NAME
    before = path.read_bytes()
    name = SMALL["env"]["name"]
    # The run's own evaluation has a seed that follows from `train.seed`.
    seed = int(np.random.SeedSequence(0).generate_state(5, np.uint32)[4])
    again = evaluate(path, env=name, episodes=8, num_envs=8, seed=seed, threads=1)
    assert again.score == result.score and path.read_bytes() == before

    saved = dict(checkpoints.read(path).tensors)
    assert saved["scaling/observations.count"] > 8 * 16 * 4, "of all steps, and of the random play before them"
    assert saved["scaling/returns.count"] == 8 * 16 * 4


def test_watching_normalises_as_playing_does(tmp_path: Path) -> None:
    go(small({"name": "pong"}, normalize_observations="on"), tmp_path)
    path = tmp_path / checkpoints.FILE_NAME
    player = Player(path, env="pong", episodes=1, seed=3)
    for _ in player.scenes():
        pass
    assert player.scores == list(evaluate(path, env="pong", episodes=1, num_envs=1, seed=3, threads=1).scores)


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ({"normalize_observations": "on"}, {"normalize_observations": "off"}, "use 'on' or 'auto'"),
        ({"normalize_observations": "off"}, {"normalize_observations": "on"}, "use 'off' or 'auto'"),
        ({"reward_scaling": "return"}, {"reward_scaling": "off"}, "train.reward_scaling return, not off: use 'return'"),
        ({"reward_scaling": "off"}, {"reward_scaling": "return"}, "train.reward_scaling off, not return: use 'off'"),
    ],
)
def test_a_run_does_not_go_on_with_other_treatment(
    before: dict[str, Any], after: dict[str, Any], message: str, tmp_path: Path
) -> None:
    go(small({"name": "pong"}, total_timesteps=128, **before), tmp_path)
    with pytest.raises(CheckpointError, match=message):
        go(small({"name": "pong"}, **after), resume=tmp_path / checkpoints.FILE_NAME)


def test_auto_goes_on_as_it_began(tmp_path: Path) -> None:
    """Also where a checkpoint of an earlier version says nothing: it was not normalised."""
    for before, later in (("on", True), ("off", False)):
        go(small({"name": "pong"}, total_timesteps=128, normalize_observations=before), tmp_path)
        _, events = go(small({"name": "pong"}), resume=tmp_path / checkpoints.FILE_NAME)
        assert (events[0]["normalize_observations"], events[0]["notes"]) == (later, [])


@pytest.mark.parametrize(("when", "how"), [(3, "auto"), (120, "on")])
def test_an_observation_that_is_not_finite_ends_the_run_with_a_line_that_names_it(
    when: int, how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In random play, and in training, which is refused before it has spoilt the statistics of a checkpoint."""
    import scaled_twins

    step, calls = scaled_twins.Twin.step, iter(range(10_000))

    def spoilt(self: Any, actions: Any, observations: Any, *others: Any) -> None:
        step(self, actions, observations, *others)
        if next(calls) >= when:
            observations[5, 2] = np.nan

    monkeypatch.setattr(scaled_twins.Twin, "step", spoilt)
    with pytest.raises(TrainerError, match=r"^instance 5 of .* observed nan in element 2"):
        go(small({"num_envs": 64}, normalize_observations=how, total_timesteps=4096), tmp_path)
    assert not (tmp_path / checkpoints.FILE_NAME).exists()
