"""Fixtures for tests of the running service: directories, databases, mail servers, browsers."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from adapters.crypto import generate_key
from tests.proof.e2e import launcher
from tests.proof.e2e.browser import Browser, missing
from tests.proof.e2e.process import DatabaseServer, Service
from tests.proof.e2e.sink import MailSink
from tests.support import database

Start = Callable[..., Service]


@contextmanager
def service_home() -> Iterator[Path]:
    """A directory for the files of a service."""
    with database.reachable_directory() as path:
        for directory in (path / "var", path / "tmp"):
            directory.mkdir()
            directory.chmod(0o711)
        yield path


@contextmanager
def settings_of_own_database() -> Iterator[dict[str, str]]:
    """Settings for a migrated database on the run's server, as for an operator with a PostgreSQL server."""
    with database.Database(os.environ[database.SERVER_VARIABLE]) as fresh:
        yield {"SSO_DATABASE_URL": fresh.conninfo, "SSO_ENCRYPTION_KEYS": generate_key()}


@pytest.fixture
def home() -> Iterator[Path]:
    """The directory for the service's files."""
    with service_home() as path:
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
    """Settings for a migrated database of this test."""
    with settings_of_own_database() as settings:
        yield settings


@pytest.fixture
def server(home: Path) -> Iterator[DatabaseServer]:
    """A database server that the test can start and stop. It is not running yet."""
    own = DatabaseServer(home)
    yield own
    own.stop()


@pytest.fixture(scope="session", autouse=True)
def launcher_ends() -> Iterator[None]:
    yield
    launcher.close()


@pytest.fixture
def service(home: Path) -> Iterator[Start]:
    """Return a function that creates services with these arguments and settings.

    They are not started yet, and are stopped after the test.
    """
    made: list[Service] = []

    def make(*arguments: str, **settings: str) -> Service:
        made.append(Service(home, *arguments, **settings))
        return made[-1]

    yield make
    for each in made:
        each.clean_up()


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """One browser process for all tests of a worker."""
    if reason := missing():
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    with database.reachable_directory() as profile, Browser(profile) as started:
        yield started


@pytest.fixture
def browser(chromium: Browser) -> Browser:
    """A browser without data of earlier tests."""
    chromium.forget()
    return chromium
