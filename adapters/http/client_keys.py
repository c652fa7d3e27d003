"""The keys that OAuth clients and pipeline issuers publish, fetched through the guard (security W-1)."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar, Final, Protocol

from adapters.http.host_places import HostBusy, HostPlaces
from adapters.http.provider_keys import REFETCH_PAUSE, Caches, Keys, ProviderKeys
from adapters.http.upstream import UpstreamFailed, parse_json
from core.applications.model.client_settings import usable_keys
from core.federation.oauth.model.clients import ClientAssertionInvalid
from core.kernel.outbound import LONGEST_URL, Reply, SendFailed
from core.kernel.shares import Share, current_share
from core.kernel.uris import has_port_of, host_of, is_web_url
from ports.observe import Clock

FETCH_WITHIN: Final = 5.0  # seconds
DISCOVERY_PATH: Final = "/.well-known/openid-configuration"


class HttpGetter(Protocol):
    """The guarded sender, as this module uses it."""

    async def get(self, url: str, within: float) -> Reply:
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
        self._caches: Caches[tuple[Share, str], ProviderKeys] = Caches(clock, ProviderKeys)
        self._hosts = HostPlaces()

    async def get(self, url: str) -> tuple[Keys, bool]:
        return await self._cache(url).get(lambda: self._fetch(url))

    async def get_newer(self, url: str, keys: Sequence[Mapping[str, Any]], cause: Share) -> Keys | None:
        return await self._cache(url).get_newer(keys, lambda: self._fetch(url), cause)

    def _cache(self, url: str) -> ProviderKeys:
        return self._caches.of((current_share.get(), url))

    async def _fetch(self, url: str) -> Keys:
        """Fetch the keys. After a failure, there is no new attempt for REFETCH_PAUSE, because anyone can send a forged assertion."""
        cache, now = self._cache(url), self._clock.now()
        if cache.failed_at is not None and now < cache.failed_at + REFETCH_PAUSE:
            raise ClientAssertionInvalid(f"{self.keys_name} were not available")
        try:
            async with self._hosts.of(host_of(url) or "", FETCH_WITHIN):
                keys = await self._request(url)
        except HostBusy:
            raise ClientAssertionInvalid(f"{self.keys_name} are not available") from None
        if keys is None:
            cache.failed_at = now
            raise ClientAssertionInvalid(f"{self.keys_name} are not available")
        cache.failed_at = None
        return keys

    async def _request(self, url: str) -> Keys | None:
        """Return the keys of the party with this URL, or None if they are not available."""
        raise NotImplementedError

    async def _get_object(self, url: str) -> dict[str, Any]:
        """Return the JSON object at this URL, or an empty object."""
        if not has_port_of(url, self._ports):
            return {}
        try:
            reply = await self._sender.get(url, FETCH_WITHIN)
            document = parse_json(reply.body) if reply.status == 200 else None
        except (SendFailed, UpstreamFailed):
            document = None
        return document if isinstance(document, dict) else {}

    async def _get_keys(self, url: str) -> Keys | None:
        """Return the JWK set at this URL, or None if there is none (RFC 7517 section 5)."""
        keys = (await self._get_object(url)).get("keys")
        return keys if isinstance(keys, list) and all(isinstance(key, dict) for key in keys) else None


class HttpClientKeys(FetchedKeys):
    """Implements `ports.outside.PublishedKeys` for OAuth clients."""

    keys_name = "the keys at the client's jwks_uri"

    async def _request(self, url: str) -> Keys | None:
        keys = await self._get_keys(url)
        # Anyone can publish a client's metadata: only keys that can verify a signature are kept.
        return None if keys is None else usable_keys(keys)


class HttpIssuerKeys(FetchedKeys):
    """Implements `ports.outside.PublishedKeys` for issuers: two requests, for an issuer's metadata and for its keys."""

    keys_name = "the keys of its issuer"

    async def _request(self, url: str) -> Keys | None:
        metadata = await self._get_object(f"{url.removesuffix('/')}{DISCOVERY_PATH}")
        keys_url = metadata.get("jwks_uri")
        # Otherwise an issuer's metadata could stand for another issuer (OpenID Connect Discovery section 4.3).
        if metadata.get("issuer") != url or not isinstance(keys_url, str):
            return None
        # Keys that come over http could be exchanged on their way. `is_web_url` accepts http on the loopback
        # interface, and the guard refuses it, unless the operator allows it.
        is_downgrade = url.startswith("https://") and not keys_url.startswith("https://")
        return await self._get_keys(keys_url) if not is_downgrade and len(keys_url) <= LONGEST_URL and is_web_url(keys_url) else None
