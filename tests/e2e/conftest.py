"""Fixtures for tests of the running service: places, databases, mail servers, browsers."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict

from adapters.crypto import generate_key
from tests import database
from tests.e2e.browser import Browser, missing
from tests.e2e.process import DatabaseServer, Service
from tests.e2e.sink import MailSink

Start = Callable[..., Service]


@contextmanager
def place() -> Iterator[Path]:
    """A directory that the account of a database can enter; pytest's own are for root alone when root runs the tests."""
    # Beside the run's own server: what a run that is killed leaves there, the next run sweeps away.
    beside = Path(str(conninfo_to_dict(os.environ[database.SERVER_VARIABLE])["host"])).parent
    path = Path(tempfile.mkdtemp(prefix="e2e-", dir=beside)).resolve()
    for directory in (path, path / "var", path / "tmp"):
        directory.mkdir(exist_ok=True)
        directory.chmod(0o711)
    try:
        yield path
    finally:
        shutil.rmtree(path)


@pytest.fixture
def home() -> Iterator[Path]:
    """Where the service of this test keeps its things."""
    with place() as path:
        yield path


@pytest.fixture
def sink() -> Iterator[MailSink]:
    """A mail server."""
    server = MailSink()
    server.start()
    yield server
    server.close()


@pytest.fixture
def own_database() -> Iterator[dict[str, str]]:
    """Settings that lead to a migrated database of this test's own on the run's server, as an operator with a PostgreSQL has them."""
    with database.Database(os.environ[database.SERVER_VARIABLE]) as fresh:
        yield {"SSO_DATABASE_URL": fresh.conninfo, "SSO_ENCRYPTION_KEYS": generate_key()}


@pytest.fixture
def server(home: Path) -> Iterator[DatabaseServer]:
    """A database server that the test may stop and start; it does not run yet."""
    own = DatabaseServer(home)
    yield own
    own.stop()


@pytest.fixture
def service(home: Path) -> Iterator[Start]:
    """A service with these arguments and settings, not started yet; whatever is left of it is ended after the test."""
    made: list[Service] = []

    def make(*arguments: str, **settings: str) -> Service:
        made.append(Service(home, *arguments, **settings))
        return made[-1]

    yield make
    for each in made:
        each.clean_up()


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """One browser for all tests of a worker."""
    if reason := missing():
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    with place() as profile, Browser(profile) as started:
        yield started


@pytest.fixture
def browser(chromium: Browser) -> Browser:
    """A browser without anything of the tests before."""
    chromium.forget()
    return chromium
