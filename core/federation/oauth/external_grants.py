"""Grants of users to external clients, which admins list and end per API resource."""

from uuid import UUID

from core.federation.oauth import events
from core.federation.oauth.model.external_grants import ExternalGrant, ExternalGrantNotFound
from core.kernel.callers import OrganizationCaller
from core.kernel.errors import refuse
from core.kernel.roles import Capability
from core.kernel.values import Email, Page, PageResult
from core.programs import api_resources
from core.programs.model.api_resources import ApiResourceNotFound
from core.tenancy import organizations
from ports import Ports


async def list_page(
    ports: Ports, caller: OrganizationCaller, resource_id: UUID, page: Page, *, search: str | None = None
) -> PageResult[ExternalGrant]:
    """Return a page of the grants at an API resource, by email address and client. `search` is a part of an email address."""
    text = Email.parse_part(search or "") or None
    async with ports.storage.reading() as read:
        resource = await api_resources.load_with_users(read, caller, resource_id)
        return await read.external_grants.page(resource.org_id, resource.id, page, search=text)


async def end(ports: Ports, caller: OrganizationCaller, resource_id: UUID, user_id: UUID, client_id: UUID) -> None:
    """End the grant of a user to an external client at an API resource.

    Its sessions for the API resource end, and codes and device approvals that would start new ones. The client asks the user again.

    Raises: ApiResourceNotFound, ExternalGrantNotFound.
    """
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        organization, _ = await organizations.lock_organization_for(tx, caller, Capability.END_USERS_MANAGE)
        resource = await tx.api_resources.by_id(organization.id, resource_id) or refuse(ApiResourceNotFound)
        # Checked before the lock, so that callers cannot lock accounts of other organizations.
        await tx.external_grants.find(organization.id, resource.id, user_id, client_id) or refuse(ExternalGrantNotFound)
        await tx.accounts.lock(user_id) or refuse(ExternalGrantNotFound)
        grant = await tx.external_grants.remove(organization.id, resource.id, user_id, client_id) or refuse(ExternalGrantNotFound)
        await tx.organization_sessions.end_consented(organization.id, grant.service_id, user_id, now, resource.id)
        tx.record(events.external_grant_ended(resource, grant))
