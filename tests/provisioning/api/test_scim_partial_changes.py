"""Requests that deactivate a user are applied as far as they can be (security C-5)."""

from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.provisioning.api.users import FULL, load_accounts
from tests.support.builders import add_account, run_sql
from tests.support.scim import Directory, problem
from tests.support.tenants import Tenant

DEACTIVATE = {"op": "Replace", "path": "active", "value": "False"}
REFUSED: list[Any] = [
    {"op": "move", "path": "title"},
    "x",
    {"op": "replace", "path": "nothing", "value": "x"},
    {"op": "replace", "path": "userName", "value": 5},
    {"op": "replace", "path": "userName", "value": "not an address"},
    {"op": "remove", "path": "userName"},
    {"op": "replace", "path": "emails", "value": [{"value": "not an address", "primary": True}]},
    {"op": "replace", "path": 'emails[type eq "secret@home.example"].value', "value": "secret@home.example"},
    {"op": "replace", "path": "displayName", "value": "secret" * 100},
    {"op": "replace", "path": "id", "value": "secret"},
    {"op": "replace", "value": {"active": False, "name": 5, "title": ["secret", "secret"]}},
    {"op": "replace", "value": {"active": False, "displayName": "secret", "displayname": "x"}},
    {"op": "remove"},
]


@pytest.mark.parametrize("operation", REFUSED, ids=range(len(REFUSED)))
async def test_a_patch_that_deactivates_is_applied_as_far_as_it_can_be(acme: Tenant, directory: Directory, operation: Any) -> None:
    title = {"op": "add", "path": "title", "value": "Leaver"}
    for number, operations in enumerate(([operation, title, DEACTIVATE], [DEACTIVATE, title, operation])):
        user = await directory.create_user(f"p{number}@acme.example", **FULL)
        with capture_logs() as logs:
            answer = await directory.call("PATCH", f"/Users/{user['id']}", {"Operations": operations})
        assert answer.status == 200, answer.text
        assert answer.json == {**user, "active": False, "title": "Leaver", "meta": answer.json["meta"]}
        [line] = [line for line in logs if line["event"] == "scim_attributes_skipped"]
        assert (bool(line["refused"]), line["user_id"], line["org_id"]) == (True, user["id"], str(acme.org))
        assert "secret" not in str(line)
        assert not (await directory.call("PATCH", f"/Users/{user['id']}", {"Operations": [operation]})).json.get("active")


async def test_a_replacement_that_deactivates_is_applied_as_far_as_it_can_be(directory: Directory) -> None:
    bodies: list[dict[str, Any]] = [{"userName": "not an address"}, {"displayName": 5}, {"emails": [5]}, {"userName": 5, "name": "x"}, {}]
    for number, fields in enumerate(bodies):
        user = await directory.create_user(f"p{number}@acme.example", **FULL)
        answer = await directory.put(user["id"], **{**FULL, **fields}, active=False)
        assert answer.status == 200, answer.text
        assert answer.json == {**user, "active": False, "meta": answer.json["meta"]}
        assert problem(await directory.put(user["id"], **{**FULL, **fields}))[0] == 400


@pytest.mark.parametrize("method", ["put", "patch"])
@pytest.mark.parametrize("reason", ["taken", "domain of another organization"])
async def test_a_user_name_that_is_refused_does_not_prevent_deactivation(
    acme: Tenant, other_tenant: Tenant, directory: Directory, reason: str, method: str
) -> None:
    """The user changed their address, and the directory still sends the old address with every request."""
    user = await directory.create_user("old@acme.example")
    refusal: tuple[int, str | None] = (409, "uniqueness")
    if reason == "domain of another organization":
        refusal = (403, None)
        await run_sql(
            acme.pool,
            "insert into domains (org_id, domain, challenge, verified_at, created_at) values (%s, 'acme.example', 'x', now(), now())",
            other_tenant.org,
        )
    else:
        await add_account(acme.ports, "wanted@acme.example", None)
    if method == "put":
        answer = await directory.put(user["id"], userName="wanted@acme.example", displayName="Old", active=False)
    else:
        changes = ("userName", "wanted@acme.example"), ("displayName", "Old"), ("active", "False")
        answer = await directory.patch(user["id"], *({"op": "replace", "path": path, "value": value} for path, value in changes))
    assert answer.status == 200, answer.text
    profile = {name: answer.json[name] for name in ("userName", "displayName", "active")}
    assert profile == {"userName": "old@acme.example", "displayName": "Old", "active": False}
    assert (await load_accounts(acme, "old@acme.example"))[0][4]
    renamed = await directory.patch(user["id"], {"op": "replace", "path": "userName", "value": "wanted@acme.example"})
    assert problem(renamed) == refusal
    second_answer = await directory.put(user["id"], userName="wanted@acme.example", displayName="New", active=True)
    assert problem(second_answer) == refusal
