"""Fixtures for all tests: the database, the application, and fakes for the outside world.

A run has a single database server. Every worker has its own database, which is emptied after every test.
"""

import gc
import os
import re
import signal
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import hypothesis
import psycopg
import pytest
import structlog
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.authentication import connections
from core.kernel.connections import PlatformCredentials
from entrypoints import huge_pages
from entrypoints.http.app import Application, Edge, build_routes, configure
from ports import Ports
from tests.fakes.outside import FakeClock, FakeGeoIp, FakeMailTransport, FakeMetrics, FakeTxtRecords
from tests.support import database
from tests.support.builders import FREE, PROFESSIONAL, Api, application, make_edge, make_ports
from tests.support.openapi import undescribed

if TYPE_CHECKING:
    from quart_trio.testing import TrioClient

pytest_plugins = ["tests.support.http_fixtures"]

_server: database.Server | None = None
_seconds: defaultdict[str, float] = defaultdict(float)  # by folder


def pytest_configure(config: pytest.Config) -> None:
    global _server
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A shell lets background jobs ignore SIGINT, and every service that tests start would
        # inherit that.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    hypothesis.settings.load_profile("ci")  # also elsewhere: the same examples in every run, however long they take
    # By default, structlog shows an exception's local variables in color. This takes longer than
    # most tests.
    renderer = structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback)
    structlog.configure(processors=[structlog.processors.add_log_level, structlog.dev.set_exc_info, renderer])
    if not hasattr(config, "workerinput") and not config.option.collectonly:
        _server = database.start_server()


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """In a worker, import some test modules. The collection then finds modules that other workers have compiled.

    In a new checkout, all workers would otherwise rewrite the assertions in all modules, which takes as long as the rest of the collection.
    """
    worker: dict[str, Any] | None = getattr(session.config, "workerinput", None)
    if worker is None:
        return
    ignored = tuple(session.config.getoption("ignore") or ())
    files = sorted(file for folder in session.config.args for file in Path(folder).rglob("test_*.py"))
    number = int(str(worker["workerid"]).removeprefix("gw"))
    for file in [file for file in files if not str(file).startswith(ignored)][number :: worker["workercount"]]:
        with suppress(Exception, pytest.skip.Exception):  # the collection reports it
            import_module(".".join(file.with_suffix("").parts))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuse ids that come from sets, such as {'app', 'key'}: their order differs between processes, and so would the collected tests."""
    unstable = [item.nodeid for item in items if re.search(r"\{'[^':{}]*'(, '[^':{}]*')+\}", item.nodeid)]
    if unstable:
        raise pytest.UsageError(f"Give these tests ids of their own, because the order of a set differs between processes: {unstable}")


def pytest_collection_finish() -> None:
    """Exclude modules and collected tests from garbage collection, and move them into huge pages, as `entrypoints.main` does.

    Otherwise every full garbage collection would visit them, and the processor would look up their addresses again and again.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
    huge_pages.collapse()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Add a test's time to its folder. The main process gets all workers' reports."""
    _seconds["/".join(Path(report.location[0]).parent.parts[:3])] += report.duration


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _seconds:
        terminalreporter.section("slowest folders, in seconds of all workers")
    for folder, seconds in sorted(_seconds.items(), key=lambda row: -row[1])[:15]:
        terminalreporter.line(f"{seconds:9.1f}  {folder}")


def pytest_unconfigure() -> None:
    global _server
    if _server is not None:
        _server.stop()
        _server = None


@pytest.fixture(scope="session")
def worker_database() -> Iterator[database.Database]:
    """This worker's migrated database."""
    with database.Database(os.environ[database.SERVER_VARIABLE]) as own:
        own.plan_once()
        yield own


@pytest.fixture
def conninfo(worker_database: database.Database) -> Iterator[str]:
    """An empty, migrated database. It is emptied again after the test."""
    yield worker_database.conninfo
    worker_database.empty()


@pytest.fixture
def tiers_put_back(conninfo: str) -> Iterator[None]:
    """Restore the tiers, which come from the schema, after a test that writes them."""
    yield
    with psycopg.connect(conninfo, autocommit=True) as connection:
        connection.execute("delete from organizations")
        connection.execute("delete from tiers where id not in (%s, %s)", (FREE.id, PROFESSIONAL.id))
        for tier in (FREE, PROFESSIONAL):
            connection.execute(
                """
                update tiers set display_name = %(display_name)s, default_max_services = %(default_max_services)s,
                                 default_max_users = %(default_max_users)s, price_cents = %(price_cents)s where id = %(id)s""",
                asdict(tier),
            )


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def sent() -> FakeMailTransport:
    """The emails that were sent."""
    return FakeMailTransport()


@pytest.fixture
def dns() -> FakeTxtRecords:
    """The domains' TXT records."""
    return FakeTxtRecords()


@pytest.fixture
def geoip() -> FakeGeoIp:
    """The addresses' locations."""
    return FakeGeoIp()


@pytest.fixture
def metrics() -> FakeMetrics:
    return FakeMetrics()


@pytest.fixture(scope="session")
def kept_connections(worker_database: database.Database) -> Iterator[database.KeptConnections]:
    """The connections that this worker's tests pass on."""
    kept = database.KeptConnections(worker_database.conninfo)
    yield kept
    kept.close()


@pytest.fixture
async def pool(conninfo: str, kept_connections: database.KeptConnections) -> AsyncIterator[Pool]:
    """A pool for the test's database.

    Some connections may be open already. A test that counts connections opens its own pool.
    """
    is_kept = conninfo == kept_connections.conninfo
    opened = database.PoolOfKept(kept_connections) if is_kept else Pool(conninfo, size=database.POOL_SIZE)
    yield opened
    await opened.aclose()


@pytest.fixture
def providers() -> list[PlatformCredentials]:
    """No identity providers. A test module that needs some overrides this."""
    return []


@pytest.fixture
async def ports(
    pool: Pool,
    clock: FakeClock,
    sent: FakeMailTransport,
    metrics: FakeMetrics,
    dns: FakeTxtRecords,
    geoip: FakeGeoIp,
    providers: list[PlatformCredentials],
) -> Ports:
    """Real adapters, except for the clock, mail, DNS, geolocation and metrics.

    Password hashes are cheap.
    """
    ports = await make_ports(pool, clock, sent, metrics, dns=dns, geoip=geoip)
    if providers:
        await connections.fill(ports, providers)
    return ports


@pytest.fixture
def edge(request: pytest.FixtureRequest) -> Edge:
    """The HTTP edge's settings. A test overrides them with `indirect` parameters."""
    return make_edge(**getattr(request, "param", {}))


@pytest.fixture(scope="session")
def worker_app() -> Application:
    """This worker's application. `configure` binds it to a test's ports and settings."""
    return application()


@pytest.fixture(scope="module")
def module_app(request: pytest.FixtureRequest, worker_app: Application) -> Application:
    """The worker's application, or a new application with the routes that the test module's `add_routes` adds."""
    add_routes = getattr(request.module, "add_routes", None)
    if add_routes is None:
        return worker_app
    own = build_routes()
    add_routes(own)
    return own


@pytest.fixture
def app(module_app: Application, ports: Ports, edge: Edge) -> Iterator[QuartTrio]:
    """The application. Every answer must match what its route declares."""
    answers: set[tuple[str, str]] = set()
    configure(
        module_app,
        ports,
        edge,
        observe=lambda record: answers.add((f"{record.method} {record.route}", str(record.status))),
        exposition=lambda: b"",
        exposition_type="text/plain",
    )
    yield module_app
    assert undescribed(answers) == []


@pytest.fixture
def api(app: QuartTrio) -> Api:
    """An HTTP client for the whole application, including the edge middleware."""
    return Api(cast("TrioClient", app.test_client()))
