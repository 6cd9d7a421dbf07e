"""`did you mean` names what was meant, and nothing that merely shares a few letters."""

import pytest

from protein.config.layers import flag, value_types
from protein.spelling import counted, nearest

VALUES = list(value_types())
FLAGS = [flag(name) for name in VALUES]
ENVS = ["breakout", "cartpole", "maze", "pong", "snake"]


@pytest.mark.parametrize(
    ("name", "known", "meant"),
    [
        ("pung", ENVS, "pong"),
        ("gmy", ["gym", "python"], "gym"),  # letters that changed places
        ("minimum", ["value", "min", "max", "scale"], "min"),
        ("train.learning_rat", VALUES, "train.learning_rate"),
        ("train.batch_size", VALUES, "train.minibatch_size"),
        ("--train.lerning-rate", FLAGS, "--train.learning-rate"),
        ("--cost", ["--max-cost", "--name"], "--max-cost"),
        ("--max-cost-trial", ["--max-trials", "--max-trial-cost"], "--max-trial-cost"),  # words that changed places
        ("learning_rate", VALUES, "train.learning_rate"),
    ],
)
def test_a_slip_is_answered_with_what_was_meant(name: str, known: list[str], meant: str) -> None:
    assert nearest(name, known) == f"; did you mean '{meant}'?"


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("lunar", ENVS),
        ("atari", ENVS),
        ("train.foo", VALUES),
        ("train.dropout", VALUES),
        ("--train.dropout", FLAGS),
        ("--gpu", ["--png", "--gif", "--env"]),
        ("x", []),
    ],
)
def test_something_unrelated_is_not_suggested(name: str, known: list[str]) -> None:
    assert nearest(name, known).startswith("; known: ")


def test_only_the_names_of_the_section_are_listed() -> None:
    said = nearest("policy.foo", VALUES)
    assert "policy.hidden_size" in said and "train." not in said


@pytest.mark.parametrize(
    ("number", "words", "said"),
    [
        (1, ("choice",), "1 choice"),
        (0, ("choice",), "0 choices"),
        (2_000, ("trial",), "2,000 trials"),
        (1, ("trial keeps its", "trials keep their"), "1 trial keeps its"),
        (3, ("trial keeps its", "trials keep their"), "3 trials keep their"),
    ],
)
def test_a_number_of_things_has_its_plural(number: int, words: tuple[str, ...], said: str) -> None:
    assert counted(number, *words) == said
