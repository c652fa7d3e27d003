"""Plans of services.

The rules are decisions 14, 15, 37, 160, 161, and security T-1, Z-5. The module is longer than 400
lines, because its tests share fixtures and helpers. The module is longer than 400 lines, because
its tests share fixtures and helpers.
"""

import json
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from core.applications import plans, plans_rules
from core.kernel.principals import Role
from tests.applications.api.services import GOLD, Workshop, body_of
from tests.fakes.outside import FakeClock
from tests.support.builders import EMAIL, PASSWORD, Answer, add_account, run_concurrently, run_during, run_sql
from tests.support.refusals import BAD, FORBIDDEN, MISSING, NOT_ACTIVE, refused
from tests.support.services import add_api_key, add_plan, add_service, add_service_user, add_subscription
from tests.support.tenants import Tenant, Tenants
from tests.tenancy.organizations import NOT_ACTIVE as STATUSES
from tests.tenancy.organizations import NOW, claims

FIELDS = ["id", "service_id", "name", "price_cents", "currency", "features", "billing_price_id", "created_at"]
FULL: dict[str, Any] = {"features": ["exports", "Support by phone", "exports"], "billing_price_id": "price_123"}
DAY = timedelta(days=1)


@pytest.fixture
async def shops(acme: Tenant) -> Workshop:
    """A service named shop, without plans."""
    await add_service(acme.pool, acme.org)
    return Workshop(acme)


async def service_id(shops: Workshop) -> UUID:
    [(service,)] = await run_sql(shops.tenant.pool, "select id from services where slug = 'shop' and org_id = %s", shops.tenant.org)
    return service  # type: ignore[no-any-return]


# Creation


async def test_a_new_plan_has_the_requested_fields(shops: Workshop) -> None:
    made = await shops.created_plan("admin", name=" Gold ", **FULL)
    service = str(await service_id(shops))
    assert made == {"id": made["id"], "service_id": service, **GOLD, **FULL, "created_at": NOW}
    assert list(made) == FIELDS
    assert await shops.list_plans() == {"plans": [made], "total": 1}


async def test_features_and_price_id_are_optional(shops: Workshop) -> None:
    nothing: list[dict[str, Any]] = [{}, {"features": None, "billing_price_id": None}, {"features": []}]
    for fields in nothing:
        made = await shops.created_plan(**fields)
        assert (made["features"], made["billing_price_id"]) == ([], None)


async def test_a_price_id_can_have_any_printable_ascii(shops: Workshop) -> None:
    plan = await shops.created_plan(billing_price_id="!" + "~" * 254)
    assert plan["billing_price_id"] == "!" + "~" * 254
    assert body_of(await shops.update_plan(plan["id"], billing_price_id="p"))["billing_price_id"] == "p"


@pytest.mark.parametrize(("currency", "stored"), [("usd", "usd"), ("EUR", "eur"), ("Jpy", "jpy")])
async def test_a_currency_is_stored_in_lower_case(shops: Workshop, currency: str, stored: str) -> None:
    plan = await shops.created_plan(currency=currency)
    assert plan["currency"] == stored
    assert body_of(await shops.update_plan(plan["id"], currency=currency.swapcase()))["currency"] == stored


async def test_prices_range_from_zero_to_the_maximum(shops: Workshop) -> None:
    for price in (0, 2**31 - 1):
        assert (await shops.created_plan(price_cents=price))["price_cents"] == price
    assert (await shops.created_plan(name="Free", price_cents=0))["name"] == "Free"


INVALID: list[dict[str, Any]] = [
    *({"name": name} for name in ("", " ", "a" * 101, "a\nb", "\u202ea", 5, ["a"])),
    *({"price_cents": price} for price in (-1, 2**31, 10**18, 9.99, 9.0, "9", True, None, [9])),
    *({"currency": code} for code in ("", "eu", "euro", "e r", "12a", "eur ", "€", "\u212a\u212a\u212a", 978, None, ["eur"])),
    *({"features": features} for features in ("exports", 5, {"a": 1}, [5], [None], [["a"]], ["a\x00"], ["a" * 2049], ["a"] * 101)),
    {"features": ["a" * 100] * 30},
    {"features": ["\u00e4" * 1500]},
    *(
        {"billing_price_id": price}
        for price in ("", " ", "\ufeff", " a", "a ", "a b", "a\n", "ä", "\u200b", "a\x7f", "a" * 256, "a\x00", 5, ["a"])
    ),
]


@pytest.mark.slow
async def test_invalid_plans_are_refused(shops: Workshop, acme: Tenant) -> None:
    plan = await add_plan(acme.pool, await service_id(shops))
    before = await shops.stored()
    for fields in [*INVALID, {"name": None}]:
        assert refused(await shops.create_plan(**fields)) == BAD, fields
        assert refused(await shops.update_plan(plan, **fields)) == BAD, fields
    for missing in ("name", "price_cents", "currency"):
        body = {name: value for name, value in GOLD.items() if name != missing}
        answer = await acme.api.post(f"{shops.path}/shop/plans", body, token=acme.token("owner"))
        assert refused(answer) == BAD
        assert missing in answer.json["error"]
    assert await shops.stored() == before
    assert await acme.log() == []


async def test_the_largest_plan_fits_into_the_longest_token(tenants: Tenants, clock: FakeClock) -> None:
    """Each token of a subscriber contains the features, and tokens that are too long are refused (security J-7)."""
    slug = "a" * 63
    tenant = await tenants.add(slug, cast={"owner": Role.OWNER})
    shops, email = Workshop(tenant), f"{'a' * 64}@{'.'.join(['b' * 59] * 3)}.example"
    service = UUID((await shops.created(slug=slug))["service"]["id"])
    features = ["a" * 1495, "a" * 1497]
    assert len(json.dumps(features)) == plans_rules.MAX_FEATURES_SIZE
    assert refused(await shops.create_plan("owner", slug, features=[*features, ""])) == BAD
    plan = await shops.created_plan("owner", slug, name="\U0001f600" * 100, features=features)
    account = await add_account(tenants.ports, email)
    await add_service_user(tenants.ports, service, account.id)
    await add_subscription(tenants.ports, tenants.pool, service, account.id, UUID(plan["id"]), "past_due", ends=clock.now() + DAY)
    body = {"email": email, "password": PASSWORD, "org_slug": slug, "service_slug": slug}
    token = (await tenants.api.post("/api/auth/login", body)).json["access_token"]
    assert (claims(token)["plan"], claims(token)["features"]) == (plan["name"], features)
    assert (await tenants.api.get("/api/user", token=token)).status == 200


async def test_a_creation_is_recorded(shops: Workshop, acme: Tenant) -> None:
    plan = await shops.created_plan("admin", **FULL)
    details = {"plan_name": "Gold", "service_id": plan["service_id"], "service_slug": "shop", "price_cents": 999, "currency": "eur", **FULL}
    assert await acme.recorded() == [("plan.created", "plan", plan["id"], acme.people["admin"].id, details)]
    assert await acme.webhook_events() == [("plan.created", plan["id"], details)]


async def test_names_need_not_be_unique(shops: Workshop) -> None:
    ids = {(await shops.created_plan())["id"] for _ in range(3)}
    assert len(ids) == 3


# The list


async def test_plans_are_listed_oldest_first(shops: Workshop, acme: Tenant, other_tenant: Tenant, clock: FakeClock) -> None:
    other = await add_service(acme.pool, acme.org, "other")
    foreign = await add_service(acme.pool, other_tenant.org)
    for service in (other, foreign):
        await add_plan(acme.pool, service, "Hidden")
    names = []
    for number in range(5):
        names.append((await shops.created_plan(name=f"n{number}"))["name"])
        clock.advance(timedelta(seconds=1))
    for reader in ("member", "admin", "owner"):
        listed = await shops.list_plans(reader)
        assert ([plan["name"] for plan in listed["plans"]], listed["total"]) == (names, 5)


async def test_a_service_without_plans_has_an_empty_list(shops: Workshop) -> None:
    assert await shops.list_plans() == {"plans": [], "total": 0}


async def test_a_long_list_comes_whole(shops: Workshop, acme: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "PLAN_BATCH", 2)
    service = await service_id(shops)
    for number in range(5):
        await add_plan(acme.pool, service, f"n{number}")
    listed = await shops.list_plans()
    assert ([plan["name"] for plan in listed["plans"]], listed["total"]) == ([f"n{number}" for number in range(5)], 5)


# Changes

CHANGES: dict[str, Any] = {
    "name": " Silver ",
    "price_cents": 0,
    "currency": "USD",
    "features": ["a", "b"],
    "billing_price_id": "price_456",
}


async def test_an_update_replaces_only_the_fields_in_the_request(shops: Workshop, acme: Tenant, clock: FakeClock) -> None:
    plan = await shops.created_plan(**FULL)
    clock.advance(timedelta(minutes=1))
    for name, value in CHANGES.items():
        changed = body_of(await shops.update_plan(plan["id"], "admin", **{name: value}))
        plan = {**plan, name: {"name": "Silver", "currency": "usd"}.get(name, value)}
        assert changed == plan == (await shops.list_plans())["plans"][0]
    events = [details["changes"].keys() for name, _, details in await acme.webhook_events() if name == "plan.updated"]
    assert events == [{name} for name in CHANGES]
    assert await run_sql(acme.pool, "select updated_at from plans") == [(clock.now(),)]


async def test_null_clears_features_and_price_id(shops: Workshop) -> None:
    plan = await shops.created_plan(**FULL)
    changed = body_of(await shops.update_plan(plan["id"], features=None, billing_price_id=None))
    assert changed == {**plan, "features": [], "billing_price_id": None}


async def test_an_update_is_recorded_with_the_old_values(shops: Workshop, acme: Tenant) -> None:
    plan = await shops.created_plan(**FULL)
    await shops.update_plan(plan["id"], name="Silver", price_cents=999, features=[])
    entry = await acme.entry("plan.updated")
    assert (entry["target_type"], entry["target_id"], entry["actor_id"]) == ("plan", plan["id"], acme.people["owner"].id)
    changes = {"name": {"old": "Gold", "new": "Silver"}, "features": {"old": FULL["features"], "new": []}}
    assert entry["details"] == {"plan_name": "Silver", "service_id": plan["service_id"], "service_slug": "shop", "changes": changes}
    assert (await acme.webhook_events())[-1] == ("plan.updated", plan["id"], entry["details"])


async def test_an_empty_update_is_refused_and_an_update_without_effect_leaves_no_trace(
    shops: Workshop, acme: Tenant, clock: FakeClock
) -> None:
    plan = await shops.created_plan(**FULL)
    clock.advance(timedelta(minutes=1))
    before = await shops.stored()
    nothing: list[dict[str, Any]] = [{}, {"unknown": 1}, {"service_id": "x"}, {"created_at": NOW}]
    for fields in nothing:
        assert refused(await shops.update_plan(plan["id"], **fields)) == BAD
    same: list[dict[str, Any]] = [{"name": "Gold "}, {"currency": "EUR"}, {"features": FULL["features"], "price_cents": 999}]
    for fields in same:
        assert body_of(await shops.update_plan(plan["id"], **fields)) == plan
    assert await shops.stored() == before
    assert await acme.actions() == {"plan.created": 1}


async def test_tokens_of_subscribers_follow_the_plan(shops: Workshop, acme: Tenant, clock: FakeClock) -> None:
    account = await add_account(acme.ports)
    service = await service_id(shops)
    plan = await add_plan(acme.pool, service)
    await add_service_user(acme.ports, service, account.id)
    await add_subscription(acme.ports, acme.pool, service, account.id, plan, ends=clock.now() + DAY)
    await shops.update_plan(plan, name="Platinum", features=["all"])
    answer = await acme.api.post("/api/auth/login", {"email": EMAIL, "password": PASSWORD, "org_slug": "acme", "service_slug": "shop"})
    found = claims(answer.json["access_token"])
    assert (found["plan"], found["features"], found["subscription_status"]) == ("Platinum", ["all"], "active")


# Deletion


async def test_a_deleted_plan_is_not_found(shops: Workshop, acme: Tenant) -> None:
    plan, other = await shops.created_plan(), await shops.created_plan(name="Silver")
    answer = await shops.delete_plan(plan["id"], "admin")
    assert (answer.status, answer.text) == (204, "")
    assert await shops.list_plans() == {"plans": [other], "total": 1}
    assert (await shops.list_services())["services"][0]["plan_count"] == 1
    for gone in (await shops.delete_plan(plan["id"]), await shops.update_plan(plan["id"], name="New"), await shops.update_plan(plan["id"])):
        assert refused(gone) == MISSING
    details = {"plan_name": "Gold", "service_id": plan["service_id"], "service_slug": "shop"}
    entry = await acme.entry("plan.deleted")
    assert (entry["target_id"], entry["actor_id"], entry["details"]) == (plan["id"], acme.people["admin"].id, details)


async def test_the_free_plan_can_be_deleted_and_then_tokens_have_no_plan(acme: Tenant) -> None:
    shops = Workshop(acme)
    free = (await shops.created())["default_plan"]
    assert (await shops.delete_plan(free["id"])).status == 204
    await add_account(acme.ports)
    answer = await acme.api.post("/api/auth/login", {"email": EMAIL, "password": PASSWORD, "org_slug": "acme", "service_slug": "shop"})
    assert "plan" not in claims(answer.json["access_token"])


@pytest.mark.parametrize(
    ("status", "ended"), [("active", False), ("past_due", False), ("cancelled", True), ("expired", True), ("active and over", True)]
)
async def test_a_plan_with_live_subscriptions_cannot_be_deleted(
    shops: Workshop, acme: Tenant, clock: FakeClock, status: str, ended: bool
) -> None:
    account = await add_account(acme.ports)
    service = await service_id(shops)
    plan, other = await add_plan(acme.pool, service), await add_plan(acme.pool, service, "Silver")
    await add_service_user(acme.ports, service, account.id)
    ends = clock.now() - DAY if "over" in status else clock.now() + DAY
    await add_subscription(acme.ports, acme.pool, service, account.id, plan, status.split()[0], ends=ends)
    assert (await shops.delete_plan(other)).status == 204
    answer = await shops.delete_plan(plan)
    if ended:
        assert answer.status == 204
    else:
        assert refused(answer) == BAD
        assert "subscriptions" in answer.json["error"]
    # The subscription still names its plan.
    key = await add_api_key(acme.pool, service)
    shown = await acme.api.get(f"/api/service/subscriptions/{account.id}", headers={"X-Api-Key": key})
    assert (shown.json["plan_id"], shown.json["plan_name"]) == (str(plan), "Gold")


# Access


async def test_plain_members_can_list_plans_but_not_change_them(shops: Workshop, acme: Tenant) -> None:
    plan = await add_plan(acme.pool, await service_id(shops))
    before = await shops.stored()
    for answer in (
        await shops.create_plan("member"),
        await shops.update_plan(plan, "member", name="New"),
        await shops.delete_plan(plan, "member"),
        await shops.delete_plan(uuid4(), "member"),
    ):
        assert refused(answer) == FORBIDDEN
    assert (await shops.list_plans("member"))["total"] == 1
    for status in STATUSES:
        await acme.set_status(status)
        for answer in (
            await shops.create_plan(),
            await shops.update_plan(plan, name="New"),
            await shops.delete_plan(plan),
            await acme.api.get(f"{shops.path}/shop/plans", token=acme.token("owner")),
        ):
            assert refused(answer) == NOT_ACTIVE
    assert await shops.stored() == before


async def test_a_plan_is_found_only_in_its_service(shops: Workshop, acme: Tenant, other_tenant: Tenant) -> None:
    own = await add_plan(acme.pool, await service_id(shops))
    other = await add_plan(acme.pool, await add_service(acme.pool, acme.org, "other"))
    foreign = await add_plan(acme.pool, await add_service(acme.pool, other_tenant.org))
    before = await shops.stored()
    for id_ in (other, foreign, uuid4(), str(own).upper(), own.hex, "x", "%27"):
        for fields in ({"name": "New"}, {"name": 5}, {}):
            assert refused(await shops.update_plan(id_, **fields)) == MISSING, id_
        assert refused(await shops.delete_plan(id_)) == MISSING
    raw = await acme.api.call("PATCH", f"{shops.path}/shop/plans/{foreign}", raw=b"{", token=acme.token("owner"))
    assert refused(raw) == MISSING
    assert await shops.stored() == before
    assert (await shops.update_plan(own, name="New")).status == 200


# Changes after the request was authenticated

EARLIER_CHANGES: dict[str, tuple[str, tuple[int, str]]] = {
    "demoted admin": ("update memberships set role = 'member' where user_id = %(admin)s", FORBIDDEN),
    "suspended": ("update organizations set status = 'suspended' where id = %(org)s", NOT_ACTIVE),
    "no such service": ("delete from services", MISSING),
    "no such plan": ("update plans set removed_at = now()", MISSING),
}


@pytest.mark.parametrize("call", ["create", "change", "delete"])
@pytest.mark.parametrize("name", EARLIER_CHANGES)
async def test_a_write_that_waited_sees_the_change_it_waited_for(shops: Workshop, acme: Tenant, name: str, call: str) -> None:
    statement, expected = EARLIER_CHANGES[name]
    plan = await add_plan(acme.pool, await service_id(shops))
    values = {"org": acme.org, "admin": acme.people["admin"].id}
    changes = [("select 1 from organizations where id = %s for no key update", (acme.org,)), (statement, values)]

    async def act() -> Answer:
        match call:
            case "create":
                return await shops.create_plan("admin")
            case "change":
                return await shops.update_plan(plan, "admin", name="New")
        return await shops.delete_plan(plan, "admin")

    answer = await run_during(acme.pool, changes, act)
    if (name, call) == ("no such plan", "create"):
        assert answer.status == 200
    else:
        assert refused(answer) == expected
        assert await acme.log() == []


async def test_a_deletion_that_waits_for_a_new_subscription_sees_it(shops: Workshop, acme: Tenant, clock: FakeClock) -> None:
    account = await add_account(acme.ports)
    service = await service_id(shops)
    plan = await add_plan(acme.pool, service)
    subscribe = """
        insert into subscriptions (id, org_id, service_id, user_id, plan_id, status, current_period_end, created_at, updated_at)
        values (gen_random_uuid(), %s, %s, %s, %s, 'active', %s, now(), now())"""
    changes: list[tuple[str, Any]] = [
        ("select 1 from organizations where id = %s for no key update", (acme.org,)),
        (subscribe, (acme.org, service, account.id, plan, clock.now() + DAY)),
    ]
    assert refused(await run_during(acme.pool, changes, lambda: shops.delete_plan(plan))) == BAD
    assert (await shops.list_plans())["total"] == 1


@pytest.mark.slow
async def test_of_concurrent_subscriptions_and_a_deletion_one_side_wins(shops: Workshop, acme: Tenant) -> None:
    service = await service_id(shops)
    key = await add_api_key(acme.pool, service)
    for _ in range(3):
        plan = await add_plan(acme.pool, service)
        people = [await add_account(acme.ports, f"{uuid4()}@example.com", None) for _ in range(19)]
        for person in people:
            await add_service_user(acme.ports, service, person.id)

        async def act(number: int, plan: UUID = plan, people: list[Any] = people) -> Answer:
            if number == 10:
                return await shops.delete_plan(plan)
            body = {"user_id": str(people[number - (number > 10)].id), "plan_id": str(plan)}
            return await acme.api.post("/api/service/subscriptions", body, headers={"X-Api-Key": key})

        answers = await run_concurrently(20, act)
        subscribed = [answer.status for answer in answers].count(200)
        deleted = [answer.status for answer in answers].count(204)
        assert sorted(answer.status for answer in answers) == ([204] + [404] * 19 if deleted else [200] * 19 + [400])
        assert await run_sql(acme.pool, "select count(*) from subscriptions where plan_id = %s", plan) == [(subscribed,)]
        assert await run_sql(acme.pool, "select removed_at is not null from plans where id = %s", plan) == [(bool(deleted),)]


@pytest.mark.slow
async def test_of_twenty_concurrent_deletions_one_succeeds(shops: Workshop, acme: Tenant) -> None:
    plan = await add_plan(acme.pool, await service_id(shops))
    answers = await run_concurrently(20, lambda _: shops.delete_plan(plan))
    assert sorted(answer.status for answer in answers) == [204] + [404] * 19
    assert await acme.actions() == {"plan.deleted": 1}
