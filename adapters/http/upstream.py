"""HTTP with those whose addresses are the operator's settings: identity providers and the payment provider (security.md W-1, W-2).

What goes wrong is told in a few sentences of ours, none of whose words are the other side's.
"""

import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import ModuleType
from typing import TYPE_CHECKING, Final

import trio

if TYPE_CHECKING:
    import httpx

MAX_RESPONSE_SIZE: Final = 64 * 1024  # bytes
_HEADERS: Final = {"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": "Gatehouse"}


class UpstreamFailed(Exception):
    """Nothing usable was answered; the text says why, for the operator's log."""


class UpstreamHttp:
    """UpstreamHttp with one of them, of which there are so many at once, so that one that keeps us waiting does not pile up sockets."""

    def __init__(self, deadline: float, at_once: int) -> None:
        """`deadline` is in seconds, for everything that is asked in one conversation, and for the wait until it is one's turn."""
        self._deadline = deadline
        self._turns = trio.CapacityLimiter(at_once)
        self._library: tuple[ModuleType, ssl.SSLContext] | None = None

    @asynccontextmanager
    async def conversation(self) -> AsyncIterator["httpx.AsyncClient"]:
        """What asks; whatever stops it from being answered is UpstreamFailed."""
        try:
            with trio.fail_after(self._deadline):
                async with self._turns:
                    if self._library is None:
                        self._library = await trio.to_thread.run_sync(_load)
                    library, authorities = self._library
                    async with library.AsyncClient(
                        verify=authorities,
                        trust_env=False,
                        follow_redirects=False,
                        timeout=None,  # each would begin anew with every byte that drips in
                        headers=_HEADERS,
                    ) as client:
                        yield client
        except trio.TooSlowError:
            raise UpstreamFailed("it did not answer in time") from None
        except (OSError, ValueError) as error:  # also what has no place in an address or a header
            raise UpstreamFailed(f"it cannot be spoken to: {type(error).__name__}") from None
        except Exception as error:
            if type(error).__module__.partition(".")[0] == "httpx":  # which is not imported for its errors alone
                raise UpstreamFailed(f"it cannot be spoken to: {type(error).__name__}") from None
            raise


def _load() -> tuple[ModuleType, ssl.SSLContext]:
    """The library, which takes megabytes, and the authorities that are believed, which take a while to read: for the first who asks."""
    import httpx

    return httpx, ssl.create_default_context()


async def read(response: "httpx.Response", longest: int = MAX_RESPONSE_SIZE) -> bytes:
    """The body as it came: a few bytes of a packed one could be a gigabyte. Raises UpstreamFailed."""
    if response.headers.get("Content-Encoding", "identity").strip().lower() not in ("", "identity"):
        raise UpstreamFailed("its answer is packed")
    body = bytearray()
    with trio.CancelScope() as enough:  # the library's iterators, one in another, come to a clean end only from within
        async for part in response.aiter_raw():
            body += part
            if len(body) > longest:
                enough.cancel()
    if len(body) > longest:
        raise UpstreamFailed("its answer is too long")
    return bytes(body)


def decoded(raw: bytes) -> object:
    """Raises UpstreamFailed."""
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        raise UpstreamFailed("its answer is not JSON") from None
