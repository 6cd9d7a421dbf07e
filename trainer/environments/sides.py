"""Environments with sides (`EnvSpec.sides`): who plays which side, and what a game's result is worth.

`Anchored` lets a policy play one side of each game, and the environment's own scripts the others. The scripts are the
same in every run, so what is reached against them can be compared between runs: a trial's score.

    result of a game, r in [0, 1]: its score, brought from `spec.score_range` to 0 (lost by all) to 1 (won by all)
    Elo's expectation of r for a player rated R against one rated A: p(R - A) = 1 / (1 + 10^((A - R) / 400))
    rating of a player with the mean result m over as many games against each script i: the R at which
        mean_i p(R - A_i) = m
which is the most likely one, given the results as fractions of won games. The ratings A_i of the scripts are fixed
(`spec.script_ratings`). So the rating rises with m alone, and near 1 a little more is worth a lot.

Source: Elo 1978, "The rating of chessplayers, past and present"; the maximum of the likelihood: Hunter 2004, "MM
algorithms for generalized Bradley-Terry models", section 2.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from protein import envs_c
from protein.envs_c import EnvSpec, Episodes

from ..errors import ConfigError
from . import VectorEnv

SCALE = 400.0  # points of Elo at which the better of two is expected to win ten of eleven
MARGIN = 1 / 512  # of a mean result: one drawn among 256 that are won, about as many as an evaluation has
Rows = npt.NDArray[np.int64]


def require_sides(name: str, spec: EnvSpec) -> None:
    """Raises `ConfigError` unless an environment has sides and players of its own to be rated by."""
    if spec.sides < 2 or not spec.scripts:
        with_sides = [one for one in envs_c.names() if envs_c.spec(one).sides > 1 and envs_c.spec(one).scripts]
        lacks = "sides that play against each other" if spec.sides < 2 else "scripts to rate a policy by"
        raise ConfigError(
            f"selfplay.on needs an environment with sides and scripts, and '{name}' has no {lacks}: "
            f"set it to false, or train on one of {', '.join(with_sides)}"
        )


def side_of_rows(spec: EnvSpec, games: int) -> Rows:
    """Returns the side of each agent, `games * agents_per_env`."""
    return np.tile(np.arange(spec.agents_per_env) * spec.sides // spec.agents_per_env, games)


def of_one_side(spec: EnvSpec) -> EnvSpec:
    """Returns the description of an environment of which one side is shown. Its scores are results, where rated."""
    alone = dataclasses.replace(spec, agents_per_env=spec.agents_per_env // spec.sides, sides=1)
    return dataclasses.replace(alone, score_range=(0.0, 1.0), solved_score=1.0) if spec.script_ratings else alone


def results(spec: EnvSpec, scores: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Returns the results of games with these scores; the scores themselves where scripts have no ratings."""
    if not spec.script_ratings:
        return scores
    low, high = spec.score_range
    share: npt.NDArray[np.float32] = ((scores - low) / (high - low)).clip(0, 1).astype(np.float32)
    return share


def rating(spec: EnvSpec, mean: float) -> float:
    """Returns what results against all scripts, as many against each, are worth: Elo points, or their mean.

    Args:
        spec: the whole environment's; where its scripts have no ratings, the mean is returned.
        mean: of the results, in [0, 1]. It counts as at least `MARGIN` from both ends, where a rating has no end.
    """
    if not spec.script_ratings:
        return mean
    target = min(max(mean, MARGIN), 1 - MARGIN)
    anchors = np.array(spec.script_ratings)
    low, high = min(spec.script_ratings) - 10 * SCALE, max(spec.script_ratings) + 10 * SCALE
    for _ in range(64):  # bisection: the expectation rises with the rating
        middle = 0.5 * (low + high)
        if expected(middle, anchors).mean() < target:
            low = middle
        else:
            high = middle
    return 0.5 * (low + high)


def expected(one: float, other: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Returns Elo's expectation of the result of `one` against others with these ratings."""
    p: npt.NDArray[np.float64] = 1.0 / (1.0 + 10.0 ** ((other - one) / SCALE))
    return p


def take_turns_(
    playing: npt.NDArray[np.int32],
    next_: npt.NDArray[np.int32],
    group: Rows,
    ended: npt.NDArray[np.bool_],
    draw: Callable[[Rows], npt.NDArray[np.int32]],
) -> None:
    """Gives agents another player, each only where its own episode has just ended.

    The agents of a group (a side of a game) change together: where all of them play by the group's player and an
    episode ends, the group's next player is drawn. In a game whose agents end together, all change at once. Where they
    end alone, each takes the next player over with its own next episode.

    Args:
        playing: the player of each agent, changed in place.
        next_: the player of each group, changed in place.
        group: of each agent.
        ended: whether an agent's episode has ended.
        draw: returns the next players of some groups.
    """
    if not ended.any():
        return
    settled = np.ones(len(next_), np.bool_)
    settled[group[playing != next_[group]]] = False
    turn = np.unique(group[ended])
    turn = turn[settled[turn]]
    next_[turn] = draw(turn)
    playing[ended] = next_[group[ended]]


class Anchored:
    """Games in which the caller plays one side, and scripts the others; a `trainer.environments.VectorEnv`.

    Every game has its side that is shown, the sides evenly, and begins with another script than its neighbour. Scripts
    take turns from episode to episode. So each agent's first episodes are shared evenly by the scripts.
    """

    resumable = True

    def __init__(self, games: VectorEnv) -> None:
        """`games`: of an environment of ours with sides and scripts."""
        assert isinstance(games, envs_c.VecEnv)
        whole, num = games.spec, games.num_envs
        self.games, self.spec = games, of_one_side(whole)
        self.whole, self.num_envs, self.num_agents = whole, num, num * self.spec.agents_per_env
        per_game, scripts = whole.agents_per_env, len(whole.scripts)
        side, game = side_of_rows(whole, num), np.arange(num * per_game) // per_game
        shown = side == game // scripts % whole.sides
        self._shown, self._others = np.flatnonzero(shown), np.flatnonzero(~shown)
        self._place = np.cumsum(shown) - 1  # of a shown row among them
        self._is_shown, self._group = shown, game[self._others]  # a game's other sides play one script
        rows = num * per_game
        self._observations = np.zeros((rows, whole.observation_size), whole.observation_dtype)
        self._finals = np.zeros_like(self._observations)
        self._rewards = np.zeros(rows, np.float32)
        self._terminals, self._truncations = np.zeros(rows, np.bool_), np.zeros(rows, np.bool_)
        kind = np.float32 if whole.continuous_actions else np.int32
        self._actions: npt.NDArray[Any] = np.zeros((rows, whole.action_components), kind)
        self._scripts = np.full(rows, -1, np.int32)
        self._playing = np.zeros(len(self._others), np.int32)
        self._next = np.zeros(num, np.int32)

    @property
    def playing(self) -> npt.NDArray[np.bool_] | None:
        """Which agents act in the next step; None: always all of them."""
        rows: npt.NDArray[np.bool_] | None = getattr(self.games, "playing", None)
        return None if rows is None else rows[self._shown]

    def reset(self, seed: int, observations: npt.NDArray[Any]) -> None:
        """Seeds every game anew, and begins with the first scripts."""
        self.games.reset(seed, self._observations)
        np.take(self._observations, self._shown, axis=0, out=observations)
        self._next[:] = np.arange(self.num_envs) % len(self.whole.scripts)
        self._playing[:] = self._next[self._group]

    def step(
        self,
        actions: npt.NDArray[Any],
        observations: npt.NDArray[Any],
        rewards: npt.NDArray[np.float32],
        terminals: npt.NDArray[np.bool_],
        truncations: npt.NDArray[np.bool_],
        final_observations: npt.NDArray[Any] | None = None,
    ) -> None:
        """Takes one decision for each agent; the scripts take theirs."""
        self._scripts[self._others] = self._playing
        self._actions[self._shown] = actions.reshape(self.num_agents, -1)
        self.games.act(self._scripts, self._actions)
        self.games.step(
            self._actions, self._observations, self._rewards, self._terminals, self._truncations, self._finals
        )
        for whole, out in (
            (self._observations, observations),
            (self._rewards, rewards),
            (self._terminals, terminals),
            (self._truncations, truncations),
        ):
            np.take(whole, self._shown, axis=0, out=out)
        if final_observations is not None and truncations.any():
            np.take(self._finals, self._shown, axis=0, out=final_observations)
        ended = (self._terminals | self._truncations)[self._others]
        take_turns_(self._playing, self._next, self._group, ended, self._after)

    def _after(self, games: Rows) -> npt.NDArray[np.int32]:
        after: npt.NDArray[np.int32] = (self._next[games] + 1) % np.int32(len(self.whole.scripts))
        return after

    def drain_episodes(self) -> Episodes:
        """Returns the results of the shown agents' episodes since the last call; see `results`."""
        all_ = self.games.drain_episodes()
        ours = self._is_shown[all_.agent]
        return Episodes(
            agent=self._place[all_.agent[ours]].astype(np.int32),
            score=results(self.whole, all_.score[ours]),
            return_=all_.return_[ours],
            length=all_.length[ours],
        )

    def get_state(self) -> bytes:
        """Returns everything that the future depends on, but for the observations."""
        return self._next.tobytes() + self._playing.tobytes() + self.games.get_state()

    def set_state(self, state: bytes) -> None:
        """Restores what `get_state` returned. Raises ValueError where it comes from other environments."""
        ours = self._next.nbytes + self._playing.nbytes
        if len(state) < ours:
            raise ValueError(f"the state is cut short: {len(state)} bytes")
        self.games.set_state(state[ours:])
        numbers = np.frombuffer(state[:ours], np.int32)
        self._next[:], self._playing[:] = numbers[: self.num_envs], numbers[self.num_envs :]

    def close(self) -> None:
        """Closes the games."""
        self.games.close()
