"""Snake: every move against a slow reference, the map's bookkeeping, and that looking ahead pays.

The reference reads the whole map out of `get_state`, so the struct's layout is repeated here.
"""

import itertools
from typing import Any

import numpy as np
import numpy.typing as npt
from env_buffers import BYTE_SENTINEL, Actions, Stepper

SIDE, VISION, FOOD, AGENTS = 192, 5, 1024, 256
STRIDE = SIDE + 2 * VISION
START, LONGEST, MAX_FRAMES = 4, 128, 1000
AHEAD = (-STRIDE, 1, STRIDE, -1)  # up, right, down, left
STRAIGHT, LEFT, RIGHT = 0, 1, 2

BODY = np.dtype(
    [(name, np.uint16) for name in ("head", "length", "target", "heading")]
    + [(name, np.int32) for name in ("eaten", "frames", "decisions")]
    + [("cells", np.uint16, LONGEST)]
)
WORLD = np.dtype(
    {
        "names": ["food", "bodies", "map"],
        "formats": [np.int32, (BODY, AGENTS), (np.uint8, (STRIDE, STRIDE))],
        "offsets": [8, 12, 12 + AGENTS * BODY.itemsize],
        "itemsize": (12 + AGENTS * BODY.itemsize + STRIDE * STRIDE + 7) // 8 * 8,
    }
)
Snake = list[int]  # its cells, head first


def worlds(stepper: Stepper) -> np.ndarray:
    state = stepper.vec.get_state()
    size = stepper.vec.num_envs * WORLD.itemsize
    start = len(state) - size  # no episodes are left in it
    return np.frombuffer(state[start:], WORLD)


def snakes_of(world: np.void) -> list[Snake]:
    return [
        [int(body["cells"][(int(body["head"]) - i) % LONGEST]) for i in range(body["length"])]
        for body in world["bodies"]
    ]


def reference(world: np.void, actions: Actions, frames: int) -> tuple[npt.NDArray[np.uint8], list[Snake], list[int]]:
    """The map, snakes and rewards after `frames` frames, with no new food and nobody respawned."""
    cells, snakes, rewards = world["map"].flatten(), snakes_of(world), [0] * AGENTS
    headings = (world["bodies"]["heading"].astype(int) + np.array([0, -1, 1])[actions]) % 4
    targets = world["bodies"]["target"].tolist()
    for _ in range(frames):
        for k, snake in enumerate(snakes):
            if not snake:
                continue
            to = snake[0] + AHEAD[headings[k]]
            if len(snake) == targets[k]:
                cells[snake.pop()] = 0
            if cells[to] & 2:
                cells[snake] = 0
                cells[snake[::2]] = 1
                snake.clear()
                rewards[k] -= 1
                continue
            if cells[to] == 1:
                rewards[k] += 1
                targets[k] = min(targets[k] + 1, LONGEST)
            snake.insert(0, to)
            cells[snake] = 2
            cells[to] = 6
    return cells, snakes, rewards


def window(cells: npt.NDArray[np.uint8], head: int, heading: int) -> npt.NDArray[np.uint8]:
    row, column = divmod(head, STRIDE)
    square = cells.reshape(STRIDE, STRIDE)[row - VISION : row + VISION + 1, column - VISION : column + VISION + 1]
    return np.rot90(square, heading)


def spread(values: npt.NDArray[Any], free: npt.NDArray[np.bool_], rounds: int, fade: float) -> npt.NDArray[Any]:
    """Each free cell's own value or its best neighbour's times `fade`, `rounds` cells far; shape `agents x 11 x 11`."""
    for _ in range(rounds):
        near = np.zeros_like(values)
        near[:, 1:] = values[:, :-1]
        near[:, :-1] = np.maximum(near[:, :-1], values[:, 1:])
        near[:, :, 1:] = np.maximum(near[:, :, 1:], values[:, :, :-1])
        near[:, :, :-1] = np.maximum(near[:, :, :-1], values[:, :, 1:])
        values = np.maximum(values, near if fade == 1 else near * np.float32(fade)) * free
    return values


def look_ahead(observations: npt.NDArray[np.float32]) -> Actions:
    """Goes to the next food, away from what heads may enter, and where there is room."""
    food, body, head = observations.reshape(-1, 3, 11, 11).transpose(1, 0, 2, 3)
    free = body == 0
    others = head != 0
    others[:, 5, 5] = False
    contested = spread(others, np.ones_like(free), 1, 1)
    value = spread(food, free, 9, 0.9)
    merit = np.full((len(food), 3), -9, np.float32)
    for action, (row, column) in ((STRAIGHT, (4, 5)), (LEFT, (5, 4)), (RIGHT, (5, 6))):
        start = np.zeros_like(free)
        start[:, row, column] = free[:, row, column]
        room = spread(start, free, 9, 1).sum(axis=(1, 2))
        good = value[:, row, column] + 0.02 * np.minimum(room, 30) - 0.7 * contested[:, row, column]
        merit[:, action] = np.where(free[:, row, column], good + 0.001 * (action == STRAIGHT), -9)
    best: npt.NDArray[np.intp] = merit.argmax(axis=1)
    return best.astype(np.int32)


def test_moves_meals_deaths_and_windows_are_the_references() -> None:
    stepper = Stepper("snake", 1, seed=1)
    rng = np.random.default_rng(0)
    meals = deaths = windows = 0
    for step in range(120):
        before = worlds(stepper)[0]
        actions = look_ahead(stepper.out.observations) if step % 3 else rng.integers(0, 3, AGENTS, dtype=np.int32)
        cells, snakes, rewards = reference(before, actions, 1)
        out = stepper.step(actions)
        stepper.vec.drain_episodes()
        after = worlds(stepper)[0]
        dead = np.array([not snake for snake in snakes])
        assert np.array_equal(out.terminals, dead)
        assert not out.truncations.any()
        assert out.rewards.tolist() == rewards
        now = snakes_of(after)
        assert [snake for snake, gone in zip(now, dead, strict=True) if not gone] == [s for s in snakes if s]
        born = [snake[0] for snake, gone in zip(now, dead, strict=True) if gone]
        new = after["map"].flatten()
        changed = np.setdiff1d(np.flatnonzero(new != cells), born)
        assert (new[changed] == 1).all()  # food appears, in what was empty
        assert (cells[changed] == 0).all()
        cells[changed] = 1
        hidden = np.zeros_like(cells)
        hidden[born] = 1
        for k in np.flatnonzero(~dead):
            at = snakes[k][0], int(after["bodies"]["heading"][k])
            if window(hidden, *at).any():
                continue  # a respawned snake may stand on food that was still seen
            seen = window(cells, *at)
            expected = np.stack([seen & 1, seen >> 1 & 1, seen >> 2]).ravel()
            assert np.array_equal(out.observations[k], expected)
            windows += 1
        meals, deaths = meals + rewards.count(1), deaths + int(dead.sum())
    assert meals > 500
    assert deaths > 500
    assert windows > 5000


def test_a_turn_is_taken_in_the_first_of_the_frames() -> None:
    stepper = Stepper("snake", 1, seed=7, frame_skip=3)
    agree = []
    for _ in range(30):
        before = worlds(stepper)[0]
        actions = look_ahead(stepper.out.observations)
        _, snakes, _ = reference(before, actions, 3)
        out = stepper.step(actions)
        stepper.vec.drain_episodes()
        both = [
            (s[0], now[0])
            for s, now, dead in zip(snakes, snakes_of(worlds(stepper)[0]), out.terminals, strict=True)
            if s and not dead
        ]
        agree += [there == here for there, here in both]
    assert len(agree) > 2000
    assert np.mean(agree) > 0.98  # not all: food that appears between the frames makes some longer


def with_long_snakes(state: bytes, count: int) -> bytes:
    """The state, with the first snakes growing to almost the longest as they move."""
    header, body = bytearray(state[:80]), bytearray(state[80:])
    np.frombuffer(body, WORLD)["bodies"]["target"][:, :count] = LONGEST - 2
    total = len(body)
    for word in np.frombuffer(bytes(body), np.uint64).tolist():  # the checksum, as vec_env.cpp has it
        z = ((total ^ word) + 0x9E3779B97F4A7C15) % 2**64
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
        total = z ^ (z >> 31)
    header[-8:] = total.to_bytes(8, "little")
    return bytes(header + body)


def test_the_map_holds_the_snakes_the_walls_and_the_food_that_is_counted() -> None:
    stepper = Stepper("snake", 1, seed=2)
    stepper.vec.set_state(with_long_snakes(stepper.vec.get_state(), 24))
    longest = beyond = 0
    for step in range(300):
        stepper.step(look_ahead(stepper.out.observations) if step % 8 else None)
        stepper.vec.drain_episodes()
        if step % 25:
            continue
        world = worlds(stepper)[0]
        cells, snakes = world["map"].copy(), snakes_of(world)
        assert world["food"] == (cells == 1).sum() > FOOD // 2
        inner = cells[VISION:-VISION, VISION:-VISION]
        assert (cells == 2).sum() - (inner == 2).sum() == STRIDE**2 - SIDE**2  # the walls are whole
        taken = [cell for snake in snakes for cell in snake]
        assert len(taken) == len(set(taken)) == (inner >= 2).sum()
        assert (cells.ravel()[[snake[0] for snake in snakes]] == 6).all()
        assert (cells.ravel()[[cell for snake in snakes for cell in snake[1:]]] == 2).all()
        for snake, body in zip(snakes, world["bodies"], strict=True):
            assert {abs(a - b) for a, b in itertools.pairwise(snake)} <= {1, STRIDE}
            starts = {START, LONGEST - 2} if body["frames"] == step + 1 else {START}
            assert body["target"] in {min(start + body["eaten"], LONGEST) for start in starts}
            assert 1 <= len(snake) <= body["target"]
            longest = max(longest, len(snake))
            beyond += len(snake) == LONGEST and body["eaten"] > 2
    assert longest == LONGEST
    assert beyond > 0


def test_who_looks_ahead_solves_it() -> None:
    stepper = Stepper("snake", 1, seed=3)
    for _ in range(300):
        stepper.step(look_ahead(stepper.out.observations))
    episodes = stepper.vec.drain_episodes()
    assert len(episodes) > 200
    assert episodes.score.mean() >= stepper.vec.spec.solved_score


def test_chance_eats_a_little_and_dies() -> None:
    rng = np.random.default_rng(4)
    stepper = Stepper("snake", 4, seed=4)
    for _ in range(400):
        out = stepper.step(rng.integers(0, 3, 4 * AGENTS, dtype=np.int32))
        assert np.isin(out.observations, (0, 1)).all()
        assert (out.rewards[out.terminals] == -1).all()
        assert np.isin(out.rewards[~out.terminals], (0, 1)).all()
    episodes = stepper.vec.drain_episodes()
    assert len(episodes) > 10_000
    assert 1 < episodes.score.mean() < 4
    assert np.array_equal(episodes.score - 1, episodes.return_)
    assert set(episodes.agent) == set(range(4 * AGENTS))


def test_who_circles_is_truncated_and_not_punished() -> None:
    """A snake of four cells follows its own tail round a square; who eats on the way bites itself."""
    stepper = Stepper("snake", 2, seed=5)
    circling = np.full(2 * AGENTS, RIGHT, np.int32)
    died = np.zeros(2 * AGENTS, bool)
    for _ in range(MAX_FRAMES - 1):
        out = stepper.step(circling)
        assert not out.truncations[~died].any()
        died |= out.terminals
    stepper.vec.drain_episodes()
    out = stepper.step(circling)
    assert np.array_equal(out.truncations, ~died)
    assert 250 < out.truncations.sum() < 512
    assert (out.final_observations[died] == BYTE_SENTINEL).all()
    last = out.final_observations[~died].reshape(-1, 3, 11, 11)
    assert (last[:, 1, 5:7, 5:7].sum(axis=(1, 2)) == 4).all()  # still there, to the right of where it faces
    first = out.observations[~died].reshape(-1, 3, 11, 11)
    assert (first[:, 1:, 5, 5] == 1).all()
    assert (first[:, 1, 5:7, 5:7].sum(axis=(1, 2)) < 4).mean() > 0.95
    episodes = stepper.vec.drain_episodes()
    truncated = ~died[episodes.agent]
    assert (episodes.length[truncated] == MAX_FRAMES).all()
    assert np.array_equal(episodes.return_[truncated], episodes.score[truncated])
    assert (episodes.score[truncated] <= 3).all()
