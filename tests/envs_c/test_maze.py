"""Maze: that mazes are trees of passages, what is seen of them, and that depth-first search always reaches the goal."""

import collections
import ctypes

import numpy as np
import numpy.typing as npt
import pytest
from c_compiler import compile_c
from env_buffers import SENTINEL, Stepper

ROOMS, SIDE, MARGIN, MAX_FRAMES = 7, 15, 2, 192
STRIDE = SIDE + 2 * MARGIN
MOVES = np.array([(-1, 0), (0, 1), (1, 0), (0, -1)])  # up, right, down, left
WALLS, GOAL, TRAIL = range(3)
BESIDE = tuple((3 + MOVES).T)  # of the window, the cells that the four moves lead to
Observations = npt.NDArray[np.float32]


def explore(observations: Observations) -> npt.NDArray[np.int32]:
    """Goes to the open cell beside it with the least trail."""
    planes = observations.reshape(-1, 3, 7, 7)
    cost = planes[:, TRAIL, *BESIDE] + 9 * planes[:, WALLS, *BESIDE]
    cheapest: npt.NDArray[np.intp] = cost.argmin(axis=1)
    return cheapest.astype(np.int32)


class State(ctypes.Structure):
    """The header's maze_t."""

    _fields_ = [
        ("rng", ctypes.c_uint64),
        *((name, ctypes.c_int32) for name in ("at", "goal", "back", "found", "frames", "decisions")),
        ("cells", ctypes.c_uint8 * STRIDE**2),
        ("unused", ctypes.c_uint8 * 7),
    ]

    def place(self, cell: str) -> tuple[int, int]:
        row, column = divmod(getattr(self, cell), STRIDE)
        return row - MARGIN, column - MARGIN

    def open(self) -> npt.NDArray[np.bool_]:
        """`SIDE x SIDE`: where the player can go."""
        cells = np.array(self.cells).reshape(STRIDE, STRIDE)[MARGIN:-MARGIN, MARGIN:-MARGIN]
        return cells <= 2


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    source = (
        '#include "maze.h"\n'
        "int size(void) { return (int)sizeof(maze_t); }\n"
        "void begin(maze_t *env, uint64_t index, float *observation) {\n"
        "    maze_seed(env, 7, index);\n"
        "    maze_reset(env, observation);\n"
        "}\n"
        "int step(maze_t *env, int32_t action, float *observation) {\n"
        "    float reward;\n"
        "    uint8_t terminal, truncation;\n"
        "    maze_step(env, &action, 1, observation, &reward, &terminal, &truncation);\n"
        "    return reward == 1 && terminal;\n"
        "}\n"
    )
    library = compile_c(source, tmp_path_factory.mktemp("maze"))
    assert library.size() == ctypes.sizeof(State)
    library.begin.argtypes = [ctypes.c_void_p, ctypes.c_uint64, ctypes.c_void_p]
    library.step.argtypes = [ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p]
    return library


def ways(open_: npt.NDArray[np.bool_], goal: tuple[int, int]) -> dict[tuple[int, int], int]:
    """Breadth first from the goal: each cell that leads there, with its distance."""
    distance = {goal: 0}
    queue = collections.deque([goal])
    while queue:
        row, column = queue.popleft()
        for down, right in MOVES:
            cell = (row + int(down), column + int(right))
            if open_[cell] and cell not in distance:
                distance[cell] = distance[row, column] + 1
                queue.append(cell)
    return distance


def test_mazes_are_spanning_trees_and_the_shortest_way_leads_to_the_goal(library: ctypes.CDLL) -> None:
    state, observation = State(), np.zeros(147, np.float32)
    env, out = ctypes.byref(state), observation.ctypes.data
    starts, goals, seen, lengths = np.zeros((SIDE, SIDE)), np.zeros((SIDE, SIDE)), set(), []
    for index in range(1000):
        library.begin(env, index, out)
        open_, start, goal = state.open(), state.place("at"), state.place("goal")
        seen.add(open_.tobytes())
        starts[start] += 1
        goals[goal] += 1
        assert start != goal
        assert open_[1::2, 1::2].all()
        assert not open_[::2, ::2].any()
        assert not open_[[0, -1]].any()
        assert not open_[:, [0, -1]].any()
        assert open_.sum() == 2 * ROOMS**2 - 1  # that many rooms and passages, all of them reached: a tree
        distance = ways(open_, goal)
        assert len(distance) == open_.sum()
        place, length = start, distance[start]
        for left in range(length, 0, -1):
            assert distance[place] == left
            steps = [(place[0] + int(down), place[1] + int(right)) for down, right in MOVES]
            action = next(i for i, cell in enumerate(steps) if distance.get(cell) == left - 1)
            found = library.step(env, action, out)
            assert found == (left == 1)
            place = state.place("at")
        lengths.append(length)
    assert len(seen) == 1000
    for counts in (starts, goals):
        rooms = counts[1::2, 1::2]
        assert rooms.sum() == 1000
        expected = 1000 / ROOMS**2
        assert ((rooms - expected) ** 2 / expected).sum() < 95  # chi-square, 48 degrees of freedom: p < 1e-4
    assert max(lengths) <= 2 * (ROOMS**2 - 1)


def test_the_window_shows_walls_goal_and_trail_around_the_player(library: ctypes.CDLL) -> None:
    rng = np.random.default_rng(0)
    state, observation = State(), np.zeros(147, np.float32)
    env, out = ctypes.byref(state), observation.ctypes.data
    goals_seen = bumps = often = 0
    for index in range(40):
        library.begin(env, index, out)
        open_, goal = state.open(), state.place("goal")
        entered, last = np.zeros((SIDE, SIDE), int), None
        entered[state.place("at")] = 1
        for step in range(120):
            expected = np.zeros((3, SIDE + 6, SIDE + 6), np.float32)
            expected[WALLS] = 1
            expected[:, 3:-3, 3:-3] = ~open_, np.zeros_like(open_), np.minimum(entered, 2) / 3
            expected[GOAL, 3 + goal[0], 3 + goal[1]] = 1
            if last is not None:
                expected[TRAIL, 3 + last[0], 3 + last[1]] = 1
            row, column = place = state.place("at")
            window = observation.reshape(3, 7, 7)
            assert np.allclose(window, expected[:, row : row + 7, column : column + 7], atol=1e-7)
            goals_seen += int(window[GOAL].sum())
            often += int((entered > 1).sum())
            action = int(explore(observation)[0]) if step % 40 < 25 else int(rng.integers(4))
            if library.step(env, action, out):
                assert state.place("at") == goal
                break
            target = row + int(MOVES[action][0]), column + int(MOVES[action][1])
            if open_[target]:
                assert state.place("at") == target
                entered[target] += 1
                last = place
            else:
                assert state.place("at") == place
                bumps += 1
    assert goals_seen > 50
    assert bumps > 50
    assert often > 500


def test_who_explores_by_the_trail_always_arrives() -> None:
    stepper = Stepper("maze", 256, seed=1)
    for _ in range(1000):
        out = stepper.step(explore(stepper.out.observations))
        assert np.array_equal(out.rewards == 1, out.terminals)
        assert not out.truncations.any()
    episodes = stepper.vec.drain_episodes()
    assert len(episodes) > 3000
    assert (episodes.score == 1).all()
    assert 150 < episodes.length.max() <= MAX_FRAMES


def test_chance_seldom_arrives_and_is_truncated() -> None:
    rng = np.random.default_rng(2)
    stepper = Stepper("maze", 512, seed=2)
    truncated = 0
    for _ in range(800):
        out = stepper.step(rng.integers(0, 4, 512, dtype=np.int32))
        assert (out.final_observations[~out.truncations] == SENTINEL).all()
        final = out.final_observations[out.truncations].reshape(-1, 3, 7, 7)
        assert (final[:, GOAL, 3, 3] == 0).all()
        assert (final[:, TRAIL, 3, 3] > 0).all()
        assert ((out.observations >= 0) & (out.observations <= 1)).all()
        truncated += len(final)
    episodes = stepper.vec.drain_episodes()
    assert len(episodes) > 2000
    assert 0.08 < episodes.score.mean() < 0.16
    assert truncated == (episodes.score == 0).sum()
    assert (episodes.length[episodes.score == 0] == MAX_FRAMES).all()
    assert np.array_equal(episodes.score, episodes.return_)


@pytest.mark.parametrize("frame_skip", [2, 7])
def test_a_step_is_its_moves_one_by_one_and_stops_at_the_goal(frame_skip: int) -> None:
    rng = np.random.default_rng(3)
    held, single = Stepper("maze", 300, seed=3, frame_skip=frame_skip), Stepper("maze", 300, seed=3)
    alive = np.ones(300, bool)  # in its first episode; thereafter the two are out of step
    steps = 0
    while alive.any():
        actions = rng.integers(0, 4, 300, dtype=np.int32)
        held.step(actions)
        over, found = np.zeros(300, bool), np.zeros(300, bool)
        for _ in range(frame_skip):
            single.step(actions)
            found |= single.out.terminals & ~over
            over |= single.out.terminals | single.out.truncations
        assert np.array_equal(held.out.terminals[alive], found[alive])
        assert np.array_equal((held.out.terminals | held.out.truncations)[alive], over[alive])
        alive &= ~over
        assert np.array_equal(held.out.observations[alive], single.out.observations[alive])
        steps += 1
    assert steps == -(-MAX_FRAMES // frame_skip)


def test_the_struct_has_no_hidden_bytes(library: ctypes.CDLL) -> None:
    """Two that were seeded alike over different rubbish become the same bytes, so states compare."""
    states = State(), State()
    observation = np.zeros(147, np.float32)
    ctypes.memset(ctypes.byref(states[1]), 0xA5, ctypes.sizeof(State))
    for state in states:
        library.begin(ctypes.byref(state), 5, observation.ctypes.data)
    assert bytes(states[0]) == bytes(states[1])
