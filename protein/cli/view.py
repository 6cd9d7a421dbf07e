"""`protein view`: serves the page that shows a store's sweeps, until Ctrl-C."""

import contextlib
import socket
import sys

from protein.cli.arguments.views import ViewArguments
from protein.cli.parse import Command
from protein.errors import UsageError


def run(command: Command) -> int:
    arguments: ViewArguments = command.arguments
    if arguments.store is not None and arguments.of is not None:
        raise UsageError(f"the store is given twice, as {arguments.of!r} and with --store; give it once")
    if arguments.port is not None and not 1 <= arguments.port <= 65535:
        raise UsageError(f"--port {arguments.port} must be from 1 to 65535")
    from protein.api import stores
    from protein.web import app, memory, security

    local = security.is_loopback(arguments.host)
    if not local and not arguments.token:
        raise UsageError(
            f"--host {arguments.host} lets other machines read the store and change tags, notes and exclusions"
            "; add --token to make a token that they need"
        )
    memory.keep_small()  # before there are threads
    store_url = stores.url(arguments.store if arguments.of is None else arguments.of)
    artifacts = stores.given_artifacts(arguments.artifacts)
    stores.check(store_url)  # before the address is printed; the store is opened while the page loads
    token = security.new_token() if arguments.token else None
    listening = app.listen(arguments.host, arguments.port)
    address = f"http://{_shown_host(arguments.host)}:{listening.getsockname()[1]}/"
    if token is not None:
        address += f"?token={token}"
    print(f"protein view: {address}  (Ctrl-C ends it)", flush=True)
    if arguments.open:
        import webbrowser

        webbrowser.open(address)
    with contextlib.suppress(KeyboardInterrupt):
        app.make_server(store_url, host=arguments.host, token=token, artifacts=artifacts).serve_on(listening)
    print("\nended; sweeps that run are not affected", file=sys.stderr)
    return 0


def _shown_host(host: str) -> str:
    """Returns how an address names the machine: by its name where it listens on all of its addresses."""
    bare = host.strip("[]")
    if bare in ("0.0.0.0", "::"):
        return socket.gethostname()
    return f"[{bare}]" if ":" in bare else bare
