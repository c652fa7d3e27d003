"""The keys that OAuth clients publish at URLs of their own, fetched through the guard (security W-1)."""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final, Protocol

from adapters.http.provider_keys import REFETCH_PAUSE, Keys, ProviderKeys
from adapters.http.upstream import UpstreamFailed, parse_json
from core.federation.oauth.client_assertions_rules import ClientAssertionInvalid
from core.kernel.outbound import Reply, SendFailed
from ports.observe import Clock

FETCH_WITHIN: Final = 5.0  # seconds
MAX_CACHED: Final = 1000  # clients; those that were used longest ago are forgotten first


class HttpGetter(Protocol):
    """The guarded sender, as this module uses it."""

    async def get(self, url: str, within: float) -> Reply:
        """Return the response to a GET request, as `ports.outside.HttpSender.post` does. Raises: SendFailed."""
        ...


class HttpClientKeys:
    """Implements `ports.outside.ClientKeys`. Concurrent requests of a client share one fetch."""

    def __init__(self, sender: HttpGetter, clock: Clock) -> None:
        self._sender = sender
        self._clock = clock
        self._clients: OrderedDict[str, _Client] = OrderedDict()

    async def get(self, url: str) -> tuple[Keys, bool]:
        return await self._client(url).cache.get(lambda: self._fetch(url))

    async def get_newer(self, url: str, keys: Sequence[Mapping[str, Any]]) -> Keys | None:
        return await self._client(url).cache.get_newer(keys, lambda: self._fetch(url))

    def _client(self, url: str) -> "_Client":
        client = self._clients.get(url)
        if client is None:
            client = self._clients[url] = _Client(ProviderKeys(self._clock))
            if len(self._clients) > MAX_CACHED:
                self._clients.popitem(last=False)
        self._clients.move_to_end(url)
        return client

    async def _fetch(self, url: str) -> Keys:
        """Fetch the keys. After a failure, there is no other attempt for REFETCH_PAUSE, because anyone can send a forged assertion."""
        client, now = self._client(url), self._clock.now()
        if client.failed_at is not None and now < client.failed_at + REFETCH_PAUSE:
            raise ClientAssertionInvalid("the keys at the client's jwks_uri were not available")
        try:
            reply = await self._sender.get(url, FETCH_WITHIN)
            jwks = parse_json(reply.body) if reply.status == 200 else None
        except (SendFailed, UpstreamFailed):
            jwks = None
        keys = jwks.get("keys") if isinstance(jwks, dict) else None
        if not isinstance(keys, list) or not all(isinstance(key, dict) for key in keys):
            client.failed_at = now
            raise ClientAssertionInvalid("the keys at the client's jwks_uri are not available")
        client.failed_at = None
        return keys


class _Client:
    """The cached keys at one URL, and the time of the last fetch if it failed."""

    def __init__(self, cache: ProviderKeys) -> None:
        self.cache = cache
        self.failed_at: datetime | None = None
