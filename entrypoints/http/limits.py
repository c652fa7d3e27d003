"""Which rate limits a route has (organizations.md section 8 and the rows of identity.md section 4.1)."""

from quart import request

from core.errors import Limited
from core.limits import AUTH, FORGOT_PASSWORD, LOGIN, REGISTER, RESEND_VERIFICATION, Bucket
from entrypoints.http.client_address import limit_key
from entrypoints.http.context import exchange, ports, served

OWN: dict[tuple[str, str], Bucket] = {
    ("POST", "/api/auth/register"): REGISTER,
    ("POST", "/api/auth/login"): LOGIN,
    ("POST", "/api/auth/forgot-password"): FORGOT_PASSWORD,
    ("POST", "/api/auth/resend-verification"): RESEND_VERIFICATION,
}


class RateLimits:
    """The buckets of each route, scaled by the operator's factor; `factor` None switches them off (security.md N-2)."""

    def __init__(self, factor: float | None) -> None:
        self._factor = factor
        self._known: dict[tuple[str, str], tuple[Bucket, ...]] = {}

    def of(self, method: str, rule: str) -> tuple[Bucket, ...]:
        """The buckets that a request to this rule takes a token from."""
        key = (method, rule)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._buckets(method, rule)
        return found

    def _buckets(self, method: str, rule: str) -> tuple[Bucket, ...]:
        if self._factor is None:
            return ()
        buckets = [AUTH] if rule.startswith(("/auth/", "/api/auth/")) else []
        if (method, rule) in OWN:
            buckets.append(OWN[method, rule])
        return tuple(bucket.scaled(self._factor) for bucket in buckets)


async def admit() -> None:
    """Take a token from every bucket of this route. Raises Limited, and then takes none."""
    assert request.url_rule is not None, "only matched routes are guarded"
    buckets = served().limits.of(request.method, request.url_rule.rule)
    if not buckets:
        return
    async with ports().storage.counting() as count:
        wait = await count.rates.charge(limit_key(exchange().address), buckets, ports().clock.now())
    if wait > 0:
        raise Limited(wait)
