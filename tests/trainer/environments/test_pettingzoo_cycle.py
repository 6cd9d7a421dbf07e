"""PettingZoo's environments in which agents take turns: our shorter way through a step does what PettingZoo's does."""

from typing import Any, ClassVar

import numpy as np
import pytest

from protein.trainer.environments.pettingzoo import quicken_

pettingzoo = pytest.importorskip("pettingzoo")
conversions = pytest.importorskip("pettingzoo.utils.conversions")
spaces = pytest.importorskip("gymnasium").spaces


def turn_taking() -> Any:
    """Agents that take turns: agent k ends after k + 2 rounds, and every turn rewards whoever acts next."""

    class Turns(pettingzoo.AECEnv):  # type: ignore[misc, name-defined]
        metadata: ClassVar = {"name": "turns", "is_parallelizable": True}
        render_mode = None

        def __init__(self) -> None:
            super().__init__()
            self.possible_agents = ["a0", "a1", "a2"]
            self.action_spaces = {agent: spaces.Discrete(4) for agent in self.possible_agents}
            self.observation_spaces = {agent: spaces.Box(-9, 99, (1,), np.float32) for agent in self.possible_agents}

        def observation_space(self, agent: Any) -> Any:
            return self.observation_spaces[agent]

        def action_space(self, agent: Any) -> Any:
            return self.action_spaces[agent]

        def observe(self, agent: Any) -> Any:
            return np.array([self.total], np.float32)

        def reset(self, seed: int | None = None, options: Any = None) -> None:
            self.agents, self.total, self.age = list(self.possible_agents), 0, 0
            self.rewards, self._cumulative_rewards = dict.fromkeys(self.agents, 0.0), dict.fromkeys(self.agents, 0.0)
            self.terminations, self.truncations = dict.fromkeys(self.agents, False), dict.fromkeys(self.agents, False)
            self.infos: dict[str, Any] = {agent: {} for agent in self.agents}
            self.agent_selection = self.agents[0]

        def step(self, action: Any) -> None:
            if self.terminations[self.agent_selection] or self.truncations[self.agent_selection]:
                self._was_dead_step(action)
                return
            place = self.agents.index(self.agent_selection)
            self.total += int(action)
            follows = self.agents[(place + 1) % len(self.agents)]
            self._clear_rewards()
            self.rewards[follows] = float(action)
            if place == len(self.agents) - 1:
                self.age += 1
                for agent in self.agents:
                    self.terminations[agent] = self.age >= int(agent[1:]) + 2
                follows = next((agent for agent in self.agents if not self.terminations[agent]), follows)
            self.agent_selection = follows
            self._deads_step_first()

    return Turns()


def test_steps_without_detours_are_those_of_pettingzoo() -> None:
    """Agents die one after the other; each step's five dictionaries are the same as without our way."""

    def made() -> Any:
        checked = pettingzoo.utils.wrappers.AssertOutOfBoundsWrapper(turn_taking())
        return conversions.aec_to_parallel(pettingzoo.utils.wrappers.OrderEnforcingWrapper(checked))

    ours, theirs = made(), made()
    quicken_(ours)
    assert "step" in vars(ours)
    for _ in range(2):
        assert ours.reset(seed=1) == theirs.reset(seed=1)
        lengths = []
        while theirs.agents:
            assert ours.agents == theirs.agents
            lengths.append(len(theirs.agents))
            actions = {agent: 1 + k for k, agent in enumerate(theirs.agents)}
            for mine, other in zip(ours.step(actions), theirs.step(actions), strict=True):
                assert mine == other and list(mine) == list(other)
        assert ours.agents == [] and lengths == [3, 3, 2, 1]
    ours.reset()
    ours.aec_env.unwrapped.agent_selection = "a1"
    with pytest.raises(AssertionError, match="expects agents to step in a cycle"):
        ours.step(dict.fromkeys(ours.agents, 0))


def test_wrappers_that_do_more_than_check_are_not_left_out() -> None:
    class Doubled(pettingzoo.utils.wrappers.AssertOutOfBoundsWrapper):  # type: ignore[misc, name-defined]
        def step(self, action: Any) -> None:
            super().step(None if action is None else 2 * action)

    env = conversions.aec_to_parallel(pettingzoo.utils.wrappers.OrderEnforcingWrapper(Doubled(turn_taking())))
    quicken_(env)
    assert "step" not in vars(env)
    env.reset()
    assert env.step(dict.fromkeys(env.agents, 1))[1] == {"a0": 2.0, "a1": 2.0, "a2": 2.0}
