"""Self-play: who acts for whom and when that changes, the pool's ages, resumed runs, and what is refused."""

import dataclasses
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from ppo_runs import small

from protein.trainer.config import RunConfig
from protein.trainer.errors import CheckpointError, ConfigError
from protein.trainer.evaluate import evaluate
from protein.trainer.model import saved as policies
from protein.trainer.model.policy import Policy
from protein.trainer.normalise import Moments, Normalizer
from protein.trainer.ppo.selfplay import PRESENT, SelfPlay
from protein.trainer.run import run
from protein.trainer.watch import Player


def config_of(name: str = "arena", recurrence: str = "none", *, seats: int = 12, **how: Any) -> RunConfig:
    return small(
        env={"name": name, "num_envs": seats, "frame_skip": 16 if name == "pong2" else 12},
        policy={"recurrence": recurrence},
        train={"total_timesteps": seats * 4 * 32 * 3, "score_window": 4, "threads": 1}
        | {"normalize_observations": "off", "reward_scaling": "off"},
        selfplay={"on": True, "pool_size": 4, "rated_games": 4, "present_share": 0.5, "hardness": 1.0} | how,
    )


class Play:
    """The games of a config, with actions that are drawn from a generator."""

    def __init__(self, config: RunConfig, normalizer: Normalizer | None = None) -> None:
        self.envs = SelfPlay(config, seed=7, threads=1)
        self.policy = Policy(self.envs.spec, config.policy, generator=torch.Generator().manual_seed(1))
        self.envs.join(self.policy, horizon=4, device=torch.device("cpu"), normalizer=lambda: normalizer)
        agents, spec = self.envs.num_agents, self.envs.spec
        self.observations = np.zeros((agents, spec.observation_size), spec.observation_dtype)
        self.rewards, self.ends = np.zeros(agents, np.float32), np.zeros((2, agents), np.bool_)
        self.draws = np.random.default_rng(5)
        self.envs.reset(7, self.observations)

    def step(self) -> None:
        spec = self.envs.spec
        actions = self.draws.integers(0, spec.action_sizes, (self.envs.num_agents, spec.action_components), np.int32)
        self.envs.step(actions, self.observations, self.rewards, *self.ends)

    def learn(self) -> None:
        """Changes the weights, as an update does."""
        with torch.no_grad():
            for parameter in self.policy.parameters():
                parameter.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(3)), alpha=0.1)


@pytest.mark.parametrize("recurrence", ["none", "mingru", "lstm"])
def test_each_hidden_agent_acts_by_one_policy_from_an_episodes_first_step_to_its_last(recurrence: str) -> None:
    """One agent at a time, with a memory that is kept here: the same actions, so no memory has two policies."""
    normalizer = Normalizer(Moments(10.0, np.full(81, 0.1), np.full(81, 2.0)), torch.device("cpu"))
    play = Play(config_of("arena", recurrence, seats=4, rated_games=2, pool_size=3), normalizer)
    envs, hidden = play.envs, len(play.envs._player)
    memory = torch.zeros(hidden, play.policy.state_size)
    fresh, changes, met = np.ones(hidden, np.bool_), 0, set()
    for step in range(90):
        if step % 4 == 0:
            play.learn()
        before = envs._player.copy()
        seen = np.concatenate([envs._observations[envs._others], envs._rated_rows])
        play.step()
        # What acted in this step: a member that joined at its beginning may have taken no agent over.
        for agent in range(hidden):
            player = int(before[agent])
            policy = play.policy if player == PRESENT else envs._slots[player - 1].policy
            rows = torch.from_numpy(seen[agent : agent + 1])
            given = normalizer.apply(rows)
            if fresh[agent]:
                memory[agent] = 0
            state = memory[agent : agent + 1] if policy.state_size else None
            with torch.no_grad():
                output, after = policy(given.unsqueeze(0), state)
            if policy.state_size and after is not None:
                memory[agent] = after[0]
            chosen = torch.zeros(1, policy.distribution.components, dtype=torch.int32)
            noise = envs._noise[:, agent : agent + 1].contiguous()
            policy.distribution.sample(output[: policy.distribution.rows].contiguous(), noise, chosen, torch.zeros(1))
            assert chosen.tolist() == envs._chosen[agent : agent + 1].tolist(), (step, agent, player)
        changed = envs._player != before
        fresh = envs._resets.copy()
        assert not (changed & ~fresh).any()
        changes += int(changed.sum())
        met |= set(envs._player.tolist())
    assert changes >= 4 and len(met) > 2
    assert (envs._player[len(envs._others) :] == PRESENT).all()


@pytest.mark.parametrize("size", [2, 3, 8])
def test_members_are_evenly_spread_over_the_run_and_their_weights_those_of_then(size: int) -> None:
    play = Play(config_of(pool_size=size))
    weights: dict[int, torch.Tensor] = {}
    for step in range(260):
        if step and step % 4 == 0:
            play.learn()
        weights[step] = play.policy.head.weight.detach().clone()
        play.step()
        pool = play.envs.pool
        ages = sorted(pool)
        assert 1 <= len(ages) <= size
        assert len(set(np.diff(ages).tolist())) <= 1 or step < 8
        assert step - ages[-1] < 2 * play.envs._interval
        for age, policy in pool.items():
            assert torch.equal(policy.head.weight, weights[age])
    assert ages[0] == 0 and ages[-1] >= 120


@pytest.mark.parametrize(
    ("name", "share", "seats", "games"), [("arena", 0.5, 48, 9), ("pong2", 0.0, 12, 12), ("pong2", 1.0, 12, 6)]
)
def test_seats_are_shared_as_asked_for(name: str, share: float, seats: int, games: int) -> None:
    envs = Play(config_of(name, present_share=share)).envs
    assert (envs.num_agents, envs._games.num_envs, envs.num_envs) == (seats, games, 12)
    sides = np.bincount((envs._seats % envs.whole.agents_per_env) * 2 // envs.whole.agents_per_env)
    assert sides.tolist() == [seats // 2, seats // 2]


def test_opponents_that_are_seldom_beaten_come_more_often() -> None:
    def drawn(hardness: float) -> list[float]:
        envs = Play(config_of(hardness=hardness)).envs
        for place, (slot, result) in enumerate(zip(envs._slots, (1.0, 0.75, 0.5), strict=False)):
            slot.joined_at, slot.result = 4 * place, result
        counts = np.bincount(envs._drawn(np.arange(20_000) % 12), minlength=4)[1:]
        return list(counts / counts.sum())

    assert drawn(0.0) == pytest.approx([1 / 3] * 3, abs=0.02)
    assert drawn(1.0) == pytest.approx([0, 1 / 3, 2 / 3], abs=0.02)
    assert drawn(2.0) == pytest.approx([0, 1 / 5, 4 / 5], abs=0.02)


@pytest.mark.parametrize("recurrence", ["none", "lstm"])
def test_games_go_on_from_their_state(recurrence: str) -> None:
    """Members that play on though retired are in it, too."""
    config = config_of(recurrence=recurrence)
    normalizer = Normalizer(Moments(10.0, np.full(81, 0.1), np.full(81, 2.0)), torch.device("cpu"))
    play, other = Play(config, normalizer), Play(config, normalizer)
    for step in range(45):
        if step % 4 == 0:
            play.learn()
        play.step()
    state = play.envs.get_state()
    other.policy.load_state_dict(play.policy.state_dict())
    other.envs.set_state(state)
    assert other.envs.get_state() == state
    other.draws = np.random.default_rng()
    other.draws.bit_generator.state = play.draws.bit_generator.state
    for _ in range(30):
        for one in (play, other):
            one.step()
        assert play.observations.tobytes() == other.observations.tobytes()
    assert play.envs.get_state() == other.envs.get_state()
    for damaged in (state[:-9], b"", Play(config_of("pong2")).envs.get_state()):
        with pytest.raises(ValueError, match=r"do not fit|the state is of pong2"):
            other.envs.set_state(damaged)


class Late(threading.Event):
    """A signal that comes after two iterations: it is asked for before the first one, and after each."""

    asked = 0

    def is_set(self) -> bool:
        self.asked += 1
        return self.asked > 2


def ignore(event: object) -> None:
    pass


@pytest.mark.parametrize(
    ("name", "recurrence", "train"),
    [
        ("arena", "mingru", {}),
        ("arena", "none", {"normalize_observations": "on", "overlap": True, "total_timesteps": 4 * 4 * 32 * 5}),
        ("frontier_tribes", "lstm", {"horizon": 8, "total_timesteps": 4 * 32 * 8 * 3}),
    ],
)
def test_a_run_resumes_exactly_with_its_pool(tmp_path: Path, name: str, recurrence: str, train: dict[str, Any]) -> None:
    config = config_of(name, recurrence, seats=4)
    config = dataclasses.replace(config, train=dataclasses.replace(config.train, **train))
    whole = run(config, directory=tmp_path / "whole", report=ignore)
    run(config, directory=tmp_path / "cut", report=ignore, stop=Late())
    cut = tmp_path / "cut" / "checkpoint.safetensors"
    assert 0 < policies.read(cut).checkpoint.steps < whole.steps
    resumed = run(config, directory=tmp_path / "cut", report=ignore, resume=cut)
    files = [policies.read(tmp_path / name / "checkpoint.safetensors").checkpoint.tensors for name in ("whole", "cut")]
    assert files[0].keys() == files[1].keys()
    assert all(torch.equal(files[0][name], files[1][name]) for name in files[0])
    assert resumed.score == whole.score


def test_a_run_is_evaluated_by_its_scripts_and_resumes_with_its_own_settings_alone(tmp_path: Path) -> None:
    run(config_of(recurrence="mingru", seats=4), directory=tmp_path, report=ignore, stop=Late())
    cut = tmp_path / "checkpoint.safetensors"
    played = evaluate(cut, env="arena", episodes=16, num_envs=4)
    assert 0 <= min(played.scores) <= max(played.scores) <= 1
    assert -200 < played.score < 1200
    spread = played.score_std / np.std(played.scores)  # both in points: the same slope
    games = np.array(played.scores).reshape(4, -1, 4)[:, :, 0]
    assert played.score_error / (games.std(ddof=1) / games.size**0.5) == pytest.approx(spread)
    watched = Player(cut, env="arena", episodes=1)
    assert watched.against_itself  # so that its scores are called no rating
    with pytest.raises(CheckpointError, match=r"was trained with SelfPlayConfig\(.*use the same \[selfplay\] settings"):
        run(config_of(recurrence="mingru", seats=4, pool_size=5), directory=None, report=ignore, resume=cut)


def test_off_its_settings_change_nothing(tmp_path: Path) -> None:
    for name, how in (("default", {}), ("off", {"on": False, "pool_size": 3, "present_share": 0.1, "rated_games": 9})):
        config = small(env={"name": "pong2"}, train={"threads": 1, "total_timesteps": 3000}, selfplay=how)
        run(config, directory=tmp_path / name, report=ignore)
    one, other = (policies.read(tmp_path / name / "checkpoint.safetensors").checkpoint for name in ("default", "off"))
    assert one.score is None or abs(one.score) < 21  # of the game, not a rating
    assert one.tensors.keys() == other.tensors.keys()
    assert all(torch.equal(tensor, other.tensors[name]) for name, tensor in one.tensors.items())


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"env": {"name": "pong"}, "selfplay": {"on": True}}, "'pong' has no sides .* train on one of arena, .*pong2"),
        ({"selfplay": {"present_share": 1.2}}, "selfplay.present_share must be between 0 and 1, got 1.2"),
        ({"selfplay": {"present_share": -0.1}}, "selfplay.present_share must be between 0 and 1, got -0.1"),
        ({"selfplay": {"pool_size": 0}}, "selfplay.pool_size must be between 2 and 64, got 0"),
        ({"selfplay": {"rated_games": 0}}, "selfplay.rated_games must be between 1 and 65536, got 0"),
        ({"selfplay": {"hardness": -1.0}}, "selfplay.hardness must be between 0 and 100, got -1.0"),
        (
            {"selfplay": {"on": True}, "env": {"double_buffer": True}},
            "env.double_buffer must be false with selfplay.on",
        ),
        ({"selfplay": {"pool": 3}}, "unknown key 'selfplay.pool'"),
    ],
)
def test_what_cannot_be_is_said_in_one_line(sections: dict[str, dict[str, Any]], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as raised:
        run(small(**sections), directory=None, report=ignore)
    assert "\n" not in str(raised.value)


def test_several_processes_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"selfplay.on needs one process, .* got 2: use --nproc 1"):
        config_of().check_processes(2)


def test_where_agents_end_alone_each_changes_its_policy_with_its_own_episode() -> None:
    """Frontier's tribes: four sides, whose agents come and go; scores are lifetimes, which have no rating."""
    play = Play(config_of("frontier_tribes", seats=6, rated_games=1, present_share=0.7))
    envs, changes = play.envs, 0
    assert (envs._games.num_envs, envs.num_agents, envs.scored_agents) == (3, 6 * 32, 32)
    for step in range(60):
        if step and step % 4 == 0:
            play.learn()
        before, idle = envs._player.copy(), envs.playing
        assert idle is not None and idle.shape == (envs.num_agents,)
        play.step()
        changed = envs._player != before
        assert not (changed & ~envs._resets).any()
        changes += int(changed.sum())
    assert changes > 10
    scores = envs.drain_episodes().score
    assert len(scores) and scores.min() >= 1
