"""From the command line's words to a command and its arguments. Every mistake in them becomes one line.

tyro builds the parser and the help. Its errors are boxes of many lines, so they are replaced by one line. This module
reports unknown flags, and our own specs (`protein.cli.values`) report values that cannot be read. The only mistake left
for tyro is a flag without its value.
"""

import contextlib
import dataclasses
import io
import itertools
import shlex
import sys
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Union

import tyro

from protein.cli.arguments import (
    BestArguments,
    CancelArguments,
    CleanArguments,
    CompareArguments,
    DataArguments,
    DoctorArguments,
    EnvsArguments,
    EvalArguments,
    ExportArguments,
    ImportArguments,
    LawsArguments,
    McpArguments,
    NoteArguments,
    ParetoArguments,
    PauseArguments,
    PlayArguments,
    PlotArguments,
    RemoveArguments,
    RenameArguments,
    ReportArguments,
    ResumeArguments,
    ServeArguments,
    ShowArguments,
    StatusArguments,
    StopArguments,
    StoreCommandArguments,
    SweepArguments,
    SyncArguments,
    TrainArguments,
    TryArguments,
    ViewArguments,
    WorkerArguments,
)
from protein.cli.help import SWEEP_GROUPS, Captured, grouped, overview, wrapped
from protein.cli.values import given_values, with_old_unions, with_values
from protein.config.layers import ARGS, Layers, Setting, read_config_file
from protein.config.resolve import load
from protein.errors import ProteinError, UsageError
from protein.spelling import nearest
from protein.trainer.kinds import KINDS, LANGUAGE, PPO, Kind, kind_of, kind_of_flags, kind_of_subject
from protein.trainer.settings import GONE, RETIRED

if typing.TYPE_CHECKING:
    from protein.config.space_toml import SpaceFile


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command with its arguments. `function`, in a module of `protein.cli`, carries it out, as in "best.run"."""

    name: str
    function: str
    arguments: Any  # an instance of the command's class in `protein.cli.arguments`
    values: Mapping[str, Any]  # values of the run config that were given as flags, by dotted name
    words: Sequence[str]  # the command line, without the program
    space: "SpaceFile | None" = None  # of `sweep`, where no file has it

    def again(self, max_cost: str | None = None) -> str:
        """Returns the command line as it was typed, or with another budget."""
        from protein.view import commands  # late, as most commands do not need it

        words = list(self.words) if max_cost is None else [*_without_max_cost(self.words), "--max-cost", max_cost]
        return commands.command(*words)


def _without_max_cost(words: Sequence[str]) -> list[str]:
    kept: list[str] = []
    rest = iter(words)
    for word in rest:
        given = word.replace("_", "-")
        if given == "--max-cost":
            next(rest, None)
        elif not given.startswith("--max-cost="):
            kept.append(word)
    return kept


# command -> (its arguments, the function that runs it)
COMMANDS: Mapping[str, tuple[type, str]] = {
    "sweep": (SweepArguments, "sweep.run"),
    "train": (TrainArguments, "train.run"),
    "eval": (EvalArguments, "evaluate.run"),
    "data": (DataArguments, "data.run"),
    "status": (StatusArguments, "status.run"),
    "pareto": (ParetoArguments, "best.run_pareto"),
    "best": (BestArguments, "best.run"),
    "laws": (LawsArguments, "laws.run"),
    "show": (ShowArguments, "show.run"),
    "sync": (SyncArguments, "exchange.run_sync"),
    "export": (ExportArguments, "exchange.run_export"),
    "import": (ImportArguments, "exchange.run_import"),
    "store": (StoreCommandArguments, "store.run_store"),
    "clean": (CleanArguments, "store.run_clean"),
    "rename": (RenameArguments, "store.run_rename"),
    "rm": (RemoveArguments, "store.run_remove"),
    "compare": (CompareArguments, "views.run_compare"),
    "plot": (PlotArguments, "views.run_plot"),
    "play": (PlayArguments, "play.run"),
    "report": (ReportArguments, "views.run_report"),
    "view": (ViewArguments, "views.run_view"),
    "note": (NoteArguments, "steer.run_note"),
    "try": (TryArguments, "steer.run_try"),
    "pause": (PauseArguments, "steer.run_request"),
    "resume": (ResumeArguments, "steer.run_request"),
    "stop": (StopArguments, "steer.run_request"),
    "cancel": (CancelArguments, "steer.run_cancel"),
    "worker": (WorkerArguments, "worker.run"),
    "serve": (ServeArguments, "serve.run"),
    "envs": (EnvsArguments, "doctor.run_envs"),
    "doctor": (DoctorArguments, "doctor.run"),
    "mcp": (McpArguments, "mcp.run"),
}
# Commands with a flag for every value of a run, and the values without one: the environment is --env, and a sweep
# gives each trial its own seed.
_WITH_VALUES = {"sweep": frozenset({"env.name", "train.seed"}), "train": frozenset({"env.name"})}
# The environment whose values the help shows where none is named: that of no file but the shipped one of all.
_NO_ENV: Mapping[str, str] = {PPO.name: PPO.defaults, LANGUAGE.name: LANGUAGE.config().subject}
# Flags whose value may begin with dashes: words for another program.
_TAKES_FLAGS = ("--resume-flag",)
_ENV_ARGS = f"--{ARGS}."  # how the flags of an environment's own arguments begin
# What other tools call our commands and flags, for messages that name ours: no letters tell that `ls` is `status`.
OTHER_COMMANDS: Mapping[str, str] = {
    "abort": "stop",
    "continue": "resume",
    "dashboard": "view",
    "del": "rm",
    "delete": "rm",
    "describe": "show",
    "diff": "compare",
    "environments": "envs",
    "evaluate": "eval",
    "info": "show",
    "kill": "stop",
    "list": "status",
    "log": "show",
    "logs": "show",
    "ls": "status",
    "mv": "rename",
    "optimize": "sweep",
    "pull": "import",
    "ps": "status",
    "push": "export",
    "remove": "rm",
    "restart": "resume",
    "run": "sweep",
    "search": "sweep",
    "start": "sweep",
    "test": "eval",
    "trials": "show",
    "tune": "sweep",
    "ui": "view",
    "web": "view",
}
OTHER_FLAGS: Mapping[str, str] = {
    "--algorithm": "--method",
    "--batch-size": "--train.minibatch-size",
    "--budget": "--max-cost",
    "--db": "--store",
    "--database": "--store",
    "--duration": "--max-cost",
    "--goal": "--direction",
    "--gpu": "--gpus",
    "--hours": "--max-cost",
    "--jobs": "--workers",
    "--limit": "--max-trials",
    "--lr": "--train.learning-rate",
    "--max-time": "--max-cost",
    "--minutes": "--max-cost",
    "--n-envs": "--env.num-envs",
    "--n-jobs": "--workers",
    "--n-trials": "--max-trials",
    "--num-trials": "--max-trials",
    "--objective": "--direction",
    "--out": "--output",
    "--parallel": "--workers",
    "--sampler": "--method",
    "--steps": "--train.total-timesteps",
    "--time": "--max-cost",
    "--timeout": "--max-cost",
    "--timesteps": "--train.total-timesteps",
    "--train.batch-size": "--train.minibatch-size",
    "--train.lr": "--train.learning-rate",
    "--train.steps": "--train.total-timesteps",
    "--trials": "--max-trials",
    "-j": "--workers",
    "-n": "--max-trials",
}


def parse(words: Sequence[str]) -> Command:
    """Returns the command that the words ask for.

    Raises:
        UsageError: there is no such command, flag or value.
        SystemExit: help or the version was asked for and has been printed.
    """
    words = list(words) or ["--help"]
    if words[0] == "help":
        words = [words[1], "--help"] if len(words) > 1 else ["--help"]
    elif words[0] == "version":
        words = ["--version"]
    parsed_words = _joined(words)
    if words[0] == "--version":
        import importlib.metadata  # late, like tomllib: together a fifth of the time of the help, which needs neither

        print(f"protein {importlib.metadata.version('protein-sweep')}")
        raise SystemExit(0)
    if words[0] not in COMMANDS and words[0] not in ("-h", "--help"):
        if words[0].startswith("-"):
            raise UsageError(f"unknown flag '{words[0]}'{nearest(words[0], ['--help', '--version'])}")
        raise UsageError(f"unknown command '{words[0]}'{nearest(words[0], COMMANDS, OTHER_COMMANDS)}")
    if words[0] in ("-h", "--help"):
        print(overview({name: kind for name, (kind, _) in COMMANDS.items()}))
        raise SystemExit(0)
    classes = {name: _class(name, words) for name in COMMANDS}
    of_env: dict[str, Any] = {}
    if words[0] in _WITH_VALUES:
        parsed_words, of_env = _split_env_args(parsed_words)
    if words[0] == "try":
        parsed_words, of_env = _split_params(parsed_words, TryArguments)
    parsed = _run_tyro(classes, parsed_words)
    return Command(
        name=words[0],
        function=COMMANDS[words[0]][1],
        arguments=parsed,
        values=given_values(parsed) | of_env if words[0] in _WITH_VALUES else of_env,
        words=words,
    )


def _joined(words: Sequence[str]) -> list[str]:
    """Returns the words with each flag of `_TAKES_FLAGS` and its value as one word: the value may look like a flag."""
    found: list[str] = []
    rest = iter(words)
    for word in rest:
        value = next(rest, None) if word.replace("_", "-") in _TAKES_FLAGS else None
        found.append(word if value is None else f"{word}={value}")
    return found


def _class(name: str, words: Sequence[str]) -> type:
    """Returns the dataclass of a command, with the dotted flags if it has them and is the one that was typed.

    To read the one that was typed, tyro would load typeguard, for a tenth of what `protein status` takes.
    """
    command = COMMANDS[name][0]
    if name == words[0] and not {"-h", "--help"}.isdisjoint(words):
        command = grouped(command, SWEEP_GROUPS if name == "sweep" else {})
    elif name == words[0]:
        hints = typing.get_type_hints(command, include_extras=True)
        command.__annotations__ = {field: with_old_unions(hint) for field, hint in hints.items()}
    if name not in _WITH_VALUES or words[0] != name:
        return command
    kind = _kind(words)
    return with_values(command, kind, _settings(words, kind), _WITH_VALUES[name], ranges=name == "sweep")


def _kind(words: Sequence[str]) -> Kind:
    """Returns the kind of run whose settings a command line may have as flags.

    `--env` or the file of `--config` tells it, else the flags do. A stored sweep or run is not read here: it may be of
    the other kind, and what both have is read alike.
    """
    if env := _value_of("--env", words):
        return kind_of_subject(env)
    if config := _value_of("--config", words):
        with contextlib.suppress(ProteinError):  # the command reports it
            return kind_of(read_config_file(Path(config)))
    return kind_of_flags(words) or PPO


def _value_of(flag: str, words: Sequence[str]) -> str | None:
    """Returns what a flag is given on a command line."""
    for word, after in itertools.zip_longest(words, words[1:]):
        if word == flag or word.startswith(f"{flag}="):
            return after if word == flag else word.partition("=")[2]
    return None


def _settings(words: Sequence[str], kind: Kind) -> Mapping[str, Setting]:
    """Returns the values that a command's help shows as defaults: those of the named environment's files, if any."""
    if "--help" in words or "-h" in words:
        with contextlib.suppress(ProteinError):  # help must not fail over a file that a command would refuse
            return load(_value_of("--env", words) or _NO_ENV[kind.name]).settings
    return Layers.defaults(kind).settings


def _run_tyro(classes: Mapping[str, type], words: Sequence[str]) -> Any:
    union: Any = Union[tuple(Annotated[kind, tyro.conf.subcommand(name)] for name, kind in classes.items())]  # noqa: UP007
    printed = Captured()
    try:
        with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(printed):
            parsed, unknown = tyro.cli(
                union,
                prog="protein",
                args=words,
                return_unknown_args=True,
                config=(tyro.conf.FlagCreatePairsOff,),
            )
    except SystemExit as stop:
        if stop.code in (0, None):
            text = printed.getvalue()
            sys.stdout.write(text if {"-h", "--help"}.isdisjoint(words) else wrapped(text))
            raise
        raise UsageError(f"{_missing(words, classes[words[0]])}; see protein {words[0]} --help") from None
    if unknown:
        raise UsageError(_unknown(unknown[0], words, classes[words[0]]))
    return parsed


def _unknown(word: str, words: Sequence[str], kind: type) -> str:
    command = words[0]
    known = _flags(kind)
    if not word.startswith("-"):
        for flag, fits in (("--env", not word.isdigit()), ("--trial", word.isdigit())):
            if flag in known and flag not in words and fits:
                return f"unexpected argument '{word}'; did you mean '{flag} {word}'?"
        return f"unexpected argument '{word}'; see protein {command} --help"
    given = word.partition("=")[0]
    if command in _WITH_VALUES:
        name, run = given.removeprefix("--").replace("-", "_"), _kind(words)
        if name in RETIRED:
            return f"'{given}' {GONE}"
        for other in KINDS:
            if name in other.names and name not in run.names:
                return f"'{given}' is a setting of a {other.name} run, and this is a {run.name} run; leave it out"
    close = nearest(given.replace("_", "-"), known, OTHER_FLAGS)
    return f"unknown flag '{given}'{close if 'did you mean' in close else f'; see protein {command} --help'}"


def _flags(kind: Any, prefix: str = "") -> list[str]:
    """Returns the flags of a command's dataclass, nested ones with their dots."""
    found: list[str] = []
    for field in dataclasses.fields(kind):
        if dataclasses.is_dataclass(field.default_factory):
            nested = "" if field.name == "values" else f"{prefix}{field.name}."
            found += _flags(field.default_factory, nested)
        else:
            name = {"environment": "env", "from_": "from"}.get(field.name, field.name)
            found.append(f"--{prefix}{name}".replace("_", "-"))
            found += ["-o"] * (name == "output")
    return found


def _missing(words: Sequence[str], kind: type) -> str:
    """Returns what tyro has refused: a flag without its value, as other mistakes are found before."""
    known = _flags(kind)
    for word, after in itertools.zip_longest(words, words[1:], fillvalue="--"):
        if after.startswith("-") and word.replace("_", "-") in known:
            is_flag = after == "--" or after.partition("=")[0].replace("_", "-") in known
            meant = "" if is_flag else f"; one that begins with a dash is written {word}={shlex.quote(after):.80}"
            return f"flag '{word}' needs a value{meant}"
    return "the command line cannot be read"


def _split_params(words: Sequence[str], kind: type) -> tuple[list[str], dict[str, str]]:
    """Returns the words without the flags `--NAME VALUE` whose names only the sweep knows, and their values, as texts.

    `--params.NAME` is one, too, for a parameter that is called like a flag of the command.

    Raises:
        UsageError: a flag without its value, or given twice.
    """
    known = [*_flags(kind), "--help"]
    rest: list[str] = []
    values: dict[str, str] = {}
    remaining = iter(words)
    for word in remaining:
        flag, equals, text = word.partition("=")
        if not flag.startswith("--") or flag.replace("_", "-") in known:
            rest.append(word)
            if flag.startswith("--") and not equals and flag not in ("--json", "--help"):
                rest += [after for after in [next(remaining, None)] if after is not None]
            continue
        given = text if equals else next(remaining, None)
        name = flag.removeprefix("--").removeprefix("params.")
        if not name or given is None:
            raise UsageError(f"flag '{flag}' needs a value, as in --lr 0.001")
        if name in values:
            raise UsageError(f"flag '{flag}' is given twice; for several configs use --file FILE")
        values[name] = given
    return rest, values


def _split_env_args(words: Sequence[str]) -> tuple[list[str], dict[str, Any]]:
    """Returns the words without the flags `--env.args.NAME VALUE`, whose names only the environment knows, and their
    values, by dotted name.

    A value is read as TOML, `2`, `0.5`, `true`, `[1, 2]`, and as a text where it is not TOML. `True` and `False`, as
    all other flags have them, are no texts: "False" would count as true. No argument can be a date, so that is a text.

    Raises:
        UsageError: a flag without its name or its value.
    """
    rest: list[str] = []
    values: dict[str, Any] = {}
    remaining = iter(words)
    for word in remaining:
        if not word.startswith(_ENV_ARGS):
            rest.append(word)
            continue
        flag, equals, text = word.partition("=")
        given = text if equals else next(remaining, None)
        name = flag.removeprefix(_ENV_ARGS).replace("-", "_")
        if not name.isidentifier():
            raise UsageError(f"flag '{flag}' must be {_ENV_ARGS}NAME, with the name of an argument")
        if given is None:
            raise UsageError(f"flag '{flag}' needs a value")
        values[f"{ARGS}.{name}"] = _read_env_arg(given)
    return rest, values


def _read_env_arg(text: str) -> Any:
    import datetime  # these take a tenth of the time of the help, which does not need them
    import tomllib

    if text in ("True", "False"):
        return text == "True"
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        return text
    return text if isinstance(value, datetime.date | datetime.time) else value
