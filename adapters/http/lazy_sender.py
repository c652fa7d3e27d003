"""The guarded sender, loaded on first use: its library needs megabytes and loads slowly."""

import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from adapters.http.guard import Guard
from core.kernel import outbound

if TYPE_CHECKING:
    from adapters.http.sender import GuardedSender


class LazySender:
    """Implements `ports.outside.HttpSender`, as `GuardedSender` does."""

    def __init__(self, guard: Guard, authorities: Path | None = None) -> None:
        """`authorities` is a file with certificate authorities that are trusted beside the system's authorities."""
        self._guard = guard
        self._authorities = authorities
        self._sender: GuardedSender | None = None

    async def post(
        self, url: str, body: bytes, headers: Mapping[str, str], within: float, *, at_most: int = outbound.MAX_REPLY_SIZE
    ) -> outbound.Reply:
        return await (await self._loaded()).post(url, body, headers, within, at_most=at_most)

    async def get(
        self, url: str, within: float, *, headers: Mapping[str, str] = outbound.NO_HEADERS, at_most: int = outbound.MAX_REPLY_SIZE
    ) -> outbound.Reply:
        return await (await self._loaded()).get(url, within, headers=headers, at_most=at_most)

    async def _loaded(self) -> "GuardedSender":
        if self._sender is None:
            self._sender = await trio.to_thread.run_sync(self._load)
        return self._sender

    def _load(self) -> "GuardedSender":
        from adapters.http.sender import GuardedSender

        return GuardedSender(self._guard, trusted_authorities(self._authorities))


def trusted_authorities(more: Path | None) -> ssl.SSLContext:
    """Return the system's certificate authorities, with the authorities in this file. Raises: OSError."""
    context = ssl.create_default_context()
    if more is not None:
        context.load_verify_locations(more)
    return context
