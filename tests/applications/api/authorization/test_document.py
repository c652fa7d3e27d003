"""The document for permissions and roles: reading, replacing, the dry run and the entity tag."""

from copy import deepcopy
from datetime import timedelta
from typing import Any

import pytest

from tests.applications.api.authorization.store import DOCUMENT, UNCHANGED, Store
from tests.fakes.outside import FakeClock
from tests.support.builders import run_sql
from tests.support.services import add_service
from tests.support.tenants import Tenant

both_callers = pytest.mark.parametrize("by", ["admin", "key"])


async def test_a_service_begins_without_permissions_and_roles(store: Store) -> None:
    answer = await store.get()
    assert (answer.status, answer.json, answer.headers["ETag"]) == (200, {"version": 0, "permissions": [], "roles": []}, '"0"')


@both_callers
async def test_the_document_is_returned_as_it_was_sent(store: Store, by: str) -> None:
    shuffled = {name: list(reversed(each)) for name, each in DOCUMENT.items()}
    answer = await store.put(shuffled, by=by)
    added = {"permissions_added": ["documents:read", "documents:write"], "roles_added": ["editor", "viewer"]}
    assert (answer.status, answer.headers["ETag"]) == (200, '"1"')
    assert answer.json == {"version": 1, **DOCUMENT, "dry_run": False, "changes": {**UNCHANGED, **added}}
    read = await store.get(by)
    assert (read.json, read.headers["ETag"]) == ({"version": 1, **DOCUMENT}, '"1"')


@both_callers
async def test_the_same_document_again_changes_nothing(declared: Store, acme: Tenant, by: str) -> None:
    before = await acme.actions()
    answer = await declared.put({**DOCUMENT, "roles": list(reversed(DOCUMENT["roles"]))}, by=by)
    assert (answer.status, answer.json["version"], answer.json["changes"]) == (200, 1, UNCHANGED)
    assert await acme.actions() == before


CHANGED: dict[str, Any] = {
    "permissions": [{"name": "documents:read", "description": "Read"}, {"name": "invoices:read"}],
    "roles": [
        {"slug": "clerk", "name": "Clerk", "permissions": ["invoices:read"]},
        {"slug": "editor", "name": "Writer", "permissions": ["documents:read", "invoices:read"]},
    ],
}


@both_callers
async def test_a_dry_run_says_exactly_what_then_happens(declared: Store, acme: Tenant, by: str) -> None:
    await declared.give("viewer", acme.id("member"))
    stored, actions = await declared.document(), await acme.actions()
    dry = await declared.put(CHANGED, "?dry_run=true", by=by)
    assert (await declared.document(), await acme.actions()) == (stored, actions)
    assert (dry.status, dry.json["dry_run"], dry.json["version"], dry.headers["ETag"]) == (200, True, 1, '"1"')
    assert dry.json["changes"] == {
        "permissions_added": ["invoices:read"],
        "permissions_updated": ["documents:read"],
        "permissions_removed": ["documents:write"],
        "roles_added": ["clerk"],
        "roles_updated": [
            {
                "slug": "editor",
                "fields": ["name", "description"],
                "permissions_added": ["invoices:read"],
                "permissions_removed": ["documents:write"],
                "user_count": 0,
                "group_count": 0,
            }
        ],
        "roles_removed": [{"slug": "viewer", "user_count": 1, "group_count": 0}],
        "needs_confirmation": True,
    }
    real = await declared.put(CHANGED, "?confirm=true", by=by)
    assert real.status == 200
    assert real.json == {**dry.json, "version": 2, "dry_run": False}
    assert await declared.document() == {name: real.json[name] for name in ("permissions", "roles")}


async def test_a_role_that_users_have_is_deleted_only_with_a_confirmation(declared: Store, acme: Tenant) -> None:
    await declared.give("viewer", acme.id("member"))
    without = {**DOCUMENT, "roles": DOCUMENT["roles"][:1]}
    refused = await declared.put(without)
    assert (refused.status, refused.code) == (409, "ROLE_IN_USE")
    assert "viewer (1 user)" in refused.json["error"]
    assert acme.people["member"].email in refused.json["error"]
    by_key = await declared.put(without, by="key")
    assert (by_key.status, by_key.code) == (409, "ROLE_IN_USE")
    assert acme.people["member"].email not in by_key.json["error"], "a key without read:users would learn addresses"
    assert await declared.document() == DOCUMENT
    assert (await declared.put(without, "?confirm=true")).status == 200
    assert await declared.holders() == []


async def test_users_keep_a_role_that_changes(declared: Store, acme: Tenant) -> None:
    await declared.give("editor", acme.id("member"))
    [before] = await run_sql(acme.pool, "select id, created_at from service_roles where slug = 'editor'")
    assert (await declared.put(CHANGED)).status == 200
    assert await declared.holders() == [("editor", acme.people["member"].email)]
    assert await run_sql(acme.pool, "select id, created_at from service_roles where slug = 'editor'") == [before]


@both_callers
async def test_an_old_version_is_refused(declared: Store, by: str) -> None:
    for tag in ('"0"', '"2"', 'W/"1"', '"x"', '""', ""):
        for query in ("", "?dry_run=true"):
            refused = await declared.put(CHANGED, query, by=by, **{"If-Match": tag})
            assert (refused.status, refused.code) == (412, "PRECONDITION_FAILED"), tag
    assert await declared.document() == DOCUMENT
    for tag in ('"1"', '"", "7", "2"', "*"):
        accepted = await declared.put(
            {**CHANGED, "permissions": [*CHANGED["permissions"], {"name": f"p{len(tag)}"}]}, by=by, **{"If-Match": tag}
        )
        assert accepted.status == 200, tag


async def test_the_old_version_is_refused_even_if_nothing_would_change(declared: Store) -> None:
    assert (await declared.put(DOCUMENT, **{"If-Match": '"0"'})).status == 412


def changed(*path: Any, to: Any) -> dict[str, Any]:
    """Return DOCUMENT with another value at this path."""
    document = deepcopy(DOCUMENT)
    place: Any = document
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = to
    return document


INVALID: dict[str, tuple[dict[str, Any], str]] = {
    "an upper-case permission": (changed("permissions", 0, "name", to="Documents:read"), "'Documents:read'"),
    "a permission that begins with a colon": (changed("permissions", 0, "name", to=":read"), "':read'"),
    "an empty part": (changed("permissions", 0, "name", to="documents::read"), "'documents::read'"),
    "a long permission": (changed("permissions", 0, "name", to="a" * 101), "100 characters"),
    "a slug with a colon": (changed("roles", 0, "slug", to="an:editor"), "'an:editor'"),
    "a long slug": (changed("roles", 0, "slug", to="a" * 51), "50 characters"),
    "a permission twice": (
        {**DOCUMENT, "permissions": [*DOCUMENT["permissions"], {"name": "documents:read"}]},
        "documents:read is listed twice",
    ),
    "a role twice": (
        {**DOCUMENT, "roles": [*DOCUMENT["roles"], {"slug": "editor", "name": "E", "permissions": []}]},
        "editor is listed twice",
    ),
    "a permission of a role twice": (changed("roles", 1, "permissions", to=["documents:read"] * 2), "documents:read is listed twice"),
    "an undeclared permission": (
        changed("roles", 1, "permissions", to=["invoices:read"]),
        "The role viewer has the permission invoices:read",
    ),
    "too many permissions": ({**DOCUMENT, "permissions": [{"name": f"p{number}"} for number in range(201)]}, "permissions"),
    "too many roles": ({**DOCUMENT, "roles": [{"slug": f"r{number}", "name": "R", "permissions": []} for number in range(51)]}, "roles"),
    "no roles": ({"permissions": []}, "roles"),
    "a role without permissions": (changed("roles", 0, to={"slug": "viewer", "name": "Viewer", "permission": []}), "permissions"),
    "an empty name": (changed("roles", 0, "name", to=" "), "name"),
}


async def test_invalid_documents_are_refused_with_the_name_of_what_is_wrong(declared: Store) -> None:
    findings = []
    for case, (document, named) in INVALID.items():
        for query in ("", "?dry_run=true"):
            answer = await declared.put(document, query)
            if answer.status != 400 or named not in answer.json["error"]:
                findings.append((case, query, answer.status, answer.text))
    assert not findings
    assert await declared.document() == DOCUMENT


@pytest.mark.parametrize("slug", ["owner", "admin", "member"])
async def test_a_role_of_the_organization_keeps_its_slug(declared: Store, slug: str) -> None:
    answer = await declared.put(changed("roles", 0, "slug", to=slug))
    assert (answer.status, answer.code) == (409, "CONFLICT")
    assert f"{slug} is a role of the organization" in answer.json["error"]


async def test_roles_of_an_organization_and_of_its_applications_have_different_slugs(declared: Store) -> None:
    """Tokens list both the organization's roles and the applications' roles. A refusal names the role that has the slug."""
    acme = declared.tenant
    role = {"slug": "editor", "name": "Editor", "capabilities": []}
    taken = await acme.api.post(f"{acme.path}/roles", role, token=acme.token("owner"))
    assert taken.status == 409
    assert "The application Shop has a role with this slug" in taken.json["error"]
    assert (await acme.api.post(f"{acme.path}/roles", {**role, "slug": "auditor"}, token=acme.token("owner"))).status == 201
    answer = await declared.put(changed("roles", 0, "slug", to="auditor"))
    assert answer.status == 409
    assert "auditor is a role of the organization" in answer.json["error"]
    assert await declared.document() == DOCUMENT


async def test_the_largest_document_is_stored(store: Store) -> None:
    names = [f"p{number:03}" for number in range(200)]
    roles = [{"slug": f"r{number:02}", "name": "R", "description": None, "permissions": names[number:]} for number in range(50)]
    document = {"permissions": [{"name": name, "description": None} for name in names], "roles": roles}
    assert (await store.put(document)).status == 200
    assert await store.document() == document


async def test_a_change_of_permissions_is_one_event_and_each_role_has_its_own(declared: Store, acme: Tenant, clock: FakeClock) -> None:
    clock.advance(timedelta(minutes=1))
    assert (await declared.put(CHANGED)).status == 200
    shop = {"service_slug": "shop", "service_name": "Shop"}
    entries = [(entry["action"], entry["target_id"], entry["details"]) for entry in (await acme.log())[-4:]]
    assert sorted(entries, key=lambda entry: entry[0]) == [
        (
            "service.authorization.updated",
            str(declared.service),
            {
                **shop,
                "version": 2,
                "permissions_added": ["invoices:read"],
                "permissions_updated": ["documents:read"],
                "permissions_removed": ["documents:write"],
            },
        ),
        ("service.role.created", str(declared.service), {**shop, "role": "clerk", "role_name": "Clerk", "permissions": ["invoices:read"]}),
        (
            "service.role.deleted",
            str(declared.service),
            {**shop, "role": "viewer", "role_name": "Viewer", "user_count": 0, "group_count": 0},
        ),
        (
            "service.role.updated",
            str(declared.service),
            {
                **shop,
                "role": "editor",
                "role_name": "Writer",
                "changes": {"name": {"old": "Editor", "new": "Writer"}, "description": {"old": "Writes", "new": None}},
                "permissions_added": ["invoices:read"],
                "permissions_removed": ["documents:write"],
            },
        ),
    ]


async def test_services_have_separate_documents(declared: Store, acme: Tenant, other_tenant: Tenant) -> None:
    await add_service(acme.pool, acme.org, "forum")
    await add_service(other_tenant.pool, other_tenant.org)
    for tenant, path in ((acme, f"{acme.path}/services/forum"), (other_tenant, f"{other_tenant.path}/services/shop")):
        answer = await tenant.api.call("PUT", f"{path}/authorization", CHANGED, token=tenant.token("admin"))
        assert (answer.status, answer.json["version"]) == (200, 1)
    assert await declared.document() == DOCUMENT


async def test_fifty_roles_with_all_of_200_short_permissions_are_one_request(store: Store) -> None:
    """The guide says so. With longer names, every role needs its own request."""
    permissions = [f"documents:p{number:09}" for number in range(200)]
    roles = [{"slug": f"role-{number}", "name": f"Role {number}", "permissions": permissions} for number in range(50)]
    document = {"permissions": [{"name": name} for name in permissions], "roles": roles}
    assert (await store.put(document)).status == 200
    longer = [f"{name}{'x' * 80}" for name in permissions]
    assert (await store.put({"permissions": [], "roles": [{**role, "permissions": longer} for role in roles]})).status == 413
    assert (await store.put({"permissions": [{"name": name} for name in longer], "roles": []}, "?confirm=true")).status == 200
    created = await store.call("POST", "/roles", {"slug": "all", "name": "All", "permissions": longer})
    assert (created.status, len(created.json["permissions"])) == (201, 200)
