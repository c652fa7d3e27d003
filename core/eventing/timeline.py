"""A person's timeline: their latest sign-ins and the latest changes by and about them."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Final
from uuid import UUID

from core.authentication.model import sign_in_log
from core.eventing.descriptions import describe_entries
from core.eventing.model import audit
from core.eventing.model.sentences import DescribedEntry
from core.kernel import event_catalog
from core.kernel.access import may_view
from core.kernel.callers import OrganizationCaller
from core.kernel.roles import Capability
from ports import Ports

# Without a limit, a search for a person's few changes would read all entries about many sign-ins.
REACH: Final = timedelta(days=90)
# The timeline takes these actions from the sign-in log.
SIGN_IN_ACTIONS: Final = frozenset({"user.login.success"})


@dataclass(frozen=True, slots=True)
class Timeline:
    """A person's latest sign-ins and changes, newest first. Changes are from the last 90 days."""

    sign_ins: Sequence[sign_in_log.SignIn]
    changes: Sequence[DescribedEntry]


async def load_in_organization(ports: Ports, caller: OrganizationCaller, user_id: UUID, most: int) -> Timeline:
    """Return a person's latest `most` sign-ins and changes that the caller's organization may see.

    If the caller may not read a log, its part is empty.
    """
    org_id = caller.acts_in.id
    changes = _changes(user_id, frozenset(event_catalog.AUDIT_ACTIONS), ports)
    async with ports.storage.reading() as read:
        sees_sign_ins, sees_changes = may_view(caller, Capability.SIGN_INS_VIEW), may_view(caller, Capability.AUDIT_VIEW)
        sign_ins = await read.sign_in_log.batch(org_id, sign_in_log.SignInFilter(user_id=user_id), None, most) if sees_sign_ins else []
        entries = await read.audit.batch(org_id, changes, None, most) if sees_changes else []
        return Timeline(sign_ins, await describe_entries(ports, partial(read.audit.names, org_id), entries))


async def load_on_platform(ports: Ports, user_id: UUID, most: int) -> Timeline:
    """Return a person's latest `most` sign-ins, and the changes in the platform's log."""
    changes = _changes(user_id, frozenset(event_catalog.PLATFORM_ACTIONS), ports)
    async with ports.storage.reading() as read:
        sign_ins = await read.sign_in_log.batch(None, sign_in_log.SignInFilter(user_id=user_id), None, most)
        entries = await read.audit.batch(None, changes, None, most)
        return Timeline(sign_ins, await describe_entries(ports, partial(read.audit.names, None), entries))


def _changes(user_id: UUID, actions: frozenset[str], ports: Ports) -> audit.AuditFilter:
    person = frozenset({(str(event_catalog.Target.USER), str(user_id))})
    return audit.AuditFilter(involved=person, actions=actions - SIGN_IN_ACTIONS, since=ports.clock.now() - REACH)
