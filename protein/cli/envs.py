"""`protein envs`: the environments that there are."""

import dataclasses

from protein import envs_c
from protein.cli.output import print_json
from protein.cli.parse import Command
from protein.view import tables


def run(command: Command) -> int:
    specs = [envs_c.spec(name) for name in envs_c.names()]
    if command.arguments.json:
        print_json([dataclasses.asdict(spec) for spec in specs])
        return 0
    console = tables.make_console()
    console.print(tables.envs(specs, console.width))
    console.print(
        "\nalso gym:ID, any environment of Gymnasium, Atari's among them, pettingzoo:MODULE, a parallel one of"
        " PettingZoo, procgen:GAME, one of Procgen's, and python:MODULE:NAME, one of your own: docs/environments.md\n"
        "text/python is no environment: with it, protein train and sweep make a language model of the source text of"
        " Python's standard library",
        soft_wrap=True,
    )
    return 0
