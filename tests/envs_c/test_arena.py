"""The arena: every frame against a slow reference, and what is seen of a state; what both teams have in common is in
`test_sides`.

The reference reads the whole state out of `get_state`, so the struct's fields are repeated here, in their order.
"""

import numpy as np
import numpy.typing as npt
from env_buffers import Actions, Stepper

AGENTS, TEAM, CRYSTALS = 8, 4, 8
HEALTH, CHARGES, ACT_FRAMES, GROW_FRAMES, MAX_FRAMES = 5, 6, 8, 100, 600
SPEED, STRIKE, MEND, TAKE = np.float32(0.02), np.float32(0.3), np.float32(0.2), np.float32(0.06)
AHEAD = np.where(np.arange(AGENTS) < TEAM, 1, -1).astype(np.float32)
Floats = npt.NDArray[np.float32]

WORLD = np.dtype(
    [
        ("rng", np.uint64),
        ("at", np.float32, (2, AGENTS)),
        ("health", np.int32, AGENTS),
        ("charges", np.int32, AGENTS),
        ("wait", np.int32, AGENTS),
        ("crystal", np.float32, (2, CRYSTALS)),
        ("growing", np.int32, CRYSTALS),
        ("slots", np.int32, (AGENTS, TEAM)),
        ("ally", np.int32, AGENTS),
        ("strikes", np.int32, AGENTS),
        ("standing", np.int32, 2),
        ("frames", np.int32),
        ("decisions", np.int32),
    ]
)


def worlds(stepper: Stepper) -> np.ndarray:
    """The states of all environments, to be changed at will. Undrained episodes would stand behind them."""
    return np.frombuffer(stepper.vec.get_state()[80:], WORLD, stepper.vec.num_envs).copy()


def near(a: Floats, b: Floats, reach: np.float32) -> bool:
    return bool((np.abs(a - b) <= reach).all())


def reference_frame(world: np.void, actions: Actions) -> None:
    at, health, charges = world["at"], world["health"], world["charges"]
    world["wait"] = np.maximum(world["wait"] - 1, 0)
    for k, (move_x, move_y, _) in enumerate(actions):
        if health[k]:
            step = np.array([(0, 1, -1)[move_x] * AHEAD[k], (0, 1, -1)[move_y]], np.float32) * SPEED
            at[:, k] = np.clip(at[:, k] + step, -1, 1)
    takes = [k for k in range(AGENTS) if health[k] and charges[k] < CHARGES]
    for c in range(CRYSTALS):
        if world["growing"][c]:
            world["growing"][c] -= 1
            continue
        takers = [k for k in takes if near(world["crystal"][:, c], at[:, k], TAKE)]
        for k in takers:
            charges[k] = min(CHARGES, charges[k] + 3)
        world["growing"][c] = GROW_FRAMES if takers else 0
    before = health.copy()
    for k, (*_, act) in enumerate(actions):
        if not act or not before[k] or world["wait"][k]:
            continue
        if act <= TEAM:
            other = world["slots"][k, act - 1]
            if charges[k] and before[other] and near(at[:, other], at[:, k], STRIKE):
                charges[k] -= 1
                world["wait"][k] = ACT_FRAMES
                health[other] -= 1
                world["strikes"][k] += 1
        else:
            other = world["ally"][k]
            if before[other] < HEALTH and near(at[:, other], at[:, k], MEND):
                world["wait"][k] = ACT_FRAMES
                health[other] += 1
    world["health"] = np.clip(health, 0, HEALTH)
    world["standing"] = (world["health"].reshape(2, TEAM) > 0).sum(axis=1)
    world["frames"] += 1


def seen(world: np.void, k: int) -> tuple[Floats, list[int], int]:
    """What agent `k` observes, the enemies that it may strike and the ally that it may mend."""
    here, ahead, team = world["at"][:, k, None], AHEAD[k], k // TEAM

    def order(things: Floats, first: int) -> npt.NDArray[np.intp]:
        turned = np.roll(np.arange(8), -first)[: len(things[0])]
        gap = things[:, turned % 8] - here if len(things[0]) == 8 else things - here
        return turned[np.argsort((gap**2).sum(axis=0), kind="stable")]

    def of_agents(ranks: npt.NDArray[np.intp], reach: np.float32) -> npt.NDArray[np.float64]:
        gap = world["at"][:, ranks] - here
        health, charges, wait = (world[name][ranks] for name in ("health", "charges", "wait"))
        close = (np.abs(gap) <= reach).all(axis=0)
        places = (ahead * gap[0] / 2, gap[1] / 2)
        return np.stack([*places, health / HEALTH, charges / CHARGES, wait / ACT_FRAMES, health > 0, close], axis=1)

    everybody = order(world["at"], TEAM * team)
    allies = [i for i in everybody if i // TEAM == team]
    enemies = [i for i in everybody if i // TEAM != team]
    others = np.array([i for i in allies if i != k])
    crystals = order(world["crystal"], TEAM * team)
    gap = world["crystal"][:, crystals] - here
    own = [
        *(ahead * here[0, 0], here[1, 0], world["health"][k] / HEALTH, world["charges"][k] / CHARGES),
        *(world["wait"][k] / ACT_FRAMES, world["standing"][team] / TEAM, world["standing"][1 - team] / TEAM),
        1 - world["frames"] / MAX_FRAMES,
    ]
    parts = [
        *(own, of_agents(others, MEND), of_agents(np.array(enemies), STRIKE)),
        np.stack([ahead * gap[0] / 2, gap[1] / 2, world["growing"][crystals] / GROW_FRAMES], axis=1),
    ]
    view = np.concatenate([np.ravel(np.asarray(part, np.float32)) for part in parts])
    return view, [int(i) for i in enemies], int(others[0])


def test_every_frame_and_view_is_the_references() -> None:
    """Scripts of all strengths play, so that everything happens; some steps end within their three frames."""
    stepper = Stepper("arena", 2, seed=1, frame_skip=3)
    scripts = np.array([3, 3, 2, 2, 3, 1, 3, 2] * 2, np.int32)
    actions = np.zeros((16, 3), np.int32)
    struck = mended = taken = felled = ended = 0
    for _ in range(70):
        before, expected = worlds(stepper), worlds(stepper)
        stepper.vec.act(scripts, actions)
        by_env = actions.reshape(2, AGENTS, 3)
        for env, world in enumerate(expected):
            for _ in range(min(3, MAX_FRAMES - world["frames"])):
                if world["standing"].all():
                    reference_frame(world, by_env[env])
            world["decisions"] += 1
        out = stepper.step(actions)
        stepper.vec.drain_episodes()
        over = ~expected["standing"].all(axis=1)
        assert np.array_equal(out.terminals, over.repeat(AGENTS))
        lead = (expected["standing"] - before["standing"]) @ np.array([1, -1])
        gained = expected["strikes"] - before["strikes"]
        assert np.abs(out.rewards - (0.1 * gained + 0.25 * lead[:, None] * AHEAD).ravel()).max() < 1e-6
        after = worlds(stepper)
        for env in np.flatnonzero(~over & (expected["frames"] < MAX_FRAMES)).tolist():
            for k in range(AGENTS):
                view, slots, ally = seen(after[env], k)
                assert np.abs(out.observations[env * AGENTS + k] - view).max() < 1e-6
                expected[env]["slots"][k], expected[env]["ally"][k] = slots, ally
            for field in WORLD.names or ():
                assert np.array_equal(after[env][field], expected[env][field]), field
        going = ~over
        struck += int(np.abs(gained).sum())
        mended += int((after["health"] > before["health"])[going].sum())
        taken += int((after["growing"] > before["growing"])[going].sum())
        felled += int(((after["health"] == 0) & (before["health"] > 0)).sum())
        ended += int(over.sum())
    assert min(struck, mended, taken, felled) > 5
    assert ended >= 2


def test_observations_stay_in_range() -> None:
    stepper = Stepper("arena", 16, seed=2, frame_skip=4)
    actions = np.zeros((128, 3), np.int32)
    scripts = np.resize(np.array([0, 1, 2, 3], np.int32), 128)
    signed = np.zeros(81, np.bool_)
    signed[[0, 1]] = signed[8:57:7] = signed[9:57:7] = signed[57::3] = signed[58::3] = True
    for _ in range(200):
        stepper.vec.act(scripts, actions)
        seen_now = stepper.step(actions).observations
        assert (seen_now >= np.where(signed, -1, 0)).all()
        assert (seen_now <= 1).all()
