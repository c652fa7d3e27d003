"""Rate limits of requests: per client address, per OAuth client, and per organization for directories."""

from functools import lru_cache
from uuid import UUID

from core.kernel.errors import Limited
from core.kernel.rate_limits import AUTH, DEVICE, SCIM, Bucket
from entrypoints.http.edge.client_address import limit_key
from entrypoints.http.edge.context import app_context, current_request, ports, request_record


class RateLimits:
    """The buckets of each route, scaled by the operator's factor. The factor None switches them off (security N-2).

    `client_rate` is the number of token requests per second for a client with a client secret. It
    replaces the limit per address, because such a client exchanges the codes of all its users from
    one address.
    """

    def __init__(self, factor: float | None, client_rate: float) -> None:
        self._factor = factor
        self.of = lru_cache(maxsize=1024)(self._of)  # bounded by the number of routes
        self.of_client = self.additional(AUTH.scaled(client_rate * AUTH.period))
        self.of_directory = self.additional(SCIM)

    def _of(self, rule: str, own: tuple[Bucket, ...]) -> tuple[Bucket, ...]:
        """Return the buckets of a route. `own` are those of its access decorator."""
        if self._factor is None:
            return ()
        buckets = (AUTH, *own) if rule.startswith(("/auth/", "/api/auth/")) else own
        return tuple(bucket.scaled(self._factor) for bucket in buckets)

    def additional(self, bucket: Bucket) -> tuple[Bucket, ...]:
        """Return a bucket for only some requests of a route, depending on their parameters."""
        return () if self._factor is None else (bucket.scaled(self._factor),)


async def take_token(own: tuple[Bucket, ...]) -> None:
    """Take a token from every bucket of this route. If one is empty, take none.

    Raises: Limited.
    """
    rule = current_request().url_rule
    assert rule is not None, "only matched routes are guarded"
    await _take(app_context().limits.of(rule.rule, own))


async def take_directory_token(org_id: UUID) -> None:
    """Take a token from the bucket of an organization's directory, whatever its addresses and SCIM tokens.

    Raises: Limited.
    """
    await _take(app_context().limits.of_directory, f"directory {org_id}")


class PolledTooOften(Limited):
    """The device polls too often, or too many devices poll from this address. Wait five seconds longer between polls."""

    oauth_error = "slow_down"  # RFC 8628 section 3.5


async def take_poll_token() -> None:
    """Take a token from the bucket for devices, which polls share with the device routes (decisions 99, 100).

    Raises: PolledTooOften.
    """
    await _take(app_context().limits.additional(DEVICE), error=PolledTooOften)


async def _take(buckets: tuple[Bucket, ...], key: str | None = None, error: type[Limited] = Limited) -> None:
    """Take a token from each bucket of the key, by default the client address. Raises: `error` if one is empty."""
    if not buckets:
        return
    async with ports().storage.autocommit() as statements:
        wait = await statements.rates.charge(key or limit_key(request_record().address), buckets, ports().clock.now())
    if wait > 0:
        raise error(wait)
