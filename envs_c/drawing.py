"""Pictures of the environments, for people: `frame(envs, observations)` draws the first instance of a batch.

Each environment has one function. It draws from the agents' current observations, or from the state where these do not
show enough (in the maze and in snake, agents see only what is near). An environment without a function is drawn as bars
of its observation. Needs Pillow, which `envs_c` itself does not.

Notation: `H x W x 3` pixels of uint8; courts have x and y in [-1, 1], y upwards.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFont

from protein import envs_c

__all__ = ["FRAMES_PER_SECOND", "frame"]

Observation = npt.NDArray[Any]  # float32, or uint8
Pixels = npt.NDArray[np.uint8]
Colour = tuple[int, int, int]

# How many frames of each game are pleasant to watch; the physical ones run at their own speed.
FRAMES_PER_SECOND = {
    "arena": 20.0,
    "breakout": 60.0,
    "cartpole": 50.0,
    "entities": 20.0,
    "frontier": 10.0,
    "g2048": 4.0,
    "maze": 8.0,
    "memory": 3.0,
    "pendulum": 20.0,
    "pong": 60.0,
    "pong2": 60.0,
    "snake": 8.0,
}

BACKGROUND: Colour = (18, 20, 28)
FAINT: Colour = (52, 57, 72)
LIGHT: Colour = (236, 239, 244)
AMBER: Colour = (255, 196, 84)
BLUE: Colour = (94, 170, 255)
GREEN: Colour = (108, 214, 130)
RED: Colour = (255, 107, 107)
VIOLET: Colour = (190, 140, 255)

_SMOOTH = 2  # factor by which pictures are drawn larger and then shrunk, which smooths edges
_STATE_HEADER = 80  # bytes of `VecEnv.get_state` before the first instance's struct; its size is the 8 after byte 40


def frame(envs: envs_c.VecEnv, observations: Observation) -> Pixels:
    """Draws the first instance of a batch.

    Args:
        envs: the batch.
        observations: the current ones, `num_agents x observation_size`.

    Returns:
        A new array, `H x W x 3`.
    """
    spec = envs.spec
    rows = observations[: spec.agents_per_env]
    if spec.name in _FROM_STATE:
        return _FROM_STATE[spec.name](envs)
    return _FROM_OBSERVATION.get(spec.name, _bars)(rows[0])


class _Canvas:
    """A picture in the coordinates of a court: x from -width to +width, y from -height to +height, upwards."""

    def __init__(self, width: float, height: float, pixels_per_unit: int) -> None:
        self._scale = pixels_per_unit * _SMOOTH
        self._size = round(2 * width * self._scale), round(2 * height * self._scale)
        self._image = Image.new("RGB", self._size, BACKGROUND)
        self._draw = ImageDraw.Draw(self._image)

    def _at(self, x: float, y: float) -> tuple[float, float]:
        return self._size[0] / 2 + x * self._scale, self._size[1] / 2 - y * self._scale

    def box(
        self, x: float, y: float, half_width: float, half_height: float, colour: Colour, radius: float = 0.0
    ) -> None:
        left, top = self._at(x - half_width, y + half_height)
        right, bottom = self._at(x + half_width, y - half_height)
        right, bottom = max(right - 1, left), max(bottom - 1, top)
        self._draw.rounded_rectangle((left, top, right, bottom), radius * self._scale, fill=colour)

    def disc(self, x: float, y: float, radius: float, colour: Colour) -> None:
        (x, y), radius = self._at(x, y), radius * self._scale
        self._draw.ellipse((x - radius, y - radius, x + radius, y + radius), fill=colour)

    def line(self, points: list[tuple[float, float]], width: float, colour: Colour) -> None:
        self._draw.line([self._at(*point) for point in points], fill=colour, width=round(width * self._scale))

    def text(self, x: float, y: float, words: str, height: float, colour: Colour) -> None:
        font = ImageFont.load_default(round(height * self._scale))
        self._draw.text(self._at(x, y), words, fill=colour, font=font, anchor="mm")

    def pixels(self) -> Pixels:
        return np.array(self._image.reduce(_SMOOTH))


def _pong(seen: Observation) -> Pixels:
    player, opponent, ball_x, ball_y = seen[:4]
    canvas = _Canvas(1.12, 1.08, 140)
    for y in (-1.06, 1.06):
        canvas.box(0, y, 1.12, 0.01, FAINT)
    for y in np.linspace(-0.95, 0.95, 16):
        canvas.box(0, y, 0.008, 0.03, FAINT)
    canvas.text(-0.3, 0.85, f"{round(seen[7] * 21)}", 0.22, FAINT)
    canvas.text(0.3, 0.85, f"{round(seen[6] * 21)}", 0.22, FAINT)
    canvas.box(-1.04, opponent, 0.025, 0.1875, RED, 0.02)
    canvas.box(1.04, player, 0.025, 0.1875, GREEN, 0.02)
    canvas.disc(ball_x, ball_y, 0.035, LIGHT)
    return canvas.pixels()


def _breakout(seen: Observation) -> Pixels:
    paddle, ball_x, ball_y = seen[:3]
    bricks = seen[6:].reshape(6, 12)
    canvas = _Canvas(1.06, 1.1, 140)
    canvas.box(0, -0.02, 1.045, 1.06, FAINT)
    canvas.box(0, -0.04, 1.03, 1.07, BACKGROUND)
    for (row, column), stands in np.ndenumerate(bricks):
        if stands:
            colour = (BLUE, GREEN, AMBER)[row // 2]
            canvas.box((column - 5.5) / 6, (8 + 2 * row + 0.5) / 32, 1 / 12 - 0.008, 1 / 32 - 0.006, colour, 0.01)
    for ball in range(round(seen[5] * 3) - 1):  # those in reserve
        canvas.disc(-0.98 + 0.08 * ball, 1.07, 0.022, LIGHT)
    canvas.box(paddle, -1.03, 0.15625, 0.025, LIGHT, 0.02)
    canvas.disc(ball_x, ball_y, 0.03, RED)
    return canvas.pixels()


def _cartpole(seen: Observation) -> Pixels:
    x, angle = float(seen[0]), float(seen[2])
    canvas = _Canvas(2.6, 1.0, 70)
    canvas.box(0, -0.62, 2.4, 0.012, FAINT)
    for end in (-2.4, 2.4):
        canvas.box(end, -0.62, 0.015, 0.12, FAINT)
    canvas.box(x, -0.5, 0.28, 0.12, BLUE, 0.05)
    canvas.line([(x, -0.4), (x + 1.1 * np.sin(angle), -0.4 + 1.1 * np.cos(angle))], 0.08, AMBER)
    canvas.disc(x, -0.4, 0.05, LIGHT)
    return canvas.pixels()


def _pendulum(seen: Observation) -> Pixels:
    cosine, sine, spin = (float(value) for value in seen)
    canvas = _Canvas(1.2, 1.2, 120)
    canvas.disc(0, 0, 1.04, FAINT)
    canvas.disc(0, 0, 1.03, BACKGROUND)
    # Positive angles turn anticlockwise from upright.
    canvas.line([(0, 0), (-0.9 * sine, 0.9 * cosine)], 0.16, RED)
    canvas.disc(-0.9 * sine, 0.9 * cosine, 0.08, RED)
    canvas.disc(0, 0, 0.07, LIGHT)
    canvas.box(spin / 8 / 2, -1.14, abs(spin) / 8 / 2, 0.025, VIOLET)
    return canvas.pixels()


def _g2048(seen: Observation) -> Pixels:
    planes = seen.reshape(16, 4, 4)
    canvas = _Canvas(1.1, 1.1, 120)
    for row in range(4):
        for column in range(4):
            x, y = (column - 1.5) * 0.52, (1.5 - row) * 0.52
            exponent = int(planes[:, row, column].argmax())
            canvas.box(x, y, 0.24, 0.24, _tile(exponent), 0.04)
            if exponent:
                words = f"{2**exponent}" if exponent < 15 else "32k+"
                canvas.text(x, y, words, 0.24 if len(words) < 3 else 0.46 / len(words) * 1.2, BACKGROUND)
    return canvas.pixels()


def _tile(exponent: int) -> Colour:
    """From pale through amber to red and violet as tiles grow; faint for an empty cell."""
    stops = (LIGHT, AMBER, RED, VIOLET)
    if exponent == 0:
        return FAINT
    place = min((exponent - 1) / 11, 1.0) * (len(stops) - 1)
    low = min(int(place), len(stops) - 2)
    mixed = np.array(stops[low]) * (1 - (place - low)) + np.array(stops[low + 1]) * (place - low)
    red, green, blue = (int(value) for value in mixed)
    return red, green, blue


def _memory(seen: Observation) -> Pixels:
    canvas = _Canvas(1.1, 1.1, 120)
    cue, question = seen[4] > 0, seen[5] > 0
    if cue:
        canvas.box(0, 0, 1.0, 1.0, FAINT, 0.1)
        canvas.box(0, 0, 0.93, 0.93, BACKGROUND, 0.1)
    if question:
        canvas.text(0, 0, "?", 1.4, LIGHT)
    elif seen[:4].any():
        symbol = int(seen[:4].argmax())
        canvas.disc(0, 0, 0.6, (BLUE, GREEN, AMBER, RED)[symbol])
        canvas.text(0, 0, "ABCD"[symbol], 0.7, BACKGROUND)
    return canvas.pixels()


_MAZE = np.dtype(
    {
        "names": ["rng", "at", "goal", "back", "found", "frames", "decisions", "cells", "unused"],
        "formats": ["u8", "i4", "i4", "i4", "i4", "i4", "i4", ("u1", (19, 19)), ("u1", 7)],
    },
    align=True,
)


def _maze(envs: envs_c.VecEnv) -> Pixels:
    state = _struct(envs, _MAZE)
    cells = state["cells"]
    picture = np.full((*cells.shape, 3), BACKGROUND, np.uint8)
    picture[cells == 1] = (40, 66, 58)  # entered once
    picture[cells == 2] = (66, 104, 84)  # more often
    picture[cells == 3] = FAINT
    picture[np.unravel_index(int(state["goal"]), cells.shape)] = AMBER
    picture[np.unravel_index(int(state["at"]), cells.shape)] = GREEN
    return _grid(picture[2:-2, 2:-2], 18)  # without the margin


_SNAKE_BODY = np.dtype(
    {
        "names": ["head", "length", "target", "heading", "eaten", "frames", "decisions", "cells"],
        "formats": ["u2", "u2", "u2", "u2", "i4", "i4", "i4", ("u2", 128)],
    },
    align=True,
)
_SNAKE = np.dtype(
    {
        "names": ["rng", "food", "bodies", "map"],
        "formats": ["u8", "i4", (_SNAKE_BODY, 256), ("u1", (202, 202))],
    },
    align=True,
)

_SNAKE_VIEW = 36  # cells; those of the map begin at 5, behind the walls


def _snake(envs: envs_c.VecEnv) -> Pixels:
    """The surroundings of the first snake, which is green. The cells of the whole map would be too small to see."""
    state = _struct(envs, _SNAKE)
    cells = state["map"]
    picture = np.full((*cells.shape, 3), BACKGROUND, np.uint8)
    picture[cells == 1] = AMBER
    picture[cells == 2] = FAINT  # walls; the snakes are drawn over them
    flat = picture.reshape(-1, 3)
    for number, body in enumerate(state["bodies"]):
        length, head = int(body["length"]), int(body["head"])
        if length:
            ring = body["cells"]
            flat[ring[(head - np.arange(length)) % len(ring)]] = (BLUE, RED, VIOLET)[number % 3] if number else GREEN
            flat[ring[head]] = LIGHT
    first = state["bodies"][0]
    row, column = np.unravel_index(int(first["cells"][int(first["head"])]), cells.shape)
    top, left = (
        int(np.clip(at - _SNAKE_VIEW // 2, 4, side - 4 - _SNAKE_VIEW))
        for at, side in zip((row, column), cells.shape, strict=True)
    )
    return _grid(picture[top : top + _SNAKE_VIEW, left : left + _SNAKE_VIEW], 10)


_FRONTIER_AGENT = np.dtype(
    [(name, "i4") for name in ("at", "age", "decisions", "restored", "gathered", "wasted", "dealt")]
    + [("uses", "u2", 3), ("fed", "i2"), ("watered", "i2"), ("pack", "u1", 4)]
    + [(name, "u1") for name in ("state", "health", "struck", "did", "blocked", "moved")]
)
_FRONTIER = np.dtype(
    [("rng", "u8"), ("frames", "i4"), ("held", "i4", 4), ("home", "i4", 4), ("next", "i4", 4)]
    + [("agents", _FRONTIER_AGENT, 128), ("holder", "u2", (138, 138))]
    + [(plane, "u1", (138, 138)) for plane in ("ground", "barrier", "folk")]
)
_FRONTIER_GOODS = np.array([BACKGROUND, (63, 111, 74), (47, 95, 134), (107, 85, 64), (92, 95, 115)], np.uint8)
_FRONTIER_VIEW = 40  # tiles


def _frontier(envs: envs_c.VecEnv) -> Pixels:
    """The land around the first learning agent that lives. It is green, its tribe blue, and who struck is pale."""
    state = _struct(envs, _FRONTIER)
    ground, barrier, agents = state["ground"], state["barrier"], state["agents"]
    picture = _FRONTIER_GOODS[np.where(ground % 16, ground // 16, 0)]
    flat = picture.reshape(-1, 3)
    flat[state["home"]] = np.where(flat[state["home"]] == BACKGROUND, (77, 81, 99), flat[state["home"]])
    picture[barrier > 0] = (141, 147, 165)
    picture[barrier == 16] = FAINT  # the land's edge
    living = np.flatnonzero(agents["state"] == 1)
    for slot in living[::-1]:
        agent = agents[slot]
        tribe = (BLUE, RED, AMBER, VIOLET)[slot // 32]
        flat[agent["at"]] = LIGHT if agent["did"] == 4 else GREEN if slot == living[0] else tribe
    middle = int(agents["at"][living[0]]) if len(living) and living[0] < 32 else int(state["home"][0])
    top, left = (int(np.clip(at - _FRONTIER_VIEW // 2, 4, 134 - _FRONTIER_VIEW)) for at in divmod(middle, 138))
    return _grid(picture[top : top + _FRONTIER_VIEW, left : left + _FRONTIER_VIEW], 10)


def _entities(seen: Observation) -> Pixels:
    """The field as the first agent sees it, which is all of it. That agent is green. One that has just acted is
    pale."""
    here = seen[:2]
    allies, creatures, crystals = seen[8:57].reshape(7, 7), seen[57:201].reshape(24, 6), seen[201:].reshape(24, 2)
    canvas = _Canvas(1.1, 1.1, 170)
    canvas.box(0, 0, 1.06, 1.06, FAINT)
    canvas.box(0, 0, 1.05, 1.05, BACKGROUND)
    for dx, dy in crystals:
        canvas.box(here[0] + 2 * dx, here[1] + 2 * dy, 0.013, 0.013, VIOLET)
    for dx, dy, health, *_ in creatures:
        canvas.disc(here[0] + 2 * dx, here[1] + 2 * dy, 0.014 + 0.014 * health, RED)
    # As an ally's: dx, dy, health, charges, wait, whether it stands.
    own = np.array([0, 0, *seen[2:6]], np.float32)
    for number, (dx, dy, health, _, wait, stands) in enumerate([*allies[:, :6], own]):
        x, y = here[0] + 2 * dx, here[1] + 2 * dy
        colour = GREEN if number == len(allies) else BLUE
        canvas.disc(x, y, 0.04, (LIGHT if wait > 0.7 else colour) if stands else FAINT)
        canvas.box(x, y + 0.06, 0.05, 0.008, FAINT)
        canvas.box(x - 0.05 * (1 - health), y + 0.06, 0.05 * health, 0.008, colour)
    return canvas.pixels()


def _arena(seen: Observation) -> Pixels:
    """The field as the first agent sees it, which is all of it. That agent is green, its team blue. One that has just
    acted is pale."""
    here = seen[:2]
    others, crystals = seen[8:57].reshape(7, 7), seen[57:].reshape(8, 3)
    canvas = _Canvas(1.1, 1.1, 170)
    canvas.box(0, 0, 1.06, 1.06, FAINT)
    canvas.box(0, 0, 1.05, 1.05, BACKGROUND)
    for dx, dy, growing in crystals:
        canvas.box(here[0] + 2 * dx, here[1] + 2 * dy, 0.02, 0.02, FAINT if growing else VIOLET)
    own = np.array([0, 0, *seen[2:5], seen[2] > 0], np.float32)
    for number, (dx, dy, health, _, wait, stands) in enumerate([*others[:, :6], own]):
        x, y = here[0] + 2 * dx, here[1] + 2 * dy
        colour = GREEN if number == 7 else BLUE if number < 3 else RED
        canvas.disc(x, y, 0.04, (LIGHT if wait > 0.7 else colour) if stands else FAINT)
        canvas.box(x, y + 0.06, 0.05, 0.008, FAINT)
        canvas.box(x - 0.05 * (1 - health), y + 0.06, 0.05 * health, 0.008, colour)
    return canvas.pixels()


def _bars(seen: Observation) -> Pixels:
    """Any observation: a bar for each number, upwards where it is positive; at most 96 of them."""
    values = seen[:96]
    limit = max(float(np.abs(values).max()), 1e-6)
    canvas = _Canvas(1.5, 1.0, 100)
    width = 2.8 / len(values)
    for number, value in enumerate(values / limit):
        canvas.box(-1.4 + (number + 0.5) * width, value * 0.45, width * 0.45, abs(value) * 0.45, BLUE)
    return canvas.pixels()


def _grid(cells: Pixels, pixels_per_cell: int) -> Pixels:
    return cells.repeat(pixels_per_cell, axis=0).repeat(pixels_per_cell, axis=1)


def _struct(envs: envs_c.VecEnv, kind: np.dtype[np.void]) -> np.void:
    """Returns the first instance's C struct; raises ValueError where the header has changed but `kind` has not."""
    state = envs.get_state()
    size = int.from_bytes(state[40:48], "little")
    if size != kind.itemsize:
        raise ValueError(f"{envs.spec.name}: its struct has {size} bytes, its drawing expects {kind.itemsize}")
    struct: np.void = np.frombuffer(state, kind, 1, _STATE_HEADER)[0]
    return struct


_FROM_OBSERVATION: dict[str, Callable[[Observation], Pixels]] = {
    "arena": _arena,
    "breakout": _breakout,
    "cartpole": _cartpole,
    "entities": _entities,
    "g2048": _g2048,
    "memory": _memory,
    "pendulum": _pendulum,
    "pong": _pong,
    "pong2": _pong,
}
_FROM_STATE: dict[str, Callable[[envs_c.VecEnv], Pixels]] = {"frontier": _frontier, "maze": _maze, "snake": _snake}
