"""Self-play: a run's opponents are its own policy and its past ones. `SelfPlay` is a `VectorEnv` of its agents.

Notation: `N` seats (`env.num_envs`), each of the `T` agents of one side; `S` sides of a game; `H` hidden agents.

    games against oneself   all S sides are seats: what each of them does is learnt from
    games against the pool  one side is a seat; the others are played by past policies, whose agents are hidden
    rated games             one side is played by the present policy, hidden; the others by the environment's scripts

A rollout sees the N seats alone, as if they were environments of T agents. So it has no sample that is not the
learner's, and steps count the learner's decisions. The games against oneself are as many as `present_share` asks for.

The pool begins with the policy that the run begins with. Every `interval` steps the present one joins it. When it has
`pool_size` members, every second one retires and the interval doubles: the members stay evenly spread over the run so
far, whatever its length, and a run that is made longer has had the same ones. A hidden agent changes its policy only
where its own episode has ended (`take_turns_`), so that neither recurrent states nor returns mix two policies. Members
that have retired play their games to the end.

Opponents are drawn with chances (1 - r)^hardness, r the mean of the learner's last results against each: those that are
beaten seldom come often.

Scores are those of the rated games, see `protein.trainer.environments.sides`. Nothing is learnt from them.

Source: a pool of past policies: Bansal et al. 2018, "Emergent complexity via multi-agent competition", section 4.2;
chances by results: Vinyals et al. 2019, "Grandmaster level in StarCraft II", prioritised fictitious self-play.
"""

import contextlib
import copy
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from safetensors import SafetensorError
from safetensors.torch import load, save

from protein import envs_c
from protein.envs_c import Episodes

from ..config import RunConfig
from ..environments import spec as describe
from ..environments.sides import Anchored, Rows, of_one_side, require_sides, results, side_of_rows, take_turns_
from ..model.policy import Policy
from ..normalise import Moments, Normalizer

RECENT = 1 / 32  # weight of the last result in the mean of results against a member; each of its agents brings one
PRESENT = 0  # the player that is the policy which learns; members of the pool are those from 1 on


class Slot:
    """A place in the pool: a past policy, or none."""

    def __init__(self, policy: Policy) -> None:
        self.policy = copy.deepcopy(policy)
        self.normalizer: Normalizer | None = None
        self.joined_at = -1  # steps of each environment before it joined; -1: empty
        self.retired = False
        self.result = 0.5  # of the learner against it, lately

    @property
    def is_drawn(self) -> bool:
        return self.joined_at >= 0 and not self.retired


class SelfPlay:
    """See at the head. `join` must be called before the first `reset`."""

    resumable = True

    def __init__(self, config: RunConfig, seed: int, threads: int) -> None:
        """Makes the games.

        Raises:
            ConfigError: the environment has no sides.
        """
        env, how = config.env, config.selfplay
        whole = describe(env.name, env.args)
        require_sides(env.name, whole)
        sides, per_game = whole.sides, whole.agents_per_env
        self._how, self.whole = how, whole
        self.spec, self.num_envs = of_one_side(whole), env.num_envs
        self.num_agents = self.num_envs * self.spec.agents_per_env
        both = int(how.present_share * self.num_envs) // sides
        single = self.num_envs - sides * both
        self._games = envs_c.VecEnv(
            env.name, both + single, seed=seed, frame_skip=env.frame_skip, threads=threads, first_index=0
        )
        rated = envs_c.VecEnv(
            env.name, how.rated_games, seed=seed, frame_skip=env.frame_skip, threads=threads, first_index=both + single
        )
        self._rated = Anchored(rated)
        side, game = side_of_rows(whole, both + single), np.arange((both + single) * per_game) // per_game
        seated = (game < both) | (side == game % sides)
        self._seats, self._others = np.flatnonzero(seated), np.flatnonzero(~seated)
        self._is_seat = seated
        # A side that the pool plays is a group of hidden agents; the numbers of those that are seats stay unused.
        self._group = (game * sides + side)[self._others]
        rows = (both + single) * per_game
        self._observations = np.zeros((rows, whole.observation_size), whole.observation_dtype)
        self._finals = np.zeros_like(self._observations)
        self._rewards = np.zeros(rows, np.float32)
        self._terminals, self._truncations = np.zeros(rows, np.bool_), np.zeros(rows, np.bool_)
        kind = np.float32 if whole.continuous_actions else np.int32
        self._actions: npt.NDArray[Any] = np.zeros((rows, whole.action_components), kind)
        # Of the rated games.
        agents = self._rated.num_agents
        self._rated_rows = np.zeros((agents, whole.observation_size), whole.observation_dtype)
        self._rated_ends = np.zeros((2, agents), np.bool_)
        self._rated_rewards = np.zeros(agents, np.float32)
        # Hidden agents: those that the pool plays, then those of the rated games.
        pool = len(self._others)
        self._player = np.full(pool + agents, PRESENT, np.int32)
        self._next = np.full((both + single) * sides, PRESENT, np.int32)
        self._resets = np.ones(pool + agents, np.bool_)
        self._seed, self._steps, self._interval = seed, 0, 1
        self._draws = np.random.default_rng([seed, 1])
        self._slots: list[Slot] = []

    @property
    def scored_agents(self) -> int:
        """How many agents `drain_episodes` returns episodes of."""
        return self._rated.num_agents

    @property
    def playing(self) -> npt.NDArray[np.bool_] | None:
        """Which agents act in the next step; None: always all of them."""
        rows: npt.NDArray[np.bool_] | None = getattr(self._games, "playing", None)
        return None if rows is None else rows[self._seats]

    @property
    def pool(self) -> dict[int, Policy]:
        """The past policies that are drawn, by the steps of each environment before they joined."""
        return {slot.joined_at: slot.policy for slot in self._slots if slot.is_drawn}

    def join(
        self,
        policy: Policy,
        *,
        horizon: int,
        device: torch.device,
        normalizer: Callable[[], Normalizer | None] = lambda: None,
    ) -> None:
        """Says which policy is the present one: the one that collects. The pool starts anew with the next `reset`.

        Args:
            policy: its weights change only between rollouts.
            horizon: steps of a rollout, the smallest interval.
            device: that it acts on.
            normalizer: returns that of its observations, as it is now.
        """
        self._present, self._device, self._normalizer, self._horizon = policy, device, normalizer, horizon
        hidden, distribution = len(self._player), policy.distribution
        self._noise = torch.zeros(distribution.noise_rows, hidden, device=device)
        self._chosen = torch.zeros(hidden, distribution.components, dtype=distribution.dtype, device=device)
        self._state = torch.zeros(hidden, policy.state_size, device=device) if policy.state_size else None
        self._generator = torch.Generator(device)
        # Half of them may have retired and still be playing.
        places = self._how.pool_size + self._how.pool_size // 2 + 1 if len(self._others) else 0
        self._slots = [Slot(policy) for _ in range(places)]
        for slot in self._slots:
            slot.policy.requires_grad_(False)

    def reset(self, seed: int, observations: npt.NDArray[Any]) -> None:
        """Seeds every game anew, and begins the pool anew with the present policy."""
        self._games.reset(seed, self._observations)
        self._rated.reset(seed, self._rated_rows)
        np.take(self._observations, self._seats, axis=0, out=observations)
        self._seed, self._steps, self._interval = seed, 0, self._horizon
        self._draws = np.random.default_rng([seed, 1])
        self._generator.manual_seed(seed)
        self._resets[:] = True
        for slot in self._slots:
            slot.joined_at, slot.retired, slot.result = -1, False, 0.5
        if self._slots:
            self._grow()
            self._next[:] = self._drawn(np.arange(len(self._next)))
            self._player[: len(self._others)] = self._next[self._group]

    def step(
        self,
        actions: npt.NDArray[Any],
        observations: npt.NDArray[Any],
        rewards: npt.NDArray[np.float32],
        terminals: npt.NDArray[np.bool_],
        truncations: npt.NDArray[np.bool_],
        final_observations: npt.NDArray[Any] | None = None,
    ) -> None:
        """Takes one decision for each seat's agents; all others take theirs."""
        if self._slots and self._steps and self._steps % self._interval == 0:
            self._grow()
        self._steps += 1
        hidden = self._act()
        pool = len(self._others)
        self._actions[self._seats] = actions.reshape(self.num_agents, -1)
        self._actions[self._others] = hidden[:pool]
        self._games.step(
            self._actions, self._observations, self._rewards, self._terminals, self._truncations, self._finals
        )
        self._rated.step(hidden[pool:], self._rated_rows, self._rated_rewards, *self._rated_ends)
        for whole, out in (
            (self._observations, observations),
            (self._rewards, rewards),
            (self._terminals, terminals),
            (self._truncations, truncations),
        ):
            np.take(whole, self._seats, axis=0, out=out)
        if final_observations is not None and truncations.any():
            np.take(self._finals, self._seats, axis=0, out=final_observations)
        ended = self._terminals | self._truncations
        self._resets[:pool] = ended[self._others]
        self._resets[pool:] = self._rated_ends.any(axis=0)
        if ended.any():
            self._note_results()
            take_turns_(self._player[:pool], self._next, self._group, self._resets[:pool], self._drawn)

    @torch.no_grad()
    def _act(self) -> npt.NDArray[Any]:
        """Returns the actions of the hidden agents, `H x K`: each player acts for all of its agents at once."""
        distribution = self._present.distribution
        distribution.fill_noise_(self._noise, self._generator)
        seen = np.concatenate([self._observations[self._others], self._rated_rows])
        for player in np.unique(self._player).tolist():
            rows = torch.from_numpy(np.flatnonzero(self._player == player))
            numbers = torch.from_numpy(seen)[rows].to(self._device)
            if player == PRESENT:
                policy, normalizer = self._present, self._normalizer()
            else:
                slot = self._slots[player - 1]
                policy, normalizer = slot.policy, slot.normalizer
            if normalizer is not None:
                numbers = normalizer.apply(numbers)
            resets = torch.from_numpy(self._resets)[rows].to(self._device)
            rows = rows.to(self._device)
            output = torch.empty(policy.rows, len(rows), device=self._device)
            state = None if self._state is None else self._state[rows]
            policy.step(numbers, state, None if state is None else resets, output, state)
            if self._state is not None and state is not None:
                self._state[rows] = state
            chosen = torch.empty(len(rows), distribution.components, dtype=distribution.dtype, device=self._device)
            logprobs = torch.empty(len(rows), device=self._device)
            distribution.sample(output[: distribution.rows], self._noise[:, rows], chosen, logprobs)
            self._chosen[rows] = chosen
        if self._chosen.dtype.is_floating_point:
            self._chosen.nan_to_num_()  # an environment would refuse NaN; the update finds it too, and reports it
        return self._chosen.cpu().numpy()

    def _note_results(self) -> None:
        """Counts the results of the seats against the members that they have just played."""
        episodes = self._games.drain_episodes()
        if not self.whole.script_ratings or not len(self._others):
            return
        player_of_row = np.full(len(self._is_seat), -1, np.int32)
        player_of_row[self._others] = self._player[: len(self._others)]
        ended = episodes.agent[player_of_row[episodes.agent] > PRESENT]
        found = 1 - results(self.whole, episodes.score[player_of_row[episodes.agent] > PRESENT])
        for player, result in zip(player_of_row[ended].tolist(), found.tolist(), strict=True):
            slot = self._slots[player - 1]
            slot.result += RECENT * (result - slot.result)

    def _grow(self) -> None:
        """Lets the present policy join, unless every second member retires first and its turn comes later."""
        drawn = [slot for slot in self._slots if slot.is_drawn]
        if len(drawn) >= self._how.pool_size:
            self._interval *= 2
            for slot in drawn:
                slot.retired = slot.joined_at % self._interval != 0
            if self._steps % self._interval:
                return
        free = next((slot for number, slot in enumerate(self._slots, 1) if self._is_free(number, slot)), None)
        if free is None:  # very long games: all places are in play, and the next one may join
            return
        with torch.no_grad():
            free.policy.load_state_dict(self._present.state_dict())
        present = self._normalizer()
        free.normalizer = None if present is None else present.to(self._device)
        free.joined_at, free.retired, free.result = self._steps, False, 0.5

    def _is_free(self, number: int, slot: Slot) -> bool:
        in_play = (self._player == number).any() or (self._next[self._group] == number).any()
        return slot.joined_at < 0 or (slot.retired and not in_play)

    def _drawn(self, groups: Rows) -> npt.NDArray[np.int32]:
        """Returns the next players of some sides."""
        members = [number for number, slot in enumerate(self._slots, 1) if slot.is_drawn]
        chances = np.array([(1 - self._slots[number - 1].result) ** self._how.hardness for number in members])
        total = chances.sum()
        chances = chances / total if total > 0 else np.full(len(members), 1 / len(members))
        drawn: npt.NDArray[np.int32] = self._draws.choice(members, len(groups), p=chances).astype(np.int32)
        return drawn

    def drain_episodes(self) -> Episodes:
        """Returns the results of the rated games since the last call."""
        return self._rated.drain_episodes()

    def get_state(self) -> bytes:
        """Returns everything that the future depends on, the pool included, but for what the seats observe."""
        tensors = {
            "games": _bytes(self._games.get_state()),
            "rated": _bytes(self._rated.get_state()),
            "observations": torch.from_numpy(self._observations.copy()),
            "rated_observations": torch.from_numpy(self._rated_rows.copy()),
            "player": torch.from_numpy(self._player.copy()),
            "next": torch.from_numpy(self._next.copy()),
            "resets": torch.from_numpy(self._resets.copy()),
            "generator": self._generator.get_state(),
            "draws": _bytes(json.dumps(self._draws.bit_generator.state).encode()),
            "numbers": torch.tensor([self._steps, self._interval]),
        }
        if self._state is not None:
            tensors["recurrent"] = self._state
        for number, slot in enumerate(self._slots):
            # In 32 bits a result would be rounded, and so would steps beyond 16.8 million.
            tensors[f"{number}.numbers"] = torch.tensor(
                [slot.joined_at, slot.retired, slot.result], dtype=torch.float64
            )
            if slot.joined_at >= 0:
                tensors |= {f"{number}.policy.{name}": weight for name, weight in slot.policy.state_dict().items()}
                if slot.normalizer is not None:
                    tensors |= slot.normalizer.moments.state(f"{number}.{Normalizer.NAME}")
        return save({name: tensor.detach().cpu().clone().contiguous() for name, tensor in tensors.items()})

    def set_state(self, state: bytes) -> None:
        """Restores what `get_state` returned. Raises ValueError where it comes from other games or another pool."""
        try:
            found = load(state)
            self._games.set_state(found["games"].numpy().tobytes())
            self._rated.set_state(found["rated"].numpy().tobytes())
            for own, name in (
                (self._observations, "observations"),
                (self._rated_rows, "rated_observations"),
                (self._player, "player"),
                (self._next, "next"),
                (self._resets, "resets"),
            ):
                np.copyto(own, found[name].numpy().reshape(own.shape))
            self._generator.set_state(found["generator"])
            self._draws.bit_generator.state = json.loads(found["draws"].numpy().tobytes())
            self._steps, self._interval = (int(number) for number in found["numbers"])
            if self._state is not None:
                self._state.copy_(found["recurrent"])
            for number, slot in enumerate(self._slots):
                joined_at, retired, result = found[f"{number}.numbers"].tolist()
                slot.joined_at, slot.retired, slot.result = int(joined_at), bool(retired), result
                slot.normalizer = None
                if slot.joined_at >= 0:
                    prefix = f"{number}.policy."
                    weights = {n.removeprefix(prefix): t for n, t in found.items() if n.startswith(prefix)}
                    slot.policy.load_state_dict(weights)
                    with contextlib.suppress(KeyError):  # that policy's observations were not normalised
                        moments = Moments.saved(found, f"{number}.{Normalizer.NAME}")
                        slot.normalizer = Normalizer(moments, self._device)
        except (KeyError, RuntimeError, SafetensorError) as error:
            raise ValueError(f"the games of self-play do not fit: {error}") from error

    def close(self) -> None:
        """Closes the games."""
        self._games.close()
        self._rated.close()


def _bytes(content: bytes) -> torch.Tensor:
    return torch.from_numpy(np.frombuffer(content, np.uint8).copy())
