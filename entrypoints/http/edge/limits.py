"""Which rate limits a request meets: that of its address, and the route's own (organizations.md section 8, identity.md section 4.1)."""

from functools import lru_cache
from uuid import UUID

from quart import request

from core.kernel.errors import Limited
from core.kernel.rate_limits import AUTH, DEVICE, Bucket
from entrypoints.http.edge.client_address import limit_key
from entrypoints.http.edge.context import app_context, ports, request_record


class RateLimits:
    """The buckets of each route, scaled by the operator's factor; `factor` None switches them off (security.md N-2).

    `client_rate` is how many exchanges a second an application has which shows its client secret: one address exchanges the codes of all
    who use it.
    """

    def __init__(self, factor: float | None, client_rate: float) -> None:
        self._factor = factor
        self.of = lru_cache(maxsize=1024)(self._of)  # there are no more than there are routes
        self.of_client = self.beside(AUTH.scaled(client_rate * AUTH.period))

    def _of(self, rule: str, own: tuple[Bucket, ...]) -> tuple[Bucket, ...]:
        """The buckets that a request to this rule takes a token from; `own` is what its access decorator says."""
        if self._factor is None:
            return ()
        buckets = (AUTH, *own) if rule.startswith(("/auth/", "/api/auth/")) else own
        return tuple(bucket.scaled(self._factor) for bucket in buckets)

    def beside(self, bucket: Bucket) -> tuple[Bucket, ...]:
        """A bucket that only some requests of a route take a token from, as what they send says."""
        return () if self._factor is None else (bucket.scaled(self._factor),)


async def admit(own: tuple[Bucket, ...]) -> None:
    """Take a token from every bucket of this route. Raises Limited, and then takes none."""
    assert request.url_rule is not None, "only matched routes are guarded"
    buckets = app_context().limits.of(request.url_rule.rule, own)
    if not buckets:
        return
    wait = await _charge(buckets)
    if wait > 0:
        raise Limited(wait)


async def admit_client(client_id: UUID) -> None:
    """Take a token from the bucket of an application that has shown its client secret, wherever it is (decisions, point 100).

    Raises Limited.
    """
    buckets = app_context().limits.of_client
    wait = await _charge(buckets, f"client {client_id}") if buckets else 0.0
    if wait > 0:
        raise Limited(wait)


class PolledTooOften(Limited):
    """A device asks for its tokens too often, or too many do from one address; clients know how to wait for that (RFC 8628 section 3.5)."""

    oauth_error = "slow_down"


async def admit_poll() -> None:
    """Take a token from the bucket of devices, too, which polls share with the routes of devices (decisions, points 99 and 100).

    Raises PolledTooOften.
    """
    buckets = app_context().limits.beside(DEVICE)
    wait = await _charge(buckets) if buckets else 0.0
    if wait > 0:
        raise PolledTooOften(wait)


async def _charge(buckets: tuple[Bucket, ...], whose: str | None = None) -> float:
    """`whose` they are: the address's, if nobody's else."""
    async with ports().storage.autocommit() as count:
        return await count.rates.charge(whose or limit_key(request_record().address), buckets, ports().clock.now())
