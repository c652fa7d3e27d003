"""The sockets that a service listens on, with their certificate, for all of its processes."""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from socket import AF_UNIX, socket
from typing import TYPE_CHECKING, Any

import structlog

from entrypoints.adapters_of_settings import tls_certificate
from entrypoints.http.edge.protocol.listening import BindError, open_sockets
from entrypoints.http.edge.protocol.redirect import redirect_to
from entrypoints.http.edge.protocol.server import serve_http
from entrypoints.settings import KEEP_ALIVE, Settings

if TYPE_CHECKING:
    import trio

    from adapters.tls import TlsCertificate

log = structlog.get_logger("main")

Serve = Callable[..., Awaitable[None]]  # with the parameters of `serve_http`


@dataclass(frozen=True, slots=True)
class Listening:
    """The sockets of the service, those that only redirect to https, and the certificate, if the service speaks TLS."""

    sockets: Sequence[socket]
    redirecting: Sequence[socket]
    certificate: TlsCertificate | None
    serve_requests: Serve

    @property
    def all(self) -> Sequence[socket]:
        return [*self.sockets, *self.redirecting]

    @property
    def tls(self) -> Callable[[], ssl.SSLContext] | None:
        """Return a function that returns the TLS context of a new connection, or None for plain HTTP."""
        certificate = self.certificate
        return None if certificate is None else lambda: certificate.context

    async def serve(self, app: Callable[..., Awaitable[None]], **options: Any) -> None:
        """Serve the application, with the options of `serve_http`, until the shutdown."""
        await self.serve_requests(app, self.sockets, tls=self.tls, **options)

    async def redirect(self, base_url: str, shutdown: trio.Event) -> None:
        """Redirect from plain HTTP until `shutdown` is set, if there are sockets for it."""
        if self.redirecting:
            await serve_http(redirect_to(base_url), self.redirecting, shutdown=shutdown, shutdown_grace=0, keep_alive=KEEP_ALIVE)


@contextmanager
def open_listening(settings: Settings, *, by_hypercorn: bool) -> Iterator[Listening]:
    """Read the certificate, and listen during the block. Raises: SettingsInvalid, BindError."""
    certificate = tls_certificate(settings, http2=by_hypercorn)
    if certificate is not None and certificate.ends_at <= datetime.now(UTC):
        log.warning("tls_certificate_expired", ended_at=certificate.ends_at.isoformat())
    with open_sockets(settings.bind) as sockets, open_sockets(settings.tls_redirect_bind, "SSO_TLS_REDIRECT_BIND") as redirecting:
        if certificate is not None and any(sock.family == AF_UNIX for sock in sockets):
            raise BindError("systemd passed a Unix socket, and SSO_TLS_CERTIFICATE needs a port. Use ListenStream with a port.")
        yield Listening(sockets, redirecting, certificate, _find_server(by_hypercorn=by_hypercorn))


def _find_server(*, by_hypercorn: bool) -> Serve:
    """Return the function of Gatehouse's own server, or that of Hypercorn (docs/adr/0051), which is imported only here."""
    if by_hypercorn:
        from entrypoints.http.edge.protocol.hypercorn_server import serve_with_hypercorn

        return serve_with_hypercorn
    return serve_http
