"""HTTP client for the payment provider, for its customers, checkouts and subscriptions (https://docs.stripe.com/api).

Requests are forms. A request that creates an object has an idempotency key, so that repeating it creates nothing more.
Errors and log lines contain only our own words, and quote nothing from the provider.
"""

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeGuard
from urllib.parse import urlsplit
from uuid import UUID

import structlog
import trio

from adapters.http import upstream
from core.billing.model import provider_objects
from core.billing.model.checkout import Checkout, CheckoutSession, CustomerNotFound, IdempotencyKeySpent
from core.kernel.errors import PaymentsFailed
from core.kernel.shares import FairPlaces
from core.kernel.values import is_printable
from ports.observe import Clock

if TYPE_CHECKING:
    import httpx

log = structlog.get_logger("payments")

DEADLINE: Final = 10.0  # seconds
MAX_CONCURRENT: Final = 50  # operations
MAX_OF_ORGANIZATION: Final = 6
MAX_LIST_SIZE: Final = 1024 * 1024  # bytes
PAGE_SIZE: Final = 50  # subscriptions, with a few thousand bytes per subscription
MAX_PAGES: Final = 5
MAX_URL_LENGTH: Final = 8192
RETRY_PAUSE: Final = 0.2  # seconds, while another request with the same idempotency key is in progress
CLOCK_SLACK: Final = timedelta(hours=1)  # tolerated difference between clocks when listing recent subscriptions


@dataclass(frozen=True, slots=True)
class PaymentSettings:
    """The payment provider's API address and our key for it."""

    api_url: str
    api_key: str = field(repr=False)


class KeyRefused(PaymentsFailed):
    """The payment provider does not accept the API key, or does not allow it to read subscriptions."""


class HttpPayments:
    """Implements `ports.outside.Payments`."""

    def __init__(self, settings: PaymentSettings | None, clock: Clock, *, deadline: float = DEADLINE) -> None:
        self._settings = settings
        self._clock = clock
        self._http = upstream.UpstreamHttp(deadline, FairPlaces(trio.Event, MAX_CONCURRENT, of_share=MAX_OF_ORGANIZATION))

    @property
    def is_on(self) -> bool:
        return self._settings is not None

    async def create_customer(self, org_id: UUID, name: str, key: UUID) -> str:
        async with self._connection() as connection:
            # A repeated key needs the same fields, or the provider refuses it. The name may have
            # changed, and then the caller has to use another key.
            created = await connection.create("customers", {"name": name, "metadata[org_id]": str(org_id)}, f"customer-{key}")
            return provider_objects.parse_provider_id(created) or _fail("it created a customer without an id")

    async def begin_checkout(self, checkout: Checkout, customer_id: str) -> CheckoutSession:
        metadata = checkout.metadata.to_strings()
        fields = {
            "mode": "subscription",
            "customer": customer_id,
            "line_items[0][price]": checkout.price_id,
            "line_items[0][quantity]": "1",
            "success_url": checkout.success_url,
            "cancel_url": checkout.cancel_url,
            "client_reference_id": str(checkout.id),
            **{f"metadata[{name}]": value for name, value in metadata.items()},
            **{f"subscription_data[metadata][{name}]": value for name, value in metadata.items()},
        }
        async with self._connection() as connection:
            session = await connection.create("checkout/sessions", fields, f"checkout-{checkout.id}")
            session_id, url = provider_objects.parse_provider_id(session), session.get("url")
            if session_id is None or not _is_page_url(url):
                _fail("it created a checkout without an id or a URL")
            return CheckoutSession(session_id, url)

    async def subscription(self, id_: str) -> provider_objects.ProviderSnapshot | None:
        async with self._connection() as connection:
            data = await connection.get("subscriptions", {}, object_id=id_)
            return None if data is None else self._to_snapshot(data, connection.date)

    async def subscriptions_of(self, customer_id: str, since: datetime) -> list[provider_objects.ProviderSnapshot]:
        created_since = str(int((since - CLOCK_SLACK).timestamp()))
        query = {"customer": customer_id, "status": "all", "created[gte]": created_since, "limit": str(PAGE_SIZE)}
        snapshots: list[provider_objects.ProviderSnapshot] = []
        async with self._connection() as connection:
            for _ in range(MAX_PAGES):
                page = await connection.get("subscriptions", query, max_size=MAX_LIST_SIZE)
                if page is None:
                    break
                items = page.get("data")
                if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
                    _fail("its list of subscriptions cannot be read")
                snapshots += self._readable(items, connection.date)
                if not items or page.get("has_more") is not True:
                    break
                query["starting_after"] = provider_objects.parse_provider_id(items[-1]) or _fail("its list of subscriptions cannot be read")
        return snapshots

    async def cancel(self, id_: str) -> bool:
        async with self._connection() as connection:
            response = await connection.request("DELETE", "subscriptions", object_id=id_)
            if response.status == 200:
                return True
            if not 400 <= response.status < 500:
                _fail(response.summary)
            # The provider also refuses to cancel a subscription that is over. Read the subscription
            # to find out.
            data = await connection.get("subscriptions", {}, object_id=id_)
            if data is not None and not self._to_snapshot(data, connection.date).subscription.is_over:
                _fail(response.summary)
            return data is not None

    async def check(self) -> None:
        """Make the smallest request that needs the key, and log nothing. For `gatehouse doctor`.

        Raises: KeyRefused, PaymentsFailed.
        """
        async with self._connection(is_logged=False) as connection:
            response = await connection.request("GET", "subscriptions", query={"limit": "1"}, max_size=MAX_LIST_SIZE)
            if response.status in (401, 403):
                raise KeyRefused(response.summary)
            if response.status != 200:
                _fail(response.summary)

    def _to_snapshot(self, data: Mapping[str, Any], date: datetime | None) -> provider_objects.ProviderSnapshot:
        try:
            return provider_objects.ProviderSnapshot(
                provider_objects.parse_subscription(data), date or self._clock.now().replace(microsecond=0)
            )
        except provider_objects.UnreadableObject:
            _fail("one of its subscriptions cannot be read")

    def _readable(self, items: Sequence[Mapping[str, Any]], date: datetime | None) -> Iterator[provider_objects.ProviderSnapshot]:
        """Yield the subscriptions that can be read. Unreadable subscriptions are logged, so that they do not hide the rest."""
        for item in items:
            try:
                yield self._to_snapshot(item, date)
            except upstream.UpstreamFailed as failure:
                log.warning("payments_failed", reason=str(failure), subscription=provider_objects.parse_provider_id(item))

    @asynccontextmanager
    async def _connection(self, *, is_logged: bool = True) -> AsyncIterator["_Connection"]:
        """Open a connection for a single operation within the deadline. Failures are raised as PaymentsFailed, and logged."""
        try:
            settings = self._settings or _fail("it is not configured")
            async with self._http.connect() as client:
                yield _Connection(client, settings)
        except upstream.UpstreamFailed as failure:
            if is_logged:
                log.warning("payments_failed", reason=str(failure))
            raise PaymentsFailed(str(failure)) from None


@dataclass(frozen=True, slots=True)
class _Response:
    status: int
    body: Mapping[str, Any]
    summary: str  # for the log, if the response is not as expected


class _Connection:
    """The requests in a single operation."""

    def __init__(self, client: "httpx.AsyncClient", settings: PaymentSettings) -> None:
        self._client = client
        base = settings.api_url.rstrip("/")
        self._base = base if urlsplit(base).path.endswith("/v1") else f"{base}/v1"
        self._headers = {"Authorization": f"Bearer {settings.api_key}"}
        self.date: datetime | None = None  # the provider's time at the last response, None if it sent none

    async def create(self, path: str, fields: Mapping[str, str], key: str) -> Mapping[str, Any]:
        """Return the object created with this idempotency key, which may have been created before."""
        while True:
            response = await self.request("POST", path, fields=fields, key=key)
            if response.status == 200:
                return response.body
            details = response.body.get("error")
            error = details if isinstance(details, dict) else {}
            if (error.get("code"), error.get("param")) == ("resource_missing", "customer"):
                raise CustomerNotFound("the customer no longer exists")
            if response.status in (409, 429):  # the same request is in progress, or there are too many requests
                await trio.sleep(RETRY_PAUSE)
                continue
            # The provider stores these two answers and repeats them for every later request with
            # this key: a failure in its own code (status 500; a different 5xx comes from the
            # proxies in front of it), and the refusal for a key that was used with different
            # fields.
            if response.status == 500 or error.get("type") == "idempotency_error":
                log.warning("payments_failed", reason=response.summary)
                raise IdempotencyKeySpent(response.summary)
            _fail(response.summary)

    async def get(
        self, path: str, query: Mapping[str, str], *, object_id: str | None = None, max_size: int = upstream.MAX_RESPONSE_SIZE
    ) -> Mapping[str, Any] | None:
        """Return the object or list at this path, or None if it does not exist."""
        response = await self.request("GET", path, object_id=object_id, query=query, max_size=max_size)
        if response.status == 404:
            return None
        if response.status != 200:
            _fail(response.summary)
        return response.body

    async def request(
        self,
        method: str,
        path: str,
        *,
        object_id: str | None = None,
        fields: Mapping[str, str] | None = None,
        query: Mapping[str, str] | None = None,
        key: str | None = None,
        max_size: int = upstream.MAX_RESPONSE_SIZE,
    ) -> _Response:
        """Send a request and return the response, whatever its status. `object_id` is appended to the path and kept out of the log."""
        url = f"{self._base}/{path}" if object_id is None else f"{self._base}/{path}/{object_id}"
        headers = self._headers if key is None else {**self._headers, "Idempotency-Key": key}
        async with self._client.stream(method, url, headers=headers, data=fields, params=query) as response:
            raw = await upstream.read_body(response, max_size)
        self.date = _parse_date(response.headers.get("Date"))
        try:
            body = upstream.parse_json(raw)
        except upstream.UpstreamFailed:
            if response.status_code == 200:
                raise
            body = {}  # some errors are HTML
        if not isinstance(body, dict):
            _fail("its answer cannot be read")
        return _Response(response.status_code, body, f"it answered {response.status_code} to {method} {path}")


def _parse_date(header: str | None) -> datetime | None:
    try:
        date = None if header is None else parsedate_to_datetime(header)
        return None if date is None or date.tzinfo is None else date.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _is_page_url(url: object) -> TypeGuard[str]:
    if not isinstance(url, str) or len(url) > MAX_URL_LENGTH or not is_printable(url):
        return False
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname)


def _fail(reason: str) -> NoReturn:
    """Raise an error with a reason for the log, which must quote nothing from the provider."""
    raise upstream.UpstreamFailed(reason)
