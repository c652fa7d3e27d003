"""The group of the demo, and the application that it opens."""

from collections.abc import Collection
from typing import Final
from uuid import UUID

from core.applications import access, services
from core.applications.model.services import Service, ServiceType
from core.applications.model.users import AccessPolicy, AccessSettings
from core.kernel.callers import Member
from core.kernel.values import Slug
from core.tenancy import groups
from ports import Ports
from ports.storage import Transaction

SLUG: Final = Slug("back-office")
NAME: Final = "Back Office"
GROUP: Final = "Finance"
DESCRIPTION: Final = "Opens the back office"


async def ensure_group(ports: Ports, tx: Transaction, caller: Member, redirect_uris: tuple[str, ...], user_ids: Collection[UUID]) -> UUID:
    """Create the application for assigned users, and a group of these members that opens it. Return the id of the group.

    What exists stays.
    """
    service = await tx.services.by_slug(caller.acts_in.id, SLUG) or await _create_service(ports, caller, redirect_uris)
    existing = [group.id for group in await tx.groups.of_org(caller.acts_in.id) if group.name == GROUP]
    group_id = existing[0] if existing else (await groups.create(ports, caller, GROUP, DESCRIPTION)).id
    for user_id in sorted(user_ids):
        await groups.add_member(ports, caller, group_id, user_id)
    await access.assign_group(ports, caller, service.slug, group_id)
    return group_id


async def _create_service(ports: Ports, caller: Member, redirect_uris: tuple[str, ...]) -> Service:
    created = await services.create(ports, caller, SLUG, NAME, ServiceType.WEB, {"redirect_uris": redirect_uris})
    await access.save_settings(ports, caller, SLUG, AccessSettings(AccessPolicy.ASSIGNED))
    return created.service
