"""People who pay for a plan, and events of the payment provider about that."""

import hashlib
import hmac
import json
import time
import uuid
from datetime import UTC, datetime
from typing import Any, Final

import psycopg

from ops.bench.filling import FREE_TIER
from ops.bench.service import Service, tidy
from ops.bench.wrk import Request, Wrk

SECRET: Final = "whsec_bench"  # noqa: S105  (of a service that lives for a minute)
PATH: Final = "/webhooks/billing"
MONTH: Final = 30 * 86_400
ORGANIZATIONS: Final = 40  # whose events wait for each other only within one


class PayingOrganizations:
    """All accounts that there are have one subscription each, of which the provider has news again and again."""

    def __init__(self, service: Service, wrk: Wrk) -> None:
        self._told = 0
        now = datetime.now(UTC)
        with psycopg.connect(service.conninfo) as connection:
            self._sold = [_sell(connection, number, now) for number in range(ORGANIZATIONS)]
            self._people = [row[0] for row in connection.execute("select id from users where email like '%@bench.example'")]
        made = [self._event("customer.subscription.created", number, "active") for number in range(len(self._people))]
        wrk.drive(service.address, made, len(made), once=True)
        tidy(service)

    def news(self, count: int) -> list[Request]:
        """So many events, each of which changes the state of a subscription. Good for five minutes from now on."""
        return [self._news(number) for number in range(self._told, self._told + count)]

    def _news(self, number: int) -> Request:
        self._told = number + 1
        lap, person = divmod(number, len(self._people))
        return self._event("customer.subscription.updated", person, "active" if lap % 2 else "past_due", lap + 1)

    def _event(self, type_: str, person: int, status: str, later: int = 0) -> Request:
        now = int(time.time())
        about: dict[str, Any] = {
            "id": f"sub_{person}",
            "object": "subscription",
            "customer": f"cus_{person % ORGANIZATIONS}",
            "status": status,
            "current_period_end": now + MONTH,
            "items": {"data": [{"price": {"id": "price_gold"}}]},
            "metadata": {**self._sold[person % ORGANIZATIONS], "user_id": str(self._people[person])},
        }
        event = {"id": f"evt_{uuid.uuid4().hex}", "type": type_, "created": now - 10_000 + later, "data": {"object": about}}
        signature = hmac.digest(SECRET.encode(), f"{now}.{json.dumps(event)}".encode(), hashlib.sha256).hex()
        return Request("POST", PATH, body=event, signature=f"t={now},v1={signature}")


def _sell(connection: psycopg.Connection[Any], number: int, now: datetime) -> dict[str, str]:
    """An organization with a service and a plan; what the metadata of its subscriptions say."""
    org, shop, plan = uuid.uuid4(), uuid.uuid4(), uuid.uuid4()
    connection.execute(
        "insert into organizations (id, slug, name, status, tier_id, created_at, updated_at) "
        "values (%s, %s, 'Bench', 'active', %s, %s, %s)",
        (org, f"bench-{number}", FREE_TIER, now, now),
    )
    connection.execute(
        "insert into services (id, org_id, slug, name, service_type, client_id, redirect_uris, created_at, updated_at) "
        "values (%s, %s, 'shop', 'Shop', 'mobile', %s, '{}', %s, %s)",
        (shop, org, uuid.uuid4(), now, now),
    )
    connection.execute(
        "insert into plans (id, org_id, service_id, name, price_cents, currency, features, billing_price_id, created_at, "
        "updated_at) values (%s, %s, %s, 'Gold', 999, 'eur', '{}', 'price_gold', %s, %s)",
        (plan, org, shop, now, now),
    )
    return {"org_id": str(org), "service_id": str(shop), "plan_id": str(plan)}
