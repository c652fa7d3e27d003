"""An organization revokes an end user's sessions (decision 58; security S-4, T-3)."""

from datetime import timedelta

from tests.applications.api.end_users.applications import Applications
from tests.fakes.outside import FakeClock
from tests.support.builders import add_member, add_platform_owner, impersonate, run_sql, sign_in
from tests.support.tenants import Tenants


async def test_revocation_ends_only_sessions_in_the_organization(apps: Applications, tenants: Tenants, clock: FakeClock) -> None:
    user, ports = await apps.person("ada"), tenants.ports
    await apps.person("eve")
    for tenant in (apps.acme, apps.other_tenant):
        await add_member(tenants.pool, tenant.org, user.id)
    ended_sessions = [await apps.session("ada", "shop"), await apps.session("ada", "wiki"), await sign_in(ports, user, apps.acme.org)]
    kept_sessions = [
        await apps.session("ada", "other"),
        await sign_in(ports, user),
        await sign_in(ports, user, apps.other_tenant.org),
        await apps.session("eve", "shop"),
    ]
    answer = await apps.revoke("ada")
    assert (answer.status, set(answer.json), answer.json["sessions_revoked"]) == (200, {"message", "sessions_revoked"}, 3)
    assert await apps.live_sessions(*ended_sessions) == [False] * 3
    assert await apps.live_sessions(*kept_sessions) == [True] * 4
    assert (await apps.show("ada")).json["sessions"] == {"active_count": 0, "last_created_at": None}
    [entry] = await apps.acme.log()
    assert entry == {
        "action": "user.sessions_revoked",
        "target_type": "user",
        "target_id": str(user.id),
        "actor_id": apps.acme.people["admin"].id,
        "impersonator_id": None,
        "address": entry["address"],
        "details": {"sessions_revoked": 3},
    }
    assert await apps.acme.webhook_events() == [("user.sessions_revoked", str(user.id), {"sessions_revoked": 3})]
    assert await apps.other_tenant.log() == []
    new_session = await apps.session("ada", "shop")
    assert await apps.live_sessions(new_session) == [True], "the user can sign in again"


async def test_revocation_without_sessions_succeeds(apps: Applications, clock: FakeClock) -> None:
    await apps.person("ada", "shop")
    expired = await apps.session("ada", "shop")
    clock.advance(timedelta(days=31))
    await apps.acme.sign_in("admin")
    await apps.session("ada", "other")
    answer = await apps.revoke("ada")
    assert (answer.status, answer.json["sessions_revoked"]) == (200, 0)
    assert await run_sql(apps.acme.pool, "select ended_at from sessions where id = %s", expired.session_id) == [(None,)]
    assert (await apps.acme.entry("user.sessions_revoked"))["details"] == {"sessions_revoked": 0}


async def test_admins_can_revoke_their_own_sessions(apps: Applications) -> None:
    apps.people["admin"] = apps.acme.people["admin"]
    await apps.use("admin", "shop")
    assert (await apps.revoke("admin")).json["sessions_revoked"] == 1
    assert (await apps.page(by="admin")).status == 401


async def test_a_revocation_by_an_impersonator_records_both_accounts(apps: Applications, tenants: Tenants) -> None:
    steward, owner = await add_platform_owner(tenants.ports), apps.acme.people["owner"]
    await apps.person("ada")
    await apps.session("ada", "shop")
    token = await impersonate(tenants.ports, steward, owner)
    path = f"{apps.acme.path}/users/{apps.people['ada'].id}/sessions"
    assert (await tenants.api.delete(path, token=token)).json["sessions_revoked"] == 1
    entry = await apps.acme.entry("user.sessions_revoked")
    assert (entry["actor_id"], entry["impersonator_id"]) == (owner.id, steward.id)
