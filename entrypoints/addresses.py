"""The addresses of the installation that a process starts for: of its database, and of its pages."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from socket import socket

from adapters.postgres.engine import embedded
from core.kernel.errors import Invalid
from core.kernel.uris import canonicalize
from entrypoints.bind import parse_bind
from entrypoints.settings import Settings


class NoInstallation(Invalid):
    """There is no installation here. Set SSO_DATABASE_URL or SSO_DATA_DIR as for the service."""

    def __init__(self, data_dir: Path) -> None:
        super().__init__(f"There is no installation in {data_dir.resolve()}. Set SSO_DATABASE_URL or SSO_DATA_DIR as for the service.")


@contextmanager
def open_database(settings: Settings) -> Iterator[str]:
    """Yield the connection string of the database: the operator's, or the embedded one, which is started for the block if needed."""
    conninfo = running_database(settings)
    if conninfo is not None:
        yield conninfo
        return
    with embedded.start(embedded_data(settings)) as started:
        yield started.conninfo


def running_database(settings: Settings) -> str | None:
    """Return the connection string of the operator's database, or of the embedded one if it runs, or None."""
    return settings.database_url.get_secret_value() if settings.database_url is not None else embedded.attach(embedded_data(settings))


def embedded_data(settings: Settings) -> Path:
    """Return the directory of the embedded database."""
    return settings.data_dir / "postgres"


def base_url(settings: Settings, listening: socket | None = None) -> str:
    """Return the base URL of links: the operator's setting, or the address of the socket."""
    if settings.base_url is not None:
        return settings.base_url
    host, port = parse_bind(settings.bind) if listening is None else listening.getsockname()[:2]
    host = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)  # noqa: S104
    return canonicalize(f"http://{host}:{port}")
