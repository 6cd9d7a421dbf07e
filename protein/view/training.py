"""Watches one training run: a dashboard on a terminal, one plain line per measurement anywhere else.

`training_view` is a pure function of a `TrainingState`, which is built from the run's events (see
`protein.trainer.events`). A thread of its own draws the dashboard, `REDRAWS_PER_SECOND` times a second. The training
thread only hands the events over. The last picture stays on the screen.
"""

import dataclasses
import itertools
import math
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Protocol, Self

import psutil
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from protein.trainer.events import Event, FinalEvent, Start
from protein.trainer.machine.cores import usable_cores
from protein.types import Measurement
from protein.units import format_size
from protein.view import text
from protein.view.scatter import bounds, score_label

GPU_SECONDS = 2.0  # between looks at the GPU's utilisation: asking takes a process of its own
REDRAWS_PER_SECOND = 2
MAX_WIDTH = 120
MIN_HEIGHT = 3
MAX_PLOT_HEIGHT = 10
COLUMNS_WIDTH = 64  # from here on the figures stand beside the time split
FIGURES_WIDTH = 31
SHARE_WIDTH = 25  # of a time split's row, without its bar

# The metrics that are shown, and their names here; those that a run does not report are left out.
_FIGURES: Sequence[tuple[str, str]] = (
    ("train_loss", "training loss"),
    ("loss", "loss"),
    ("policy_loss", "policy loss"),
    ("value_loss", "value loss"),
    ("entropy", "entropy"),
    ("approx_kl", "KL divergence"),
    ("clip_fraction", "clipped"),
    ("explained_variance", "explained variance"),
    ("gradient_norm", "gradient norm"),
    ("learning_rate", "learning rate"),
    ("peak_share", "share of peak"),
)
_SHARES = frozenset({"clip_fraction", "peak_share"})

# The bit of each dot in a braille character, U+2800 and up: by column from the left, then by row from the top.
_DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """Memory is what PyTorch holds. `utilisation` is the share of time in which something ran; None: not known."""

    memory_bytes: int
    total_bytes: int
    utilisation: float | None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """`busy_cores` is the process's CPU time over the time since the last look, 0 at the first one."""

    busy_cores: float
    cores: int
    memory_bytes: int
    total_bytes: int
    gpu: Gpu | None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TrainingState:
    """A run so far."""

    env: str
    total_steps: int
    max_seconds: float = 0.0  # of training; 0: no limit
    unit: str = "steps"  # what a step is
    evaluation: str = "new episodes"  # what the score is measured on at the end
    held_out: str = "new episodes"  # the same without a number
    score_means: str = ""  # what the score is, where that is not clear by itself
    start: Start | None = None
    curve: tuple[Measurement, ...] = ()
    end: FinalEvent | None = None
    stopping: bool = False
    usage: Usage | None = None
    silent_seconds: float = 0.0  # since the last event

    @property
    def trained(self) -> bool:
        """Whether the training is over; then the evaluation is running or done."""
        return self.end is not None or (bool(self.curve) and self._fraction(self.curve[-1]) >= 1.0)

    @property
    def fraction(self) -> float:
        """How much of the run is done, in [0, 1]; since the last measurement, by the clock."""
        if self.end is not None and self.end["event"] == "result":
            return 1.0
        if not self.curve:
            return 0.0
        done = self._fraction(self.curve[-1])
        return done + (1.0 - done) * min(self._silent / max(self._left_at_last, 1e-9), 1.0)

    @property
    def left_seconds(self) -> float | None:
        """Time of training that is left, at the speed so far; None while nothing has been measured."""
        return max(self._left_at_last - self._silent, 0.0) if self.curve else None

    @property
    def _left_at_last(self) -> float:
        """The same at the time of the last measurement."""
        last = self.curve[-1]
        left = max(self.total_steps - last.steps, 0) / max(last.steps, 1) * last.elapsed_seconds
        return min(left, max(self.max_seconds - last.elapsed_seconds, 0.0)) if self.max_seconds else left

    @property
    def steps_per_second(self) -> float | None:
        """The speed between the last two measurements."""
        if not self.curve:
            return None
        last = self.curve[-1]
        steps, seconds = (self.curve[-2].steps, self.curve[-2].elapsed_seconds) if len(self.curve) > 1 else (0, 0.0)
        return (last.steps - steps) / max(last.elapsed_seconds - seconds, 1e-9)

    @property
    def _silent(self) -> float:
        return 0.0 if self.end is not None else self.silent_seconds

    def _fraction(self, point: Measurement) -> float:
        by_time = point.elapsed_seconds / self.max_seconds if self.max_seconds else 0.0
        return min(max(point.steps / self.total_steps, by_time), 1.0)

    def after(self, event: Event) -> "TrainingState":
        """Returns the state with one more event in it."""
        if event["event"] == "start":
            return dataclasses.replace(self, start=event)
        if event["event"] == "measurement":
            point = Measurement(
                steps=event["steps"],
                elapsed_seconds=event["elapsed_seconds"],
                score=event["score"],
                metrics=event["metrics"],
            )
            return dataclasses.replace(self, curve=(*self.curve, point))
        return dataclasses.replace(self, end=event)


class Watcher(Protocol):
    """Receives a run's events; holds the terminal while its `with` block lasts."""

    def __call__(self, event: Event) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(self, kind: type[BaseException] | None, value: object, traceback: TracebackType | None) -> None: ...


def make_watcher(console: Console, state: TrainingState, stop: threading.Event) -> Watcher:
    """Returns the dashboard for a terminal, plain lines for anything else; `stop` is what Ctrl-C sets."""
    live = console.is_terminal and not console.is_dumb_terminal
    return LiveWatcher(console, state, stop.is_set) if live else PlainWatcher(console, state)


class PlainWatcher:
    """One line per measurement."""

    def __init__(self, console: Console, state: TrainingState) -> None:
        self._console, self._state = console, state

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: object, traceback: TracebackType | None) -> None:
        pass

    def __call__(self, event: Event) -> None:
        self._state = self._state.after(event)
        if event["event"] == "start":
            for line in (_machine_line(event), *event["notes"]):
                self._console.print(line, soft_wrap=True, markup=False)
        elif event["event"] == "measurement":
            total, unit = self._state.total_steps, self._state.unit
            steps, seconds = event["steps"], event["elapsed_seconds"]
            rate = text.count(round(steps / max(seconds, 1e-9)))
            reached = f"score {text.score(event['score'])}"
            if event["score"] is None and "train_loss" in event["metrics"]:
                reached = f"training loss {_figure('train_loss', event['metrics']['train_loss'])}"
            self._console.print(
                f"{steps:,} of {total:,} {unit}, {reached}  {rate} {unit}/s,"
                f" {text.seconds(seconds)}, {text.seconds(self._state.left_seconds)} left",
                soft_wrap=True,
            )


class LiveWatcher:
    """Redraws the state in place."""

    def __init__(self, console: Console, state: TrainingState, stopping: Callable[[], bool]) -> None:
        self._console, self._state, self._stopping = console, state, stopping
        self._machine = Machine()
        self._heard = time.monotonic()
        self._live = Live(
            console=console,
            get_renderable=self._draw,
            refresh_per_second=REDRAWS_PER_SECOND,
            vertical_overflow="crop",
        )

    def __enter__(self) -> Self:
        self._live.start(refresh=True)
        return self

    def __exit__(self, kind: type[BaseException] | None, value: object, traceback: TracebackType | None) -> None:
        self._live.stop()

    def __call__(self, event: Event) -> None:
        self._heard = time.monotonic()
        self._state = self._state.after(event)

    def _draw(self) -> RenderableType:
        state = self._state
        device = "cpu" if state.start is None else str(state.start["device"])
        now = dataclasses.replace(
            state,
            usage=self._machine.sample(device),
            silent_seconds=time.monotonic() - self._heard,
            stopping=self._stopping(),
        )
        width, height = self._console.size
        return training_view(now, width, height)


class Machine:
    """Looks at this process; `sample` takes a tenth of a millisecond."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        self._process.cpu_percent()  # begins the first span
        self._cores = usable_cores()
        self._total = psutil.virtual_memory().total
        self._utilisation: float | None = None
        self._asked = -GPU_SECONDS
        self._asking: threading.Thread | None = None

    def sample(self, device: str) -> Usage:
        """Returns the usage now.

        Args:
            device: where the training runs, as torch names it; only `cuda` devices have GPU figures.
        """
        return Usage(
            busy_cores=self._process.cpu_percent() / 100,
            cores=self._cores,
            memory_bytes=self._process.memory_info().rss,
            total_bytes=self._total,
            gpu=self._gpu(device) if device.startswith("cuda") else None,
        )

    def _gpu(self, device: str) -> Gpu:
        torch = sys.modules["torch"]  # imported already by the training that is watched
        properties = torch.cuda.get_device_properties(device)
        now = time.monotonic()
        if now - self._asked >= GPU_SECONDS and (self._asking is None or not self._asking.is_alive()):
            self._asked = now
            # In a thread: the driver may be slow, and the view must not wait for it.
            self._asking = threading.Thread(target=self._ask, args=(f"GPU-{properties.uuid}",), daemon=True)
            self._asking.start()
        return Gpu(
            memory_bytes=torch.cuda.memory_reserved(device),
            total_bytes=properties.total_memory,
            utilisation=self._utilisation,
        )

    def _ask(self, uuid: str) -> None:
        self._utilisation = gpu_utilisation(uuid)


def gpu_utilisation(uuid: str) -> float | None:
    """Returns the share of the last moments, in [0, 1], in which the GPU was busy; None where that is not known."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return None
    query = [program, f"--id={uuid}", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=GPU_SECONDS, check=True)
        return float(done.stdout) / 100
    except (OSError, subprocess.SubprocessError, ValueError):  # ValueError: "[N/A]", as for a slice of a GPU
        return None


def training_view(state: TrainingState, width: int, height: int) -> RenderableType:
    """Returns the dashboard, at most `height - 1` lines of `width` characters."""
    width = min(width, MAX_WIDTH)
    top, usage = _heading(state, width), _usage(state, width)
    left = height - 1 - len(top) - len(usage) - 3  # an empty line between the parts
    body = _body(state, width, max(left - 1, 0))
    plot = _score(state, width, left - len(body))
    parts = [part for part in (top, plot, body, usage) if part]
    lines = [line for number, part in enumerate(parts) for line in ([Text("")] if number else []) + part]
    return Group(*lines[: height - 1])


def _heading(state: TrainingState, width: int) -> list[Text]:
    what = "starting" if state.start is None else _machine_line(state.start)
    lines = [_line(f"training {state.env}: {what}", width, "bold"), _bar(state.fraction, width, "green")]
    phase, style = _phase(state)
    line = Text(f"{100 * state.fraction:3.0f} %  ", no_wrap=True, overflow="crop")
    line.append(phase, style=style)
    if state.curve:
        last = state.curve[-1]
        line.append(f"   {text.count(last.steps)} of {text.count(state.total_steps)} {state.unit}")
        line.append(
            f" in {text.seconds(last.elapsed_seconds)}, {text.count(round(state.steps_per_second or 0))} {state.unit}/s"
        )
    line.truncate(width, overflow="ellipsis")
    return [*lines, line]


def _phase(state: TrainingState) -> tuple[str, str]:
    """Returns what the run is doing, in words, and their style."""
    if state.end is not None:
        return {"result": "done", "failed": "failed"}.get(state.end["event"], "interrupted"), "bold"
    if state.stopping:
        return "stopping; Ctrl-C again ends it at once", "bold yellow"
    if state.trained:
        return f"evaluating on {state.evaluation}, {text.seconds(state.silent_seconds)}", "cyan"
    if state.left_seconds is None:
        return "waiting for the first measurement" if state.start is not None else "loading", "dim"
    return f"{text.seconds(state.left_seconds)} left", ""


def _score(state: TrainingState, width: int, height: int) -> list[Text]:
    """Returns the score and its history in at most `height` lines: a plot, or a sparkline where a plot does not fit."""
    points = [(point.elapsed_seconds, point.score) for point in state.curve if point.score is not None]
    if height < 1:
        return []
    meaning = f" ({state.score_means})" if state.score_means else ""
    if state.end is not None and state.end["event"] != "failed" and state.end["score"] is not None:
        heading = f"score {text.score(state.end['score'])}{meaning} on {state.held_out}"
        if points:
            heading += f", {text.score(points[-1][1])} in training"
    else:
        heading = f"score {text.score(points[-1][1] if points else None)}{meaning}"
    line = _line(heading, width, "bold")
    plot_height = min(height - 2, MAX_PLOT_HEIGHT)
    if len(points) < 2:
        return [line]
    if plot_height < MIN_HEIGHT:
        line.append("  " + text.sparkline(state.curve, max(min(width - len(line) - 2, 40), 1)), style="cyan")
        line.truncate(width)
        return [line]
    plot = line_plot(points, width - 1, plot_height)
    margin = plot[0].index("┤")
    ends = (text.seconds(points[0][0]), text.seconds(points[-1][0]))
    axis = f"{'':{margin}}└{ends[0]}{ends[1]:>{max(width - margin - 2 - len(ends[0]), 0)}}"
    drawn = []
    for row in plot:
        of_row = Text(row[: margin + 1], style="dim", no_wrap=True, overflow="crop")
        of_row.append(row[margin + 1 :], style="cyan")
        drawn.append(of_row)
    return [line, *drawn, _line(axis, width, "dim")]


def line_plot(points: Sequence[tuple[float, float]], width: int, height: int) -> list[str]:
    """Returns the plot as `height` lines of `width` characters, its lowest and highest value named at the left.

    Between points the line is straight. A column in which several points lie shows their mean.

    Args:
        points: (x, y) in order of x, at least one, all finite.
        width: characters, labels included.
        height: lines, at least `MIN_HEIGHT`.
    """
    low, high = bounds([y for _, y in points])
    labels = [score_label(high, high - low), score_label(low, high - low)]
    margin = max(map(len, labels)) + 2
    columns, rows = 2 * max(width - margin, 1), 4 * height
    cells = [[0] * (columns // 2) for _ in range(height)]
    before: int | None = None
    for column, value in enumerate(_levels(points, columns)):
        row = round((high - value) / (high - low) * (rows - 1))
        # Where the line is steep, the dots between this column and the one before it belong to it, too.
        for dot in _between(before, row):
            cells[dot // 4][column // 2] |= _DOTS[column % 2][dot % 4]
        before = row
    drawn = ["".join(chr(0x2800 + cell) if cell else " " for cell in line) for line in cells]
    names = [labels[0], *[""] * (height - 2), labels[1]]
    return [f"{name:>{margin - 2}} ┤{line}" for name, line in zip(names, drawn, strict=True)]


def _between(before: int | None, row: int) -> range:
    if before is None or abs(row - before) <= 1:
        return range(row, row + 1)
    return range(before + 1, row + 1) if row > before else range(row, before)


def _levels(points: Sequence[tuple[float, float]], columns: int) -> list[float]:
    """Returns a value for each column: the mean of its points, and a straight line where there are none."""
    begin, end = points[0][0], points[-1][0]
    sums, counts = [0.0] * columns, [0] * columns
    for x, y in points:
        position = (x - begin) / (end - begin) if end > begin else 0.0
        column = min(math.floor(position * columns), columns - 1)
        sums[column] += y
        counts[column] += 1
    known = [column for column in range(columns) if counts[column]]
    levels = [total / count if count else 0.0 for total, count in zip(sums, counts, strict=True)]
    for left, right in itertools.pairwise(known):
        for column in range(left + 1, right):
            share = (column - left) / (right - left)
            levels[column] = levels[left] * (1 - share) + levels[right] * share
    return levels[: known[-1] + 1] if end > begin else levels[:1]


def _body(state: TrainingState, width: int, height: int) -> list[Text]:
    """Returns the losses and the time split, side by side if they fit, in at most `height` lines."""
    if not state.curve:
        return []
    metrics = state.curve[-1].metrics
    figures = [
        _line(f"{name:<20}{_figure(key, metrics[key]):>9}", FIGURES_WIDTH)
        for key, name in _FIGURES
        if key in metrics and not (key == "loss" and "train_loss" in metrics)  # that of the score, at some points only
    ]
    beside = width >= COLUMNS_WIDTH
    split = _split(metrics, width - FIGURES_WIDTH if beside else width)
    if not beside:
        return [*figures, *split][:height]
    rows = []
    for number in range(min(max(len(figures), len(split)), height)):
        row = Text(no_wrap=True, overflow="crop")
        row.append_text(figures[number] if number < len(figures) else Text())
        row.pad_right(FIGURES_WIDTH - len(row))
        row.append_text(split[number] if number < len(split) else Text())
        rows.append(row)
    return rows


def _split(metrics: Mapping[str, float], width: int) -> list[Text]:
    """Returns a row for each section that took any time: its share of the training so far, and a bar."""
    sections = {name.removesuffix("_seconds"): spent for name, spent in metrics.items() if name.endswith("_seconds")}
    total = sum(sections.values())
    rows = []
    for name, spent in sections.items():
        if spent > 0:
            row = _line(f"{name.replace('_', ' '):<16}{100 * spent / total:>5.1f} %  ", width)
            row.append_text(_bar(spent / total, max(width - SHARE_WIDTH, 1), "magenta", empty=False))
            row.truncate(width)
            rows.append(row)
    return rows


def _figure(name: str, value: float) -> str:
    return f"{100 * value:.1f} %" if name in _SHARES else text.score(value)


def _usage(state: TrainingState, width: int) -> list[Text]:
    usage = state.usage
    if usage is None:
        return []
    line = f"cpu {usage.busy_cores:.1f} of {usage.cores} cores   memory {format_size(usage.memory_bytes)}"
    line += f" of {format_size(usage.total_bytes)}"
    if usage.gpu is not None:
        busy = "" if usage.gpu.utilisation is None else f"{100 * usage.gpu.utilisation:.0f} %, "
        line += f"   gpu {busy}{format_size(usage.gpu.memory_bytes)} of {format_size(usage.gpu.total_bytes)}"
    return [_line(line, width, "dim")]


def _machine_line(start: Start) -> str:
    workers = f" worker processes: {start['workers']}," if "workers" in start else ""
    normalised = ", observations normalised" if start.get("normalize_observations") else ""
    scaled = ", rewards scaled" if start.get("scale_rewards") else ""
    precision = f" in {start['precision']}" if "precision" in start else ""
    rows = f", micro-batches of {start['micro_batch']} sequences" if "micro_batch" in start else ""
    return (
        f"{start['parameters']:,} parameters on {start['device']}{precision}, threads: {start['threads']}{rows}"
        f"{normalised}{scaled},"
        f"{workers} ready in {text.seconds(start['startup_seconds'])}"
    )


def _bar(fraction: float, width: int, style: str, *, empty: bool = True) -> Text:
    """Returns a bar of `width` characters, drawn to half a character."""
    halves = round(min(max(fraction, 0.0), 1.0) * 2 * width)
    bar = Text("━" * (halves // 2) + "╸" * (halves % 2), style=style, no_wrap=True, overflow="crop")
    if empty:
        bar.append("━" * (width - len(bar)), style="grey23")
    return bar


def _line(line: str, width: int, style: str = "") -> Text:
    return Text(text.shorten(line, width), style=style, no_wrap=True, overflow="crop")
