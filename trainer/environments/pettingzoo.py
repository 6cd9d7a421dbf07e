"""Any parallel environment of PettingZoo behind our interface: `pettingzoo:MODULE`, for example
`pettingzoo:mpe2.simple_spread_v3`. The module has `parallel_env(**env.args)`, or the name gives another function of it
after a colon.

Rows are agents: those of an environment lie side by side, in the order of `possible_agents`. All must have the same
spaces. Each agent has its own reward, its own ends and its own score, the sum of its rewards.

When an agent ends, the others play on. Until the next episode its row observes zeros, is rewarded with 0, and its
actions go nowhere. The episode's score is counted when the agent ends. When the agents of the next episode begin, the
idle rows end once more, so that nothing is carried over; that end is no episode. The environment begins anew when no
agent is left that has not ended. `playing` tells idle rows from others, so that the policy does not learn from them.

Some environments keep less than PettingZoo's contract. An agent that leaves without a flag has come to its end. One
that is cut off without a last observation was last seen a step before.
"""

import collections
import contextlib
import copy
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from protein.envs_c import EnvSpec

from ..errors import ConfigError, TrainerError
from ..users_code import RAISED, fail, find, in_words
from . import arguments
from .base import CountedEnv, Rows
from .gym import frames_per_second
from .instances import (
    Writer,
    as_number,
    as_truth,
    check_rewards,
    check_wrapped,
    close_all_,
    instance_seed,
    require_five,
)
from .spaces import ActionMap, Observations, actions_of, described

PREFIX = "pettingzoo:"
FUNCTION = "parallel_env"
_OURS = ("render_mode",)
_RETURNED = ("observations", "rewards", "terminations", "truncations")  # by an environment's step, besides infos
_STEP_RETURNS = f"PettingZoo's step returns five, {', '.join(_RETURNED)} and infos"
_EXTRAS = {"pettingzoo": "pettingzoo", "mpe2": "pettingzoo"}


class PettingZooEnv(CountedEnv):
    """`num_envs` parallel environments; see `trainer.environments.VectorEnv`."""

    def __init__(
        self,
        name: str,
        num_envs: int,
        *,
        seed: int = 0,
        frame_skip: int = 1,
        first_index: int = 0,
        args: Mapping[str, Any] | None = None,
        render_mode: str | None = None,
    ) -> None:
        """Makes the environments.

        Raises:
            ConfigError: there is no such environment, it lacks what this needs, or it does not take the arguments.
        """
        kwargs = {**(args or {}), **({} if render_mode is None else {"render_mode": render_mode})}
        self.envs = [_make(name, kwargs, args or {}) for _ in range(num_envs)]
        spec, read, self._actions = _describe(name, self.envs[0])
        super().__init__(spec, num_envs, seed)
        self._names: list[Any] = list(self.envs[0].possible_agents)
        self._places = {name: place for place, name in enumerate(self._names)}
        self._frame_skip, self._first_index = frame_skip, first_index
        self._write = Writer(read, self._who)
        self._alive = np.zeros(self.num_agents, np.bool_)

    @property
    def playing(self) -> npt.NDArray[np.bool_]:
        """Which agents have not ended yet, `A`."""
        return self._alive

    def _reset(self, seed: int, observations: npt.NDArray[Any]) -> None:
        for index, env in enumerate(self.envs):
            self._begin_one(index, env, observations, seed=instance_seed(seed, self._first_index + index))
        self._write.check(observations)

    def _step(self, actions: npt.NDArray[Any], out: Rows) -> None:
        out.rewards[:], out.terminals[:], out.truncations[:] = 0.0, False, False
        chosen = self._actions.to_space(actions)
        for index, env in enumerate(self.envs):
            self._step_one(index, env, chosen, out)
        self._write.check(out.observations)
        check_rewards(out.rewards, self._who)

    def _step_one(self, index: int, env: Any, chosen: Any, out: Rows) -> None:
        observations, rewards, terminals, truncations, finals = out
        first = index * len(self._names)
        rows = {name: first + place for place, name in enumerate(self._names)}
        before = set(env.agents)
        for _ in range(self._frame_skip):
            acting = [name for name in env.agents if self._alive[rows[name]]]
            seen, gained, ended, cut = self._stepped(
                index, env, {name: _own(chosen[rows[name]]) for name in env.agents}
            )
            for name in acting:
                row = rows[name]
                rewards[row] += as_number(gained.get(name, 0.0), self._who(row), is_first=self._first_index + row == 0)
                was_cut = as_truth(cut.get(name, False), self._who(row), "truncated")
                left = name not in env.agents and not was_cut
                terminals[row] = as_truth(ended.get(name, False), self._who(row), "terminated") or left
                truncations[row] = was_cut and not terminals[row]
            if any(terminals[rows[name]] or truncations[rows[name]] for name in acting) or not env.agents:
                break
        for name in acting:
            row = rows[name]
            if truncations[row] and seen.get(name) is None:
                finals[row] = observations[row]
            elif truncations[row]:
                self._write(row, seen[name], finals)
            if terminals[row] or truncations[row]:
                self._alive[row] = False
                observations[row] = 0
            else:
                self._see(row, name, seen, observations)
        joined = set(env.agents) - before
        if not joined and not self._alive[first : first + len(self._names)].any():
            idle = [row for row in rows.values() if not (terminals[row] or truncations[row])]
            terminals[idle] = True
            self._begin_one(index, env, observations)
            return
        for name in joined:
            terminals[rows[name]] = True
            self._alive[rows[name]] = True
            self._see(rows[name], name, seen, observations)

    def _stepped(self, index: int, env: Any, chosen: Mapping[Any, Any]) -> tuple[Any, Any, Any, Any]:
        """Takes one step of an environment; returns observations, rewards, terminations and truncations."""
        try:
            given = env.step(chosen)
        except RAISED as error:  # the user's code may raise anything
            check_wrapped(error, self._which(index), "step", _STEP_RETURNS)
            fail(f"{self._which(index)} failed in step", error)
        require_five(given, self._which(index), _STEP_RETURNS)
        for name, part in zip(_RETURNED, given[:4], strict=True):
            if not isinstance(part, Mapping):
                raise TrainerError(
                    f"{self._which(index)} returned a {type(part).__name__} as {name}: it must be a dict by agent"
                )
        self._require_known(index, env)
        return tuple(given[:4])

    def _require_known(self, index: int, env: Any) -> None:
        """Raises `TrainerError` where an agent has no row."""
        for name in env.agents:
            if name not in self._places:
                raise TrainerError(
                    f"{self._which(index)} has an agent '{name}', which its possible_agents do not name: "
                    f"{', '.join(map(str, self._names))}"
                )

    def _see(self, row: int, name: Any, seen: Mapping[Any, Any], observations: npt.NDArray[Any]) -> None:
        """Writes what an agent that plays on observes."""
        if name not in seen:
            raise TrainerError(
                f"{self._who(row)} plays on, but there is no observation for it: give every one of env.agents one"
            )
        self._write(row, seen[name], observations)

    @property
    def render_fps(self) -> float:
        """Frames per second that the environment wants to be shown at; 0 where it gives none."""
        return frames_per_second(self.envs[0])

    def render(self) -> Any:
        """Returns what the first environment shows."""
        try:
            return self.envs[0].render()
        except RAISED as error:  # the user's code may raise anything
            fail(f"{self._which(0)} failed in render", error)

    def close(self) -> None:
        """Closes the environments. Calling it again does nothing."""
        close_all_(self.envs)

    def _begin_one(self, index: int, env: Any, observations: npt.NDArray[Any], **seeded: int) -> None:
        try:
            seen, _ = env.reset(**seeded)
        except RAISED as error:  # the user's code may raise anything
            fail(f"{self._which(index)} failed in reset", error)
        self._require_known(index, env)
        first = index * len(self._names)
        for place, name in enumerate(self._names):
            row = first + place
            self._alive[row] = name in env.agents
            if name in env.agents:
                self._see(row, name, seen, observations)
            else:
                observations[row] = 0

    def _who(self, row: int) -> str:
        index, place = divmod(row, len(self._names))
        return f"agent '{self._names[place]}' of {self._which(index)}"

    def _which(self, index: int) -> str:
        return f"instance {self._first_index + index} of '{self.spec.name}'"


def _own(action: Any) -> Any:
    """Returns an action that an environment may change."""
    return copy.deepcopy(action) if isinstance(action, np.ndarray | dict | tuple) else action


_KNOWN: dict[str, EnvSpec] = {}


def describe(name: str, args: Mapping[str, Any]) -> EnvSpec:
    """Returns the description of `pettingzoo:MODULE`. Makes one environment to ask it. Raises `ConfigError`."""
    key = json.dumps([name, args], sort_keys=True)
    if key not in _KNOWN:
        env = _make(name, args, args)
        try:
            arguments.check_reset(env, name, "seed")
            _KNOWN[key] = _describe(name, env)[0]
        finally:
            with _telling(name):
                env.close()
    return _KNOWN[key]


def _describe(name: str, env: Any) -> tuple[EnvSpec, Observations, ActionMap]:
    agents = list(getattr(env, "possible_agents", ()))
    if not agents or not hasattr(env, "observation_space"):
        raise ConfigError(f"cannot make '{name}': it is no parallel environment of PettingZoo with possible_agents")
    with _telling(name):
        seen = {str(env.observation_space(agent)): env.observation_space(agent) for agent in agents}
        acts = {str(env.action_space(agent)): env.action_space(agent) for agent in agents}
    for what, found in (("observation", seen), ("action", acts)):
        if len(found) > 1:
            raise ConfigError(
                f"cannot make '{name}': its agents have {len(found)} different {what} spaces, and one policy plays for "
                "all of them: wrap it so that they are the same"
            )
    try:
        read, actions = Observations(next(iter(seen.values()))), actions_of(next(iter(acts.values())))
    except ConfigError as error:
        raise ConfigError(f"cannot make '{name}': {error}") from error
    spec = described(
        name,
        f"{name.removeprefix(PREFIX)} of PettingZoo",
        read,
        actions,
        agents_per_env=len(agents),
        max_episode_steps=int(getattr(getattr(env, "unwrapped", env), "max_cycles", 0) or 0),
    )
    return spec, read, actions


@contextlib.contextmanager
def _telling(name: str) -> Iterator[None]:
    """Turns what the user's code raises while an environment is made into a ConfigError of one line."""
    try:
        yield
    except (TrainerError, MemoryError):
        raise
    except RAISED as error:  # the user's code may raise anything
        raise ConfigError(f"cannot make '{name}': {in_words(error)}") from error


def _make(name: str, kwargs: Mapping[str, Any], args: Mapping[str, Any]) -> Any:
    factory, takes = _factory(name)
    arguments.check(args, takes, name, ours=_OURS)
    with _telling(name), arguments.refusals(args, takes, name):
        env = factory(**copy.deepcopy(dict(kwargs)))  # an environment may change its lists and tables
    if type(env).__module__.startswith("pettingzoo."):
        quicken_(env)
    return env


def _factory(name: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Returns what makes an environment, and what takes its arguments.

    PettingZoo's own `parallel_env` takes `**kwargs` and passes them on to the `raw_env` beside it.
    """
    module_name, _, function = name.removeprefix(PREFIX).partition(":")
    failing = f"cannot make '{name}'"
    module, factory = find(module_name, function or FUNCTION, failing=failing, what="function", extras=_EXTRAS)
    takes = factory if function else getattr(module, "raw_env", factory)
    return factory, takes


def quicken_(env: Any) -> None:
    """Lets a parallel environment that is made of one whose agents take turns step without detours.

    Most of PettingZoo's environments are written for agents that take turns (AEC). `parallel_env` wraps them. In each
    step and for each agent, PettingZoo's wrapper also computes an observation that nobody reads, and it asks for every
    attribute through two more wrappers, which check actions and the order of calls. Our actions are in their space and
    our calls in order, so here the innermost environment is asked itself. The results are the same. An environment that
    has a way of its own, or one of whose wrappers has, stays as it is.

    Source: `aec_to_parallel_wrapper.step` of PettingZoo 1.24 to 1.27.
    """
    # An environment of the user's own may keep PettingZoo's interface without the package.
    from pettingzoo.utils.conversions import aec_to_parallel_wrapper
    from pettingzoo.utils.wrappers import AssertOutOfBoundsWrapper, BaseWrapper, OrderEnforcingWrapper

    if type(env) is not aec_to_parallel_wrapper:
        return
    turns: Any = env.aec_env
    while type(turns) in (AssertOutOfBoundsWrapper, OrderEnforcingWrapper):  # those only check; a subclass may do more
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
