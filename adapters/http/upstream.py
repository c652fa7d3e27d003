"""HTTP client for upstream services at URLs from the operator's settings: identity providers and the payment provider.

Errors contain only our own words, and quote nothing from the upstream service (security W-1, W-2).
"""

import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, Final

import trio

from core.kernel import shares

if TYPE_CHECKING:
    import httpx

MAX_RESPONSE_SIZE: Final = 64 * 1024  # bytes
PLACE_WITHIN: Final = 5.0  # seconds to wait for a place, mostly behind calls by the same share
_HEADERS: Final = {"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": "Gatehouse"}


class UpstreamFailed(Exception):
    """The upstream service returned no usable response. The text is the reason, for the operator's log."""


class UpstreamHttp:
    """Connections to upstream services. Their number is limited, so that a slow service does not pile up sockets."""

    def __init__(self, deadline: float, places: shares.FairPlaces) -> None:
        """`deadline` is in seconds. `deadline` covers all requests inside a `connect` block, but not the wait for a place."""
        self._deadline = deadline
        self._places = places
        self._library: tuple[ModuleType, ssl.SSLContext] | None = None

    @asynccontextmanager
    async def connect(self, share: shares.Share | None = None) -> AsyncIterator["httpx.AsyncClient"]:
        """Provide an HTTP client in a place of this share, by default the current share.

        Raises: UpstreamFailed for every failure to get a response; Limited.
        """
        try:
            with trio.fail_after(min(PLACE_WITHIN, self._deadline)):
                place = await self._places.take(share)
            with place, trio.fail_after(self._deadline):
                if self._library is None:
                    self._library = await trio.to_thread.run_sync(_load)
                library, authorities = self._library
                async with library.AsyncClient(
                    verify=authorities,
                    trust_env=False,
                    follow_redirects=False,
                    timeout=None,  # a timeout per read would start again with every received byte
                    headers=_HEADERS,
                ) as client:
                    yield client
        except trio.TooSlowError:
            raise UpstreamFailed("it did not answer in time") from None
        except (OSError, ValueError) as error:  # ValueError: a value cannot stand in a URL or a header
            raise UpstreamFailed(f"the request failed: {type(error).__name__}") from None
        except Exception as error:
            if type(error).__module__.partition(".")[0] == "httpx":  # importing it only for its errors would need megabytes
                raise UpstreamFailed(f"the request failed: {type(error).__name__}") from None
            raise


@cache
def _load() -> tuple[ModuleType, ssl.SSLContext]:
    """Import the library, which needs megabytes, and load the trusted certificate authorities, which takes a while.

    This happens at the first request.
    """
    import httpx

    return httpx, ssl.create_default_context()


async def read_body(response: "httpx.Response", max_size: int = MAX_RESPONSE_SIZE) -> bytes:
    """Return the response body. A compressed body is refused: a few bytes could decompress to a gigabyte.

    Raises: UpstreamFailed.
    """
    if response.headers.get("Content-Encoding", "identity").strip().lower() not in ("", "identity"):
        raise UpstreamFailed("its answer is compressed")
    body = bytearray()
    # Do not leave the loop early: the library's nested iterators end cleanly only from the inside.
    with trio.CancelScope() as enough:
        async for part in response.aiter_raw():
            body += part
            if len(body) > max_size:
                enough.cancel()
    if len(body) > max_size:
        raise UpstreamFailed("its answer is too long")
    return bytes(body)


def parse_json(raw: bytes) -> object:
    """Parse a JSON body. Raises: UpstreamFailed."""
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        raise UpstreamFailed("its answer is not JSON") from None
