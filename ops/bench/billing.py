"""Users who pay for a plan, and the payment provider's events about them."""

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
ORGANIZATIONS: Final = 40  # only events of the same organization wait for each other


class PayingOrganizations:
    """Organizations in which each account has one subscription, and the events that change these subscriptions."""

    def __init__(self, service: Service, wrk: Wrk) -> None:
        self._sent = 0
        now = datetime.now(UTC)
        with psycopg.connect(service.conninfo) as connection:
            self._metadata = [_add_organization(connection, number, now) for number in range(ORGANIZATIONS)]
            self._people = [row[0] for row in connection.execute("select id from users where email like '%@bench.example'")]
        created = [self._event("customer.subscription.created", number, "active") for number in range(len(self._people))]
        wrk.drive(service.address, created, len(created), once=True)
        tidy(service)

    def events(self, count: int) -> list[Request]:
        """Return `count` events that each change a subscription. Their signatures are valid for five minutes."""
        return [self._change(number) for number in range(self._sent, self._sent + count)]

    def _change(self, number: int) -> Request:
        self._sent = number + 1
        lap, person = divmod(number, len(self._people))
        return self._event("customer.subscription.updated", person, "active" if lap % 2 else "past_due", lap + 1)

    def _event(self, type_: str, person: int, status: str, later: int = 0) -> Request:
        now = int(time.time())
        subscription: dict[str, Any] = {
            "id": f"sub_{person}",
            "object": "subscription",
            "customer": f"cus_{person % ORGANIZATIONS}",
            "status": status,
            "current_period_end": now + MONTH,
            "items": {"data": [{"price": {"id": "price_gold"}}]},
            "metadata": {**self._metadata[person % ORGANIZATIONS], "user_id": str(self._people[person])},
        }
        event = {"id": f"evt_{uuid.uuid4().hex}", "type": type_, "created": now - 10_000 + later, "data": {"object": subscription}}
        signature = hmac.digest(SECRET.encode(), f"{now}.{json.dumps(event)}".encode(), hashlib.sha256).hex()
        return Request("POST", PATH, body=event, signature=f"t={now},v1={signature}")


def _add_organization(connection: psycopg.Connection[Any], number: int, now: datetime) -> dict[str, str]:
    """Add an organization with a service and a plan, and return the metadata of its subscriptions."""
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
