"""Group attributes: written by admins, and valid for users without their own value."""

from typing import Any

from core.kernel.values import new_id
from tests.support.builders import Answer, run_sql
from tests.support.refusals import BAD, FORBIDDEN, MISSING, refused
from tests.support.scim import directory_of
from tests.support.services import add_api_key, add_service, add_service_user
from tests.support.tenants import Tenant
from tests.tenancy.groups import GroupAdmin


async def declare(acme: Tenant, name: str, kind: str = "text", merge: str = "first", *writers: str) -> None:
    body = {"name": name, "label": name, "kind": kind, "merge": merge, "writers": list(writers or ("admin",))}
    answer = await acme.api.post(f"{acme.path}/attributes", body, token=acme.token("owner"))
    assert answer.status == 201, answer.text


async def change(groups: GroupAdmin, group: str, **values: Any) -> Answer:
    return await groups.call("PATCH", f"/{group}/attributes", {"values": values})


async def test_a_user_without_an_own_value_has_those_of_the_groups(acme: Tenant) -> None:
    groups, user = GroupAdmin(acme), acme.people["member"].id
    await declare(acme, "site")
    await declare(acme, "tools", "list", "union")
    await declare(acme, "level", "number", "greatest")
    ids = [await groups.create(name) for name in ("Ops", "core", "Sales")]
    values: list[dict[str, Any]] = [
        {"site": "Delft", "tools": ["b", "a"], "level": 2},
        {"site": "Oslo", "tools": ["a", "c"], "level": 7},
        {"level": 9},
    ]
    for group, of_group in zip(ids, values, strict=True):
        assert (await change(groups, group, **of_group)).json["values"] == {"site": None, "tools": None, "level": None, **of_group}
    for group in ids[:2]:
        await groups.add(group, user)
    path = f"{acme.path}/members/{user}/attributes"

    async def shown() -> dict[str, Any]:
        answer: dict[str, Any] = (await acme.api.get(path, token=acme.token("admin"))).json
        return answer

    nothing = {"site": None, "tools": None, "level": None}
    assert await shown() == {"values": nothing, "effective": {"site": "Oslo", "tools": ["a", "c", "b"], "level": 7}}
    await acme.api.call("PATCH", path, {"values": {"site": "Paris", "tools": ["z"]}}, token=acme.token("admin"))
    assert (await shown())["effective"] == {"site": "Paris", "tools": ["z"], "level": 7}
    own = (await acme.api.get("/api/user/attributes", token=acme.token("member"))).json["organizations"][0]["attributes"]
    assert [(each["value"], each["effective"]) for each in own] == [("Paris", "Paris"), (["z"], ["z"]), (None, 7)]
    service = await add_service(acme.pool, acme.org)
    await add_service_user(acme.ports, service, user)
    key = await add_api_key(acme.pool, service)
    of_key = await acme.api.get(f"/api/service/users/{user}/attributes", headers={"X-Api-Key": key})
    assert of_key.json == await shown()
    await groups.remove(ids[1], user)
    assert (await shown())["effective"]["level"] == 2
    await acme.api.delete(f"{acme.path}/attributes/level", token=acme.token("owner"))
    await declare(acme, "level")
    assert (await shown())["effective"]["level"] is None, "a new attribute has no values of a deleted one"
    await groups.call("DELETE", f"/{ids[0]}")
    rows = await run_sql(acme.pool, "select group_id::text from group_attribute_values")
    assert {row[0] for row in rows} == {*ids[1:]}


async def test_the_values_of_a_group_are_checked_and_recorded_without_the_values(acme: Tenant, other_tenant: Tenant) -> None:
    groups = GroupAdmin(acme)
    await declare(acme, "site")
    await declare(acme, "tools", "list", "union")
    await declare(acme, "nick", "text", "first", "user", "directory")
    group = await groups.create()
    assert (await change(groups, group, site="Delft")).status == 200
    assert (await change(groups, group, site="Delft")).status == 200, "nothing changes"
    wrong: tuple[dict[str, Any], ...] = ({"site": 5}, {"unknown": "x"}, {}, {"site": "\x00"}, {"tools": ["x" * 100] * 45})
    for values in wrong:
        assert refused(await change(groups, group, **values)) == BAD, values
    assert refused(await change(groups, group, nick="x")) == FORBIDDEN
    theirs = await GroupAdmin(other_tenant).create()
    for unknown in (theirs, str(new_id())):
        assert refused(await change(groups, unknown, site="x")) == MISSING
        assert refused(await groups.call("GET", f"/{unknown}/attributes")) == MISSING
    assert refused(await GroupAdmin(acme, "member").call("GET", f"/{group}/attributes")) == FORBIDDEN
    details = await run_sql(acme.pool, "select details, target_id from audit_log where action = 'group.attributes_updated'")
    assert details == [({"group_name": "Engineering", "attributes": ["site"]}, group)]


async def test_admins_write_the_values_of_a_group_of_the_directory(acme: Tenant) -> None:
    groups = GroupAdmin(acme)
    await declare(acme, "site")
    group = await groups.create()
    await directory_of(acme, groups=True)
    await run_sql(acme.pool, "update groups set scim_token_id = (select id from scim_tokens) where id = %s", group)
    assert (await groups.call("PATCH", f"/{group}", {"name": "Other"})).status == 409
    assert (await change(groups, group, site="Delft")).json == {"values": {"site": "Delft"}}
    assert (await groups.call("GET", f"/{group}/attributes")).json == {"values": {"site": "Delft"}}
