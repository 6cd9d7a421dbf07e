"""`protein serve`: what its flags mean, and what it prints."""

import contextlib
import os
import stat
import sys
from pathlib import Path

from protein.cli.arguments import ServeArguments
from protein.cli.parse import Command
from protein.errors import UsageError
from protein.run.served import TOKEN, read_token


def run(command: Command) -> int:
    arguments: ServeArguments = command.arguments
    if arguments.place is None:
        raise UsageError("give the folder of the sweeps, as in protein serve /data/runs")
    root = Path(arguments.place).absolute()
    if not root.is_dir():
        raise UsageError(f"there is no folder {root}: give the one of protein sweep --backend folder:DIR")
    if arguments.port is not None and not 1 <= arguments.port <= 65535:
        raise UsageError(f"--port {arguments.port} must be from 1 to 65535")
    from protein.web import app, folder, security

    file = arguments.token_file or root / ".token"
    token = _kept_token(file, security.new_token())
    listening = app.listen(arguments.host, arguments.port, folder.DEFAULT_PORT)
    with contextlib.closing(listening), contextlib.suppress(KeyboardInterrupt):
        address = f"http://{app.shown_host(arguments.host)}:{listening.getsockname()[1]}"
        print(f"protein serve: {address}  (Ctrl-C ends it)", flush=True)
        print(f"its token is in {file}: workers need it, by --token-file FILE or ${TOKEN}", flush=True)
        if not security.is_loopback(arguments.host):
            print(
                "note: the token and the messages travel unencrypted. Safer: leave out --host, and let a proxy with TLS"
                " pass on what comes for it (docs/many-machines.md)",
                file=sys.stderr,
                flush=True,
            )
        folder.make_server(root, token).run(sockets=[listening])
    print("\nended; sweeps and workers wait for it two minutes", file=sys.stderr)
    return 0


def _kept_token(file: Path, new: str) -> str:
    """Returns the token in a file, which is made where there is none, for this user alone.

    Raises:
        UsageError: it can be neither read nor made, or others can read it.
    """
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    except FileExistsError:
        if file.exists() and file.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise UsageError(f"others may read the token in {file}: chmod 600 it, or remove it for a new one") from None
    except OSError as error:
        raise UsageError(f"a token cannot be written to {file} ({error.strerror}); give --token-file") from error
    else:
        with os.fdopen(descriptor, "w") as out:
            out.write(f"{new}\n")
    token = read_token(file)
    assert token is not None  # a file was given
    return token
