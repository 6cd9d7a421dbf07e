"""A real PostgreSQL server for the tests: a throw-away cluster on a free port, in a temporary folder.

The distribution's own binaries, run as another user when we are root, because `initdb` and `postgres` refuse root.
"""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

NOBODY = 65534  # user and group of the server when the tests run as root
START_SECONDS = 60


class MissingPostgresqlError(Exception):
    """There are no PostgreSQL server binaries on this machine."""


def find_binaries() -> Path:
    """Returns the folder that holds `initdb` and `postgres`."""
    places = []
    if shutil.which("pg_config"):
        asked = subprocess.run(["pg_config", "--bindir"], capture_output=True, text=True, check=False)
        places.append(Path(asked.stdout.strip()))
    if found := shutil.which("initdb"):
        places.append(Path(found).resolve().parent)
    places += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    for place in places:
        if (place / "initdb").exists() and (place / "postgres").exists():
            return place
    raise MissingPostgresqlError(
        "no PostgreSQL server found (pg_config, PATH, /usr/lib/postgresql); install postgresql"
    )


@contextmanager
def server() -> Iterator[str]:
    """Runs a server and yields its URL without a database: `postgresql+psycopg://postgres@127.0.0.1:PORT`."""
    binaries = find_binaries()
    folder = Path(tempfile.mkdtemp(prefix="protein-postgresql-"))
    as_user: list[str | Path] = []
    if os.geteuid() == 0:
        folder.chmod(0o755)
        os.chown(folder, NOBODY, NOBODY)
        as_user = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    # Where the tool is there (Linux), the server dies with a killed test run.
    mortal: list[str | Path] = [*(as_user or ["setpriv"]), "--pdeathsig=INT"] if shutil.which("setpriv") else []
    data, log = folder / "data", folder / "log"
    environment = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "TZ": "UTC"}
    try:
        options: list[str | Path] = ["-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8"]
        _run([*as_user, binaries / "initdb", *options], environment, folder)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        options = ["-D", data, "-h", "127.0.0.1", "-p", str(port), "-k", "", "-F", "-c", "synchronous_commit=off"]
        with log.open("wb") as output:
            process = subprocess.Popen(
                [*mortal, binaries / "postgres", *options],
                stdout=output,
                stderr=output,
                cwd=folder,
                env=environment,
            )
        try:
            _wait(process, port, log)
            yield f"postgresql+psycopg://postgres@127.0.0.1:{port}"
        finally:
            process.send_signal(signal.SIGINT)  # a fast shutdown: SIGTERM would wait for clients
            process.wait(START_SECONDS)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def create_database(url: str, name: str, template: str = "template0") -> None:
    execute(f"{url}/postgres", f'CREATE DATABASE "{name}" TEMPLATE "{template}"')


def drop_database(url: str, name: str) -> None:
    """Drops a database, cutting off whoever still uses it."""
    execute(f"{url}/postgres", f'DROP DATABASE "{name}" WITH (FORCE)')


def execute(url: str, statement: str) -> None:
    """Executes one statement in a database, past our own code."""
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as connection:
        connection.execute(statement)


def _wait(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    end = time.monotonic() + START_SECONDS
    while True:
        try:
            psycopg.connect(host="127.0.0.1", port=port, user="postgres", dbname="postgres").close()
            return
        except psycopg.OperationalError:
            if process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"PostgreSQL did not start: {log.read_text()[-2000:]}") from None
            time.sleep(0.05)


def _run(command: list[str | Path], environment: dict[str, str], folder: Path) -> None:
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=folder, check=False)
    if done.returncode:
        raise RuntimeError(f"{command[0]} failed: {done.stderr.strip()[-2000:]}")
