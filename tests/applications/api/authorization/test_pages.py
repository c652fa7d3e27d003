"""The pages for permissions and roles: forms, a document's dry run, a role's users, and the user page."""

import json
from typing import Any

import pytest

from core.kernel.roles import ADMIN, MEMBER, RoleName
from tests.accounts.api.account_pages.paths import page_text
from tests.applications.api.authorization.store import DOCUMENT, Store
from tests.support.browser import FakeBrowser
from tests.support.builders import PASSWORD, add_account, add_member
from tests.support.services import add_service_user
from tests.support.tenants import Tenant

SHOP = "/app/organizations/acme/applications/shop/authorization"


@pytest.fixture
async def admin(acme: Tenant, browser: FakeBrowser) -> FakeBrowser:
    """The browser in which an acme admin is signed in."""
    return await sign_in_as(acme, browser, ADMIN)


async def sign_in_as(acme: Tenant, browser: FakeBrowser, role: RoleName) -> FakeBrowser:
    """Sign in as a new member in acme."""
    account = await add_account(acme.ports, "grace@example.com", PASSWORD)
    await add_member(acme.pool, acme.org, account.id, role, confirmed=True)
    await browser.sign_in(account.email, PASSWORD)
    return browser


async def test_an_admin_creates_changes_and_deletes_a_role(declared: Store, admin: FakeBrowser) -> None:
    page = f"{SHOP}/new-role"
    await admin.submit(page, page, name="Clerk", slug=" Clerk ", **{"permission:documents:read": "yes"})
    role = {"slug": "clerk", "name": "Clerk", "description": None, "permissions": ["documents:read"]}
    assert role in (await declared.document())["roles"]
    page = f"{SHOP}/roles/clerk"
    assert "Clerk" in page_text(await admin.open(page))
    await admin.submit(page, page, name="Office", description="Writes letters", **{"permission:documents:write": "yes"})
    changed = {"slug": "clerk", "name": "Office", "description": "Writes letters", "permissions": ["documents:write"]}
    assert changed in (await declared.document())["roles"]
    await admin.submit(f"{page}/delete", f"{page}/delete")
    assert await declared.document() == DOCUMENT


async def test_the_question_before_a_deletion_names_the_users(declared: Store, acme: Tenant, admin: FakeBrowser) -> None:
    await declared.give("viewer", acme.id("member"))
    page = f"{SHOP}/roles/viewer/delete"
    text = page_text(await admin.open(page))
    assert "taken from 1 user" in text
    assert acme.people["member"].email in text
    await admin.submit(page, page)
    assert [role["slug"] for role in (await declared.document())["roles"]] == ["editor"]


async def test_refused_roles_are_shown_again(declared: Store, admin: FakeBrowser) -> None:
    page = f"{SHOP}/new-role"
    for slug, reason in {"editor": "already", "owner": "role of the organization", "1": "Begin with a letter"}.items():
        answer = await admin.submit(page, page, name="Clerk", slug=slug)
        assert answer.status in (400, 409)
        assert reason in page_text(answer)
        assert 'aria-invalid="true"' in answer.text
    assert await declared.document() == DOCUMENT


async def test_a_role_of_many_permissions_has_a_text_area(store: Store, admin: FakeBrowser) -> None:
    names = [f"p{number:03}" for number in range(81)]
    await store.put({"permissions": [{"name": name} for name in names], "roles": [{"slug": "all", "name": "All", "permissions": names}]})
    page = f"{SHOP}/roles/all"
    assert "permission:p000" not in (await admin.open(page)).text
    await admin.submit(page, page, name="All", permissions="p000\r\np001\r\n")
    assert (await store.document())["roles"][0]["permissions"] == ["p000", "p001"]
    answer = await admin.submit(page, page, name="All", permissions="p000\nq")
    assert answer.status == 400
    assert "permission q, which is not declared" in page_text(answer)


async def test_an_admin_declares_describes_and_removes_a_permission(declared: Store, admin: FakeBrowser) -> None:
    page = f"{SHOP}/permissions"
    await admin.submit(page, page, name="invoices:read", description="Read invoices")
    one = f"{page}/invoices:read"
    await admin.submit(one, one, description="")
    assert {"name": "invoices:read", "description": None} in (await declared.document())["permissions"]
    assert "already" in page_text(await admin.submit(page, page, name="invoices:read"))
    gone = f"{page}/documents:read/delete"
    assert "The role Editor loses it." in page_text(await admin.open(gone))
    await admin.submit(gone, gone)
    assert [each["name"] for each in (await declared.document())["permissions"]] == ["documents:write", "invoices:read"]


async def test_a_document_is_previewed_and_then_saved(declared: Store, acme: Tenant, admin: FakeBrowser) -> None:
    await declared.give("viewer", acme.id("member"))
    page = f"{SHOP}/document"
    assert "documents:read" in (await admin.open(page)).text
    new: dict[str, Any] = {"permissions": [*DOCUMENT["permissions"], {"name": "invoices:read"}], "roles": DOCUMENT["roles"][:1]}
    fields = {"document": json.dumps(new), "version": "1"}
    preview = await admin.submit(f"{page}/preview", page, **fields)
    text = page_text(preview)
    assert preview.status == 200
    assert "New permissions invoices:read" in text
    assert "Role viewer is deleted Users who lose it: 1. Groups that lose it: 0." in text
    assert await declared.document() == DOCUMENT
    refused = await admin.submit(page, page, **fields)
    assert (refused.status, "viewer (1 user)" in page_text(refused)) == (409, True)
    assert 'name="confirm"' in refused.text
    await admin.submit(page, page, **fields, confirm="yes")
    assert [role["slug"] for role in (await declared.document())["roles"]] == ["editor"]


async def test_wrong_and_outdated_documents_are_shown_again(declared: Store, admin: FakeBrowser) -> None:
    page = f"{SHOP}/document"
    cases = {
        "{": "not valid JSON",
        "[]": "JSON object",
        '{"permissions": []}': "roles",
        '{"permissions": [{"name": "A"}], "roles": []}': "'A' is no permission",
    }
    for document, reason in cases.items():
        for path in (f"{page}/preview", page):
            answer = await admin.submit(path, page, document=document, version="1")
            assert answer.status == 400, (document, answer.status)
            assert reason in page_text(answer), document
    for version in ("0", "x", ""):
        answer = await admin.submit(page, page, document='{"permissions": [], "roles": []}', version=version)
        assert answer.status == 412
        assert "were changed in the meantime" in page_text(answer)
    assert await declared.document() == DOCUMENT


async def test_an_admin_gives_a_role_and_takes_it_away(declared: Store, acme: Tenant, admin: FakeBrowser) -> None:
    page, member = f"{SHOP}/roles/editor/users", acme.people["member"]
    await admin.submit(page, page, email=member.email)
    assert await declared.holders() == [("editor", member.email)]
    assert member.email in page_text(await admin.open(page))
    assert "No user with this role matches" in page_text(await admin.open(f"{page}?search=nowhere"))
    unknown = await admin.submit(page, page, email="unknown@example.com")
    assert (unknown.status, "Invite them" in page_text(unknown)) == (404, True)
    await admin.submit(f"{page}/{member.id}/remove", page)
    assert await declared.holders() == []


async def test_the_page_of_a_user_lists_the_roles(declared: Store, acme: Tenant, admin: FakeBrowser) -> None:
    ada = await add_account(acme.ports, "ada@example.com")
    await add_service_user(acme.ports, declared.service, ada.id)
    await declared.give("editor", ada.id)
    answer = await admin.open(f"/app/organizations/acme/users/{ada.id}")
    assert f'href="{SHOP}/roles/editor"' in answer.text


async def test_a_member_reads_roles_and_permissions_without_forms(declared: Store, acme: Tenant, browser: FakeBrowser) -> None:
    await sign_in_as(acme, browser, MEMBER)
    for path in ("", "/permissions", "/roles/editor", "/roles/editor/users"):
        answer = await browser.open(f"{SHOP}{path}")
        assert answer.status == 200
        assert '<form method="post" action="/app/organizations/acme' not in answer.text


async def test_members_see_roles_and_permissions_only_with_the_right_to_view_applications(
    declared: Store, acme: Tenant, browser: FakeBrowser
) -> None:
    body = {"slug": "builder", "name": "Builder", "capabilities": ["services.manage"]}
    assert (await acme.api.post(f"{acme.path}/roles", body, token=acme.token("owner"))).status == 201
    await sign_in_as(acme, browser, RoleName("builder"))
    of_role, of_permission = f"{SHOP}/roles/viewer", f"{SHOP}/permissions/documents:read"
    pages = (SHOP, f"{SHOP}/new-role", of_role, f"{of_role}/delete", f"{SHOP}/permissions", of_permission, f"{of_permission}/delete")
    for page in (*pages, f"{SHOP}/document"):
        answer = await browser.open(page)
        assert (answer.status, "documents:" in answer.text) == (403, False), page
