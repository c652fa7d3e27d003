"""Services, created by members, and their limits.

The rules are decisions 92, 102, 154, 155, 156, and security O-2,
T-4 and Z-2.
"""

from typing import Any
from uuid import UUID

import pytest

from core.kernel.values import digest
from tests.applications.api.service_fields import ARRAYS, FIELDS, NAMES, PAGES, SCOPES, URIS
from tests.applications.api.services import FULL, URI, Workshop
from tests.support.builders import impersonate, run_concurrently, run_during, run_sql
from tests.support.platform import Platform
from tests.support.refusals import BAD, FORBIDDEN, NOT_ACTIVE, refused
from tests.support.services import add_service
from tests.support.tenants import Tenant
from tests.tenancy.organizations import NOT_ACTIVE as STATUSES
from tests.tenancy.organizations import NOW

CURSOR = "cursor://anysphere.cursor-mcp/oauth/callback"

# Creation


async def test_a_new_service_has_the_requested_fields_and_a_free_plan(shops: Workshop, acme: Tenant) -> None:
    body = await shops.add_service(
        name="  The Shop ",
        codehost_scopes=["read:user", "user:email"],
        websuite_scopes=[],
        redirect_uris=[URI, "http://localhost:3000/callback"],
        device_activation_uri="https://shop.example.com/device",
    )
    service, plan = body["service"], body["default_plan"]
    assert body == {
        "service": {
            "id": service["id"],
            "org_id": str(acme.org),
            "slug": "shop",
            "name": "The Shop",
            "service_type": "web",
            "client_id": service["client_id"],
            "codehost_scopes": ["read:user", "user:email"],
            "websuite_scopes": [],
            "officesuite_scopes": None,
            "redirect_uris": [URI, "http://localhost:3000/callback"],
            "device_activation_uri": "https://shop.example.com/device",
            "created_at": NOW,
            "logo_url": None,
        },
        "default_plan": {
            "id": plan["id"],
            "service_id": service["id"],
            "name": "Free",
            "price_cents": 0,
            "currency": "usd",
            "features": [],
            "billing_price_id": None,
            "created_at": NOW,
        },
        "usage": {"current_services": 1, "max_services": 3, "tier": "Free"},
        "client_secret": body["client_secret"],
    }
    assert list(service) == FIELDS
    assert len({UUID(service["id"]), UUID(service["client_id"]), UUID(plan["id"]), acme.org}) == 4
    assert body["client_secret"] is not None
    assert (await shops.get()).json == service
    assert (await shops.list_plans()) == {"plans": [plan], "total": 1}


async def test_optional_fields_are_empty_by_default(shops: Workshop) -> None:
    bare = (await shops.add_service())["service"]
    nulls = (await shops.add_service(slug="other", codehost_scopes=None, redirect_uris=None, device_activation_uri=None))["service"]
    for service in (bare, nulls):
        assert [service[name] for name in FIELDS[6:11]] == [None, None, None, [], None]


@pytest.mark.parametrize(("kind", "confidential"), [("web", True), ("api", True), ("spa", False), ("mobile", False), ("desktop", False)])
async def test_confidential_clients_get_a_secret_that_is_stored_as_a_hash(
    shops: Workshop, acme: Tenant, kind: str, confidential: bool
) -> None:
    secret = (await shops.add_service(service_type=kind))["client_secret"]
    [(secret_hash,)] = await run_sql(acme.pool, "select client_secret_hash from services")
    if not confidential:
        assert secret is secret_hash is None
        return
    assert secret_hash == digest(secret)
    assert len(secret) == 43
    for text in ((await shops.get()).text, str(await shops.list_services()), str(await acme.log()), str(await acme.webhook_events())):
        assert secret not in text
        assert "secret" not in text


async def test_a_creation_is_recorded_with_the_free_plan(shops: Workshop, acme: Tenant) -> None:
    body = await shops.add_service("admin")
    service, plan = body["service"], body["default_plan"]
    details = {"service_slug": "shop", "service_name": "Shop", "service_type": "web", "client_id": service["client_id"]}
    planned = {
        "plan_name": "Free",
        "service_id": service["id"],
        "service_slug": "shop",
        "price_cents": 0,
        "currency": "usd",
        "features": [],
        "billing_price_id": None,
    }
    admin = acme.people["admin"].id
    assert await acme.recorded() == [
        ("service.created", "service", service["id"], admin, details),
        ("plan.created", "plan", plan["id"], admin, planned),
    ]
    assert await acme.webhook_events() == [("service.created", service["id"], details), ("plan.created", plan["id"], planned)]


async def test_plain_members_and_inactive_organizations_cannot_create_services(shops: Workshop, acme: Tenant) -> None:
    assert refused(await shops.create("member")) == FORBIDDEN
    assert refused(await shops.create("member", slug="")) == FORBIDDEN
    for status in STATUSES:
        await acme.set_status(status)
        assert refused(await shops.create()) == NOT_ACTIVE
        assert refused(await shops.create("admin", slug="")) == NOT_ACTIVE
    assert await shops.stored_rows() == []
    assert await acme.log() == []


async def test_an_impersonator_cannot_create_a_service(shops: Workshop, acme: Tenant, platform: Platform) -> None:
    token = await impersonate(acme.ports, platform.account, acme.people["owner"], acme.org)
    answer = await acme.api.post(shops.path, {"slug": "shop", "name": "Shop", "service_type": "web"}, token=token)
    assert refused(answer) == FORBIDDEN
    assert await run_sql(acme.pool, "select * from services") == []


SLUGS: list[Any] = ["", "-", "a-", "-a", "a--b", "A", "a_b", "a b", " a", "ä", "a" * 64, "a\x00", "api", "users", None, 5, ["a"]]
LOGOUT_URLS: list[Any] = [
    "",
    "shop.example.com",
    "ftp://shop.example.com/",
    "https://a@shop.example.com/",
    "https://shop.example.com/#x",
    5,
    [],
]
KINDS: list[Any] = ["", "WEB", "Web", "browser", "web ", None, 0, True, ["web"], {}]
INVALID: list[dict[str, Any]] = [
    *({"slug": slug} for slug in SLUGS),
    *({"name": name} for name in NAMES),
    *({"service_type": kind} for kind in KINDS),
    *({name: value} for name in FIELDS[6:10] for value in ARRAYS),
    *({name: scopes} for name in FIELDS[6:9] for scopes in SCOPES),
    *({"redirect_uris": uris} for uris in URIS),
    *({"device_activation_uri": page} for page in PAGES),
    *({"service_type": kind, "redirect_uris": [uri]} for uri in ("com.example.app:/callback", CURSOR) for kind in ("web", "api", "spa")),
    {"service_type": "spa", "redirect_uris": ["http://shop.example.com/"]},
    *({"post_logout_redirect_uris": uris} for uris in URIS),
    *({"service_type": kind, "post_logout_redirect_uris": ["com.example.app:/bye"]} for kind in ("web", "api", "spa")),
    *({"backchannel_logout_uri": url} for url in LOGOUT_URLS),
    *({"service_type": kind, "backchannel_logout_uri": "http://shop.example.com/"} for kind in ("spa", "mobile", "desktop")),
]


@pytest.mark.slow
async def test_invalid_services_are_refused(shops: Workshop, acme: Tenant) -> None:
    for body in INVALID:
        assert refused(await shops.create(**body)) == BAD, body
    for missing in ("slug", "name", "service_type"):
        body = {name: value for name, value in {"slug": "shop", "name": "Shop", "service_type": "web"}.items() if name != missing}
        answer = await acme.api.post(shops.path, body, token=acme.token("owner"))
        assert refused(answer) == BAD
        assert missing in answer.json["error"]
    assert await shops.stored_rows() == []
    assert await acme.log() == []


async def test_the_refusal_of_an_unknown_type_lists_all_types(shops: Workshop) -> None:
    for answer in (
        await shops.create(service_type="browser"),
        await shops.tenant.api.get(f"{shops.path}?service_type=x", token=shops.tenant.token("member")),
    ):
        assert refused(answer) == BAD
        assert all(kind in answer.json["error"] for kind in ("web", "spa", "mobile", "desktop", "api"))


@pytest.mark.parametrize("kind", ["mobile", "desktop"])
async def test_native_applications_can_use_private_schemes(shops: Workshop, kind: str) -> None:
    uris = ["com.example.app:/callback", CURSOR, "http://127.0.0.1/callback", "http://[::1]:8000/callback", URI]
    assert (await shops.add_service(service_type=kind, redirect_uris=uris))["service"]["redirect_uris"] == uris
    for uri in ("javascript:alert(1)", "intent://x", "ms-settings:x", "tel:1"):
        assert refused(await shops.create(slug="other", service_type=kind, redirect_uris=[uri])) == BAD
        assert refused(await shops.create(slug="other", service_type=kind, post_logout_redirect_uris=[uri])) == BAD


async def test_the_settings_of_the_logout_are_shown_and_audited(shops: Workshop, acme: Tenant) -> None:
    service = (await shops.add_service())["service"]
    assert not {"post_logout_redirect_uris", "backchannel_logout_uri"} & service.keys(), "left out if empty"
    settings = {
        "post_logout_redirect_uris": ["https://shop.example.com/bye"],
        "backchannel_logout_uri": "http://shop.example.com:8080/logout",
    }
    answer = await shops.update("admin", **settings)
    assert answer.status == 200, answer.text
    assert settings.items() <= answer.json.items()
    assert settings.items() <= (await shops.list_services())["services"][0].items()
    [changes] = [details["changes"] for action, *_, details in await acme.recorded() if action == "service.updated"]
    assert changes == {
        "post_logout_redirect_uris": {"old": [], "new": settings["post_logout_redirect_uris"]},
        "backchannel_logout_uri": {"old": None, "new": settings["backchannel_logout_uri"]},
    }
    assert refused(await shops.update("admin", service_type="spa")) == BAD, "a public client needs https"
    answer = await shops.update("admin", post_logout_redirect_uris=None, backchannel_logout_uri=None)
    assert not settings.keys() & answer.json.keys()


async def test_redirect_uris_can_reach_their_maximum_number_and_length(shops: Workshop) -> None:
    uris = [f"https://example.com/{number}/".ljust(2048, "a") for number in range(100)]
    scopes = [f"scope:{number}" for number in range(100)]
    service = (await shops.add_service(name="a" * 100, slug="a" * 63, redirect_uris=uris, codehost_scopes=scopes))["service"]
    assert (service["redirect_uris"], service["codehost_scopes"]) == (uris, scopes)
    assert (await shops.list_services())["services"][0]["redirect_uris"] == uris


async def test_other_fields_are_ignored(shops: Workshop) -> None:
    chosen = ("id", "org_id", "client_id", "client_secret", "user_count", "created_at", "plan_count")
    strange: dict[str, Any] = dict.fromkeys(chosen, "x")
    service = await shops.add_service(**strange)
    assert all(service["service"].get(name) != value for name, value in strange.items())
    assert service["client_secret"] != "x"


async def test_a_slug_is_unique_within_the_organization(shops: Workshop, other_tenant: Tenant, acme: Tenant) -> None:
    await shops.add_service()
    assert refused(await shops.create(name="Other", service_type="mobile")) == BAD
    assert (await Workshop(other_tenant).add_service())["service"]["org_id"] == str(other_tenant.org)
    assert (await acme.actions()) == {"service.created": 1, "plan.created": 1}
    assert (await shops.list_services())["usage"]["current_services"] == 1


# Limits


async def test_the_tier_limits_the_number_of_services(shops: Workshop, acme: Tenant) -> None:
    usages = [(await shops.add_service(slug=f"s{number}"))["usage"]["current_services"] for number in range(3)]
    assert usages == [1, 2, 3]
    assert refused(await shops.create(slug="s3")) == FULL
    assert refused(await shops.create(slug="s0")) == FULL
    assert (await shops.list_services())["usage"] == {"current_services": 3, "max_services": 3, "tier": "Free"}
    assert (await shops.delete(slug="s1")).status == 204
    assert (await shops.add_service(slug="s3"))["usage"]["current_services"] == 3
    assert (await acme.actions())["service.created"] == 4


LIMITS: dict[str, tuple[str, int, str | None]] = {
    "the organization's own": ("max_services = 2", 2, "Free"),
    "the organization's own, of none": ("max_services = 0", 0, "Free"),
    "its tier's": ("tier_id = (select id from tiers where name = 'professional')", 10, "Professional"),
    "the default": ("tier_id = null", 5, None),
}


@pytest.mark.parametrize("name", LIMITS)
async def test_the_limit_is_that_of_the_organization_or_the_tier_or_five(shops: Workshop, acme: Tenant, name: str) -> None:
    change, limit, tier = LIMITS[name]
    await run_sql(acme.pool, f"update organizations set {change}")  # noqa: S608
    for number in range(limit):
        await add_service(acme.pool, acme.org, f"s{number}")
    assert (await shops.list_services())["usage"] == {"current_services": limit, "max_services": limit, "tier": tier}
    assert refused(await shops.create()) == FULL


async def test_a_lower_limit_keeps_existing_services(shops: Workshop, acme: Tenant) -> None:
    for number in range(3):
        await add_service(acme.pool, acme.org, f"s{number}")
    await run_sql(acme.pool, "update organizations set max_services = 1")
    assert refused(await shops.create()) == FULL
    assert (await shops.list_services())["usage"] == {"current_services": 3, "max_services": 1, "tier": "Free"}
    assert (await shops.update("owner", "s0", name="Renamed")).status == 200


async def test_services_of_other_organizations_do_not_count(shops: Workshop, acme: Tenant, other_tenant: Tenant) -> None:
    for number in range(3):
        await add_service(acme.pool, other_tenant.org, f"s{number}")
    assert (await shops.add_service())["usage"]["current_services"] == 1
    assert refused(await Workshop(other_tenant).create()) == FULL


@pytest.mark.slow
@pytest.mark.parametrize("free", [1, 3])
async def test_concurrent_creations_do_not_exceed_the_limit(shops: Workshop, acme: Tenant, free: int) -> None:
    await run_sql(acme.pool, "update organizations set max_services = %s", free)
    answers = await run_concurrently(20, lambda number: shops.create("owner" if number % 2 else "admin", slug=f"s{number}"))
    assert sorted(answer.status for answer in answers) == [200] * free + [400] * (20 - free)
    assert {answer.code for answer in answers if answer.status == 400} == {"SERVICE_LIMIT_EXCEEDED"}
    assert sorted(answer.json["usage"]["current_services"] for answer in answers if answer.status == 200) == [*range(1, free + 1)]
    assert (await shops.list_services())["usage"]["current_services"] == free
    assert await acme.actions() == {"service.created": free, "plan.created": free}


@pytest.mark.slow
async def test_of_twenty_concurrent_creations_of_a_slug_one_succeeds(shops: Workshop, acme: Tenant) -> None:
    await run_sql(acme.pool, "update organizations set max_services = 100")
    answers = await run_concurrently(20, lambda number: shops.create(name=f"n{number}"))
    assert sorted(answer.status for answer in answers) == [200] + [400] * 19
    assert await run_sql(acme.pool, "select (select count(*) from services), (select count(*) from plans)") == [(1, 1)]
    assert await acme.actions() == {"service.created": 1, "plan.created": 1}


# Changes after the request was authenticated

EARLIER_CHANGES: dict[str, tuple[str, str, tuple[int, str]]] = {
    "demoted admin": ("update memberships set role = 'member' where user_id = %(admin)s", "admin", FORBIDDEN),
    "removed admin": ("delete from memberships where user_id = %(admin)s", "admin", FORBIDDEN),
    "suspended organization": ("update organizations set status = 'suspended' where id = %(org)s", "owner", NOT_ACTIVE),
    "lower limit": ("update organizations set max_services = 0 where id = %(org)s", "owner", FULL),
}


@pytest.mark.parametrize("name", EARLIER_CHANGES)
async def test_a_creation_sees_the_change_that_it_waited_for(shops: Workshop, acme: Tenant, name: str) -> None:
    statement, caller, expected = EARLIER_CHANGES[name]
    values = {"org": acme.org, **{person: account.id for person, account in acme.people.items()}}
    changes = [("select 1 from organizations where id = %s for no key update", (acme.org,)), (statement, values)]
    assert refused(await run_during(acme.pool, changes, lambda: shops.create(caller))) == expected
    assert await shops.stored_rows() == []
    assert await acme.log() == []
