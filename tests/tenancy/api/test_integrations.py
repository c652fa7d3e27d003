"""Permissions for an organization's mail server and SIEM (security Z-5)."""

from typing import Any

import pytest

from adapters.postgres.engine.pool import Pool
from tests.support.builders import run_during
from tests.support.refusals import MISSING, NOT_ACTIVE, refused
from tests.support.tenants import Tenant
from tests.tenancy.integrations import SIEM, SMTP, Integration

pytestmark = pytest.mark.parametrize("integration", [SIEM, SMTP], ids=lambda one: one.name)


def without_queue(status: dict[str, Any]) -> dict[str, Any]:
    """Return the status without the queued entries' number, because refusals are audited, too."""
    return {name: value for name, value in status.items() if name != "pending_count"}


async def test_an_organization_has_no_integration_at_first(acme: Tenant, integration: Integration) -> None:
    for answer in (await integration.get(acme), await integration.remove(acme), await integration.send_test(acme)):
        assert refused(answer) == MISSING
        assert ("not forwarded" if integration is SIEM else "mail server") in answer.json["error"]
    assert await acme.log() == []


async def test_members_and_other_organizations_cannot_reach_an_integration(
    acme: Tenant, other_tenant: Tenant, integration: Integration
) -> None:
    await integration.put(acme, integration.full)
    before = (await integration.get(acme)).json
    for call in (integration.get, integration.remove, integration.send_test):
        assert (await call(acme, "member")).status == 403
    assert (await integration.put(acme, integration.full, "member")).status == 403
    for method, path in (("POST", ""), ("GET", ""), ("DELETE", ""), ("POST", "/test")):
        body = integration.full if method == "POST" else None
        answer = await acme.api.call(method, f"{acme.path}/{integration.name}{path}", body, token=other_tenant.token("owner"))
        assert answer.status == 403
        assert "acme.example" not in answer.text
    assert len(await acme.log()) == 1
    assert without_queue((await integration.get(acme)).json) == without_queue(before)


async def test_an_inactive_organization_cannot_use_an_integration(acme: Tenant, integration: Integration) -> None:
    await integration.put(acme, integration.full)
    await acme.set_status("suspended")
    for answer in (
        await integration.put(acme, integration.full),
        await integration.get(acme),
        await integration.remove(acme),
        await integration.send_test(acme),
    ):
        assert refused(answer) == NOT_ACTIVE


@pytest.mark.parametrize("write", ["put", "remove"])
async def test_an_admin_demoted_during_the_request_cannot_change_an_integration(
    acme: Tenant, pool: Pool, write: str, integration: Integration
) -> None:
    await integration.put(acme, integration.full)
    before = (await integration.get(acme)).json
    demotion = [
        ("select from organizations where id = %s for update", (acme.org,)),
        ("update memberships set role = 'member' where user_id = %s", (acme.people["admin"].id,)),
    ]
    answer = await run_during(
        pool, demotion, lambda: integration.put(acme, integration.full, "admin") if write == "put" else integration.remove(acme, "admin")
    )
    assert answer.status == 403
    assert len(await acme.log()) == 1
    assert without_queue((await integration.get(acme)).json) == without_queue(before)
