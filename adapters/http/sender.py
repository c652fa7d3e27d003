"""HTTP requests to URLs that tenants chose, through the guard (security W-1, W-2, W-3).

The module uses httpcore, the base of httpx. httpx would add redirects, cookies, proxies from the environment and
decompression, which are not wanted here.

TLS and the Host header use the host's name. The connection uses an address that the guard has checked. No connection is
reused, so every request resolves and checks the name again.
"""

import ssl
from collections.abc import Iterable, Mapping
from typing import Any, Final

import httpcore
import trio

from adapters.http.guard import Guard
from core.kernel import outbound

DEFAULT_PORTS: Final = {b"http": 80, b"https": 443}
CONNECT_TIMEOUT: Final = 3.0  # seconds per address except the last, to leave time for the next address


class GuardedSender:
    """Implements `ports.outside.HttpSender`. The caller limits concurrent requests."""

    def __init__(self, guard: Guard, tls: ssl.SSLContext | None = None) -> None:
        """`tls` replaces the system's certificate authorities."""
        self._connections = _GuardedNetwork(guard)
        self._tls = tls or ssl.create_default_context()

    async def post(
        self, url: str, body: bytes, headers: Mapping[str, str], within: float, *, at_most: int = outbound.MAX_REPLY_SIZE
    ) -> outbound.Reply:
        return await self._send_within(within, "POST", url, body, headers, at_most)

    async def get(
        self, url: str, within: float, *, headers: Mapping[str, str] = outbound.NO_HEADERS, at_most: int = outbound.MAX_REPLY_SIZE
    ) -> outbound.Reply:
        return await self._send_within(within, "GET", url, None, headers, at_most)

    async def _send_within(
        self, within: float, method: str, url: str, body: bytes | None, headers: Mapping[str, str], at_most: int
    ) -> outbound.Reply:
        try:
            with trio.fail_after(within):
                return await self._send(method, url, body, headers, at_most)
        except trio.TooSlowError:
            raise outbound.SendFailed(outbound.SendFailure.TIMED_OUT) from None
        except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
            raise outbound.SendFailed(
                outbound.SendFailure.TLS_FAILED if _is_tls_error(error) else outbound.SendFailure.NOT_CONNECTED
            ) from None
        except (httpcore.NetworkError, httpcore.ProtocolError):
            raise outbound.SendFailed(outbound.SendFailure.BROKEN) from None

    async def _send(self, method: str, url: str, body: bytes | None, headers: Mapping[str, str], at_most: int) -> outbound.Reply:
        target = httpcore.URL(url)
        sent = {"Accept": "*/*", "Accept-Encoding": "identity", "User-Agent": "Gatehouse", **headers, "Connection": "close"}
        all_headers = {"Host": _host_of(target), **sent}
        # No pool: connections are never reused, and creating a pool per request would take a third
        # of its time.
        connection = httpcore.AsyncHTTPConnection(target.origin, self._tls, network_backend=self._connections)
        try:
            async with connection.stream(method, target, headers=list(all_headers.items()), content=body) as response:
                return outbound.Reply(response.status, await _read_start(response, at_most), _headers(response))
        finally:
            with trio.CancelScope(shield=True):
                await connection.aclose()


def _host_of(target: httpcore.URL) -> str:
    """Return the Host header. httpcore leaves out the brackets around IPv6 addresses (RFC 9112 section 3.2)."""
    host = target.host.decode("ascii")
    host = f"[{host}]" if ":" in host else host
    return host if target.port in (None, DEFAULT_PORTS.get(target.scheme)) else f"{host}:{target.port}"


class _GuardedNetwork(httpcore.AsyncNetworkBackend):
    """A network backend that connects to the first reachable address that the guard allows."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._trio = httpcore.TrioBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109  (the parameter of the library)
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        addresses = await self._guard.addresses(host, port)
        for address in addresses[:-1]:
            try:
                with trio.move_on_after(CONNECT_TIMEOUT):
                    return await self._trio.connect_tcp(address, port, timeout, local_address, socket_options)
            except httpcore.ConnectError:
                continue
        return await self._trio.connect_tcp(addresses[-1], port, timeout, local_address, socket_options)

    async def sleep(self, seconds: float) -> None:
        await trio.sleep(seconds)


async def _read_start(response: httpcore.Response, at_most: int) -> bytes:
    body = bytearray()
    # Do not leave the loop early: the library's nested iterators end cleanly only from the inside.
    with trio.CancelScope() as enough:
        async for part in response.aiter_stream():
            body += part
            if len(body) >= at_most:
                enough.cancel()
    return bytes(body[:at_most])


def _headers(response: httpcore.Response) -> dict[str, str]:
    return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in reversed(response.headers)}


def _is_tls_error(error: BaseException) -> bool:
    cause = error.__cause__ or error.__context__
    return isinstance(error, ssl.SSLError) or (cause is not None and _is_tls_error(cause))
