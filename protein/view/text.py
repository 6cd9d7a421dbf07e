"""Numbers, durations and curves as short text, the same in every view. Nothing here depends on a terminal.

Names, reasons, params, notes and logs come from programs and files of other people. An escape character in them could
move the cursor, set the window's title or change what a person believes to read; so can an override of the direction
of writing. `protein.view.tables.make_console` removes such characters from everything that it prints. Where a line is
written without it, `cleaned` does.
"""

import dataclasses
import math
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING

from protein.columns import cell
from protein.engine.forecasts import MAX_Z, Quantity, z_score
from protein.engine.results import Matter
from protein.space.parameters import Categorical, Integer, Parameter
from protein.spelling import counted
from protein.types import Estimate, Measurement, ParamValue, TrialEnd, TrialRecord, TrialState

if TYPE_CHECKING:
    pass

SPARKS = "▁▂▃▄▅▆▇█"
MISSING = "-"
_LONG_SECONDS = 86_400e4  # days from here on would be long numbers
MAX_CELL = 400  # characters of a text in a line or in a table
MAX_CHOICES = 12  # of a parameter in a line
MAX_TEXT = 4000  # characters of a text that is shown by itself

# C0 without tab and line feed, DEL, C1, marks and overrides of the direction of writing, other line separators.
STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
NO_SPREAD = "no spread seen"
Range = tuple[float, float]  # the lowest and the highest possible score


def cleaned(text: str, most: int | None = None) -> str:
    """Returns text without characters that steer a terminal, cut to `most` characters where that is given."""
    if most is not None and len(text) > 2 * most:  # before the long work
        text = text[: 2 * most]
    found = STEERING.sub("", text)
    return found if most is None or len(found) <= most else found[: most - 1] + "…"


def searched(parameter: Parameter) -> str:
    """Returns what is searched of a parameter: `lr 0.0001 to 0.1 (log)`, `depth 1 to 8 (whole)`, `opt (adam sgd)`.

    A belief and a condition follow: `opt (adam sgd, believed adam, when model == 'mlp')`.
    """
    more = [] if parameter.belief is None else [f"believed {param(parameter.belief[0])}"]
    more += [] if parameter.when is None else [f"when {parameter.when}"]
    if isinstance(parameter, Categorical):
        plain = [str(cell(choice)) for choice in parameter.choices]
        told_apart = [
            repr(choice) if plain.count(text) > 1 or not text.strip() else text
            for choice, text in zip(parameter.choices[:MAX_CHOICES], plain, strict=False)
        ]
        listed = f"{' '.join(told_apart)}{' ...' if len(plain) > MAX_CHOICES else ''}"
        return f"{parameter.name} ({', '.join([listed, *more])})"
    kinds: list[str] = [] if parameter.scale == "linear" else [parameter.scale]
    if parameter.step is not None:
        kinds.append(f"in steps of {parameter.step:g}")
    elif isinstance(parameter, Integer) and parameter.scale != "pow2":
        kinds.append("whole")
    kinds += more
    low, high = (f"{end:d}" if isinstance(end, int) else f"{end:g}" for end in (parameter.low, parameter.high))
    return f"{parameter.name} {low} to {high}" + (f" ({', '.join(kinds)})" if kinds else "")


def seconds(value: float | None) -> str:
    """Returns a duration in two units at most: `0.0014s`, `0.42s`, `12.3s`, `4m05s`, `2h03m`, `1d04h`."""
    if value is None or not math.isfinite(value):
        return MISSING
    if 0.0 < value < 0.0995:  # two digits, so that cheap trials can be told apart
        rounded = float(f"{value:.1e}")
        return f"{rounded:.{1 - math.floor(math.log10(rounded))}f}s" if rounded >= 1e-6 else f"{rounded:.2g}s"
    if value < 59.95:
        return f"{value:.2f}s" if value < 9.995 else f"{value:.1f}s"
    if (whole := round(value)) < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    if (minutes := round(value / 60)) < 24 * 60:
        return f"{minutes // 60}h{minutes % 60:02d}m"
    if value >= _LONG_SECONDS:
        return f"{value:.3g}s"
    hours = round(value / 3600)
    return f"{hours // 24}d{hours % 24:02d}h"


def score(value: float | None, *, like: float | None = None) -> str:
    """Returns a score with two decimals; three below 10 in size, more where it is very small, none where it is large.

    Accuracies and losses are below 10, and their third decimal counts. A difference has the decimals of the score that
    it is `like`.
    """
    if value is None:
        return MISSING
    if value != 0 and abs(value) < 0.1:
        return f"{value:.3g}"
    if abs(value if like is None else like) < 10.0:
        return f"{value:.3f}"
    return f"{value:.2f}" if abs(value) < 10_000 else f"{value:.6g}"


def alike(values: Sequence[float], *, like: Sequence[float]) -> list[str]:
    """Returns scores with one number of decimals: that with which `score` shows the largest of `like`."""
    largest = Decimal(score(max(map(abs, like), default=0.0)))
    decimals = max(-int(largest.as_tuple().exponent), 0)
    return [f"{value:.{decimals}f}" for value in values]


def loss(metrics: Mapping[str, float]) -> str:
    """Returns how well a language model predicts: `1.934 bits per byte, 1.340 nats per token`."""
    bits, nats = metrics.get("bits_per_byte"), metrics.get("loss")
    known = [(bits, "bits per byte"), (nats, "nats per token")]
    return ", ".join(f"{value:.3f} {what}" for value, what in known if value is not None)


def count(value: int) -> str:
    """Returns a number of steps: `950`, `12.3k`, `5M`."""
    number = float(value)
    for unit in ("", "k", "M", "G"):
        if abs(number) < 999.5 or unit == "G":
            break
        number /= 1000
    return f"{number:.3g}{unit}"


def trial_name(trial: TrialRecord) -> str:
    """Returns a trial's number, behind that of the trial it continues: `31`, or `12 -> 31`."""
    return f"{trial.number}" if trial.continues is None else f"{trial.continues} -> {trial.number}"


def param(value: ParamValue) -> str:
    """Returns a parameter's value: floats to six digits, which is all that the space resolves; None as `null`."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return cleaned(str(cell(value)), MAX_CELL)
    return f"{value:,}" if isinstance(value, int) else f"{value:.6g}"


def short(value: ParamValue) -> str:
    """Returns a parameter's value to three digits: `0.00312`, `9.71M`; near 1 to the digits of its distance to 1."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return param(value)
    if isinstance(value, int):
        return count(value) if abs(value) >= 10_000 else str(value)
    return f"{1.0 - float(f'{1.0 - value:.2g}'):.6g}" if 0.9 < value < 1.0 else f"{value:.3g}"


def best_values(matter: Matter) -> str:
    """Returns where a best value lies: `0.001 to 0.009`, `adam 92 %`; "" where the data do not tell."""
    if matter.best is not None:
        low, high = short(matter.best[0]), short(matter.best[2])
        return low if low == high else f"{low} to {high}"
    return ", ".join(f"{short(choice)} {100 * share:.0f} %" for choice, share in matter.choices[:2])


def table_number(key: str, value: int | float) -> str:
    """Returns what a table shows for a number in the column of a key, as `table-cells.js` does it on the page."""
    group, _, name = key.partition(".")
    is_whole = isinstance(value, int) or value.is_integer()
    if group == "params" and name:
        return f"{value:.0f}" if is_whole and abs(value) < 1e15 else f"{value:.4g}"
    if (group == "timings" and name) or re.search(r"_seconds(_low|_high)?$", key if group == key else ""):
        return seconds(value)
    if key == "steps":
        return count(int(value))
    if is_whole and (key in ("number", "continues") or (group == "metrics" and abs(value) >= 100)):
        return f"{value:.0f}"
    return score(value)


def estimate(value: Estimate | None) -> str:
    """Returns an expected score with its 80 % interval: `18.20 (16.00 to 19.50)`."""
    return MISSING if value is None else f"{score(value.value)} ({interval(value)})"


def prediction(value: Estimate | None) -> str:
    """Returns a trial's predicted score with its 80 % interval, which has no width where all of it was clipped."""
    return MISSING if value is None else f"{score(value.value)} ({score(value.low)} to {score(value.high)})"


def interval(value: Estimate) -> str:
    """Returns the 80 % interval of a score, `16.00 to 19.50`; after one run, or equal ones, there is none to tell."""
    return NO_SPREAD if value.low == value.high else f"{score(value.low)} to {score(value.high)}"


def within(value: Estimate, score_range: Range | None) -> Estimate:
    """Returns an estimate with what lies outside the possible scores moved to their nearest end; None: no limits."""
    if score_range is None:
        return value
    lowest, highest = score_range
    low, middle, high = (min(max(one, lowest), highest) for one in (value.low, value.value, value.high))
    return Estimate(value=middle, low=low, high=high)


def clipped(trial: TrialRecord, score_range: Range | None) -> TrialRecord:
    """Returns a trial for showing: its predicted score is moved into the possible scores.

    Whatever shows trials takes them through this once. So a prediction reads the same everywhere, and "off by" is the
    difference from the prediction that is shown. Calibration needs the trials as they are stored.
    """
    if trial.predicted_score is None:
        return trial
    return dataclasses.replace(trial, predicted_score=within(trial.predicted_score, score_range))


def estimate_seconds(value: Estimate | None) -> str:
    """Returns a predicted cost with its 80 % interval: `33.0s (28.0s to 40.1s)`."""
    if value is None:
        return MISSING
    return f"{seconds(value.value)} ({seconds(value.low)} to {seconds(value.high)})"


def score_error(trial: TrialRecord) -> str:
    """Returns by how much a trial's score missed its prediction, `-1.20 (0.4 sd)`; "" where that is not known."""
    if trial.state is not TrialState.COMPLETE or trial.score is None or trial.predicted_score is None:
        return ""  # the prediction is of a trial that reaches its end
    gap = trial.score - trial.predicted_score.value
    side = trial.predicted_score.low if gap < 0 else trial.predicted_score.high
    # An interval that ends at the median was clipped there, so it has no standard deviation on that side.
    known = side != trial.predicted_score.value
    deviations = f" ({_deviations(trial.predicted_score, trial.score, 'score')})" if known else ""
    return f"{'-' if gap < 0 else '+'}{score(abs(gap), like=trial.score)}{deviations}"


def cost_error(trial: TrialRecord) -> str:
    """Returns by how much a trial's cost missed its prediction, `+12 % (0.4 sd)`; "" where that is not known."""
    guess = trial.predicted_cost_seconds
    if trial.state is not TrialState.COMPLETE or guess is None or guess.value <= 0:
        return ""
    share = trial.cost_seconds / guess.value - 1.0
    percent = round(100 * share)
    return f"{percent:{'+' if percent else ''}d} % ({_deviations(guess, trial.cost_seconds, 'cost')})"


def _deviations(predicted: Estimate, measured: float, quantity: Quantity) -> str:
    z = abs(z_score(predicted, measured, quantity))
    return f"{z:.1f} sd" if z < MAX_Z else f"over {MAX_Z:.0f} sd"


def sparkline(curve: Sequence[Measurement], width: int) -> str:
    """Returns a learning curve's scores over training seconds, `width` characters at most.

    Columns are equal spans of time; each shows the mean of its scores, and one without any repeats the one before.
    The lowest bar is the curve's own lowest score, the highest bar its highest; a flat curve is drawn low.
    """
    points = [(point.elapsed_seconds, point.score) for point in curve if point.score is not None]
    if not points or width < 1:
        return ""
    begin, end = points[0][0], points[-1][0]
    columns: list[list[float]] = [[] for _ in range(min(width, len(points)))]
    for when, value in points:
        position = (when - begin) / (end - begin) if end > begin else 0.0
        columns[min(int(position * len(columns)), len(columns) - 1)].append(value)
    levels: list[float] = []
    for column in columns:
        levels.append(sum(column) / len(column) if column else levels[-1])
    low, high = min(levels), max(levels)
    span = high - low
    if not span > 0:
        return SPARKS[0] * len(levels)
    return "".join(SPARKS[min(int((level - low) / span * len(SPARKS)), len(SPARKS) - 1)] for level in levels)


def confirmed(number: int, total_seconds: float) -> str:
    """Returns what confirmations took, to follow what was spent, as "; 7 confirmations took 12m00s"; or ""."""
    return f"; {counted(number, 'confirmation')} took {seconds(total_seconds)}" if number else ""


def shorten(text: str, width: int) -> str:
    """Returns text cut to `width` characters, with an ellipsis where something is missing."""
    return text if len(text) <= width else text[: max(width - 1, 0)] + "…"


def outcome_line(trial: TrialRecord, *, is_brief: bool = False) -> str:
    """Returns a finished trial as one line: number, score and cost beside their predictions, and why it was tried.

    A brief one leaves out why, the intervals, and how far off the predictions were.
    """
    if trial.end is TrialEnd.INTERRUPTED:
        result = f"interrupted after {seconds(trial.cost_seconds)}"
    elif trial.state is TrialState.FAILED:
        # A mistake ends the sweep with an error that gives the whole reason.
        reason = trial.reason.partition(": ")[0] if trial.end is TrialEnd.MISTAKE else trial.reason
        result = f"failed after {seconds(trial.cost_seconds)}: {cleaned(reason, MAX_CELL)}"
    elif is_brief:
        guesses = [] if trial.predicted_score is None else [score(trial.predicted_score.value)]
        if trial.predicted_cost_seconds is not None:
            guesses.append(f"in {seconds(trial.predicted_cost_seconds.value)}")
        result = f"score {score(trial.score)} in {seconds(trial.cost_seconds)}"
        result += f" (predicted {' '.join(guesses)})" if guesses else ""
    else:
        result = f"score {score(trial.score)}"
        if trial.predicted_score is not None:
            guess = trial.predicted_score
            error = score_error(trial)
            missed = f", off by {error}" if error else ""
            result += f", predicted {prediction(guess)}{missed},"
        result += f" in {seconds(trial.cost_seconds)}"
        if trial.predicted_cost_seconds is not None:
            error = cost_error(trial)
            missed = f", off by {error}" if error else ""
            result += f", predicted {seconds(trial.predicted_cost_seconds.value)}{missed}"
    if trial.state is TrialState.PRUNED:
        result += f", {cleaned(trial.reason, MAX_CELL) or 'stopped early'}"
    elif trial.state is TrialState.COMPLETE and trial.reason:
        result += f", {cleaned(trial.reason, MAX_CELL)}"
    why = "" if is_brief else f"; {cleaned(trial.origin, MAX_CELL)}"
    return " ".join(f"trial {trial.number}: {result}{why}".split())


def hellaswag(share: float) -> str:
    """Returns the line about HellaSwag's questions of which the share was answered right."""
    return f"HellaSwag: {100 * share:.1f} % right; guessing gets 25 %"
