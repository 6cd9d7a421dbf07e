"""Pictures as text for a terminal, and as a GIF.

A character cell shows two pixels, one above the other: the half block's color and its background's.
"""

import functools
import io
import itertools
import math

import numpy as np
import numpy.typing as npt
from PIL import Image
from rich.color import Color
from rich.console import Group, RenderableType
from rich.segment import Segment, Segments
from rich.style import Style
from rich.text import Text

from protein.view import text

Pixels = npt.NDArray[np.uint8]  # `H x W x 3`

MAX_PICTURES_PER_SECOND = 30.0  # terminals and browsers show hardly more
GIF_FRAMES_MAX = 1000
GIF_WIDTH_MAX = 400  # pixels
GIF_COLOURS = 64
_HALF_BLOCK = "\N{UPPER HALF BLOCK}"


def pictures_of(decisions_per_second: float) -> tuple[int, float]:
    """Returns the number of decisions for each picture, at least 1, and the seconds that it is shown."""
    stride = max(1, math.ceil(decisions_per_second / MAX_PICTURES_PER_SECOND))
    return stride, stride / decisions_per_second


def playback_view(
    pixels: Pixels, width: int, height: int, *, title: str, episode: int, episodes: int, step: int, return_so_far: float
) -> RenderableType:
    """Returns a picture as large as fits `width x height` characters, and a line below it."""
    line = f"{title}  episode {episode} of {episodes}  step {step:,}  return {text.score(return_so_far)}"
    return Group(_half_blocks(pixels, width, height - 1), Text(text.shorten(line, width), no_wrap=True))


def _half_blocks(pixels: Pixels, width: int, height: int) -> Segments:
    """Returns the picture in lines of half blocks, at most `width x height`, its shape kept."""
    scale = min(width / pixels.shape[1], 2 * height / pixels.shape[0], 1.0)
    columns, rows = max(1, int(pixels.shape[1] * scale)), max(1, int(pixels.shape[0] * scale / 2))
    small = np.asarray(Image.fromarray(pixels).resize((columns, 2 * rows), Image.Resampling.BOX))
    segments = []
    for upper, lower in zip(small[::2], small[1::2], strict=True):
        # Neighbouring cells of the same colors become one segment. Most cells have such neighbours.
        pairs = np.concatenate([upper, lower], axis=1)
        starts = [0, *(np.flatnonzero((pairs[1:] != pairs[:-1]).any(axis=1)) + 1).tolist(), columns]
        for start, end in itertools.pairwise(starts):
            segments.append(Segment(_HALF_BLOCK * (end - start), _style(*pairs[start].tolist())))
        segments.append(Segment.line())
    return Segments(segments)


@functools.lru_cache(maxsize=65536)
def _style(red: int, green: int, blue: int, red_below: int, green_below: int, blue_below: int) -> Style:
    return Style(color=Color.from_rgb(red, green, blue), bgcolor=Color.from_rgb(red_below, green_below, blue_below))


class Gif:
    """Collects pictures, the first `GIF_FRAMES_MAX`, and makes a GIF of them that repeats without end."""

    def __init__(self) -> None:
        self._frames: list[Image.Image] = []
        self.complete = True  # whether nothing was left out

    def __len__(self) -> int:
        return len(self._frames)

    def add(self, pixels: Pixels) -> None:
        """Keeps a picture with fewer colors that look the same: with all of them it takes ten times the memory."""
        if len(self._frames) == GIF_FRAMES_MAX:
            self.complete = False
            return
        image = Image.fromarray(pixels)
        if image.width > GIF_WIDTH_MAX:
            size = GIF_WIDTH_MAX, max(1, round(image.height * GIF_WIDTH_MAX / image.width))
            image = image.resize(size, Image.Resampling.BOX)
        self._frames.append(image.quantize(GIF_COLOURS, dither=Image.Dither.NONE))

    def content(self, seconds_per_frame: float) -> bytes:
        """Returns the file's content; there must be a picture."""
        buffer = io.BytesIO()
        first, *rest = self._frames
        milliseconds = max(20, round(seconds_per_frame * 1000))  # below 20 browsers slow down
        first.save(buffer, "GIF", save_all=True, append_images=rest, duration=milliseconds, loop=0)
        return buffer.getvalue()
