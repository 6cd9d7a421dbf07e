"""Runs ES modules of the page in node, the one that Playwright brings: quicker than a browser, and the same engine."""

import subprocess
from pathlib import Path

from patience import PATIENCE_SECONDS
from playwright._impl._driver import compute_driver_executable

PLAY = Path(__file__).parents[2] / "protein" / "web" / "static" / "play"


def run_module(code: str, given: bytes = b"") -> bytes:
    """Runs a module's code, which may import "play/NAME.js" and read stdin; returns what it wrote to stdout."""
    node, _ = compute_driver_executable()
    code = code.replace('"play/', f'"{PLAY.as_uri()}/')
    done = subprocess.run(
        [node, "--input-type=module", "--no-warnings", "--eval", code],
        input=given,
        capture_output=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout
