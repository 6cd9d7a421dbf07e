"""How a command has ended by itself: what its exit code and its last words say of the trial."""

import signal
from collections.abc import Callable, Mapping
from typing import Any

from protein.direction import stored_score
from protein.run import reports
from protein.run.command_reports import CommandReports
from protein.run.command_settings import CommandSettings
from protein.run.reports import FileReader
from protein.run.shortage import FREE, shortage
from protein.trainer.events import killed_by
from protein.types import MAX_SCORE, PREEMPTED, Direction, TrialEnd, is_score

MAX_WORDS = 200  # characters of a command's last words in a reason
_OUTSIDE = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)  # who sends these ends more than one trial


def own_end(
    status: Mapping[str, Any],
    heard: CommandReports,
    direction: Direction,
    *,
    program: str,
    last_words: str,
    what_was_missing: Callable[[], str],
    others_reported: bool,
) -> tuple[TrialEnd, str, float | None]:
    """Returns how a command ended that the sweep has not ended, why in words, and the score that counts.

    Args:
        status: what its supervisor has said.
        heard: what it has reported.
        direction: of its scores.
        program: the first word of its command line.
        last_words: its last line.
        what_was_missing: says what was looked for and not found, where it has no score.
        others_reported: whether any trial of the sweep has reported, so that reporting works as such.
    """
    code = status.get("code")
    if "error" in status:
        return TrialEnd.MISTAKE, f"'{program}' cannot be started: {status['error']}", None
    if code is None:
        return TrialEnd.INTERRUPTED, f"{PREEMPTED}its supervisor was killed", None
    words = f": {' '.join(last_words.split())[:MAX_WORDS]}" if last_words else ""
    if -code in _OUTSIDE:
        return TrialEnd.INTERRUPTED, f"{PREEMPTED}{signal.Signals(-code).name} from outside ended it", None
    if code < 0:
        return TrialEnd.CRASHED, f"{killed_by(code)}{words}", None
    if code > 0:
        end = shortage(words) or TrialEnd.USER_ERROR
        return end, f"exited with code {code}{words}{FREE if end is TrialEnd.DISK else ''}", None
    said = heard.result or heard.said
    if said is None and heard.last_score is not None:  # it went on from its very end, and had nothing left to do
        return TrialEnd.COMPLETE, TrialEnd.COMPLETE.text, heard.last_score
    if said is None:
        end = TrialEnd.CRASHED if others_reported else TrialEnd.MISTAKE
        return end, f"exited without a score: {what_was_missing()}", None
    score = said.score
    if score is None or not is_score(score):
        shown = said.shown or score
        return TrialEnd.DIVERGED, f"its last score is {shown}, which is no finite score within {MAX_SCORE:g}", None
    return TrialEnd.COMPLETE, TrialEnd.COMPLETE.text, stored_score(score, direction)


def missing(settings: CommandSettings, file: FileReader | None, last_words: str) -> str:
    """Returns what was looked for and not found, for a trial without a score.

    Args:
        settings: how the score is read.
        file: what reads it from a file, if that is where it is.
        last_words: the command's last line.
    """
    if file is not None:
        return file.missing()
    if settings.score_from == "regex":
        last = f"; its last line: {last_words[:MAX_WORDS]}" if last_words else "; it printed nothing"
        return f"no line matched '{settings.score}'{last}"
    return (
        'it printed no line such as {"score": 0.5} and did not call protein.report; --score-regex, --score-csv and'
        f" --score-tensorboard read programs as they are{reports.unread(last_words[:MAX_WORDS])}"
    )
