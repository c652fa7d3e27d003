"""Access to an organization's services: one rule for all protocols, and how end users enroll.

A user that the organization's directory blocks may not use its services. Otherwise the policy of the
service decides: it admits anyone, the members, or the assigned users. A user is assigned if an admin,
an API key or the directory assigned them, or if they have a live subscription to the service.

SAML has no sign-up. Under the policy `anyone` it admits members and assigned users only, and users who
enrolled themselves if the service allows it.

The policy `members` admits all members. SAML admits only confirmed members, because any page can start
a SAML sign-in without a click.

One module has the rule's SQL (`adapters/postgres/applications/service_access.py`). Enrollment and rotation of refresh
tokens (`RefreshTokenRotation.rotate`) apply it inside their statements. OAuth and the device flow also check it before
they ask the user.
"""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from core.applications import services
from core.applications.model import users
from core.applications.model.plans import Entitlement
from core.applications.model.services import ServiceNotFound
from core.authentication.model.login import NeedsCodeFlow
from core.kernel import callers
from core.kernel.access import BlockedByDirectory
from core.kernel.errors import refuse
from core.tenancy.model.organizations import ApplicationClosed
from ports import Ports, storage


async def require_service_access(
    read: storage.Reading | storage.Transaction, org_id: UUID, service_id: UUID, user_id: UUID, now: datetime
) -> None:
    """Check that this user may use this service of this organization."""
    may_use = await read.end_users.may_use(org_id, service_id, user_id, now)
    if may_use is None:
        raise ServiceNotFound
    if not may_use:
        raise await find_refusal(read, org_id, user_id)


@dataclass(frozen=True, slots=True)
class Opened:
    """The application that a user opens. Without an organization, it is the platform."""

    org_id: UUID | None = None
    service_id: UUID | None = None  # None: the organization itself, or an external client that may not be stored yet
    is_sign_on: bool = False  # with SAML
    is_external: bool = False  # an external client
    external_for: UUID | None = None  # the API resource that an external client asks for: it decides about the access

    async def admits(self, read: storage.Reading | storage.Transaction, user_id: UUID, now: datetime) -> bool:
        """Return whether the user may use the application, and so learn about its sign-in policy. The platform has no strangers."""
        if self.org_id is None:
            return True
        if self.external_for is not None:
            return await read.api_resources.may_use(self.org_id, self.external_for, user_id)
        if self.service_id is None:
            return not self.is_external
        is_admitted = read.end_users.may_sign_on if self.is_sign_on else read.end_users.may_use
        return bool(await is_admitted(self.org_id, self.service_id, user_id, now))


async def find_refusal(
    read: storage.Reading | storage.Transaction, org_id: UUID, user_id: UUID
) -> BlockedByDirectory | users.NoAccessToService:
    """Return why a service of this organization refuses this user: a block, or its access policy."""
    if await read.directory_blocks.exists(org_id, user_id):
        return BlockedByDirectory()
    return users.NoAccessToService() if await read.end_users.blocked_at(org_id, user_id) is None else users.BlockedByAdmin()


async def enroll_end_user(
    tx: storage.Transaction, service: callers.ServiceContext, user_id: UUID, now: datetime
) -> tuple[callers.ServiceContext, Entitlement]:
    """Make the user an end user of the service. Return the present service, and the user's entitlement to it."""
    enrolled = tx.end_users.enroll(service.id, user_id, now)
    found = await tx.services.context_and_entitlement(service.id, user_id, now)
    return await require_enrolled(tx, service, user_id, await enrolled, found, now)


async def require_enrolled(
    tx: storage.Transaction,
    service: callers.ServiceContext,
    user_id: UUID,
    is_enrolled: bool,
    found: tuple[callers.ServiceContext, Entitlement] | None,
    now: datetime,
) -> tuple[callers.ServiceContext, Entitlement]:
    """Return what was found after the enrollment, the service and the user's entitlement to it, if the enrollment succeeded.

    The statement that enrolls the user applies the rule of this module, so that the usual case
    needs no further query.

    Raises: ServiceNotFound, OrganizationNotActive, BlockedByDirectory, NoAccessToService.
    """
    current, entitlement = found or refuse(ServiceNotFound)
    if not is_enrolled:
        await require_service_access(tx, service.org_id, service.id, user_id, now)
        raise ServiceNotFound  # it is being deleted
    if current.status is not callers.OrganizationStatus.ACTIVE:
        raise ApplicationClosed(current.org_slug)
    return current, entitlement


async def find_password_service(ports: Ports, org_slug: str, service_slug: str) -> callers.ServiceContext:
    """Return the service if users can sign in to it with a password.

    Raises: OrganizationNotFound, OrganizationNotActive, ServiceNotFound, NeedsCodeFlow, in this order.
    """
    async with ports.storage.reading() as read:
        service = await services.require_open(read, org_slug, await read.services.context_by_slug(org_slug, service_slug))
    if service.refuses_passwords:
        raise NeedsCodeFlow
    return service
