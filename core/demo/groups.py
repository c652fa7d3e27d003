"""The demo's groups, and the permissions and roles in its web shop."""

from collections.abc import Collection, Mapping
from typing import Final
from uuid import UUID

from core.applications import access, authorization, role_assignments, services
from core.applications.model.authorization import AuthorizationDocument, DeclaredPermission, RoleDefinition
from core.applications.model.services import Service, ServiceType
from core.applications.model.users import AccessPolicy, AccessSettings
from core.demo.model.demo import DemoUser
from core.kernel.callers import Member
from core.kernel.values import Slug
from core.tenancy import attributes, groups
from ports import Ports
from ports.storage import Transaction

SLUG: Final = Slug("back-office")
NAME: Final = "Back Office"
GROUP: Final = "Finance"
DESCRIPTION: Final = "Opens the back office"
AUDITORS: Final = "Auditors"
SALES: Final = "Sales"
COST_CENTER: Final = "4800"  # for members without an own value


async def ensure_group(ports: Ports, tx: Transaction, caller: Member, redirect_uris: tuple[str, ...], user_ids: Collection[UUID]) -> UUID:
    """Create the application for assigned users, and a group with these members that opens it. Return the group's id.

    What exists stays.
    """
    service = await tx.services.by_slug(caller.acts_in.id, SLUG) or await _create_service(ports, caller, redirect_uris)
    group_id, _ = await _ensure(ports, tx, caller, GROUP, DESCRIPTION, user_ids)
    await access.assign_group(ports, caller, service.slug, group_id)
    return group_id


async def ensure_auditors(ports: Ports, tx: Transaction, caller: Member, role: str, user_ids: Collection[UUID]) -> None:
    """Create a group with these members that gives an organization role. What exists stays."""
    group_id, is_new = await _ensure(ports, tx, caller, AUDITORS, "Reads the logs", user_ids)
    if is_new:
        await groups.give_role(ports, caller, group_id, role)


async def ensure_sales(ports: Ports, tx: Transaction, caller: Member, attribute: str, user_ids: Collection[UUID]) -> None:
    """Create a group with these members and an attribute value. What exists stays."""
    group_id, is_new = await _ensure(ports, tx, caller, SALES, "Has a cost center", user_ids)
    if is_new and any(each.name == attribute for each in await tx.attributes.list_declared(caller.acts_in.id)):
        await attributes.change_of_group(ports, caller, group_id, {attribute: COST_CENTER})


async def _ensure(
    ports: Ports, tx: Transaction, caller: Member, name: str, description: str, user_ids: Collection[UUID]
) -> tuple[UUID, bool]:
    """Create a group with these members unless it exists, and return its id and whether it is new."""
    existing = [group.id for group in await tx.groups.of_org(caller.acts_in.id) if group.name == name]
    group_id = existing[0] if existing else (await groups.create(ports, caller, name, description)).id
    for user_id in sorted(user_ids):
        await groups.add_member(ports, caller, group_id, user_id)
    return group_id, not existing


async def _create_service(ports: Ports, caller: Member, redirect_uris: tuple[str, ...]) -> Service:
    created = await services.create(ports, caller, SLUG, NAME, ServiceType.WEB, {"redirect_uris": redirect_uris})
    await access.save_settings(ports, caller, SLUG, AccessSettings(AccessPolicy.ASSIGNED))
    return created.service


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
