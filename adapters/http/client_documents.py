"""The metadata that external clients publish, fetched through the guard (security W-1) and kept in memory."""

from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Final

import trio

from adapters.http.client_keys import HttpGetter
from core.federation.oauth.model.client_documents import (
    FETCH_WITHIN,
    ClientDocument,
    ClientDocumentUnavailable,
    fresh_for,
    host_of,
    parse_document,
)
from core.kernel.outbound import SendFailed
from core.kernel.policy import Policy
from ports.observe import Clock

ADVICE: Final = "Try again later, or tell its developer."
MAX_CACHED: Final = 1000  # documents; those that were used longest ago are forgotten first


class HttpClientDocuments:
    """Implements `ports.outside.ClientDocuments`. It caches valid documents, and no failures."""

    def __init__(self, sender: HttpGetter, clock: Clock, policy: Policy) -> None:
        self._sender = sender
        self._clock = clock
        self._policy = policy
        self._documents: OrderedDict[str, tuple[ClientDocument, datetime]] = OrderedDict()
        self._locks: dict[str, trio.Lock] = {}

    def cached(self, address: str) -> ClientDocument | None:
        document, fresh_until = self._documents.get(address, (None, self._clock.now()))
        if document is None or fresh_until <= self._clock.now():
            return None
        self._documents.move_to_end(address)
        return document

    async def fetch(self, address: str, since: datetime | None = None) -> ClientDocument:
        async with self._host_lock(host_of(address)):
            cached = self.cached(address)
            is_late = cached is not None and (since is None or cached.fetched_at > since)
            return cached if cached is not None and is_late else await self._request(address)

    @asynccontextmanager
    async def _host_lock(self, host: str) -> AsyncIterator[None]:
        """Let one request at a time go to this host. Raises: ClientDocumentUnavailable after a wait as long as a request can take."""
        lock = self._locks.setdefault(host, trio.Lock())
        try:
            with trio.move_on_after(FETCH_WITHIN) as deadline:
                await lock.acquire()
            if deadline.cancelled_caught:
                raise ClientDocumentUnavailable(host, "was not available in time", "Try again later.")
            try:
                yield
            finally:
                lock.release()
        finally:
            if not lock.locked() and not lock.statistics().tasks_waiting and self._locks.get(host) is lock:
                del self._locks[host]

    async def _request(self, address: str) -> ClientDocument:
        try:
            reply = await self._sender.get(address, FETCH_WITHIN)
        except SendFailed as failure:
            raise ClientDocumentUnavailable(host_of(address), f"is not available: {failure.reason}", ADVICE) from None
        if reply.status != 200:
            raise ClientDocumentUnavailable(host_of(address), f"is not available: its server answers {reply.status}", ADVICE)
        now, headers = self._clock.now(), reply.headers
        document = parse_document(address, headers.get("content-type", ""), reply.body, self._policy, now)
        self._documents[address] = document, now + fresh_for(headers.get("cache-control", ""), headers.get("age", ""))
        self._documents.move_to_end(address)
        if len(self._documents) > MAX_CACHED:
            self._documents.popitem(last=False)
        return document
