"""Synthetic training runs with known truth: ten families of learning-curve tasks, drawn anew for every seed.

Notation
    u          unit coordinates, `n x d`;  S  steps;  q(u)  quality that training tends to, in [0, 1]
    tau(u)     steps at which learning has largely happened
    score      floor + (top - floor) q g(S / tau), g the family's curve, plus noise of the evaluation
    cost       seconds: start-up + S times the seconds that the other parameters make a step cost

A family fixes the space, the curve and what kind of trouble there is; a seed draws where the optimum lies, which
parameters matter, and how far from the optimum the initial config is. So ten seeds are ten different problems of a
kind, and an engine cannot be tuned to one landscape.

    ppo         11 d  smooth, saturating; learning rate and batch size interact
    cliff       12 d  with cliffs: high rate times epochs diverges, big nets run out of memory (20 to 30 % fail)
    takeoff     10 d  flat at -21 until learning takes off, as in pong; most configs never do
    deceptive    8 d  a wide basin that learns fast and saturates low, a narrow one that learns late and ends high
    saturating   9 d  steps hardly matter after a while; what matters is the config, and wide nets cost
    supervised  14 d  power-law loss (its negative is the score); three optimisers, each with its own best rate
    noisy       16 d  evaluation noise of about a sixth of the range
    wide        20 d  four of twenty parameters matter
    overfit     10 d  too many steps make it worse again
    outliers     8 d  scores in the 10^4s; one config in ten ends at -10^6 without failing
"""

import math
from collections.abc import Callable

import numpy as np
from engine.synthetic_task import Array, SyntheticTask, Truth

from protein.space import Categorical, Float, Integer, Parameter, Space
from protein.types import Params

FAMILIES = (
    "ppo",
    "cliff",
    "takeoff",
    "deceptive",
    "saturating",
    "supervised",
    "noisy",
    "wide",
    "overfit",
    "outliers",
)


def make_synthetic(family: str, seed: int) -> SyntheticTask:
    """Returns a family's problem of a seed."""
    rng = np.random.default_rng([FAMILIES.index(family), seed])
    return _MAKERS[family](rng)


def _saturating(progress: Array) -> Array:
    return 1.0 - np.exp(-progress)


def _takeoff(progress: Array) -> Array:
    return 1.0 / (1.0 + np.maximum(progress, 1e-12) ** -4.0)


def _power(progress: Array) -> Array:
    return 1.0 - (1.0 + progress) ** -0.5


def _overfit(progress: Array) -> Array:
    return (1.0 - np.exp(-2.0 * progress)) * np.exp(-0.15 * np.maximum(progress - 1.5, 0.0))


class _Landscape:
    """Quality over u: a heavy-tailed valley around an optimum, with drawn weights and pairwise interactions."""

    def __init__(
        self, rng: np.random.Generator, d: int, *, matter: int, cost_index: int, strength: float = 4.0
    ) -> None:
        self.optimum = rng.uniform(0.12, 0.88, d)
        weights = np.exp(rng.normal(0.0, 0.8, d))
        unimportant = rng.permutation([i for i in range(d) if i != cost_index])[matter:]
        weights[unimportant] *= 0.01
        weights[cost_index] = 0.0
        self.weights = strength * rng.uniform(0.5, 1.5) * weights / weights.sum() * min(matter, 6)
        pairs = rng.permutation([i for i in range(d) if i != cost_index])[:4]
        self.pairs = ((pairs[0], pairs[1], rng.uniform(-0.6, 0.6)), (pairs[2], pairs[3], rng.uniform(-0.6, 0.6)))

    def distance(self, u: Array) -> Array:
        """Weighted squared distance to the optimum, `n`."""
        delta = u - self.optimum
        for i, j, strength in self.pairs:
            delta[:, i] += strength * delta[:, j]
        return np.asarray((delta * delta) @ self.weights)

    def quality(self, u: Array) -> Array:
        return np.asarray(1.0 / (1.0 + self.distance(u)))


def _start(space: Space, landscape: _Landscape, rng: np.random.Generator) -> Params:
    """Returns the initial config: up to half the way from the middle of the space to the optimum, at moderate cost."""
    assert space.cost_index is not None
    u = 0.5 + rng.uniform(0.0, 0.5) * (landscape.optimum - 0.5) + 0.1 * rng.standard_normal(space.num_dims)
    u[space.cost_index] = rng.uniform(0.35, 0.6)
    return space.snap(space.from_unit(np.clip(u, 0.02, 0.98)))


def _columns(space: Space, u: Array) -> dict[str, Array]:
    return {p.name: p.decode(u[:, i]) for i, p in enumerate(space.parameters)}


_PPO: list[Parameter] = [
    Float("lr", 1e-5, 1e-1, scale="log"),
    Float("gamma", 0.9, 0.9999, scale="logit"),
    Float("gae_lambda", 0.8, 0.995, scale="logit"),
    Float("ent_coef", 1e-5, 1e-1, scale="log"),
    Float("clip_coef", 0.05, 0.4),
    Float("vf_coef", 0.1, 5.0, scale="log"),
    Integer("horizon", 16, 256, scale="pow2"),
    Integer("minibatch", 256, 16384, scale="pow2"),
    Integer("epochs", 1, 8),
    Integer("steps", 20_000, 20_000_000, scale="log"),
]
_ENVS = Integer("num_envs", 16, 1024, scale="pow2")
_WIDTH = Integer("width", 16, 512, scale="pow2")


def _ppo_seconds(c: dict[str, Array]) -> Array:
    """Returns the cost of a PPO run: steps, and epochs of updates, which small minibatches and wide nets slow down."""
    update = c["epochs"] * (0.6 + 400.0 / c["minibatch"])
    width = (c["width"] / 128.0) ** 1.2 if "width" in c else np.ones(1)
    envs = 1.0 + 30.0 / c["num_envs"] if "num_envs" in c else np.ones(1)
    return np.asarray(0.3 + c["steps"] * 4e-6 * (envs + update * (0.3 + 0.7 * width)))


def _rl_task(
    name: str,
    parameters: list[Parameter],
    rng: np.random.Generator,
    *,
    curve: Callable[[Array], Array],
    matter: int,
    floor: float = 0.0,
    top: float = 1.0,
    noise: float = 0.01,
    tau: float = 1e6,
    tau_slope: float = 2.0,
    cliffs: bool = False,
    crashes: bool = False,
    strength: float = 4.0,
    constraints: tuple[str, ...] = (),
) -> SyntheticTask:
    space = Space(parameters, cost_parameter="steps", constraints=constraints)
    assert space.cost_index is not None
    land = _Landscape(rng, space.num_dims, matter=matter, cost_index=space.cost_index, strength=strength)
    speed = rng.normal(0.0, 1.0, space.num_dims)
    speed[space.cost_index] = 0.0
    speed *= tau_slope / np.linalg.norm(speed)
    lr, epochs = space.names.index("lr"), space.names.index("epochs")
    cliff = rng.uniform(0.9, 1.1)
    crash = rng.normal(0.0, 1.0, space.num_dims)
    crash[space.cost_index] = 0.0

    def truth(u: Array) -> Truth:
        c = _columns(space, u)
        fails_at = np.full(len(u), np.inf)
        if cliffs:
            hot = u[:, lr] + 0.35 * u[:, epochs] - cliff
            fails_at = np.where(hot > 0, np.clip(0.6 - 2.0 * hot, 0.05, 0.6), fails_at)
            big = c["width"] * c["minibatch"] > 2.5e6
            fails_at = np.where(big, 0.02, fails_at)
        return Truth(
            quality=land.quality(u.copy()),
            tau=tau * np.exp((u - 0.5) @ speed),
            steps=c["steps"],
            cost=_ppo_seconds(c),
            fails_at=fails_at,
            crash=(u - 0.5) @ crash / np.linalg.norm(crash) > 0.36 if crashes else np.zeros(len(u), dtype=bool),
        )

    return SyntheticTask(
        name=name,
        space=space,
        start=_start(space, land, rng),
        floor=floor,
        top=top,
        noise=noise * (top - floor),
        curve=curve,
        truth=truth,
        crash_score=-1e6 if crashes else -math.inf,
    )


def _deceptive(rng: np.random.Generator) -> SyntheticTask:
    parameters = [p for p in _PPO if p.name not in ("vf_coef", "gae_lambda")]
    space = Space(parameters, cost_parameter="steps")
    assert space.cost_index is not None
    wide = _Landscape(rng, 8, matter=5, cost_index=space.cost_index, strength=2.0)
    narrow = _Landscape(rng, 8, matter=4, cost_index=space.cost_index, strength=12.0)

    def truth(u: Array) -> Truth:
        c = _columns(space, u)
        low, high = 0.55 * wide.quality(u.copy()), narrow.quality(u.copy())
        late = high * (c["steps"] > 0)
        use_high = late * (1.0 - np.exp(-c["steps"] / 4e6)) > low * (1.0 - np.exp(-c["steps"] / 3e5))
        return Truth(
            quality=np.where(use_high, high, low),
            tau=np.where(use_high, 4e6, 3e5),
            steps=c["steps"],
            cost=_ppo_seconds(c),
            fails_at=np.full(len(u), np.inf),
            crash=np.zeros(len(u), dtype=bool),
        )

    scale = {"floor": 0.0, "top": 100.0, "noise": 1.0}
    start = _start(space, wide, rng)
    return SyntheticTask(name="deceptive", space=space, start=start, curve=_saturating, truth=truth, **scale)


def _supervised(rng: np.random.Generator) -> SyntheticTask:
    space = Space(
        [
            Float("lr", 1e-5, 1.0, scale="log"),
            Float("weight_decay", 1e-6, 1e-1, scale="log"),
            Float("dropout", 0.0, 0.6),
            Float("label_smoothing", 0.0, 0.2),
            Float("momentum", 0.5, 0.999, scale="logit"),
            Float("warmup", 0.0, 0.3),
            Float("final_lr_share", 1e-3, 1.0, scale="log"),
            Integer("batch", 32, 1024, scale="pow2"),
            Integer("width", 64, 1024, scale="pow2"),
            Integer("depth", 1, 8),
            Categorical("optimizer", ("adam", "muon", "sgd")),
            Categorical("activation", ("relu", "gelu", "tanh")),
            Categorical("nesterov", (False, True)),
            Integer("steps", 200, 200_000, scale="log"),
        ],
        cost_parameter="steps",
    )
    land = _Landscape(rng, 14, matter=8, cost_index=13, strength=3.0)
    for index in (10, 11, 12):
        land.weights[index] = 0.0
    lr_shift = np.array([0.0, 0.15, 0.4])[rng.permutation(3)] - 0.2
    optimizer_loss = np.array([0.0, 0.08, 0.2])[rng.permutation(3)]
    activation_loss = np.array([0.0, 0.05, 0.12])[rng.permutation(3)]

    def truth(u: Array) -> Truth:
        c = _columns(space, u)
        moved = u.copy()
        moved[:, 0] -= lr_shift[c["optimizer"].astype(int)]
        size = np.log2(c["width"] / 64.0) / 4.0 * 0.5 + c["depth"] / 8.0 * 0.5
        loss = 1.0 - land.quality(moved)
        loss = loss + optimizer_loss[c["optimizer"].astype(int)] + activation_loss[c["activation"].astype(int)]
        seconds = 0.3 + c["steps"] * 2e-4 * (0.2 + (c["batch"] / 256.0) * c["depth"] * (c["width"] / 256.0) ** 1.5)
        hot = moved[:, 0] > land.optimum[0] + 0.35
        return Truth(
            quality=1.0 / (1.0 + loss) * (0.75 + 0.25 * size),
            tau=np.exp(6.0 + 2.0 * size) * np.sqrt(256.0 / c["batch"]),
            steps=c["steps"],
            cost=seconds,
            fails_at=np.where(hot, 0.1, np.inf),
            crash=np.zeros(len(u), dtype=bool),
        )

    scale = {"floor": -4.6, "top": -0.1, "noise": 0.02}
    start = _start(space, land, rng)
    return SyntheticTask(name="supervised", space=space, start=start, curve=_power, truth=truth, **scale)


_EXTRA: list[Parameter] = [Float(f"extra_{i}", 0.0, 1.0) for i in range(8)]
_ACTIVATION = Categorical("activation", ("tanh", "relu", "gelu"))
_BATCH = ("minibatch <= num_envs * horizon",)

_MAKERS: dict[str, Callable[[np.random.Generator], SyntheticTask]] = {
    "ppo": lambda rng: _rl_task("ppo", [*_PPO, _ENVS], rng, curve=_saturating, matter=8, constraints=_BATCH),
    "cliff": lambda rng: _rl_task(
        "cliff", [*_PPO, _WIDTH, _ENVS], rng, curve=_saturating, matter=7, cliffs=True, noise=0.02
    ),
    "takeoff": lambda rng: _rl_task(
        "takeoff", _PPO, rng, curve=_takeoff, matter=6, floor=-21.0, top=21.0, tau=2e6, tau_slope=5.0, noise=0.01
    ),
    "deceptive": _deceptive,
    "saturating": lambda rng: _rl_task(
        "saturating",
        [p for p in [*_PPO, _WIDTH] if p.name not in ("vf_coef", "clip_coef")],
        rng,
        curve=_saturating,
        matter=7,
        tau=6e4,
        tau_slope=1.0,
    ),
    "supervised": _supervised,
    "noisy": lambda rng: _rl_task(
        "noisy", [*_PPO, _WIDTH, _ENVS, *_EXTRA[:4]], rng, curve=_saturating, matter=6, noise=0.15, top=500.0
    ),
    "wide": lambda rng: _rl_task(
        "wide", [*_PPO, _WIDTH, _ACTIVATION, *_EXTRA], rng, curve=_saturating, matter=4, strength=6.0
    ),
    "overfit": lambda rng: _rl_task("overfit", _PPO, rng, curve=_overfit, matter=7, tau=1.5e6),
    "outliers": lambda rng: _rl_task(
        "outliers",
        [p for p in _PPO if p.name not in ("vf_coef", "clip_coef")],
        rng,
        curve=_saturating,
        matter=6,
        top=2e4,
        crashes=True,
    ),
}
