"""2048: its moves against a slow reference in lists, its odds, and that good play beats chance by far."""

import ctypes
import functools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from c_compiler import compile_c
from env_buffers import Stepper
from hypothesis import given, settings
from hypothesis import strategies as st

MAX_FRAMES = 20_000
Board = npt.NDArray[np.int64]  # exponents, `4 x 4`, row 0 at the top; 0 is empty
CMove = Callable[[Board, int], tuple[Board, int] | None]


@functools.cache
def merge_line(line: tuple[int, ...]) -> tuple[list[int], int]:
    """Slides a line to its beginning; returns it and the points, tile by tile as a player would."""
    tiles = [tile for tile in line if tile]
    done: list[int] = []
    points = 0
    while tiles:
        tile = tiles.pop(0)
        if tiles and tiles[0] == tile:
            tiles.pop(0)
            tile += 1
            points += 2**tile
        done.append(tile)
    return done + [0] * (4 - len(done)), points


def move(board: Board, action: int) -> tuple[Board, int]:
    quarters = (1, 2, 3, 0)[action]
    turned = np.rot90(board, quarters)  # the wall that is slid to comes to the left
    lines, points = zip(*(merge_line(tuple(row)) for row in turned.tolist()), strict=True)
    return np.rot90(np.array(lines), -quarters), sum(points)


def moves(board: Board) -> dict[int, tuple[Board, int]]:
    """What each possible action leads to, before the new tile."""
    after = {action: move(board, action) for action in range(4)}
    return {action: result for action, result in after.items() if (result[0] != board).any()}


def next_possible(possible: dict[int, tuple[Board, int]], action: int) -> int:
    return next(turn % 4 for turn in range(action, action + 4) if turn % 4 in possible)


def read(observations: npt.NDArray[np.float32]) -> Board:
    """Boards `agents x 4 x 4` of observations; every cell must be one-hot."""
    planes = observations.reshape(-1, 16, 4, 4)
    assert np.isin(planes, (0, 1)).all()
    assert (planes.sum(axis=1) == 1).all()
    boards: Board = planes.argmax(axis=1)
    return boards


SNAKE = np.array([[0, 1, 2, 3], [7, 6, 5, 4], [8, 9, 10, 11], [15, 14, 13, 12]])
WEIGHTS = 0.5**SNAKE


def tidy(board: Board) -> int:
    """Keeps large tiles in order along a snake from one corner."""
    return max(moves(board).items(), key=lambda result: float((WEIGHTS * 2.0 ** result[1][0]).sum()))[0]


@pytest.fixture(scope="module")
def c_move(tmp_path_factory: pytest.TempPathFactory) -> CMove:
    """The header's move on any board, without the new tile; None where nothing moves."""
    library = compile_c(
        '#include "g2048.h"\n'
        "int move(uint8_t cells[16], int32_t action, int32_t *points, int *can_move) {\n"
        "    uint32_t rows[4] = {0, 0, 0, 0};\n"
        "    for (int i = 0; i < 16; ++i) rows[i / 4] |= (uint32_t)cells[i] << (8 * (i % 4));\n"
        "    *can_move = g2048_can_move(rows);\n"
        "    const int moved = g2048_move(rows, action, points);\n"
        "    for (int i = 0; i < 16; ++i) cells[i] = (uint8_t)(rows[i / 4] >> (8 * (i % 4)));\n"
        "    return moved;\n"
        "}\n",
        tmp_path_factory.mktemp("g2048"),
    )

    def call(board: Board, action: int) -> tuple[Board, int] | None:
        cells = (ctypes.c_uint8 * 16)(*board.ravel().tolist())
        points, can_move = ctypes.c_int32(), ctypes.c_int()
        moved = library.move(cells, action, ctypes.byref(points), ctypes.byref(can_move))
        assert bool(can_move) == bool(moves(board))
        assert can_move or not moved
        return (np.array(cells, np.int64).reshape(4, 4), points.value) if moved else None

    return call


TILE = st.sampled_from([0, 0, 0, 1, 1, 2, 2, 3, 11, 15, 16])


@settings(max_examples=400, deadline=None)
@given(cells=st.lists(TILE, min_size=16, max_size=16) | st.lists(st.integers(1, 16), min_size=16, max_size=16))
def test_a_move_of_any_board_is_the_references(c_move: CMove, cells: list[int]) -> None:
    board = np.array(cells).reshape(4, 4)
    if not board.any():
        return  # no game has an empty board
    possible = moves(board)
    for action in range(4):
        result = c_move(board, action)
        assert (result is not None) == (action in possible)
        if result is not None:
            assert result[0].tolist() == possible[action][0].tolist()
            assert result[1] == possible[action][1]


def test_games_follow_the_rules_and_new_tiles_the_odds() -> None:
    rng = np.random.default_rng(0)
    stepper = Stepper("g2048", 64, seed=1)
    points, length = np.zeros(64), np.zeros(64, int)
    seen = []
    new, where = np.zeros(3, int), np.zeros(16, int)
    replaced = 0
    for _ in range(250):
        before = read(stepper.out.observations)
        actions = rng.integers(0, 4, 64, dtype=np.int32)
        after = read(stepper.step(actions).observations)
        for env in range(64):
            possible = moves(before[env])
            action = next_possible(possible, int(actions[env]))
            replaced += action != actions[env]
            slid, gained = possible[action]
            points[env] += gained
            length[env] += 1
            assert stepper.out.rewards[env] == gained / 256
            over = bool(stepper.out.terminals[env])
            if over:
                seen.append((env, points[env], length[env]))
                points[env] = length[env] = 0
                assert np.count_nonzero(after[env]) == 2
                assert after[env].max() <= 2
                continue
            assert moves(after[env])
            (cell,) = np.flatnonzero(after[env] != slid)
            assert slid.flat[cell] == 0
            new[after[env].flat[cell]] += 1
            # Among the empty cells, which one: as good as uniform where they are counted from the first on.
            where[int(np.count_nonzero(slid.flat[:cell] == 0) * 16 / np.count_nonzero(slid == 0))] += 1
    episodes = stepper.vec.drain_episodes()
    assert list(zip(episodes.agent, episodes.score, episodes.length, strict=True)) == seen
    assert len(seen) > 60
    assert replaced > 600
    total = new.sum()
    assert new[0] == 0
    assert new[2] / total == pytest.approx(0.1, abs=4 * (0.09 / total) ** 0.5)
    assert 900 < episodes.score.mean() < 1300  # chance
    assert where.sum() == total


def test_every_empty_cell_is_equally_likely() -> None:
    stepper = Stepper("g2048", 60_000, seed=2)
    first = read(stepper.out.observations)
    counts = (first > 0).sum(axis=0).ravel()
    expected = 2 * 60_000 / 16
    assert ((counts - expected) ** 2 / expected).sum() < 45  # chi-square, 15 degrees of freedom: p < 1e-4
    fours = (first == 2).sum() / 120_000
    assert fours == pytest.approx(0.1, abs=0.004)


def test_who_keeps_the_board_tidy_beats_chance_several_times() -> None:
    stepper = Stepper("g2048", 12, seed=3)
    for _ in range(500):
        stepper.step(np.array([tidy(board) for board in read(stepper.out.observations)], np.int32))
    episodes = stepper.vec.drain_episodes()
    print(len(episodes), episodes.score.mean(), episodes.length.mean())
    assert episodes.score.mean() > 3000


@pytest.mark.parametrize("frame_skip", [2, 5])
def test_a_step_is_its_moves_one_by_one_and_stops_at_the_end(frame_skip: int) -> None:
    rng = np.random.default_rng(4)
    held, single = Stepper("g2048", 64, seed=4, frame_skip=frame_skip), Stepper("g2048", 64, seed=4)
    alive = np.ones(64, bool)  # in its first game; thereafter the two are out of step
    while alive.any():
        actions = rng.integers(0, 4, 64, dtype=np.int32)
        held.step(actions)
        rewards, over = np.zeros(64, np.float32), np.zeros(64, bool)
        for _ in range(frame_skip):
            single.step(actions)
            rewards += np.where(over, 0, single.out.rewards)
            over |= single.out.terminals
        assert np.array_equal(held.out.rewards[alive], rewards[alive])
        assert np.array_equal(held.out.terminals[alive], over[alive])
        alive &= ~over
        assert np.array_equal(held.out.observations[alive], single.out.observations[alive])


def test_the_clock_truncates_and_a_lost_game_at_that_very_move_is_terminal(tmp_path: Path) -> None:
    """No simple player lasts 20,000 moves, so the clock is put forward."""
    library = compile_c(
        '#include "g2048.h"\n'
        "int ends(int32_t frames, uint8_t fill, int32_t frame_skip, int32_t *length) {\n"
        "    g2048_t env;\n"
        "    uint8_t observation[G2048_OBSERVATION_SIZE];\n"
        "    float reward, score, return_;\n"
        "    uint8_t terminal = 7, truncation = 7;\n"
        "    const int32_t action = 3;\n"
        "    memset(&env, 0, sizeof env);\n"
        "    g2048_seed(&env, 1, 2);\n"
        "    g2048_reset(&env, observation);\n"
        "    env.frames = frames;\n"
        "    if (fill) {\n"  # one merge is possible, and after it none but with the new tile, which is 1 or 2
        "        const uint32_t rows[4] = {0x06050303, 0x06050605, 0x05060506, 0x06050605};\n"
        "        memcpy(env.rows, rows, sizeof rows);\n"
        "    }\n"
        "    g2048_step(&env, &action, frame_skip, observation, &reward, &terminal, &truncation);\n"
        "    g2048_episode(&env, &score, &return_, length);\n"
        "    return env.frames << 8 | terminal << 4 | truncation;\n"
        "}\n",
        tmp_path,
    )

    def ends(frames: int, fill: bool, frame_skip: int) -> tuple[int, int, int]:
        length = ctypes.c_int32()
        bits = library.ends(frames, fill, frame_skip, ctypes.byref(length))
        assert length.value == 1
        return bits >> 8, bits >> 4 & 15, bits & 15

    assert ends(MAX_FRAMES - 2, False, 1) == (MAX_FRAMES - 1, 0, 0)
    assert ends(MAX_FRAMES - 1, False, 1) == (MAX_FRAMES, 0, 1)
    assert ends(MAX_FRAMES - 3, False, 8) == (MAX_FRAMES, 0, 1)
    assert ends(MAX_FRAMES - 1, True, 1) == (MAX_FRAMES, 1, 0)
    assert ends(5, True, 8) == (6, 1, 0)
