"""The sockets that a service listens on, with their certificate, for all its processes."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from socket import AF_UNIX, socket
from typing import TYPE_CHECKING

import structlog

from entrypoints.adapters_of_settings import tls_certificate
from entrypoints.http.edge import middleware
from entrypoints.http.edge.protocol import listening
from entrypoints.http.edge.protocol.request_checks import Scope
from entrypoints.http.edge.protocol.server import Server
from entrypoints.settings import KEEP_ALIVE, Settings

if TYPE_CHECKING:
    import trio

    from adapters.tls import TlsCertificate

log = structlog.get_logger("main")


@dataclass(frozen=True, slots=True)
class Listening:
    """The service's sockets, the sockets that only redirect to https, and the certificate, if the service speaks TLS."""

    sockets: Sequence[socket]
    redirecting: Sequence[socket]
    certificate: TlsCertificate | None

    @property
    def all(self) -> Sequence[socket]:
        return [*self.sockets, *self.redirecting]

    @property
    def tls(self) -> Callable[[], ssl.SSLContext] | None:
        """Return a function that returns the TLS context for a new connection, or None for plain HTTP."""
        certificate = self.certificate
        return None if certificate is None else lambda: certificate.context

    async def redirect(self, base_url: str, shutdown: trio.Event) -> None:
        """Redirect from plain HTTP until `shutdown` is set, if there are sockets for it."""
        if self.redirecting:
            server = Server(app=redirect_to(base_url), keep_alive=KEEP_ALIVE)
            await server.serve(self.redirecting, shutdown=shutdown, shutdown_grace=0)


@contextmanager
def open_listening(settings: Settings) -> Iterator[Listening]:
    """Read the certificate, and listen during the block."""
    certificate = tls_certificate(settings)
    if certificate is not None and certificate.ends_at <= datetime.now(UTC):
        log.warning("tls_certificate_expired", ended_at=certificate.ends_at.isoformat())
    with (
        listening.open_sockets(settings.bind) as sockets,
        listening.open_sockets(settings.tls_redirect_bind, "SSO_TLS_REDIRECT_BIND") as redirecting,
    ):
        if certificate is not None and any(sock.family == AF_UNIX for sock in sockets):
            raise listening.BindError("systemd passed a Unix socket, and SSO_TLS_CERTIFICATE needs a port. Use ListenStream with a port.")
        yield Listening(sockets, redirecting, certificate)


def redirect_to(base_url: str) -> middleware.App:
    """Return an ASGI application that answers GET and HEAD with the same path at the base URL, and every other request with 400.

    A client that sends a secret without encryption gets an error, so that its author notices.
    """
    base = base_url.encode()

    async def answer(scope: Scope, receive: middleware.Receive, send: middleware.Send) -> None:
        if scope["type"] != "http":
            for _ in range(2):  # the startup and the shutdown
                await send({"type": f"{(await receive())['type']}.complete"})
            return
        target: bytes = scope["raw_path"]
        headers: middleware.Headers = [(b"content-length", b"0"), (b"connection", b"close")]
        status = 400
        if scope["method"] in ("GET", "HEAD") and target.startswith(b"/"):
            status = 308
            query: bytes = scope["query_string"]
            headers.append((b"location", base + target + (b"?" + query if query else b"")))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body"})

    return answer
