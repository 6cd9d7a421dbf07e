"""Pictures show what is the case: each thing in its place, read back from the pixels."""

import numpy as np
import pytest
from env_buffers import GAMES

from protein import envs_c
from protein.envs_c import drawing
from protein.envs_c.drawing import AMBER, BLUE, GREEN, LIGHT, RED, frame


class Game:
    """One instance, its observations and its picture."""

    def __init__(self, name: str, seed: int = 1) -> None:
        self.envs = envs_c.VecEnv(name, 1)
        self.agents = self.envs.num_agents
        self.observations = np.zeros((self.agents, self.envs.spec.observation_size), self.envs.spec.observation_dtype)
        self.envs.reset(seed, self.observations)

    def step(self, actions: float) -> None:
        spec = self.envs.spec
        shape = (self.agents, spec.action_components)
        rows = np.full(shape, actions, np.float32) if spec.continuous_actions else np.full(shape, actions, np.int32)
        ends = np.zeros((2, self.agents), np.bool_)
        self.envs.step(rows, self.observations, np.zeros(self.agents, np.float32), ends[0], ends[1])

    def picture(self) -> np.ndarray:
        return frame(self.envs, self.observations)


def place(picture: np.ndarray, colour: tuple[int, int, int]) -> tuple[float, float]:
    """The middle of the pixels of a colour, as x and y in [-1, 1] of the whole picture, y upwards."""
    rows, columns = np.nonzero((picture == colour).all(axis=2))
    height, width = picture.shape[:2]
    return 2 * (columns.mean() + 0.5) / width - 1, 1 - 2 * (rows.mean() + 0.5) / height


@pytest.mark.parametrize("name", GAMES)
def test_every_environment_has_pictures_that_move(name: str) -> None:
    game = Game(name)
    first = game.picture()
    assert first.dtype == np.uint8 and first.ndim == 3 and first.shape[2] == 3
    assert min(first.shape[:2]) >= 64 and max(first.shape[:2]) <= 640
    for step in range(8):
        game.step(step % (game.envs.spec.action_sizes or (2,))[0])
    later = game.picture()
    assert later.shape == first.shape
    assert (later != first).any()
    np.testing.assert_array_equal(later, game.picture())  # looking changes nothing


def test_pong_shows_ball_and_paddles_where_they_are() -> None:
    game = Game("pong")
    for _ in range(25):
        game.step(1)
    seen, picture = game.observations[0], game.picture()
    wide, high = 1.12, 1.08
    np.testing.assert_allclose(place(picture, LIGHT), (seen[2] / wide, seen[3] / high), atol=0.02)
    np.testing.assert_allclose(place(picture, GREEN), (1.04 / wide, seen[0] / high), atol=0.02)
    np.testing.assert_allclose(place(picture, RED), (-1.04 / wide, seen[1] / high), atol=0.02)


def test_breakout_shows_the_bricks_that_stand() -> None:
    game = Game("breakout")
    whole = (game.picture() == AMBER).all(axis=2).sum()
    game.observations[0, 6 + 4 * 12 : 6 + 5 * 12] = 0  # the fifth row, half of the amber ones
    assert (game.picture() == AMBER).all(axis=2).sum() == pytest.approx(whole / 2, rel=0.01)


def test_the_pole_and_the_rod_lean_as_they_should() -> None:
    pole = Game("cartpole")
    for angle in (-0.2, 0.2):
        pole.observations[0] = 0, 0, angle, 0
        picture = pole.picture()
        assert np.sign(place(picture, AMBER)[0] - place(picture, BLUE)[0]) == np.sign(angle)  # right is positive
    rod = Game("pendulum")
    for cosine, sine in ((1, 0), (-1, 0), (0, 1), (0, -1)):
        rod.observations[0] = cosine, sine, 0
        x, y = place(rod.picture(), RED)
        np.testing.assert_allclose((x, y), np.array([-sine, cosine]) * y_reach(x, y), atol=0.03)


def y_reach(x: float, y: float) -> float:
    return float(np.hypot(x, y))


def test_2048_shows_each_tile_in_its_cell() -> None:
    game = Game("g2048")
    planes = np.zeros((16, 4, 4), np.float32)
    planes[0] = 1
    planes[:, 1, 3] = np.eye(16)[1]
    game.observations[0] = planes.ravel()
    picture = game.picture()
    x, y = place(picture, LIGHT)
    assert (x, y) == pytest.approx((1.5 * 0.52 / 1.1, 0.5 * 0.52 / 1.1), abs=0.02)


def test_the_maze_is_the_one_that_is_seen() -> None:
    game = Game("maze")
    for step in range(40):
        walls, goals, _ = game.observations[0].reshape(3, 7, 7)
        cells = game.picture()[9::18, 9::18]  # one pixel of each cell
        (row,), (column,) = np.nonzero((cells == GREEN).all(axis=2))
        for i in range(7):
            for j in range(7):
                at = row + i - 3, column + j - 3
                if 0 <= at[0] < len(cells) and 0 <= at[1] < len(cells) and (i, j) != (3, 3):
                    assert (cells[at] == drawing.FAINT).all() == bool(walls[i, j])
                    assert (cells[at] == AMBER).all() == bool(goals[i, j])
        game.step(step // 5 % 4)


def test_the_snake_in_the_middle_is_the_first() -> None:
    game, compared = Game("snake"), 0
    for step in range(200):
        game.step(step % 17 == 0)
        cells = game.picture()[5::10, 5::10]
        food, solid, _ = game.observations[0].reshape(3, 11, 11).astype(bool)
        if (cells[18, 18] != LIGHT).any():
            continue  # near the map's edge: the view stays on the map
        # What its head has around it is what is drawn there, in one of four directions.
        window = cells[13:24, 13:24]
        drawn_food = (window == AMBER).all(axis=2)
        drawn_solid = ~drawn_food & (window != drawing.BACKGROUND).any(axis=2)
        head = (window == LIGHT).all(axis=2)  # may be of a snake that has just come: it is seen a step later
        assert any(
            (np.rot90(drawn_food, turn) == food).all()
            and (np.rot90(drawn_solid, turn) == solid)[~np.rot90(head, turn)].all()
            for turn in range(4)
        )
        compared += 1
    assert compared > 20


def test_entities_are_where_the_first_agent_sees_them() -> None:
    game = Game("entities")
    for _ in range(30):
        game.step(0)
    seen = game.observations[0]
    picture = game.picture()

    def at(x: float, y: float) -> np.ndarray:
        size = len(picture)
        pixel: np.ndarray = picture[int((1 - y / 1.1) / 2 * size), int((1 + x / 1.1) / 2 * size)]
        return pixel

    x, y = seen[:2]
    assert (at(x, y) == GREEN).all()
    assert sum((at(x + 2 * dx, y + 2 * dy) == BLUE).all() for dx, dy, *_ in seen[8:57].reshape(7, 7)) >= 6
    assert sum((at(x + 2 * dx, y + 2 * dy) == RED).all() for dx, dy, *_ in seen[57:201].reshape(24, 6)) >= 20
    assert sum((at(x + 2 * dx, y + 2 * dy) == drawing.VIOLET).all() for dx, dy in seen[201:].reshape(24, 2)) >= 18


def test_what_has_no_drawing_of_its_own_is_drawn_as_bars() -> None:
    picture = drawing._bars(np.array([1, -1, 0.5], np.float32))
    columns = [(picture[:, x] == BLUE).all(axis=1) for x in (50, 150, 250)]
    middle = len(picture) // 2
    assert [column[:middle].sum() > 0 for column in columns] == [True, False, True]
    assert columns[0].sum() == pytest.approx(2 * columns[2].sum(), abs=4)
    drawing._bars(np.zeros(1000, np.float32))


def test_a_struct_that_has_changed_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawing, "_MAZE", np.dtype("u8"))
    with pytest.raises(ValueError, match=r"maze: its struct has [0-9]+ bytes, its drawing expects 8"):
        Game("maze").picture()
