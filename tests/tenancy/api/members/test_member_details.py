"""What an organization sees about a member, and how their sessions in it end (security R-9, S-4)."""

from tests.support.builders import run_sql, sign_in
from tests.support.refusals import MISSING, refused
from tests.support.tenants import Tenant


async def test_admins_see_a_member_with_the_sessions_in_their_organization_only(acme: Tenant, other_tenant: Tenant) -> None:
    member = acme.people["member"]
    await other_tenant.join("both", member)
    await sign_in(acme.ports, member)
    await run_sql(acme.pool, "update users set mfa_enabled_at = created_at, name = 'Ada' where id = %s", member.id)
    answer = await acme.api.get(f"{acme.path}/members/{member.id}", token=acme.token("admin"))
    assert answer.status == 200
    assert (answer.json["user"]["name"], answer.json["membership"]["role"]) == ("Ada", "member")
    assert (answer.json["mfa_enabled"], answer.json["email_verified"], answer.json["last_login_at"]) == (True, True, None)
    assert answer.json["sessions"] == {"active_count": 1, "last_created_at": "2026-03-14T15:09:26.535897Z"}


async def test_an_unconfirmed_membership_reveals_nothing_of_the_account(acme: Tenant) -> None:
    member = acme.people["member"]
    await run_sql(acme.pool, "update users set mfa_enabled_at = created_at, name = 'Ada' where id = %s", member.id)
    await run_sql(acme.pool, "update memberships set confirmed_at = null where user_id = %s", member.id)
    answer = await acme.api.get(f"{acme.path}/members/{member.id}", token=acme.token("admin"))
    hidden = (answer.json["user"]["name"], answer.json["confirmed_at"], answer.json["mfa_enabled"], answer.json["email_verified"])
    assert (answer.status, hidden) == (200, (None, None, None, None))


async def test_ending_the_sessions_of_a_member_ends_those_in_the_organization_only(acme: Tenant, other_tenant: Tenant) -> None:
    member = acme.people["member"]
    await other_tenant.join("both", member)
    own = await sign_in(acme.ports, member)
    answer = await acme.api.delete(f"{acme.path}/members/{member.id}/sessions", token=acme.token("admin"))
    assert (answer.status, answer.json) == (200, {"sessions_revoked": 1})
    tokens = (acme.token("member"), own.access_token, other_tenant.token("both"))
    assert [(await acme.api.get("/api/user", token=token)).status for token in tokens] == [401, 200, 200]
    recorded = (await acme.recorded())[-1]
    assert recorded == ("user.sessions_revoked", "user", str(member.id), acme.people["admin"].id, {"sessions_revoked": 1})
    assert (await acme.check())["member"] == "member"


async def test_users_who_are_no_members_are_not_found(acme: Tenant, other_tenant: Tenant) -> None:
    path = f"{acme.path}/members/{other_tenant.id('owner')}"
    assert refused(await acme.api.get(path, token=acme.token("admin"))) == MISSING
    assert refused(await acme.api.delete(f"{path}/sessions", token=acme.token("admin"))) == MISSING
    assert (await acme.api.get("/api/user", token=other_tenant.token("owner"))).status == 200
