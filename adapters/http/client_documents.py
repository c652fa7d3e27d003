"""The metadata that external clients publish, fetched through the guard (security W-1) and kept in memory."""

from collections import OrderedDict
from datetime import datetime
from typing import Final

from adapters.http.client_keys import HttpGetter
from adapters.http.host_places import HostBusy, HostPlaces
from core.federation.oauth.model.client_documents import (
    FETCH_WITHIN,
    ClientDocument,
    ClientDocumentUnavailable,
    ClientHostBusy,
    fresh_for,
    host_of,
    parse_document,
)
from core.kernel.outbound import SendFailed
from core.kernel.policy import Policy
from ports.observe import Clock

ADVICE: Final = "Try again later, or tell its developer."
MAX_CACHED: Final = 1000  # documents; documents that were used longest ago are forgotten first


class HttpClientDocuments:
    """Implements `ports.outside.ClientDocuments`. Valid documents are cached, but no failures."""

    def __init__(self, sender: HttpGetter, clock: Clock, policy: Policy) -> None:
        self._sender = sender
        self._clock = clock
        self._policy = policy
        self._documents: OrderedDict[str, tuple[ClientDocument, datetime]] = OrderedDict()
        self._hosts = HostPlaces()

    def cached(self, address: str) -> ClientDocument | None:
        document, fresh_until = self._documents.get(address, (None, self._clock.now()))
        if document is None or fresh_until <= self._clock.now():
            return None
        self._documents.move_to_end(address)
        return document

    async def fetch(self, address: str, since: datetime | None = None) -> ClientDocument:
        host = host_of(address)
        try:
            async with self._hosts.of(host, FETCH_WITHIN):
                cached = self.cached(address)
                is_late = cached is not None and (since is None or cached.fetched_at > since)
                return cached if cached is not None and is_late else await self._request(address)
        except HostBusy:
            raise ClientHostBusy(host) from None

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
