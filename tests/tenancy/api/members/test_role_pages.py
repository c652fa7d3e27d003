"""The role pages, and the roles that other pages show."""

from typing import Final

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.kernel.roles import OWNER, RoleName
from ports import Ports
from tests.support.browser import FakeBrowser, leads_to, main_of
from tests.support.builders import PASSWORD, add_account, add_member, add_organization

ROOT: Final = "/app/organizations/acme"
ROLES, NEW, ONE = f"{ROOT}/roles", f"{ROOT}/roles/new", f"{ROOT}/roles/auditor"
AUDITS: Final = {"right:audit.view": "yes", "right:sign_ins.view": "yes"}


@pytest.fixture
async def owner(app: QuartTrio, ports: Ports, pool: Pool) -> FakeBrowser:
    """A browser for the owner of acme, which has the role `auditor` and a member with it."""
    acme = await add_organization(pool, "acme")
    await add_member(pool, acme, (await add_account(ports, "grace@example.com", PASSWORD)).id, OWNER, confirmed=True)
    browser = FakeBrowser(app)
    await browser.sign_in("grace@example.com", PASSWORD)
    created = await browser.submit(NEW, NEW, name="Auditor", description="Reads the logs.", **AUDITS)
    assert leads_to(created) == ONE
    await add_member(pool, acme, (await add_account(ports, "zoe@example.com", PASSWORD)).id, RoleName("auditor"), confirmed=True)
    return browser


async def test_the_table_has_the_rights_of_each_role(owner: FakeBrowser) -> None:
    page = main_of(await owner.open(ROLES))
    assert [label in page for label in ("Owner", "Admin", "Member", "Auditor", "Reads the logs.")] == [True] * 5
    row = page[page.index("audit.view") :]
    assert row[: row.index("</tr>")].count("<td>✓</td>") == 3
    assert row[: row.index("</tr>")].count("<td></td>") == 1


async def test_a_built_in_role_has_no_form(owner: FakeBrowser) -> None:
    page = main_of(await owner.open(f"{ROLES}/admin"))
    assert ("<form" in page, "built in, and cannot be changed" in page) == (False, True)


async def test_a_refused_role_says_why_beside_the_field(owner: FakeBrowser) -> None:
    for slug, reason in (("auditor", "has a role with this slug already"), ("1st", "begins with a letter"), ("new", "reserved")):
        refused = await owner.submit(NEW, NEW, name="Another", slug=slug, **AUDITS)
        assert (refused.status, reason in refused.text) == (400 if slug != "auditor" else 409, True), slug
        assert 'value="Another"' in refused.text
    refused = await owner.submit(NEW, NEW, name="AUDITOR", slug="other", **AUDITS)
    assert (refused.status, "has a role with this name already" in refused.text) == (409, True)


async def test_a_right_is_taken_away_after_a_confirmation(owner: FakeBrowser) -> None:
    page = main_of(await owner.open(ONE))
    assert ("zoe@example.com" in page, "Take rights away from 1 holder" in page) == (True, True)
    fields = {"name": "Reader", "description": "", "version": "1", "right:audit.view": "yes"}
    refused = await owner.submit(ONE, ONE, **fields)
    assert (refused.status, "This role has holders." in refused.text) == (409, True)
    assert leads_to(await owner.submit(ONE, ONE, **fields, confirm="yes")) == ONE
    page = main_of(await owner.open(ONE))
    assert ("Reader" in page, 'name="right:audit.view" type="checkbox" value="yes" checked' in page) == (True, True)
    assert (await owner.submit(ONE, ONE, **fields)).status == 409, "the role has changed since version 1"


async def test_a_role_is_deleted_with_a_replacement(owner: FakeBrowser) -> None:
    question = main_of(await owner.open(f"{ONE}/delete"))
    assert [text in question for text in ("It has 1 holder.", "zoe@example.com", "New role of its holders")] == [True] * 3
    assert ">Owner</option>" not in question
    refused = await owner.submit(f"{ONE}/delete", f"{ONE}/delete", replacement="owner")
    assert refused.status == 400
    assert leads_to(await owner.submit(f"{ONE}/delete", f"{ONE}/delete", replacement="member")) == ROLES
    assert "Auditor" not in main_of(await owner.open(ROLES))


async def test_other_pages_name_and_offer_the_role(owner: FakeBrowser) -> None:
    members = main_of(await owner.open(f"{ROOT}/members?role=auditor"))
    assert ("zoe@example.com" in members, "<bdi>Auditor</bdi>" in members, "grace@example.com" in members) == (True, True, False)
    for path in (f"{ROOT}/invitations/new", f"{ROOT}/service-accounts/new", f"{ROOT}/members"):
        assert '<option value="auditor"' in (await owner.open(path)).text, path
    sent = await owner.submit(f"{ROOT}/invitations/new", f"{ROOT}/invitations/new", addresses="eve@example.com;auditor", role="member")
    assert sent.status == 200
    assert "<bdi>Auditor</bdi>" in main_of(await owner.open(f"{ROOT}/invitations"))


async def test_a_holder_starts_on_the_first_page_that_their_role_opens(app: QuartTrio, owner: FakeBrowser) -> None:
    """The overview needs the right to see figures."""
    holder = FakeBrowser(app)
    await holder.sign_in("zoe@example.com", PASSWORD)
    assert leads_to(await holder.open("/app")) == f"{ROOT}/sign-ins"
    assert (await holder.open(f"{ROOT}/sign-ins")).status == 200
    assert f'href="{ROOT}/sign-ins"' in main_of(await holder.open("/app/account/organizations"))
