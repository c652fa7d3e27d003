"""The pages about service accounts, which organizations and the platform share."""

import re
from uuid import UUID

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.kernel.roles import ADMIN, OWNER
from core.kernel.scannable_secrets import CREDENTIAL_PREFIX, is_well_formed
from core.programs.model.service_accounts import OwnerNotYourself
from ports import Ports
from tests.support.browser import FakeBrowser, leads_to
from tests.support.builders import PASSWORD, add_account, add_member, add_organization, run_sql

PLATFORM, ORGANIZATION = "/app/platform/service-accounts", "/app/organizations/acme/service-accounts"
STORED = "select name, role, owner_id, scopes, granted from service_accounts"


@pytest.fixture
async def owner(app: QuartTrio, ports: Ports, pool: Pool) -> FakeBrowser:
    """A browser for the owner of acme, who is a platform owner, too. Acme has an admin."""
    acme = await add_organization(pool, "acme")
    for email, role in (("grace@example.com", OWNER), ("ada@example.com", ADMIN)):
        await add_member(pool, acme, (await add_account(ports, email, PASSWORD)).id, role, confirmed=True)
    await run_sql(pool, "update users set is_platform_owner = true where email = 'grace@example.com'")
    browser = FakeBrowser(app)
    await browser.sign_in("grace@example.com", PASSWORD)
    return browser


async def id_of(pool: Pool, email: str) -> str:
    [(user_id,)] = await run_sql(pool, "select id from users where email = %s", email)
    return str(user_id)


@pytest.mark.parametrize(
    ("path", "role", "scope", "capability"),
    [(ORGANIZATION, "admin", "members:read", "members.manage"), (PLATFORM, None, "platform_users:read", "platform_users.manage")],
)
async def test_an_owner_manages_an_account(
    owner: FakeBrowser, pool: Pool, path: str, role: str | None, scope: str, capability: str
) -> None:
    grace = await id_of(pool, "grace@example.com")
    fields = {"name": "Robot", "owner_id": grace, f"scope:{scope}": "yes"} | ({} if role is None else {"role": role})
    created = leads_to(await owner.submit(f"{path}/new", f"{path}/new", **fields))
    one = created.removesuffix("/credentials")
    assert await run_sql(pool, STORED) == [("Robot", role, UUID(grace), [scope], [])]
    assert f'href="{one}"' in (await owner.open(path)).text

    grant = {f"grant:{capability}": "yes", "all_scopes": "yes"}
    assert leads_to(await owner.submit(one, one, **{**fields, "name": "Importer", "owner_id": ""}, **grant)) == one
    assert await run_sql(pool, STORED) == [("Importer", role, UUID(grace), None, [capability])]

    shown = await owner.submit(f"{one}/credentials/new", f"{one}/credentials/new?kind=secret", kind="secret", name="Main")
    [secret] = [text for text in re.findall(r"gthc_\w+", shown.text) if is_well_formed(text, CREDENTIAL_PREFIX)]
    listed = (await owner.open(created)).text
    assert secret not in listed
    [revoke] = re.findall(rf'action="({one}/credentials/[^"/]+/revoke)"', listed)
    assert leads_to(await owner.submit(revoke, created)) == created
    assert await run_sql(pool, "select 1 from credentials") == []

    kept = await owner.submit(f"{one}/delete", one, confirmation="Robot")
    assert (kept.status, "exactly as it is shown" in kept.text) == (400, True)
    assert leads_to(await owner.submit(f"{one}/delete", one, confirmation="Importer")) == path
    assert await run_sql(pool, STORED) == []


async def test_a_refused_form_keeps_its_values(owner: FakeBrowser, pool: Pool) -> None:
    ada = await id_of(pool, "ada@example.com")
    answer = await owner.submit(f"{PLATFORM}/new", f"{PLATFORM}/new", name="Robot", owner_id=ada, **{"scope:platform_users:read": "yes"})
    assert answer.status == 403
    assert OwnerNotYourself.__doc__ is not None
    assert OwnerNotYourself.__doc__ in answer.text
    assert 'value="Robot"' in answer.text
    assert re.search(r'name="scope:platform_users:read"[^>]* checked', answer.text)
    assert not re.search(r'name="all_scopes"[^>]* checked', answer.text)


async def test_a_scope_with_a_control_character_is_refused(owner: FakeBrowser, pool: Pool) -> None:
    fields = {"name": "Robot", "role": "admin", "owner_id": await id_of(pool, "grace@example.com"), "all_scopes": "yes"}
    one = leads_to(await owner.submit(f"{ORGANIZATION}/new", f"{ORGANIZATION}/new", **fields)).removesuffix("/credentials")
    for path in (one, f"{one}/api-resources/{UUID(int=1)}"):
        assert (await owner.submit(path, one, **{"scope:\0": "yes"})).status == 400


async def test_an_admin_keeps_what_only_the_owner_can_grant(app: QuartTrio, owner: FakeBrowser, pool: Pool) -> None:
    fields = {"owner_id": await id_of(pool, "grace@example.com"), "all_scopes": "yes", "grant:members.manage": "yes"}
    forms = [{"name": role, "role": role, **fields} for role in ("admin", "owner")]
    below, above = [leads_to(await owner.submit(f"{ORGANIZATION}/new", f"{ORGANIZATION}/new", **form)) for form in forms]
    one = below.removesuffix("/credentials")
    admin = FakeBrowser(app)
    await admin.sign_in("ada@example.com", PASSWORD)
    page = (await admin.open(one)).text
    assert ("grant:" in page, 'value="owner"' in page, 'value="admin" selected' in page) == (False, False, True)
    [owners] = re.findall(r'<select id="owner_id".*?</select>', page, re.DOTALL)
    assert re.findall(r">([^<]+)</option>", owners) == ["No change (grace@example.com)", "ada@example.com"]
    assert leads_to(await admin.submit(one, one, name="Renamed", role="admin", all_scopes="yes")) == one
    assert await run_sql(pool, "select granted from service_accounts where name = 'Renamed'") == [(["members.manage"],)]
    page = (await admin.open(above.removesuffix("/credentials"))).text
    assert ("Ask the owner of the organization to change it." in page, "Save service account" in page) == (True, False)
