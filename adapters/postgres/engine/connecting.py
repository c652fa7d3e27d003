"""Opening a database session: settings, addresses and name resolution."""

import ipaddress
import socket
from typing import Any

import trio
from psycopg import errors, pq
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from adapters.postgres.engine.driver import Connection
from adapters.postgres.engine.readiness import complete_handshake

_DEFAULTS = {
    "client_encoding": "UTF8",
    "gssencmode": "disable",  # otherwise libpq looks for Kerberos tickets before every connection
    # With these values, a lost server is detected within half a minute instead of the kernel's 15
    # minutes.
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
}


def parse_address(conninfo: str) -> dict[str, Any]:
    """Return the parts of a URL or connection string. Raises: ValueError. The error's message is to follow the setting's name."""
    try:
        return conninfo_to_dict(conninfo)
    except errors.ProgrammingError:  # its message quotes the text, including the password
        raise ValueError("is not a valid URL or connection string, such as postgresql://user:password@host/database") from None


async def connect(
    conninfo: str,
    *,
    timeout: float,  # noqa: ASYNC109 (it is divided among the addresses, which a scope around the call could not do)
    autocommit: bool = True,
    application_name: str = "gatehouse",
    statement_timeout_ms: int = 0,
    lock_timeout_ms: int = 0,
    idle_in_transaction_session_timeout_ms: int = 0,
) -> Connection:
    """Open a session within `timeout` seconds. For all other timeouts 0 means no limit. Raises: OperationalError."""
    settings = {
        "TimeZone": "UTC",
        "statement_timeout": statement_timeout_ms,
        "lock_timeout": lock_timeout_ms,
        "idle_in_transaction_session_timeout": idle_in_transaction_session_timeout_ms,
        # A request to cancel has no effect if it arrives before its query. With this setting the
        # server then notices that the client has left.
        "client_connection_check_interval": 1000,
    }
    try:
        address = parse_address(conninfo)
    except ValueError as error:
        raise errors.OperationalError(f"the address of the database {error}") from None
    # Set as options when the session starts, because statements would cost a round trip. The URL's
    # own options come last and win.
    options = " ".join([*(f"-c {name}={value}" for name, value in settings.items()), str(address.get("options") or "")])
    parameters = {**_DEFAULTS, "application_name": application_name, **address, "options": options}
    deadline = trio.current_time() + timeout
    failure: errors.OperationalError = errors.ConnectionTimeout("the database's host name was not resolved in time")
    with trio.move_on_at(deadline):
        attempts = await _attempts(parameters)
        failure = errors.ConnectionTimeout("the database did not answer in time")
        for left, attempt in zip(range(len(attempts), 0, -1), attempts, strict=True):
            # Without this limit, libpq would wait forever for an address that drops packets, and
            # never try the next address.
            with trio.move_on_at(trio.current_time() + (deadline - trio.current_time()) / left):
                try:
                    return await _open(make_conninfo("", **attempt), autocommit=autocommit)
                except errors.OperationalError as error:
                    failure = error
    raise failure


async def _open(conninfo: str, *, autocommit: bool) -> Connection:
    pgconn = pq.PGconn.connect_start(conninfo.encode())
    try:
        await complete_handshake(pgconn, pgconn.connect_poll)
        pgconn.nonblocking = 1
        connection = Connection(pgconn)
        await connection.set_autocommit(autocommit)
    except OSError as error:
        pgconn.finish()
        raise errors.OperationalError("the connection was closed") from error
    except BaseException:
        pgconn.finish()
        raise
    return connection


async def _attempts(parameters: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the parameters for the addresses to try. libpq could resolve the names, but would block the whole process."""
    hosts = str(parameters.get("host") or "").split(",")
    addresses = str(parameters.get("hostaddr") or "").split(",")
    ports = str(parameters.get("port") or "").split(",")
    attempts: list[dict[str, Any]] = []
    failure: OSError | None = None
    for index in range(max(len(hosts), len(addresses))):
        host, address = hosts[index : index + 1], addresses[index : index + 1]
        attempt = parameters | {"host": "".join(host), "hostaddr": "".join(address), "port": ports[index % len(ports)]}
        if attempt["hostaddr"] or not attempt["host"] or attempt["host"].startswith(("/", "@")):
            attempts.append(attempt)
            continue
        try:
            attempts.extend(attempt | {"hostaddr": resolved} for resolved in await _resolve(attempt["host"]))
        except OSError as error:
            failure = error
    if not attempts:
        raise errors.OperationalError(f"the database's host name was not resolved: {failure}") from failure
    return [{name: value for name, value in attempt.items() if value != ""} for attempt in attempts]


_resolvers: trio.lowlevel.RunVar[trio.CapacityLimiter] = trio.lowlevel.RunVar("postgres_resolvers")


async def _resolve(host: str) -> list[str]:
    try:
        return [str(ipaddress.ip_address(host))]
    except ValueError:
        pass
    # A separate limit: unrelated lookups, which outsiders can make slow, must not delay connections
    # to the database.
    try:
        limiter = _resolvers.get()
    except LookupError:
        _resolvers.set(limiter := trio.CapacityLimiter(4))
    addresses = await trio.to_thread.run_sync(_getaddrinfo, host, limiter=limiter, abandon_on_cancel=True)
    return list(dict.fromkeys(str(address[0]) for *_, address in addresses))


def _getaddrinfo(host: str) -> list[Any]:
    return socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
