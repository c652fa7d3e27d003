"""The callers that can read an audit log, and the list of event types (decisions 111, 227, 232; security T-1, T-2)."""

import json

import pytest

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from core.kernel import event_catalog
from ports import Ports
from tests.eventing.api.audit.log import LOG, Record, World, actions, logs
from tests.support.builders import Answer, Api, add_account, add_member, run_sql, sign_in


@pytest.mark.slow
async def test_an_organization_sees_nothing_of_the_log_of_another_one(api: Api, world: World, admin_with_entries: Account) -> None:
    own_ids, twin_ids = [
        (await api.get(f"/api/organizations/{slug}/audit-log", token=token)).json["logs"]
        for slug, token in (("acme", world.token), ("twin", world.other_token))
    ]
    assert len(own_ids) == len(twin_ids) == 8
    assert not {entry["id"] for entry in own_ids} & {entry["id"] for entry in twin_ids}
    assert str(world.other_tenant) not in json.dumps(own_ids)
    for slug, token in (("twin", world.token), ("acme", world.other_token)):
        for path in ("audit-log", "audit-log/event-types", "audit-log?target_id=x", "audit-log?page=x"):
            answer = await api.get(f"/api/organizations/{slug}/{path}", token=token)
            assert (answer.status, answer.code) == (403, "FORBIDDEN")


@pytest.mark.parametrize(("role", "status"), [("owner", 200), ("admin", 200), ("member", 403)])
async def test_owners_and_admins_can_read_the_log(api: Api, ports: Ports, pool: Pool, world: World, role: str, status: int) -> None:
    reader = await add_account(ports, "reader@example.com")
    if role == "owner":
        await run_sql(pool, "delete from memberships where org_id = %s", world.org)
    await add_member(pool, world.org, reader.id, role)
    token = (await sign_in(ports, reader)).access_token
    for path in (LOG, f"{LOG}/event-types"):
        assert (await api.get(path, token=token)).status == status


@pytest.mark.parametrize("status", ["pending", "suspended", "rejected"])
async def test_the_log_of_an_organization_that_is_not_active_is_refused(api: Api, world: World, pool: Pool, status: str) -> None:
    await run_sql(pool, "update organizations set status = %s where id = %s", status, world.org)
    for path in (LOG, f"{LOG}/event-types", f"{LOG}?target_type=x"):
        answer = await api.get(path, token=world.token)
        assert (answer.status, answer.code) == (403, "ORGANIZATION_NOT_ACTIVE")


async def test_the_log_of_an_unknown_organization_is_not_found(api: Api, world: World) -> None:
    for path in ("audit-log", "audit-log/event-types", "audit-log?target_type=x"):
        answer: Answer = await api.get(f"/api/organizations/nothing-there/{path}", token=world.token)
        assert (answer.status, answer.code) == (404, "NOT_FOUND")


# Event types


async def test_the_event_types_are_those_of_the_catalog(api: Api, world: World) -> None:
    answer = await api.get(f"{LOG}/event-types", token=world.token)
    assert answer.status == 200
    assert answer.json == [
        {"value": kind.name, "label": kind.label, "category": kind.category} for kind in event_catalog.AUDIT_ACTIONS.values()
    ]
    kinds = {kind["value"]: kind for kind in answer.json}
    assert len(kinds) == len(answer.json)
    assert kinds["api_key.created"] == {"value": "api_key.created", "label": "API key created", "category": "API keys"}
    assert not {"organization.deleted", "user.signup.success", "user.mfa.enabled"} & kinds.keys()


@pytest.mark.slow
async def test_every_event_type_finds_its_entries(api: Api, world: World, record: Record) -> None:
    names = [kind["value"] for kind in (await api.get(f"{LOG}/event-types", token=world.token)).json]
    await record(*names, details={"provider": "password"})
    for name in names:
        [entry] = await logs(api, world, f"?action={name}")
        assert entry["action"] == name
    pages = [await actions(api, world, f"?limit=100&page={page}") for page in (1, 2)]
    assert sorted(pages[0] + pages[1]) == sorted(names)
