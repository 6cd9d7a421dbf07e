"""Runs each trial as a command of the user's, any program in any language.

A trial is watched and ended as every other process of a trial (`protein.run.process`).

How a command ends:

- It has told its `result`, and no other score after that: complete, whatever ends its process then. A program that
  crashes as it tidies up has done its work.
- It exits with 0, or with a code that the user accepts, and has a score: complete. The score is its `result`, or else
  the last one that it reported. Nothing says that this one is final, so it does not count after a crash.
- A signal from outside ends it (SIGTERM, SIGINT, SIGHUP, or SIGKILL where memory was not short), also what a shell runs
  for it: interrupted. It is taken up again, and its params are not judged by that.
- It exits with 0 without a usable score, exits with another code, or dies of a signal: failed, with its last words.
- It costs more than it may: it is stopped, with its last score (`Job.at_limit`).

The cost is the wall clock of the process, its start included, because that is what is paid; or what it reports. A
command that was killed has also spent the time since its last report. Where the clock counts, the cost is the larger of
both, so that no command runs longer than it may cost, whatever it reports.
"""

import collections
import contextlib
import dataclasses
import json
import math
import os
import re
import shutil
import signal
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from protein.direction import stored_score
from protein.errors import UsageError
from protein.files import prepare_folder, write_file
from protein.ports import Job
from protein.run import reports
from protein.run.fork_server import CANNOT_START, BoundedLog
from protein.run.machine import GpuMemory, used_gpu_bytes
from protein.run.process import FREE, ProcessBackend, Record, shared_server, shortage
from protein.run.reports import Comma, Commas, MetricReader, PatternReader, Said
from protein.run.score_files import EventReader, FileReader, TableReader
from protein.run.speed import Event, in_reference, limits_here
from protein.run.template import (
    Called,
    Template,
    as_tables,
    check_names,
    flag_of,
    missing,
    parse,
    refuse_shell,
    text_of,
    unflagged,
)
from protein.spelling import nearest
from protein.trainer.events import killed_by
from protein.types import (
    CONTINUABLE,
    CONTINUABLE_SECONDS,
    MAX_SCORE,
    PREEMPTED,
    Artifact,
    Direction,
    Measurement,
    Outcome,
    Params,
    ParamValue,
    TrialEnd,
    TrialState,
    is_score,
)

Style = Literal["placeholders", "flags", "dashes", "json", "env"]
ScoreFrom = Literal["lines", "regex", "csv", "tensorboard"]
STYLES: tuple[Style, ...] = ("placeholders", "flags", "dashes", "json", "env")
SECTION = "command"  # of a sweep's config
ACCEPT = "accept_exit_codes"  # in it
PARAMS_FILE, CHECKPOINTS = "params.json", "checkpoint"  # in the trial's folder
SILENCE_SECONDS = 3600.0  # unlike our trainer's, an unknown program may have nothing to say for long
FILE_SECONDS = 0.5  # how often a file with scores is looked at
FILE_SHARE = 0.05  # of the time, at most, for that
MAX_LINE_BYTES = 16 << 20  # of a longer line the rest is dropped
MAX_WORDS = 200  # characters of a command's last words in a reason
CONFIG_FILE, LOG_FILE = "config.json", "trial.log"
# Beside the parameters. A parameter of the same name comes first.
OF_TRIAL = ("seed", "directory", "params_file")
_NOT_RUN = (126, 127)  # exit codes of a shell and of env: a program that may not be run, or is not there
# Exit codes of programs that print their usage: of most, of few, by sysexits.h, and of git.
_USAGE_CODES = (2, 1, 64, 129)
_USAGE_LINES, _REFUSED_LINES = 60, 12  # of the end of the log, that are looked at
_USAGE = re.compile(r"\W*usage\b(?: of \S+)?:(?!\s*[\d.]+\s*\S{0,3}\s*$)", re.IGNORECASE)  # and no "usage: 80 %"
# What argparse, click, getopt, absl, clap, Go, node and Hydra say; and interpreters, of a script that is not there.
_REFUSED = re.compile(
    r"(?:unrecogni[sz]ed|unknown|unexpected|no such) (?:command[- ]line )?(?:option|flag|argument)s?\b"
    r"|(?:bad|invalid) option\b|flag provided but not defined|arguments are required|^Missing option"
    r"|^Could not override '|can(?:'|no)t open (?:file|perl script) ",
    re.IGNORECASE,
)
_BREAK = re.compile(rb"[\r\n]+")  # progress bars go back to the start of their line
_OURS = re.compile(r"PROTEIN_|CUDA_VISIBLE_DEVICES$")  # environment variables that we set
_OF_START = re.compile(r"(PATH|HOME)$|LD_|PYTHON")  # the program may not even start with another value


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CommandSettings:
    """How the command of a sweep is run and read, as it is stored with the sweep's definition.

    Attributes:
        text: the command line, with placeholders.
        params: how it gets the parameters that no placeholder names: as flags `--some_name value`, as flags
            with dashes `--some-name value`, in the JSON file $PROTEIN_PARAMS_FILE, or as environment variables;
            "placeholders": there are no others.
        score_from: where the score is read: JSON lines (on stdout), the log (by regular expressions), a table (CSV or
            JSON Lines) or the event files of TensorBoard. JSON lines on $PROTEIN_REPORT_FD are read in any case.
        score: the regular expression, the column, or the tag, which may begin with its folder.
        steps: the regular expression or the column of the steps; "": none.
        file: the table of scores, or the folder of event files; relative to the trial's folder.
        comma: what it stands for in numbers; "": that is judged by all numbers of the log, or of the file.
        resume: what is appended to the command line of a trial that goes on from `{checkpoint}`.
        chdir: the folder in which the command runs, which may hold `{directory}`; "": that of the sweep.
        metrics: a regular expression for each metric that is read from the log, by its name.
        accept_exit_codes: from 1 to 255, with which a command has ended well, too, if it has a score. A signal is 128
            and its number, as in a shell.
        fixed: values that the command gets beside the searched ones.
        called: what the command calls a parameter, where that is another name.
        in_trial: what is appended to the command line of every trial of the sweep, and of no other run.
        clock_counts: whether a trial costs at least its wall clock, where the command reports less.
    """

    text: str
    params: Style = "flags"
    score_from: ScoreFrom = "lines"
    score: str = ""
    steps: str = ""
    file: str = ""
    comma: Comma = ""
    resume: str = ""
    chdir: str = ""
    metrics: Mapping[str, str] = dataclasses.field(default_factory=dict)
    accept_exit_codes: tuple[int, ...] = ()
    fixed: Mapping[str, ParamValue] = dataclasses.field(default_factory=dict)
    called: Called = dataclasses.field(default_factory=dict)
    in_trial: str = ""
    clock_counts: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Returns the settings as JSON-able data."""
        called = {name: list(parts) for name, parts in self.called.items()}
        # Stores that are older have none of these.
        later: dict[str, Any] = {"called": called, ACCEPT: list(self.accept_exit_codes), "metrics": dict(self.metrics)}
        later |= {"in_trial": self.in_trial, "clock_counts": self.clock_counts}
        plain = {**dataclasses.asdict(self), "fixed": dict(self.fixed)}
        return {key: later.get(key, value) for key, value in plain.items() if later.get(key, True)}

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> "CommandSettings":
        """Returns the settings that a sweep's config, or a trial's, holds. Raises `UsageError` where it has none."""
        known = {field.name for field in dataclasses.fields(cls)}
        try:
            given = {key: value for key, value in config[SECTION].items() if key in known}
            return cls(**{**given, ACCEPT: tuple(given.get(ACCEPT, ()))})
        except (KeyError, TypeError, AttributeError) as error:
            raise UsageError(f"the stored command cannot be read ({error!r})") from error

    def check(self, names: tuple[str, ...], conditional: Collection[str] = ()) -> None:
        """Raises `UsageError` where the command, its placeholders or its reading cannot work.

        Args:
            names: those of all parameters, the fixed ones included.
            conditional: of them, those that not all trials have.
        """
        for text, what in ((self.text, "--command"), (self.resume, "--resume-flag"), (self.chdir, "--chdir")):
            refuse_shell(text, what)
        parsed = parse(self.text, "--command")
        check_names(parsed, names, "--command", also=OF_TRIAL)
        for name in unflagged(parsed, conditional):
            raise UsageError(
                f"--command passes '{name}' by its place alone, and in trials without it the next words would move up;"
                f" write --{name} {{{name}}} or {name}={{{name}}}; or, if the program can tell, {{{name}?{{{name}}}}}"
            )
        unnamed = missing(parsed, names)
        if self.params == "placeholders" and unnamed:
            near = nearest(unnamed[0], [name for name in parsed.names if name not in names] or parsed.names)
            raise UsageError(
                f"--command has no placeholder for the parameter '{unnamed[0]}'{near}; write {{{unnamed[0]}}} where its"
                " value goes, or say with --params flags, json or env how the others are passed"
            )
        if self.params == "env":
            _check_variables(unnamed)
        if self.resume:
            flag = parse(self.resume, "--resume-flag")
            check_names(flag, names, "--resume-flag", also=(*OF_TRIAL, "checkpoint"))
        if self.chdir:
            folder = parse(self.chdir, "--chdir")
            check_names(folder, (), "--chdir", also=("directory",))
        for pattern, what in ((self.score, "--score-regex"), (self.steps, "--steps-regex")):
            if self.score_from == "regex" and pattern:
                _check_pattern(pattern, what)
        for name, pattern in self.metrics.items():
            _check_pattern(pattern, f"--metric-regex {name}=")


def style_of(text: str, names: tuple[str, ...], given: str | None) -> Style:
    """Returns how a command gets its parameters: as asked for, else by its placeholders, else as flags."""
    if given is not None:
        for style in STYLES[1:]:
            if style == given:
                return style
        raise UsageError(f"--params '{given}' is unknown{nearest(given, STYLES[1:])}")
    parsed = parse(text, "--command")
    own = [name for name in parsed.names if name not in OF_TRIAL or name in names]
    if own or parsed.passes_all:
        return "placeholders"
    return "json" if "params_file" in parsed.names else "flags"


def command_line(
    settings: CommandSettings,
    params: Params,
    *,
    seed: int,
    directory: str,
    resumes: Path | None = None,
    environment: Mapping[str, str] | None = None,
    in_trial: bool = False,
) -> list[str]:
    """Returns the command line of one trial, or of a run like it. It goes on from `resumes`, if that is given.

    The environment is for `{env:NAME}`; None: that of this process.

    Raises:
        UsageError: a variable of the environment is not set, or there are no words.
    """
    parameters = {**settings.fixed, **params}
    of_trial = {"seed": str(seed), "directory": directory, "params_file": str(Path(directory) / PARAMS_FILE)}
    parsed = parse(settings.text, "--command")

    def filled(template: Template, values: Params) -> list[str]:
        return template.filled(values, parameters=parameters, called=settings.called, environment=environment)

    found = filled(parsed, of_trial | parameters)
    if not found:
        raise UsageError(f"--command {settings.text!r:.100} has no words with these values; begin it with a program")
    if settings.params in ("flags", "dashes"):
        for name in missing(parsed, list(parameters)):
            flag = flag_of(name, settings.called)
            found += [f"--{flag.replace('_', '-') if settings.params == 'dashes' else flag}", text_of(parameters[name])]
    if resumes is not None and settings.resume:
        found += filled(parse(settings.resume, "--resume-flag"), {"checkpoint": str(resumes), **of_trial, **parameters})
    if in_trial and settings.in_trial:
        found += filled(parse(settings.in_trial, "--command"), {})
    return found


def variables(settings: CommandSettings, params: Params) -> dict[str, str]:
    """Returns the parameters that a trial gets as environment variables. A dot in a name becomes two underscores."""
    if settings.params != "env":
        return {}
    values = {**settings.fixed, **params}
    unnamed = missing(parse(settings.text, "--command"), list(values))
    return {_variable(name): text_of(values[name]) for name in unnamed}


def working_directory(
    settings: CommandSettings, directory: str, environment: Mapping[str, str] | None = None
) -> str | None:
    """Returns the folder in which a trial's command runs; None: that of the sweep. Raises as `command_line`."""
    if not settings.chdir:
        return None
    words = parse(settings.chdir, "--chdir").filled({"directory": directory}, environment=environment)
    if not words:
        raise UsageError(f"--chdir {settings.chdir} is empty here; set its environment variable to a folder")
    return os.path.expanduser(words[0])  # noqa: PTH111


class CommandBackend(ProcessBackend):
    """Implements `protein.ports.Backend` with the user's command, which the jobs' configs hold.

    Attributes:
        direction: of the scores that the command reports.
        has_reported: whether any trial has said anything of its score, so that reporting works as such.
        commas: what they stand for in the logs of each command, which all its trials show.
    """

    silence_remedy = "; --max-silence changes that"

    def __init__(
        self,
        direction: Direction,
        *,
        silence_seconds: float | None = SILENCE_SECONDS,
        note: Callable[[str], None] | None = None,
        gpu_memory: GpuMemory = used_gpu_bytes,
    ) -> None:
        """Starts nothing yet.

        Args:
            direction: of the scores that the command reports.
            silence_seconds: a command that writes nothing for so long is ended; None: never.
            note: called with what a person should know of a command that behaves oddly, once for each kind.
            gpu_memory: returns the GPU memory in bytes that processes use together, by their ids.
        """
        super().__init__(shared_server(()), silence_seconds=silence_seconds, gpu_memory=gpu_memory)
        self.direction = direction
        self.has_reported = False
        self.commas: dict[str, Commas] = {}
        self._note = note
        self._noted: set[str] = set()

    def start(self, job: Job) -> None:
        settings = CommandSettings.from_config(job.config)
        # A symbolic link in the folder's place would be followed, and files elsewhere changed.
        directory = Path(os.path.abspath(job.directory))  # noqa: PTH100
        prepare_folder(directory)
        resumes = _prepare_checkpoints(job, directory / CHECKPOINTS)
        params, seed = job.trial.params, job.config["seed"]
        try:
            given: dict[str, Any] = {"seed": seed, "directory": str(directory), "resumes": resumes, "in_trial": True}
            words = command_line(settings, params, **given)
            where = working_directory(settings, str(directory))
        except UsageError as error:  # here, on the trial's machine, a variable of the environment is not set
            raise OSError(str(error)) from error
        of_program = as_tables({**settings.fixed, **params}, settings.called)
        write_file(directory / PARAMS_FILE, json.dumps(of_program, indent=1))
        write_file(directory / CONFIG_FILE, json.dumps({**job.config, "words": words}, indent=1))
        log = directory / LOG_FILE
        if job.resumes is None or log.is_symlink() or not log.is_file():
            write_file(log, "")
        environment = {
            **os.environ,
            **variables(settings, params),
            "PROTEIN_TRIAL": str(job.trial.number),
            "PROTEIN_SEED": str(seed),
            "PROTEIN_DIRECTORY": str(directory),
            "PROTEIN_PARAMS_FILE": str(directory / PARAMS_FILE),
            "PROTEIN_CHECKPOINT_DIR": str(directory / CHECKPOINTS),
        }
        environment.setdefault("PYTHONUNBUFFERED", "1")  # what Python prints into a pipe would come late otherwise
        for name in ("PROTEIN_RESUME", "PROTEIN_MAX_SECONDS", "PROTEIN_REPORT_PIPE"):
            environment.pop(name, None)  # those of a trial in which this sweep runs itself
        if resumes is not None:
            environment["PROTEIN_RESUME"] = "1"
        # Before the command writes: what is there by now is none of its own, unless it goes on.
        record = CommandRecord(self, job, settings, words, directory)
        if record.cap is not None:
            environment["PROTEIN_MAX_SECONDS"] = repr(record.cap)
        self.start_process(record, words, environment=environment, directory=where)

    def tell(self, kind: str, line: str) -> None:
        """Tells what a person should know, once for each kind."""
        if self._note is not None and kind not in self._noted:
            self._noted.add(kind)
            self._note(line)


class CommandRecord(Record):
    """What a running command has reported: its curve, its cost, and the score that may be the final one.

    Costs here are of this run alone, in seconds of this machine.

    Attributes:
        cap: what it may cost; None: it has none.
    """

    pipes = ("report", "stdout", "stderr")
    trains_from_the_start = trains_to_the_end = True
    # Those of Ctrl-C, kill -9 and kill. Not that of SIGHUP, 129, with which programs also refuse their arguments.
    signal_codes = frozenset({128 + signal.SIGINT, 128 + signal.SIGKILL, 128 + signal.SIGTERM})

    def __init__(
        self, backend: CommandBackend, job: Job, settings: CommandSettings, words: list[str], directory: Path
    ) -> None:
        """Nothing is reported yet.

        Args:
            backend: of the trial.
            job: of the trial.
            settings: of the command.
            words: the command line.
            directory: the trial's folder, absolute.
        """
        self._factor, self._behind = job.speed or 1.0, job.spent_seconds
        limit: float | None = job.config["max_seconds"]
        rest = None if limit is None else max(limit - self._behind, 0.0)
        of_this_run = dataclasses.replace(job, config={**job.config, "max_seconds": rest})
        super().__init__(limits_here(of_this_run, self._factor))
        self.cap: float | None = self.job.config["max_seconds"]
        self.last_score = job.score_behind
        self._backend, self._settings, self._words, self._directory = backend, settings, words, directory
        self._commas = backend.commas.setdefault(settings.text, Commas(settings.comma))
        self._next_file_check = 0.0
        self._said: Said | None = None  # the last report with a score, usable or not
        self._result: Said | None = None  # the last one that said that it was final
        self._result_from = ""  # where it was read
        self._went_on = False  # it has told another score since, so that it was not final
        self._has_result_in_time = False  # before it was told to end
        self._cost_seconds: float | None = None  # as it has last reported it; None: it reports none
        self._cost_at = 0.0  # when it has reported that
        self._costs_count_from = 0.0
        self._given_seconds = 0.0  # of the last point that was taken
        self._cannot_start: str | None = None  # why
        self._last_words = ""
        self._lines: collections.deque[str] = collections.deque(maxlen=_USAGE_LINES)  # the last ones
        self._buffers = {pipe: bytearray() for pipe in self.pipes}  # lines that have only begun
        self._log: BoundedLog | None = None
        self._metric_reader = MetricReader(settings.metrics, self._commas, self._remark)
        self._metrics: dict[str, float] = {}  # that were read from the log since the last report
        self._pattern, self._file = self._readers(begins=job.resumes is None)
        # Reports without steps are counted on from here. Files still hold the rows of an interrupted run.
        behind = self._file.rows_behind if isinstance(self._file, TableReader) else 0
        self._counted_from = 0 if settings.steps else max(job.steps_behind - behind, 0)

    def _readers(self, *, begins: bool) -> tuple[PatternReader | None, FileReader | None]:
        """Returns what reads the log, and what follows a file; at most one of both. JSON lines need none of them."""
        settings, directory = self._settings, self._directory
        if settings.score_from == "regex":
            if not begins:  # the log shows what commas stand for
                earlier = PatternReader(settings.score, settings.steps, self._commas, lambda *_: None)
                with contextlib.suppress(OSError), (directory / LOG_FILE).open("rb") as log:
                    for line in log:
                        earlier.read(line.rstrip(b"\r\n"))
            return PatternReader(settings.score, settings.steps, self._commas, self._remark), None
        if settings.score_from == "csv":
            names = settings.file, settings.score, settings.steps, directory
            return None, TableReader(*names, begins=begins, commas=self._commas, remark=self._remark)
        if settings.score_from == "tensorboard":
            return None, EventReader(settings.score, settings.file, directory, begins=begins, remark=self._remark)
        return None, None

    def take(self, data: bytes, pipe: str) -> None:
        if pipe != "report":
            self._write_log(data)
        first, *others = _BREAK.split(data)  # not with what was there before: a line may be very long
        buffer = self._buffers[pipe]
        if len(buffer) <= MAX_LINE_BYTES:
            buffer += first
            if len(buffer) > MAX_LINE_BYTES:
                limit = f"{MAX_LINE_BYTES >> 20} MiB"
                self._remark("line", f"printed a line of more than {limit}: the rest of that line is not read")
        if others:
            for line in (bytes(buffer), *others[:-1]):
                self._take_line(line, pipe)
            self._buffers[pipe] = bytearray(others[-1])

    def _take_line(self, line: bytes, pipe: str) -> None:
        said = None
        if pipe == "report":
            if line.startswith(CANNOT_START):
                self._cannot_start = line.removeprefix(CANNOT_START).decode(errors="replace")
                return
            said = reports.from_json(line, self._commas, any_field=True)
        else:
            if text := line.strip():
                self._last_words = text[: 4 * MAX_WORDS].decode(errors="replace")
                self._lines.append(self._last_words)
            if self._settings.metrics:
                self._metrics |= self._metric_reader.read(line)
            if self._pattern is not None:
                said = self._pattern.read(line)
            elif pipe == "stdout" and self._settings.score_from == "lines":
                said = reports.from_json(line, self._commas)
                if said is None and reports.looks_like_report(line):
                    shown = reports.plain_text(line[-MAX_WORDS:].decode(errors="replace")).strip()
                    self._remark("like", f"printed a line that is no report, as it is not JSON alone: {shown}")
        if said is not None:
            self._take_report(said, pipe)

    def look(self) -> bool:
        """Reads what is new in the file that the score is read from, if it is a file."""
        now, ended = time.monotonic(), self.process.ended
        if self._file is None or (now < self._next_file_check and not ended):
            return False
        found = self._file.read(complete=ended and self._ended_well)
        self._next_file_check = now + max(FILE_SECONDS, (time.monotonic() - now) / FILE_SHARE)
        for said in found:
            self._take_report(said, "file")
        if (wrong := self._file.wrong()) and not ended and self.process.requested_end is None:
            self.process.terminate(TrialEnd.MISTAKE, wrong)
        return bool(found)

    def close(self) -> None:
        for pipe, rest in self._buffers.items():
            if rest:
                self._take_line(bytes(rest), pipe)
        self._buffers = {pipe: bytearray() for pipe in self.pipes}
        # Points that were read late are moved to its end: the sweep may have been held up, as by a store that was away.
        if self._by_clock and self._fresh:
            end = max(self._cost(self.process.ended_at), self._given_seconds)
            self._fresh = [
                dataclasses.replace(point, elapsed_seconds=min(point.elapsed_seconds, end)) for point in self._fresh
            ]
            self.last = self._fresh[-1]
        if self._log is not None:
            self._log.close()
            self._log = None

    def _take_report(self, said: Said, source: str) -> None:
        """Takes a report into the curve, and keeps it if its score may be the final one.

        Args:
            said: the report.
            source: the pipe or file that it comes from. Two of them tell no order.
        """
        now = time.monotonic()
        if self._metrics:
            said = dataclasses.replace(said, metrics={**self._metrics, **said.metrics})
            self._metrics = {}
        if said.cost_seconds is not None:
            if self._cost_seconds is None:
                self._costs_count_from = self._costs_begin_at(said.cost_seconds, said.steps)
            self._cost_seconds = max(said.cost_seconds - self._costs_count_from, self._cost_seconds or 0.0)
            self._cost_at = now
        if said.score is not None or said.is_result:
            self._said = said
            self._backend.has_reported = True
        if said.is_result:
            self._went_on |= self._result is not None and said.score != self._result.score
            self._result, self._result_from = said, source
            self._has_result_in_time |= self.process.requested_end is None
            return
        score = said.score
        self._went_on |= score is not None and source == self._result_from
        if score is not None and not is_score(score):
            self._remark("score", f"reported the score {said.shown or score}: it is left out of the curve")
            score = None
        before = 0 if self.last is None else self.last.steps
        counted = self._counted_from if self.last is None else before
        steps = counted + 1 if said.steps is None else said.steps
        if steps < before:
            if self.job.resumes is not None and steps <= self.job.steps_behind:
                return  # it goes on from a checkpoint, and repeats what it had told before
            self._remark("steps", f"reported {steps} steps after {before}: such points are left out of the curve")
            return
        self.add(
            Measurement(
                steps=steps,
                elapsed_seconds=self._cost(now),
                score=stored_score(score, self._backend.direction),
                metrics=said.metrics,
            )
        )

    def _costs_begin_at(self, cost_seconds: float, steps: int | None) -> float:
        """Returns from where a command counts its cost, by the first cost that it reports.

        One that goes on may count from 0, or from the cost that it had at its checkpoint, which may be older than its
        last report. The one is taken whose cost at these steps would be nearer, as a ratio. No clock can tell: to load
        what it goes on from may take longer than all that it has cost.
        """
        behind = self.job.continued_seconds + self._behind
        anew, further = expected_costs(self.job.curve_behind, steps, behind)
        if cost_seconds * self._factor <= math.sqrt(anew * further):
            return 0.0
        return min(cost_seconds, behind / self._factor)

    def take_measurements(self) -> tuple[Measurement, ...]:
        points = super().take_measurements()
        self._given_seconds = points[-1].elapsed_seconds if points else self._given_seconds
        return points

    def _wall_seconds(self, now: float) -> float:
        """Returns how long it has run by now, or until it ended, without the time in which it was stopped.

        Where the clock counts, that time does: what it has started may go on while it has stopped itself.
        """
        until = self.process.ended_at if self.process.ended else now
        counts = self._settings.clock_counts
        return until - self.process.began - (0.0 if counts else self.process.paused_seconds(self.process.began, until))

    @property
    def _by_clock(self) -> bool:
        """Whether its cost grows with the wall clock, and not with its reports alone."""
        return self._cost_seconds is None or self._settings.clock_counts

    def _cost(self, now: float) -> float:
        own = self._cost_seconds or 0.0
        return max(self._wall_seconds(now), own) if self._by_clock else own

    def wall_cost(self, now: float) -> float | None:
        return self._cost(now) if self._by_clock else None

    def seconds_to_cap(self, now: float) -> float | None:
        if self.cap is None:
            return None
        left = self.cap - self._cost(now)
        return left if self._by_clock or left <= 0 else None

    def in_reference(self, event: Event) -> Event:
        return in_reference(event, self._factor, self._behind)

    def _remark(self, kind: str, text: str) -> None:
        self._write_log(f"protein: {text}\n".encode())
        self._backend.tell(kind, f"trial {self.job.trial.number} {text} (said once; the trials' logs have the others)")

    def _write_log(self, data: bytes) -> None:
        with contextlib.suppress(OSError):
            self._log = self._log or BoundedLog(self._directory / LOG_FILE)
            self._log.write(data)

    def outcome(self) -> Outcome:
        end, reason, score = self._end()
        cost = self._final_cost_seconds()
        metrics = self._metrics | (dict(self._result.metrics) if self._result is not None else {})
        if end is TrialEnd.COMPLETE:
            for name in sorted(self._metric_reader.unseen):
                pattern = self._settings.metrics[name]
                self._remark(f"no {name}", f"has no metric {name}: no line matched '{pattern}' with a number")
        if end is TrialEnd.COMPLETE and self._left_state():
            metrics[CONTINUABLE_SECONDS] = cost
        steps = self.job.steps_behind if self.last is None else self.last.steps
        if self._result is not None and self._result.steps is not None:
            steps = self._result.steps
        return Outcome(end=end, score=score, cost_seconds=cost, steps=steps, reason=reason, metrics=metrics)

    def _final_cost_seconds(self) -> float:
        ended_at = self.process.ended_at
        clock = max(self._cost(ended_at), self.last.elapsed_seconds if self.last else 0.0) if self._by_clock else 0.0
        if self._cost_seconds is None:
            return clock
        was_killed = self._final is None and (self.process.is_lost or self.process.ended_by != 0)
        since = max(ended_at - self._cost_at - self.process.paused_seconds(self._cost_at, ended_at), 0.0)
        return max(self._cost_seconds + (since if was_killed else 0.0), clock)

    @property
    def _ended_well(self) -> bool:
        """Whether its exit code says so, or is one that the user accepts."""
        code = self.process.exit_code
        code = 128 - code if code is not None and code < 0 else code
        return code in (0, *self._settings.accept_exit_codes)

    @property
    def _final(self) -> float | None:
        """Its result, if that counts whatever has ended the process after it; None: there is no such score."""
        process, said = self.process, self._result
        if said is None or said.score is None or not is_score(said.score) or self._went_on:
            return None
        in_time = process.requested_end is None or self._has_result_in_time
        # One that takes a signal may tell what it had until then, as its result, and exit with the code of its choice.
        took_signal = process.from_outside and (process.exit_code or 0) > 0
        return stored_score(said.score, self._backend.direction) if in_time and not took_signal else None

    def _end(self) -> tuple[TrialEnd, str, float | None]:
        """Returns how the command ended, why in words, and the score that counts."""
        process = self.process
        if (final := self._final) is not None:
            return TrialEnd.COMPLETE, process.after_result(), final
        if process.requested_end is not None and not (process.exit_code == 0 and self._has_result_in_time):
            end, reason = process.requested_end
            return end, reason, self.last_score if end.state is TrialState.PRUNED else None
        if process.from_outside and not (process.exit_code == 0 and self._result):
            return TrialEnd.INTERRUPTED, f"{PREEMPTED}{signal.SIGTERM.name} from outside ended it", None
        return self._own_end()

    def _own_end(self) -> tuple[TrialEnd, str, float | None]:
        """Returns how a command ended that the sweep has not ended, why in words, and the score that counts."""
        if self._cannot_start is not None:
            return TrialEnd.MISTAKE, f"'{self._words[0]}' cannot be started: {self._cannot_start}", None
        if not self._ended_well:
            return *self._bad_end(), None
        code = self.process.exit_code
        if code and self._refused_arguments:  # accepted, as some configs are to be refused: a failure of this one
            return TrialEnd.USER_ERROR, f"exited with code {code}{self._in_last_words()}", None
        how = f"exited with code {code}" if code is not None and code >= 0 else killed_by(code or 0)
        how, accepted = ("exited", "") if code == 0 else (how, f"{how}, which --accept-exit-codes takes")
        said = self._result or self._said
        if self._result is None and self._file is not None and (wrong := self._file.wrong()):
            return TrialEnd.MISTAKE, wrong, None
        if said is None and self.last_score is not None:  # it went on from its very end, and had nothing left to do
            return TrialEnd.COMPLETE, accepted, self.last_score
        if said is None:
            end = TrialEnd.CRASHED if self._can_report else TrialEnd.MISTAKE
            return end, f"{how} without a score: {self._what_was_missing()}", None
        score = said.score
        if score is None or not is_score(score):
            wrong = said.wrong or f"which is no finite score within {MAX_SCORE:g}"
            end = TrialEnd.MISTAKE if wrong == reports.OPEN else TrialEnd.DIVERGED
            return end, f"its last score is {said.shown or score}, {wrong}", None
        return TrialEnd.COMPLETE, accepted, stored_score(score, self._backend.direction)

    def _bad_end(self) -> tuple[TrialEnd, str]:
        """Returns how a command ended whose exit code is no good one, and why in words."""
        if (preempted := self.process.preempted(interrupted=False)) is not None:
            return TrialEnd.INTERRUPTED, preempted
        words, code = self._in_last_words(), self.process.exit_code
        if (killed := self.process.killed()) is not None:
            return killed[0], f"{killed[1]}{words}"
        end = shortage(words)
        if end is None and not self._can_report and code in _NOT_RUN:
            return TrialEnd.MISTAKE, f"exited with code {code}, as of a program that is not found or not run{words}"
        if end is None and not self._can_report and self._refused_arguments:
            only_some = f"--accept-exit-codes {code} goes on where only some configs are refused"
            return TrialEnd.MISTAKE, f"exited with code {code}, and refused its arguments{words} ({only_some})"
        end = end or TrialEnd.USER_ERROR
        return end, f"exited with code {code}{words}{FREE if end is TrialEnd.DISK else ''}"

    def _in_last_words(self) -> str:
        return f": {' '.join(self._last_words.split())[:MAX_WORDS]}" if self._last_words else ""

    @property
    def _can_report(self) -> bool:
        """Whether any trial has said something of its score: then this one's failure is due to its params."""
        return self._backend.has_reported or self.job.others_reported

    @property
    def _refused_arguments(self) -> bool:
        """Whether it has ended with its usage, or with what is said of an argument that a program does not have."""
        code, said = self.process.exit_code or 0, list(self._lines)
        if code <= 0 or self.last is not None or self._said is not None:
            return False
        return any(map(_REFUSED.search, said[-_REFUSED_LINES:])) or (
            code in _USAGE_CODES and any(map(_USAGE.match, said))
        )

    def _what_was_missing(self) -> str:
        """Returns what was looked for and not found, for a trial without a score."""
        last_line = self._last_words[:MAX_WORDS]
        if self._file is not None:
            return self._file.missing()
        if self._settings.score_from == "regex":
            last = f"; its last line: {last_line}" if last_line else "; it printed nothing"
            return f"no line matched '{self._settings.score}'{last}"
        if self._settings.in_trial:
            return "the function returned None, and did not call protein.report; return the score"
        return (
            'it printed no line such as {"score": 0.5} and did not call protein.report; --score-regex, --score-csv and'
            f" --score-tensorboard read programs as they are{reports.unread(last_line)}"
        )

    def _left_state(self) -> bool:
        with contextlib.suppress(OSError):
            return any((self._directory / CHECKPOINTS).iterdir())
        return False

    def artifacts(self, outcome: Outcome) -> tuple[Artifact, ...]:
        """Returns the files of the trial: its config, its log, and what a longer run can go on from."""
        found = [
            Artifact(kind="config", path=str(self._directory / CONFIG_FILE)),
            Artifact(kind="log", path=str(self._directory / LOG_FILE)),
        ]
        if CONTINUABLE_SECONDS in outcome.metrics:
            found.append(Artifact(kind=CONTINUABLE, path=str(self._directory / CHECKPOINTS)))
        return tuple(found)


def expected_costs(curve: Sequence[tuple[int, float]], steps: int | None, run_seconds: float) -> tuple[float, float]:
    """Returns what a run that goes on would report as its cost: where it counts from 0, and where it counts on.

    It may have a cost before its first step. The curve's first and last point tell that, and its pace.

    Args:
        curve: steps and seconds of the run until there.
        steps: with which it reports its cost; None: they are not known.
        run_seconds: what the run has cost until there.
    """
    points = [(at, seconds) for at, seconds in curve if seconds > 0]
    if not points:  # nothing tells: it counts on if it reports more than half of that
        return run_seconds / 4, run_seconds
    (first_steps, first), (last_steps, last) = points[0], points[-1]
    if steps is None or steps <= first_steps:  # it may count its steps anew, and its cost not
        return first, max(run_seconds, first)
    apart = last_steps - first_steps
    pace = max(last - first, 0.0) / apart if apart > 0 else first / max(first_steps, 1)
    start = max(first - pace * first_steps, 0.0)
    before, cost_before = max(point for point in points if point[0] < steps)
    return start + pace * (steps - before), cost_before + pace * (steps - before)


def _variable(name: str) -> str:
    return name.replace(".", "__")


def _check_variables(names: list[str]) -> None:
    """Raises `UsageError` for a parameter whose environment variable has another meaning for the program."""
    takers: dict[str, str] = {}
    for name in names:
        other = takers.setdefault(_variable(name), name)
        why = "" if other == name else f"'{other}' is {_variable(name)}, too"
        if _OURS.match(_variable(name)):
            why = "Protein sets it itself"
        elif _OF_START.match(_variable(name)):
            why = "the program's start depends on it"
        if why:
            raise UsageError(
                f"parameter '{name}' cannot be an environment variable of the program: {why}; rename it, or use"
                " --params json"
            )


def _check_pattern(pattern: str, what: str) -> None:
    try:
        groups = re.compile(pattern).groups
    except re.error as error:
        raise UsageError(f"{what} '{pattern}' is no regular expression: {error}") from error
    if groups == 0:
        raise UsageError(f"{what} '{pattern}' has no group; put the number in parentheses, as in 'reward: (\\S+)'")


def _prepare_checkpoints(job: Job, checkpoints: Path) -> Path | None:
    """Makes the trial's folder of checkpoints, and returns it if it holds what the trial goes on from.

    What an earlier sweep has left there is removed. What a continued trial has left is copied, so that it stays as it
    is.
    """
    if job.resumes is not None:
        if job.resumes != checkpoints and job.resumes.resolve() != checkpoints.resolve():
            _copy(job.resumes, checkpoints)
        return checkpoints
    _remove(checkpoints)
    if job.continues is not None:
        # Not where it is looked for until it is whole: after a kill, half a copy would be taken for the trial's own.
        part = checkpoints.with_name(f"{checkpoints.name}.part")
        _remove(part)
        _copy(job.continues, part)
        part.rename(checkpoints)
        return checkpoints
    checkpoints.mkdir()
    return None


def _remove(folder: Path) -> None:
    if folder.is_symlink():
        folder.unlink()
    elif folder.exists():
        shutil.rmtree(folder)


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True)
    else:
        target.mkdir(exist_ok=True)
        shutil.copy2(source, target / source.name)
