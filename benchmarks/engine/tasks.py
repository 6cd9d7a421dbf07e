"""All tasks of the comparison, by source, and which of them settings may be chosen on.

synthetic  `engine.synthetic`: learning curves with known truth; a seed draws another problem
recorded   `engine.recorded`: this project's trainer, through a surrogate fitted to recorded trials
real       `engine.real`: scikit-learn models trained on bundled data, costs by the process's CPU time
surrogate  `engine.surrogates`: XGBoost and networks on other people's data sets, through surrogates of others, no noise
rl         `engine.rl`: PPO, DQN and SAC in other people's runs, through a surrogate, with the luck of real runs

The split was written down before any engine was run on these families. Settings are chosen on `DEVELOPMENT` alone and
reported on `HELD_OUT`. For the older sources (synthetic, recorded, real) the seeds are split instead: below 10 they are
reported, from 30 on they are for development.

surrogate  Sixteen data sets are named to develop on where the data come from. Held out are, for networks and XGBoost
           each, the eight others whose name (`lcbench-ID`, `xgboost-ID`) has the smallest SHA-256.
rl         Of all ways to halve the tables so that the algorithms, and the kinds of environment, are halved as evenly as
           possible: the one whose development half has the smallest SHA-256, its sorted names joined by spaces.
           Tables of other people that are added (`engine.rl`) are held out.
"""

from engine import real, recorded, rl, surrogates, synthetic
from engine.protocol import Task

SOURCES: dict[str, tuple[str, ...]] = {
    "synthetic": synthetic.FAMILIES,
    "recorded": recorded.FAMILIES,
    "real": real.FAMILIES,
    "surrogate": surrogates.FAMILIES,
    "rl": rl.FAMILIES,
}
FAMILIES = tuple(family for families in SOURCES.values() for family in families)

DEVELOPMENT: tuple[str, ...] = (
    *surrogates.DEVELOPMENT,
    "rl-dqn-atari-battle-zone",
    "rl-dqn-minigrid-empty-random",
    "rl-ppo-atari-battle-zone",
    "rl-ppo-brax-ant",
    "rl-ppo-cc-acrobot",
    "rl-sac-box2d-bipedal-walker",
)
HELD_OUT: tuple[str, ...] = (*surrogates.HELD_OUT, *(family for family in rl.FAMILIES if family not in DEVELOPMENT))


def make_task(family: str, seed: int) -> Task:
    """Returns a family's problem of a seed. Raises `ValueError` for an unknown family."""
    if family in synthetic.FAMILIES:
        return synthetic.make_synthetic(family, seed)
    if family in recorded.FAMILIES:
        return recorded.make_recorded(family, seed)
    if family in real.FAMILIES:
        return real.make_real(family, seed)
    if family in surrogates.FAMILIES:
        return surrogates.make_surrogate(family, seed)
    if family in rl.FAMILIES:
        return rl.make_rl(family, seed)
    raise ValueError(f"unknown family {family!r}; known: {', '.join(FAMILIES)}")
