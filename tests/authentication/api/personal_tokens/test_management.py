"""POST, GET and DELETE /api/user/personal-tokens, and an organization's tokens."""

import re
from datetime import timedelta
from typing import Any

import pytest

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from core.authentication.model.tokens import MAX_LIVE_TOKENS, PATTERN
from core.kernel.api_scopes import ApiScope
from core.kernel.values import digest, new_id
from ports import Ports
from tests.fakes.outside import FakeClock, FakeMailTransport
from tests.support.browser import hidden_fields, leads_to
from tests.support.builders import (
    EMAIL,
    PASSWORD,
    Answer,
    Api,
    add_account,
    add_member,
    add_organization,
    deliver,
    impersonate,
    run_concurrently,
    run_sql,
    sign_in,
)
from tests.support.mfa import add_mfa
from tests.support.personal_tokens import add_personal_token
from tests.support.platform import Platform
from tests.support.refusals import BAD, FORBIDDEN, MISSING, UNAUTHORIZED, refused
from tests.support.saml.browser import SamlBrowser
from tests.support.tenants import Tenant

PATH = "/api/user/personal-tokens"
BODY = {"name": "Nightly export", "scopes": ["account:read"]}


async def create(api: Api, token: str, **changes: Any) -> Answer:
    return await api.post(PATH, BODY | changes, token=token)


# Creation


async def test_a_user_creates_a_token_for_their_own_account(
    api: Api, ports: Ports, pool: Pool, clock: FakeClock, sent: FakeMailTransport, user: Account
) -> None:
    token = (await sign_in(ports, user)).access_token
    answer = await create(api, token)
    assert answer.status == 200, answer.text
    created = answer.json
    secret = created.pop("token")
    assert re.fullmatch(PATTERN, secret)
    assert secret.startswith(created["prefix"])
    assert created["organization"] is None
    assert (created["name"], created["scopes"], created["last_used_at"]) == ("Nightly export", ["account:read"], None)
    assert (await api.get(PATH, token=token)).json == {"personal_tokens": [created]}
    [(token_hash, expires_at)] = await run_sql(pool, "select token_hash, expires_at from personal_tokens")
    assert (token_hash, expires_at) == (digest(secret), clock.now() + timedelta(days=30))
    await deliver(ports)
    [email] = sent.emails
    assert (email.to, email.subject) == (EMAIL, "A new personal access token - Gatehouse")
    assert "Nightly export" in email.text
    assert "on your own account" in email.text
    assert created["prefix"] in email.html
    assert secret not in email.text + email.html
    entries = "select org_id, action, target_type, target_id, actor_id, details from audit_log where action like 'personal_token%%'"
    details = {
        "user_id": str(user.id),
        "prefix": created["prefix"],
        "scopes": ["account:read"],
        "expires_at": created["expires_at"].replace("+00:00", "Z"),
    }
    assert await run_sql(pool, entries) == [(None, "personal_token.created", "personal_token", created["id"], user.id, details)]


async def test_a_member_creates_a_token_for_an_organization(api: Api, acme: Tenant, sent: FakeMailTransport) -> None:
    answer = await create(api, acme.token("admin"), scopes=["members:write", "members:read"], org_slug="acme", expires_in_days=366)
    assert answer.status == 200, answer.text
    assert answer.json["organization"] == {"id": str(acme.org), "slug": "acme", "name": "Acme"}
    assert answer.json["scopes"] == ["members:read", "members:write"]
    assert (await acme.entry("personal_token.created"))["details"]["user_id"] == acme.id("admin")
    await deliver(acme.ports)
    [email] = sent.emails
    assert "in the organization\nAcme." in email.text


async def test_creating_a_token_for_an_organization_confirms_the_membership(api: Api, ports: Ports, pool: Pool, user: Account) -> None:
    org = await add_organization(pool, "north")
    await add_member(pool, org, user.id)
    token = (await sign_in(ports, user)).access_token
    assert (await create(api, token, scopes=["members:read"], org_slug="north")).status == 200
    assert await run_sql(pool, "select confirmed_at is not null from memberships where user_id = %s", user.id) == [(True,)]


@pytest.mark.parametrize(
    ("name", "scopes", "refusal"),
    [
        ("member", ["members:read"], None),
        ("member", ["members:write"], BAD),
        ("admin", ["members:write"], None),
        ("owner", [scope for scope in ApiScope if not scope.area.is_of_platform and scope.area != "account"], None),
        ("owner", ["account:read"], BAD),
        ("owner", ["platform_users:read"], BAD),
        ("owner", ["members:own"], BAD),
        ("owner", ["openid"], BAD),
        ("owner", [], BAD),
    ],
)
async def test_a_token_has_only_scopes_that_the_role_can_use(
    api: Api, acme: Tenant, name: str, scopes: list[str], refusal: tuple[int, str] | None
) -> None:
    answer = await create(api, acme.token(name), scopes=scopes, org_slug="acme")
    assert (None if answer.status == 200 else refused(answer)) == refusal


@pytest.mark.parametrize("scope", ["members:read", "organization:read", "platform_users:read", "profile"])
async def test_a_token_of_the_own_account_has_only_scopes_of_the_account(api: Api, acme: Tenant, scope: str) -> None:
    assert refused(await create(api, acme.token("owner"), scopes=[scope])) == BAD


async def test_the_refusal_names_the_scopes_that_are_possible(api: Api, acme: Tenant) -> None:
    answer = await create(api, acme.token("member"), scopes=["members:read", "audit:read"], org_slug="acme")
    assert "The token cannot have audit:read. Choose from: organization:read, members:read, services:read," in answer.json["error"]


@pytest.mark.parametrize("days", [0, 367, -1, 1.5, None])
async def test_a_lifetime_is_from_1_to_366_days(api: Api, ports: Ports, user: Account, days: object) -> None:
    token = (await sign_in(ports, user)).access_token
    assert refused(await create(api, token, expires_in_days=days)) == BAD


async def test_organizations_of_others_and_inactive_ones_are_refused(
    api: Api, ports: Ports, pool: Pool, acme: Tenant, user: Account
) -> None:
    token = (await sign_in(ports, user)).access_token
    assert refused(await create(api, token, scopes=["members:read"], org_slug="acme")) == FORBIDDEN
    assert refused(await create(api, token, scopes=["members:read"], org_slug="nowhere")) == FORBIDDEN, "which of them exist is not told"
    await run_sql(pool, "update organizations set status = 'suspended' where id = %s", acme.org)
    answer = await create(api, acme.token("owner"), scopes=["members:read"], org_slug="acme")
    assert (answer.status, answer.code) == (403, "ORGANIZATION_NOT_ACTIVE")


async def test_the_sign_in_must_be_recent(api: Api, ports: Ports, clock: FakeClock, user: Account) -> None:
    token = (await sign_in(ports, user)).access_token
    clock.advance(timedelta(minutes=10))
    assert (await create(api, token)).status == 200
    clock.advance(timedelta(seconds=1))
    answer = await create(api, token)
    assert answer.status == 401
    assert 'error="insufficient_user_authentication", max_age="600"' in answer.headers["WWW-Authenticate"]
    assert (await create(api, (await api.login()).json["access_token"])).status == 200


async def test_the_page_leads_through_a_confirmation_and_comes_back_with_the_form(
    browser: SamlBrowser, clock: FakeClock, user: Account
) -> None:
    page = "/app/account/personal-tokens/new"
    await browser.sign_in()
    clock.advance(timedelta(minutes=10, seconds=1))
    sent = {"name": "Nightly export", "scope:account:read": "yes", "expires_in_days": "30"}
    confirmation = leads_to(await browser.submit(page, page, **sent))
    fields = hidden_fields(await browser.open(confirmation))
    assert leads_to(await browser.send("/app/reauthenticate", **fields, password=PASSWORD)) == confirmation
    kept = await browser.open(confirmation)
    assert "Continue: Create a personal access token</button>" in kept.text
    created = await browser.send(page, **hidden_fields(kept))
    assert (created.status, "Nightly export" in created.text) == (200, True)
    again = await browser.open(leads_to(await browser.send(page, **hidden_fields(kept))))
    assert (again.status, "was already sent, or has expired" in again.text) == (400, True)


async def test_with_a_second_factor_the_sign_in_must_have_used_it(api: Api, ports: Ports, clock: FakeClock, user: Account) -> None:
    app = await add_mfa(ports, user)
    device = {"X-Device-Id": "a device"}
    first = {"email": EMAIL, "password": PASSWORD}
    pre_auth = (await api.post("/api/auth/login", first, headers=device)).json["access_token"]
    tokens = await api.post("/api/auth/mfa/verify", {"code": app.code(), "trust_device": True}, token=pre_auth, headers=device)
    clock.advance(timedelta(seconds=1))
    trusted = await api.post("/api/auth/login", first | {"device_token": tokens.json["device_token"]}, headers=device)
    assert refused(await create(api, trusted.json["access_token"])) == UNAUTHORIZED
    assert (await create(api, tokens.json["access_token"])).status == 200


async def test_a_session_of_a_code_is_as_old_as_the_sign_in_that_approved_it(api: Api, ports: Ports, pool: Pool, user: Account) -> None:
    token = (await sign_in(ports, user)).access_token
    await run_sql(pool, "update sessions set grant_type = 'device_code'")
    assert refused(await create(api, token)) == UNAUTHORIZED
    await run_sql(pool, "update sessions set grant_type = 'authorization_code', authenticated_at = created_at - interval '601 seconds'")
    assert refused(await create(api, token)) == UNAUTHORIZED
    await run_sql(pool, "update sessions set authenticated_at = created_at - interval '600 seconds'")
    assert (await create(api, token)).status == 200, "the user signed in ten minutes ago in the browser"


async def test_the_address_must_be_verified(api: Api, ports: Ports) -> None:
    user = await add_account(ports, "new@example.com", verified=False)
    assert refused(await create(api, (await sign_in(ports, user)).access_token)) == FORBIDDEN


async def test_an_impersonator_creates_and_revokes_no_token(api: Api, ports: Ports, pool: Pool, platform: Platform, user: Account) -> None:
    token = await impersonate(ports, platform.account, user)
    assert refused(await create(api, token)) == FORBIDDEN
    own = await add_personal_token(ports, user)
    assert refused(await api.delete(f"{PATH}/{own.id}", token=token)) == FORBIDDEN
    assert await run_sql(pool, "select ended_at from sessions where personal_token") == [(None,)]


async def test_a_user_has_at_most_fifty_live_tokens(api: Api, ports: Ports, pool: Pool, clock: FakeClock, user: Account) -> None:
    for number in range(MAX_LIVE_TOKENS - 3):
        await add_personal_token(ports, user, name=f"token {number}", lifetime=timedelta(days=2 if number else 1))
    token = (await sign_in(ports, user)).access_token

    async def create_one(number: int) -> int:
        return (await create(api, token, name=f"racing {number}")).status

    assert sorted(await run_concurrently(10, create_one)) == [200] * 3 + [400] * 7
    assert len((await api.get(PATH, token=token)).json["personal_tokens"]) == MAX_LIVE_TOKENS
    clock.advance(timedelta(days=1))
    token = (await sign_in(ports, user)).access_token
    assert (await create(api, token)).status == 200, "an expired token does not count"
    assert refused(await create(api, token)) == BAD
    assert await run_sql(pool, "select count(*) from mails where kind = 'personal_token_created'") == [(4,)]


# The user's list, and revocation


async def test_a_user_revokes_a_token(api: Api, acme: Tenant) -> None:
    added = await add_personal_token(acme.ports, acme.people["admin"], acme.org)
    other = await add_personal_token(acme.ports, acme.people["admin"], acme.org, name="Other")
    members = f"{acme.path}/members"
    assert (await api.get(members, token=added.text)).status == 200
    assert (await api.delete(f"{PATH}/{added.id}", token=acme.token("admin"))).status == 204
    assert refused(await api.get(members, token=added.text)) == UNAUTHORIZED
    assert (await api.get(members, token=other.text)).status == 200
    listed = (await api.get(PATH, token=acme.token("admin"))).json["personal_tokens"]
    assert [token["name"] for token in listed] == ["Other"]
    assert refused(await api.delete(f"{PATH}/{added.id}", token=acme.token("admin"))) == MISSING
    entry = await acme.entry("personal_token.revoked")
    assert (entry["target_id"], entry["actor_id"]) == (str(added.id), acme.people["admin"].id)


async def test_users_see_and_revoke_only_their_own_tokens(api: Api, acme: Tenant) -> None:
    added = await add_personal_token(acme.ports, acme.people["admin"], acme.org)
    assert (await api.get(PATH, token=acme.token("owner"))).json == {"personal_tokens": []}
    assert refused(await api.delete(f"{PATH}/{added.id}", token=acme.token("owner"))) == MISSING
    assert (await api.get(f"{acme.path}/members", token=added.text)).status == 200


async def test_a_session_is_no_token(api: Api, acme: Tenant) -> None:
    session_id = acme.sessions["admin"].session_id
    assert refused(await api.delete(f"{PATH}/{session_id}", token=acme.token("admin"))) == MISSING
    assert refused(await api.delete(f"{acme.path}/personal-tokens/{session_id}", token=acme.token("owner"))) == MISSING
    assert (await api.get(PATH, token=acme.token("admin"))).status == 200


# The organization's list


async def test_admins_list_the_tokens_of_their_organization(api: Api, acme: Tenant, other_tenant: Tenant, clock: FakeClock) -> None:
    first = await add_personal_token(acme.ports, acme.people["member"], acme.org, (ApiScope.MEMBERS_READ,), name="First")
    clock.advance(timedelta(seconds=1))
    second = await add_personal_token(acme.ports, acme.people["owner"], acme.org, name="Second")
    await add_personal_token(acme.ports, acme.people["member"], name="Own account")
    await add_personal_token(acme.ports, acme.people["member"], acme.org, name="Expired", lifetime=timedelta(0))
    await add_personal_token(acme.ports, other_tenant.people["member"], other_tenant.org, name="Elsewhere")
    path = f"{acme.path}/personal-tokens"
    answer = await api.get(path, token=acme.token("admin"))
    assert [(token["id"], token["name"]) for token in answer.json["personal_tokens"]] == [
        (str(second.id), "Second"),
        (str(first.id), "First"),
    ]
    assert answer.json["pagination"]["total"] == 2
    listed = answer.json["personal_tokens"][1]
    assert listed["user"] == {"id": acme.id("member"), "email": acme.people["member"].email, "name": None}
    assert listed["scopes"] == ["members:read"]
    assert "token" not in listed
    paged = await api.get(f"{path}?limit=1&page=2", token=acme.token("admin"))
    assert [token["name"] for token in paged.json["personal_tokens"]] == ["First"]
    beyond = await api.get(f"{path}?page=9", token=acme.token("admin"))
    assert (beyond.json["personal_tokens"], beyond.json["pagination"]["total"]) == ([], 2)
    assert refused(await api.get(path, token=acme.token("member"))) == FORBIDDEN


async def test_an_admin_ends_a_token_of_any_member(api: Api, acme: Tenant, other_tenant: Tenant) -> None:
    added = await add_personal_token(acme.ports, acme.people["owner"], acme.org)
    elsewhere = await add_personal_token(acme.ports, other_tenant.people["owner"], other_tenant.org)
    own = await add_personal_token(acme.ports, acme.people["owner"])
    path = f"{acme.path}/personal-tokens"
    assert refused(await api.delete(f"{path}/{added.id}", token=acme.token("member"))) == FORBIDDEN
    for other in (elsewhere.id, own.id, new_id()):
        assert refused(await api.delete(f"{path}/{other}", token=acme.token("admin"))) == MISSING
    assert (await api.delete(f"{path}/{added.id}", token=acme.token("admin"))).status == 204
    assert refused(await api.get(f"{acme.path}/members", token=added.text)) == UNAUTHORIZED
    assert (await api.get("/api/user", token=own.text)).status == 200
    entry = await acme.entry("personal_token.revoked")
    assert (entry["actor_id"], entry["details"]) == (
        acme.people["admin"].id,
        {"user_id": acme.id("owner"), "prefix": added.prefix},
    )


# The organization's policy


async def test_the_policy_of_an_organization_switches_tokens_off_and_on(api: Api, acme: Tenant) -> None:
    added = await add_personal_token(acme.ports, acme.people["owner"], acme.org)
    own = await add_personal_token(acme.ports, acme.people["owner"])
    members = f"{acme.path}/members"
    answer = await api.patch(acme.path, {"personal_tokens": False}, token=acme.token("admin"))
    assert (answer.status, answer.json["personal_tokens"]) == (200, False)
    refusal = await api.get(members, token=added.text)
    assert refused(refusal) == FORBIDDEN
    assert "does not allow personal access tokens" in refusal.json["error"]
    assert refused(await create(api, acme.token("admin"), scopes=["members:read"], org_slug="acme")) == FORBIDDEN
    assert (await api.get("/api/user", token=own.text)).status == 200
    assert (await acme.entry("organization.updated"))["details"] == {"personal_tokens": {"old": True, "new": False}}
    assert (await api.patch(acme.path, {"personal_tokens": True}, token=acme.token("admin"))).status == 200
    assert (await api.get(members, token=added.text)).status == 200


async def test_a_token_can_switch_its_own_kind_off(api: Api, acme: Tenant) -> None:
    added = await add_personal_token(acme.ports, acme.people["owner"], acme.org)
    assert (await api.patch(acme.path, {"personal_tokens": False}, token=added.text)).status == 200
    assert refused(await api.patch(acme.path, {"personal_tokens": True}, token=added.text)) == FORBIDDEN
