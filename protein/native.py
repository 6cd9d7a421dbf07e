"""Why compiled code cannot be loaded on this system, in one line. It imports nothing of ours, so every package may use
it.
"""

import importlib.machinery
import os
import re
import sys
from pathlib import Path

_OWN_BUILD = "build it here, in the folder of the source: pip install ."
_NEWER = "use a newer system, such as Debian 10, Ubuntu 20.04 or RHEL 8, or a container of one"


def not_loaded(error: ImportError, package: str, folder: Path) -> ImportError:
    """Returns the error to raise where `package._native` cannot be imported; its `name` is that of the module.

    Args:
        error: what the import raised.
        folder: where the files `_native.*.so` of the package are.
    """
    built = sorted(path.name.split(".")[1] for path in folder.glob("_native.*.so"))
    here = importlib.machinery.EXTENSION_SUFFIXES[0].split(".")[1]  # such as cpython-311-x86_64-linux-gnu
    libc = c_library()
    lacks = re.search(r"version `((GLIBC_(?=\d))?([\w.]+))' not found", str(error))
    if libc == "musl" and any("gnu" in build for build in built):
        reason = "it needs glibc, and the C library of this system is musl; use a system or a container with glibc"
    elif lacks and lacks[2]:
        reason = f"it needs glibc {lacks[3]} or newer, and this system has {libc}; {_NEWER}"
    elif lacks:
        reason = f"it needs {lacks[1]}, which a library of this system lacks; {_OWN_BUILD}"
    elif "cannot import name" not in str(error):  # it is there
        reason = f"{(str(error).splitlines() or ['no reason is given'])[0]}; {_OWN_BUILD}"
    elif built:
        reason = (
            f"it is for {' and '.join(built)}, and this Python is {here}; install the wheel for this, or {_OWN_BUILD}"
        )
    else:
        reason = f"it is not there; {_OWN_BUILD}"
    return ImportError(f"the compiled code of {package} cannot be loaded: {reason}", name=f"{package}._native")


def c_library() -> str:
    """Returns the C library of this system, such as "glibc 2.36"; on Linux without glibc "musl", elsewhere ""."""
    try:
        return os.confstr("CS_GNU_LIBC_VERSION") or "musl"
    except (AttributeError, OSError, ValueError):  # no such name is known here
        return "musl" if sys.platform == "linux" else ""
