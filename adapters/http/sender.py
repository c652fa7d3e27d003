"""Posts to targets that tenants chose, through the guard (security.md W-1 to W-3).

With httpcore, on which httpx stands, since what httpx adds to it is what must not happen here: redirects, cookies, proxies of the
environment, unpacking. It asks for connections by the name of the host, so that TLS and the Host header have that, and gets them from the
addresses that were judged. No connection is used twice: each post is a new look at where the name leads.
"""

import ssl
from collections.abc import Iterable, Mapping
from typing import Any, Final

import httpcore
import trio

from adapters.http.guard import Guard
from core.kernel.outbound import Reply, SendFailed, SendFailure

MAX_RESPONSE_SIZE: Final = 64 * 1024  # bytes
# For one of several addresses, so that there is time to try the next.
CONNECT_PATIENCE: Final = 3.0


class GuardedSender:
    """ports.outside.HttpSender. How many posts there are at once is for the caller to say."""

    def __init__(self, guard: Guard, tls: ssl.SSLContext | None = None) -> None:
        """`tls` replaces the system's certificate authorities."""
        self._connections = _Guarded(guard)
        self._tls = tls or ssl.create_default_context()

    async def post(self, url: str, body: bytes, headers: Mapping[str, str], within: float) -> Reply:
        """As ports.outside.HttpSender."""
        try:
            with trio.fail_after(within):
                return await self._post(url, body, headers)
        except trio.TooSlowError:
            raise SendFailed(SendFailure.TIMED_OUT) from None
        except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
            raise SendFailed(SendFailure.TLS_FAILED if _is_of_tls(error) else SendFailure.NOT_CONNECTED) from None
        except (httpcore.NetworkError, httpcore.ProtocolError):
            raise SendFailed(SendFailure.BROKEN) from None

    async def _post(self, url: str, body: bytes, headers: Mapping[str, str]) -> Reply:
        sent = {"Accept": "*/*", "Accept-Encoding": "identity", "User-Agent": "Gatehouse", **headers, "Connection": "close"}
        target = httpcore.URL(url)
        # A connection alone: there is nothing for a pool to give out twice, and one for each post is a third of its cost.
        connection = httpcore.AsyncHTTPConnection(target.origin, self._tls, network_backend=self._connections)
        try:
            async with connection.stream("POST", target, headers=list(sent.items()), content=body) as response:
                return Reply(response.status, await _beginning(response))
        finally:
            with trio.CancelScope(shield=True):
                await connection.aclose()


class _Guarded(httpcore.AsyncNetworkBackend):
    """Connections to hosts at the addresses that the guard lets through: the first that takes one."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._trio = httpcore.TrioBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109  (the library's)
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        addresses = await self._guard.addresses(host, port)
        for address in addresses[:-1]:
            try:
                with trio.move_on_after(CONNECT_PATIENCE):
                    return await self._trio.connect_tcp(address, port, timeout, local_address, socket_options)
            except httpcore.ConnectError:
                continue
        return await self._trio.connect_tcp(addresses[-1], port, timeout, local_address, socket_options)

    async def sleep(self, seconds: float) -> None:
        await trio.sleep(seconds)


async def _beginning(response: httpcore.Response) -> bytes:
    body = bytearray()
    with trio.CancelScope() as enough:  # the library's iterators, one in another, come to a clean end only from within
        async for part in response.aiter_stream():
            body += part
            if len(body) >= MAX_RESPONSE_SIZE:
                enough.cancel()
    return bytes(body[:MAX_RESPONSE_SIZE])


def _is_of_tls(error: BaseException) -> bool:
    cause = error.__cause__ or error.__context__
    return isinstance(error, ssl.SSLError) or (cause is not None and _is_of_tls(cause))
