"""The optimisers under comparison, by name. `engine.protocol.Method` is their interface.

All get the same: the space, the initial config as their first trial (in a blind run: none, and each begins as it
likes), each run's curve while it grows, and at its end its score or failure and its cost.

    protein           the engine as shipped, without continuing trials, which no peer can;
                      `protein:name=value;...` with some of its settings changed: the ablations, and `num_continued=4`
    random, sobol     uniform and scrambled Sobol points over the whole box
    tpe, tpe-multi, gp, nsga2, asha, hyperband          Optuna's, see `engine.optuna_peers`
    logei, qlognehvi  BoTorch's, see `engine.botorch_peers`
    smac              SMAC3's, see `engine.smac_peers`
    hebo              HEBO's, see `engine.hebo_peers`
    puffer, puffer-short                                PufferLib's sweep, see `engine.puffer_peers`
    ei-cooling, ei-cooling-cheap                        improvement per weakened second, see `engine.cooling`
"""

from collections.abc import Sequence

import numpy as np
from engine.protocol import Method, Peer
from engine.variants import variant

from protein.engine.recommend import contenders
from protein.engine.results import best
from protein.engine.settings import EngineSettings
from protein.space import Space
from protein.sweep.methods import make_designer
from protein.types import Budget, Measurement, Observation, Params

_OPTUNA = ("tpe", "tpe-multi", "gp", "nsga2", "asha", "hyperband")
_COOLING = ("ei-cooling", "ei-cooling-cheap")
_BOTORCH = ("logei", "qlognehvi")
_PUFFER = ("puffer", "puffer-short")
PEERS = ("random", "sobol", *_OPTUNA, *_COOLING, *_BOTORCH, "smac", "hebo", *_PUFFER)
SLOW = ("gp", *_BOTORCH, "smac", "hebo", *_PUFFER)  # a suggestion takes a good part of a second, or more


def make_method(name: str, space: Space, start: Params | None, seed: int) -> Method:
    """Returns an optimiser by name. Raises `ValueError` for an unknown one, `UsageError` for a setting of ours."""
    method, _, settings = name.partition(":")
    if method == "protein":
        return Engine(space, start, seed, variant(f"num_continued=0;{settings}"))
    if method in ("random", "sobol"):
        return _Listed(method, space, start, seed)
    if method in _OPTUNA:
        from engine.optuna_peers import OptunaPeer

        return OptunaPeer(method, space, start, seed)
    if method in _COOLING:
        from engine.cooling import Cooling

        return Cooling(space, start, seed, cheap=method == "ei-cooling-cheap")
    if method in _BOTORCH:
        from engine.botorch_peers import BotorchPeer

        return BotorchPeer(method, space, start, seed)
    if method == "smac":
        from engine.smac_peers import SmacPeer

        return SmacPeer(space, start, seed)
    if method == "hebo":
        from engine.hebo_peers import HeboPeer

        return HeboPeer(space, start, seed)
    if method in _PUFFER:
        from engine.puffer_peers import PufferPeer

        return PufferPeer(method, space, start, seed)
    raise ValueError(f"unknown method {name!r}; known: protein, {', '.join(PEERS)}")


class Engine(Peer):
    """This project's engine, asked one trial at a time; it may begin from source sweeps' trials."""

    budget_free = False
    recommends = True

    def __init__(
        self,
        space: Space,
        start: Params | None,
        seed: int,
        settings: EngineSettings,
        warm_start: Sequence[Sequence[Observation]] = (),
    ) -> None:
        self._space = space
        self._designer = make_designer("protein", space, start, seed=seed, settings=settings, warm_start=warm_start)
        self._seed = seed
        self._history: list[Observation] = []

    def ask(self, history: list[Observation], budget: Budget) -> Params | None:
        self._history = history
        suggestion = self._designer.suggest(history, [], budget, self._trial_seed())
        self.continues = None if suggestion is None else suggestion.continues
        return None if suggestion is None else suggestion.params

    def watch(self, params: Params, curve: tuple[Measurement, ...]) -> bool:
        return self._designer.should_stop(self._history, params, curve, self._trial_seed()) is not None

    def recommend(self, history: list[Observation]) -> Params | None:
        chosen = best(contenders(self._space, history))
        return None if chosen is None else chosen.params

    def _trial_seed(self) -> int:
        return int(np.random.SeedSequence([self._seed, len(self._history)]).generate_state(1)[0])


class _Listed(Peer):
    """The initial config, if any, then valid points of the whole box, drawn in advance."""

    def __init__(self, method: str, space: Space, start: Params | None, seed: int) -> None:
        rng = np.random.default_rng([seed, 1])
        if method == "sobol":
            from scipy.stats import qmc

            x = space.canonical(qmc.Sobol(space.num_dims, rng=rng).random(1024))
            x = x[space.valid(x)]
        else:
            x = space.sample(512, rng)
        self._points = [*([] if start is None else [start]), *space.from_unit_many(x)]

    def ask(self, history: list[Observation], budget: Budget) -> Params | None:
        return self._points[len(history)] if len(history) < len(self._points) else None
