"""The rights that a SCIM token takes: the directory acts like an admin (security C-3, R-10)."""

import pytest
from quart_trio import QuartTrio

from core.kernel.roles import ADMIN, ROLES, Capability, RoleName
from core.provisioning.model.directories import DirectoryAboveOwn
from tests.support.browser import FakeBrowser, main_of
from tests.support.builders import Answer, add_account, run_sql
from tests.support.programs import add_credential, add_service_account
from tests.support.tenants import Tenant

pytestmark = pytest.mark.slow

DIRECTORY = "/app/organizations/acme/directory"
OF_ADMINS = ROLES[ADMIN].rights - {Capability.ORGANIZATION_VIEW}


async def try_to_empower(acme: Tenant, token: str, token_id: str) -> list[Answer]:
    """Create a token, and switch directory groups on for another token."""
    tokens = f"{acme.path}/scim-tokens"
    return [
        await acme.api.post(tokens, {"name": "Mine"}, token=token),
        await acme.api.patch(f"{tokens}/{token_id}", {"directory_groups": True}, token=token),
    ]


async def test_a_directory_is_empowered_only_with_each_right_of_an_admin(acme: Tenant, app: QuartTrio) -> None:
    owner, tokens = acme.token("owner"), f"{acme.path}/scim-tokens"
    role = {"slug": "integrator", "name": "Integrator", "capabilities": sorted(OF_ADMINS)}
    assert (await acme.api.post(f"{acme.path}/roles", role, token=owner)).status == 201
    account = await add_account(acme.ports, "integrator@acme.example")
    await acme.join("integrator", account, RoleName("integrator"))
    of_groups = ["groups.manage", "service_roles.assign", "resources.manage"]
    granted = ["integrations.manage", "members.manage", "end_users.manage", *of_groups]
    robot = await add_service_account(acme.pool, acme.org, acme.people["owner"].id, "integrator", granted=granted)
    program = await (await add_credential(acme.pool, acme.api, robot, acme.org)).token()
    kept = (await acme.api.post(tokens, {"name": "Okta"}, token=owner)).json["id"]
    browser = FakeBrowser(app)
    await browser.sign_in("integrator@acme.example")
    switch = f"{DIRECTORY}/tokens/{kept}/groups"
    for missing in sorted(OF_ADMINS - {Capability.INTEGRATIONS_MANAGE}):
        await run_sql(acme.pool, "update organization_roles set capabilities = %s", sorted(OF_ADMINS - {missing}))
        for token in (acme.token("integrator"), program):
            for answer in await try_to_empower(acme, token, kept):
                assert (answer.status, answer.json["error"]) == (403, DirectoryAboveOwn.__doc__), missing
        page = main_of(await browser.open(DIRECTORY))
        assert ("Create SCIM token</button>" in page, "Switch on" in page, "Ask an admin" in page) == (False, False, True), missing
        assert (await browser.submit(switch, switch, directory_groups="yes")).status == 403
    off = await acme.api.patch(f"{tokens}/{kept}", {"directory_groups": False}, token=acme.token("integrator"))
    assert off.status == 200, "to take power from a directory, integrations.manage is enough"
    assert await run_sql(acme.pool, "select name, directory_groups from scim_tokens") == [("Okta", False)]
    await run_sql(acme.pool, "update organization_roles set capabilities = %s", sorted(OF_ADMINS))
    for token in (acme.token("integrator"), program):
        assert [answer.status for answer in await try_to_empower(acme, token, kept)] == [200, 200]
    for grant in granted:
        others = [each for each in granted if each != grant]
        await run_sql(acme.pool, "update service_accounts set granted = %s", others)
        expected = [200 if grant in of_groups else 403, 403]
        answers = await try_to_empower(acme, program, kept)
        assert [answer.status for answer in answers] == expected, "the directory uses these rights"
        assert grant in answers[1].json["error"] or grant == "integrations.manage"
    page = main_of(await browser.open(DIRECTORY))
    assert ("Create SCIM token</button>" in page, "Switch off" in page) == (True, True)
