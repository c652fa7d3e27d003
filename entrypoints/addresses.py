"""The database address and the base URL of the installation that a process starts for."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from socket import socket
from typing import Final
from urllib.parse import urlsplit

import trio

from adapters.clock import SystemClock
from adapters.postgres.engine import embedded, migrate
from adapters.postgres.engine.pool import Pool
from adapters.postgres.storage import Postgres
from core.kernel import errors, uris
from entrypoints import adapters_of_settings, bind
from entrypoints.settings import Settings, SettingsInvalid

_ALL_ADDRESSES: Final = ("", "0.0.0.0", "::")  # noqa: S104 (nothing binds to it here)
_ADDRESS_SETTINGS: Final = ("bind", "tls_certificate")


class NoInstallation(errors.Invalid):
    """There is no installation here. Set SSO_DATABASE_URL or SSO_DATA_DIR as for the service."""

    def __init__(self, data_dir: Path) -> None:
        super().__init__(f"There is no installation in {data_dir.resolve()}. Set SSO_DATABASE_URL or SSO_DATA_DIR as for the service.")


def require_installation(settings: Settings) -> None:
    """Check that a command has an installation to work on."""
    if settings.database_url is None and not embedded.exists(embedded_data(settings)):
        raise NoInstallation(settings.data_dir)


@contextmanager
def open_database(settings: Settings) -> Iterator[str]:
    """Yield the database's connection string: the operator's, or the embedded database's, which is started for the block if needed."""
    conninfo = running_database(settings)
    if conninfo is not None:
        yield conninfo
        return
    with embedded.start(embedded_data(settings)) as started:
        yield started.conninfo


def running_database(settings: Settings) -> str | None:
    """Return the connection string for the operator's database or a running embedded database, or None."""
    return settings.database_url.get_secret_value() if settings.database_url is not None else embedded.attach(embedded_data(settings))


def embedded_data(settings: Settings) -> Path:
    """Return the embedded database's directory."""
    return settings.data_dir / "postgres"


def locate_embedded_database(settings: Settings) -> Path:
    """Return the directory that has the embedded database. For root, it can be outside the data directory."""
    return embedded.locate(embedded_data(settings))


def find_base_url(settings: Settings) -> str:
    """Return the base URL without starting or changing anything.

    Without a database in use, it is the base URL that a new installation would have.
    """

    async def load() -> str:
        conninfo = running_database(settings)
        if conninfo is None or await migrate.pending(conninfo):
            return base_url(settings)
        return await load_base_url(settings, conninfo)

    if settings.base_url is not None:
        return settings.base_url
    try:
        adapters_of_settings.check_database_address(settings)
        return trio.run(load)
    except (SettingsInvalid, embedded.EmbeddedError, errors.StorageDown, migrate.MigrationRefused):
        return base_url(settings)


async def load_base_url(settings: Settings, conninfo: str, listening: Sequence[socket] = (), *, prefers_last_start: bool = False) -> str:
    """Return the base URL of an installation with this database.

    With `prefers_last_start`, it is the last start's base URL, unless a setting in _ADDRESS_SETTINGS is set: a command
    often lacks the settings of the service beside it.

    Raises: StorageDown, SettingsInvalid.
    """
    if settings.base_url is not None:
        return settings.base_url
    pool = Pool(conninfo, size=1)
    try:
        async with Postgres(pool, adapters_of_settings.vault_of(settings), SystemClock()).reading() as read:
            stored = await read.signing_keys.issuer()
    finally:
        await pool.aclose()
    if prefers_last_start and stored is not None and settings.model_fields_set.isdisjoint(_ADDRESS_SETTINGS):
        return stored
    return base_url(settings, listening, stored)


def base_url(settings: Settings, listening: Sequence[socket] = (), stored: str | None = None) -> str:
    """Return the base URL for links: the operator's setting, or the sockets' address.

    `stored` is the last start's base URL. A service that listens on all loopback addresses keeps it, because clients
    have stored it, unless its port has changed. A new service uses `localhost`, because passkeys need a host name.
    """
    if settings.base_url is not None:
        return settings.base_url
    scheme = "http" if settings.tls_certificate is None else "https"
    host, port = listening[0].getsockname()[:2] if listening else bind.parse_bind(settings.bind)
    if bind.is_localhost(settings.bind) or host in _ALL_ADDRESSES:
        # A command does not know the port if the service lets the kernel choose it.
        is_ours = stored is not None and stored.startswith(f"{scheme}://") and uris.is_on_loopback(stored)
        if stored is not None and is_ours and port in (urlsplit(stored).port or uris.DEFAULT_PORTS[scheme], 0):
            return stored
        host = bind.LOCALHOST
    return uris.canonicalize(f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}")
