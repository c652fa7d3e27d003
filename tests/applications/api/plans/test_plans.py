"""Service plans (decision 161)."""

import json
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from core.applications.model import plans as model_plans
from core.applications.model import plans as plans_model
from core.kernel.roles import OWNER
from tests.applications.api.plans.service import DAY, service_id
from tests.applications.api.services import GOLD, Workshop, body_of
from tests.fakes.outside import FakeClock
from tests.support.builders import EMAIL, PASSWORD, add_account, run_sql
from tests.support.refusals import BAD, MISSING, refused
from tests.support.services import add_api_key, add_plan, add_service, add_service_user, add_subscription
from tests.support.tenants import Tenant, Tenants
from tests.tenancy.organizations import NOW, claims

FIELDS = ["id", "service_id", "name", "price_cents", "currency", "features", "billing_price_id", "created_at"]
FULL: dict[str, Any] = {"features": ["exports", "Support by phone", "exports"], "billing_price_id": "price_123"}


async def test_a_new_plan_has_the_requested_fields(shops: Workshop) -> None:
    plan = await shops.add_plan("admin", name=" Gold ", **FULL)
    service = str(await service_id(shops))
    assert plan == {"id": plan["id"], "service_id": service, **GOLD, **FULL, "created_at": NOW}
    assert list(plan) == FIELDS
    assert await shops.list_plans() == {"plans": [plan], "total": 1}


async def test_features_and_price_id_are_optional(shops: Workshop) -> None:
    bodies: list[dict[str, Any]] = [{}, {"features": None, "billing_price_id": None}, {"features": []}]
    for fields in bodies:
        plan = await shops.add_plan(**fields)
        assert (plan["features"], plan["billing_price_id"]) == ([], None)


async def test_a_price_id_can_have_any_printable_ascii(shops: Workshop) -> None:
    plan = await shops.add_plan(billing_price_id="!" + "~" * 254)
    assert plan["billing_price_id"] == "!" + "~" * 254
    assert body_of(await shops.update_plan(plan["id"], billing_price_id="p"))["billing_price_id"] == "p"


@pytest.mark.parametrize(("currency", "canonical"), [("usd", "usd"), ("EUR", "eur"), ("Jpy", "jpy")])
async def test_a_currency_is_stored_in_lower_case(shops: Workshop, currency: str, canonical: str) -> None:
    plan = await shops.add_plan(currency=currency)
    assert plan["currency"] == canonical
    assert body_of(await shops.update_plan(plan["id"], currency=currency.swapcase()))["currency"] == canonical


async def test_prices_range_from_zero_to_the_maximum(shops: Workshop) -> None:
    for price in (0, 2**31 - 1):
        assert (await shops.add_plan(price_cents=price))["price_cents"] == price
    assert (await shops.add_plan(name="Free", price_cents=0))["name"] == "Free"


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
    before = await shops.stored_rows()
    for fields in [*INVALID, {"name": None}]:
        assert refused(await shops.create_plan(**fields)) == BAD, fields
        assert refused(await shops.update_plan(plan, **fields)) == BAD, fields
    for missing in ("name", "price_cents", "currency"):
        body = {name: value for name, value in GOLD.items() if name != missing}
        answer = await acme.api.post(f"{shops.path}/shop/plans", body, token=acme.token("owner"))
        assert refused(answer) == BAD
        assert missing in answer.json["error"]
    assert await shops.stored_rows() == before
    assert await acme.log() == []


async def test_the_largest_plan_fits_into_the_longest_token(tenants: Tenants, clock: FakeClock) -> None:
    """A subscriber's tokens contain the features, and tokens that are too long are refused (security J-7)."""
    slug = "a" * 63
    tenant = await tenants.add(slug, cast={"owner": OWNER})
    shops, email = Workshop(tenant), f"{'a' * 64}@{'.'.join(['b' * 59] * 3)}.example"
    service = UUID((await shops.add_service(slug=slug))["service"]["id"])
    features = ["a" * 1495, "a" * 1497]
    assert len(json.dumps(features)) == plans_model.MAX_FEATURES_SIZE
    assert refused(await shops.create_plan("owner", slug, features=[*features, ""])) == BAD
    plan = await shops.add_plan("owner", slug, name="\U0001f600" * 100, features=features)
    account = await add_account(tenants.ports, email)
    await add_service_user(tenants.ports, service, account.id)
    await add_subscription(tenants.ports, tenants.pool, service, account.id, UUID(plan["id"]), "past_due", ends=clock.now() + DAY)
    body = {"email": email, "password": PASSWORD, "org_slug": slug, "service_slug": slug}
    token = (await tenants.api.post("/api/auth/login", body)).json["access_token"]
    assert (claims(token)["plan"], claims(token)["features"]) == (plan["name"], features)
    assert (await tenants.api.get("/api/user", token=token)).status == 200


async def test_a_creation_is_recorded(shops: Workshop, acme: Tenant) -> None:
    plan = await shops.add_plan("admin", **FULL)
    details = {"plan_name": "Gold", "service_id": plan["service_id"], "service_slug": "shop", "price_cents": 999, "currency": "eur", **FULL}
    assert await acme.recorded() == [("plan.created", "plan", plan["id"], acme.people["admin"].id, details)]
    assert await acme.webhook_events() == [("plan.created", plan["id"], details)]


async def test_names_need_not_be_unique(shops: Workshop) -> None:
    ids = {(await shops.add_plan())["id"] for _ in range(3)}
    assert len(ids) == 3


# The list


async def test_plans_are_listed_oldest_first(shops: Workshop, acme: Tenant, other_tenant: Tenant, clock: FakeClock) -> None:
    other = await add_service(acme.pool, acme.org, "other")
    foreign = await add_service(acme.pool, other_tenant.org)
    for service in (other, foreign):
        await add_plan(acme.pool, service, "Hidden")
    names = []
    for number in range(5):
        names.append((await shops.add_plan(name=f"n{number}"))["name"])
        clock.advance(timedelta(seconds=1))
    for reader in ("member", "admin", "owner"):
        plans = await shops.list_plans(reader)
        assert ([plan["name"] for plan in plans["plans"]], plans["total"]) == (names, 5)


async def test_a_service_without_plans_has_an_empty_list(shops: Workshop) -> None:
    assert await shops.list_plans() == {"plans": [], "total": 0}


async def test_a_long_list_is_complete(shops: Workshop, acme: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_plans, "PLAN_BATCH", 2)
    service = await service_id(shops)
    for number in range(5):
        await add_plan(acme.pool, service, f"n{number}")
    listing = await shops.list_plans()
    assert ([plan["name"] for plan in listing["plans"]], listing["total"]) == ([f"n{number}" for number in range(5)], 5)


# Changes

CHANGES: dict[str, Any] = {
    "name": " Silver ",
    "price_cents": 0,
    "currency": "USD",
    "features": ["a", "b"],
    "billing_price_id": "price_456",
}


async def test_an_update_replaces_only_the_fields_in_the_request(shops: Workshop, acme: Tenant, clock: FakeClock) -> None:
    plan = await shops.add_plan(**FULL)
    clock.advance(timedelta(minutes=1))
    for name, value in CHANGES.items():
        updated_plan = body_of(await shops.update_plan(plan["id"], "admin", **{name: value}))
        plan = {**plan, name: {"name": "Silver", "currency": "usd"}.get(name, value)}
        assert updated_plan == plan == (await shops.list_plans())["plans"][0]
    events = [details["changes"].keys() for name, _, details in await acme.webhook_events() if name == "plan.updated"]
    assert events == [{name} for name in CHANGES]
    assert await run_sql(acme.pool, "select updated_at from plans") == [(clock.now(),)]


async def test_null_clears_features_and_price_id(shops: Workshop) -> None:
    plan = await shops.add_plan(**FULL)
    updated_plan = body_of(await shops.update_plan(plan["id"], features=None, billing_price_id=None))
    assert updated_plan == {**plan, "features": [], "billing_price_id": None}


async def test_an_update_is_recorded_with_the_old_values(shops: Workshop, acme: Tenant) -> None:
    plan = await shops.add_plan(**FULL)
    await shops.update_plan(plan["id"], name="Silver", price_cents=999, features=[])
    entry = await acme.entry("plan.updated")
    assert (entry["target_type"], entry["target_id"], entry["actor_id"]) == ("plan", plan["id"], acme.people["owner"].id)
    changes = {"name": {"old": "Gold", "new": "Silver"}, "features": {"old": FULL["features"], "new": []}}
    assert entry["details"] == {"plan_name": "Silver", "service_id": plan["service_id"], "service_slug": "shop", "changes": changes}
    assert (await acme.webhook_events())[-1] == ("plan.updated", plan["id"], entry["details"])


async def test_an_empty_update_is_refused_and_an_update_without_effect_leaves_no_trace(
    shops: Workshop, acme: Tenant, clock: FakeClock
) -> None:
    plan = await shops.add_plan(**FULL)
    clock.advance(timedelta(minutes=1))
    before = await shops.stored_rows()
    bodies: list[dict[str, Any]] = [{}, {"unknown": 1}, {"service_id": "x"}, {"created_at": NOW}]
    for fields in bodies:
        assert refused(await shops.update_plan(plan["id"], **fields)) == BAD
    unchanged_fields: list[dict[str, Any]] = [{"name": "Gold "}, {"currency": "EUR"}, {"features": FULL["features"], "price_cents": 999}]
    for fields in unchanged_fields:
        assert body_of(await shops.update_plan(plan["id"], **fields)) == plan
    assert await shops.stored_rows() == before
    assert await acme.actions() == {"plan.created": 1}


async def test_tokens_of_subscribers_follow_the_plan(shops: Workshop, acme: Tenant, clock: FakeClock) -> None:
    account = await add_account(acme.ports)
    service = await service_id(shops)
    plan = await add_plan(acme.pool, service)
    await add_service_user(acme.ports, service, account.id)
    await add_subscription(acme.ports, acme.pool, service, account.id, plan, ends=clock.now() + DAY)
    await shops.update_plan(plan, name="Platinum", features=["all"])
    answer = await acme.api.post("/api/auth/login", {"email": EMAIL, "password": PASSWORD, "org_slug": "acme", "service_slug": "shop"})
    plan_claims = claims(answer.json["access_token"])
    assert (plan_claims["plan"], plan_claims["features"], plan_claims["subscription_status"]) == ("Platinum", ["all"], "active")


# Deletion


async def test_a_deleted_plan_is_not_found(shops: Workshop, acme: Tenant) -> None:
    plan, other = await shops.add_plan(), await shops.add_plan(name="Silver")
    answer = await shops.delete_plan(plan["id"], "admin")
    assert (answer.status, answer.text) == (204, "")
    assert await shops.list_plans() == {"plans": [other], "total": 1}
    assert (await shops.list_services())["services"][0]["plan_count"] == 1
    for refusal in (
        await shops.delete_plan(plan["id"]),
        await shops.update_plan(plan["id"], name="New"),
        await shops.update_plan(plan["id"]),
    ):
        assert refused(refusal) == MISSING
    details = {"plan_name": "Gold", "service_id": plan["service_id"], "service_slug": "shop"}
    entry = await acme.entry("plan.deleted")
    assert (entry["target_id"], entry["actor_id"], entry["details"]) == (plan["id"], acme.people["admin"].id, details)


async def test_the_free_plan_can_be_deleted_and_then_tokens_have_no_plan(acme: Tenant) -> None:
    shops = Workshop(acme)
    free = (await shops.add_service())["default_plan"]
    assert (await shops.delete_plan(free["id"])).status == 204
    await add_account(acme.ports)
    answer = await acme.api.post("/api/auth/login", {"email": EMAIL, "password": PASSWORD, "org_slug": "acme", "service_slug": "shop"})
    assert "plan" not in claims(answer.json["access_token"])


@pytest.mark.parametrize(
    ("status", "has_ended"), [("active", False), ("past_due", False), ("cancelled", True), ("expired", True), ("active and over", True)]
)
async def test_a_plan_with_live_subscriptions_cannot_be_deleted(
    shops: Workshop, acme: Tenant, clock: FakeClock, status: str, has_ended: bool
) -> None:
    account = await add_account(acme.ports)
    service = await service_id(shops)
    plan, other = await add_plan(acme.pool, service), await add_plan(acme.pool, service, "Silver")
    await add_service_user(acme.ports, service, account.id)
    ends = clock.now() - DAY if "over" in status else clock.now() + DAY
    await add_subscription(acme.ports, acme.pool, service, account.id, plan, status.split()[0], ends=ends)
    assert (await shops.delete_plan(other)).status == 204
    answer = await shops.delete_plan(plan)
    if has_ended:
        assert answer.status == 204
    else:
        assert refused(answer) == BAD
        assert "subscriptions" in answer.json["error"]
    # The subscription still names its plan.
    key = await add_api_key(acme.pool, service)
    subscription = await acme.api.get(f"/api/service/subscriptions/{account.id}", headers={"X-Api-Key": key})
    assert (subscription.json["plan_id"], subscription.json["plan_name"]) == (str(plan), "Gold")
