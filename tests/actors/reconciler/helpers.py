"""Purchases, and rounds by the billing reconciler."""

from collections.abc import Mapping
from datetime import datetime, timedelta

from actors import sweep_jobs as actor
from core.billing import reconciliation
from core.kernel.values import new_id
from ports import Ports
from tests.billing.api.billing import Till
from tests.fakes.http_server import Answer
from tests.fakes.payments import FakePayments, Object
from tests.support.builders import run_sql

HOLDER = new_id()


async def buy(till: Till, provider: FakePayments, *, delivered: bool) -> Object:
    """Let the member buy a subscription, and deliver its events only if `delivered`."""
    subscription = provider.complete((await till.begin()).json["session_id"])
    if delivered:
        await provider.deliver(till.send_for_status)
    provider.events.clear()
    provider.requests.clear()
    return subscription


async def reconcile(ports: Ports) -> dict[str, int]:
    counts = await reconciliation.reconcile(ports, HOLDER)
    assert counts is not None, "no other process has the lease"
    return dict(counts)


async def run_rounds(till: Till, ports: Ports, count: int, pause: timedelta) -> list[Mapping[str, int]]:
    """Reconcile `count` times with a pause before every round, and return the results that are not empty."""
    counts = []
    for _ in range(count):
        till.clock.advance(pause)
        counts.append(await actor.reconcile_subscriptions(ports, HOLDER))
    return [each for each in counts if each]


async def active_subscriptions(till: Till) -> list[str | None]:
    """Return the provider's ids for the active subscriptions, with None for subscriptions without a provider."""
    rows = await run_sql(till.tenant.pool, "select provider_subscription_id from subscriptions where status = 'active'")
    return [id_ for (id_,) in rows]


async def add_failing_check(till: Till, provider: FakePayments, name: str, since: datetime) -> None:
    """Add a subscription with this id to check, and let the provider fail for it."""
    facts = "insert into billing_facts (provider_subscription_id, org_id, heard_at, check_at) values (%s, %s, %s, %s)"
    await run_sql(till.tenant.pool, facts, name, till.tenant.org, since, since)
    provider.answers[f"subscriptions/{name}"] = Answer(500)


async def buy_twice(till: Till, provider: FakePayments) -> tuple[Object, Object]:
    """Let the member complete two checkouts. Return the subscription that became active, and the duplicate."""
    sessions = [(await till.begin()).json["session_id"] for _ in range(2)]
    purchases = {subscription["id"]: subscription for subscription in map(provider.complete, sessions)}
    await provider.deliver(till.send_for_status)
    [ours] = await active_subscriptions(till)
    provider.events.clear()
    return purchases.pop(ours), next(iter(purchases.values()))
