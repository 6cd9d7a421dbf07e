"""The command line: `protein COMMAND`. Exit codes: 0, 1 (the work failed), 2 (bad usage), 130 (interrupted).

Every error that a user can meet is one line on stderr, `error: ...`; anything else is a defect and shows its traceback.
Nothing heavy is imported before a command needs it, so that `protein --help` answers at once.
"""

import contextlib
import gc
import importlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TextIO, cast

from protein.errors import FULL, ProteinError
from protein.trainer.errors import TrainerError

INTERRUPTED_CODE = 130
# Commands that end within seconds, and leave no garbage worth looking for; unless they watch a sweep.
_SHORT = ("best", "pareto", "status")
_WORK = ("sweep", "train", "worker", "serve")  # commands that go on where nobody reads their output any more


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command and returns the exit code."""
    prepare()
    collects = gc.isenabled()
    gc.disable()  # in modules that are loaded there is no garbage, and to look for it takes a tenth of the time
    try:
        return answered(lambda: _run(arguments, collects=collects))
    finally:
        if collects:
            gc.enable()


def prepare() -> None:
    """Sets up the streams and the environment of this process and its children."""
    _open_streams()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError):  # a terminal that cannot show a character shows a ? instead
            stream.reconfigure(errors="replace")  # type: ignore[union-attr]
    # Waiting threads of OpenMP spin by default. Beside other work on the machine that makes small networks a hundred
    # times slower. With this setting they sleep. Torch reads it when it is imported; trials inherit it.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")  # the same for those of numpy: 2^4 clock ticks


def _run(arguments: Sequence[str] | None, *, collects: bool) -> int:
    from protein.cli.parse import parse  # it loads most of what there is to load, and Ctrl-C may come meanwhile

    command = parse(list(sys.argv[1:] if arguments is None else arguments))
    module, _, function = command.function.partition(".")
    run = getattr(importlib.import_module(f"protein.cli.{module}"), function)
    if collects and (command.name not in _SHORT or getattr(command.arguments, "watch", False)):
        gc.enable()
    with lasting_streams() if command.name in _WORK else contextlib.nullcontext():
        code = int(run(command))
        sys.stdout.flush()
    return code


def answered(work: Callable[[], int], in_words: Callable[[str], str] = str) -> int:
    """Returns the exit code of some work. Every error that a user can meet is one line, put `in_words` of theirs."""
    try:
        return work()
    except (ProteinError, TrainerError) as error:
        return _report(in_words(str(error)), error.exit_code)
    except ImportError as error:
        if not str(error.name).endswith("._native"):
            raise
        return _report(str(error), 1)
    except BrokenPipeError:  # the reader of our output has ended, as in `protein show pong | head`
        _drop_output(sys.stdout)
        return 1
    except KeyboardInterrupt:
        return _report("interrupted", INTERRUPTED_CODE)
    except OSError as error:
        if error.filename is None and error.errno not in FULL:
            raise
        if error.filename is None:
            _drop_output(sys.stdout)
            return _report(f"cannot write: {error.strerror}; free some space", 2)
        return _report(f"{error.filename}: {error.strerror}; check the path and its permissions", 2)


def _open_streams() -> None:
    """Opens as /dev/null what was closed when the program was started, as by `>&-`.

    Their numbers are taken first: else a file that is opened later, such as the store, would be the standard output of
    the programs that run in a sweep.
    """
    closed = [name for name in ("stdin", "stdout", "stderr") if getattr(sys, name) is None]
    if closed:
        while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
            pass
        os.close(descriptor)
    for name in closed:
        setattr(sys, name, open(os.devnull, "r" if name == "stdin" else "w"))  # noqa: PTH123, SIM115 (until its end)


class _Lasting:
    """A stream whose reader may end, as in `protein sweep ... | head`. From then on what is written is dropped."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except BrokenPipeError:
            _drop_output(self._stream)
            return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except BrokenPipeError:
            _drop_output(self._stream)


@contextlib.contextmanager
def lasting_streams() -> Iterator[None]:
    """Drops what is written to the standard streams once nobody reads them."""
    streams = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (cast(TextIO, _Lasting(stream)) for stream in streams)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = streams


def _drop_output(stream: TextIO) -> None:
    """Lets a stream write to nowhere, so that what could not be written is not tried again, as at the exit."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _report(line: str, code: int) -> int:
    from protein.view.text import MAX_TEXT, cleaned  # late: a command that works does not need it

    try:
        print("error: " + " ".join(cleaned(line, MAX_TEXT).split()), file=sys.stderr)
    except BrokenPipeError:  # nobody reads that either
        _drop_output(sys.stderr)
    return code
