"""A parallel environment of PettingZoo that is made of one whose agents take turns, without its detours.

Most of PettingZoo's environments are written for agents that take turns (AEC). `parallel_env` wraps them. In each step
and for each agent, PettingZoo's wrapper also computes an observation that nobody reads, and it asks for every attribute
through two more wrappers, which check actions and the order of calls. Our actions are in their space and our calls in
order, so here the innermost environment is asked itself. The results are the same.

Source: `aec_to_parallel_wrapper.step` of PettingZoo 1.24 to 1.27.
"""

import collections
from typing import Any

from pettingzoo.utils.conversions import aec_to_parallel_wrapper
from pettingzoo.utils.wrappers import AssertOutOfBoundsWrapper, BaseWrapper, OrderEnforcingWrapper

# Those that only check. A subclass of them may do more, so the type itself has to be one of these.
_CHECKS = (AssertOutOfBoundsWrapper, OrderEnforcingWrapper)


def quicken_(env: Any) -> None:
    """Lets an environment take its steps in this way, unless it or one of its wrappers has a way of its own."""
    if type(env) is not aec_to_parallel_wrapper:
        return
    turns: Any = env.aec_env
    while type(turns) in _CHECKS:
        turns = turns.env
    if isinstance(turns, BaseWrapper):
        return
    theirs = env.step

    def step(actions: Any) -> Any:
        rewards: dict[Any, Any] = collections.defaultdict(int)
        for agent in turns.agents:
            if agent != turns.agent_selection:
                return theirs(actions)  # which refuses it and says why
            turns.step(actions[agent])
            for other in turns.agents:
                rewards[other] += turns.rewards[other]
        ended, cut, infos = dict(turns.terminations), dict(turns.truncations), dict(turns.infos)
        seen = {agent: turns.observe(agent) for agent in turns.agents}
        while turns.agents and (turns.terminations[turns.agent_selection] or turns.truncations[turns.agent_selection]):
            turns.step(None)
        env.agents = turns.agents
        return seen, rewards, ended, cut, infos

    env.step = step
