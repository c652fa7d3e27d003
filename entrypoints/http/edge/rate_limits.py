"""The routes' rate limits, from the operator's settings."""

from functools import lru_cache

from core.kernel import rate_limits


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
        self.of_client = self.additional(rate_limits.AUTH.scaled(client_rate * rate_limits.AUTH.period))
        self.of_session = self.additional(rate_limits.AUTH)
        self.of_directory = self.additional(rate_limits.SCIM)

    def _of(self, rule: str, own: tuple[rate_limits.Bucket, ...]) -> tuple[rate_limits.Bucket, ...]:
        """Return a route's buckets. `own` are the buckets from its access decorator."""
        if self._factor is None:
            return ()
        buckets = (rate_limits.AUTH, *own) if rule.startswith(("/auth/", "/api/auth/")) else own
        return tuple(bucket.scaled(self._factor) for bucket in buckets)

    def additional(self, bucket: rate_limits.Bucket) -> tuple[rate_limits.Bucket, ...]:
        """Return a bucket for only some requests on a route, depending on their parameters."""
        return () if self._factor is None else (bucket.scaled(self._factor),)
