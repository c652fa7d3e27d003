"""Services that the operator adds with a command: the organization that gets them, and the audit record."""

import pytest

from core.applications import services
from core.applications.model.services import CreatedService, RedirectUriInvalid, ServiceLimitExceeded, ServiceType
from core.applications.services import NoOrganizationForService
from core.kernel.callers import OrganizationStatus
from ports import Ports
from tests.support.builders import add_organization, run_concurrently, run_sql
from tests.support.tenants import Tenant

CALLBACK = "http://localhost:5000/callback"


async def create(ports: Ports, org_slug: str | None = None, uri: str = CALLBACK) -> tuple[str, CreatedService]:
    settings = {"redirect_uris": (uri,)}
    organization, created = await services.create_by_operator(ports, org_slug, "flask", "Flask", ServiceType.WEB, settings)
    return organization.slug, created


async def problem(ports: Ports, org_slug: str | None = None) -> str:
    with pytest.raises(NoOrganizationForService) as refused:
        await create(ports, org_slug)
    return refused.value.message


async def test_the_only_active_organization_gets_the_service(acme: Tenant, ports: Ports) -> None:
    await add_organization(acme.pool, "waiting", status=OrganizationStatus.PENDING)
    slug, created = await create(ports)
    assert (slug, created.service.slug, created.service.redirect_uris) == ("acme", "flask", (CALLBACK,))
    services = await acme.api.get(f"{acme.path}/services", token=acme.token("owner"))
    assert [service["client_id"] for service in services.json["services"]] == [str(created.service.client_id)]
    assert created.client_secret is not None
    log = await acme.api.get(f"{acme.path}/audit-log?action=service.created", token=acme.token("owner"))
    [entry] = log.json["logs"]
    assert (entry["actor"]["kind"], entry["target_id"]) == ("system", str(created.service.id))


async def test_a_taken_slug_gets_a_number(acme: Tenant, ports: Ports) -> None:
    slugs = [(await create(ports))[1].service.slug for _ in range(3)]
    assert slugs == ["flask", "flask-2", "flask-3"]
    with pytest.raises(ServiceLimitExceeded):
        await create(ports)


async def test_two_commands_at_once_make_two_services(acme: Tenant, ports: Ports) -> None:
    results = await run_concurrently(2, lambda _: create(ports))
    assert sorted(created.service.slug for _, created in results) == ["flask", "flask-2"]


async def test_an_organization_must_be_named_if_there_are_several(acme: Tenant, other_tenant: Tenant, ports: Ports) -> None:
    assert await problem(ports) == "There are several organizations: acme, twin. Name one of them by --organization."
    assert await problem(ports, "acmee") == "There is no organization acmee. Active organizations are: acme, twin."
    assert (await create(ports, "twin"))[0] == "twin"


async def test_the_organization_must_be_active(acme: Tenant, ports: Ports) -> None:
    await run_sql(acme.pool, "update organizations set status = 'suspended'")
    assert await problem(ports, "acme") == (
        "The organization acme is not active, but suspended. A platform owner changes that in the console."
    )
    assert await problem(ports) == "There is no active organization. Create one in the console, and run the command again."
    await run_sql(acme.pool, "update organizations set status = 'pending', approved_at = null")
    assert await problem(ports) == "There is no active organization. Approve the one that waits in the console, and run the command again."
    assert await run_sql(acme.pool, "select count(*) from services") == [(0,)]


async def test_the_rules_of_services_hold(acme: Tenant, ports: Ports) -> None:
    with pytest.raises(RedirectUriInvalid):
        await create(ports, uri="http://shop.example/callback")
