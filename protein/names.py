"""What a sweep may be called, and the one place where its name becomes part of a path.

A store, or a file of sweeps, may come from somebody else, and then a name in it is any text: "../.." or "/etc", too.
Every file and folder that is called after a sweep is called by `folder_name`, which leads into no other folder.
"""

import hashlib
import re

NAME_LENGTH = 64
_NAME = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{NAME_LENGTH - 1}}}")


def is_name(name: object) -> bool:
    """Whether a sweep may be called so."""
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


def folder_name(sweep: str, *, taken: str = "") -> str:
    """Returns what a sweep's folder is called: one harmless part of a path, another one for each name.

    It is the name itself where a sweep may be called so. Any other name comes from elsewhere. Its folder is called
    after a hash of it, and begins with an underscore, with which no name of a sweep begins. No folder is called
    `taken`, the name of a file beside it, or begins with it.
    """
    if is_name(sweep) and not (taken and sweep.lower().startswith(taken.lower())):
        return sweep
    return f"_sweep-{hashlib.sha256(sweep.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"
