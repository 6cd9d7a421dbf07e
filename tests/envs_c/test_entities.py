"""Entities: every frame against a slow reference, what is seen of a state, and that each skill is worth having.

The reference reads the whole state out of `get_state`, so the struct's fields are repeated here, in their order.
"""

import numpy as np
import numpy.typing as npt
import pytest
from env_buffers import SENTINEL, Actions, Stepper, scripted_actions

AGENTS, CREATURES, CRYSTALS, SLOTS = 8, 24, 24, 4
HEALTH, CHARGES, CREATURE_HEALTH, ACT_FRAMES, BITE_FRAMES, MAX_FRAMES = 5, 6, 3, 5, 10, 1000
SPEED, CREATURE_SPEED = np.float32(0.02), np.float32(0.012)
STRIKE, MEND, BITE, TAKE = np.float32(0.25), np.float32(0.15), np.float32(0.04), np.float32(0.05)
Floats = npt.NDArray[np.float32]

FIELDS = [
    ("rng", np.uint64, ()),
    ("agent", np.float32, (2, AGENTS)),
    ("health", np.int32, AGENTS),
    ("charges", np.int32, AGENTS),
    ("wait", np.int32, AGENTS),
    ("creature", np.float32, (2, CREATURES)),
    ("creature_health", np.int32, CREATURES),
    ("creature_wait", np.int32, CREATURES),
    ("prey", np.int32, CREATURES),
    ("crystal", np.float32, (2, CRYSTALS)),
    ("slots", np.int32, (AGENTS, SLOTS)),
    ("ally", np.int32, AGENTS),
    ("felled_by", np.int32, AGENTS),
    ("felled", np.int32, ()),
    ("standing", np.int32, ()),
    ("frames", np.int32, ()),
    ("decisions", np.int32, ()),
]
WORLD = np.dtype(FIELDS)


def worlds(stepper: Stepper) -> np.ndarray:
    """The states of all environments, to be changed at will. Undrained episodes would stand behind them."""
    return np.frombuffer(stepper.vec.get_state()[80:], WORLD, stepper.vec.num_envs).copy()


def pcg32(world: np.void) -> int:
    old = int(world["rng"])
    world["rng"] = (old * 6364136223846793005 + 1442695040888963407) % 2**64
    word, turn = ((old >> 18 ^ old) >> 27) % 2**32, old >> 59
    return (word >> turn | word << (-turn % 32)) % 2**32


def near(a: Floats, b: Floats, reach: np.float32) -> np.ndarray:
    result: np.ndarray = (np.abs(a - b) <= reach).all(axis=0)
    return result


def reference_frame(world: np.void, actions: Actions) -> None:
    agent, creature, crystal = world["agent"], world["creature"], world["crystal"]
    for k, (move_x, move_y, act) in enumerate(actions):
        world["wait"][k] = max(0, world["wait"][k] - 1)
        if not world["health"][k]:
            continue
        moves = np.array([(0, 1, -1)[move_x], (0, 1, -1)[move_y]], np.float32) * SPEED
        agent[:, k] = np.clip(agent[:, k] + moves, -1, 1)
        for i in np.flatnonzero(near(crystal, agent[:, k, None], TAKE)).tolist():
            if world["charges"][k] < CHARGES:
                world["charges"][k] = min(CHARGES, world["charges"][k] + 3)
                bits = pcg32(world)
                crystal[:, i] = (np.array([bits >> 16, bits % 2**16], np.float32) - 32767.5) / 32768
        if not act or world["wait"][k]:
            continue
        if act <= SLOTS:
            i = world["slots"][k, act - 1]
            if world["charges"][k] and near(creature[:, i], agent[:, k], STRIKE):
                world["charges"][k] -= 1
                world["wait"][k] = ACT_FRAMES
                world["creature_health"][i] -= 1
                if not world["creature_health"][i]:
                    world["felled"] += 1
                    world["felled_by"][k] += 1
                    bits = pcg32(world)
                    along, side = np.float32((bits >> 8) - 2**23) / np.float32(2**23), 1 if bits & 1 else -1
                    creature[:, i] = (along, side) if bits & 2 else (side, along)
                    world["creature_health"][i], world["creature_wait"][i] = CREATURE_HEALTH, 0
        else:
            ally = world["ally"][k]
            if world["health"][ally] < HEALTH and near(agent[:, ally], agent[:, k], MEND):
                world["wait"][k] = ACT_FRAMES
                world["health"][ally] += 1
    distance = ((creature[:, :, None] - agent[:, None]) ** 2).sum(axis=0)
    standing = world["health"] > 0
    if standing.any():
        world["prey"] = np.where(standing, distance, np.inf).argmin(axis=1)
    for i, prey in enumerate(world["prey"]):
        gap = agent[:, prey] - creature[:, i]
        step = np.clip(gap, -CREATURE_SPEED, CREATURE_SPEED)
        creature[:, i] += step
        if world["creature_wait"][i]:
            world["creature_wait"][i] -= 1
        elif world["health"][prey] and (np.abs(gap - step) <= BITE).all():
            world["creature_wait"][i] = BITE_FRAMES
            world["health"][prey] -= 1
    world["standing"] = (world["health"] > 0).sum()
    world["frames"] += 1


def seen(world: np.void, k: int) -> tuple[Floats, list[int], int]:
    """What agent `k` observes, the creatures that it may strike and the ally that it may mend."""
    here = world["agent"][:, k, None]

    def order(things: Floats) -> tuple[npt.NDArray[np.intp], Floats]:
        gap = things - here
        ranks = np.argsort((gap**2).sum(axis=0), kind="stable")
        return ranks, gap[:, ranks]

    health, charges, wait = world["health"] / HEALTH, world["charges"] / CHARGES, world["wait"] / ACT_FRAMES
    stands = world["health"] > 0
    own = [*here[:, 0], health[k], charges[k], wait[k], stands[k], stands.sum() / AGENTS, 1 - world["frames"] / 1000]
    ranks, gap = order(world["agent"])
    gap, ranks = gap[:, ranks != k], ranks[ranks != k]
    mendable = (np.abs(gap) <= MEND).all(axis=0)
    allies = np.stack([*gap / 2, health[ranks], charges[ranks], wait[ranks], stands[ranks], mendable], axis=1)
    targets, gap = order(world["creature"])
    weak, late = world["creature_health"][targets] / CREATURE_HEALTH, world["creature_wait"][targets] / BITE_FRAMES
    near, chasing = (np.abs(gap) <= STRIKE).all(axis=0), world["prey"][targets] == k
    creatures = np.stack([*gap / 2, weak, late, near, chasing], axis=1)
    crystals = order(world["crystal"])[1].T / 2
    parts = [np.ravel(part) for part in (own, allies, creatures, crystals)]
    return np.concatenate(parts).astype(np.float32), targets[:SLOTS].tolist(), int(ranks[0])


def squad(observations: Floats, *, crystals: bool = True, care: bool = True) -> Actions:
    """Strikes the weakest creature in reach; with `crystals` fetches them; with `care` keeps away and mends."""
    count = len(observations)
    own, allies = observations[:, :8], observations[:, 8:57].reshape(count, 7, 7)
    creatures, lying = observations[:, 57:201].reshape(count, 24, 6), observations[:, 201:].reshape(count, 24, 2)
    empty = crystals & (own[:, 3] < 0.4)
    nearest = creatures[:, 0, :2] * 2
    distance = np.abs(nearest).max(axis=1)
    goal = np.where(empty[:, None], lying[:, 0], nearest)
    goal = np.where(((distance < 0.22) & ~empty & (own[:, 3] > 0))[:, None], 0, goal)
    if care:
        inwards = -0.6 * own[:, :2] * (np.abs(own[:, :2]) > 0.7)
        goal = np.where((distance < 0.14)[:, None], inwards - nearest, goal)
    merit = np.where(creatures[:, :4, 4] > 0, 2 - creatures[:, :4, 2] - 0.01 * np.arange(4), -1)
    strikes = (merit.max(axis=1) > 0) & (own[:, 3] > 0)
    act = np.where(strikes, merit.argmax(axis=1) + 1, 0)
    if care:
        hurt = (allies[:, 0, 6] > 0) & (allies[:, 0, 2] < 0.9)
        act = np.where(hurt & (~strikes | (allies[:, 0, 2] < 0.5)), 5, act)
    moves = np.where(goal > 0.005, 1, np.where(goal < -0.005, 2, 0))
    return np.concatenate([moves, act[:, None]], axis=1).astype(np.int32)


def mixed(stepper: Stepper) -> Actions:
    """Good play with some blunders: long episodes in which everything happens."""
    actions = scripted_actions(stepper.steps, stepper.vec.num_agents, stepper.vec.spec)
    good = squad(stepper.out.observations)
    good[3::10] = actions[3::10]
    return good


@pytest.mark.parametrize("frame_skip", [1, 3])
def test_every_frame_and_view_is_the_references(frame_skip: int) -> None:
    stepper = Stepper("entities", 2, seed=1, frame_skip=frame_skip)
    bitten = mended = taken = fell = 0
    for _ in range(300 // frame_skip):
        before, expected = worlds(stepper), worlds(stepper)
        actions = mixed(stepper).reshape(2, AGENTS, 3)
        for env, world in enumerate(expected):
            for _ in range(min(frame_skip, MAX_FRAMES - world["frames"])):
                if world["standing"]:
                    reference_frame(world, actions[env])
            world["decisions"] += 1
        out = stepper.step(actions.reshape(-1, 3))
        stepper.vec.drain_episodes()
        over = expected["standing"] == 0
        assert np.array_equal(out.terminals, over.repeat(AGENTS))
        own = (expected["felled_by"] - before["felled_by"]).ravel()
        team = (expected["felled"] - before["felled"]).repeat(AGENTS)
        assert out.rewards == pytest.approx(own + 0.1 * (team - own), abs=1e-6)
        after = worlds(stepper)
        for env in np.flatnonzero(~over).tolist():
            for k in range(AGENTS):
                view, slots, ally = seen(after[env], k)
                assert np.abs(out.observations[env * AGENTS + k] - view).max() < 1e-6
                expected[env]["slots"][k], expected[env]["ally"][k] = slots, ally
            for field, *_ in FIELDS:
                assert np.array_equal(after[env][field], expected[env][field]), field
        bitten += int((after["health"] < before["health"]).sum())
        mended += int((after["health"] > before["health"])[~over].sum())
        taken += int((after["charges"] > before["charges"])[~over].sum())
        fell += int(own.sum())
    assert min(bitten, mended, taken, fell) > 10


def test_observations_stay_in_range_and_kinds_come_nearest_first() -> None:
    stepper = Stepper("entities", 32, seed=2, frame_skip=4)
    lowest, highest = np.full(249, np.inf), np.full(249, -np.inf)
    for _ in range(300):
        observations = stepper.step(mixed(stepper)).observations
        lowest, highest = np.minimum(lowest, observations.min(axis=0)), np.maximum(highest, observations.max(axis=0))
        for start, count, width in ((8, 7, 7), (57, 24, 6), (201, 24, 2)):
            kind = observations[:, start : start + count * width].reshape(-1, count, width)
            distance = (kind[:, :, :2] ** 2).sum(axis=2)
            assert (np.diff(distance, axis=1) > -1e-6).all()
    signed = np.zeros(249, bool)
    signed[[0, 1]] = signed[8:57:7] = signed[9:57:7] = signed[57:201:6] = signed[58:201:6] = signed[201:] = True
    assert (lowest >= np.where(signed, -1, 0)).all()
    assert (highest <= 1).all()
    assert (highest[signed] > 0.2).all()
    assert (lowest[signed] < -0.2).all()


def test_every_skill_is_worth_having_and_all_of_them_solve_it() -> None:
    rng = np.random.default_rng(3)

    def score(seed: int, **skills: bool) -> float:
        stepper = Stepper("entities", 64, seed=seed, frame_skip=4)
        scores = np.full(64, np.nan)
        for _ in range(MAX_FRAMES // 4):  # one episode each, however long
            random = rng.integers(0, (3, 3, 6), (64 * AGENTS, 3)).astype(np.int32)
            out = stepper.step(squad(stepper.out.observations, **skills) if skills else random)
            ended = (out.terminals | out.truncations)[::AGENTS]
            episodes = stepper.vec.drain_episodes()
            assert np.array_equal(episodes.agent[::AGENTS] // AGENTS, np.flatnonzero(ended))
            scores[ended] = np.where(np.isnan(scores[ended]), episodes.score[::AGENTS], scores[ended])
        return float(scores.mean())

    solved = Stepper("entities", 1).vec.spec.solved_score
    chance, fights = score(4), score(4, crystals=False, care=False)
    fetches, cares = score(4, crystals=True, care=False), score(4, crystals=True, care=True)
    assert 2 < chance < 6 < fights < 15 < fetches < 0.9 * solved
    assert solved <= cares < 1.5 * solved


def test_all_agents_end_together_and_each_has_its_record() -> None:
    stepper = Stepper("entities", 16, seed=5, frame_skip=8)
    truncated = 0
    for _ in range(500):
        stepper.step(squad(stepper.out.observations))
        out = stepper.out
        for ends in (out.terminals, out.truncations):
            assert (ends.reshape(16, AGENTS) == ends[::AGENTS, None]).all()
        rows = (out.final_observations != SENTINEL).all(axis=1)
        assert np.array_equal(rows, out.truncations)
        assert (out.final_observations[rows, 7] == 0).all()  # no time is left
        assert (out.observations[out.terminals | out.truncations, 7] == 1).all()
        truncated += int(out.truncations.sum())
    episodes = stepper.vec.drain_episodes()
    assert len(episodes) % AGENTS == 0
    by_env = episodes.agent.reshape(-1, AGENTS)
    assert np.array_equal(by_env, by_env[:, :1] + np.arange(AGENTS))
    assert (episodes.score.reshape(-1, AGENTS) == episodes.score[::AGENTS, None]).all()
    assert episodes.return_.reshape(-1, AGENTS).sum(axis=1) == pytest.approx(1.7 * episodes.score[::AGENTS], rel=1e-5)
    assert truncated == (episodes.length == MAX_FRAMES // 8).sum() > 0
