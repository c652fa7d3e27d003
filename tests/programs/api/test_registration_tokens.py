"""Registration tokens: clients register with them as an organization's applications (RFC 7591 section 3)."""

from datetime import timedelta
from typing import Any
from urllib.parse import urlencode

import pytest
from lxml import html

from core.accounts.model.accounts import Account
from core.kernel.roles import ADMIN, MEMBER
from tests.fakes.outside import FakeClock
from tests.federation.api.client_authentication.keys import client_key
from tests.federation.api.relying import add_relying_party, sign_in_browser
from tests.support.browser import FakeBrowser
from tests.support.builders import Answer, add_member, run_concurrently, run_sql
from tests.support.programs import add_service_account
from tests.support.tenants import Tenant

REGISTER = "/auth/register"
CALLBACK = "https://agent.example/callback"
KEY = client_key().jwk
METHODS = ("client_secret_basic", "client_secret_post", "private_key_jwt", "client_secret_jwt")


def error(answer: Answer) -> tuple[int, str]:
    return answer.status, answer.json["error"]


async def create(tenant: Tenant, by: str = "admin", **fields: Any) -> dict[str, Any]:
    answer = await tenant.api.post(f"{tenant.path}/registration-tokens", {"name": "Build agents", **fields}, token=tenant.token(by))
    assert answer.status == 201, answer.text
    token: dict[str, Any] = answer.json
    return token


async def tokens(tenant: Tenant) -> list[dict[str, Any]]:
    answer = await tenant.api.get(f"{tenant.path}/registration-tokens", token=tenant.token("admin"))
    listed: list[dict[str, Any]] = answer.json["tokens"]
    assert answer.json["total"] == len(listed)
    return listed


async def register(tenant: Tenant, token: str, **metadata: Any) -> Answer:
    """Register a client. Omit members with the value None."""
    members = {"client_name": "Agent", "redirect_uris": [CALLBACK], **metadata}
    return await tenant.api.post(REGISTER, {name: value for name, value in members.items() if value is not None}, token=token)


async def services(tenant: Tenant) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = (await tenant.api.get(f"{tenant.path}/services", token=tenant.token("admin"))).json["services"]
    return listed


async def test_a_client_registers_as_an_application(acme: Tenant, clock: FakeClock) -> None:
    """It is not trusted, asks every user, and admits members only, until an admin changes that."""
    token = await create(acme, uses=2)
    assert token["token"].startswith(token["prefix"])
    answer = await register(acme, token["token"], token_endpoint_auth_method="client_secret_post", grant_types=["authorization_code"])
    assert answer.status == 201, answer.text
    assert answer.headers["Cache-Control"] == "no-store"
    body = answer.json
    secret = body.pop("client_secret")
    [service] = await services(acme)
    assert body == {
        "client_id": service["client_id"],
        "client_id_issued_at": int(clock.now().timestamp()),
        "client_secret_expires_at": 0,
        "client_name": "Agent",
        "redirect_uris": [CALLBACK],
        "application_type": "web",
        "grant_types": ["authorization_code"],
        "response_types": ["code"],
        "token_endpoint_auth_method": "client_secret_post",
    }
    assert (service["name"], service["slug"], service["service_type"], service["registered_with"]) == (
        "Agent",
        "agent",
        "web",
        "Build agents",
    )
    assert (service.get("is_trusted", False), service["always_ask_consent"]) == (False, True)
    access = await acme.api.get(f"{acme.path}/services/agent/access", token=acme.token("admin"))
    assert access.json["policy"] == "members"
    used = await acme.api.post("/auth/introspect", {"client_id": body["client_id"], "client_secret": secret, "token": "unknown"})
    assert (used.status, used.json) == (200, {"active": False})
    [left] = await tokens(acme)
    assert (left["uses_left"], left["last_used_at"], "token" in left) == (1, clock.now().isoformat().replace("+00:00", "Z"), False)


@pytest.mark.parametrize(
    ("metadata", "method", "service_type"),
    [
        ({}, "client_secret_basic", "web"),
        ({"token_endpoint_auth_method": "client_secret_jwt"}, "client_secret_basic", "web"),
        ({"token_endpoint_auth_method": "none"}, "none", "spa"),
        ({"token_endpoint_auth_method": "private_key_jwt", "jwks": {"keys": [KEY]}}, "private_key_jwt", "web"),
        ({"token_endpoint_auth_method": "private_key_jwt", "jwks_uri": "https://agent.example/keys"}, "private_key_jwt", "web"),
        ({"redirect_uris": ["http://127.0.0.1/callback"], "application_type": "native"}, "none", "desktop"),
        ({"redirect_uris": ["cursor://callback"]}, "none", "desktop"),
        # A loopback address alone makes no native application, which would have no secret.
        ({"redirect_uris": ["http://127.0.0.1/callback"]}, "client_secret_basic", "web"),
        ({"redirect_uris": ["http://localhost:5/x"], "token_endpoint_auth_method": "client_secret_post"}, "client_secret_post", "web"),
        ({"redirect_uris": ["http://localhost:5/x"], "token_endpoint_auth_method": "none"}, "none", "desktop"),
    ],
)
async def test_the_method_decides_about_the_type_of_the_application(
    acme: Tenant, metadata: dict[str, Any], method: str, service_type: str
) -> None:
    answer = await register(acme, (await create(acme))["token"], **metadata)
    assert answer.status == 201, answer.text
    body = answer.json
    assert body["token_endpoint_auth_method"] == method
    assert ("client_secret" in body) is method.startswith("client_secret")
    assert {name: body[name] for name in ("jwks", "jwks_uri") if name in body} == {
        name: metadata[name] for name in ("jwks", "jwks_uri") if name in metadata
    }
    [service] = await services(acme)
    assert service["service_type"] == service_type


async def test_the_consent_page_links_to_the_policy_the_terms_and_the_logo(acme: Tenant, browser: FakeBrowser, user: Account) -> None:
    links = {name: f"https://agent.example/{name}?a&b" for name in ("logo_uri", "policy_uri", "tos_uri")}
    await sign_in_browser(await add_relying_party(acme, browser), user, provider="password", is_known=False)
    await add_member(acme.pool, acme.org, user.id, MEMBER, confirmed=True)
    answer = await register(acme, (await create(acme))["token"], **links)
    assert answer.status == 201, answer.text
    assert {name: answer.json[name] for name in links} == links
    assert links.items() <= (await services(acme))[0].items()
    request = {"client_id": answer.json["client_id"], "redirect_uri": CALLBACK, "response_type": "code", "scope": "openid email"}
    page = await browser.open(f"/auth/authorize?{urlencode(request)}")
    assert {link.get("href") for link in html.document_fromstring(page.text).xpath("//main//a[@target='_blank']")} == {*links.values()}
    assert "<img" not in page.text, "nothing is loaded from another host"
    for name in links:
        for wrong in ("http://agent.example/", "javascript:alert(1)", 5):
            assert error(await register(acme, (await create(acme))["token"], **{name: wrong})) == (400, "invalid_client_metadata")


@pytest.mark.parametrize(
    ("metadata", "code"),
    [
        ({"redirect_uris": ["http://agent.example/callback"]}, "invalid_redirect_uri"),
        ({"client_name": None}, "invalid_client_metadata"),
        ({"token_endpoint_auth_method": "private_key_jwt"}, "invalid_client_metadata"),
        ({"token_endpoint_auth_method": "private_key_jwt", "jwks": {"keys": [{"kty": "oct", "k": "c2VjcmV0"}]}}, "invalid_client_metadata"),
        ({"token_endpoint_auth_method": 1}, "invalid_client_metadata"),
        *(({"application_type": "native", "token_endpoint_auth_method": name}, "invalid_client_metadata") for name in METHODS),
        *(({"redirect_uris": ["cursor://x"], "token_endpoint_auth_method": name}, "invalid_client_metadata") for name in METHODS),
        *(
            ({"token_endpoint_auth_method": name, "jwks": {"keys": [KEY]}, "jwks_uri": "https://a.example/"}, "invalid_client_metadata")
            for name in ("none", "client_secret_basic", "private_key_jwt", None)
        ),
        ({"software_statement": "eyJhbGciOiJub25lIn0.e30."}, "unapproved_software_statement"),
    ],
)
async def test_a_refused_registration_uses_nothing(acme: Tenant, metadata: dict[str, Any], code: str) -> None:
    token = await create(acme)
    assert error(await register(acme, token["token"], **metadata)) == (400, code)
    assert (await tokens(acme))[0]["uses_left"] == 1
    assert await services(acme) == []


async def test_a_token_that_does_not_work_is_refused_with_words(acme: Tenant, clock: FakeClock) -> None:
    expiring = await create(acme, expires_at=(clock.now() + timedelta(minutes=5)).isoformat())
    used, deleted = await create(acme), await create(acme)
    assert (await register(acme, used["token"])).status == 201
    path = f"{acme.path}/registration-tokens/{deleted['id']}"
    assert (await acme.api.call("DELETE", path, token=acme.token("admin"))).status == 204
    assert (await acme.api.call("DELETE", path, token=acme.token("admin"))).status == 404
    clock.advance(timedelta(minutes=5))
    for token in (expiring["token"], used["token"], deleted["token"], used["token"][:-1] + "x", "unknown", acme.token("admin")):
        answer = await register(acme, token)
        assert error(answer) == (401, "invalid_token")
        assert "registration token" in answer.json["error_description"]
        assert answer.headers["WWW-Authenticate"] == 'Bearer error="invalid_token"'
    basic = await acme.api.call("POST", REGISTER, {"client_name": "Agent"}, headers={"Authorization": "Basic YTpi"})
    assert error(basic) == (401, "invalid_token")
    assert len(await services(acme)) == 1


async def test_a_token_works_while_its_creator_may_create_applications(acme: Tenant) -> None:
    token = await create(acme)
    await run_sql(acme.pool, "update memberships set role = 'member' where user_id = %s", acme.people["admin"].id)
    assert (await register(acme, token["token"])).status == 401
    await run_sql(acme.pool, "update memberships set role = 'admin' where user_id = %s", acme.people["admin"].id)
    await run_sql(acme.pool, "update users set deactivated_at = now() where id = %s", acme.people["admin"].id)
    assert (await register(acme, token["token"])).status == 401
    robot = await add_service_account(acme.pool, acme.org, acme.people["owner"].id, ADMIN, granted=["services.create"])
    await run_sql(acme.pool, "update registration_tokens set created_by = %s", robot)
    assert (await register(acme, token["token"])).status == 201
    await run_sql(acme.pool, "update registration_tokens set uses_left = 1")
    await run_sql(acme.pool, "update service_accounts set granted = '{}'")
    assert (await register(acme, token["token"])).status == 401


async def test_of_twenty_at_once_as_many_register_as_the_token_has_uses(acme: Tenant) -> None:
    """All copies of a program register with the same name."""
    await run_sql(acme.pool, "update organizations set max_services = 30")
    for uses in (1, 3, 20, 4):
        token = await create(acme, uses=uses)
        before = len(await services(acme))
        answers = await run_concurrently(20, lambda _: register(acme, token["token"]))  # noqa: B023
        assert sorted(answer.status for answer in answers) == [201] * uses + [401] * (20 - uses)
        assert len(await services(acme)) == before + uses
    assert {each["uses_left"] for each in await tokens(acme)} == {0}


async def test_applications_count_for_the_limit_of_the_organization(acme: Tenant) -> None:
    await run_sql(acme.pool, "update organizations set max_services = 2")
    token = await create(acme, uses=5)
    answers = await run_concurrently(5, lambda _: register(acme, token["token"]))
    assert sorted(answer.status for answer in answers) == [201, 201, 400, 400, 400]
    assert {answer.code for answer in answers if answer.status == 400} == {"SERVICE_LIMIT_EXCEEDED"}
    assert (await tokens(acme))[0]["uses_left"] == 3
    assert {service["slug"][:6] for service in await services(acme)} == {"agent", "agent-"}


async def test_a_token_of_a_suspended_organization_does_not_work(acme: Tenant) -> None:
    token = await create(acme)
    await run_sql(acme.pool, "update organizations set status = 'suspended'")
    assert error(await register(acme, token["token"])) == (403, "access_denied")


async def test_each_change_is_recorded(acme: Tenant) -> None:
    token = await create(acme, name="Pipeline", uses=2)
    await register(acme, token["token"])
    await acme.api.call("DELETE", f"{acme.path}/registration-tokens/{token['id']}", token=acme.token("owner"))
    entries = {entry["action"]: entry for entry in await acme.log()}
    shown = {"registration_token_id": token["id"], "name": "Pipeline", "prefix": token["prefix"]}
    assert entries["registration_token.created"]["details"] == {**shown, "uses": 2}
    assert entries["registration_token.deleted"]["details"] == shown
    assert entries["service.created"]["details"]["registered_with"] == "Pipeline"
    [listed] = (await acme.api.get(f"{acme.path}/audit-log?action=service.created", token=acme.token("admin"))).json["logs"]
    assert (listed["actor"]["kind"], listed["actor"]["id"]) == ("registration_token", token["id"])
    for entry in entries.values():
        assert token["token"] not in str(entry)


async def test_what_a_token_can_be_is_bounded(acme: Tenant, clock: FakeClock) -> None:
    path = f"{acme.path}/registration-tokens"
    for fields in ({"uses": 0}, {"uses": 1001}, {"uses": True}, {"name": " "}, {"expires_at": clock.now().isoformat()}):
        answer = await acme.api.post(path, {"name": "Agents", **fields}, token=acme.token("admin"))
        assert answer.status == 400, fields
    insert = """
        insert into registration_tokens (id, org_id, name, prefix, token_hash, uses_left, created_by, created_at)
        select gen_random_uuid(), %s, 'Full', 'gthr_', decode(md5(number::text), 'hex'), 1, %s, now() from generate_series(1, 100) number"""
    await run_sql(acme.pool, insert, acme.org, acme.people["admin"].id)
    answer = await acme.api.post(path, {"name": "One more"}, token=acme.token("admin"))
    assert answer.status == 400
    assert "already has 100 tokens" in answer.json["error"]
    await run_sql(
        acme.pool, "update registration_tokens set uses_left = 0, last_used_at = now() where token_hash = decode(md5('1'), 'hex')"
    )
    assert (await acme.api.post(path, {"name": "One more"}, token=acme.token("admin"))).status == 201


async def test_a_token_is_one_of_its_organization(acme: Tenant, other_tenant: Tenant) -> None:
    token = await create(acme)
    assert await tokens(other_tenant) == []
    path = f"{other_tenant.path}/registration-tokens/{token['id']}"
    assert (await acme.api.call("DELETE", path, token=other_tenant.token("owner"))).status == 404
    await register(acme, token["token"])
    assert await services(other_tenant) == []
