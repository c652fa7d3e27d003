"""Canceling subscriptions at the payment provider (decisions 115, 159, 229; security Z-6)."""

from uuid import UUID, uuid4

import pytest

from adapters.postgres.engine.pool import Pool
from core.applications import cancellations
from core.applications.model import plans as cancellations_model
from core.billing import reconciliation
from core.billing.model import provider_events as reconciliation_model
from core.billing.model.provider_facts import SOON
from core.kernel.causes import SYSTEM
from core.kernel.errors import StorageDown
from core.kernel.values import new_id
from ports import Ports
from tests.billing.api.billing import Till
from tests.billing.api.checkout.buying import SECOND, begin, buy
from tests.fakes.http_server import TRAP
from tests.fakes.http_server import Answer as FakeAnswer
from tests.fakes.payments import FakePayments
from tests.support.builders import run_sql
from tests.support.refusals import MISSING, refused


async def canceled_ids(provider: FakePayments) -> list[str]:
    return [path.rpartition("/")[2] for method, path, _ in provider.requests if method == "DELETE"]


async def test_a_subscription_ended_by_an_api_key_is_canceled_at_the_provider(till: Till, provider: FakePayments, pool: Pool) -> None:
    subscription = await buy(till, provider)
    assert (await till.by_key("DELETE")).status == 204
    assert await canceled_ids(provider) == [subscription["id"]]
    assert await till.status() == "cancelled"
    assert refused(await till.by_key("DELETE")) == MISSING
    await provider.deliver(till.send_for_status)
    assert (await till.recorded()).count("subscription.canceled") == 1
    assert await run_sql(pool, "select 1 from billing_cancellations") == []
    assert (await till.begin()).status == 200, "another subscription can be bought"


async def test_deleting_a_service_cancels_its_subscriptions_at_the_provider(till: Till, provider: FakePayments, pool: Pool) -> None:
    subscription_ids = [(await buy(till, provider, name))["id"] for name in ("member", "owner")]
    answer = await till.tenant.api.delete(f"{till.tenant.path}/services/shop", token=till.tenant.token("owner"))
    assert answer.status == 204
    assert sorted(await canceled_ids(provider)) == sorted(subscription_ids)
    entries = await run_sql(pool, "select details from audit_log where action = 'subscription.canceled'")
    assert entries == [({"service_id": str(till.service), "at_provider": True},)] * 2
    await provider.deliver(till.send_for_status)
    assert await run_sql(pool, "select 1 from billing_cancellations") == []


async def test_a_failed_cancellation_is_retried_later(till: Till, provider: FakePayments, pool: Pool, ports: Ports) -> None:
    subscription = await buy(till, provider)
    path = f"subscriptions/{subscription['id']}"
    provider.answers[path] = FakeAnswer(500, TRAP.encode())
    answer = await till.tenant.api.delete(f"{till.tenant.path}/services/shop", token=till.tenant.token("owner"))
    assert answer.status == 204, "the service is deleted"
    assert provider.subscriptions[subscription["id"]]["status"] == "active"
    del provider.answers[path]
    assert await reconciliation.reconcile(ports, new_id()) == {}
    till.clock.advance(cancellations_model.LEASE)
    assert await reconciliation.reconcile(ports, new_id()) is None, "another process holds the lease"
    till.clock.advance(reconciliation_model.LEASE)
    assert await reconciliation.reconcile(ports, new_id()) == {"cancelled": 1}
    assert provider.subscriptions[subscription["id"]]["status"] == "canceled"
    assert await run_sql(pool, "select count(*) from audit_log where action = 'subscription.canceled'") == [(1,)]


@pytest.mark.parametrize("table", ["organizations", "users", "subscriptions"])
async def test_removing_a_subscription_in_any_way_cancels_it_at_the_provider(
    till: Till, provider: FakePayments, pool: Pool, ports: Ports, table: str
) -> None:
    subscription = await buy(till, provider)
    if table == "organizations":
        assert (await till.tenant.api.delete(till.tenant.path, token=till.tenant.token("owner"))).status == 204
    elif table == "users":
        async with ports.storage.transaction(by=SYSTEM) as tx:
            await tx.service_users.remove_everywhere(UUID(till.tenant.id("member")))
    else:
        await run_sql(pool, "delete from subscriptions")
    till.clock.advance(SECOND)
    assert (await reconciliation.reconcile(ports, new_id()) or {})["cancelled"] == 1
    assert provider.subscriptions[subscription["id"]]["status"] == "canceled"
    await provider.deliver(till.send_for_status)
    assert await till.rows() == []


async def delete(till: Till, resource: str) -> None:
    path = till.tenant.path if resource == "organization" else f"{till.tenant.path}/services/shop"
    assert (await till.tenant.api.delete(path, token=till.tenant.token("owner"))).status == 204


@pytest.mark.parametrize("resource", ["service", "organization"])
@pytest.mark.parametrize("events_arrive", [True, False])
async def test_a_purchase_for_a_deleted_service_is_canceled_at_the_provider(
    till: Till, provider: FakePayments, pool: Pool, ports: Ports, resource: str, *, events_arrive: bool
) -> None:
    session, holder = await begin(till), new_id()
    await delete(till, resource)
    subscription = provider.complete(session)
    if events_arrive:
        assert set(await provider.deliver(till.send_for_status, seed=1, copies=2)) == {200}
    else:
        provider.events.clear()
    for _ in range(2):  # without events the first round asks the provider
        till.clock.advance(SOON)
        await reconciliation.reconcile(ports, holder)
    assert provider.subscriptions[subscription["id"]]["status"] == "canceled"
    if events_arrive:
        await provider.deliver(till.send_for_status)
        await till.deliver("customer.subscription.updated", subscription)  # late
        till.clock.advance(SOON)
        assert "orphaned" not in (await reconciliation.reconcile(ports, holder) or {})
    assert await canceled_ids(provider) == [subscription["id"]]
    assert await till.rows() == []
    entries = await run_sql(pool, "select org_id, details from audit_log where action = 'subscription.canceled'")
    details = {"service_id": str(till.service), "at_provider": True}
    assert entries == ([(till.tenant.org, details)] if resource == "service" else []), "a deleted organization has no audit log"


async def test_subscriptions_of_other_installations_are_not_canceled(till: Till, provider: FakePayments, pool: Pool) -> None:
    """The same provider account may serve several installations with different services."""
    subscription = provider.complete(await begin(till))
    provider.events.clear()
    await delete(till, "service")
    for changes in ({"service_id": uuid4()}, {"org_id": uuid4()}, {"plan_id": till.silver}, {"user_id": till.tenant.id("owner")}):
        for id_ in ("sub_else", subscription["id"]):
            await till.deliver("customer.subscription.created", till.subscription(id_, metadata=till.metadata(**changes)))
    await till.deliver("customer.subscription.created", {**subscription, "customer": "cus_else"})
    assert await run_sql(pool, "select 1 from billing_cancellations") == []
    await till.deliver("customer.subscription.created", {**subscription, "status": "incomplete_expired"})
    assert await run_sql(pool, "select 1 from billing_cancellations") == [], "it has already ended"


async def test_a_cancellation_that_cannot_be_recorded_is_reported_and_recorded_later(
    till: Till, provider: FakePayments, pool: Pool, ports: Ports, monkeypatch: pytest.MonkeyPatch
) -> None:
    subscription = await buy(till, provider)

    async def fails(*_: object) -> None:
        raise StorageDown

    with monkeypatch.context() as patch:
        patch.setattr(cancellations, "_record", fails)
        answer = await till.tenant.api.delete(f"{till.tenant.path}/services/shop", token=till.tenant.token("owner"))
    assert refused(answer) == (500, "AUDIT_ERROR")
    assert provider.subscriptions[subscription["id"]]["status"] == "canceled"
    assert await run_sql(pool, "select 1 from services") == []
    till.clock.advance(cancellations_model.LEASE)
    assert await reconciliation.reconcile(ports, new_id()) == {"cancelled": 1}
    assert await run_sql(pool, "select count(*) from audit_log where action = 'subscription.canceled'") == [(1,)]
