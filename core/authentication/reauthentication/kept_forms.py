"""Forms that were sent with a sign-in that is too old. They wait for the reauthentication, and are then sent again (security A-12, G-2)."""

from collections.abc import Mapping
from uuid import UUID

from core.authentication.model.sessions import KEPT_FOR, MAX_KEPT, KeptForm, KeptFormEnded
from core.kernel.callers import Person
from core.kernel.errors import SessionEnded, refuse
from core.kernel.values import new_id
from ports import Ports


async def keep(ports: Ports, caller: Person, path: str, label: str, fields: Mapping[str, str]) -> UUID:
    """Keep a form of the caller's session, and return its id. Of the session's forms, only the newest MAX_KEPT are kept.

    The edge has checked that our own page sent the form.
    """
    now = ports.clock.now()
    form = KeptForm(new_id(), caller.session_id, path, label, fields, now, now + KEPT_FOR)
    async with ports.storage.transaction(by=caller) as tx:
        if not await tx.kept_forms.add(form, MAX_KEPT):
            raise SessionEnded
    return form.id


async def find(ports: Ports, caller: Person, form_id: UUID) -> KeptForm:
    """Return a kept form of the caller's session."""
    async with ports.storage.reading() as read:
        return await read.kept_forms.find(caller.session_id, form_id, ports.clock.now()) or refuse(KeptFormEnded)


async def take(ports: Ports, caller: Person, form_id: UUID, path: str) -> Mapping[str, str]:
    """Return the fields of a form that was kept for this path, and forget it. It can be taken once. Raises: KeptFormEnded."""
    async with ports.storage.transaction(by=caller) as tx:
        form = await tx.kept_forms.take(caller.session_id, form_id, path, ports.clock.now()) or refuse(KeptFormEnded)
    return form.fields
