"""The payment provider, over HTTP: customers, checkouts and subscriptions, as Stripe has them (https://docs.stripe.com/api).

Requests are forms; each that makes something carries a key, so that sent again it makes nothing more. What is raised and logged is one of
a few sentences of ours.
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

from adapters.http.upstream import LONGEST_ANSWER, ExchangeFailed, Exchanges, decoded, read
from core.billing import payments
from core.billing.checkout_rules import Checkout
from core.billing.payments import CheckoutSession, CustomerNotFound, IdempotencyKeySpent, ProviderSnapshot, UnreadableObject
from core.kernel.errors import PaymentsFailed
from core.kernel.values import is_printable
from ports.observe import Clock

if TYPE_CHECKING:
    import httpx

log = structlog.get_logger("payments")

DEADLINE: Final = 10.0  # seconds
AT_ONCE: Final = 50
LONGEST_PAGE: Final = 1024 * 1024  # bytes, of a list
PAGE: Final = 50  # subscriptions, each a few thousand bytes
PAGES: Final = 5
LONGEST_URL: Final = 8192
PAUSE: Final = 0.2  # seconds, while another request with the same key is on its way
SLACK: Final = timedelta(hours=1)  # that clocks may differ by, where it costs nothing


@dataclass(frozen=True, slots=True)
class PaymentSettings:
    """Where the payment provider is, and what it knows us by."""

    api_url: str
    api_key: str = field(repr=False)


class KeyRefused(PaymentsFailed):
    """The payment provider does not take the key, or not for reading subscriptions."""


class HttpPayments:
    """ports.outside.Payments."""

    def __init__(self, settings: PaymentSettings | None, clock: Clock, *, deadline: float = DEADLINE) -> None:
        self._settings = settings
        self._clock = clock
        self._exchanges = Exchanges(deadline, AT_ONCE)

    @property
    def is_on(self) -> bool:
        return self._settings is not None

    async def create_customer(self, org_id: UUID, name: str, key: UUID) -> str:
        async with self._conversation() as talk:
            # The same for the same key, or the provider takes it for a mistake, and then there is to be another key: a name may change.
            made = await talk.make("customers", {"name": name, "metadata[org_id]": str(org_id)}, f"customer-{key}")
            return payments.name(made) or _fail("it made a customer without a name")

    async def begin_checkout(self, checkout: Checkout, customer_id: str) -> CheckoutSession:
        metadata = checkout.meant.metadata
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
        async with self._conversation() as talk:
            begun = await talk.make("checkout/sessions", fields, f"checkout-{checkout.id}")
            session_id, url = payments.name(begun), begun.get("url")
            if session_id is None or not _is_address(url):
                _fail("it began a checkout without a name or an address")
            return CheckoutSession(session_id, url)

    async def subscription(self, id_: str) -> ProviderSnapshot | None:
        async with self._conversation() as talk:
            found = await talk.get("subscriptions", {}, one=id_)
            return None if found is None else self._seen(found, talk.date)

    async def subscriptions_of(self, customer_id: str, since: datetime) -> list[ProviderSnapshot]:
        query = {"customer": customer_id, "status": "all", "created[gte]": str(int((since - SLACK).timestamp())), "limit": str(PAGE)}
        seen: list[ProviderSnapshot] = []
        async with self._conversation() as talk:
            for _ in range(PAGES):
                page = await talk.get("subscriptions", query, longest=LONGEST_PAGE)
                if page is None:
                    break
                listed = page.get("data")
                if not isinstance(listed, list) or not all(isinstance(each, dict) for each in listed):
                    _fail("its list of subscriptions cannot be read")
                seen += self._readable(listed, talk.date)
                if not listed or page.get("has_more") is not True:
                    break
                query["starting_after"] = payments.name(listed[-1]) or _fail("its list of subscriptions cannot be read")
        return seen

    async def cancel(self, id_: str) -> bool:
        async with self._conversation() as talk:
            found = await talk.ask("DELETE", "subscriptions", one=id_)
            if found.status == 200:
                return True
            if not 400 <= found.status < 500:
                _fail(found.told)
            # It refuses that for what is over, too; then it can be read.
            still = await talk.get("subscriptions", {}, one=id_)
            if still is not None and not self._seen(still, talk.date).subscription.is_over:
                _fail(found.told)
            return still is not None

    async def check(self) -> None:
        """Ask for as little as there is that takes the key. Raises KeyRefused, PaymentsFailed.

        For somebody at a terminal, who is told: nothing is logged.
        """
        try:
            async with self._exchange() as talk:
                found = await talk.ask("GET", "subscriptions", query={"limit": "1"}, longest=LONGEST_PAGE)
                if found.status in (401, 403):
                    raise KeyRefused(found.told)
                if found.status != 200:
                    _fail(found.told)
        except ExchangeFailed as failure:
            raise PaymentsFailed(str(failure)) from None

    def _seen(self, found: Mapping[str, Any], date: datetime | None) -> ProviderSnapshot:
        try:
            return ProviderSnapshot(payments.read_subscription(found), date or self._clock.now().replace(microsecond=0))
        except UnreadableObject:
            _fail("a subscription of its cannot be read")

    def _readable(self, listed: Sequence[Mapping[str, Any]], date: datetime | None) -> Iterator[ProviderSnapshot]:
        """One that cannot be read hides no other."""
        for each in listed:
            try:
                yield self._seen(each, date)
            except ExchangeFailed as failure:
                log.warning("payments_failed", reason=str(failure), subscription=payments.name(each))

    @asynccontextmanager
    async def _conversation(self) -> AsyncIterator["_Conversation"]:
        """All that is asked at once, within the deadline. What goes wrong is PaymentsFailed, and told in the log."""
        try:
            async with self._exchange() as talk:
                yield talk
        except ExchangeFailed as failure:
            log.warning("payments_failed", reason=str(failure))
            raise PaymentsFailed(str(failure)) from None

    @asynccontextmanager
    async def _exchange(self) -> AsyncIterator["_Conversation"]:
        settings = self._settings or _fail("it is not set up")
        async with self._exchanges.conversation() as client:
            yield _Conversation(client, settings)


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    body: Mapping[str, Any]
    told: str  # for the operator's log, if it is not what was hoped for


class _Conversation:
    """What is said to the provider at once."""

    def __init__(self, client: "httpx.AsyncClient", settings: PaymentSettings) -> None:
        self._client = client
        base = settings.api_url.rstrip("/")
        self._base = base if urlsplit(base).path.endswith("/v1") else f"{base}/v1"
        self._headers = {"Authorization": f"Bearer {settings.api_key}"}
        self.date: datetime | None = None  # what time it was there at the last answer

    async def make(self, path: str, fields: Mapping[str, str], key: str) -> Mapping[str, Any]:
        """What is made, unless it was made with this key before."""
        while True:
            made = await self.ask("POST", path, fields=fields, key=key)
            if made.status == 200:
                return made.body
            found = made.body.get("error")
            error = found if isinstance(found, dict) else {}
            if (error.get("code"), error.get("param")) == ("resource_missing", "customer"):
                raise CustomerNotFound("the customer is not there any more")
            if made.status in (409, 429):  # the same is on its way, or there is too much on the way
                await trio.sleep(PAUSE)
                continue
            # What it gives to this key from now on: its own failure, others being of what stands before it; or that something else was
            # asked for with it before.
            if made.status == 500 or error.get("type") == "idempotency_error":
                log.warning("payments_failed", reason=made.told)
                raise IdempotencyKeySpent(made.told)
            _fail(made.told)

    async def get(
        self, path: str, query: Mapping[str, str], *, one: str | None = None, longest: int = LONGEST_ANSWER
    ) -> Mapping[str, Any] | None:
        """What is there, None if nothing is."""
        found = await self.ask("GET", path, one=one, query=query, longest=longest)
        if found.status == 404:
            return None
        if found.status != 200:
            _fail(found.told)
        return found.body

    async def ask(
        self,
        method: str,
        path: str,
        *,
        one: str | None = None,
        fields: Mapping[str, str] | None = None,
        query: Mapping[str, str] | None = None,
        key: str | None = None,
        longest: int = LONGEST_ANSWER,
    ) -> _Answer:
        """Whatever it answers. `one` is the id of what is asked about, which is nothing for the log."""
        url = f"{self._base}/{path}" if one is None else f"{self._base}/{path}/{one}"
        headers = self._headers if key is None else {**self._headers, "Idempotency-Key": key}
        async with self._client.stream(method, url, headers=headers, data=fields, params=query) as response:
            raw = await read(response, longest)
        self.date = _date(response.headers.get("Date"))
        try:
            body = decoded(raw)
        except ExchangeFailed:
            if response.status_code == 200:
                raise
            body = {}  # of errors, some are in HTML
        if not isinstance(body, dict):
            _fail("its answer cannot be read")
        return _Answer(response.status_code, body, f"it answered {response.status_code} to {method} {path}")


def _date(header: str | None) -> datetime | None:
    try:
        found = None if header is None else parsedate_to_datetime(header)
        return None if found is None or found.tzinfo is None else found.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _is_address(url: object) -> TypeGuard[str]:
    if not isinstance(url, str) or len(url) > LONGEST_URL or not is_printable(url):
        return False
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname)


def _fail(reason: str) -> NoReturn:
    """With a reason for the operator's log, none of whose words are the provider's."""
    raise ExchangeFailed(reason)
