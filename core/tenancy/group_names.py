"""The names that a directory sees as groups: the organization, its services for assigned users, and its groups."""

from uuid import UUID

from core.tenancy.model import groups
from ports.storage import Transaction


async def require_free_name(tx: Transaction, org_id: UUID, name: str, *, of: UUID | None = None) -> None:
    """Check that a group in a locked organization may have this name. `of` is the group's id, if it exists."""
    for kind, id_ in await tx.groups.same_names(org_id, groups.to_name_key(name)):
        if id_ != of:
            raise groups.GroupNameTaken(kind)


async def require_free_shared_name(tx: Transaction, org_id: UUID, name: str, *, of: UUID) -> None:
    """Check that a locked organization, or its service for assigned users, may have this name.

    `of` is the id of this organization or service.
    """
    for kind, id_ in await tx.groups.same_names(org_id, groups.to_name_key(name)):
        if id_ != of:
            raise groups.SharedNameTaken(kind)


async def require_free_new_name(tx: Transaction, org_id: UUID, old: str, new: str, *, of: UUID) -> None:
    """Check a new name as `require_free_shared_name` does, if more than its case changes."""
    if groups.to_name_key(new) != groups.to_name_key(old):
        await require_free_shared_name(tx, org_id, new, of=of)
