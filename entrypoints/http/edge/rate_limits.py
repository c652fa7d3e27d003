"""The routes' rate limits, from the operator's settings."""

from functools import lru_cache

from core.kernel.rate_limits import AUTH, SCIM, Bucket


class RateLimits:
    """Every route's buckets, scaled by the operator's factor.

    The factor None switches them off (security N-2).

    `client_rate` is how many requests a client that authenticates may send per second. It replaces the limit per
    address, because such a client exchanges all its users' codes from a single address.
    """

    def __init__(self, factor: float | None, client_rate: float) -> None:
        self._factor = factor
        self.are_on = factor is not None
        self.of = lru_cache(maxsize=1024)(self._of)  # bounded by the number of routes
        self.of_client = self.additional(AUTH.scaled(client_rate * AUTH.period))
        self.of_session = self.additional(AUTH)
        self.of_directory = self.additional(SCIM)

    def _of(self, rule: str, own: tuple[Bucket, ...]) -> tuple[Bucket, ...]:
        """Return a route's buckets. `own` are the buckets from its access decorator."""
        if self._factor is None:
            return ()
        buckets = (AUTH, *own) if rule.startswith(("/auth/", "/api/auth/")) else own
        return tuple(bucket.scaled(self._factor) for bucket in buckets)

    def additional(self, bucket: Bucket) -> tuple[Bucket, ...]:
        """Return a bucket for only some requests on a route, depending on their parameters."""
        return () if self._factor is None else (bucket.scaled(self._factor),)
