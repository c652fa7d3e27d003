"""A payment provider like Stripe, over HTTP, with customers, checkouts and subscriptions, and with failures on demand.

Stripe's own library signs the events. Like the provider, it checks the API key, that a repeated
idempotency key comes with the same request, and that referenced objects exist.
"""

import hmac
import itertools
import json
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import stripe

from adapters.http.payments import PaymentSettings
from core.billing.model.checkout import Checkout, CheckoutSession
from core.billing.model.provider_objects import ProviderSnapshot
from tests.fakes.http_server import TRAP, Answer, FakeServer, ReceivedRequest, in_json

API_KEY: Final = "sk_test_of_the_provider"
SECRET: Final = "whsec_of_the_provider"
MONTH: Final = 30 * 86400

Object = dict[str, Any]
_numbers = itertools.count(1)


def sign(body: bytes, secret: str = SECRET, at: float = 0) -> str:
    """Return an event's signature header, made by the provider's own library."""
    try:
        text = body.decode()
    except UnicodeDecodeError:  # the library signs only valid UTF-8
        return f"t={int(at)},v1={hmac.digest(secret.encode(), b'%d.' % int(at) + body, 'sha256').hex()}"
    header: str = stripe.WebhookSignature.generate_signature_header(text, secret, timestamp=int(at))
    return header


def event(type_: str, subject: Mapping[str, Any], created: int, **changes: Any) -> Object:
    """Return an event as the provider sends it."""
    fields = {"id": f"evt_{next(_numbers)}", "object": "event", "type": type_, "created": created, "livemode": False}
    return {**fields, "data": {"object": dict(subject)}, **changes}


def subscription(id_: str, **changes: Any) -> Object:
    """Return a subscription with the fields that Gatehouse reads."""
    price, period_end = changes.pop("price", "price_gold"), changes.pop("current_period_end", None)
    item = {"id": "si_1", "object": "subscription_item", "price": {"id": price, "object": "price"}}
    fields: Object = {"id": id_, "object": "subscription", "customer": "cus_1", "status": "active", "metadata": {}}
    if period_end is not None:
        fields["current_period_end"] = period_end
    return {**fields, "items": {"object": "list", "data": [item]}, **changes}


def invoice(subscription_id: str | None, until: int | None = None, **changes: Any) -> Object:
    """Return an invoice for a period that ends at `until`."""
    lines = [] if until is None else [{"id": "il_1", "object": "line_item", "period": {"start": 0, "end": until}}]
    fields = {"id": f"in_{next(_numbers)}", "object": "invoice", "customer": "cus_1", "subscription": subscription_id}
    return {**fields, "lines": {"object": "list", "data": lines}, **changes}


class FakePayments(FakeServer):
    """The payment provider. Requests that create objects wait for the gate."""

    def __init__(self, *, now: Callable[[], float] = time.time) -> None:
        super().__init__(now=now)
        self.customers: dict[str, Object] = {}
        self.sessions: dict[str, Object] = {}
        self.subscriptions: dict[str, Object] = {}
        self.requests: list[tuple[str, str, dict[str, str]]] = []  # method, path, and query or form
        self.headers: list[dict[str, str]] = []
        self.counted: Counter[str] = Counter()
        self.events: list[Object] = []  # not yet delivered
        self.answers: dict[str, Answer] = {}  # responses that replace the usual responses, by path
        self.lost: set[str] = set()  # paths for requests that are executed, but get a 502 response
        self.page = 100  # how many subscriptions a page can have
        self._answered: dict[str, tuple[dict[str, str], Answer | None]] = {}  # by idempotency key

    @property
    def settings(self) -> PaymentSettings:
        """Return the settings that an operator would use for it."""
        return PaymentSettings(self.address, API_KEY)

    # What customers and the provider do

    def complete(self, session_id: str, **changes: Any) -> Object:
        """Pay for a checkout, and return the new subscription. Its events wait for `deliver`."""
        session, now = self.sessions[session_id], int(self.now())
        purchase = subscription(
            f"sub_{next(_numbers)}",
            customer=session["customer"],
            metadata=dict(session["_subscription_metadata"]),
            price=session["_price"],
            current_period_end=now + MONTH,
            created=now,
            **changes,
        )
        self.subscriptions[purchase["id"]] = purchase
        session |= {"status": "complete", "subscription": purchase["id"]}
        paid = invoice(purchase["id"], now + MONTH, customer=purchase["customer"])
        self.add_event("customer.subscription.created", {**purchase, "status": "incomplete"})
        self.add_event("invoice.paid", paid)
        self.add_event("customer.subscription.updated", purchase)
        self.add_event("checkout.session.completed", {name: value for name, value in session.items() if not name.startswith("_")})
        return purchase

    def change(self, id_: str, **changes: Any) -> Object:
        """Change a subscription at the provider."""
        price = changes.pop("price", None)
        self.subscriptions[id_] |= changes
        if price is not None:
            self.subscriptions[id_]["items"]["data"][0]["price"]["id"] = price
        deleted = changes.get("status") == "canceled"
        self.add_event("customer.subscription.deleted" if deleted else "customer.subscription.updated", self.subscriptions[id_])
        return self.subscriptions[id_]

    def add_event(self, type_: str, subject: Mapping[str, Any]) -> None:
        self.events.append(event(type_, json.loads(json.dumps(subject)), int(self.now())))

    async def deliver(self, send: Callable[[Object], Awaitable[int]], seed: int = 0, copies: int = 1) -> Counter[int]:
        """Send every waiting event `copies` times in random order, and repeat failed events.

        Return how many responses there were by status.
        """
        answers: Counter[int] = Counter()
        waiting = [event for event in self.events for _ in range(copies)]
        self.events.clear()
        chance = random.Random(seed)  # noqa: S311
        while waiting:
            chance.shuffle(waiting)
            refused: list[Object] = []
            for one in waiting:
                status = await send(one)
                answers[status] += 1
                if status != 200:
                    refused.append(one)
            assert answers.total() < 1000, answers
            waiting = refused
        return answers

    # HTTP

    def _reply(self, request: ReceivedRequest) -> Answer:
        path = request.path.removeprefix("/v1/")
        with self._lock:
            self.requests.append((request.method, path, request.sent))
            self.headers.append(request.headers)
            self.counted[f"{request.method} {path}"] += 1
        answer = self._once(request, path)
        if path in self.lost:
            answer = Answer(502, TRAP.encode(), {"Content-Type": "text/html"})
        return answer

    def _once(self, request: ReceivedRequest, path: str) -> Answer:
        sent, key = request.sent, request.headers.get("idempotency-key")
        if request.headers.get("authorization") != f"Bearer {API_KEY}":
            return error(401)
        if request.method != "POST":
            with self._lock:
                return self.answers.get(path) or self._answer(request.method, path, sent)
        if key is None:
            return error(400)
        with self._lock:
            before, answer = self._answered.get(key, (None, None))
            if before is not None:
                if before != {**sent, "_path": path}:
                    return error(400, type="idempotency_error")
                return answer or error(409, code="idempotency_key_in_use")  # repeated failures too
            self._answered[key] = ({**sent, "_path": path}, None)
        if self.gate is not None:
            self.gate.wait(10)
        with self._lock:
            answer = self.answers.get(path) or self._answer("POST", path, sent)
            self._answered[key] = ({**sent, "_path": path}, answer)
            return answer

    def _answer(self, method: str, path: str, sent: dict[str, str]) -> Answer:
        match method, path.split("/"):
            case "POST", ["customers"]:
                id_ = f"cus_{next(_numbers)}x"
                self.customers[id_] = {"id": id_, "object": "customer", "name": sent.get("name"), "metadata": inner(sent, "metadata")}
                return in_json(self.customers[id_])
            case "POST", ["checkout", "sessions"]:
                return self._begin(sent)
            case "GET", ["subscriptions"] if sent == {"limit": "1"}:
                return in_json({"object": "list", "data": [*self.subscriptions.values()][-1:], "has_more": len(self.subscriptions) > 1})
            case "GET", ["subscriptions"]:
                return self._list(sent)
            case "GET", ["subscriptions", id_] if id_ in self.subscriptions:
                return in_json(self.subscriptions[id_])
            case "DELETE", ["subscriptions", id_] if id_ in self.subscriptions:
                if self.subscriptions[id_]["status"] in ("canceled", "incomplete_expired"):
                    return error(404)
                return in_json(self.change(id_, status="canceled"))
        return error(404)

    def _begin(self, sent: dict[str, str]) -> Answer:
        if sent["customer"] not in self.customers:
            return error(400, code="resource_missing", param="customer")
        assert sent["mode"] == "subscription"
        assert sent["line_items[0][quantity]"] == "1"
        id_ = f"cs_test_{next(_numbers)}"
        public = {"id": id_, "object": "checkout.session", "status": "open", "subscription": None, "url": f"{self.address}/pay/{id_}"}
        fields = {"customer": sent["customer"], "client_reference_id": sent["client_reference_id"], "metadata": inner(sent, "metadata")}
        private = {"_price": sent["line_items[0][price]"], "_subscription_metadata": inner(sent, "subscription_data[metadata]")}
        self.sessions[id_] = {**public, **fields, **private}
        return in_json({**public, **fields})

    def _list(self, sent: dict[str, str]) -> Answer:
        assert sent["status"] == "all"
        matches = [
            one
            for one in reversed(self.subscriptions.values())
            if one["customer"] == sent["customer"] and one.get("created", 0) >= int(sent["created[gte]"])
        ]
        if "starting_after" in sent:
            matches = matches[[one["id"] for one in matches].index(sent["starting_after"]) + 1 :]
        most = min(self.page, int(sent["limit"]))
        return in_json({"object": "list", "data": matches[:most], "has_more": len(matches) > most})


class SuccessfulPayments:
    """ports.outside.Payments without a provider: every request succeeds, and no checkout is ever paid."""

    is_on = True

    async def create_customer(self, org_id: UUID, name: str, key: UUID) -> str:
        return f"cus_{key}"

    async def begin_checkout(self, checkout: Checkout, customer_id: str) -> CheckoutSession:
        return CheckoutSession(f"cs_{checkout.id}", f"https://provider.example/pay/{checkout.id}")

    async def subscription(self, id_: str) -> ProviderSnapshot | None:
        return None

    async def subscriptions_of(self, customer_id: str, since: datetime) -> list[ProviderSnapshot]:
        return []

    async def cancel(self, id_: str) -> bool:
        return True


def error(status: int, **fields: str) -> Answer:
    """Return an error from the provider. Its text must never appear in our responses or logs."""
    return in_json({"error": {"type": "invalid_request_error", "message": TRAP, **fields}}, status)


def inner(form: Mapping[str, str], prefix: str) -> dict[str, str]:
    """Return the form fields that belong to this object."""
    return {name.removeprefix(f"{prefix}[").rstrip("]"): value for name, value in form.items() if name.startswith(f"{prefix}[")}


def types(events: Iterable[Mapping[str, Any]]) -> list[str]:
    return [one["type"] for one in events]
