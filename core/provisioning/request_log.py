"""An organization's last SCIM requests, with which an admin finds out what their directory does."""

from collections.abc import Sequence
from uuid import UUID

from core.kernel.callers import OrganizationCaller
from core.provisioning.model.directories import ScimRequest
from ports import Ports


async def list_last(ports: Ports, caller: OrganizationCaller, *, failed: bool | None = None) -> list[ScimRequest]:
    """Return the last MAX_ENTRIES requests by the organization's directory, newest first.

    `failed`: return only requests that failed, or with False only requests that succeeded.
    """
    async with ports.storage.reading() as read:
        requests = await read.scim_requests.last(caller.acts_in.id)
    return [request for request in requests if failed is None or request.has_failed is failed]


async def write(ports: Ports, org_id: UUID, requests: Sequence[ScimRequest]) -> None:
    """Store at most MAX_ENTRIES requests, oldest first, in place of the oldest requests."""
    async with ports.storage.autocommit() as autocommit:
        await autocommit.scim_requests.add(org_id, requests)
