"""Services that the machine's operator adds with a command."""

from uuid import UUID

from core.applications import services
from core.applications.model.services import CreatedService, ServiceSlugTaken, ServiceType, SettingChanges
from core.kernel import errors, values
from core.kernel.callers import OrganizationStatus
from core.kernel.causes import SYSTEM
from core.tenancy import sign_in_policies
from core.tenancy.model.organizations import Organization
from ports import Ports

MAX_NAMED = 10  # organizations in an error


class NoOrganizationForService(errors.Invalid):
    """No organization can get this application. Name an active one."""


async def create(
    ports: Ports, org_slug: str | None, slug: str, name: str, service_type: ServiceType, settings: SettingChanges
) -> tuple[Organization, CreatedService]:
    """Create a service in an active organization. Return the organization and the service.

    Without `org_slug`, the service is created in the only active organization. The service's slug is `slug` or, if the organization has
    such a service, the first free slug that resembles it. The audit log names the system, as for all commands.

    Raises: NoOrganizationForService; the errors of `services.draft`, `services.store` and `require_compatible`.
    """
    org_id = await _find_organization(ports, org_slug)

    async def add(free: values.Slug) -> tuple[Organization, CreatedService]:
        new = services.draft(ports, org_id, free, name, service_type, settings)
        async with ports.storage.transaction(by=SYSTEM) as tx:
            organization = await tx.organizations.lock(org_id) or errors.refuse(NoOrganizationForService)
            if organization.status is not OrganizationStatus.ACTIVE:
                raise NoOrganizationForService(_not_active(organization.slug, organization.status))
            created = await services.store(tx, organization, new)
            await sign_in_policies.require_compatible(ports, tx, org_id, new.service.policy_application)
        return organization, created

    return await values.create_with_free_slug(slug, "application", add, ServiceSlugTaken)


async def _find_organization(ports: Ports, org_slug: str | None) -> UUID:
    """Return the id of the organization with this slug, or of the only active organization."""
    async with ports.storage.reading() as read:
        if org_slug is not None:
            org_id = await read.organizations.id_by_slug(org_slug)
            if org_id is not None:
                return org_id
        active = await read.organizations.page_with_owners(OrganizationStatus.ACTIVE, None, MAX_NAMED, 0)
        counts = await read.organizations.counts()
    slugs = ", ".join(sorted(listed.organization.slug for listed in active.items)) + (", ..." if active.total > MAX_NAMED else "")
    if active.total == 0:
        solution = "Approve the one that waits" if counts[OrganizationStatus.PENDING] else "Create one"
        raise NoOrganizationForService(f"There is no active organization. {solution} in the console, and run the command again.")
    if org_slug is not None:
        raise NoOrganizationForService(f"There is no organization {org_slug}. Active organizations are: {slugs}.")
    if active.total > 1:
        raise NoOrganizationForService(f"There are several organizations: {slugs}. Name one of them by --organization.")
    return active.items[0].organization.id


def _not_active(slug: str, status: OrganizationStatus) -> str:
    return f"The organization {slug} is not active, but {status}. A platform owner changes that in the console."
