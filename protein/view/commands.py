"""Commands that are printed for the user to run next. They work as typed, also where no environment is active."""

import shlex
import shutil
import sys
from pathlib import Path

from protein.config.layers import display_path

NAME = "protein"
PROMPT = "def "  # with which a language model of the built-in text shows what it writes


def command(*words: str) -> str:
    """Returns a command line of this program, quoted for a shell."""
    return shlex.join([*program(), *words])


def program() -> list[str]:
    """Returns the words that start this program: `protein` where the shell finds it, else its path."""
    running = Path(sys.argv[0])
    script = running if running.name == NAME and running.is_file() else Path(sys.executable).parent / NAME
    found = shutil.which(NAME)
    if not script.is_file():
        return [NAME] if found else [sys.executable, "-m", NAME]
    if found is not None and Path(found).resolve() == script.resolve():
        return [NAME]
    path = display_path(script.absolute())
    return [path if "/" in path else f"./{path}"]
