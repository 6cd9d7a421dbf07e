"""Flags for the arguments of an environment: `--env.args.NAME VALUE`."""

import pytest

from protein.cli.parse import parse
from protein.errors import UsageError


def test_arguments_are_read_as_toml_or_as_texts() -> None:
    words = [
        "train",
        "--env",
        "gym:LunarLander-v3",
        "--env.args.gravity",
        "-9.5",
        "--env.args.enable-wind=true",
        "--train.seed",
        "3",
    ]
    command = parse([*words, "--env.args.sizes", "[1, 2]", "--env.args.mode", "hard"])
    assert command.values == {
        "train.seed": 3,
        "env.args.gravity": -9.5,
        "env.args.enable_wind": True,
        "env.args.sizes": [1, 2],
        "env.args.mode": "hard",
    }


@pytest.mark.parametrize(
    ("text", "value"),
    [("True", True), ("False", False), ("2020-01-01", "2020-01-01"), ("2020-01-01T10:00:00", "2020-01-01T10:00:00")],
)
def test_what_python_and_people_write_is_read_as_they_mean_it(text: str, value: object) -> None:
    assert parse(["train", "--env", "gym:A-v0", "--env.args.one", text]).values == {"env.args.one": value}


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("--env.args.gravity", "flag '--env.args.gravity' needs a value"),
        ("--env.args.=3", "with the name of an argument"),
    ],
)
def test_a_mistake_is_told_in_one_line(word: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse(["sweep", "--env", "gym:LunarLander-v3", word])
