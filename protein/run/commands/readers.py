"""Where a command's score is read, made from its settings."""

from pathlib import Path

from protein.run.commands.files import CsvReader, EventReader, FileReader
from protein.run.commands.reports import PatternReader
from protein.run.commands.settings import CommandSettings


def readers(
    settings: CommandSettings, directory: Path, *, begins: bool
) -> tuple[PatternReader | None, FileReader | None]:
    """Returns what reads the log, and what follows a file; at most one of both. JSON lines need none of them.

    Args:
        settings: of the command.
        directory: the trial's folder.
        begins: whether the trial begins anew: what files hold by now is then not its own. Else it goes on with them.
    """
    if settings.score_from == "regex":
        return PatternReader(settings.score, settings.steps), None
    if settings.score_from == "csv":
        return None, CsvReader(settings.file, settings.score, settings.steps, directory, begins=begins)
    if settings.score_from == "tensorboard":
        return None, EventReader(settings.score, settings.file, directory, begins=begins)
    return None, None
