"""Fixtures for tests with a running service: directories, databases, mail servers, browsers."""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psycopg
import pytest

from adapters.crypto import generate_key
from tests.proof.e2e import launcher
from tests.proof.e2e.browser import Browser, missing
from tests.proof.e2e.process import DatabaseServer, Service, copy_database, gatehouse
from tests.proof.e2e.sink import MailSink
from tests.support import database
from tests.support.waiting import until

Start = Callable[..., Service]


def settings_of_owner(email: str, password: str) -> dict[str, str]:
    """Return the settings for a service with this platform owner. Its new organizations are active at once."""
    return {"SSO_PLATFORM_OWNER_EMAIL": email, "SSO_PLATFORM_OWNER_PASSWORD": password, "SSO_AUTO_APPROVE_ORGANIZATIONS": "true"}


@contextmanager
def service_home() -> Iterator[Path]:
    """A directory for a service's files."""
    with database.reachable_directory() as path:
        for directory in (path / "var", path / "tmp"):
            directory.mkdir()
            directory.chmod(0o711)
        yield path


@contextmanager
def settings_of_own_database() -> Iterator[dict[str, str]]:
    """Settings for a migrated database on the run's server, as for an operator with a PostgreSQL server."""
    with database.Database(os.environ[database.SERVER_VARIABLE]) as fresh:
        fresh.plan_once()
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
    """Settings for this test's migrated database."""
    with settings_of_own_database() as settings:
        yield settings


@pytest.fixture(scope="session")
def stopped_database() -> Iterator[Path]:
    """The data of an embedded database that is migrated and stopped. A copy takes a tenth as long as a new database."""
    with service_home() as home:
        migrated = gatehouse(home, "migrate")
        assert migrated.returncode == 0, migrated.stderr
        yield home / "var" / "postgres"


@pytest.fixture
def migrated_home(home: Path, stopped_database: Path) -> Path:
    """`home`, with an embedded database that has been migrated already."""
    copy_database(stopped_database, home / "var" / "postgres")
    return home


@pytest.fixture
def server(home: Path, stopped_database: Path) -> Iterator[DatabaseServer]:
    """A migrated database server that the test can start and stop. It is not running yet."""
    own = DatabaseServer(home, stopped_database)
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
    services: list[Service] = []

    def make(*arguments: str, **settings: str) -> Service:
        services.append(Service(home, *arguments, **settings))
        return services[-1]

    yield make
    for each in services:
        each.clean_up()


class SharedService:
    """A service that a module's tests share.

    Every test finds the database, the emails and the output as they were when the service started. After a test that
    stops the service, the next test starts it again.
    """

    def __init__(self, home: Path, sink: MailSink, own: database.Database, settings: Mapping[str, str]) -> None:
        self.sink = sink
        self.conninfo = own.conninfo
        self._database = own
        own_settings = {"SSO_DATABASE_URL": own.conninfo, "SSO_ENCRYPTION_KEYS": generate_key(), "SSO_SMTP_URL": sink.url}
        self.service = Service(home, **own_settings, **settings)
        self._at_start: database.Snapshot | None = None

    def serving(self) -> Service:
        """Return the running service."""
        if not self.service.runs:
            self.service.start()
        if self._at_start is None:
            # The leases belong to a process: it takes them again, and another process must not wait for them.
            self._at_start = self._database.snapshot(without=["leases"])
        return self.service

    def reset(self) -> None:
        """Remove everything that a test has left behind."""
        assert self._at_start is not None
        if self.service.runs:
            until(lambda: self._unsent() == 0, "no email of this test can reach the next one")
        self._database.reset(self._at_start)
        self.sink.forget()
        os.truncate(self.service.output_file, 0)

    def _unsent(self) -> int:
        with psycopg.connect(self.conninfo) as connection:
            [(count,)] = connection.execute("select count(*) from mails where finished_at is null").fetchall()
        return int(count)


@pytest.fixture(scope="module")
def shared(request: pytest.FixtureRequest) -> Iterator[SharedService]:
    """The service that a module's tests share, with the module's SETTINGS."""
    with ExitStack() as stack:
        home = stack.enter_context(service_home())
        own = stack.enter_context(database.Database(os.environ[database.SERVER_VARIABLE]))
        own.plan_once()
        sink = MailSink()
        sink.start()
        stack.callback(sink.close)
        shared = SharedService(home, sink, own, request.module.SETTINGS)
        stack.callback(shared.service.clean_up)
        yield shared


@pytest.fixture
def running(shared: SharedService) -> Iterator[Service]:
    """The shared service, for modules with SETTINGS."""
    yield shared.serving()
    shared.reset()


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """The browser process for all tests in a worker."""
    if reason := missing():
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    with database.reachable_directory() as profile, Browser(profile) as started:
        yield started


@pytest.fixture
def browser(chromium: Browser) -> Iterator[Browser]:
    """A browser without data from earlier tests."""
    chromium.forget()
    chromium.kept.clear()
    yield chromium
    assert list(chromium.kept) == [], "the test has kept pages, and has not checked them with `audit_kept`"
