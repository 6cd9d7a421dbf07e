"""A picture as half blocks, and as a GIF."""

import io

import numpy as np
from PIL import Image
from rich.console import Console

from protein.view import playback


def test_a_cell_shows_two_pixels() -> None:
    pixels = np.zeros((4, 3, 3), np.uint8)
    pixels[0, 0] = 255, 0, 0
    pixels[3, 2] = 0, 0, 255
    segments = list(playback._half_blocks(pixels, 80, 24).segments)
    rows: list[list[tuple[tuple[int, ...], tuple[int, ...]]]] = [[]]
    for segment in segments:
        if segment.text == "\n":
            rows.append([])
            continue
        assert segment.style is not None and segment.style.color is not None and segment.style.bgcolor is not None
        upper, lower = segment.style.color.triplet, segment.style.bgcolor.triplet
        assert upper is not None and lower is not None
        rows[-1] += [(tuple(upper), tuple(lower))] * len(segment.text)
    black = (0, 0, 0)
    assert rows == [[((255, 0, 0), black), (black,) * 2, (black,) * 2], [(black,) * 2] * 2 + [(black, (0, 0, 255))], []]


def test_a_picture_fits_its_terminal_and_keeps_its_shape() -> None:
    pixels = np.zeros((300, 400, 3), np.uint8)
    pixels[::30] = 200
    for width, height in ((80, 24), (20, 60), (7, 3), (500, 200)):
        console = Console(file=io.StringIO(), width=width, height=height, color_system="truecolor", force_terminal=True)
        console.print(
            playback.playback_view(pixels, width, height, title="t", episode=1, episodes=2, step=3, return_so_far=4.0),
            end="",
        )
        assert isinstance(console.file, io.StringIO)
        plain = [part for part in _plain(console.file.getvalue()).split("\n") if part]
        assert len(plain) <= height and max(map(len, plain)) <= width
        picture = [line for line in plain if "▀" in line]
        if min(width, height) > 6:
            assert abs(len(picture[0]) / (2 * len(picture)) - 400 / 300) < 0.25


def _plain(ansi: str) -> str:
    from rich.text import Text

    return Text.from_ansi(ansi).plain


def test_a_gif_plays_what_was_added() -> None:
    gif = playback.Gif()
    colours = [(250, 10, 10), (10, 250, 10), (10, 10, 250)]
    for colour in colours:
        gif.add(np.full((30, 1200, 3), colour, np.uint8))
    image = Image.open(io.BytesIO(gif.content(0.25)))
    assert (image.format, getattr(image, "n_frames", 1), image.info["duration"], image.info["loop"]) == (
        "GIF",
        3,
        250,
        0,
    )
    assert image.size == (playback.GIF_WIDTH_MAX, 10)
    for number, colour in enumerate(colours):
        image.seek(number)
        assert np.abs(np.asarray(image.convert("RGB"))[5, 200].astype(int) - colour).max() < 8
    assert gif.complete and len(gif) == 3


def test_a_gif_has_an_end() -> None:
    gif = playback.Gif()
    for _ in range(playback.GIF_FRAMES_MAX + 1):
        gif.add(np.zeros((2, 2, 3), np.uint8))
    assert len(gif) == playback.GIF_FRAMES_MAX and not gif.complete


def test_fast_games_show_only_some_of_their_decisions() -> None:
    assert playback.pictures_of(12.0) == (1, 1 / 12)
    assert playback.pictures_of(60.0) == (2, 2 / 60)
    assert playback.pictures_of(0.5) == (1, 2.0)
