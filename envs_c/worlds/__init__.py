"""The environments as WebAssembly, one small file each, for pages: `names` and `read`.

`make wasm` builds them from the headers (scripts/worlds.py). SHA256SUMS has their hashes, and those of their sources.
"""

from pathlib import Path

__all__ = ["NoWorldError", "names", "read", "require"]

_FOLDER = Path(__file__).parent


class NoWorldError(ValueError):
    """An environment has no file here."""


def names() -> list[str]:
    """Returns the names of the environments that pages can play, sorted."""
    return sorted(path.stem for path in _FOLDER.glob("*.wasm"))


def read(name: str) -> bytes:
    """Returns an environment's file.

    Raises:
        NoWorldError: there is none, as of an environment in Python, or of one in C that was not built for pages.
    """
    require(name)
    return (_FOLDER / f"{name}.wasm").read_bytes()


def require(name: str) -> None:
    """Raises `NoWorldError` as `read` does."""
    if name not in names():
        raise NoWorldError(
            f"'{name}' cannot be played in a page: it has no WebAssembly; there is one of {', '.join(names())},"
            " and make wasm builds that of a C environment"
        )
