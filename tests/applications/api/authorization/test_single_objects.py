"""Single permissions and roles. Every change is a change to the document."""

from datetime import timedelta

from tests.applications.api.authorization.store import DOCUMENT, Store
from tests.fakes.outside import FakeClock
from tests.support.tenants import Tenant


async def test_a_permission_is_declared_described_and_removed(declared: Store) -> None:
    declaration = {"name": "invoices:read", "description": "Read invoices"}
    answer = await declared.call("POST", "/permissions", declaration)
    assert (answer.status, answer.json) == (201, declaration)
    assert declaration in (await declared.document())["permissions"]
    answer = await declared.call("PATCH", "/permissions/invoices:read", {"description": None})
    assert (answer.status, answer.json) == (200, {"name": "invoices:read", "description": None})
    assert (await declared.call("DELETE", "/permissions/invoices:read")).status == 204
    assert await declared.document() == DOCUMENT
    assert (await declared.get()).json["version"] == 4


async def test_a_removed_permission_is_taken_from_all_roles(declared: Store) -> None:
    assert (await declared.call("DELETE", "/permissions/documents:read")).status == 204
    roles = (await declared.document())["roles"]
    assert {role["slug"]: role["permissions"] for role in roles} == {"editor": ["documents:write"], "viewer": []}


async def test_a_role_is_created_changed_and_deleted(declared: Store, clock: FakeClock) -> None:
    role = {"slug": "clerk", "name": "Clerk", "description": None, "permissions": ["documents:read"]}
    answer = await declared.call("POST", "/roles", role)
    created = answer.json
    assert (answer.status, created) == (201, {**created, **role, "user_count": 0})
    clock.advance(timedelta(minutes=1))
    answer = await declared.call("PATCH", "/roles/clerk", {"permissions": [], "name": "Office"})
    assert (answer.status, answer.json["created_at"]) == (200, created["created_at"])
    assert answer.json["updated_at"] > created["updated_at"]
    assert answer.json == (await declared.call("GET", "/roles/clerk", by="member")).json
    assert {**role, "permissions": [], "name": "Office"}.items() <= answer.json.items()
    assert (await declared.call("DELETE", "/roles/clerk")).status == 204
    assert await declared.document() == DOCUMENT


async def test_roles_are_listed_with_the_number_of_their_users(declared: Store, acme: Tenant) -> None:
    for name in ("member", "admin"):
        await declared.give("viewer", acme.id(name))
    roles = (await declared.call("GET", "/roles", by="member")).json["roles"]
    assert [(role["slug"], role["user_count"]) for role in roles] == [("editor", 0), ("viewer", 2)]


async def test_deleting_a_role_that_users_have_needs_a_confirmation(declared: Store, acme: Tenant) -> None:
    await declared.give("viewer", acme.id("member"))
    refused = await declared.call("DELETE", "/roles/viewer")
    assert (refused.status, refused.code) == (409, "ROLE_IN_USE")
    assert acme.people["member"].email in refused.json["error"]
    assert (await declared.call("DELETE", "/roles/viewer?confirm=true")).status == 204
    assert await declared.holders() == []


async def test_wrong_single_changes_are_refused(declared: Store) -> None:
    role = {"slug": "clerk", "name": "Clerk"}
    cases = [
        ("POST", "/permissions", {"name": "documents:read"}, 409),
        ("POST", "/permissions", {"name": "Documents"}, 400),
        ("PATCH", "/permissions/documents:read", {}, 400),
        ("PATCH", "/permissions/unknown", {}, 404),
        ("DELETE", "/permissions/unknown", None, 404),
        ("POST", "/roles", {**role, "slug": "editor"}, 409),
        ("POST", "/roles", {**role, "slug": "owner"}, 409),
        ("POST", "/roles", {**role, "slug": "Clerk"}, 400),
        ("POST", "/roles", {**role, "permissions": ["unknown"]}, 400),
        ("POST", "/roles", {"slug": "clerk"}, 400),
        ("GET", "/roles/unknown", None, 404),
        ("PATCH", "/roles/editor", {}, 400),
        ("PATCH", "/roles/editor", {"permissions": ["unknown"]}, 400),
        ("PATCH", "/roles/editor", {"permissions": ["documents:read"] * 2}, 400),
        ("PATCH", "/roles/unknown", {}, 404),
        ("DELETE", "/roles/unknown", None, 404),
    ]
    answers = [(method, path, (await declared.call(method, path, body)).status) for method, path, body, _ in cases]
    assert answers == [(method, path, status) for method, path, _, status in cases]
    assert await declared.document() == DOCUMENT


async def test_the_limits_hold_for_single_objects(store: Store) -> None:
    full = {
        "permissions": [{"name": f"p{number}"} for number in range(200)],
        "roles": [{"slug": f"r{number}", "name": "R", "permissions": []} for number in range(50)],
    }
    assert (await store.put(full)).status == 200
    assert "at most 200" in (await store.call("POST", "/permissions", {"name": "one:more"})).json["error"]
    assert "at most 50" in (await store.call("POST", "/roles", {"slug": "one-more", "name": "R"})).json["error"]


async def test_a_change_without_difference_is_not_recorded(declared: Store, acme: Tenant) -> None:
    before = await acme.actions()
    assert (await declared.call("PATCH", "/roles/editor", {"name": "Editor"})).status == 200
    assert (await declared.call("PATCH", "/permissions/documents:read", {"description": "Read documents"})).status == 200
    assert await acme.actions() == before
