"""User attributes: declared by the organization, written by admins, users and API keys, read by claims."""

from typing import Any, Final

from core.kernel.api_scopes import ApiScope
from core.kernel.roles import Permission
from tests.support.builders import Answer, run_sql
from tests.support.personal_tokens import add_personal_token
from tests.support.refusals import BAD, FORBIDDEN, MISSING, refused
from tests.support.services import add_api_key, add_service, add_service_user
from tests.support.tenants import Tenant

COST_CENTER: Final = {"name": "cost_center", "label": "Cost center", "kind": "text"}
CONFLICT: Final = (409, "CONFLICT")


async def send(acme: Tenant, method: str, path: str, body: Any = None, *, role: str = "owner") -> Answer:
    return await acme.api.call(method, f"{acme.path}{path}", body, token=acme.token(role))


async def declare(acme: Tenant, **changes: Any) -> Answer:
    return await send(acme, "POST", "/attributes", {**COST_CENTER, **changes})


async def names(acme: Tenant) -> list[str]:
    return [each["name"] for each in (await send(acme, "GET", "/attributes", role="member")).json["attributes"]]


async def test_attributes_are_declared_changed_and_deleted(acme: Tenant) -> None:
    first = await declare(acme)
    assert first.status == 201, first.text
    assert first.json.items() >= {**COST_CENTER, "writers": ["admin"], "merge": "first", "position": 1}.items()
    assert (await declare(acme, name="teams", kind="list", writers=["user", "admin", "user"], merge="union")).json["writers"] == [
        "user",
        "admin",
    ]
    assert await names(acme) == ["cost_center", "teams"]
    changed = await send(acme, "PATCH", "/attributes/cost_center", {"label": " Center ", "writers": [], "position": 9})
    assert changed.json.items() >= {"label": "Center", "writers": [], "position": 9, "kind": "text"}.items()
    assert await names(acme) == ["teams", "cost_center"]
    for nothing in ({}, {"kind": "number"}, {"name": "center", "created_at": "2020-01-01T00:00:00Z"}):
        refusal = await send(acme, "PATCH", "/attributes/cost_center", nothing)
        assert refused(refusal) == BAD
        assert "Send at least one of label, writers, merge and position." in refusal.text
    same = {name: changed.json[name] for name in ("label", "writers", "merge", "position")}
    assert (await send(acme, "PATCH", "/attributes/cost_center", same)).json == changed.json
    assert (await send(acme, "DELETE", "/attributes/cost_center")).status == 204
    assert refused(await send(acme, "DELETE", "/attributes/cost_center")) == MISSING
    assert refused(await send(acme, "PATCH", "/attributes/cost_center", {})) == MISSING
    actions = await run_sql(acme.pool, "select action, details ->> 'attribute' from audit_log where action ~ 'attribute' order by 1, 2")
    assert actions == [
        ("organization.attribute.created", "cost_center"),
        ("organization.attribute.created", "teams"),
        ("organization.attribute.deleted", "cost_center"),
        ("organization.attribute.updated", "cost_center"),
    ]


async def test_invalid_attributes_are_refused(acme: Tenant) -> None:
    await declare(acme)
    assert refused(await declare(acme)) == CONFLICT
    for changes in ({"name": "A"}, {"label": ""}, {"kind": "uuid"}, {"writers": ["owner"]}, {"merge": "union"}, {"name": "x\x00"}):
        assert refused(await declare(acme, **changes)) == BAD, changes
    assert refused(await send(acme, "PATCH", "/attributes/cost_center", {"merge": "union"})) == BAD
    await run_sql(
        acme.pool,
        "insert into organization_attributes select %s, 'a' || n, 'A', 'text', '{}', 'first', n, now() from generate_series(1, 49) n",
        acme.org,
    )
    assert refused(await declare(acme, name="one_more")) == CONFLICT


async def test_admins_write_the_values_of_members(acme: Tenant) -> None:
    await declare(acme)
    await declare(acme, name="level", kind="number", writers=["application"])
    path = f"/members/{acme.people['member'].id}/attributes"
    empty = {"cost_center": None, "level": None}
    assert (await send(acme, "GET", path)).json == {"values": empty, "effective": empty}
    assert (await send(acme, "PATCH", path, {"values": {"cost_center": "4711"}}, role="admin")).json["values"]["cost_center"] == "4711"
    assert refused(await send(acme, "PATCH", path, {"values": {"level": 1}})) == FORBIDDEN
    for values in ({"cost_center": 5}, {"unknown": "x"}, {}, {"cost_center": {"a": 1}}, {"cost_center": "\x00"}):
        assert refused(await send(acme, "PATCH", path, {"values": values})) == BAD, values
    assert refused(await send(acme, "GET", f"/members/{acme.org}/attributes")) == MISSING
    details = await run_sql(acme.pool, "select details from audit_log where action = 'user.attributes_updated'")
    assert details == [({"attributes": ["cost_center"], "writer": "admin"},)], "without the value"
    assert (await send(acme, "PATCH", path, {"values": {"cost_center": None}})).json["values"]["cost_center"] is None


async def test_users_write_their_own_values_where_they_may(acme: Tenant, other_tenant: Tenant) -> None:
    await declare(acme)
    await declare(acme, name="nick", label="Nickname", writers=["user"])
    token = acme.token("member")
    shown = await acme.api.get("/api/user/attributes", token=token)
    nick = {"name": "nick", "label": "Nickname", "kind": "text", "value": None, "effective": None, "is_writable": True}
    cost_center = {**COST_CENTER, "value": None, "effective": None, "is_writable": False}
    assert shown.json == {"organizations": [{"organization": "acme", "name": "Acme", "attributes": [cost_center, nick]}]}

    async def change(organization: str, **values: object) -> Answer:
        return await acme.api.call("PATCH", "/api/user/attributes", {"organization": organization, "values": values}, token=token)

    values = {"cost_center": None, "nick": "Ada"}
    assert (await change("acme", nick="Ada")).json == {"values": values, "effective": values}
    assert refused(await change("acme", cost_center="1")) == FORBIDDEN
    for organization in (other_tenant.slug, "unknown"):
        assert refused(await change(organization, nick="Ada")) == MISSING


async def test_admins_and_api_keys_write_the_values_of_end_users(acme: Tenant) -> None:
    await declare(acme, writers=["admin", "application"])
    await declare(acme, name="secret", writers=["admin"])
    service = await add_service(acme.pool, acme.org)
    user = acme.people["member"]
    path = f"/users/{user.id}/attributes"
    assert refused(await send(acme, "GET", path)) == MISSING, "not an end user yet"
    assert refused(await send(acme, "PATCH", path, {"values": {"cost_center": "1"}})) == MISSING
    await add_service_user(acme.ports, service, user.id)
    assert (await send(acme, "PATCH", path, {"values": {"cost_center": "1"}})).json["values"]["cost_center"] == "1"
    key = await add_api_key(acme.pool, service)
    of_key = f"/api/service/users/{user.id}/attributes"

    async def call(method: str, body: Any = None) -> Answer:
        return await acme.api.call(method, of_key, body, headers={"X-Api-Key": key})

    assert (await call("PATCH", {"values": {"cost_center": "2"}})).json["values"] == {"cost_center": "2", "secret": None}
    assert (await call("GET")).json["values"]["cost_center"] == "2"
    assert refused(await call("PATCH", {"values": {"secret": "2"}})) == FORBIDDEN


async def test_who_may_write_and_not_read_gets_only_the_written_values(acme: Tenant) -> None:
    """The token has no scope to read members and end users, and the key no permission to read users."""
    await declare(acme, writers=["admin", "application"])
    await declare(acme, name="secret", writers=["admin"])
    service, user = await add_service(acme.pool, acme.org), acme.people["member"]
    await add_service_user(acme.ports, service, user.id)
    group = (await send(acme, "POST", "/groups", {"name": "Lab"})).json["id"]
    await send(acme, "PUT", f"/groups/{group}/members/{user.id}")
    paths = [f"{acme.path}/{each}/attributes" for each in (f"members/{user.id}", f"users/{user.id}", f"groups/{group}")]
    for path in paths:
        await acme.api.patch(path, {"values": {"secret": "hidden"}}, token=acme.token("owner"))
    scopes = (ApiScope.MEMBERS_WRITE, ApiScope.END_USERS_WRITE)
    token = (await add_personal_token(acme.ports, acme.people["owner"], acme.org, scopes)).text
    key = await add_api_key(acme.pool, service, [Permission.WRITE_USERS])
    answers = [await acme.api.patch(path, {"values": {"cost_center": "1"}}, token=token) for path in paths]
    of_key, body = f"/api/service/users/{user.id}/attributes", {"values": {"cost_center": None}}
    answers.append(await acme.api.call("PATCH", of_key, body, headers={"X-Api-Key": key}))
    assert [answer.json["values"] for answer in answers] == [{"cost_center": "1"}] * 3 + [{"cost_center": None}]
    assert "hidden" not in "".join(answer.text for answer in answers)


async def test_the_values_end_with_the_last_relation_to_the_organization(acme: Tenant) -> None:
    await declare(acme)
    user = acme.people["member"]
    await send(acme, "PATCH", f"/members/{user.id}/attributes", {"values": {"cost_center": "1"}})
    service = await add_service(acme.pool, acme.org)
    await add_service_user(acme.ports, service, user.id)
    count = "select count(*) from attribute_values"
    await run_sql(acme.pool, "delete from memberships where user_id = %s", user.id)
    assert await run_sql(acme.pool, count) == [(1,)], "still an end user"
    await run_sql(acme.pool, "delete from service_users where user_id = %s", user.id)
    await run_sql(acme.pool, "delete from end_users where user_id = %s", user.id)
    assert await run_sql(acme.pool, count) == [(0,)]


async def test_an_attribute_that_claims_use_is_kept(acme: Tenant) -> None:
    await declare(acme)
    await add_service(acme.pool, acme.org)
    document = {"values": {"cc": {"sources": ["attribute:cost_center"]}}, "version": 0}
    assert (await send(acme, "PUT", "/services/shop/claims", document)).status == 200
    assert refused(await send(acme, "DELETE", "/attributes/cost_center")) == CONFLICT
    await send(acme, "DELETE", "/services/shop/claims")
    assert (await send(acme, "DELETE", "/attributes/cost_center")).status == 204


async def test_a_new_attribute_does_not_get_the_values_of_a_deleted_one(acme: Tenant) -> None:
    await declare(acme)
    path = f"/members/{acme.people['member'].id}/attributes"
    await send(acme, "PATCH", path, {"values": {"cost_center": "1"}})
    await send(acme, "DELETE", "/attributes/cost_center")
    await declare(acme, kind="number")
    assert (await send(acme, "GET", path)).json["effective"] == {"cost_center": None}
