"""Fetches the one file of PufferLib 3.0.0 that the comparison uses, its sweep, into a cache outside the repository.

    python benchmarks/engine/fetch_pufferlib.py

The release is a source distribution alone. Its build downloads further archives and fails without them, but pip unpacks
a source distribution before it builds anything. So pip is told to keep what it unpacked; its failure does not matter.
Nothing is installed. The file's checksum is compared with that of the release.

Source: the source distribution of pufferlib 3.0.0, MIT license, copyright PufferAI.
"""

import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

RELEASE = "pufferlib==3.0.0"
_SHA256 = "1fee18aed4221b38448ee327985aa1694200027ac3448dcc8b8de46097997c10"


def cached() -> Path:
    """Returns where the file is, or would be: in `$XDG_CACHE_HOME`, by default `~/.cache`."""
    root = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(root) / "protein" / RELEASE / "sweep.py"


def fetch() -> Path:
    """Returns the file's path; fetches it where it is missing. Raises `RuntimeError` when that fails."""
    path = cached()
    if path.exists():
        return path
    with tempfile.TemporaryDirectory() as folder:
        words = ["download", "--no-deps", "--no-binary", ":all:", "--no-build-isolation", "--no-clean", "-d", folder]
        # Without these two the build looks for archives on a host of its own.
        environment = os.environ | {"TMPDIR": folder, "NO_OCEAN": "1", "NO_TRAIN": "1"}
        command = [sys.executable, "-m", "pip", *words, RELEASE]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        found = [file.read_bytes() for file in Path(folder).glob("**/pufferlib/sweep.py")]
    if not found:
        raise RuntimeError(f"pip did not fetch {RELEASE}:\n{done.stdout[-1000:]}{done.stderr[-1000:]}")
    if hashlib.sha256(found[0]).hexdigest() != _SHA256:
        raise RuntimeError(f"the sweep.py of {RELEASE} is not the released one: its checksum differs")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(found[0])
    return path


if __name__ == "__main__":
    print(fetch())
