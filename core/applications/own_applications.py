"""The applications that a user may use."""

from typing import Final

from core.applications.model.users import OwnApplication
from core.kernel.callers import Person
from ports import Ports

MAX_LISTED: Final = 200


async def list_own(ports: Ports, caller: Person) -> list[OwnApplication]:
    """Return the applications that the caller may use, by organization and name, at most MAX_LISTED.

    The list has applications that the caller has used or is assigned to, and all applications in organizations that the caller is a
    confirmed member of. A session that is good in a single organization shows no other organization.
    """
    async with ports.storage.reading() as read:
        return await read.own_applications.of_user(caller.user_id, MAX_LISTED, ports.clock.now(), org_id=caller.bounded_to)
