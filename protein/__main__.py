"""`protein`, which is `python -m protein`: the first code of ours that runs, and the last.

Ctrl-C prints no traceback, from the first line here to the end of Python. Commands answer it while they run. Before and
after, and once more while one answers, it ends the program. So it does where Python would only print it and go on, as
in a destructor or in what is done at exit. The exit code is 130, or the program dies of the signal.
"""

import gc
import os
import sys

TYPE_CHECKING = False  # what `typing` has; to import that takes as long as all else here
if TYPE_CHECKING:
    from types import TracebackType

_INTERRUPTED_CODE = 130


def main() -> int:
    """Runs a command and returns the exit code."""
    quiet_interrupts()
    try:
        from protein.cli import main as run

        code = run()
        gc.freeze()  # all memory goes now; to look through it for garbage before takes .1 s
        return code
    except KeyboardInterrupt:
        return _INTERRUPTED_CODE


def quiet_interrupts() -> None:
    """Sees to it that Ctrl-C ends this process without a traceback where nothing catches it."""
    sys.excepthook, sys.unraisablehook = _print, _print_unraisable


def _print(kind: type[BaseException], error: BaseException, traceback: "TracebackType | None") -> None:
    if not issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, traceback)


def _print_unraisable(unraisable: "sys.UnraisableHookArgs") -> None:
    if issubclass(unraisable.exc_type, KeyboardInterrupt):
        os._exit(_INTERRUPTED_CODE)  # it would be lost
    sys.__unraisablehook__(unraisable)


if __name__ == "__main__":
    sys.exit(main())
