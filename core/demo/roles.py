"""The permissions and roles in the demo's web shop, and the users and the group that have them."""

from collections.abc import Mapping
from typing import Final
from uuid import UUID

from core.applications import authorization, role_assignments
from core.applications.model.authorization import AuthorizationDocument, DeclaredPermission, RoleDefinition
from core.applications.model.services import Service
from core.demo.model.demo import DemoUser
from core.kernel.callers import Member
from ports import Ports
from ports.storage import Transaction

MANAGER: Final = "manager"
CLERK: Final = "clerk"
DOCUMENT: Final = AuthorizationDocument.parse(
    (
        DeclaredPermission("orders:read", "See orders"),
        DeclaredPermission("orders:refund", "Refund orders"),
        DeclaredPermission("products:write", "Change products and prices"),
    ),
    (
        RoleDefinition(CLERK, "Clerk", "Answers customers", ("orders:read",)),
        RoleDefinition(MANAGER, "Manager", "Runs the shop", ("orders:read", "orders:refund", "products:write")),
    ),
)


async def ensure_roles(ports: Ports, tx: Transaction, caller: Member, service: Service, users: Mapping[str, DemoUser]) -> None:
    """Declare the permissions and roles unless the service has some, and give these users their roles, by slug."""
    found = await tx.authorizations.find(service.org_id, service.id)
    if found is not None and not found.version:
        await authorization.replace_document(ports, caller, service.slug, DOCUMENT)
    for slug, user in users.items():
        if await tx.authorizations.find_role(service.org_id, service.id, slug) is not None:
            await role_assignments.assign(ports, caller, service.slug, slug, user.id)


async def give_to_group(ports: Ports, tx: Transaction, caller: Member, service: Service, group_id: UUID) -> None:
    """Give the group the clerk's role, unless the service has other roles."""
    if await tx.authorizations.find_role(service.org_id, service.id, CLERK) is not None:
        await role_assignments.assign_to_group(ports, caller, service.slug, CLERK, group_id)
