"""A sweep over a command: any program, in any language. Its definition, and the command line of what it found."""

import dataclasses
import itertools
import os
import re
import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from protein import envs_c, validate
from protein.api import stores
from protein.api.definition import check_name
from protein.config.resolve import file_name
from protein.config.settings import SweepConfig
from protein.config.space_toml import SpaceFile
from protein.errors import UsageError
from protein.names import NAME_LENGTH, folder_name
from protein.run import command as commands
from protein.run.command import CommandSettings, ScoreFrom, Style
from protein.run.reports import Comma
from protein.run.template import parse
from protein.sweep import provenance, resuming
from protein.types import Direction, SweepSpec, TrialRecord

INTERPRETERS = re.compile(
    r"(env|python[\d.]*|uv|uvx|run|sh|bash|node|Rscript|julia|perl|ruby|java|nice|stdbuf|torchrun)"
)
_SCRIPT = re.compile(r"\.(py|sh|R|jl|js|ts|rb|pl|lua|jar)$")
_COMMAS: dict[str | None, Comma] = {None: "", "decimal": "decimal", "thousands": "thousands"}
NO_METRICS = {  # words that mean something else -> what to do
    "score": "--score-regex reads it",
    "steps": "--steps-regex reads them",
    "cost_seconds": "it is the wall clock, or what the program reports",
}
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CommandOptions:
    """How a command is run and read, as a user says it.

    Attributes:
        command: the command line with placeholders; None: the one that the space file gives.
        params: how the command gets the parameters without a placeholder: flags, dashes, json or env; None: as flags
            where there are no placeholders.
        score_regex: for the score in the log. The other `score_...` are the other ways; None for all: JSON lines.
        steps_regex: for the steps in the log.
        score_csv: `FILE:COLUMN` or `FILE:COLUMN,STEPS`, of a CSV file or of one of JSON Lines.
        score_tensorboard: the tag of the scalar, or `FOLDER:TAG`.
        score_comma: what commas in numbers are: "decimal" or "thousands"; None: all numbers of a log decide.
        metric_regex: `NAME=REGEX` for each metric in the log.
        resume_flag: words for a trial that goes on from `{checkpoint}`.
        chdir: folder in which the command runs.
        accept_exit_codes: with which it has ended well, too, as in "1,134".
        score_range: the lowest and the highest possible score, as in "0,1"; either may be left out.
        clock_counts: whether a trial costs at least its wall clock.
    """

    command: str | None = None
    params: str | None = None
    score_regex: str | None = None
    steps_regex: str | None = None
    score_csv: str | None = None
    score_tensorboard: str | None = None
    score_comma: str | None = None
    metric_regex: tuple[str, ...] = ()
    resume_flag: str | None = None
    chdir: str | None = None
    accept_exit_codes: str | None = None
    score_range: str | None = None
    clock_counts: bool = False


def define(
    asked: CommandOptions, given: SpaceFile, settings: SweepConfig, *, name: str | None, direction: str | None
) -> SweepSpec:
    """Returns what defines a sweep over a command; it has no warm start yet.

    Without a name, it is called after the program; without a direction, it is what the space file says, else maximize.

    Raises:
        UsageError: something of it cannot work, or fits something else not.
    """
    text = given.command if asked.command is None else asked.command
    if text is None:
        raise UsageError("--space needs --command: the program to run, as in --command 'python train.py --lr {lr}'")
    names = (*given.space.names, *given.space.fixed)
    style: Style = commands.style_of(text, names, asked.params or _style_given(text, names, given))
    if style == "flags" and asked.command is None and asked.params is None:
        raise UsageError(
            "the command of the space file passes no parameter to the program, which would be run with the same values"
            " in every trial; add ${args} to it, or say with --params flags, json or env how they are passed"
        )
    score_from, score, steps, file = _score(asked)
    command = CommandSettings(
        text=text,
        params=style,
        score_from=score_from,
        score=score,
        steps=steps,
        file=file,
        comma=_comma(asked.score_comma),
        metrics=_metrics(asked.metric_regex),
        resume=asked.resume_flag or "",
        chdir=asked.chdir or "",
        accept_exit_codes=_exit_codes(asked.accept_exit_codes),
        fixed=given.space.fixed,
        called=given.called,
        clock_counts=asked.clock_counts,
    )
    command.check(names, [one.name for one in given.space.parameters if one.when is not None])
    program = short_name(text)
    _require_program(command)
    if name is None:
        name = re.sub(r"[^A-Za-z0-9._-]+", "-", file_name(Path(program).stem)).strip("-.")[:NAME_LENGTH] or "command"
    check_name(name, "--name")
    if direction is None:
        direction = (given.direction or Direction.MAXIMIZE).value
    if direction not in [one.value for one in Direction]:
        raise UsageError(f"--direction '{direction}' must be maximize or minimize")
    own: dict[str, Any] = {"start": given.start}
    if (possible := _score_range(asked.score_range) or given.score_range) is not None:
        own["score_range"] = possible
    config = {"own": own, commands.SECTION: command.to_dict()}
    return SweepSpec(
        name=name,
        env=program,
        method=settings.method,
        seed=settings.seed,
        direction=Direction(direction),
        space=given.space.to_dict(),
        config=config,
        provenance=provenance.collect(config),
    )


def _score_range(text: str | None) -> list[float | None] | None:
    """Returns the possible scores of `--score-range`. Raises `UsageError` for anything but two numbers."""
    if text is None:
        return None
    ends = text.split(",")
    try:
        numbers = [float(end) if end.strip() else None for end in ends]
    except ValueError:
        numbers = []
    if len(numbers) != 2:
        raise UsageError(f"--score-range '{text}' must be LOWEST,HIGHEST, as in 0,1; leave out an end that is open")
    return validate.score_range(numbers, "--score-range")


def command_line(spec: SweepSpec, trial: TrialRecord, store: str | None) -> str:
    """Returns the command line that runs a trial's config again, as a shell takes it.

    `{directory}` becomes a folder that is called after the sweep, below the working directory. The store is the one
    that has the trial, in the user's word for it.
    """
    trial = resuming.located(trial, stores.artifact_directory(stores.url(store), spec.name))
    settings = CommandSettings.from_config(spec.config)
    directory = f"{folder_name(spec.name)}-{trial.number}"
    template = parse(settings.text, "--command")
    held = [one for text in (settings.text, settings.chdir) if text for one in parse(text, "--command").variables]
    environment = {name: f"${name}" for name in held} | dict(
        os.environ
    )  # those that are not set here are shown by name
    words = commands.command_line(settings, trial.params, seed=trial.seed, directory=directory, environment=environment)
    given = [f"{name}={value}" for name, value in commands.variables(settings, trial.params).items()]
    kept = trial.artifact("config")
    if kept is not None and (settings.params == "json" or "params_file" in template.names):
        params_file = str(Path(kept).with_name(commands.PARAMS_FILE))
        given.append(f"PROTEIN_PARAMS_FILE={params_file}")
        words = [word.replace(str(Path(directory) / commands.PARAMS_FILE), params_file) for word in words]
    line = shlex.join(["env", *given, *words] if given else words)
    folder = commands.working_directory(settings, directory, environment)
    if folder is not None:
        line = f"cd {shlex.quote(folder)} && {line}"
    return f"mkdir -p {shlex.quote(directory)} && {line}" if directory in line else line


def short_name(text: str) -> str:
    """Returns the name of the program that a command line runs: `train.py` for `python -u train.py --lr {lr}`.

    It is never that of one of our environments.
    """
    words = parse(text, "--command").texts
    scripts = [word for word in words if _SCRIPT.search(word) and not word.startswith("-")]
    modules = [after for word, after in itertools.pairwise(words) if word == "-m"]
    others = [word for word in words if not word.startswith(("-", "+")) and not _ASSIGNMENT.match(word)]
    programs = [word for word in others if not INTERPRETERS.fullmatch(os.path.basename(word))]  # noqa: PTH119
    inline = "-c" in words  # what follows is code, and no name
    found = os.path.basename([*scripts, *modules, *([] if inline else programs), *others, ""][0])  # noqa: PTH119
    found = re.sub(r"[{}\s]", "", found)[:NAME_LENGTH] or "command"
    return f"./{found}" if found in envs_c.names() else found


def _style_given(text: str, names: tuple[str, ...], given: SpaceFile) -> str | None:
    """Returns the style that the space file's tool has, for a command without placeholders."""
    return given.params if commands.style_of(text, names, None) == "flags" else None


def _score(asked: CommandOptions) -> tuple[ScoreFrom, str, str, str]:
    """Returns where the score is read: the way, the score's name in it, that of the steps, and the file."""
    regex, csv, tensorboard, steps = asked.score_regex, asked.score_csv, asked.score_tensorboard, asked.steps_regex
    given = {"--score-regex": regex, "--score-csv": csv, "--score-tensorboard": tensorboard}
    chosen = [flag for flag, value in given.items() if value is not None]
    if len(chosen) > 1:
        raise UsageError(f"{' and '.join(chosen)} are two ways to read the score; give one")
    if steps is not None and regex is None:
        raise UsageError("--steps-regex goes with --score-regex; give both")
    if regex is not None:
        return "regex", regex, steps or "", ""
    if tensorboard is not None:
        return "tensorboard", tensorboard, "", "."
    if csv is None:
        return "lines", "", "", ""
    file, _, columns = csv.partition(":")
    column, _, count = columns.partition(",")
    if not file or not column:
        raise UsageError(
            f"--score-csv '{csv}' must be FILE:COLUMN or FILE:COLUMN,STEPS, as in progress.csv:reward,steps"
        )
    return "csv", column.strip(), count.strip(), file


def _metrics(given: Sequence[str]) -> dict[str, str]:
    """Returns the regular expression of each metric that is read from the log, by its name."""
    found: dict[str, str] = {}
    for text in given:
        name, equals, pattern = (part.strip() for part in text.partition("="))
        if not (name and equals and pattern):
            raise UsageError(f"--metric-regex '{text}' must be NAME=REGEX, as in 'memory_gb=peak (\\S+) GB'")
        if name in NO_METRICS:
            raise UsageError(f"--metric-regex '{text}': {name} is no metric; {NO_METRICS[name]}")
        if name in found:
            raise UsageError(f"--metric-regex gives '{name}' twice; give one expression, which may have a |")
        found[name] = pattern
    return found


def _comma(given: str | None) -> Comma:
    if given not in _COMMAS:
        raise UsageError(f"--score-comma '{given}' must be decimal, as in 0,5, or thousands, as in 1,000")
    return _COMMAS[given]


def _exit_codes(text: str | None) -> tuple[int, ...]:
    """Returns the exit codes in a text, each once and in order."""
    found = set()
    for word in [] if text is None else text.split(","):
        if not (word.strip().isdecimal() and 1 <= int(word) <= 255):
            raise UsageError(
                f"--accept-exit-codes '{text}': {word.strip()!r} must be a number from 1 to 255, as in 1,134; 0 is"
                " always accepted, and a signal is 128 and its number"
            )
        found.add(int(word))
    return tuple(sorted(found))


def require_files(settings: CommandSettings) -> None:
    """Raises `UsageError` where the program, its script or its folder is not there any more."""
    _require_program(settings)
    if "{" in settings.chdir:
        return
    folder = Path(commands.working_directory(settings, "") or ".")
    for word in parse(settings.text, "--command").texts:
        if _SCRIPT.search(word) and "{" not in word and not word.startswith("-") and not (folder / word).exists():
            where = f"in {folder}" if settings.chdir else f"here ({Path.cwd()})"
            raise UsageError(
                f"the command of this sweep runs {word}, which is not {where}: call protein where the sweep was started"
            )


def _require_program(settings: CommandSettings) -> None:
    """Raises `UsageError` where there is no such program, before anything is stored."""
    word = parse(settings.text, "--command").texts[0]
    if settings.chdir and "{" not in settings.chdir and not Path(settings.chdir).expanduser().is_dir():
        raise UsageError(f"--chdir {settings.chdir}: there is no such folder; make it, or correct its name")
    if "{" in word or settings.chdir:
        return
    if shutil.which(word) is None and Path(word).is_file():
        run = f"'python {word} ...'" if word.endswith(".py") else f"'./{word} ...', made executable by chmod +x {word}"
        raise UsageError(f"--command: '{word}' is a file here and no program; write {run}")
    if shutil.which(word) is None:
        raise UsageError(f"--command: there is no program '{word}'; check its name, and that it may be executed")
