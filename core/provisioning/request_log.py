"""The last SCIM requests of an organization, with which an admin finds out what their directory does."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from core.kernel.principals import Member
    from core.provisioning.request_log_rules import ScimRequest
    from ports import Ports


async def list_last(ports: Ports, caller: Member) -> list[ScimRequest]:
    """Return the last requests of the organization's directory, at most MAX_ENTRIES, newest first."""
    async with ports.storage.reading() as read:
        return await read.scim_requests.last(caller.acts_in.id)


async def write(ports: Ports, org_id: UUID, requests: Sequence[ScimRequest]) -> None:
    """Store at most MAX_ENTRIES requests, oldest first, in place of the oldest ones."""
    async with ports.storage.autocommit() as autocommit:
        await autocommit.scim_requests.add(org_id, requests)
