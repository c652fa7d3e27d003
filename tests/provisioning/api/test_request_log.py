"""The log about SCIM requests."""

import json
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from core.provisioning.model.directories import MAX_ENTRIES, attributes_of_body, attributes_of_filter
from tests.fakes.outside import FakeClock
from tests.support.builders import run_sql
from tests.support.scim import GRACE, directory_of
from tests.support.tenants import Tenant


async def logged(tenant: Tenant) -> list[dict[str, Any]]:
    answer = await tenant.api.get(f"{tenant.path}/scim-requests", token=tenant.token("admin"))
    assert answer.status == 200, answer.text
    requests: list[dict[str, Any]] = answer.json["requests"]
    return requests


async def test_admins_see_requests_without_values(acme: Tenant, other_tenant: Tenant, clock: FakeClock) -> None:
    directory = await directory_of(acme)
    emails = [{"value": GRACE, "type": "work"}]
    user = await directory.create_user(name={"givenName": "Grace"}, emails=emails, **{"secret@acme.example": "x"})
    await directory.patch(user["id"], {"op": "replace", "path": 'emails[value eq "grace@acme.example"].value', "value": "new@acme.example"})
    await directory.try_create_user()
    await directory.find_user_names(f'userName eq "{GRACE}"')
    await directory.call("GET", "/Users/grace@acme.example")
    await directory.call("GET", "/Users?filter=userName+eq+grace@acme.example")
    requests = await logged(acme)
    names = ["userName", "name.givenName", "emails.value", "emails.type", "?"]
    users, of_user = "/scim/v2/Users", f"/scim/v2/Users/{user['id']}"
    assert [(entry["method"], entry["path"], entry["attributes"], entry["status"], entry["scim_type"]) for entry in reversed(requests)] == [
        ("POST", users, names, 201, None),
        ("PATCH", of_user, ["emails.value"], 200, None),
        ("POST", users, ["userName"], 409, "uniqueness"),
        ("GET", users, ["userName"], 200, None),
        ("GET", "/scim/v2/Users/{user_id}", [], 404, None),
        ("GET", users, ["userName"], 400, "invalidFilter"),
    ]
    assert [entry["error"] is None for entry in reversed(requests)] == [True, True, False, True, False, False]
    assert requests[0]["at"] == clock.now().isoformat().replace("+00:00", "Z")
    stored = json.dumps(await run_sql(acme.pool, "select scim_requests::text from scim_requests"))
    for value in ("grace", "Grace", "acme.example", directory.token):
        assert value not in stored
    assert await logged(other_tenant) == []


async def test_refused_requests_of_a_known_organization_are_logged(acme: Tenant, clock: FakeClock) -> None:
    path = f"{acme.path}/scim-tokens"
    until = (clock.now() + timedelta(minutes=1)).isoformat()
    token = (await acme.api.post(path, {"name": "Short", "expires_at": until}, token=acme.token("owner"))).json
    directory = await directory_of(acme)
    assert (await directory.call("GET", "/Users", token=f"{directory.token}x")).status == 401
    clock.advance(timedelta(minutes=1))
    assert (await directory.call("GET", "/Users", token=token["token"])).status == 401
    [entry] = await logged(acme)
    assert (entry["status"], entry["token_id"]) == (401, token["id"])
    await run_sql(acme.pool, "update organizations set status = 'suspended' where id = %s", acme.org)
    assert (await directory.call("GET", "/Users")).status == 403
    assert await run_sql(acme.pool, "select status from scim_requests order by id") == [(401,), (403,)]


@pytest.mark.slow
async def test_the_last_hundred_requests_are_kept(acme: Tenant) -> None:
    directory = await directory_of(acme)
    foreign: UUID = uuid4()
    copy = """
        insert into scim_requests (org_id, at, token_id, method, path, attributes, status)
        select %s, now(), gen_random_uuid(), 'GET', '/scim/v2/Users', '{}', 200 from generate_series(1, 120)"""
    await run_sql(acme.pool, copy, acme.org)
    await run_sql(acme.pool, copy, foreign)
    await directory.call("GET", f"/Users/{acme.org}")
    assert await run_sql(acme.pool, "select count(*) from scim_requests where org_id = %s", acme.org) == [(MAX_ENTRIES,)]
    assert await run_sql(acme.pool, "select count(*) from scim_requests where org_id = %s", foreign) == [(120,)]
    requests = await logged(acme)
    assert (len(requests), requests[0]["status"], requests[1]["status"]) == (MAX_ENTRIES, 404, 200)


def test_names_are_found_without_values() -> None:
    operations = [
        {"op": "replace", "value": {"active": False, "name.givenName": "Ada"}},
        {"op": "remove", "path": 'members[value eq "ada"]'},
        {"op": "add", "path": "urn:ietf:params:scim:schemas:core:2.0:User:title", "value": "x"},
        {"op": "add", "path": "ada@acme.example", "value": "x"},
        5,
    ]
    assert attributes_of_body({"schemas": ["x"], "Operations": operations}) == [
        "active", "name.givenName", "members", "urn:ietf:params:scim:schemas:core:2.0:User:title", "?",
    ]  # fmt: skip
    assert attributes_of_body({"a": {"b": {"c": 1}}, "d": []}) == ["a.b", "d"]
    assert len(attributes_of_body({f"a{number}": 1 for number in range(1000)})) == 50
    assert attributes_of_filter('not (a.b eq "c eq d" and emails[type pr]) or x co "y') == ["a.b", "type", "x"]
    assert attributes_of_filter("((((" * 1000) == attributes_of_filter('"' * 4000) == []
