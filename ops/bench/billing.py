"""Users who pay for a plan, and the payment provider's events about them."""

import hashlib
import hmac
import json
import time
from collections.abc import Iterator
from typing import Any, Final
from uuid import uuid4

from ops.bench.filling import add_organization
from ops.bench.row import REQUESTS
from ops.bench.service import Service
from ops.bench.wrk import Request

SECRET: Final = "whsec_bench"  # noqa: S105  (of a service that lives for a minute)
MONTH: Final = 30 * 86_400
ORGANIZATIONS: Final = 40  # only events for the same organization wait for each other


def subscription_changes(service: Service) -> Iterator[Request]:
    """Add organizations with a single subscription per account, and yield events that change a single subscription.

    An event's signature is valid for five minutes.
    """
    plans = service.query(
        """
        with shops as (
            insert into services (id, org_id, slug, name, service_type, client_id, redirect_uris, created_at, updated_at)
            select gen_random_uuid(), org_id, 'shop', 'Shop', 'mobile', gen_random_uuid(), '{}', now(), now()
            from unnest(%(orgs)s::uuid[]) org_id returning id, org_id)
        insert into plans (id, org_id, service_id, name, price_cents, currency, features, billing_price_id, created_at, updated_at)
        select gen_random_uuid(), org_id, id, 'Gold', 999, 'eur', '{}', 'price_gold', now(), now() from shops
        returning org_id, service_id, id""",
        orgs=[add_organization(service, f"bench-{number}") for number in range(ORGANIZATIONS)],
    )
    metadata = [{"org_id": str(org), "service_id": str(shop), "plan_id": str(plan)} for org, shop, plan in plans]
    people = [str(user_id) for (user_id,) in service.query("select id from users where email like '%%@bench.example'")]

    def event(type_: str, person: int, status: str, later: int = 0) -> Request:
        now = int(time.time())
        subscription: dict[str, Any] = {
            "id": f"sub_{person}",
            "object": "subscription",
            "customer": f"cus_{person % ORGANIZATIONS}",
            "status": status,
            "current_period_end": now + MONTH,
            "items": {"data": [{"price": {"id": "price_gold"}}]},
            "metadata": {**metadata[person % ORGANIZATIONS], "user_id": people[person]},
        }
        body = {"id": f"evt_{uuid4().hex}", "type": type_, "created": now - 10_000 + later, "data": {"object": subscription}}
        signature = hmac.digest(SECRET.encode(), f"{now}.{json.dumps(body)}".encode(), hashlib.sha256).hex()
        return Request("POST", "/webhooks/billing", body=body, more={"billing-signature": f"t={now},v1={signature}"})

    created = [event("customer.subscription.created", person, "active") for person in range(len(people))]
    REQUESTS.drive(service.address, created, len(created), once=True)
    service.tidy()

    def changes() -> Iterator[Request]:
        lap = 0
        while True:
            for person in range(len(people)):
                yield event("customer.subscription.updated", person, "active" if lap % 2 else "past_due", lap + 1)
            lap += 1

    return changes()
