"""Audit log entries: fields, actors and password changes (security I-5, L-5)."""

import json
from uuid import UUID

from adapters.postgres.engine.pool import Pool
from core.kernel.causes import SYSTEM, Anonymous
from ports import Ports
from tests.eventing.api.audit.log import LOG, Record, World, logs, person
from tests.fakes.outside import FakeClock, FakeMailTransport
from tests.support.builders import PASSWORD, Api, add_account, add_member, add_platform_owner, deliver, impersonate, link, run_sql, sign_in

PERSON = Anonymous(address="203.0.113.9", agent="tests/1.0")
FIELDS = [
    *["id", "org_id", "actor", "action", "target_type", "target_id", "ip_address", "user_agent", "success", "details", "created_at"],
    *["sentence", "actor_name", "target_name", "location"],
]


async def test_an_entry_has_the_documented_fields(api: Api, world: World, record: Record, clock: FakeClock) -> None:
    details = {"service_slug": "shop", "service_name": "Shop", "permissions": ["read:users"], "nested": {"a": None}}
    await record("service.created", target="service-1", by=person(world.owner), details=details)
    answer = await api.get(LOG, token=world.token)
    assert list(answer.json) == ["logs", "pagination"]
    [entry] = answer.json["logs"]
    assert list(entry) == FIELDS
    assert str(UUID(entry.pop("id")))
    assert entry == {
        "org_id": str(world.org),
        "actor": {"id": str(world.owner.id), "email": "owner@example.com", "is_platform_owner": False, "kind": "user", "name": None},
        "action": "service.created",
        "target_type": "service",
        "target_id": "service-1",
        "ip_address": "203.0.113.9",
        "user_agent": "tests/1.0",
        "success": True,
        "details": details,
        "created_at": clock.now().isoformat().replace("+00:00", "Z"),
        "sentence": "owner@example.com created the application Shop",
        "actor_name": None,
        "target_name": "Shop",
        "location": None,
    }


async def test_an_actor_is_shown_with_the_present_data_of_the_account(api: Api, world: World, record: Record, pool: Pool) -> None:
    await record("user.removed", by=person(world.owner))
    await run_sql(pool, "update users set email = 'new@example.com', is_platform_owner = true where id = %s", world.owner.id)
    [entry] = await logs(api, world)
    assert entry["actor"] == {
        "id": str(world.owner.id),
        "email": "new@example.com",
        "is_platform_owner": True,
        "kind": "user",
        "name": None,
    }


async def test_an_actor_without_an_account_is_unknown(api: Api, ports: Ports, world: World, record: Record, pool: Pool) -> None:
    deleted = await add_account(ports, "deleted@example.com")
    await record("user.removed", by=person(deleted))
    await run_sql(pool, "delete from users where id = %s", deleted.id)
    [entry] = await logs(api, world)
    assert entry["actor"] == {"id": "unknown", "email": "deleted-user@unknown", "is_platform_owner": False, "kind": "user", "name": None}
    assert (entry["ip_address"], entry["user_agent"]) == ("203.0.113.9", "tests/1.0")


async def test_a_background_job_is_shown_as_the_system_without_an_address(api: Api, world: World, record: Record) -> None:
    await record("invitation.expired", by=SYSTEM)
    [entry] = await logs(api, world)
    assert entry["actor"] == {"id": "system", "email": "system@internal", "is_platform_owner": False, "kind": "system", "name": None}
    assert (entry["ip_address"], entry["user_agent"]) == (None, None)


async def test_a_caller_without_a_session_is_shown_as_anonymous_with_an_address(api: Api, world: World, record: Record) -> None:
    await record("invitation.declined", by=PERSON)
    [entry] = await logs(api, world)
    assert entry["actor"] == {
        "id": "anonymous",
        "email": "anonymous@internal",
        "is_platform_owner": False,
        "kind": "anonymous",
        "name": None,
    }
    assert (entry["ip_address"], entry["user_agent"]) == ("203.0.113.9", "tests/1.0")


async def test_an_actor_without_account_is_found_by_its_id_in_the_log(api: Api, world: World, record: Record) -> None:
    for action, by in (("invitation.declined", PERSON), ("invitation.expired", SYSTEM), ("user.invited", person(world.owner))):
        await record(action, by=by)
    for actor_id, expected in (("anonymous", ["invitation.declined"]), ("system", ["invitation.expired"]), ("unknown", [])):
        assert [entry["action"] for entry in await logs(api, world, f"?actor_id={actor_id}")] == expected


async def test_a_request_without_user_agent_has_none(api: Api, world: World, record: Record) -> None:
    await record("invitation.declined", by=Anonymous(address="203.0.113.9"))
    [entry] = await logs(api, world)
    assert (entry["ip_address"], entry["user_agent"]) == ("203.0.113.9", None)


async def test_an_entry_during_an_impersonation_names_both_persons(api: Api, ports: Ports, world: World, record: Record) -> None:
    support = await add_platform_owner(ports, "support@example.com")
    await record("user.invited", by=person(world.owner, impersonator_id=support.id), details={"role": "member", "impersonator": "forged"})
    [entry] = await logs(api, world)
    assert entry["actor"]["email"] == "owner@example.com"
    assert entry["details"] == {"role": "member", "impersonator": {"id": str(support.id), "email": "support@example.com"}}


async def test_an_impersonator_without_an_account_is_unknown(api: Api, ports: Ports, world: World, record: Record, pool: Pool) -> None:
    support = await add_platform_owner(ports, "support@example.com")
    await record("user.invited", by=person(world.owner, impersonator_id=support.id))
    await run_sql(pool, "delete from users where id = %s", support.id)
    [entry] = await logs(api, world)
    assert entry["details"] == {"impersonator": {"id": "unknown", "email": "deleted-user@unknown"}}


async def test_an_impersonator_can_read_the_log(api: Api, ports: Ports, world: World, record: Record) -> None:
    await record("user.invited")
    support = await add_platform_owner(ports, "support@example.com")
    answer = await api.get(LOG, token=await impersonate(ports, support, world.owner, world.org))
    assert (answer.status, len(answer.json["logs"])) == (200, 1)


# Passwords


async def test_a_password_change_is_in_the_logs_of_all_organizations_of_the_user(api: Api, world: World, pool: Pool) -> None:
    await add_member(pool, world.other_tenant, world.owner.id, confirmed=True)
    await api.post(
        "/api/user/change-password",
        {"current_password": PASSWORD, "new_password": "another good password"},
        token=world.token,
    )
    for path, token in ((LOG, world.token), ("/api/organizations/twin/audit-log", world.other_token)):
        [entry] = (await api.get(path, token=token)).json["logs"]
        assert (entry["action"], entry["target_type"], entry["target_id"]) == ("security.password.changed", "user", str(world.owner.id))
        assert (entry["actor"]["id"], entry["details"]) == (str(world.owner.id), {"method": "change"})


async def test_a_password_reset_is_logged_with_an_anonymous_actor_and_the_method(
    api: Api, ports: Ports, world: World, sent: FakeMailTransport
) -> None:
    await api.post("/api/auth/forgot-password", {"email": "owner@example.com"})
    await deliver(ports)
    token = link(sent.emails[-1])
    answer = await api.post(
        "/api/auth/reset-password", {"token": token, "new_password": "another good password"}, headers={"User-Agent": "mail/2"}
    )
    assert answer.status == 200
    new_token = (await sign_in(ports, world.owner)).access_token
    [entry] = (await api.get(LOG, token=new_token)).json["logs"]
    assert (entry["action"], entry["target_id"], entry["details"]) == (
        "security.password.changed",
        str(world.owner.id),
        {"method": "reset"},
    )
    assert (entry["actor"]["id"], entry["user_agent"], entry["ip_address"] is None) == ("anonymous", "mail/2", False)
    assert "another good password" not in json.dumps(entry)
    assert token not in json.dumps(entry)
