"""Requests with a personal access token (security J-5, J-7)."""

from datetime import timedelta
from uuid import UUID

import pytest

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from core.authentication.model.dpop import BearerTokenAsBound
from core.authentication.model.tokens import new_personal_token
from core.kernel.api_scopes import ApiScope
from ports import Ports
from tests.fakes.outside import FakeClock
from tests.support.builders import BASE_URL, Api, run_sql
from tests.support.dpop import proof_key
from tests.support.personal_tokens import add_personal_token
from tests.support.platform import Platform
from tests.support.refusals import FORBIDDEN, UNAUTHORIZED, refused
from tests.support.tenants import Tenant

FOR_PERSONS = "Personal access tokens cannot do this."


async def test_a_token_acts_as_its_user_in_its_organization(api: Api, acme: Tenant) -> None:
    token = await add_personal_token(acme.ports, acme.people["admin"], acme.org, name="Inviter")
    answer = await api.post(acme.invitations, {"email": "new@example.com", "role": "member"}, token=token.text)
    assert answer.status == 200, answer.text
    entry = await acme.entry("user.invited")
    assert entry["actor_id"] == acme.people["admin"].id
    assert entry["details"]["personal_token"] == {"id": str(token.id), "prefix": token.prefix}
    [shown] = (await api.get(f"{acme.path}/audit-log?action=user.invited", token=token.text)).json["logs"]
    assert (shown["actor"]["email"], shown["details"]["personal_token"]["prefix"]) == (acme.people["admin"].email, token.prefix)
    data = await acme.webhook_events()
    assert all("personal_token" not in str(event) for event in data), "organizations tell their receivers what happened, not with what"


async def test_a_token_opens_only_its_organization(api: Api, acme: Tenant, other_tenant: Tenant) -> None:
    owner = acme.people["owner"]
    await other_tenant.join("visitor", owner)
    token = await add_personal_token(acme.ports, owner, acme.org)
    assert (await api.get(acme.path, token=token.text)).status == 200
    for path in (other_tenant.path, "/api/user", "/api/user/devices", "/api/organizations"):
        answer = await api.get(path, token=token.text)
        assert refused(answer) == FORBIDDEN
        assert "limited to another organization, or to your own account" in answer.json["error"]
    assert (await api.get("/api/organizations/nowhere", token=token.text)).status == 404


async def test_a_token_of_the_own_account_opens_no_organization(api: Api, acme: Tenant) -> None:
    token = await add_personal_token(acme.ports, acme.people["owner"])
    assert (await api.get("/api/user", token=token.text)).json["email"] == acme.people["owner"].email
    for path in ("/api/user/devices", "/api/user/consents", "/api/user/applications", "/api/organizations"):
        assert (await api.get(path, token=token.text)).status == 200, path
    assert refused(await api.get(acme.path, token=token.text)) == FORBIDDEN
    assert refused(await api.post(acme.invitations, {"email": "new@example.com", "role": "member"}, token=token.text)) == FORBIDDEN


async def test_a_missing_scope_is_named(api: Api, acme: Tenant) -> None:
    token = await add_personal_token(acme.ports, acme.people["owner"], acme.org, (ApiScope.MEMBERS_READ,))
    assert (await api.get(f"{acme.path}/members", token=token.text)).status == 200
    answer = await api.post(acme.invitations, {"email": "new@example.com", "role": "member"}, token=token.text)
    assert refused(answer) == FORBIDDEN
    assert 'error="insufficient_scope", scope="members:write"' in answer.headers["WWW-Authenticate"]
    own = await add_personal_token(acme.ports, acme.people["owner"], None, (ApiScope.ACCOUNT_READ,))
    answer = await api.delete(f"/api/user/devices/{UUID(int=0)}", token=own.text)
    assert (refused(answer), 'scope="account:write"' in answer.headers["WWW-Authenticate"]) == (FORBIDDEN, True)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("PATCH", "/api/user"),
        ("DELETE", "/api/user"),
        ("POST", "/api/user/change-password"),
        ("POST", "/api/user/set-password"),
        ("GET", "/api/user/mfa/status"),
        ("POST", "/api/user/mfa/setup"),
        ("DELETE", "/api/user/mfa"),
        ("POST", "/api/user/mfa/backup-codes/regenerate"),
        ("GET", "/api/user/identities"),
        ("GET", "/api/user/personal-tokens"),
        ("POST", "/api/user/personal-tokens"),
        ("POST", "/api/auth/logout"),
        ("GET", "/api/invitations"),
        ("POST", "/api/invitations/accept"),
        ("POST", "/api/organizations"),
        ("GET", "/api/subscription"),
        ("GET", "/api/provider-token/codehost"),
        ("GET", "/api/privacy/export/{user}"),
        ("DELETE", "/api/privacy/forget/{user}"),
        ("GET", "/api/platform/organizations"),
        ("GET", "/api/platform/users/search"),
        ("POST", "/api/platform/impersonate/{user}"),
    ],
)
async def test_only_a_person_can_do_the_rest(api: Api, platform: Platform, ports: Ports, method: str, path: str) -> None:
    """The token has all scopes, and its user is a platform owner who has just signed in."""
    token = await add_personal_token(ports, platform.account, None, tuple(ApiScope))
    answer = await api.call(method, path.format(user=platform.account.id), {} if method != "GET" else None, token=token.text)
    assert refused(answer) == FORBIDDEN
    assert FOR_PERSONS in answer.json["error"]


@pytest.mark.parametrize(
    ("method", "path"),
    [("POST", "/select"), ("POST", "/leave"), ("POST", "/transfer-ownership"), ("DELETE", "")],
)
async def test_only_a_person_changes_their_membership_or_owns_the_organization(api: Api, acme: Tenant, method: str, path: str) -> None:
    token = await add_personal_token(acme.ports, acme.people["owner"], acme.org, tuple(ApiScope))
    answer = await api.call(method, acme.path + path, {}, token=token.text)
    assert (refused(answer), FOR_PERSONS in answer.json["error"]) == (FORBIDDEN, True)


async def test_a_token_is_accepted_in_no_other_place(api: Api, acme: Tenant) -> None:
    token = (await add_personal_token(acme.ports, acme.people["owner"], acme.org)).text
    own = (await add_personal_token(acme.ports, acme.people["owner"])).text
    assert refused(await api.get(f"{acme.path}/members?access_token={token}")) == UNAUTHORIZED
    assert refused(await api.get(f"{acme.path}/members", headers={"Cookie": f"gatehouse-session={token}"})) == UNAUTHORIZED
    for headers in ({"X-Api-Key": token}, {"Authorization": f"Basic {token}"}, {"Authorization": token}):
        assert (await api.get("/api/user", headers=headers)).status == 401
        assert (await api.get(f"{acme.path}/members", headers=headers)).status == 401
    for text in (token, own):
        assert (await api.get("/auth/userinfo", token=text)).status == 401
        assert (await api.get("/scim/v2/Users", token=text)).status == 401
        assert (await api.get("/api/service/subscriptions", headers={"X-Api-Key": text})).status == 401
        assert (await api.post("/api/auth/refresh", {"refresh_token": text})).status == 401
        assert (await api.post("/api/auth/mfa/verify", {"code": "123456"}, token=text)).status == 401
        assert (await api.get("/app/account", headers={"Cookie": f"gatehouse-session={text}"})).status == 303


async def test_a_token_is_never_bound_to_a_key(api: Api, acme: Tenant) -> None:
    token = await add_personal_token(acme.ports, acme.people["owner"], acme.org)
    answer = await api.get(f"{acme.path}/members", headers={"Authorization": f"DPoP {token.text}"})
    assert answer.status == 401
    headers, url, now = {"Authorization": f"DPoP {token.text}"}, f"{BASE_URL}{acme.path}/members", acme.ports.clock.now()
    first = await api.get(f"{acme.path}/members", headers=headers | {"DPoP": proof_key().proof("GET", url, now, None, token.text)})
    proof = proof_key().proof("GET", url, now, first.headers["DPoP-Nonce"], token.text)
    answer = await api.get(f"{acme.path}/members", headers=headers | {"DPoP": proof})
    assert (answer.status, answer.json["error"]) == (401, BearerTokenAsBound().message)


async def test_wrong_and_unknown_tokens_are_refused_alike(api: Api, acme: Tenant) -> None:
    known = (await add_personal_token(acme.ports, acme.people["owner"], acme.org)).text
    expired = await add_personal_token(acme.ports, acme.people["owner"], acme.org, lifetime=timedelta(0))
    texts = [known[:-1], known + "0", known[:-1] + ("0" if known[-1] != "0" else "1"), new_personal_token(None)[0], expired.text]
    answers = [await api.get(path, token=text) for text in texts for path in (acme.path, "/api/user", "/api/platform/users/search")]
    assert {refused(answer) for answer in answers} == {UNAUTHORIZED}
    assert {answer.json["error"] for answer in answers} == {
        "This personal access token is not valid: it is incomplete, has expired, or was revoked. Create a new one in your account."
    }
    assert {answer.headers["WWW-Authenticate"].partition(",")[0] for answer in answers} == {'Bearer error="invalid_token"'}


async def test_rights_follow_the_database(api: Api, acme: Tenant, pool: Pool) -> None:
    """A change acts on the next request (security J-5)."""
    token = await add_personal_token(acme.ports, acme.people["admin"], acme.org)
    invite = {"email": "new@example.com", "role": "member"}
    assert (await api.post(acme.invitations, invite, token=token.text)).status == 200
    assert (await acme.set_role("owner", "admin", "member")).status == 200
    answer = await api.post(acme.invitations, invite | {"email": "other@example.com"}, token=token.text)
    assert refused(answer) == FORBIDDEN
    assert [row[0] for row in await acme.refusals()] == [acme.people["admin"].id], "the refused change is in the audit log"
    assert (await api.get(f"{acme.path}/members", token=token.text)).status == 200
    await run_sql(pool, "update organizations set status = 'suspended' where id = %s", acme.org)
    answer = await api.get(f"{acme.path}/members", token=token.text)
    assert (answer.status, answer.code) == (403, "ORGANIZATION_NOT_ACTIVE")
    assert (await api.get(acme.path, token=token.text)).status == 200, "its state can be read, as by every member"
    await run_sql(pool, "update organizations set status = 'active' where id = %s", acme.org)
    assert (await acme.remove("owner", "admin")).status == 200
    assert refused(await api.get(acme.path, token=token.text)) == UNAUTHORIZED


async def test_a_token_does_not_return_with_a_new_membership(api: Api, acme: Tenant) -> None:
    token = await add_personal_token(acme.ports, acme.people["member"], acme.org)
    assert (await acme.remove("owner", "member")).status == 200
    await acme.join("member", acme.people["member"])
    assert refused(await api.get(acme.path, token=token.text)) == UNAUTHORIZED


async def test_the_last_use_is_recorded_once_a_minute(api: Api, ports: Ports, pool: Pool, clock: FakeClock, user: Account) -> None:
    token = await add_personal_token(ports, user)
    used = "select last_used_at, xmin::text from personal_tokens"
    first_use = clock.now()
    await api.get("/api/user", token=token.text)
    [(at, version)] = await run_sql(pool, used)
    assert at == first_use
    clock.advance(timedelta(seconds=59))
    await api.get("/api/user", token=token.text)
    assert await run_sql(pool, used) == [(first_use, version)]
    clock.advance(timedelta(seconds=1))
    await api.get(f"/api/organizations/{'x' * 8}", token=token.text)
    assert (await run_sql(pool, used))[0][0] == first_use + timedelta(minutes=1), "a refused request is a use too"


async def test_the_end_is_exact(api: Api, ports: Ports, clock: FakeClock, user: Account) -> None:
    token = await add_personal_token(ports, user, lifetime=timedelta(days=1))
    clock.advance(timedelta(days=1) - timedelta(seconds=1))
    assert (await api.get("/api/user", token=token.text)).status == 200
    clock.advance(timedelta(seconds=1))
    assert refused(await api.get("/api/user", token=token.text)) == UNAUTHORIZED
