"""Access to the services of an organization: one rule for all protocols, and the enrollment of end users.

A password login to a service, an OAuth authorization, a code exchange, a device approval and a SAML
sign-on all call `may_use_service`. A refresh applies the same rule inside the statement that
rotates the token (`RefreshTokenRotation.rotate`), because it must be atomic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from core.applications import services
from core.applications.services_rules import ServiceNotFound
from core.authentication.login_rules import NeedsCodeFlow
from core.kernel.errors import OrganizationNotActive, refuse
from core.kernel.principals import BlockedByDirectory, OrganizationStatus

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

    from core.billing.subscriptions_rules import Entitlement
    from core.kernel.principals import ServiceContext
    from ports import Ports
    from ports.storage import Reading, Transaction


async def may_use_service(read: Reading | Transaction, org_id: UUID, user_id: UUID) -> bool:
    """Return whether this user may use the services of this organization. A user that its directory blocks may not.

    The directory blocks a user by deactivating or deleting them. The block ends when the directory
    activates them or creates them again, or when an admin removes it.
    """
    return not await read.directory_blocks.exists(org_id, user_id)


async def require_service_access(read: Reading | Transaction, org_id: UUID, user_id: UUID) -> None:
    """Check that this user may use the services of this organization. Raises: BlockedByDirectory."""
    if not await may_use_service(read, org_id, user_id):
        raise BlockedByDirectory


async def enroll_end_user(tx: Transaction, service: ServiceContext, user_id: UUID, now: datetime) -> tuple[ServiceContext, Entitlement]:
    """Make the user an end user of the service, and return the service as it is now and the user's entitlement to it.

    The statement that enrolls the user applies the rule of `may_use_service`, so that the usual case needs no further query.

    Raises: ServiceNotFound, OrganizationNotActive, BlockedByDirectory.
    """
    is_enrolled = tx.end_users.enroll_deferred(service.id, user_id, now)
    current, entitlement = await tx.services.context_and_entitlement(service.id, user_id, now) or refuse(ServiceNotFound)
    if is_enrolled.value is None:
        await require_service_access(tx, service.org_id, user_id)
        raise ServiceNotFound  # it is being deleted
    if current.status is not OrganizationStatus.ACTIVE:
        raise OrganizationNotActive
    return current, entitlement


async def find_password_service(ports: Ports, org_slug: str, service_slug: str) -> ServiceContext:
    """Return the service if users can sign in to it with a password (decision 57).

    Raises: OrganizationNotFound, OrganizationNotActive, ServiceNotFound, NeedsCodeFlow, in this order.
    """
    async with ports.storage.reading() as read:
        service = await services.require_open(read, org_slug, await read.services.context_by_slug(org_slug, service_slug))
    if service.is_public:
        raise NeedsCodeFlow
    return service
