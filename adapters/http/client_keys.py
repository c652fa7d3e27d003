"""The keys and metadata that OAuth clients and pipeline issuers publish, fetched through the guard (security W-1)."""

from collections import OrderedDict
from collections.abc import AsyncIterator, Collection, Hashable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime
from typing import Any, ClassVar, Final, Protocol

import trio

from adapters.http import provider_keys, upstream
from core.applications.model.client_settings import usable_keys
from core.federation.oauth.model import client_documents
from core.federation.oauth.model.client_documents import FETCH_WITHIN as FETCH_DOCUMENT_WITHIN
from core.federation.oauth.model.client_documents import host_of as document_host
from core.federation.oauth.model.clients import ClientAssertionInvalid
from core.kernel import outbound, shares, uris
from core.kernel.errors import Limited
from core.kernel.policy import Policy
from ports.observe import Clock

FETCH_WITHIN: Final = 5.0  # seconds
DISCOVERY_PATH: Final = "/.well-known/openid-configuration"


class HttpGetter(Protocol):
    """The guarded sender, as this module uses it."""

    async def get(self, url: str, within: float) -> outbound.Reply:
        """Return the response to a GET request, as `ports.outside.HttpSender.post` does. Raises: SendFailed."""


class FetchedKeys:
    """The keys that another party publishes, by its URL. Concurrent requests by an organization share a fetch.

    Every organization has its own cache: its waits, failures and forged assertions delay no other organization (security N-11).
    """

    keys_name: ClassVar[str]  # in reasons

    def __init__(self, sender: HttpGetter, clock: Clock, ports: Collection[int]) -> None:
        """Keys may be fetched only from servers at these `ports`. Stored URLs, and URLs in metadata, are checked, too."""
        self._sender = sender
        self._clock = clock
        self._ports = ports
        self._caches: provider_keys.Caches[tuple[shares.Share, str], provider_keys.ProviderKeys] = provider_keys.Caches(
            clock, provider_keys.ProviderKeys
        )
        self._hosts = HostPlaces()

    async def get(self, url: str) -> tuple[provider_keys.Keys, bool]:
        return await self._cache(url).get(lambda: self._fetch(url))

    async def get_newer(self, url: str, keys: Sequence[Mapping[str, Any]], cause: shares.Share) -> provider_keys.Keys | None:
        return await self._cache(url).get_newer(keys, lambda: self._fetch(url), cause)

    def _cache(self, url: str) -> provider_keys.ProviderKeys:
        return self._caches.of((shares.current_share.get(), url))

    async def _fetch(self, url: str) -> provider_keys.Keys:
        """Fetch the keys. After a failure, there is no new attempt for REFETCH_PAUSE, because anyone can send a forged assertion."""
        cache, now = self._cache(url), self._clock.now()
        if cache.failed_at is not None and now < cache.failed_at + provider_keys.REFETCH_PAUSE:
            raise ClientAssertionInvalid(f"{self.keys_name} were not available")
        try:
            async with self._hosts.of(uris.host_of(url) or "", FETCH_WITHIN):
                keys = await self._request(url)
        except HostBusy:
            raise ClientAssertionInvalid(f"{self.keys_name} are not available") from None
        if keys is None:
            cache.failed_at = now
            raise ClientAssertionInvalid(f"{self.keys_name} are not available")
        cache.failed_at = None
        return keys

    async def _request(self, url: str) -> provider_keys.Keys | None:
        """Return the keys of the party with this URL, or None if they are not available."""
        raise NotImplementedError

    async def _get_object(self, url: str) -> dict[str, Any]:
        """Return the JSON object at this URL, or an empty object."""
        if not uris.has_port_of(url, self._ports):
            return {}
        try:
            reply = await self._sender.get(url, FETCH_WITHIN)
            document = upstream.parse_json(reply.body) if reply.status == 200 else None
        except (outbound.SendFailed, upstream.UpstreamFailed):
            document = None
        return document if isinstance(document, dict) else {}

    async def _get_keys(self, url: str) -> provider_keys.Keys | None:
        """Return the JWK set at this URL, or None if there is none (RFC 7517 section 5)."""
        keys = (await self._get_object(url)).get("keys")
        return keys if isinstance(keys, list) and all(isinstance(key, dict) for key in keys) else None


class HttpClientKeys(FetchedKeys):
    """Implements `ports.outside.PublishedKeys` for OAuth clients."""

    keys_name = "the keys at the client's jwks_uri"

    async def _request(self, url: str) -> provider_keys.Keys | None:
        keys = await self._get_keys(url)
        # Anyone can publish a client's metadata: only keys that can verify a signature are kept.
        return None if keys is None else usable_keys(keys)


class HttpIssuerKeys(FetchedKeys):
    """Implements `ports.outside.PublishedKeys` for issuers: two requests, for an issuer's metadata and for its keys."""

    keys_name = "the keys of its issuer"

    async def _request(self, url: str) -> provider_keys.Keys | None:
        metadata = await self._get_object(f"{url.removesuffix('/')}{DISCOVERY_PATH}")
        keys_url = metadata.get("jwks_uri")
        # Otherwise an issuer's metadata could stand for another issuer (OpenID Connect Discovery section 4.3).
        if metadata.get("issuer") != url or not isinstance(keys_url, str):
            return None
        # Keys that come over http could be exchanged on their way. `is_web_url` accepts http on the loopback
        # interface, and the guard refuses it, unless the operator allows it.
        is_downgrade = url.startswith("https://") and not keys_url.startswith("https://")
        return (
            await self._get_keys(keys_url)
            if not is_downgrade and len(keys_url) <= outbound.LONGEST_URL and uris.is_web_url(keys_url)
            else None
        )


ADVICE: Final = "Try again later, or tell its developer."
MAX_CACHED: Final = 1000  # documents; documents that were used longest ago are forgotten first


class HttpClientDocuments:
    """Implements `ports.outside.ClientDocuments`. Valid documents are cached, but no failures."""

    def __init__(self, sender: HttpGetter, clock: Clock, policy: Policy) -> None:
        self._sender = sender
        self._clock = clock
        self._policy = policy
        self._documents: OrderedDict[str, tuple[client_documents.ClientDocument, datetime]] = OrderedDict()
        self._hosts = HostPlaces()

    def cached(self, address: str) -> client_documents.ClientDocument | None:
        document, fresh_until = self._documents.get(address, (None, self._clock.now()))
        if document is None or fresh_until <= self._clock.now():
            return None
        self._documents.move_to_end(address)
        return document

    async def fetch(self, address: str, since: datetime | None = None) -> client_documents.ClientDocument:
        host = document_host(address)
        try:
            async with self._hosts.of(host, FETCH_DOCUMENT_WITHIN):
                cached = self.cached(address)
                is_late = cached is not None and (since is None or cached.fetched_at > since)
                return cached if cached is not None and is_late else await self._request(address)
        except HostBusy:
            raise client_documents.ClientHostBusy(host) from None

    async def _request(self, address: str) -> client_documents.ClientDocument:
        try:
            reply = await self._sender.get(address, FETCH_DOCUMENT_WITHIN)
        except outbound.SendFailed as failure:
            raise client_documents.ClientDocumentUnavailable(
                document_host(address), f"is not available: {failure.reason}", ADVICE
            ) from None
        if reply.status != 200:
            raise client_documents.ClientDocumentUnavailable(
                document_host(address), f"is not available: its server answers {reply.status}", ADVICE
            )
        now, headers = self._clock.now(), reply.headers
        document = client_documents.parse_document(address, headers.get("content-type", ""), reply.body, self._policy, now)
        self._documents[address] = document, now + client_documents.fresh_for(headers.get("cache-control", ""), headers.get("age", ""))
        self._documents.move_to_end(address)
        if len(self._documents) > MAX_CACHED:
            self._documents.popitem(last=False)
        return document


MAX_CONCURRENT: Final = 300  # requests in this process
MAX_OF_SHARE: Final = 6  # requests by an organization, or a client address
MAX_OF_HOST: Final = 6  # requests to a host, from six organizations


class HostBusy(Exception):
    """Earlier requests by the organization, or to the host, took too long."""


class HostPlaces:
    """The hosts with a request in flight."""

    def __init__(self) -> None:
        self._hosts: dict[Hashable, shares.FairPlaces] = {}  # by host, by share, by (share, host), and by None for all hosts

    @asynccontextmanager
    async def of(self, host: str, within: float) -> AsyncIterator[None]:
        """Let a request go to this host in its turn. Raises: HostBusy after `within` seconds.

        The most shared places are taken last. So a waiting request holds no place that unrelated callers need (security N-11).
        """
        share = shares.current_share.get()
        totals = {(share, host): 1, share: MAX_OF_SHARE, host: MAX_OF_HOST, None: MAX_CONCURRENT}
        async with AsyncExitStack() as taken:
            try:
                with trio.fail_after(within):
                    for key, total in totals.items():
                        await taken.enter_async_context(self._place(key, total))
            except (Limited, trio.TooSlowError):
                raise HostBusy from None
            yield

    @asynccontextmanager
    async def _place(self, key: Hashable, total: int) -> AsyncIterator[None]:
        places = self._hosts.setdefault(key, shares.FairPlaces(trio.Event, total, of_share=total))
        try:
            with await places.take():
                yield
        finally:
            if places.is_idle and self._hosts.get(key) is places:
                del self._hosts[key]
