"""`protein worker`: what its flags mean, and what it prints."""

import contextlib
import functools
import os
import threading
import time
from datetime import datetime
from pathlib import Path

from protein.cli.arguments import WorkerArguments
from protein.cli.parse import Command
from protein.cli.signals import caught
from protein.errors import UsageError
from protein.run.machine import find_gpus, installed_gpus
from protein.run.mirror import Mirror
from protein.run.served import TOKEN, Server, read_token
from protein.run.worker import Workers
from protein.sweep.stop_conditions import parse_moment
from protein.units import parse_duration
from protein.view import tables


def run(command: Command) -> int:
    arguments: WorkerArguments = command.arguments
    if arguments.place is None:
        raise UsageError(
            "give the folder of the sweeps, as in protein worker /shared/runs, or the URL of their protein serve"
        )
    console, stop = tables.make_console(), threading.Event()

    def note(line: str) -> None:
        console.print(f"{time.strftime('%H:%M:%S')} {line}", soft_wrap=True, markup=False)

    make = functools.partial(
        Workers,
        slots=arguments.slots,
        gpus=None if arguments.gpus is None else find_gpus(arguments.gpus, os.environ, installed_gpus()),
        seconds=None if arguments.until is None else _seconds_until(arguments.until),
        note=note,
    )
    is_url = arguments.place.lower().startswith(("http://", "https://"))
    if arguments.token_file is not None and not is_url:
        raise UsageError("--token-file is for the URL of a protein serve, which begins with http:// or https://")
    token = read_token(arguments.token_file)
    if not is_url:
        workers = make(Path(arguments.place).absolute())
        with caught(stop):
            workers.run(stop.is_set)
        return 0
    if token is None:
        raise UsageError(f"give the token of protein serve by --token-file FILE, or in the variable {TOKEN}")
    server = Server(arguments.place, token)
    mirror = Mirror(server, note)
    with caught(stop), contextlib.closing(mirror):
        make(mirror.root, server=server).run(lambda: stop.is_set() or mirror.error is not None)
    if mirror.error is not None:
        raise mirror.error
    return 0


def _seconds_until(text: str) -> float:
    """Returns how long it is until a moment, or a duration in seconds."""
    if ":" not in text:  # which each moment has; one in UTC may end with a letter, too
        return parse_duration(text, "--until")
    now = datetime.now().astimezone()
    return (parse_moment(text, "--until", now) - now).total_seconds()
