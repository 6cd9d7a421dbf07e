"""PettingZoo's parallel environments behind our interface: rows are agents, and agents may die early."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from batches import Batch
from training_parts import CPU, make_policy, make_rollout, slow_advantages

from protein.trainer.config import TrainConfig
from protein.trainer.environments import make, playing, resume, spec
from protein.trainer.errors import ConfigError, TrainerError
from protein.trainer.kernels import advantages
from protein.trainer.machine.distributed import ALONE
from protein.trainer.normalise import STEPS_MAX, decided

pytest.importorskip("pettingzoo")
spaces = pytest.importorskip("gymnasium").spaces

TAG = "pettingzoo:zoo_example:tag"
EXAMPLE = '''
import numpy as np
from gymnasium import spaces
from pettingzoo import ParallelEnv

class Tag(ParallelEnv):
    """Agent k ends by itself after k + 2 steps, `late` by a limit; all observe (draw of the episode, own steps)."""

    metadata = {"name": "tag"}

    def __init__(self, agents=3, late=(), fault=""):  # fault: how it breaks PettingZoo's contract
        self.possible_agents = [f"a{k}" for k in range(agents)]
        self.late, self.fault = set(late), fault
        if fault == "made":
            raise FileNotFoundError("no map")

    def observation_space(self, agent):
        if self.fault == "spaces":
            raise KeyError(agent)
        size = 3 if self.fault == "sizes" and agent == "a1" else 2
        return spaces.Box(-np.inf, np.inf, (size,), np.float32)

    def action_space(self, agent):
        return spaces.Discrete(4)

    def _see(self, agent):
        return np.array([self.draw, self.age], np.float32)

    def reset(self, seed=None, options=None):
        if seed is not None:
            self.random = np.random.default_rng(seed)
        self.agents, self.age, self.draw = list(self.possible_agents), 0, self.random.uniform()
        return {agent: self._see(agent) for agent in self.agents}, {agent: {} for agent in self.agents}

    def step(self, actions):
        assert set(actions) == set(self.agents), "dead agents do not act"
        self.age += 1
        ends = {agent: self.age >= int(agent[1:]) + 2 for agent in self.agents}
        cut = {agent: ends[agent] and agent in self.late for agent in self.agents}
        over = {agent: ends[agent] and agent not in self.late for agent in self.agents}
        seen = {agent: self._see(agent) for agent in self.agents}
        rewards = {agent: float(actions[agent] + 1) for agent in self.agents}
        if self.fault == "nan":
            seen["a0"][1] = np.nan
        if self.fault == "raises":
            raise KeyError("a0")
        if self.fault == "hides":
            del seen["a2"]
        if self.fault == "nothing":
            return None
        if self.fault == "list":
            rewards = list(rewards.values())
        if self.fault == "flags":
            over["a1"] = np.zeros(2, bool)
        for agent in [agent for agent in self.agents if ends[agent]]:
            if self.fault == "unseen":
                del seen[agent]
            if self.fault == "unflagged":
                del seen[agent], over[agent], cut[agent]
        if self.fault != "listed" or all(ends.values()):
            self.agents = [agent for agent in self.agents if not ends[agent] or self.fault == "listed"]
        if self.fault == "joins":
            self.agents = [*self.agents, "b0"]
        return seen, rewards, over, cut, {}

    def close(self):
        self.closed = getattr(self, "closed", 0) + 1
        assert self.closed == 1 and self.fault != "close"

def tag(**args):
    return Tag(**args)
'''


@pytest.fixture(autouse=True)
def _example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "zoo_example.py").write_text(EXAMPLE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(__import__("sys").modules, "zoo_example", raising=False)
    return iter([None])


def test_an_agent_that_dies_early_idles_until_all_begin_anew() -> None:
    batch = Batch(TAG, 1, args={"late": ["a1"]})
    described = batch.envs.spec
    assert (described.agents_per_env, described.action_sizes, described.observation_shape) == (3, (4,), (2,))
    batch.envs.reset(3, batch.observations)
    draw = batch.observations[0, 0]
    assert batch.observations.tolist() == [[draw, 0]] * 3
    batch.step([0, 1, 2])
    assert batch.rewards.tolist() == [1, 2, 3] and not batch.ends.any()
    batch.step([0, 1, 2])  # the first dies
    assert batch.ends.tolist() == [[True, False, False], [False] * 3]
    assert batch.observations.tolist() == [[0, 0], [draw, 2], [draw, 2]]
    batch.step([3, 1, 2])  # the second reaches its limit
    assert batch.rewards.tolist() == [0, 2, 3], "the dead are not rewarded"
    assert batch.ends.tolist() == [[False] * 3, [False, True, False]]
    np.testing.assert_array_equal(batch.finals[1], [draw, 3])
    batch.step([3, 3, 2])  # the last one dies, and all begin anew
    assert batch.ends.tolist() == [[True] * 3, [False] * 3], "what idles ends, too, so that nothing is carried over"
    again = batch.observations[0, 0]
    assert again != draw and batch.observations.tolist() == [[again, 0]] * 3
    episodes = batch.envs.drain_episodes()
    assert episodes.agent.tolist() == [0, 1, 2]
    assert episodes.score.tolist() == [2, 6, 12]
    assert episodes.length.tolist() == [2, 3, 4]
    batch.envs.close()
    batch.envs.close()


def test_idle_rows_are_told_from_those_that_play() -> None:
    """Agents end after 2, 3 and 4 steps; the second environment has the same lives."""
    batch = Batch(TAG, 2)
    batch.envs.reset(3, batch.observations)
    lives = []
    for _ in range(8):
        rows = playing(batch.envs)
        assert rows is not None
        lives.append(rows[:3].tolist())
        assert rows[3:].tolist() == lives[-1]
        batch.step(0)
        assert (batch.rewards == rows_played(lives[-1], 2)).all(), "who plays is rewarded with 1 here"
    once = [[True, True, True]] * 2 + [[False, True, True], [False, False, True]]
    assert lives == once * 2


@pytest.mark.parametrize("fault", ["unseen", "unflagged", "listed"])
def test_agents_may_leave_in_other_ways_than_pettingzoo_asks(fault: str) -> None:
    """Without a last observation, without a flag, or still listed: they end after 2, 3 and 4 steps all the same."""
    batch = Batch(TAG, 1, args={"fault": fault, "late": ["a1"]})
    batch.envs.reset(3, batch.observations)
    draw = batch.observations[0, 0]
    for _ in range(3):
        batch.step(0)
    if fault == "unseen":
        np.testing.assert_array_equal(batch.finals[1], [draw, 2], "as it was last seen")
    cut = fault != "unflagged"
    assert batch.ends[:, 1].tolist() == [not cut, cut]
    for _ in range(5):
        batch.step(0)
    episodes = batch.envs.drain_episodes()
    assert episodes.agent.tolist() == [0, 1, 2] * 2
    assert episodes.length.tolist() == [2, 3, 4] * 2 and episodes.score.tolist() == [2, 3, 4] * 2


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("raises", r"^instance 0 of '.*' failed in step: KeyError: 'a0' \(zoo_example.py, line \d+\)$"),
        ("hides", r"^agent 'a2' of instance 0 of '.*' plays on, but there is no observation for it"),
        ("joins", "^instance 0 of '.*' has an agent 'b0', which its possible_agents do not name: a0, a1, a2$"),
        ("nothing", "^instance 0 of '.*' returned a NoneType from step: PettingZoo's step returns five, .* and infos$"),
        ("list", "^instance 0 of '.*' returned a list as rewards: it must be a dict by agent$"),
        ("flags", r"^agent 'a1' of instance 0 of '.*' gave an array of shape \(2,\) as terminated: it must be True or"),
    ],
)
def test_a_step_that_fails_is_told_in_one_line(fault: str, message: str) -> None:
    batch = Batch(TAG, 1, args={"fault": fault})
    batch.envs.reset(3, batch.observations)
    with pytest.raises(TrainerError, match=message):
        batch.step(0)


def rows_played(lives: list[bool], num_envs: int) -> np.ndarray:
    return np.array(lives * num_envs, np.float32)


def test_a_rollout_knows_who_played_and_counts_each_life_once() -> None:
    """Deaths at different times, over several batches; where all end together nothing is left out."""
    envs = make(TAG, 2)
    policy = make_policy(envs.spec)
    rollout = make_rollout([envs], policy, horizon=6)
    rollout.reset(0)
    lives, scores = [], []
    for _ in range(4):
        batch = rollout.settle(rollout.collect(6), ALONE)
        assert batch.playing is not None
        lives += batch.playing.tolist()
        assert not batch.rewards[~batch.playing].any() and (batch.rewards[batch.playing] >= 1).all()
        scores += rollout.drain_episodes().length.tolist()
    of_one = [[True] * 3] * 2 + [[False, True, True], [False, False, True]]
    assert lives == [row * 2 for row in of_one] * 6
    assert sorted(scores) == [2] * 12 + [3] * 12 + [4] * 12
    alike = make("pettingzoo:zoo_example:tag", 2, args={"agents": 1})
    rollout = make_rollout([alike], make_policy(alike.spec), horizon=6)
    rollout.reset(0)
    assert rollout.settle(rollout.collect(6), ALONE).playing is None


def test_idle_rows_say_nothing_about_the_scale_at_the_start() -> None:
    """Of 12 rows in four steps the agents observe 9, after which they act again."""
    config = TrainConfig(normalize_observations="on", reward_scaling="return")
    envs = make(TAG, 2)
    envs.reset(0, np.zeros((6, 2), np.float32))
    conditioning, _, used = decided([envs], config, seed=0, device=CPU, world=ALONE)
    assert used and conditioning.normalizer is not None
    assert conditioning.normalizer.moments.count == 2 * 9 * STEPS_MAX / 4


def test_draws_depend_on_seed_and_index_alone() -> None:
    def first(num_envs: int, first_index: int = 0, seed: int = 5) -> np.ndarray:
        batch = Batch(TAG, num_envs, first_index=first_index)
        batch.envs.reset(seed, batch.observations)
        return batch.observations[:, 0]

    np.testing.assert_array_equal(first(4)[6:], first(2, first_index=2))
    assert len(np.unique(first(4))) == 4
    assert not np.isin(first(4, seed=6), first(4)).any()
    batch = Batch(TAG, 2)
    batch.envs.reset(1, batch.observations)
    assert not resume(batch.envs, batch.envs.get_state(), batch.observations)


@pytest.mark.parametrize(
    ("name", "args", "message"),
    [
        (TAG, {"agens": 2}, "takes no argument"),
        (TAG, {"fault": "sizes"}, "its agents have 2 different observation spaces"),
        (TAG, {"fault": "made"}, r"cannot make '.*': FileNotFoundError: no map \(zoo_example.py, line \d+\)$"),
        (TAG, {"fault": "spaces"}, r"cannot make '.*': KeyError: 'a0' \(zoo_example.py, line \d+\)$"),
        (TAG, {"fault": "close"}, r"cannot make '.*': AssertionError \(zoo_example.py, line \d+\)$"),
        ("pettingzoo:no_such_zoo", {}, "No module named 'no_such_zoo'"),
        ("pettingzoo:zoo_example", {}, "module zoo_example has no function 'parallel_env'"),
        ("pettingzoo:zoo_example:np", {}, "module zoo_example has no function 'np'"),
        ("pettingzoo:", {}, "cannot make 'pettingzoo:'"),
    ],
)
def test_what_cannot_be_used_is_told_in_one_line(name: str, args: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as raised:
        spec(name, args)
    assert "\n" not in str(raised.value)


def test_an_observation_that_is_no_number_names_the_agent() -> None:
    batch = Batch(TAG, 2, args={"fault": "nan"})
    batch.envs.reset(0, batch.observations)
    with pytest.raises(TrainerError, match=r"agent 'a0' of instance 0 of .* observed nan in element 1"):
        batch.step(0)


def test_simple_spread_is_as_pettingzoo_plays_it() -> None:
    mpe2 = pytest.importorskip("mpe2.simple_spread_v3")
    name = "pettingzoo:mpe2.simple_spread_v3"
    described = spec(name, {"N": 4, "max_cycles": 6})
    assert (described.agents_per_env, described.max_episode_steps) == (4, 6)
    with pytest.raises(ConfigError, match=r"takes no argument env.args.max_cycle; did you mean 'max_cycles'"):
        spec(name, {"max_cycle": 6})
    batch = Batch(name, 1, args={"N": 4, "max_cycles": 6})
    batch.envs.reset(2, batch.observations)
    theirs = mpe2.parallel_env(N=4, max_cycles=6)
    seen, _ = theirs.reset(seed=int(np.random.SeedSequence([2, 0]).generate_state(1)[0] >> 1))
    total = np.zeros(4)
    for step in range(6):
        agents = list(theirs.agents)
        np.testing.assert_array_equal(batch.observations, np.stack([seen[agent] for agent in agents]))
        actions = [(step + k) % 5 for k in range(4)]
        seen, rewards, _, cut, _ = theirs.step(dict(zip(agents, actions, strict=True)))
        batch.step(actions)
        total += [rewards[agent] for agent in agents]
        np.testing.assert_allclose(batch.rewards, [rewards[agent] for agent in agents], rtol=1e-6)
    assert all(cut.values()) and batch.ends[1].all()
    np.testing.assert_array_equal(batch.finals, np.stack([seen[agent] for agent in agents]))
    np.testing.assert_allclose(batch.envs.drain_episodes().score, total, rtol=1e-6)


def test_advantages_of_simple_spread_are_those_of_each_agent_alone() -> None:
    """Rows beside each other share nothing: against PettingZoo's own play and sums over each agent's steps."""
    mpe2 = pytest.importorskip("mpe2.simple_spread_v3")
    name, steps, gamma, gae_lambda = "pettingzoo:mpe2.simple_spread_v3", 9, 0.9, 0.8
    envs = make(name, 1, seed=4, args={"max_cycles": 6})  # one truncation in the middle of the segment
    policy = make_policy(envs.spec)
    rollout = make_rollout([envs], policy, horizon=steps, gamma=gamma)
    rollout.reset(4)
    batch = rollout.settle(rollout.collect(steps), ALONE)
    theirs = mpe2.parallel_env(max_cycles=6)
    seen, _ = theirs.reset(seed=int(np.random.SeedSequence([4, 0]).generate_state(1)[0] >> 1))

    def values(of: Any) -> Any:
        rows = torch.from_numpy(np.stack(list(of.values())))
        with torch.no_grad():
            return policy.values(policy(rows[None], None, None)[0]).numpy()

    worth, finals, rewards, cuts = [values(seen)], np.zeros((steps, 3), np.float32), [], []
    for t in range(steps):
        actions = {agent: int(batch.actions[0, t, k]) for k, agent in enumerate(theirs.agents)}
        seen, gained, _, cut, _ = theirs.step(actions)
        rewards.append(list(gained.values()))
        cuts.append(list(cut.values()))
        if not theirs.agents:
            finals[t] = values(seen)
            seen, _ = theirs.reset()
        worth.append(values(seen))
    truncated = np.array(cuts)
    assert truncated.any(axis=1).tolist() == [t == 5 for t in range(steps)]
    slow = slow_advantages(
        np.array(rewards), np.stack(worth), np.zeros_like(truncated), truncated, finals, gamma, gae_lambda
    )
    found = advantages(batch.rewards, batch.values, batch.ends, gamma=gamma, gae_lambda=gae_lambda)
    np.testing.assert_allclose(found, slow, rtol=1e-4, atol=1e-4)
    assert np.ptp(slow, axis=1).max() > 0.01, "agents must differ"
