"""`protein sweep --command`: what its flags define, and how it runs."""

from rich.console import Console
from rich.text import Text

from protein.api import command_sweep
from protein.cli.arguments import SweepArguments
from protein.cli.help import SWEEP_GROUPS
from protein.cli.parse import Command
from protein.config import space_file
from protein.config.settings import SweepConfig
from protein.errors import UsageError
from protein.ports import Listener
from protein.run.command import SILENCE_SECONDS, CommandBackend
from protein.types import SweepSpec
from protein.units import parse_duration

_ONLY_HERE = [name for name in SWEEP_GROUPS["any-program"] if name not in ("command", "accept_changes")]


def asked(arguments: SweepArguments) -> bool:
    """Whether a command is to be swept. Raises `UsageError` where a flag for commands stands without one."""
    if arguments.command is not None or arguments.space is not None:
        for flag, value in (("--env", arguments.environment), ("--config", arguments.config)):
            if value is not None:
                raise UsageError(f"{flag} is for our trainer, --command for another program; give one of them")
        return True
    for name in _ONLY_HERE:
        if getattr(arguments, name) is not None:
            raise UsageError(f"--{name.replace('_', '-')} goes with --command; give the program to run")
    return False


def define(command: Command, settings: SweepConfig, console: Console) -> SweepSpec:
    """Returns what defines the sweep, and prints what of the space file is not taken over."""
    arguments: SweepArguments = command.arguments
    if command.values:
        flag = next(iter(command.values)).replace("_", "-")
        raise UsageError(f"--{flag} is a value of our trainer; a fixed value of your program stands in the space file")
    if arguments.space is None:
        raise UsageError("--command needs --space FILE: the ranges, as in [space] and lr = { min = 1e-4, max = 0.1 }")
    given = space_file.read(arguments.space)
    spec = command_sweep.define(
        arguments.command,
        given,
        name=arguments.name,
        direction=arguments.direction,
        method=settings.method,
        seed=settings.seed,
        params=arguments.params,
        score_regex=arguments.score_regex,
        steps_regex=arguments.steps_regex,
        score_csv=arguments.score_csv,
        score_tensorboard=arguments.score_tensorboard,
        resume_flag=arguments.resume_flag,
        chdir=arguments.chdir,
    )
    for line in given.warnings:
        console.print(Text(f"note: {line}"), soft_wrap=True)
    return spec


def make_backend(arguments: SweepArguments, spec: SweepSpec, listener: Listener) -> CommandBackend:
    """Returns the backend that runs the trials, and tells the listener of commands that behave oddly."""
    silence = SILENCE_SECONDS
    if arguments.max_silence is not None:
        silence = parse_duration(arguments.max_silence, "--max-silence")
    return CommandBackend(spec.direction, silence_seconds=silence, note=listener.log)
