"""The way back for an organization that its own sign-in policy's networks lock out."""

from typing import Any
from uuid import uuid4

from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from ports import Ports
from tests.fakes.outside import FakeMailTransport
from tests.support.browser import FakeBrowser, leads_to
from tests.support.builders import PASSWORD, add_account, deliver, run_sql
from tests.support.platform import LIST, Platform
from tests.support.tenants import Tenant
from tests.tenancy.api.policy.policies import save

OLD_OFFICE = "198.51.100.0/24"
RULES = {"admin_networks": ["0.0.0.0/0"], "session_idle_minutes": 60, "second_factor": ["everyone"], "grace_days": 14}
REASON = {"reason": "A new office"}


async def lock_out(acme: Tenant, pool: Pool) -> dict[str, Any]:
    """Save a policy, move the office, and return the policy."""
    saved = await save(acme, RULES)
    assert saved.status == 200, saved.text
    networks = "jsonb_set(rules, '{admin_networks}', to_jsonb(array[%s::text]))"
    await run_sql(pool, f"update sign_in_policies set rules = {networks} where org_id = %s", OLD_OFFICE, acme.org)  # noqa: S608
    policy: dict[str, Any] = saved.json
    return policy


async def test_a_platform_owner_removes_the_networks_that_lock_all_admins_out(
    acme: Tenant, platform: Platform, pool: Pool, ports: Ports, sent: FakeMailTransport
) -> None:
    before = await lock_out(acme, pool)
    refused = await acme.api.get(f"{acme.path}/sign-in-policy", token=acme.token("owner"))
    assert (refused.status, refused.json["rule"]) == (403, "admin_networks")
    path = f"{LIST}/{acme.org}"
    assert (await platform.api.get(path, token=platform.token)).json["admin_networks"] == [OLD_OFFICE]
    assert (await platform.api.call("DELETE", f"{path}/admin-networks", {}, token=platform.token)).status == 400, "without a reason"
    answer = await platform.api.call("DELETE", f"{path}/admin-networks", REASON, token=platform.token)
    assert answer.status == 204, answer.text
    after = await acme.api.get(f"{acme.path}/sign-in-policy", token=acme.token("owner"))
    assert (after.status, after.json["admin_networks"]) == (200, None)
    for rule in ("session_idle_minutes", "second_factor", "grace_days", "due_at"):
        assert after.json[rule] == before[rule], rule
    logged = await run_sql(pool, "select org_id, details from audit_log where action = %s", "organization.sign_in_policy.updated")
    changes = {"admin_networks": {"old": [OLD_OFFICE], "new": None}}
    assert (acme.org, {"changes": changes}) in logged
    assert (None, REASON) in logged
    await deliver(ports)
    told = {email.to: email for email in sent.emails if email.subject == "Admins of Acme can act from any network - Gatehouse"}
    assert told.keys() == {acme.people["owner"].email, acme.people["admin"].email}
    assert "The reason: A new office" in told[acme.people["owner"].email].text
    again = await platform.api.call("DELETE", f"{path}/admin-networks", REASON, token=platform.token)
    error = "The admins of this organization may act from any network. There is nothing to remove."
    assert (again.status, again.json["error"]) == (400, error)
    unknown = await platform.api.call("DELETE", f"{LIST}/{uuid4()}/admin-networks", REASON, token=platform.token)
    assert unknown.status == 404


async def test_the_page_of_the_organization_leads_to_the_removal(acme: Tenant, app: QuartTrio, ports: Ports, pool: Pool) -> None:
    await add_account(ports, "steward@platform.example", PASSWORD, is_platform_owner=True)
    browser, page = FakeBrowser(app), f"/app/platform/organizations/{acme.org}"
    await browser.sign_in("steward@platform.example", PASSWORD)
    question = f"{page}/admin-networks"
    assert "Remove networks" not in (await browser.open(page)).text
    assert "There is nothing to remove." in (await browser.submit(question, question, **REASON)).text
    await lock_out(acme, pool)
    shown = (await browser.open(page)).text
    assert (f'href="{question}"' in shown, OLD_OFFICE in shown) == (True, True)
    assert (await browser.submit(question, question)).status == 400, "without a reason"
    assert leads_to(await browser.submit(question, question, **REASON)).startswith(page)
    assert "Remove networks" not in (await browser.open(page)).text
