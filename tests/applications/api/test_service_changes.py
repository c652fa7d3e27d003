"""Members and API keys change services and client secrets.

The rules are decisions 92, 102, 158, and security I-4, K-1, K-2, L-3, O-2, Z-5.
"""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from core.kernel.roles import Permission
from core.kernel.values import digest
from tests.applications.api.service_fields import ARRAYS, FIELDS, NAMES, PAGES, SCOPES, URIS
from tests.applications.api.services import URI, Workshop, body_of
from tests.fakes.outside import FakeClock
from tests.support.builders import Answer, impersonate, run_concurrently, run_during, run_sql
from tests.support.platform import Platform
from tests.support.refusals import BAD, FORBIDDEN, MISSING, NOT_ACTIVE, refused
from tests.support.services import add_api_key, add_service
from tests.support.tenants import Tenant
from tests.tenancy.organizations import NOT_ACTIVE as STATUSES

NATIVE = ["com.example.app:/callback", "http://127.0.0.1/callback"]


@pytest.fixture
async def shops(acme: Tenant) -> Workshop:
    """A service named shop."""
    shops = Workshop(acme)
    await shops.add_service(codehost_scopes=["a"], websuite_scopes=["b"], redirect_uris=[URI], device_activation_uri="https://example.com/")
    await run_sql(acme.pool, "delete from audit_log")
    await run_sql(acme.pool, "delete from audit_totals")
    await run_sql(acme.pool, "delete from events")
    return shops


async def secret_of(shops: Workshop) -> bytes | None:
    [(secret_hash,)] = await run_sql(shops.tenant.pool, "select client_secret_hash from services where slug = 'shop'")
    return secret_hash  # type: ignore[no-any-return]


async def set_service_type(shops: Workshop, kind: str) -> None:
    """Change the service to this type, with redirect URIs that every type may have."""
    hashed = digest("old") if kind in ("web", "api") else None
    await run_sql(shops.tenant.pool, "update services set service_type = %s, client_secret_hash = %s", kind, hashed)


# Changes that members and API keys may make; the type only members


async def change_by_member(shops: Workshop, **fields: Any) -> Answer:
    return await shops.update("admin", **fields)


async def change_by_key(shops: Workshop, **fields: Any) -> Answer:
    [(service,)] = await run_sql(shops.tenant.pool, "select id from services where slug = 'shop'")
    key = await add_api_key(shops.tenant.pool, service, [Permission.WRITE_SERVICE])
    try:
        return await shops.tenant.api.patch("/api/service/info", fields, headers={"X-Api-Key": key})
    finally:
        await run_sql(shops.tenant.pool, "delete from api_keys")


Change = Callable[..., Awaitable[Answer]]
both_callers = pytest.mark.parametrize("change", [change_by_member, change_by_key])
CHANGES: dict[str, Any] = {
    "name": " New Name ",
    "codehost_scopes": ["x", "y"],
    "websuite_scopes": [],
    "officesuite_scopes": ["z"],
    "redirect_uris": ["https://b.example.com/", "https://a.example.com/"],
    "device_activation_uri": "http://localhost/device",
}


@both_callers
async def test_an_update_replaces_only_the_fields_in_the_request(shops: Workshop, clock: FakeClock, change: Change) -> None:
    before, secret = (await shops.get()).json, await secret_of(shops)
    clock.advance(timedelta(minutes=1))
    for name, value in CHANGES.items():
        now = body_of(await change(shops, **{name: value}))
        before = {**before, name: value.strip() if name == "name" else value}
        assert now == before == (await shops.get()).json
        assert list(now) == FIELDS
    assert await secret_of(shops) == secret
    assert await run_sql(shops.tenant.pool, "select updated_at from services") == [(clock.now(),)]


@both_callers
async def test_null_clears_fields_and_one_request_is_one_change(shops: Workshop, acme: Tenant, change: Change) -> None:
    cleared = {name: None for name in CHANGES if name != "name"}
    now = body_of(await change(shops, **cleared))
    assert now == {**now, **cleared, "redirect_uris": []}
    assert body_of(await change(shops, redirect_uris=[]))["redirect_uris"] == []
    service = body_of(await change(shops, **CHANGES))
    assert service == {**service, **CHANGES, "name": "New Name"}
    assert await acme.actions() == {"service.updated": 2}
    assert (await acme.log())[-1]["details"]["changes"].keys() == CHANGES.keys()


@both_callers
async def test_an_update_is_recorded_with_the_old_values(shops: Workshop, acme: Tenant, change: Change) -> None:
    service = (await shops.get()).json["id"]
    await change(shops, name="New", codehost_scopes=None, redirect_uris=[], websuite_scopes=["b"])
    changes = {
        "name": {"old": "Shop", "new": "New"},
        "codehost_scopes": {"old": ["a"], "new": None},
        "redirect_uris": {"old": [URI], "new": []},
    }
    [entry] = await acme.log()
    assert (entry["action"], entry["target_type"], entry["target_id"]) == ("service.updated", "service", service)
    assert entry["details"] == {"service_slug": "shop", "service_name": "New", "changes": changes}
    assert await acme.webhook_events() == [("service.updated", service, entry["details"])]
    kinds = await run_sql(acme.pool, "select actor_kind from audit_log")
    assert kinds == [("api_key" if change is change_by_key else None,)]
    assert (entry["actor_id"] == acme.people["admin"].id) == (change is change_by_member)


@both_callers
async def test_an_update_without_effect_leaves_no_trace(shops: Workshop, acme: Tenant, clock: FakeClock, change: Change) -> None:
    before = await shops.stored_rows()
    clock.advance(timedelta(minutes=1))
    unchanged_fields: list[dict[str, Any]] = [
        {"name": " Shop "},
        {"codehost_scopes": ["a"], "officesuite_scopes": None},
        {"redirect_uris": [URI]},
    ]
    for fields in unchanged_fields:
        assert body_of(await change(shops, **fields)) == (await shops.get()).json
    assert await shops.stored_rows() == before
    assert await acme.log() == []


INVALID: list[dict[str, Any]] = [
    {},
    {"unknown": 1},
    {"slug": "other"},
    {"client_id": "x"},
    {"client_secret": "x"},
    {"name": None},
    *({"name": name} for name in NAMES),
    *({name: value} for name in FIELDS[6:10] for value in ARRAYS),
    *({name: scopes} for name in FIELDS[6:9] for scopes in SCOPES),
    *({"redirect_uris": uris} for uris in URIS),
    *({"device_activation_uri": page} for page in PAGES),
    {"redirect_uris": NATIVE},
    {"name": "New", "redirect_uris": ["x"]},
]


@pytest.mark.slow
@both_callers
async def test_invalid_updates_are_refused(shops: Workshop, acme: Tenant, change: Change) -> None:
    before = await shops.stored_rows()
    for fields in INVALID:
        assert refused(await change(shops, **fields)) == BAD, fields
    assert await shops.stored_rows() == before
    assert await acme.log() == []


async def test_an_unknown_type_is_refused(shops: Workshop) -> None:
    before = await shops.stored_rows()
    for service_type in ("", "WEB", "browser", None, 5, True, ["web"]):
        answer = await shops.update(service_type=service_type, name="New")
        assert refused(answer) == BAD, service_type
        assert "desktop" in answer.json["error"], service_type
    assert await shops.stored_rows() == before


async def test_other_fields_cannot_be_changed(shops: Workshop, acme: Tenant) -> None:
    """Unknown fields are ignored (security N-5). API keys cannot change the type either."""
    before = (await shops.get()).json
    foreign = {"id": "x", "org_id": "x", "slug": "x", "client_id": "x", "client_secret": "x", "user_count": 7, "created_at": "x"}
    assert body_of(await shops.update(name="One", **foreign)) == {**before, "name": "One"}
    assert body_of(await change_by_key(shops, name="Two", service_type="mobile", **foreign)) == {**before, "name": "Two"}
    assert refused(await change_by_key(shops, service_type="mobile")) == BAD
    assert await run_sql(acme.pool, "select service_type, user_count from services") == [("web", 0)]


async def test_plain_members_and_inactive_organizations_are_refused(shops: Workshop, acme: Tenant) -> None:
    before = await shops.stored_rows()
    assert refused(await shops.update("member", name="New")) == FORBIDDEN
    assert refused(await shops.rotate("member")) == FORBIDDEN
    for status in STATUSES:
        await acme.set_status(status)
        for answer in (await shops.update(name="New"), await shops.update(), await shops.rotate(), await change_by_key(shops, name="New")):
            assert refused(answer) == NOT_ACTIVE
    assert await shops.stored_rows() == before
    assert await acme.log() == []


# Types and client secrets


@pytest.mark.parametrize("old", ["web", "spa", "mobile", "desktop", "api"])
@pytest.mark.parametrize("new", ["web", "spa", "mobile", "desktop", "api"])
async def test_the_client_secret_depends_on_the_type(shops: Workshop, acme: Tenant, old: str, new: str) -> None:
    await set_service_type(shops, old)
    before, secret = (await shops.get()).json, await secret_of(shops)
    answer = body_of(await shops.update(service_type=new, redirect_uris=[URI]))
    new_secret = answer.pop("client_secret", None)
    assert answer == {**before, "service_type": new} == (await shops.get()).json
    now = await secret_of(shops)
    if new not in ("web", "api"):
        assert new_secret is now is None
    elif old in ("web", "api"):
        assert new_secret is None
        assert now == secret
    else:
        assert now == digest(new_secret)
        assert new_secret not in str(await acme.log())
    changes = {} if old == new else {"service_type": {"old": old, "new": new}}
    assert [entry["details"]["changes"] for entry in await acme.log()] == ([changes] if changes else [])
    assert "secret" not in str(await acme.log())


async def test_unchanged_redirect_uris_are_checked_against_the_new_type(shops: Workshop) -> None:
    await set_service_type(shops, "mobile")
    assert body_of(await shops.update(redirect_uris=NATIVE))["redirect_uris"] == NATIVE
    before = await shops.stored_rows()
    for kind in ("web", "api", "spa"):
        assert refused(await shops.update(service_type=kind)) == BAD
        assert refused(await shops.update(service_type=kind, redirect_uris=[*NATIVE, URI])) == BAD
    assert await shops.stored_rows() == before
    assert body_of(await shops.update(service_type="desktop"))["redirect_uris"] == NATIVE
    assert body_of(await shops.update(service_type="web", redirect_uris=NATIVE[1:]))["client_secret"]


async def test_old_invalid_redirect_uris_do_not_prevent_other_changes(shops: Workshop, acme: Tenant) -> None:
    await run_sql(acme.pool, "update services set redirect_uris = '{https://old.example.com/#x}'")
    assert body_of(await shops.update(name="New"))["redirect_uris"] == ["https://old.example.com/#x"]
    assert refused(await shops.update(service_type="api")) == BAD


@pytest.mark.parametrize("kind", ["web", "api"])
async def test_a_rotated_secret_is_new_and_returned_once(shops: Workshop, acme: Tenant, kind: str) -> None:
    await set_service_type(shops, kind)
    service = (await shops.get()).json
    first, second = body_of(await shops.rotate("admin")), body_of(await shops.rotate())
    assert list(first) == list(second) == ["client_secret"]
    assert first != second
    assert await secret_of(shops) == digest(second["client_secret"])
    assert (await shops.get()).json == service
    details = {"service_slug": "shop", "service_name": "Shop"}
    assert await acme.recorded() == [
        ("service.client_secret.rotated", "service", service["id"], acme.people[name].id, details) for name in ("admin", "owner")
    ]
    assert [data for *_, data in await acme.webhook_events()] == [details, details]


@pytest.mark.parametrize("kind", ["mobile", "desktop"])
async def test_public_clients_have_no_secret_to_rotate(shops: Workshop, acme: Tenant, kind: str) -> None:
    await set_service_type(shops, kind)
    assert refused(await shops.rotate()) == BAD
    assert await secret_of(shops) is None
    assert await acme.log() == []


async def test_an_impersonator_cannot_change_a_service(shops: Workshop, acme: Tenant, platform: Platform) -> None:
    """This covers the service's secret and its redirect URIs (security I-4)."""
    token = await impersonate(acme.ports, platform.account, acme.people["owner"], acme.org)
    path = f"{shops.path}/shop"
    assert refused(await acme.api.post(f"{path}/rotate-secret", token=token)) == FORBIDDEN
    before = await run_sql(acme.pool, "select * from services")
    for changes in ({"service_type": "mobile"}, {"redirect_uris": ["https://elsewhere.example/"]}, {"name": "Other"}):
        assert refused(await acme.api.patch(path, changes, token=token)) == FORBIDDEN
    assert await run_sql(acme.pool, "select * from services") == before
    assert await acme.log() == []


async def test_responses_with_secrets_are_not_cached(shops: Workshop) -> None:
    await set_service_type(shops, "mobile")
    for answer in (await shops.update(service_type="web"), await shops.rotate(), await shops.create(slug="other")):
        assert answer.json["client_secret"]
        assert answer.headers["Cache-Control"] == "no-store"


# API keys


async def test_a_key_reads_only_its_service(shops: Workshop, acme: Tenant, other_tenant: Tenant) -> None:
    foreign = await add_service(acme.pool, other_tenant.org)
    other = await add_service(acme.pool, acme.org, "other")
    service_id = UUID((await shops.get()).json["id"])
    for service in (service_id, other, foreign):
        key = await add_api_key(acme.pool, service, [Permission.READ_SERVICE])
        answer = await acme.api.get("/api/service/info", headers={"X-Api-Key": key})
        assert (body_of(answer)["id"], list(answer.json)) == (str(service), FIELDS)
        refusal = await acme.api.patch("/api/service/info", {"name": "New"}, headers={"X-Api-Key": key})
        assert refused(refusal) == FORBIDDEN
    assert (await acme.api.get("/api/service/info", headers={"X-Api-Key": key})).json["org_id"] == str(other_tenant.org)


async def test_reading_and_writing_are_separate_permissions(shops: Workshop, acme: Tenant) -> None:
    service = UUID((await shops.get()).json["id"])
    key = await add_api_key(acme.pool, service, set(Permission) - {Permission.READ_SERVICE})
    assert refused(await acme.api.get("/api/service/info", headers={"X-Api-Key": key})) == FORBIDDEN
    assert body_of(await acme.api.patch("/api/service/info", {"name": "New"}, headers={"X-Api-Key": key}))["name"] == "New"


async def test_the_keys_of_a_deleted_service_are_refused(shops: Workshop, acme: Tenant) -> None:
    key = await add_api_key(acme.pool, UUID((await shops.get()).json["id"]))
    assert (await shops.delete()).status == 204
    for method in ("GET", "PATCH"):
        answer = await acme.api.call(method, "/api/service/info", {"name": "x"} if method == "PATCH" else None, headers={"X-Api-Key": key})
        assert refused(answer) == (401, "UNAUTHORIZED")


# Changes after the request was authenticated

EARLIER_CHANGES: dict[str, tuple[str, tuple[int, str]]] = {
    "demoted admin": ("update memberships set role = 'member' where user_id = %(admin)s", FORBIDDEN),
    "suspended organization": ("update organizations set status = 'suspended' where id = %(org)s", NOT_ACTIVE),
    "deleted service": ("delete from services", MISSING),
}


@pytest.mark.parametrize("name", EARLIER_CHANGES)
async def test_an_update_sees_the_change_that_it_waited_for(shops: Workshop, acme: Tenant, name: str) -> None:
    statement, expected = EARLIER_CHANGES[name]
    changes = [
        ("select 1 from organizations where id = %s for no key update", (acme.org,)),
        (statement, {"org": acme.org, "admin": acme.people["admin"].id}),
    ]
    for act in (lambda: shops.update("admin", name="New"), lambda: shops.rotate("admin")):
        assert refused(await run_during(acme.pool, changes, act)) == expected
        await run_sql(acme.pool, "update memberships set role = 'admin' where user_id = %s", acme.people["admin"].id)
        await run_sql(acme.pool, "update organizations set status = 'active'")
        if name == "deleted service":
            await add_service(acme.pool, acme.org)
    assert await acme.log() == []


KEY_CHANGES: dict[str, tuple[str, tuple[int, str]]] = {
    "deleted": ("delete from api_keys", (401, "UNAUTHORIZED")),
    "expired": ("update api_keys set expires_at = '2000-01-01'", (401, "UNAUTHORIZED")),
    "deleted service": ("delete from services", (401, "UNAUTHORIZED")),
    "suspended organization": ("update organizations set status = 'suspended' where slug = 'acme'", NOT_ACTIVE),
}


@pytest.mark.parametrize("name", KEY_CHANGES)
async def test_an_update_by_a_key_sees_the_change_that_it_waited_for(shops: Workshop, acme: Tenant, name: str) -> None:
    statement, expected = KEY_CHANGES[name]
    changes = [("select 1 from organizations where id = %s for no key update", (acme.org,)), (statement, ())]
    headers = {"X-Api-Key": await add_api_key(acme.pool, UUID((await shops.get()).json["id"]))}
    answer = await run_during(acme.pool, changes, lambda: acme.api.patch("/api/service/info", {"name": "New"}, headers=headers))
    assert refused(answer) == expected
    assert await acme.log() == []


@pytest.mark.slow
async def test_concurrent_updates_of_different_fields_are_all_kept(shops: Workshop, acme: Tenant) -> None:
    fields = list(CHANGES.items())
    answers = await run_concurrently(20, lambda number: shops.update(**dict([fields[number % len(fields)]])))
    assert {answer.status for answer in answers} == {200}
    assert (await shops.get()).json == {**answers[0].json, **CHANGES, "name": "New Name"}
    assert await acme.actions() == {"service.updated": len(fields)}


@pytest.mark.slow
async def test_of_twenty_concurrent_type_changes_one_returns_the_valid_secret(shops: Workshop, acme: Tenant) -> None:
    await set_service_type(shops, "mobile")
    answers = await run_concurrently(20, lambda _: shops.update(service_type="web"))
    assert {answer.status for answer in answers} == {200}
    [secret] = [answer.json["client_secret"] for answer in answers if "client_secret" in answer.json]
    assert await secret_of(shops) == digest(secret)


@pytest.mark.slow
async def test_of_twenty_concurrent_rotations_the_last_secret_is_valid(shops: Workshop) -> None:
    secrets = [body_of(answer)["client_secret"] for answer in await run_concurrently(20, lambda _: shops.rotate())]
    assert len(set(secrets)) == 20
    assert await secret_of(shops) in [digest(secret) for secret in secrets]
