"""Suggestions of recorded sweeps stay what they are, bit for bit: a change of one is a change of the engine."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def suggestions() -> dict[str, list[object]]:
    program = [sys.executable, str(TESTS / "assets" / "suggestions.py")]
    done = subprocess.run(program, check=True, capture_output=True, text=True)
    found: dict[str, list[object]] = json.loads(done.stdout)
    return found


GOLDEN = json.loads((TESTS / "golden" / "suggestions.json").read_text())


@pytest.mark.parametrize("name", GOLDEN)
def test_recorded_suggestions_are_unchanged(name: str, suggestions: dict[str, list[object]]) -> None:
    assert suggestions[name] == GOLDEN[name]
