"""Reads a space in a file of its own (`--space`); the file's ending says which form it has.

.toml          our own (`protein.config.space_toml`)
.yaml, .yml    a sweep of W&B, as it is (`protein.config.wandb_sweep`)
.ini           PufferLib's, as it is (`protein.config.puffer_ini`)
.json          Ray Tune's, Optuna's or ConfigSpace's (`protein.config.json_space`)
"""

from pathlib import Path

from protein.config import json_space, puffer_ini, space_toml, wandb_sweep
from protein.config.layers import display_path
from protein.config.space_toml import SpaceFile
from protein.errors import SpaceError, UsageError


def read(path: Path) -> SpaceFile:
    """Returns what a space file holds. Raises `UsageError`, with the file and the key, where it cannot be used."""
    source = f"--space {display_path(path)}"
    try:
        text = path.read_text(encoding="utf-8-sig")  # editors on Windows begin a file with a mark
    except FileNotFoundError:
        raise UsageError(f"{source}: no such file; check the path") from None
    except OSError as error:
        raise UsageError(f"{source}: cannot be read ({error.strerror}); check the path") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{source}: is no text ({error.reason}); give a TOML, YAML, INI or JSON file") from error
    readers = {
        **dict.fromkeys((".yaml", ".yml"), wandb_sweep.read),
        ".toml": space_toml.read,
        ".json": json_space.read,
    }
    suffix = path.suffix.lower()
    if suffix not in (*readers, ".ini"):
        raise UsageError(
            f"{source}: '{path.suffix}' is no known kind; give our form (.toml), a W&B sweep (.yaml),"
            " PufferLib's .ini, or a space of Ray Tune, Optuna or ConfigSpace (.json)"
        )
    try:
        return puffer_ini.read(text, source, path) if suffix == ".ini" else readers[suffix](text, source)
    except SpaceError as error:
        raise UsageError(f"{source}: {error}") from error
