"""The people and programs that created an organization's credentials."""

from collections.abc import Collection, Mapping
from typing import Final
from uuid import UUID

from core.kernel.access import may_view
from core.kernel.callers import OrganizationCaller
from core.kernel.event_catalog import Target
from core.kernel.roles import Capability
from ports import Ports

FORMER: Final = "a former user"


async def load_authors(ports: Ports, caller: OrganizationCaller, ids: Collection[UUID]) -> Mapping[UUID, str]:
    """Return today's addresses of these users, and the names of these service accounts.

    FORMER stands for users and service accounts that the organization does not know. Without the right to read the
    audit log, which has these names, too, the result is empty.
    """
    if not ids or not may_view(caller, Capability.AUDIT_VIEW):
        return {}
    texts = {str(each) for each in ids}
    async with ports.storage.reading() as read:
        names = await read.audit.names(caller.acts_in.id, {Target.USER: texts, Target.SERVICE_ACCOUNT: texts})
    return dict.fromkeys(ids, FORMER) | {UUID(id_): name.text for (_, id_), name in names.items()}
