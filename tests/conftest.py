"""Linear algebra on one thread; what tests of commands need; databases: a fresh SQLite file, or one on a server."""

import itertools
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import postgresql
import pytest
import ray_clusters
import slurm_cluster
from browser import (  # noqa: F401 (fixtures of the tests of the page)
    browser,
    kept_phone,
    kept_view,
    known_store,
    new_view,
    own_store,
    phone,
    served,
    view,
    view_of,
)
from commands import filled, folder, run  # noqa: F401 (fixtures of the tests of commands)
from planted_store import kept_planted, planted_served, view_of_planted  # noqa: F401 (of tests of the page)
from warm_starts import cold, warm  # noqa: F401 (how processes start)

from protein.ports import Store
from protein.storage import open_store

if TYPE_CHECKING:
    from sqlalchemy import Engine

# As `protein` itself does, before torch is imported: tests run beside each other, and threads that spin while they wait
# take the cores from all the others. So a process that is warm has what a command gives to those that it starts, too.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")

# No test measures time: where other programs have the cores, an example or its making may take long.
hypothesis.settings.register_profile(
    "untimed", deadline=None, max_examples=40, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("untimed")

_numbers = itertools.count()

# What takes long to start, by words in the names of the fixtures or their parameters that need it.
_SERVERS = ("ray_cluster", "remote", "browser", "postgresql")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts the tests that need the same server side by side, so that one worker starts it and not each of them."""

    def place(item: pytest.Item) -> int:
        names = list(getattr(item, "fixturenames", ()))
        if (callspec := getattr(item, "callspec", None)) is not None:
            names += [value for value in callspec.params.values() if isinstance(value, str)]
        needed = (number for number, word in enumerate(_SERVERS) for name in names if name.startswith(word))
        return min(needed, default=len(_SERVERS))

    items.sort(key=place)


@pytest.fixture(scope="session", autouse=True)
def interrupts() -> Iterator[None]:
    """Ctrl-C is not ignored, here or in programs that tests start: a shell ignores it for what it runs with `&`."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="session", autouse=True)
def kept_answers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Answers about sweeps of tests are kept in a folder of the tests, beside the texts that the user has already."""
    cache, user = tmp_path_factory.mktemp("cache"), os.environ.get("XDG_CACHE_HOME")
    (cache / "protein").mkdir()
    (cache / "protein" / "text").symlink_to((Path(user or Path.home() / ".cache") / "protein" / "text").absolute())
    os.environ["XDG_CACHE_HOME"] = str(cache)
    yield
    del os.environ["XDG_CACHE_HOME"]
    if user is not None:
        os.environ["XDG_CACHE_HOME"] = user


@pytest.fixture(scope="module")
def one_blas_thread() -> Iterator[None]:
    """For tests that fit models directly: one thread, as in the engine. Several on busy cores mostly wait."""
    from protein.engine.gp import single_thread

    with single_thread():
        yield


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[str]:
    """The URL of a running server, without a database. Without a server installed: a skip, but in CI a failure."""
    try:
        postgresql.find_binaries()
    except postgresql.MissingPostgresqlError as error:
        if os.environ.get("CI"):
            pytest.fail(str(error))
        pytest.skip(str(error))
    with postgresql.server() as url:
        yield url


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[ray_clusters.RayCluster]:
    """A cluster of a head and two nodes with two cores each; one has a resource of its own. Without Ray: a skip."""
    with ray_clusters.running() as cluster:
        cluster.add(2)
        cluster.add(2, A100=1)
        yield cluster


@pytest.fixture(scope="session")
def slurm() -> Iterator[None]:
    """A Slurm of one node. Where it cannot be started: a skip."""
    if reason := slurm_cluster.why_not():
        pytest.skip(reason)
    with slurm_cluster.running():
        yield


@pytest.fixture(scope="session")
def postgresql_template(postgresql_server: str) -> str:
    """The name of a database with our schema: copying it is faster than making one for every test."""
    postgresql.create_database(postgresql_server, "ours")
    open_store(f"{postgresql_server}/ours").close()
    return "ours"


@pytest.fixture(scope="session")
def postgresql_shared(postgresql_server: str, postgresql_template: str) -> str:
    """The URL of a store that tests share: a template cannot be copied while it is used."""
    postgresql.create_database(postgresql_server, "shared", postgresql_template)
    return f"{postgresql_server}/shared"


@pytest.fixture
def new_postgresql(postgresql_server: str) -> Iterator[Callable[..., str]]:
    """Makes databases that are dropped after the test; returns their URLs."""
    made = []

    def create(template: str = "template0") -> str:
        made.append(f"test_{next(_numbers)}")
        postgresql.create_database(postgresql_server, made[-1], template)
        return f"{postgresql_server}/{made[-1]}"

    yield create
    for name in made:
        postgresql.drop_database(postgresql_server, name)


@pytest.fixture(params=["sqlite", "postgresql"])
def own_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty store that the test may damage, on every kind of database that we support."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/store.db"
    create = request.getfixturevalue("new_postgresql")
    return str(create(request.getfixturevalue("postgresql_template")))


@pytest.fixture
def engine(own_url: str) -> "Iterator[Engine]":
    """Of a new store's database."""
    from protein.storage.database import create_engine, parse_url

    open_store(own_url).close()
    engine = create_engine(parse_url(own_url))
    yield engine
    engine.dispose()


@pytest.fixture(params=["sqlite", "postgresql"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """As `own_url`, for tests that only use the store: on a server they share a database, emptied after each."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/store.db"
        return
    url = request.getfixturevalue("postgresql_shared")
    yield url
    postgresql.execute(url, "TRUNCATE machines, sweeps, trials, measurements, artifacts, annotations RESTART IDENTITY")


@pytest.fixture
def store(store_url: str) -> Iterator[Store]:
    store = open_store(store_url)
    yield store
    store.close()
