"""The service interface's subscriptions over HTTP: every field, every status, every refusal, what is recorded, and twenty at once
(identity.md sections 2.4, 3 and 4.5; decisions, points 8, 9, 13, 15, 16, 20, 24 and 113 to 116; security.md K-2, K-3, K-5, T-1, T-2, Z-1
and Z-5)."""

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
from tests.support.builders import PASSWORD, Answer, Api, add_account, everyone, meanwhile, run_sql
from tests.support.refusals import BAD, FORBIDDEN, MISSING, refused
from tests.support.services import add_api_key, add_plan, add_service, add_service_user, add_subscription, service_context
from tests.support.tenants import Tenant

PATH = "/api/service/subscriptions"
MONTH = timedelta(days=30)
SECOND, DAY = timedelta(seconds=1), timedelta(days=1)


@pytest.fixture
def cast() -> Mapping[str, Role]:
    """Organizations need an owner only: nobody but keys calls here."""
    return {"owner": Role.OWNER}


@dataclass(slots=True)
class Shop:
    """A service with two plans and two users, and a key that may do everything there."""

    tenant: Tenant
    service: UUID
    gold: UUID
    silver: UUID
    key: str
    ada: UUID
    eve: UUID
    headers: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        self.headers = {"X-Api-Key": self.key}

    @property
    def api(self) -> Api:
        return self.tenant.api

    async def subscribe(self, user: object, plan: object, **fields: Any) -> Answer:
        return await self.api.post(PATH, {"user_id": str(user), "plan_id": str(plan), **fields}, headers=self.headers)

    async def subscribed(self, user: UUID, plan: UUID, **fields: Any) -> dict[str, Any]:
        answer = await self.subscribe(user, plan, **fields)
        assert answer.status == 200, answer.text
        made: dict[str, Any] = answer.json
        return made

    async def of(self, user: object) -> Answer:
        return await self.api.get(f"{PATH}/{user}", headers=self.headers)

    async def change(self, user: object, **fields: Any) -> Answer:
        return await self.api.patch(f"{PATH}/{user}", fields, headers=self.headers)

    async def end(self, user: object) -> Answer:
        return await self.api.delete(f"{PATH}/{user}", headers=self.headers)

    async def listed(self, query: str = "") -> Answer:
        return await self.api.get(f"{PATH}{query}", headers=self.headers)

    async def stored(self) -> list[tuple[Any, ...]]:
        """Status and plan of each, the oldest first; the counter agrees with them."""
        rows = await run_sql(
            self.tenant.pool, "select status, plan_id from subscriptions where service_id = %s order by created_at", self.service
        )
        assert await run_sql(self.tenant.pool, "select subscription_count from services where id = %s", self.service) == [(len(rows),)]
        return rows

    async def caller(self) -> ServiceKey:
        """The key, as whoever was let in with it."""
        [(key_id,)] = await run_sql(self.tenant.pool, "select id from api_keys where key_hash = %s", digest(self.key))
        return ServiceKey(key_id=key_id, permissions=frozenset(Permission), service=await service_context(self.tenant.pool, self.service))


async def add_shop(tenant: Tenant, slug: str = "shop") -> Shop:
    ports, pool = tenant.ports, tenant.pool
    service = await add_service(pool, tenant.org, slug)
    users = [await add_account(ports, f"{name}@{slug}.{tenant.slug}.example", None) for name in ("ada", "eve")]
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
async def foreign(twin: Tenant) -> Shop:
    """A service of another organization."""
    return await add_shop(twin)


def text(time: datetime) -> str:
    return time.astimezone(UTC).isoformat().replace("+00:00", "Z")


# Making them


async def test_a_subscription_is_active_and_ends_in_30_days_unless_said_otherwise(shop: Shop) -> None:
    made = await shop.subscribed(shop.ada, shop.gold)
    assert made == {
        "id": str(UUID(made["id"])),
        "user_id": str(shop.ada),
        "plan_id": str(shop.gold),
        "plan_name": "Gold",
        "status": "active",
        "current_period_end": "2026-04-13T15:09:26.535897Z",
    }
    assert (await shop.of(shop.ada)).json == made
    assert await shop.stored() == [("active", shop.gold)]


@pytest.mark.parametrize("status", ["active", "cancelled", "expired", "past_due"])
async def test_a_subscription_may_begin_with_any_status_of_the_list(shop: Shop, status: str) -> None:
    made = await shop.subscribed(shop.ada, shop.silver, status=status, current_period_end="2026-05-01T12:00:00+02:00")
    assert (made["status"], made["current_period_end"]) == (status, "2026-05-01T10:00:00Z")
    assert (await shop.of(shop.ada)).json == made
    assert await shop.stored() == [(status, shop.silver)]


async def test_what_is_left_out_may_be_null(shop: Shop) -> None:
    made = await shop.subscribed(shop.ada, shop.gold, status=None, current_period_end=None)
    assert (made["status"], made["current_period_end"]) == ("active", "2026-04-13T15:09:26.535897Z")


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("status", ["", "Active", "canceled", "trial", 1, True, [], {}]),
        ("current_period_end", ["", "soon", "2026-05-01", "2026-05-01T12:00:00", 1777626000, "2026-02-30T12:00:00Z", True]),
        ("user_id", ["", "x", "00000000-0000-4000-8000-00000000000G", str(uuid4()).upper(), uuid4().hex, 5, None]),
        ("plan_id", ["", "x", f"{{{uuid4()}}}", 5, None, []]),
    ],
)
async def test_what_is_malformed_is_refused(shop: Shop, name: str, values: list[Any]) -> None:
    good = {"user_id": str(shop.ada), "plan_id": str(shop.gold)}
    for value in values:
        answer = await shop.api.post(PATH, {**good, name: value}, headers=shop.headers)
        assert refused(answer) == BAD, value
        assert name in answer.json["error"]
    assert await shop.stored() == []


async def test_an_unknown_status_is_answered_with_those_that_there_are(shop: Shop) -> None:
    for answer in (
        await shop.subscribe(shop.ada, shop.gold, status="trial"),
        await shop.listed("?status=trial"),
    ):
        assert refused(answer) == BAD
        assert all(name in answer.json["error"] for name in ("active", "cancelled", "expired", "past_due"))


async def test_user_and_plan_are_needed(shop: Shop) -> None:
    for body in ({}, {"user_id": str(shop.ada)}, {"plan_id": str(shop.gold)}):
        assert refused(await shop.api.post(PATH, body, headers=shop.headers)) == BAD


async def test_a_body_cannot_say_whose_the_subscription_is(shop: Shop, foreign: Shop, pool: Pool) -> None:
    extra = {
        "id": str(uuid4()),
        "org_id": str(foreign.tenant.org),
        "service_id": str(foreign.service),
        "provider_subscription_id": "sub_1",
        "created_at": "2020-01-01T00:00:00Z",
    }
    await shop.subscribed(shop.ada, shop.gold, **extra)
    rows = await run_sql(pool, "select org_id, service_id, provider_subscription_id from subscriptions")
    assert rows == [(shop.tenant.org, shop.service, None)]
    assert (await shop.change(shop.ada, status="past_due", **extra)).status == 200
    assert await run_sql(pool, "select org_id, service_id, provider_subscription_id from subscriptions") == rows


async def test_only_a_user_of_the_service_can_be_subscribed(shop: Shop, other: Shop, foreign: Shop, ports: Ports) -> None:
    stranger = await add_account(ports, "stranger@example.com", None)
    for user in (uuid4(), stranger.id, other.ada, foreign.ada, shop.tenant.people["owner"].id):
        assert refused(await shop.subscribe(user, shop.gold)) == MISSING
    assert await shop.stored() == []


async def test_only_a_plan_of_the_service_can_be_subscribed_to(shop: Shop, other: Shop, foreign: Shop, pool: Pool) -> None:
    assert refused(await shop.subscribe(shop.ada, uuid4())) == MISSING
    for plan in (other.gold, foreign.gold):
        assert refused(await shop.subscribe(shop.ada, plan)) == FORBIDDEN
    await run_sql(pool, "update plans set removed_at = now()")
    for plan in (shop.gold, other.gold, foreign.gold):
        assert refused(await shop.subscribe(shop.ada, plan)) == MISSING
    assert await shop.stored() == []


@pytest.mark.parametrize(("first", "second"), [("active", "past_due"), ("past_due", "active")])
async def test_a_user_has_one_live_subscription(shop: Shop, foreign: Shop, first: str, second: str) -> None:
    await shop.subscribed(shop.ada, shop.gold, status=first)
    answer = await shop.subscribe(shop.ada, shop.silver, status=second)
    assert refused(answer) == BAD
    assert "past due" in answer.json["error"]
    assert await shop.stored() == [(first, shop.gold)]
    await shop.subscribed(shop.eve, shop.gold, status=second)
    await add_service_user(foreign.tenant.ports, foreign.service, shop.ada)
    await foreign.subscribed(shop.ada, foreign.gold, status=second)  # to each service


@pytest.mark.parametrize("ended", ["cancelled", "expired"])
async def test_one_that_has_ended_makes_room_and_can_be_added_beside(shop: Shop, clock: FakeClock, ended: str) -> None:
    await shop.subscribed(shop.ada, shop.gold, status=ended)
    clock.advance(SECOND)
    live = await shop.subscribed(shop.ada, shop.silver)
    clock.advance(SECOND)
    await shop.subscribed(shop.ada, shop.gold, status=ended)
    assert (await shop.of(shop.ada)).json == live
    assert await shop.stored() == [(ended, shop.gold), ("active", shop.silver), (ended, shop.gold)]


async def test_one_that_has_run_out_is_marked_and_makes_room(shop: Shop, clock: FakeClock) -> None:
    first = await shop.subscribed(shop.ada, shop.gold, current_period_end=text(clock.now() + DAY))
    clock.advance(DAY - SECOND)
    assert refused(await shop.subscribe(shop.ada, shop.silver)) == BAD
    clock.advance(SECOND)
    await shop.subscribed(shop.ada, shop.silver)
    assert await shop.stored() == [("expired", shop.gold), ("active", shop.silver)]
    expired = await shop.tenant.entry("subscription.updated")
    assert (expired["target_type"], expired["target_id"]) == ("subscription", first["id"])
    assert (expired["actor_id"], expired["address"]) == (None, None), "time did it, not the key"
    assert expired["details"] == {
        "service_id": str(shop.service),
        "user_id": str(shop.ada),
        "status": {"old": "active", "new": "expired"},
    }


async def test_one_that_is_past_due_does_not_run_out(shop: Shop, clock: FakeClock) -> None:
    made = await shop.subscribed(shop.ada, shop.gold, status="past_due", current_period_end=text(clock.now() - DAY))
    assert made["status"] == "past_due"
    assert refused(await shop.subscribe(shop.ada, shop.silver)) == BAD


async def test_one_that_begins_past_its_period_has_expired(shop: Shop, clock: FakeClock) -> None:
    made = await shop.subscribed(shop.ada, shop.gold, current_period_end=text(clock.now()))
    assert made["status"] == "expired"
    assert (await shop.of(shop.ada)).json == made
    [created] = await shop.tenant.log()
    assert (created["action"], created["details"]["status"]) == ("subscription.created", "expired"), "it never was anything else"
    await shop.subscribed(shop.ada, shop.gold)
    assert await shop.tenant.actions() == {"subscription.created": 2}


# Looking at them


async def test_without_a_subscription_there_is_none_to_see_to_change_or_to_end(shop: Shop, other: Shop, foreign: Shop) -> None:
    for elsewhere in (other, foreign):
        await elsewhere.subscribed(elsewhere.ada, elsewhere.gold)
    for user in (shop.ada, other.ada, foreign.ada, uuid4(), "x", str(shop.ada).upper(), shop.ada.hex):
        assert refused(await shop.of(user)) == MISSING
        assert refused(await shop.change(user, status="active")) == MISSING
        assert refused(await shop.change(user, status="trial")) == MISSING  # said before the body is judged
        assert refused(await shop.change(user)) == MISSING
        assert refused(await shop.end(user)) == MISSING
    for elsewhere in (other, foreign):
        assert await elsewhere.stored() == [("active", elsewhere.gold)]


async def test_a_user_of_two_services_has_a_subscription_to_each(shop: Shop, foreign: Shop, ports: Ports) -> None:
    await add_service_user(ports, foreign.service, shop.ada)
    here, there = await shop.subscribed(shop.ada, shop.gold), await foreign.subscribed(shop.ada, foreign.silver)
    assert (await shop.of(shop.ada)).json == here
    assert (await foreign.of(shop.ada)).json == there
    assert (await foreign.end(shop.ada)).status == 204
    assert await shop.stored() == [("active", shop.gold)]


async def test_the_newest_counts_and_a_live_one_before_it(shop: Shop, clock: FakeClock) -> None:
    made = []
    for status in ("past_due", "cancelled", "expired"):
        made.append(await shop.subscribed(shop.ada, shop.gold, status=status))
        clock.advance(SECOND)
    assert (await shop.of(shop.ada)).json == made[0]
    assert (await shop.end(shop.ada)).status == 204
    assert (await shop.of(shop.ada)).json == made[2]


async def test_the_list_has_all_of_the_service_and_none_of_another(shop: Shop, other: Shop, foreign: Shop, clock: FakeClock) -> None:
    made = [await shop.subscribed(shop.ada, shop.gold)]
    for elsewhere in (other, foreign):
        await elsewhere.subscribed(elsewhere.ada, elsewhere.gold)
    clock.advance(SECOND)
    made.append(await shop.subscribed(shop.eve, shop.silver, status="past_due"))
    assert (await shop.listed()).json == {"subscriptions": made, "total": 2}


async def test_the_list_is_paged(shop: Shop, clock: FakeClock) -> None:
    made = []
    for _ in range(5):
        made.append(await shop.subscribed(shop.ada, shop.gold, status="cancelled"))
        clock.advance(SECOND)
    for query, expected in {
        "?limit=2": made[:2],
        "?limit=2&offset=2": made[2:4],
        "?limit=2&offset=4": made[4:],
        "?offset=5": [],
        "?limit=0": made[:1],
        "?limit=-3&offset=-1": made[:1],
        f"?limit={10**30}&offset=3": made[3:],
        f"?offset={10**30}": [],
        "?status=cancelled&limit=2&offset=3": made[3:],
        "?status=cancelled&offset=9": [],
    }.items():
        assert (await shop.listed(query)).json == {"subscriptions": expected, "total": 5}, query
    for query in ("?limit=x", "?limit=", "?offset=1.5", "?status="):
        assert refused(await shop.listed(query)) == BAD, query


async def test_the_list_shows_and_filters_by_the_status_of_this_moment(shop: Shop, ports: Ports, pool: Pool, clock: FakeClock) -> None:
    users = [(await add_account(ports, f"{number}@example.com", None)).id for number in range(6)]
    for user in users:
        await add_service_user(ports, shop.service, user)
    soon, later = clock.now() + DAY, clock.now() + 2 * DAY
    fates = [("active", soon, None), ("active", later, None), ("active", soon, "sub_1"), ("past_due", soon, None)]
    fates += [("expired", later, None), ("cancelled", soon, None)]
    for user, (status, ends, provider) in zip(users, fates, strict=True):
        await add_subscription(ports, pool, shop.service, user, shop.gold, status, ends=ends, provider=provider)
        clock.advance(SECOND)
    clock.advance(DAY)

    async def found(status: str) -> list[int]:
        answer = (await shop.listed(f"?status={status}")).json
        assert answer["total"] == len(answer["subscriptions"])
        assert {one["status"] for one in answer["subscriptions"]} == {status}
        return [users.index(UUID(one["user_id"])) for one in answer["subscriptions"]]

    assert {status: await found(status) for status in ("active", "expired", "past_due", "cancelled")} == {
        "active": [1, 2],
        "expired": [0, 4],
        "past_due": [3],
        "cancelled": [5],
    }
    everything = (await shop.listed()).json
    assert everything["total"] == 6
    assert [one["status"] for one in everything["subscriptions"]] == ["expired", "active", "active", "past_due", "expired", "cancelled"]


# Changing them


async def test_status_period_and_plan_can_be_changed(shop: Shop) -> None:
    made = await shop.subscribed(shop.ada, shop.gold)
    answer = await shop.change(
        shop.ada, status="past_due", current_period_end="2027-01-01T00:00:00.5+01:00", plan_id=str(shop.silver), id=str(uuid4())
    )
    assert answer.status == 200
    assert answer.json == made | {
        "plan_id": str(shop.silver),
        "plan_name": "Silver",
        "status": "past_due",
        "current_period_end": "2026-12-31T23:00:00.500000Z",
    }
    assert (await shop.of(shop.ada)).json == answer.json
    assert await shop.stored() == [("past_due", shop.silver)]


async def test_one_thing_can_be_changed_alone(shop: Shop) -> None:
    made = await shop.subscribed(shop.ada, shop.gold)
    for change, shown in (
        ({"status": "cancelled"}, {"status": "cancelled"}),
        ({"current_period_end": "2026-05-01T10:00:00+02"}, {"current_period_end": "2026-05-01T08:00:00Z"}),
        ({"plan_id": str(shop.silver)}, {"plan_id": str(shop.silver), "plan_name": "Silver"}),
    ):
        made |= shown
        assert (await shop.change(shop.ada, **change)).json == made
        assert (await shop.of(shop.ada)).json == made


async def test_any_status_may_follow_any_other(shop: Shop) -> None:
    await shop.subscribed(shop.ada, shop.gold)
    for old, new in product(("active", "cancelled", "expired", "past_due"), repeat=2):
        for status in (old, new):
            answer = await shop.change(shop.ada, status=status)
            assert (answer.status, answer.json["status"]) == (200, status)
    assert await shop.stored() == [("past_due", shop.gold)]


async def test_a_change_says_what_to_change(shop: Shop) -> None:
    await shop.subscribed(shop.ada, shop.gold)
    assert refused(await shop.change(shop.ada)) == BAD
    assert refused(await shop.change(shop.ada, unknown=1)) == BAD
    for field_, values in {
        "status": [None, "trial", 1],
        "current_period_end": [None, "2026-05-01", 5],
        "plan_id": [None, "x", 5],
    }.items():
        for value in values:
            assert refused(await shop.change(shop.ada, **{field_: value})) == BAD, (field_, value)


async def test_a_change_to_another_plan_obeys_the_rules_of_plans(shop: Shop, other: Shop, foreign: Shop, pool: Pool) -> None:
    await shop.subscribed(shop.ada, shop.gold)
    assert refused(await shop.change(shop.ada, plan_id=str(uuid4()))) == MISSING
    for plan in (other.gold, foreign.gold):
        assert refused(await shop.change(shop.ada, plan_id=str(plan))) == FORBIDDEN
    await run_sql(pool, "update plans set removed_at = now() where id = %s", shop.silver)
    assert refused(await shop.change(shop.ada, plan_id=str(shop.silver))) == MISSING
    assert await shop.stored() == [("active", shop.gold)]


async def test_nobody_comes_to_be_subscribed_to_a_plan_that_was_removed(shop: Shop, pool: Pool) -> None:
    await shop.subscribed(shop.ada, shop.gold, status="cancelled")
    await run_sql(pool, "update plans set removed_at = now() where id = %s", shop.gold)
    for status in ("active", "past_due"):
        assert refused(await shop.change(shop.ada, status=status)) == BAD
    assert (await shop.change(shop.ada, status="expired", plan_id=str(shop.gold))).status == 200  # the one it has
    assert (await shop.of(shop.ada)).json["plan_name"] == "Gold"
    assert (await shop.change(shop.ada, status="active", plan_id=str(shop.silver))).status == 200
    assert await shop.stored() == [("active", shop.silver)]


async def test_what_has_run_out_stays_so_until_it_is_made_active(shop: Shop, clock: FakeClock) -> None:
    await shop.subscribed(shop.ada, shop.gold, current_period_end=text(clock.now() + DAY))
    clock.advance(DAY)
    longer = text(clock.now() + MONTH)
    answer = await shop.change(shop.ada, current_period_end=longer)
    assert (answer.json["status"], answer.json["current_period_end"]) == ("expired", longer)
    clock.advance(SECOND)
    assert (await shop.change(shop.ada, status="active")).json["status"] == "active"
    assert await shop.stored() == [("active", shop.gold)]
    changed = [entry["details"] for entry in await shop.tenant.log() if entry["action"] == "subscription.updated"]
    assert [details.get("status") for details in changed] == [
        {"old": "active", "new": "expired"},
        None,
        {"old": "expired", "new": "active"},
    ]


async def test_what_is_made_active_past_its_period_has_expired(shop: Shop, clock: FakeClock) -> None:
    await shop.subscribed(shop.ada, shop.gold, status="cancelled", current_period_end=text(clock.now()))
    assert (await shop.change(shop.ada, status="active")).json["status"] == "expired"
    changed = await shop.tenant.entry("subscription.updated")
    assert changed["details"]["status"] == {"old": "cancelled", "new": "expired"}
    for _ in range(2):
        assert (await shop.change(shop.ada, status="active")).json["status"] == "expired"
    assert await shop.tenant.actions() == {"subscription.created": 1, "subscription.updated": 1}, "nothing has changed again"


async def test_one_that_ran_out_is_in_nobodys_way_when_a_later_one_is_made_active(shop: Shop, clock: FakeClock) -> None:
    await shop.subscribed(shop.ada, shop.gold, current_period_end=text(clock.now() + DAY))
    clock.advance(SECOND)
    await shop.subscribed(shop.ada, shop.silver, status="cancelled")
    clock.advance(DAY)
    assert (await shop.change(shop.ada, status="active")).json["status"] == "active"
    assert await shop.stored() == [("expired", shop.gold), ("active", shop.silver)]


# Ending them


async def test_what_a_key_made_goes_when_it_ends(shop: Shop) -> None:
    await shop.subscribed(shop.ada, shop.gold)
    answer = await shop.end(shop.ada)
    assert (answer.status, answer.text) == (204, "")
    assert await shop.stored() == []
    assert refused(await shop.of(shop.ada)) == MISSING
    assert refused(await shop.end(shop.ada)) == MISSING
    await shop.subscribed(shop.ada, shop.silver)


async def test_what_a_payment_provider_looks_after_is_cancelled(shop: Shop, ports: Ports, pool: Pool, clock: FakeClock) -> None:
    await add_subscription(ports, pool, shop.service, shop.ada, shop.gold, ends=clock.now() - DAY, provider="sub_1")
    assert (await shop.of(shop.ada)).json["status"] == "active"
    assert (await shop.end(shop.ada)).status == 204
    assert await shop.stored() == [("cancelled", shop.gold)]
    assert (await shop.of(shop.ada)).json["status"] == "cancelled"
    assert refused(await shop.end(shop.ada)) == MISSING
    assert await shop.tenant.actions() == {"subscription.canceled": 1}


# What applications are told of them


async def test_what_becomes_of_a_subscription_is_in_the_next_tokens_of_the_user(shop: Shop, ports: Ports) -> None:
    account = await add_account(ports)
    body = {"email": account.email, "password": PASSWORD, "org_slug": "acme", "service_slug": "shop"}
    pair = (await shop.api.post("/api/auth/login", body)).json

    async def claims() -> tuple[Any, ...]:
        nonlocal pair
        pair = (await shop.api.post("/api/auth/refresh", {"refresh_token": pair["refresh_token"]})).json
        said = jwt.decode(pair["access_token"], options={"verify_signature": False})
        return said.get("plan"), said.get("subscription_status"), said.get("features")

    assert await claims() == (None, None, None)
    await shop.subscribed(account.id, shop.gold)
    assert await claims() == ("Gold", "active", ["exports"])
    await shop.change(account.id, status="past_due", plan_id=str(shop.silver))
    assert await claims() == ("Silver", "past_due", [])
    await shop.end(account.id)
    assert await claims() == (None, None, None)


# Records, keys and organizations


async def test_each_change_is_in_the_log_and_told_to_webhooks_in_the_name_of_the_key(shop: Shop, clock: FakeClock) -> None:
    made = await shop.subscribed(shop.ada, shop.gold)
    clock.advance(SECOND)
    await shop.change(shop.ada, plan_id=str(shop.silver))
    clock.advance(SECOND)
    await shop.change(shop.ada, plan_id=str(shop.silver), status="active")  # nothing different
    await shop.end(shop.ada)
    key = (await shop.caller()).key_id
    whose = {"service_id": str(shop.service), "user_id": str(shop.ada)}
    gold = {"plan_id": str(shop.gold), "plan_name": "Gold"}
    silver = {"plan_id": str(shop.silver), "plan_name": "Silver"}
    rest = {"status": "active", "current_period_end": made["current_period_end"]}
    changes = {name: {"old": gold[name], "new": silver[name]} for name in gold}
    assert await shop.tenant.recorded() == [
        ("subscription.created", "subscription", made["id"], key, whose | gold | rest),
        ("subscription.updated", "subscription", made["id"], key, whose | changes),
        ("subscription.canceled", "subscription", made["id"], key, whose | silver | rest),
    ]
    assert [(name, target) for name, target, _ in await shop.tenant.told()] == [
        (f"subscription.{what}", made["id"]) for what in ("created", "updated", "canceled")
    ]
    assert shop.key not in str(await shop.tenant.log())


OWN = [Permission.READ_SUBSCRIPTIONS, Permission.WRITE_SUBSCRIPTIONS, Permission.DELETE_SUBSCRIPTIONS]


@pytest.mark.parametrize("permissions", [*[{one} for one in OWN], set(Permission) - {*OWN}], ids=[*OWN, "all others"])
async def test_only_the_permission_of_the_route_opens_it(shop: Shop, api: Api, pool: Pool, permissions: set[Permission]) -> None:
    await shop.subscribed(shop.ada, shop.gold)
    headers = {"X-Api-Key": await add_api_key(pool, shop.service, permissions)}
    body = {"user_id": str(shop.eve), "plan_id": str(shop.gold)}
    answers = [
        (Permission.READ_SUBSCRIPTIONS, 200, await api.get(PATH, headers=headers)),
        (Permission.READ_SUBSCRIPTIONS, 200, await api.get(f"{PATH}/{shop.ada}", headers=headers)),
        (Permission.WRITE_SUBSCRIPTIONS, 200, await api.post(PATH, body, headers=headers)),
        (Permission.WRITE_SUBSCRIPTIONS, 200, await api.patch(f"{PATH}/{shop.ada}", {"status": "past_due"}, headers=headers)),
        (Permission.DELETE_SUBSCRIPTIONS, 204, await api.delete(f"{PATH}/{shop.ada}", headers=headers)),
        # Also where there would be another refusal.
        (Permission.READ_SUBSCRIPTIONS, 404, await api.get(f"{PATH}/{uuid4()}", headers=headers)),
        (Permission.WRITE_SUBSCRIPTIONS, 400, await api.post(PATH, {}, headers=headers)),
        (Permission.DELETE_SUBSCRIPTIONS, 404, await api.delete(f"{PATH}/{uuid4()}", headers=headers)),
    ]
    for needed, success, answer in answers:
        assert answer.status == (success if needed in permissions else 403)


@pytest.mark.parametrize("status", ["pending", "suspended", "rejected"])
async def test_an_organization_that_is_not_active_has_no_service_interface(shop: Shop, status: str) -> None:
    await shop.subscribed(shop.ada, shop.gold)
    await shop.tenant.become(status)
    for answer in (
        await shop.listed(),
        await shop.of(shop.ada),
        await shop.subscribe(shop.eve, shop.gold),
        await shop.change(shop.ada, status="expired"),
        await shop.end(shop.ada),
    ):
        assert refused(answer) == (403, "ORGANIZATION_NOT_ACTIVE")
    assert await shop.stored() == [("active", shop.gold)]


async def test_the_key_is_judged_again_where_it_writes(shop: Shop, ports: Ports, pool: Pool) -> None:
    """Let in at the door, and then the organization is suspended, or the key deleted, before the change begins."""
    made, caller = await shop.subscribed(shop.ada, shop.gold), await shop.caller()

    async def attempts(refusal: type[Exception]) -> None:
        with pytest.raises(refusal):
            await subscriptions.create(ports, caller, shop.eve, shop.gold)
        with pytest.raises(refusal):
            await subscriptions.update(ports, caller, shop.ada, plan_id=shop.silver)
        with pytest.raises(refusal):
            await subscriptions.end(ports, caller, shop.ada)

    assert caller.service.status is OrganizationStatus.ACTIVE
    await shop.tenant.become("suspended")
    await attempts(OrganizationNotActive)
    await shop.tenant.become("active")
    await run_sql(pool, "delete from api_keys")
    await attempts(ApiKeyInvalid)
    assert await run_sql(pool, "select id from subscriptions") == [(UUID(made["id"]),)]


async def test_a_subscription_is_refused_for_a_user_who_is_removed_meanwhile(shop: Shop, pool: Pool) -> None:
    changes = [
        ("select 1 from organizations where id = %s for no key update", (shop.tenant.org,)),
        ("delete from service_users where user_id = %s", (shop.ada,)),
    ]
    assert refused(await meanwhile(pool, changes, lambda: shop.subscribe(shop.ada, shop.gold))) == MISSING


async def test_a_change_that_waited_for_the_sweeper_finds_what_it_did(shop: Shop, pool: Pool, clock: FakeClock) -> None:
    await shop.subscribed(shop.ada, shop.gold, current_period_end=text(clock.now() + DAY))
    swept = ("update subscriptions set status = 'expired' where user_id = %s", (shop.ada,))
    answer = await meanwhile(pool, [swept], lambda: shop.change(shop.ada, current_period_end=text(clock.now() + MONTH)))
    assert answer.json["status"] == "expired"


# All at once


@pytest.mark.slow
async def test_of_twenty_at_once_one_subscribes_the_user(shop: Shop, foreign: Shop) -> None:
    answers = await everyone(20, lambda number: shop.subscribe(shop.ada, shop.gold, status=["active", "past_due"][number % 2]))
    assert sorted(answer.status for answer in answers) == [200] + [400] * 19
    assert {answer.code for answer in answers if answer.status == 400} == {"BAD_REQUEST"}
    [(status, plan)] = await shop.stored()
    assert (status, plan) == (next(answer.json["status"] for answer in answers if answer.status == 200), shop.gold)
    assert await shop.tenant.actions() == {"subscription.created": 1}


@pytest.mark.slow
async def test_of_twenty_at_once_one_takes_the_room_of_what_has_run_out(shop: Shop, clock: FakeClock) -> None:
    await shop.subscribed(shop.ada, shop.gold, current_period_end=text(clock.now() + DAY))
    clock.advance(DAY)
    answers = await everyone(20, lambda _: shop.subscribe(shop.ada, shop.silver))
    assert sorted(answer.status for answer in answers) == [200] + [400] * 19
    assert await shop.stored() == [("expired", shop.gold), ("active", shop.silver)]
    assert await shop.tenant.actions() == {"subscription.created": 2, "subscription.updated": 1}


@pytest.mark.slow
async def test_all_at_once_leaves_a_counter_that_is_right_and_one_live_subscription_at_most(
    shop: Shop, ports: Ports, clock: FakeClock
) -> None:
    def act(number: int) -> Any:
        user = (shop.ada, shop.eve)[number % 2]
        match number % 5:
            case 0 | 1:
                return shop.subscribe(user, shop.gold)
            case 2:
                return shop.end(user)
            case 3:
                return shop.change(user, status=("cancelled", "active")[number % 3 % 2])
        return shop.listed()

    answers = await everyone(40, act)
    assert {answer.status for answer in answers} <= {200, 204, 400, 404}
    stored = await shop.stored()
    assert sum(status == "active" for status, _ in stored) <= 2
    await shop.tenant.actions()
