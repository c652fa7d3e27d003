"""Subscriptions in the service API: fields, statuses, refusals, records and concurrency.

The rules are decisions 8, 9, 13, 15, 16, 20, 24, 113, 114, 115, 116, and security K-2, K-3, K-5,
T-1, T-2, Z-1, Z-5. The module is longer than 400 lines, because its tests share fixtures and
helpers.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Any
from uuid import UUID, uuid4

import jwt
import pytest

from adapters.postgres.engine.pool import Pool
from core.applications.api_keys_rules import ApiKeyInvalid
from core.billing import subscriptions
from core.kernel.errors import OrganizationNotActive
from core.kernel.principals import OrganizationStatus, Permission, Role, ServiceKey
from core.kernel.values import digest
from ports import Ports
from tests.fakes.outside import FakeClock
from tests.support.builders import PASSWORD, Answer, Api, add_account, run_concurrently, run_during, run_sql
from tests.support.refusals import BAD, FORBIDDEN, MISSING, refused
from tests.support.services import add_api_key, add_plan, add_service, add_service_user, add_subscription, service_context
from tests.support.tenants import Tenant

PATH = "/api/service/subscriptions"
MONTH = timedelta(days=30)
SECOND, DAY = timedelta(seconds=1), timedelta(days=1)


@pytest.fixture
def cast() -> Mapping[str, Role]:
    """Organizations have only an owner, because the callers are API keys."""
    return {"owner": Role.OWNER}


@dataclass(slots=True)
class Shop:
    """A service with two plans, two users, and an API key with all permissions."""

    tenant: Tenant
    service: UUID
    gold: UUID
    silver: UUID
    key: str
    user: UUID
    other_user: UUID
    headers: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        self.headers = {"X-Api-Key": self.key}

    @property
    def api(self) -> Api:
        return self.tenant.api

    async def subscribe(self, user: object, plan: object, **fields: Any) -> Answer:
        return await self.api.post(PATH, {"user_id": str(user), "plan_id": str(plan), **fields}, headers=self.headers)

    async def created(self, user: UUID, plan: UUID, **fields: Any) -> dict[str, Any]:
        answer = await self.subscribe(user, plan, **fields)
        assert answer.status == 200, answer.text
        subscription: dict[str, Any] = answer.json
        return subscription

    async def get(self, user: object) -> Answer:
        return await self.api.get(f"{PATH}/{user}", headers=self.headers)

    async def update(self, user: object, **fields: Any) -> Answer:
        return await self.api.patch(f"{PATH}/{user}", fields, headers=self.headers)

    async def end(self, user: object) -> Answer:
        return await self.api.delete(f"{PATH}/{user}", headers=self.headers)

    async def list_subscriptions(self, query: str = "") -> Answer:
        return await self.api.get(f"{PATH}{query}", headers=self.headers)

    async def stored_rows(self) -> list[tuple[Any, ...]]:
        """Return status and plan of all subscriptions, oldest first, and check the counter."""
        rows = await run_sql(
            self.tenant.pool, "select status, plan_id from subscriptions where service_id = %s order by created_at", self.service
        )
        assert await run_sql(self.tenant.pool, "select subscription_count from services where id = %s", self.service) == [(len(rows),)]
        return rows

    async def caller(self) -> ServiceKey:
        """Return the caller that the key authenticates."""
        [(key_id,)] = await run_sql(self.tenant.pool, "select id from api_keys where key_hash = %s", digest(self.key))
        return ServiceKey(key_id=key_id, permissions=frozenset(Permission), service=await service_context(self.tenant.pool, self.service))


async def add_shop(tenant: Tenant, slug: str = "shop") -> Shop:
    ports, pool = tenant.ports, tenant.pool
    service = await add_service(pool, tenant.org, slug)
    users = [await add_account(ports, f"{name}@{slug}.{tenant.slug}.example", None) for name in ("user", "other_user")]
    for user in users:
        await add_service_user(ports, service, user.id)
    gold, silver = await add_plan(pool, service, "Gold"), await add_plan(pool, service, "Silver", features=())
    return Shop(tenant, service, gold, silver, await add_api_key(pool, service), *(user.id for user in users))


@pytest.fixture
async def shop(acme: Tenant) -> Shop:
    return await add_shop(acme)


@pytest.fixture
async def other(acme: Tenant) -> Shop:
    """Another service of the same organization."""
    return await add_shop(acme, "other")


@pytest.fixture
async def foreign(other_tenant: Tenant) -> Shop:
    """A service of another organization."""
    return await add_shop(other_tenant)


def text(time: datetime) -> str:
    return time.astimezone(UTC).isoformat().replace("+00:00", "Z")


# Creating


async def test_by_default_a_subscription_is_active_for_30_days(shop: Shop) -> None:
    subscription = await shop.created(shop.user, shop.gold)
    assert subscription == {
        "id": str(UUID(subscription["id"])),
        "user_id": str(shop.user),
        "plan_id": str(shop.gold),
        "plan_name": "Gold",
        "status": "active",
        "current_period_end": "2026-04-13T15:09:26.535897Z",
    }
    assert (await shop.get(shop.user)).json == subscription
    assert await shop.stored_rows() == [("active", shop.gold)]


@pytest.mark.parametrize("status", ["active", "cancelled", "expired", "past_due"])
async def test_a_subscription_can_start_with_any_status(shop: Shop, status: str) -> None:
    subscription = await shop.created(shop.user, shop.silver, status=status, current_period_end="2026-05-01T12:00:00+02:00")
    assert (subscription["status"], subscription["current_period_end"]) == (status, "2026-05-01T10:00:00Z")
    assert (await shop.get(shop.user)).json == subscription
    assert await shop.stored_rows() == [(status, shop.silver)]


async def test_optional_fields_can_be_null(shop: Shop) -> None:
    subscription = await shop.created(shop.user, shop.gold, status=None, current_period_end=None)
    assert (subscription["status"], subscription["current_period_end"]) == ("active", "2026-04-13T15:09:26.535897Z")


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("status", ["", "Active", "canceled", "trial", 1, True, [], {}]),
        ("current_period_end", ["", "soon", "2026-05-01", "2026-05-01T12:00:00", 1777626000, "2026-02-30T12:00:00Z", True]),
        ("user_id", ["", "x", "00000000-0000-4000-8000-00000000000G", str(uuid4()).upper(), uuid4().hex, 5, None]),
        ("plan_id", ["", "x", f"{{{uuid4()}}}", 5, None, []]),
    ],
)
async def test_malformed_fields_are_refused(shop: Shop, name: str, values: list[Any]) -> None:
    good = {"user_id": str(shop.user), "plan_id": str(shop.gold)}
    for value in values:
        answer = await shop.api.post(PATH, {**good, name: value}, headers=shop.headers)
        assert refused(answer) == BAD, value
        assert name in answer.json["error"]
    assert await shop.stored_rows() == []


async def test_the_refusal_of_an_unknown_status_lists_all_statuses(shop: Shop) -> None:
    for answer in (
        await shop.subscribe(shop.user, shop.gold, status="trial"),
        await shop.list_subscriptions("?status=trial"),
    ):
        assert refused(answer) == BAD
        assert all(name in answer.json["error"] for name in ("active", "cancelled", "expired", "past_due"))


async def test_user_and_plan_are_required(shop: Shop) -> None:
    for body in ({}, {"user_id": str(shop.user)}, {"plan_id": str(shop.gold)}):
        assert refused(await shop.api.post(PATH, body, headers=shop.headers)) == BAD


async def test_a_body_cannot_set_the_owner_of_a_subscription(shop: Shop, foreign: Shop, pool: Pool) -> None:
    extra = {
        "id": str(uuid4()),
        "org_id": str(foreign.tenant.org),
        "service_id": str(foreign.service),
        "provider_subscription_id": "sub_1",
        "created_at": "2020-01-01T00:00:00Z",
    }
    await shop.created(shop.user, shop.gold, **extra)
    rows = await run_sql(pool, "select org_id, service_id, provider_subscription_id from subscriptions")
    assert rows == [(shop.tenant.org, shop.service, None)]
    assert (await shop.update(shop.user, status="past_due", **extra)).status == 200
    assert await run_sql(pool, "select org_id, service_id, provider_subscription_id from subscriptions") == rows


async def test_only_a_user_of_the_service_can_be_subscribed(shop: Shop, other: Shop, foreign: Shop, ports: Ports) -> None:
    stranger = await add_account(ports, "stranger@example.com", None)
    for user in (uuid4(), stranger.id, other.user, foreign.user, shop.tenant.people["owner"].id):
        assert refused(await shop.subscribe(user, shop.gold)) == MISSING
    assert await shop.stored_rows() == []


async def test_only_a_plan_of_the_service_can_be_subscribed_to(shop: Shop, other: Shop, foreign: Shop, pool: Pool) -> None:
    assert refused(await shop.subscribe(shop.user, uuid4())) == MISSING
    for plan in (other.gold, foreign.gold):
        assert refused(await shop.subscribe(shop.user, plan)) == FORBIDDEN
    await run_sql(pool, "update plans set removed_at = now()")
    for plan in (shop.gold, other.gold, foreign.gold):
        assert refused(await shop.subscribe(shop.user, plan)) == MISSING
    assert await shop.stored_rows() == []


@pytest.mark.parametrize((("existing", "new")), [("active", "past_due"), ("past_due", "active")])
async def test_a_user_has_at_most_one_live_subscription_per_service(shop: Shop, foreign: Shop, existing: str, new: str) -> None:
    await shop.created(shop.user, shop.gold, status=existing)
    answer = await shop.subscribe(shop.user, shop.silver, status=new)
    assert refused(answer) == BAD
    assert "past due" in answer.json["error"]
    assert await shop.stored_rows() == [(existing, shop.gold)]
    await shop.created(shop.other_user, shop.gold, status=new)
    await add_service_user(foreign.tenant.ports, foreign.service, shop.user)
    await foreign.created(shop.user, foreign.gold, status=new)  # the limit is per service


@pytest.mark.parametrize("ended", ["cancelled", "expired"])
async def test_ended_subscriptions_do_not_prevent_a_live_one(shop: Shop, clock: FakeClock, ended: str) -> None:
    await shop.created(shop.user, shop.gold, status=ended)
    clock.advance(SECOND)
    live = await shop.created(shop.user, shop.silver)
    clock.advance(SECOND)
    await shop.created(shop.user, shop.gold, status=ended)
    assert (await shop.get(shop.user)).json == live
    assert await shop.stored_rows() == [(ended, shop.gold), ("active", shop.silver), (ended, shop.gold)]


async def test_an_overdue_subscription_is_marked_expired_and_does_not_prevent_a_new_one(shop: Shop, clock: FakeClock) -> None:
    first = await shop.created(shop.user, shop.gold, current_period_end=text(clock.now() + DAY))
    clock.advance(DAY - SECOND)
    assert refused(await shop.subscribe(shop.user, shop.silver)) == BAD
    clock.advance(SECOND)
    await shop.created(shop.user, shop.silver)
    assert await shop.stored_rows() == [("expired", shop.gold), ("active", shop.silver)]
    expired = await shop.tenant.entry("subscription.updated")
    assert (expired["target_type"], expired["target_id"]) == ("subscription", first["id"])
    assert (expired["actor_id"], expired["address"]) == (None, None), "the expiry has no actor"
    assert expired["details"] == {
        "service_id": str(shop.service),
        "user_id": str(shop.user),
        "status": {"old": "active", "new": "expired"},
    }


async def test_a_past_due_subscription_does_not_expire(shop: Shop, clock: FakeClock) -> None:
    subscription = await shop.created(shop.user, shop.gold, status="past_due", current_period_end=text(clock.now() - DAY))
    assert subscription["status"] == "past_due"
    assert refused(await shop.subscribe(shop.user, shop.silver)) == BAD


async def test_a_subscription_created_after_its_period_is_expired(shop: Shop, clock: FakeClock) -> None:
    subscription = await shop.created(shop.user, shop.gold, current_period_end=text(clock.now()))
    assert subscription["status"] == "expired"
    assert (await shop.get(shop.user)).json == subscription
    [created] = await shop.tenant.log()
    assert (created["action"], created["details"]["status"]) == ("subscription.created", "expired"), "it was never active"
    await shop.created(shop.user, shop.gold)
    assert await shop.tenant.actions() == {"subscription.created": 2}


# Reading


async def test_without_a_subscription_every_route_answers_404(shop: Shop, other: Shop, foreign: Shop) -> None:
    for elsewhere in (other, foreign):
        await elsewhere.created(elsewhere.user, elsewhere.gold)
    for user in (shop.user, other.user, foreign.user, uuid4(), "x", str(shop.user).upper(), shop.user.hex):
        assert refused(await shop.get(user)) == MISSING
        assert refused(await shop.update(user, status="active")) == MISSING
        assert refused(await shop.update(user, status="trial")) == MISSING  # before the body is checked
        assert refused(await shop.update(user)) == MISSING
        assert refused(await shop.end(user)) == MISSING
    for elsewhere in (other, foreign):
        assert await elsewhere.stored_rows() == [("active", elsewhere.gold)]


async def test_a_user_of_two_services_has_a_subscription_to_each(shop: Shop, foreign: Shop, ports: Ports) -> None:
    await add_service_user(ports, foreign.service, shop.user)
    here, there = await shop.created(shop.user, shop.gold), await foreign.created(shop.user, foreign.silver)
    assert (await shop.get(shop.user)).json == here
    assert (await foreign.get(shop.user)).json == there
    assert (await foreign.end(shop.user)).status == 204
    assert await shop.stored_rows() == [("active", shop.gold)]


async def test_the_live_subscription_is_returned_or_else_the_newest(shop: Shop, clock: FakeClock) -> None:
    subscriptions = []
    for status in ("past_due", "cancelled", "expired"):
        subscriptions.append(await shop.created(shop.user, shop.gold, status=status))
        clock.advance(SECOND)
    assert (await shop.get(shop.user)).json == subscriptions[0]
    assert (await shop.end(shop.user)).status == 204
    assert (await shop.get(shop.user)).json == subscriptions[2]


async def test_the_list_contains_only_subscriptions_of_the_service(shop: Shop, other: Shop, foreign: Shop, clock: FakeClock) -> None:
    subscriptions = [await shop.created(shop.user, shop.gold)]
    for elsewhere in (other, foreign):
        await elsewhere.created(elsewhere.user, elsewhere.gold)
    clock.advance(SECOND)
    subscriptions.append(await shop.created(shop.other_user, shop.silver, status="past_due"))
    assert (await shop.list_subscriptions()).json == {"subscriptions": subscriptions, "total": 2}


async def test_the_list_is_paged(shop: Shop, clock: FakeClock) -> None:
    subscriptions = []
    for _ in range(5):
        subscriptions.append(await shop.created(shop.user, shop.gold, status="cancelled"))
        clock.advance(SECOND)
    for query, expected in {
        "?limit=2": subscriptions[:2],
        "?limit=2&offset=2": subscriptions[2:4],
        "?limit=2&offset=4": subscriptions[4:],
        "?offset=5": [],
        "?limit=0": subscriptions[:1],
        "?limit=-3&offset=-1": subscriptions[:1],
        f"?limit={10**30}&offset=3": subscriptions[3:],
        f"?offset={10**30}": [],
        "?status=cancelled&limit=2&offset=3": subscriptions[3:],
        "?status=cancelled&offset=9": [],
    }.items():
        assert (await shop.list_subscriptions(query)).json == {"subscriptions": expected, "total": 5}, query
    for query in ("?limit=x", "?limit=", "?offset=1.5", "?status="):
        assert refused(await shop.list_subscriptions(query)) == BAD, query


async def test_the_list_shows_and_filters_by_the_current_status(shop: Shop, ports: Ports, pool: Pool, clock: FakeClock) -> None:
    users = [(await add_account(ports, f"{number}@example.com", None)).id for number in range(6)]
    for user in users:
        await add_service_user(ports, shop.service, user)
    soon, later = clock.now() + DAY, clock.now() + 2 * DAY
    states = [("active", soon, None), ("active", later, None), ("active", soon, "sub_1"), ("past_due", soon, None)]
    states += [("expired", later, None), ("cancelled", soon, None)]
    for user, (status, ends, provider) in zip(users, states, strict=True):
        await add_subscription(ports, pool, shop.service, user, shop.gold, status, ends=ends, provider=provider)
        clock.advance(SECOND)
    clock.advance(DAY)

    async def users_with(status: str) -> list[int]:
        answer = (await shop.list_subscriptions(f"?status={status}")).json
        assert answer["total"] == len(answer["subscriptions"])
        assert {one["status"] for one in answer["subscriptions"]} == {status}
        return [users.index(UUID(one["user_id"])) for one in answer["subscriptions"]]

    assert {status: await users_with(status) for status in ("active", "expired", "past_due", "cancelled")} == {
        "active": [1, 2],
        "expired": [0, 4],
        "past_due": [3],
        "cancelled": [5],
    }
    everything = (await shop.list_subscriptions()).json
    assert everything["total"] == 6
    assert [one["status"] for one in everything["subscriptions"]] == ["expired", "active", "active", "past_due", "expired", "cancelled"]


# Changing


async def test_status_period_and_plan_can_be_changed(shop: Shop) -> None:
    subscription = await shop.created(shop.user, shop.gold)
    answer = await shop.update(
        shop.user, status="past_due", current_period_end="2027-01-01T00:00:00.5+01:00", plan_id=str(shop.silver), id=str(uuid4())
    )
    assert answer.status == 200
    assert answer.json == subscription | {
        "plan_id": str(shop.silver),
        "plan_name": "Silver",
        "status": "past_due",
        "current_period_end": "2026-12-31T23:00:00.500000Z",
    }
    assert (await shop.get(shop.user)).json == answer.json
    assert await shop.stored_rows() == [("past_due", shop.silver)]


async def test_each_field_can_be_changed_alone(shop: Shop) -> None:
    subscription = await shop.created(shop.user, shop.gold)
    for update, shown in (
        ({"status": "cancelled"}, {"status": "cancelled"}),
        ({"current_period_end": "2026-05-01T10:00:00+02"}, {"current_period_end": "2026-05-01T08:00:00Z"}),
        ({"plan_id": str(shop.silver)}, {"plan_id": str(shop.silver), "plan_name": "Silver"}),
    ):
        subscription |= shown
        assert (await shop.update(shop.user, **update)).json == subscription
        assert (await shop.get(shop.user)).json == subscription


async def test_any_status_may_follow_any_other(shop: Shop) -> None:
    await shop.created(shop.user, shop.gold)
    for old, new in product(("active", "cancelled", "expired", "past_due"), repeat=2):
        for status in (old, new):
            answer = await shop.update(shop.user, status=status)
            assert (answer.status, answer.json["status"]) == (200, status)
    assert await shop.stored_rows() == [("past_due", shop.gold)]


async def test_an_empty_or_malformed_update_is_refused(shop: Shop) -> None:
    await shop.created(shop.user, shop.gold)
    assert refused(await shop.update(shop.user)) == BAD
    assert refused(await shop.update(shop.user, unknown=1)) == BAD
    for field_, values in {
        "status": [None, "trial", 1],
        "current_period_end": [None, "2026-05-01", 5],
        "plan_id": [None, "x", 5],
    }.items():
        for value in values:
            assert refused(await shop.update(shop.user, **{field_: value})) == BAD, (field_, value)


async def test_a_new_plan_must_be_an_existing_plan_of_the_service(shop: Shop, other: Shop, foreign: Shop, pool: Pool) -> None:
    await shop.created(shop.user, shop.gold)
    assert refused(await shop.update(shop.user, plan_id=str(uuid4()))) == MISSING
    for plan in (other.gold, foreign.gold):
        assert refused(await shop.update(shop.user, plan_id=str(plan))) == FORBIDDEN
    await run_sql(pool, "update plans set removed_at = now() where id = %s", shop.silver)
    assert refused(await shop.update(shop.user, plan_id=str(shop.silver))) == MISSING
    assert await shop.stored_rows() == [("active", shop.gold)]


async def test_a_subscription_to_a_deleted_plan_cannot_become_live(shop: Shop, pool: Pool) -> None:
    await shop.created(shop.user, shop.gold, status="cancelled")
    await run_sql(pool, "update plans set removed_at = now() where id = %s", shop.gold)
    for status in ("active", "past_due"):
        assert refused(await shop.update(shop.user, status=status)) == BAD
    assert (await shop.update(shop.user, status="expired", plan_id=str(shop.gold))).status == 200  # the current plan is allowed
    assert (await shop.get(shop.user)).json["plan_name"] == "Gold"
    assert (await shop.update(shop.user, status="active", plan_id=str(shop.silver))).status == 200
    assert await shop.stored_rows() == [("active", shop.silver)]


async def test_an_expired_subscription_stays_expired_until_its_status_is_set(shop: Shop, clock: FakeClock) -> None:
    await shop.created(shop.user, shop.gold, current_period_end=text(clock.now() + DAY))
    clock.advance(DAY)
    longer = text(clock.now() + MONTH)
    answer = await shop.update(shop.user, current_period_end=longer)
    assert (answer.json["status"], answer.json["current_period_end"]) == ("expired", longer)
    clock.advance(SECOND)
    assert (await shop.update(shop.user, status="active")).json["status"] == "active"
    assert await shop.stored_rows() == [("active", shop.gold)]
    changed = [entry["details"] for entry in await shop.tenant.log() if entry["action"] == "subscription.updated"]
    assert [details.get("status") for details in changed] == [
        {"old": "active", "new": "expired"},
        None,
        {"old": "expired", "new": "active"},
    ]


async def test_activating_a_subscription_after_its_period_leaves_it_expired(shop: Shop, clock: FakeClock) -> None:
    await shop.created(shop.user, shop.gold, status="cancelled", current_period_end=text(clock.now()))
    assert (await shop.update(shop.user, status="active")).json["status"] == "expired"
    changed = await shop.tenant.entry("subscription.updated")
    assert changed["details"]["status"] == {"old": "cancelled", "new": "expired"}
    for _ in range(2):
        assert (await shop.update(shop.user, status="active")).json["status"] == "expired"
    assert await shop.tenant.actions() == {"subscription.created": 1, "subscription.updated": 1}, "the status did not change again"


async def test_an_overdue_subscription_does_not_prevent_activating_a_later_one(shop: Shop, clock: FakeClock) -> None:
    await shop.created(shop.user, shop.gold, current_period_end=text(clock.now() + DAY))
    clock.advance(SECOND)
    await shop.created(shop.user, shop.silver, status="cancelled")
    clock.advance(DAY)
    assert (await shop.update(shop.user, status="active")).json["status"] == "active"
    assert await shop.stored_rows() == [("expired", shop.gold), ("active", shop.silver)]


# Ending


async def test_ending_a_subscription_without_a_provider_deletes_it(shop: Shop) -> None:
    await shop.created(shop.user, shop.gold)
    answer = await shop.end(shop.user)
    assert (answer.status, answer.text) == (204, "")
    assert await shop.stored_rows() == []
    assert refused(await shop.get(shop.user)) == MISSING
    assert refused(await shop.end(shop.user)) == MISSING
    await shop.created(shop.user, shop.silver)


async def test_ending_a_subscription_with_a_provider_cancels_it(shop: Shop, ports: Ports, pool: Pool, clock: FakeClock) -> None:
    await add_subscription(ports, pool, shop.service, shop.user, shop.gold, ends=clock.now() - DAY, provider="sub_1")
    assert (await shop.get(shop.user)).json["status"] == "active"
    assert (await shop.end(shop.user)).status == 204
    assert await shop.stored_rows() == [("cancelled", shop.gold)]
    assert (await shop.get(shop.user)).json["status"] == "cancelled"
    assert refused(await shop.end(shop.user)) == MISSING
    assert await shop.tenant.actions() == {"subscription.canceled": 1}


# Tokens


async def test_changes_appear_in_the_next_tokens_of_the_user(shop: Shop, ports: Ports) -> None:
    account = await add_account(ports)
    body = {"email": account.email, "password": PASSWORD, "org_slug": "acme", "service_slug": "shop"}
    pair = (await shop.api.post("/api/auth/login", body)).json

    async def claims() -> tuple[Any, ...]:
        nonlocal pair
        pair = (await shop.api.post("/api/auth/refresh", {"refresh_token": pair["refresh_token"]})).json
        payload = jwt.decode(pair["access_token"], options={"verify_signature": False})
        return payload.get("plan"), payload.get("subscription_status"), payload.get("features")

    assert await claims() == (None, None, None)
    await shop.created(account.id, shop.gold)
    assert await claims() == ("Gold", "active", ["exports"])
    await shop.update(account.id, status="past_due", plan_id=str(shop.silver))
    assert await claims() == ("Silver", "past_due", [])
    await shop.end(account.id)
    assert await claims() == (None, None, None)


# Records, keys and organizations


async def test_each_change_is_recorded_and_sent_to_webhooks_with_the_key_as_actor(shop: Shop, clock: FakeClock) -> None:
    subscription = await shop.created(shop.user, shop.gold)
    clock.advance(SECOND)
    await shop.update(shop.user, plan_id=str(shop.silver))
    clock.advance(SECOND)
    await shop.update(shop.user, plan_id=str(shop.silver), status="active")  # changes nothing
    await shop.end(shop.user)
    key = (await shop.caller()).key_id
    whose = {"service_id": str(shop.service), "user_id": str(shop.user)}
    gold = {"plan_id": str(shop.gold), "plan_name": "Gold"}
    silver = {"plan_id": str(shop.silver), "plan_name": "Silver"}
    rest = {"status": "active", "current_period_end": subscription["current_period_end"]}
    changes = {name: {"old": gold[name], "new": silver[name]} for name in gold}
    assert await shop.tenant.recorded() == [
        ("subscription.created", "subscription", subscription["id"], key, whose | gold | rest),
        ("subscription.updated", "subscription", subscription["id"], key, whose | changes),
        ("subscription.canceled", "subscription", subscription["id"], key, whose | silver | rest),
    ]
    assert [(name, target) for name, target, _ in await shop.tenant.webhook_events()] == [
        (f"subscription.{what}", subscription["id"]) for what in ("created", "updated", "canceled")
    ]
    assert shop.key not in str(await shop.tenant.log())


OWN = [Permission.READ_SUBSCRIPTIONS, Permission.WRITE_SUBSCRIPTIONS, Permission.DELETE_SUBSCRIPTIONS]


@pytest.mark.parametrize("permissions", [*[{one} for one in OWN], set(Permission) - {*OWN}], ids=[*OWN, "all others"])
async def test_each_route_requires_its_permission(shop: Shop, api: Api, pool: Pool, permissions: set[Permission]) -> None:
    await shop.created(shop.user, shop.gold)
    headers = {"X-Api-Key": await add_api_key(pool, shop.service, permissions)}
    body = {"user_id": str(shop.other_user), "plan_id": str(shop.gold)}
    answers = [
        (Permission.READ_SUBSCRIPTIONS, 200, await api.get(PATH, headers=headers)),
        (Permission.READ_SUBSCRIPTIONS, 200, await api.get(f"{PATH}/{shop.user}", headers=headers)),
        (Permission.WRITE_SUBSCRIPTIONS, 200, await api.post(PATH, body, headers=headers)),
        (Permission.WRITE_SUBSCRIPTIONS, 200, await api.patch(f"{PATH}/{shop.user}", {"status": "past_due"}, headers=headers)),
        (Permission.DELETE_SUBSCRIPTIONS, 204, await api.delete(f"{PATH}/{shop.user}", headers=headers)),
        # The permission is checked before everything else.
        (Permission.READ_SUBSCRIPTIONS, 404, await api.get(f"{PATH}/{uuid4()}", headers=headers)),
        (Permission.WRITE_SUBSCRIPTIONS, 400, await api.post(PATH, {}, headers=headers)),
        (Permission.DELETE_SUBSCRIPTIONS, 404, await api.delete(f"{PATH}/{uuid4()}", headers=headers)),
    ]
    for needed, success, answer in answers:
        assert answer.status == (success if needed in permissions else 403)


@pytest.mark.parametrize("status", ["pending", "suspended", "rejected"])
async def test_the_service_api_refuses_inactive_organizations(shop: Shop, status: str) -> None:
    await shop.created(shop.user, shop.gold)
    await shop.tenant.set_status(status)
    for answer in (
        await shop.list_subscriptions(),
        await shop.get(shop.user),
        await shop.subscribe(shop.other_user, shop.gold),
        await shop.update(shop.user, status="expired"),
        await shop.end(shop.user),
    ):
        assert refused(answer) == (403, "ORGANIZATION_NOT_ACTIVE")
    assert await shop.stored_rows() == [("active", shop.gold)]


async def test_the_key_is_checked_again_inside_the_transaction(shop: Shop, ports: Ports, pool: Pool) -> None:
    """The organization is suspended, or the key deleted, after the request was authenticated."""
    subscription, caller = await shop.created(shop.user, shop.gold), await shop.caller()

    async def attempts(refusal: type[Exception]) -> None:
        with pytest.raises(refusal):
            await subscriptions.create(ports, caller, shop.other_user, shop.gold)
        with pytest.raises(refusal):
            await subscriptions.update(ports, caller, shop.user, plan_id=shop.silver)
        with pytest.raises(refusal):
            await subscriptions.end(ports, caller, shop.user)

    assert caller.service.status is OrganizationStatus.ACTIVE
    await shop.tenant.set_status("suspended")
    await attempts(OrganizationNotActive)
    await shop.tenant.set_status("active")
    await run_sql(pool, "delete from api_keys")
    await attempts(ApiKeyInvalid)
    assert await run_sql(pool, "select id from subscriptions") == [(UUID(subscription["id"]),)]


async def test_a_subscription_for_a_concurrently_removed_user_is_refused(shop: Shop, pool: Pool) -> None:
    changes = [
        ("select 1 from organizations where id = %s for no key update", (shop.tenant.org,)),
        ("delete from service_users where user_id = %s", (shop.user,)),
    ]
    assert refused(await run_during(pool, changes, lambda: shop.subscribe(shop.user, shop.gold))) == MISSING


async def test_an_update_that_waits_for_the_sweeper_sees_its_change(shop: Shop, pool: Pool, clock: FakeClock) -> None:
    await shop.created(shop.user, shop.gold, current_period_end=text(clock.now() + DAY))
    swept = ("update subscriptions set status = 'expired' where user_id = %s", (shop.user,))
    answer = await run_during(pool, [swept], lambda: shop.update(shop.user, current_period_end=text(clock.now() + MONTH)))
    assert answer.json["status"] == "expired"


# Concurrency


@pytest.mark.slow
async def test_of_twenty_concurrent_requests_one_subscribes_the_user(shop: Shop, foreign: Shop) -> None:
    answers = await run_concurrently(20, lambda number: shop.subscribe(shop.user, shop.gold, status=["active", "past_due"][number % 2]))
    assert sorted(answer.status for answer in answers) == [200] + [400] * 19
    assert {answer.code for answer in answers if answer.status == 400} == {"BAD_REQUEST"}
    [(status, plan)] = await shop.stored_rows()
    assert (status, plan) == (next(answer.json["status"] for answer in answers if answer.status == 200), shop.gold)
    assert await shop.tenant.actions() == {"subscription.created": 1}


@pytest.mark.slow
async def test_of_twenty_concurrent_requests_one_replaces_an_overdue_subscription(shop: Shop, clock: FakeClock) -> None:
    await shop.created(shop.user, shop.gold, current_period_end=text(clock.now() + DAY))
    clock.advance(DAY)
    answers = await run_concurrently(20, lambda _: shop.subscribe(shop.user, shop.silver))
    assert sorted(answer.status for answer in answers) == [200] + [400] * 19
    assert await shop.stored_rows() == [("expired", shop.gold), ("active", shop.silver)]
    assert await shop.tenant.actions() == {"subscription.created": 2, "subscription.updated": 1}


@pytest.mark.slow
async def test_concurrent_changes_keep_the_counter_and_at_most_one_live_subscription(shop: Shop, ports: Ports, clock: FakeClock) -> None:
    def act(number: int) -> Any:
        user = (shop.user, shop.other_user)[number % 2]
        match number % 5:
            case 0 | 1:
                return shop.subscribe(user, shop.gold)
            case 2:
                return shop.end(user)
            case 3:
                return shop.update(user, status=("cancelled", "active")[number % 3 % 2])
        return shop.list_subscriptions()

    answers = await run_concurrently(40, act)
    assert {answer.status for answer in answers} <= {200, 204, 400, 404}
    stored_rows = await shop.stored_rows()
    assert sum(status == "active" for status, _ in stored_rows) <= 2
    await shop.tenant.actions()
