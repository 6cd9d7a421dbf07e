"""Frontier: steps against a slow reference without a grid, comings and goings, conservation, the scripts' worth.

The reference reads the whole world out of `get_state`, so the struct's layout is repeated here. It keeps agents in a
list and finds who stands where by looking at all of them.
"""

from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from env_buffers import Actions, Stepper
from hypothesis import given, settings
from hypothesis import strategies as st

VISION, TRIBES, SEASON, PLENTY, PACK, EDGE, MAX_FRAMES = 5, 4, 512, 4, 8, 16, 1024
FULL, UNIT, BORN, HEALTH, REACH = 128, 24, 96, 8, 15
FOOD, WATER, WOOD, ORE = range(4)
NOTHING, GATHER, CONSUME, BUILD, STRIKE, TRADE = range(6)
IDLE, LIVES, FELL, LEFT = range(4)
AHEAD = ((0, 0), (-1, 0), (0, 1), (1, 0), (0, -1))  # here, north, east, south, west
SIZES = {"frontier16": (16, 64, 1), "frontier": (128, 128, 1), "frontier1024": (1024, 256, 1)}
SIZES["frontier_tribes"] = (128, 128, 4)  # slots, side, tribes that are the caller's

AGENT = np.dtype(
    [(name, np.int32) for name in ("at", "age", "decisions", "restored", "gathered", "wasted", "dealt")]
    + [("uses", np.uint16, 3), ("fed", np.int16), ("watered", np.int16), ("pack", np.uint8, 4)]
    + [(name, np.uint8) for name in ("state", "health", "struck", "did", "blocked", "moved")]
)
HEADER = 80  # bytes of a state before the first struct


def world_of(name: str) -> np.dtype[np.void]:
    slots, side, _ = SIZES[name]
    square = (side + 2 * VISION, side + 2 * VISION)
    return np.dtype(
        [
            ("rng", np.uint64),
            ("frames", np.int32),
            ("held", np.int32, TRIBES),
            ("home", np.int32, TRIBES),
            ("next", np.int32, TRIBES),
        ]
        + [("agents", AGENT, slots), ("holder", np.uint16, square)]
        + [(plane, np.uint8, square) for plane in ("ground", "barrier", "folk")]
    )


def world(stepper: Stepper, index: int = 0) -> np.void:
    kind = world_of(stepper.vec.spec.name)
    found: np.void = np.frombuffer(stepper.vec.get_state(), kind, 1, HEADER + index * kind.itemsize)[0]
    return found


def put(stepper: Stepper, changed: np.ndarray) -> None:
    """Sets the state of the only world, with the checksum as vec_env.cpp has it."""
    stepper.vec.drain_episodes()
    header, body = bytearray(stepper.vec.get_state()[:HEADER]), changed.tobytes()
    total = len(body)
    for word in np.frombuffer(body, np.uint64).tolist():
        z = ((total ^ word) + 0x9E3779B97F4A7C15) % 2**64
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
        total = z ^ (z >> 31)
    header[-8:] = total.to_bytes(8, "little")
    stepper.vec.set_state(bytes(header) + body)


class Reference:
    """A world in which all tribes are the caller's, by the rules at the header's head. Places are (row, column)."""

    def __init__(self, name: str, now: np.void) -> None:
        slots, self.side, learners = SIZES[name]
        assert learners == TRIBES
        self.per_tribe = slots // TRIBES
        inner = (slice(VISION, -VISION),) * 2
        self.good, self.units = now["ground"][inner].astype(int) // 16 - 1, now["ground"][inner].astype(int) % 16
        self.wall = now["barrier"][inner].astype(int)
        self.homes = [self.place(int(home)) for home in now["home"]]
        self.rng, self.frames, self.next = int(now["rng"]), int(now["frames"]), now["next"].tolist()
        self.agents = [self.agent(slot, record) for slot, record in enumerate(now["agents"])]

    def place(self, cell: int) -> tuple[int, int]:
        row, column = divmod(cell, self.side + 2 * VISION)
        return row - VISION, column - VISION

    def agent(self, slot: int, record: Any) -> SimpleNamespace:
        fields = {name: int(record[name]) for name in AGENT.names or () if name not in ("at", "uses", "pack")}
        lists = {name: record[name].tolist() for name in ("uses", "pack")}
        return SimpleNamespace(
            **fields, **lists, slot=slot, tribe=slot // self.per_tribe, place=self.place(int(record["at"]))
        )

    def draw(self) -> int:
        old, self.rng = self.rng, (self.rng * 6364136223846793005 + 1442695040888963407) % 2**64
        word, turn = (old >> 18 ^ old) >> 27 & 0xFFFFFFFF, old >> 59
        return (word >> turn | word << (-turn & 31)) & 0xFFFFFFFF

    def on_land(self, place: tuple[int, int]) -> bool:
        return min(place) >= 0 and max(place) < self.side

    def who(self, place: tuple[int, int]) -> SimpleNamespace | None:
        return next((agent for agent in self.agents if agent.state == LIVES and agent.place == place), None)

    def free(self, place: tuple[int, int]) -> bool:
        return self.on_land(place) and not self.wall[place] and self.who(place) is None

    @staticmethod
    def level(agent: SimpleNamespace, skill: int) -> int:
        return sum(agent.uses[skill] >= uses for uses in (16, 64, 192))

    def grow(self) -> None:
        visits = self.side**2 // SEASON
        for visit in range(self.frames * visits, (self.frames + 1) * visits):
            tile = divmod(visit * 40503 % self.side**2, self.side)
            if self.good[tile] >= 0:
                self.units[tile] = PLENTY if self.good[tile] == WATER else min(PLENTY, self.units[tile] + 1)
            self.wall[tile] = max(0, self.wall[tile] - 2)

    def act(self, agent: SimpleNamespace, move: int, act: int, target: int) -> None:
        ahead = agent.place[0] + AHEAD[move][0], agent.place[1] + AHEAD[move][1]
        agent.blocked = int(move > 0 and not self.free(ahead))
        if move and not agent.blocked:
            agent.place = ahead
        agent.moved = 0 if agent.blocked else move
        there = agent.place[0] + AHEAD[target][0], agent.place[1] + AHEAD[target][1]
        other = self.who(there) if target else None
        effect = False
        if act == GATHER:
            tile = there if self.on_land(there) and self.units[there] else agent.place
            good = self.good[tile]
            taken = min(self.units[tile], 1 + self.level(agent, 0), PACK - agent.pack[good])
            self.units[tile] -= taken
            agent.pack[good] += taken
            agent.gathered += taken if good in (FOOD, WATER) else 0
            effect = taken > 0
        elif act == CONSUME:
            food_first = agent.fed <= agent.watered
            order = [(FOOD, "fed"), (WATER, "watered")] if food_first else [(WATER, "watered"), (FOOD, "fed")]
            carried = [(good, need) for good, need in order if agent.pack[good]]
            if carried and getattr(agent, carried[0][1]) < FULL:
                good, need = carried[0]
                restored = min(UNIT, FULL - getattr(agent, need))
                setattr(agent, need, getattr(agent, need) + restored)
                agent.restored += restored
                agent.wasted += UNIT - restored
                agent.pack[good] -= 1
                effect = True
        elif act == BUILD and target and self.free(there) and self.good[there] < 0 and agent.pack[WOOD] >= 2:
            agent.pack[WOOD] -= 2
            self.wall[there] = 4 + 3 * self.level(agent, 1)
            effect = True
        elif act == STRIKE:
            beside = [self.who((agent.place[0] + row, agent.place[1] + column)) for row, column in AHEAD[1:]]
            strangers = [who for who in beside if who is not None and who.tribe != agent.tribe]
            if other is None or other.tribe == agent.tribe:
                other = strangers[0] if strangers else other
            damage = 1 + self.level(agent, 2) + (agent.pack[ORE] > 0)
            if other is not None and other.tribe != agent.tribe:
                effect = True
                agent.dealt += min(other.health, damage)
                other.health, other.struck = max(0, other.health - damage), 16
                if other.health == 0:
                    other.state = FELL
                    loot = [min(PACK - own, found) for own, found in zip(agent.pack, other.pack, strict=True)]
                    agent.pack = [own + found for own, found in zip(agent.pack, loot, strict=True)]
                    agent.gathered += loot[FOOD] + loot[WATER]
            elif other is None and self.on_land(there) and self.wall[there]:
                effect = True
                self.wall[there] = max(0, self.wall[there] - damage)
            agent.fed = max(0, agent.fed - effect)
        elif act == TRADE and other is not None:
            gives, takes = (a.pack.index(max(a.pack)) for a in (agent, other))
            enough = agent.pack[gives] > 1 and other.pack[takes] > 1
            room = agent.pack[takes] < PACK and other.pack[gives] < PACK
            effect = gives != takes and enough and room
            for one, less, more in ((agent, gives, takes), (other, takes, gives)):
                one.pack[less] -= effect
                one.pack[more] += effect
        agent.did = act if effect else 0
        skill = {GATHER: 0, BUILD: 1, STRIKE: 2}.get(agent.did)
        if skill is not None:
            agent.uses[skill] += 1

    def body(self, agent: SimpleNamespace) -> None:
        agent.age += 1
        agent.fed, agent.watered, agent.struck = (max(0, each - 1) for each in (agent.fed, agent.watered, agent.struck))
        if agent.age % 8 == 0:
            home = self.homes[agent.tribe]
            near = max(abs(agent.place[0] - home[0]), abs(agent.place[1] - home[1])) <= 4
            lacks = [agent.fed, agent.watered].count(0)
            well = min(agent.fed, agent.watered) >= FULL // 2 and (near or agent.age % 16 == 0)
            agent.health = max(0, agent.health - lacks) if lacks else min(HEALTH, agent.health + well)
        if agent.health == 0:
            agent.state = FELL
        elif agent.age >= MAX_FRAMES:
            agent.state = LEFT

    def births(self, began: int, frames: int) -> set[int]:
        born: set[int] = set()
        for _ in range((began + frames) * self.per_tribe // 24 - began * self.per_tribe // 24):
            for tribe in range(TRIBES):
                first = tribe * self.per_tribe
                order = [first + (self.next[tribe] + k) % self.per_tribe for k in range(self.per_tribe)]
                idle = [self.agents[slot] for slot in order if self.agents[slot].state == IDLE]
                if not idle:
                    continue
                bits = self.draw()
                offsets = ((half * (2 * REACH + 1) >> 16) - REACH for half in (bits >> 16, bits & 0xFFFF))
                row, column = (middle + offset for middle, offset in zip(self.homes[tribe], offsets, strict=True))
                around = [(row + i, column + j) for i in range(-2, 3) for j in range(-2, 3)]
                food = any(self.on_land(p) and self.good[p] == FOOD and self.units[p] for p in around)
                if food and self.free((row, column)):
                    record = np.zeros((), AGENT)
                    idle[0].__dict__.update(vars(self.agent(idle[0].slot, record)))
                    idle[0].__dict__.update(place=(row, column), fed=BORN, watered=BORN, health=HEALTH, state=LIVES)
                    born.add(idle[0].slot)
                    self.next[tribe] = (idle[0].slot - first + 1) % self.per_tribe
        return born

    def step(self, actions: Actions, frames: int) -> SimpleNamespace:
        """Returns what a step gives but for observations, before those who ended are taken out."""
        began, slots = self.frames, len(self.agents)
        before = [vars(agent).copy() for agent in self.agents]
        for agent in self.agents:
            agent.decisions += agent.state == LIVES
        for _ in range(frames):
            first = self.frames * (self.per_tribe + 1)
            self.grow()
            for k in range(slots):
                agent = self.agents[(first + k) % slots]
                if agent.state == LIVES:
                    self.act(agent, *actions[agent.slot].tolist())
            for agent in self.agents:
                if agent.state == LIVES:
                    self.body(agent)
            self.frames += 1
        born = self.births(began, frames)
        worth = {"age": 0.01, "gathered": 0.1, "dealt": 0.1, "restored": 0.05 / UNIT, "wasted": -0.1 / UNIT}
        rewards = [
            sum(each * (getattr(agent, what) - then[what]) for what, each in worth.items()) - (agent.state == FELL)
            if then["state"] == LIVES
            else 0
            for agent, then in zip(self.agents, before, strict=True)
        ]
        return SimpleNamespace(
            rewards=rewards,
            terminals=[agent.state == FELL or agent.slot in born for agent in self.agents],
            truncations=[agent.state == LEFT for agent in self.agents],
        )

    def seen(self, agent: SimpleNamespace) -> npt.NDArray[np.uint8]:
        planes = np.zeros((8, 11, 11), int)
        if agent.state == IDLE:
            return planes.ravel().astype(np.uint8)
        for i, j in np.ndindex(11, 11):
            tile = agent.place[0] + i - VISION, agent.place[1] + j - VISION
            if not self.on_land(tile):
                planes[4, i, j] = EDGE
                continue
            planes[4, i, j] = self.wall[tile]
            if self.units[tile]:
                planes[self.good[tile], i, j] = 8 + 2 * self.units[tile]
        for other in self.agents:
            i, j = other.place[0] - agent.place[0] + VISION, other.place[1] - agent.place[1] + VISION
            if other.state == LIVES and min(i, j) >= 0 and max(i, j) < 11:
                planes[5 if other.tribe == agent.tribe else 6, i, j] = 2 * other.health
        home = self.homes[agent.tribe]
        held = sum(other.state == LIVES for other in self.agents if other.tribe == agent.tribe)
        own = [agent.fed // 8, agent.watered // 8, 2 * agent.health, *(2 * units for units in agent.pack)]
        own += [4 * self.level(agent, skill) for skill in range(3)] + [agent.age // 64]
        own += [min(8, max(-8, (home[axis] - agent.place[axis]) // 8)) + 8 for axis in (0, 1)]
        own += [agent.struck, 16 * (agent.did > 0), 16 * agent.blocked, 16 * held // self.per_tribe]
        for plane, arrived in ((0, 0), (1, 0), (2, 0), (3, 0), (6, 1)):
            places = [(abs(i - 5) + abs(j - 5), i, j) for i, j in np.argwhere(planes[plane]).tolist()]
            distance, i, j = min(places, default=(99, 5, 5))
            own += [16 * (distance == arrived), *(3 * max(0, way) for way in (5 - i, j - 5, i - 5, 5 - j))]
        own += [16 * (agent.moved == move) for move in range(1, 5)]
        planes[7].ravel()[: len(own)] = own
        return planes.ravel().astype(np.uint8)

    def respawn(self) -> None:
        for agent in self.agents:
            if agent.state in (FELL, LEFT):
                agent.state = IDLE

    def same_as(self, now: np.void) -> None:
        """Asserts that the C world is this one; idle slots' old numbers mean nothing."""
        other = Reference("frontier_tribes", now)
        for plane in ("good", "units", "wall"):
            np.testing.assert_array_equal(getattr(self, plane), getattr(other, plane), plane)
        assert (self.rng, self.frames, self.next) == (other.rng, other.frames, other.next)
        for here, there in zip(self.agents, other.agents, strict=True):
            assert here.state == there.state
            assert here.state == IDLE or here == there


def crowd(stepper: Stepper, seed: int) -> None:
    """Puts all agents side by side, half fed, with full packs and skills of all levels, among goods and walls."""
    rng = np.random.default_rng(seed)
    now = world(stepper).copy().reshape(1)
    kind, agents = now[0], now[0]["agents"]
    slots, side, _ = SIZES[stepper.vec.spec.name]
    stride = side + 2 * VISION
    corner = VISION + side - 14  # at the land's edge
    places = rng.permutation(14 * 14)[:slots]
    cells = (corner + places // 14) * stride + corner + places % 14
    kind["holder"][:] = kind["folk"][:] = 0
    agents[:] = np.zeros((), AGENT)
    agents["at"], agents["state"] = cells, LIVES
    agents["health"], agents["struck"] = rng.integers(1, 9, slots), rng.integers(0, 17, slots)
    agents["age"] = rng.integers(0, MAX_FRAMES - 1, slots)
    agents["fed"], agents["watered"] = rng.integers(0, 129, slots), rng.integers(0, 129, slots)
    agents["pack"], agents["uses"] = rng.integers(0, 9, (slots, 4)), rng.integers(0, 200, (slots, 3))
    kind["home"][:2] = (corner + 7) * stride + corner + 7
    ground, barrier = (kind[plane][corner : corner + 14, corner : corner + 14] for plane in ("ground", "barrier"))
    ground[:] = rng.choice([0, 0, 18, 34, 50, 68], (14, 14))
    barrier[:] = 0
    free = np.setdiff1d(np.arange(14 * 14), places)
    barrier[np.unravel_index(free[::3], (14, 14))] = 5
    ground[np.unravel_index(free[::3], (14, 14))] = 0
    kind["holder"].ravel()[cells] = np.arange(slots) + 1
    kind["folk"].ravel()[cells] = 16 * (np.arange(slots) // (slots // TRIBES) + 1) + agents["health"]
    kind["held"] = slots // TRIBES
    put(stepper, now)


@pytest.mark.parametrize(("seed", "frame_skip", "steps"), [(1, 1, 14), (2, 1, 14), (3, 3, 4)])
def test_steps_are_those_of_a_reference_that_looks_at_everybody(seed: int, frame_skip: int, steps: int) -> None:
    stepper = Stepper("frontier_tribes", 1, seed=seed, frame_skip=frame_skip)
    crowd(stepper, seed)
    reference = Reference("frontier_tribes", world(stepper))
    rng = np.random.default_rng(seed)
    did: dict[int, int] = {}
    came = 0
    for step in range(steps):
        actions = rng.integers(0, (5, 6, 5), (128, 3), dtype=np.int32)
        expected, out = reference.step(actions, frame_skip), stepper.step(actions)
        gone = np.array(expected.terminals) | expected.truncations
        gone &= [agent.state != LIVES for agent in reference.agents]
        np.testing.assert_array_equal(out.terminals, expected.terminals)
        np.testing.assert_array_equal(out.truncations, expected.truncations)
        np.testing.assert_allclose(out.rewards, expected.rewards, atol=1e-6)
        assert not out.observations[gone].any(), "an idle slot sees nothing"
        for agent in reference.agents[step % 4 :: 4]:
            shown = out.final_observations if out.truncations[agent.slot] else out.observations
            if agent.state != FELL:
                np.testing.assert_array_equal(shown[agent.slot], reference.seen(agent))
        for agent in reference.agents:
            did[agent.did] = did.get(agent.did, 0) + (agent.state == LIVES)
        came += int((~stepper.played & out.terminals).sum())
        stepper.vec.drain_episodes()
        reference.respawn()
        reference.same_as(world(stepper))
    if frame_skip == 1:
        assert min(did[act] for act in (GATHER, CONSUME, BUILD, STRIKE, TRADE)) > 5, did
        assert came > 5


@pytest.mark.parametrize("name", SIZES)
@settings(max_examples=5, deadline=None)
@given(seed=st.integers(0, 2**64 - 1), frame_skip=st.sampled_from((1, 1, 4)), crowded=st.booleans())
def test_nobody_shares_a_tile_and_nothing_comes_from_nowhere(
    name: str, seed: int, frame_skip: int, crowded: bool
) -> None:
    slots, _, learners = SIZES[name]
    stepper = Stepper(name, 1, seed=seed, frame_skip=frame_skip)
    if crowded and slots <= 128:
        crowd(stepper, seed)
    rows = learners * slots // TRIBES
    rng = np.random.default_rng(seed % 1000)
    for _ in range(12):
        before = world(stepper).copy()
        assert stepper.vec.playing is not None
        playing = stepper.vec.playing.copy()
        np.testing.assert_array_equal(playing, before["agents"]["state"][:rows] == LIVES)
        out = stepper.step(rng.integers(0, (5, 6, 5), (rows, 3), dtype=np.int32))
        stepper.vec.drain_episodes()
        now, plays = world(stepper), stepper.vec.playing
        agents = now["agents"]
        living = agents["state"] == LIVES

        at = agents["at"][living]
        assert len(set(at.tolist())) == len(at)
        assert (now["barrier"].ravel()[at] == 0).all()
        np.testing.assert_array_equal(np.flatnonzero(now["holder"].ravel()), np.sort(at))
        np.testing.assert_array_equal(now["holder"].ravel()[at], np.flatnonzero(living) + 1)
        folk = 16 * (np.flatnonzero(living) // (slots // TRIBES) + 1) + agents["health"][living]
        np.testing.assert_array_equal(now["folk"].ravel()[at], folk)
        np.testing.assert_array_equal(living.reshape(TRIBES, -1).sum(axis=1), now["held"])
        assert (agents["health"][living] > 0).all() and (agents["pack"] <= PACK).all()
        assert (np.maximum(agents["fed"], agents["watered"]) <= FULL).all()
        assert (now["ground"] % 16 <= PLENTY).all()
        np.testing.assert_array_equal(now["ground"] // 16, before["ground"] // 16)

        # Idle rows: no reward, no sight. Who comes has a terminal row first; who goes has one, too, and is idle then.
        assert not out.rewards[~playing].any()
        assert not out.observations[~plays].any()
        assert out.observations[plays].any(axis=1).all()
        ends = out.terminals | out.truncations
        np.testing.assert_array_equal(ends, playing != plays)

        if frame_skip == 1:
            conserved(name, before, now)


def conserved(name: str, before: np.void, now: np.void) -> None:
    """In one frame goods come only by growth, and go only into mouths, walls and the packs of those who end."""
    _, side, _ = SIZES[name]
    visits = side**2 // SEASON
    tile = np.arange(int(before["frames"]) * visits, (int(before["frames"]) + 1) * visits) * 40503 % side**2
    ground = before["ground"][VISION:-VISION, VISION:-VISION].ravel()[tile]
    good, units = ground // 16, ground % 16
    growth = np.where(good == WATER + 1, PLENTY - units, np.minimum(1, PLENTY - units)) * (good > 0)

    def stock(at: np.void) -> npt.NDArray[np.int64]:
        land = [(at["ground"][at["ground"] // 16 == kind + 1] % 16).sum() for kind in range(4)]
        packs: npt.NDArray[np.int64] = at["agents"]["pack"][at["agents"]["state"] == LIVES].astype(int).sum(axis=0)
        return np.array(land) + packs

    grown = np.array([growth[good == kind + 1].sum() for kind in range(4)])
    gone = stock(before) + grown - stock(now)
    stayed = (before["agents"]["state"] == LIVES) & (now["agents"]["state"] == LIVES)
    did = now["agents"]["did"][stayed]
    eaten, built = (did == CONSUME).sum(), 2 * (did == BUILD).sum()
    assert (gone >= 0).all()
    assert gone[FOOD] + gone[WATER] >= eaten and gone[WOOD] >= built
    if (stayed == (before["agents"]["state"] == LIVES)).all():
        assert (gone[FOOD] + gone[WATER], gone[WOOD], gone[ORE]) == (eaten, built, 0)


@pytest.mark.parametrize("name", ["frontier16", "frontier1024", "frontier_tribes"])
def test_variants_do_not_depend_on_threads_and_go_on_from_their_state(name: str) -> None:
    """The game of the default size is in the tests of all environments."""
    one, many = Stepper(name, 3, seed=3), Stepper(name, 3, seed=3, threads=3)
    for step in range(20):
        assert one.step().bytes() == many.step().bytes()
        if step == 10:
            many.vec.set_state(one.vec.get_state())
        np.testing.assert_array_equal(one.vec.playing, many.vec.playing)


def test_scripts_live_longer_than_chance_and_are_what_solved_is_measured_by() -> None:
    """In the learning tribe's place: the lives that end after 1,000 frames, in two worlds for each script."""
    stepper = Stepper("frontier", 6, seed=1)
    spec, rows = stepper.vec.spec, stepper.vec.num_agents
    scripts, actions = np.arange(3, dtype=np.int32).repeat(rows // 3), np.zeros((rows, 3), np.int32)
    assert spec.scripts == ("random", "gatherer", "defender")
    for step in range(3000):
        stepper.vec.act(scripts, actions)
        stepper.vec.step(actions, *stepper.out.arrays()[:4])
        if step == 1000:
            stepper.vec.drain_episodes()
    episodes = stepper.vec.drain_episodes()
    chance, gatherer, defender = (episodes.score[scripts[episodes.agent] == script].mean() for script in range(3))
    assert 100 < chance < 170
    assert min(gatherer, defender) > 2.5 * chance
    best = max(gatherer, defender)
    assert 1.05 * best < spec.solved_score < 1.4 * best


def test_the_three_scripted_tribes_are_of_three_strengths() -> None:
    """By how old those are who live, in worlds in which the learning tribe does nothing."""
    stepper = Stepper("frontier", 8, seed=1)
    for _ in range(700):
        stepper.step(np.zeros((stepper.vec.num_agents, 3), np.int32))
        stepper.vec.drain_episodes()
    tribes: list[list[Any]] = [[], [], [], []]
    for index in range(8):
        agents = world(stepper, index)["agents"].reshape(TRIBES, -1)
        for tribe, members in zip(tribes, agents, strict=True):
            tribe += members[members["state"] == LIVES].tolist()
    ages = [np.mean([member[1] for member in tribe]) for tribe in tribes]
    assert ages[0] < ages[2]
    assert 2.5 * ages[1] < min(ages[2], ages[3])
