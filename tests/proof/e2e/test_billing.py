"""Subscriptions at the payment provider, from outside.

Events arrive twice, late and in any order, or never, the provider fails, and the process is killed.
In the end every user has the paid plan.
"""

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

import httpx
import psycopg
import pytest
import trio

from core.kernel.values import rfc3339
from tests.fakes.http_server import TRAP, in_json
from tests.fakes.payments import API_KEY, MONTH, SECRET, FakePayments, Object, invoice, sign
from tests.proof.e2e.conftest import Start
from tests.proof.e2e.process import NO_TLS, Service
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow

OWNER: Final = "owner@example.com"
PASSWORD: Final = "correct horse battery staple"
SHOP: Final = "/api/organizations/acme/services/shop"


class Provider(FakePayments):
    """A payment provider with a clock that tests advance, so that a later change has a later second."""

    def __init__(self) -> None:
        super().__init__(now=lambda: time.time() + self.ahead)
        self.ahead = 0

    def later(self) -> None:
        self.ahead += 2


class Shop:
    """A service with plans, and its program's service API."""

    def __init__(self, service: Service, provider: Provider, database: str) -> None:
        self.service = service
        self.provider = provider
        self.database = database
        self.token = self.key = ""
        self.plans: dict[str, str] = {}

    async def start(self) -> None:
        await trio.to_thread.run_sync(self.service.start)

    async def kill(self) -> None:
        await trio.to_thread.run_sync(self.service.kill)

    async def ask(self, method: str, path: str, body: Any = None, **headers: str) -> httpx.Response:
        return await trio.to_thread.run_sync(partial(self.service.call, method, path, body, token=self.token, **headers))

    async def call(self, method: str, path: str, body: Any = None) -> Any:
        answer = await self.ask(method, path, body)
        assert answer.is_success, answer.text
        return answer.json()

    async def open(self) -> None:
        self.token = (await trio.to_thread.run_sync(self.service.login, OWNER, PASSWORD))["access_token"]
        await self.call("POST", "/api/organizations", {"slug": "acme", "name": "Acme"})
        await self.call("POST", "/api/organizations/acme/services", {"slug": "shop", "name": "Shop", "service_type": "web"})
        for name in ("gold", "silver"):
            plan = {"name": name, "price_cents": 900, "currency": "eur", "billing_price_id": f"price_{name}"}
            self.plans[name] = (await self.call("POST", f"{SHOP}/plans", plan))["id"]
        key = {"name": "Program", "permissions": ["read:subscriptions"]}
        self.key = (await self.call("POST", f"{SHOP}/api-keys", key))["key"]

    async def check_out(self) -> httpx.Response:
        addresses = {"success_url": "https://shop.example.com/thanks", "cancel_url": "https://shop.example.com/"}
        return await self.ask("POST", f"{SHOP}/checkout", {"plan_id": self.plans["gold"], **addresses})

    async def buy(self) -> Object:
        """Complete a checkout. Return the subscription at the provider."""
        answer = await self.check_out()
        assert answer.status_code == 200, answer.text
        return self.provider.complete(answer.json()["session_id"])

    async def send(self, one: Object) -> int:
        """Deliver an event as the provider does: repeat it until the status is 200."""
        body = json.dumps(one).encode()
        headers = {"billing-signature": sign(body, SECRET, time.time()), "Content-Type": "application/json"}
        async with httpx.AsyncClient(verify=NO_TLS, trust_env=False) as client:
            try:
                answer = await client.post(f"{self.service.address}/webhooks/billing", content=body, headers=headers)
            except httpx.TransportError:
                return 0
        return answer.status_code

    async def send_all(self, seed: int, copies: int, *, killed_at: int | None = None, fails: int = 0) -> None:
        """Deliver all events in a random order.

        The process is killed during the event with the number `killed_at`. The next event comes after the service has
        logged `fails` provider failures.
        """
        number = 0

        async def send(one: Object) -> int:
            nonlocal number
            number += 1
            if number != killed_at:
                return await self.send(one)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.send, one)
                await self.restart()
            await eventually(lambda: len(self.service.logged("payments_failed")) >= fails, "the failures are logged")
            return 0  # it may have been processed, so it comes again

        await self.provider.deliver(send, seed, copies)

    async def restart(self) -> None:
        """Kill the service, and start it when all subscriptions are due and all leases have ended."""
        await self.kill()
        await self.let_time_pass()
        await self.start()

    async def subscriptions(self) -> list[tuple[str, str, str]]:
        """Return status, plan and period end for all subscriptions in the service API."""
        headers = {"X-API-Key": self.key}
        answer = await trio.to_thread.run_sync(partial(self.service.get, "/api/service/subscriptions", **headers))
        assert answer.status_code == 200, answer.text
        return [(one["status"], one["plan_name"], one["current_period_end"]) for one in answer.json()["subscriptions"]]

    async def recorded_actions(self) -> list[str]:
        """Return the audit actions about subscriptions, the oldest first."""
        page = await self.call("GET", "/api/organizations/acme/audit-log?target_type=subscription")
        return [entry["action"] for entry in reversed(page["logs"])]

    async def let_time_pass(self) -> None:
        """Make all checks due now, and end all leases."""

        def update() -> None:
            with psycopg.connect(self.database, autocommit=True) as connection:
                connection.execute("update billing_facts set check_at = now() where check_at is not null")
                connection.execute("update billing_checkouts set check_at = now() where check_at is not null")
                connection.execute("delete from leases")

        await trio.to_thread.run_sync(update)


def ends(subscription: Object) -> str:
    """Return the end date for the subscription's period in our format."""
    return rfc3339(datetime.fromtimestamp(subscription["current_period_end"], UTC))


@pytest.fixture
def provider() -> Iterator[Provider]:
    with Provider() as running:
        yield running


@pytest.fixture
async def shop(service: Start, own_database: dict[str, str], provider: Provider) -> Shop:
    running = service(
        **own_database,
        SSO_PLATFORM_OWNER_EMAIL=OWNER,
        SSO_PLATFORM_OWNER_PASSWORD=PASSWORD,
        SSO_AUTO_APPROVE_ORGANIZATIONS="true",
        SSO_BILLING_API_URL=provider.address,
        SSO_BILLING_API_KEY=API_KEY,
        SSO_BILLING_WEBHOOK_SECRET=SECRET,
    )
    shop = Shop(running, provider, own_database["SSO_DATABASE_URL"])
    await shop.start()
    await shop.open()
    return shop


async def test_every_user_has_the_paid_plan_after_any_failures(shop: Shop, provider: Provider) -> None:
    provider.answers["checkout/sessions"] = in_json({"error": {"message": TRAP}}, 500)
    refused = await shop.check_out()
    assert (refused.status_code, refused.json()["error_code"]) == (500, "BILLING_ERROR")
    provider.answers.clear()

    first = await shop.buy()
    delayed = [one for one in provider.events if one["type"] in ("invoice.paid", "checkout.session.completed")]
    await shop.send_all(seed=1, copies=3)
    assert await shop.subscriptions() == [("active", "gold", ends(first))]
    assert len(provider.customers) == 1, "one customer for two checkout requests"

    # Another plan, a failed payment, and a successful payment, while the provider answers no
    # questions.
    question = f"subscriptions/{first['id']}"
    provider.answers[question] = in_json({"error": {"message": TRAP}}, 500)
    provider.later()
    provider.change(first["id"], price="price_silver")
    provider.later()
    provider.add_event("invoice.payment_failed", invoice(first["id"], customer=first["customer"]))
    provider.change(first["id"], status="past_due")
    provider.later()
    until = first["current_period_end"] + MONTH
    provider.add_event("invoice.paid", invoice(first["id"], until, customer=first["customer"]))
    provider.change(first["id"], status="active", current_period_end=until)
    await shop.send_all(seed=2, copies=2, killed_at=4, fails=2)
    provider.answers.clear()
    provider.events += delayed
    await shop.send_all(seed=3, copies=2)
    assert await shop.subscriptions() == [("active", "silver", ends(first))]

    async def has(*rows: tuple[str, str, str]) -> bool:
        return await shop.subscriptions() == list(rows)

    # The event about the end is lost.
    provider.later()
    provider.change(first["id"], status="canceled")
    provider.events.clear()
    canceled = ("cancelled", "silver", ends(first))
    await shop.restart()
    await eventually(partial(has, canceled), "the service learns of the end")

    # The event about another checkout is lost too.
    second = await shop.buy()
    provider.events.clear()
    assert await shop.subscriptions() == [canceled]
    await shop.restart()
    await eventually(partial(has, canceled, ("active", "gold", ends(second))), "the service learns of the subscription")

    actions = await shop.recorded_actions()
    assert [actions[0], actions[-2:]] == ["subscription.created", ["subscription.canceled", "subscription.created"]]
    assert set(actions[1:-2]) == {"subscription.updated"}
    assert TRAP not in shop.service.output
    assert API_KEY not in shop.service.output
    assert await trio.to_thread.run_sync(shop.service.stop) == 0
