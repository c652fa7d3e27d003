"""Constructors for events about set-up links."""

from core.kernel.callers import SetupPart
from core.kernel.event_catalog import EVENT_KINDS, Event
from core.kernel.values import rfc3339
from core.setup.model.links import SetupLink
from core.tenancy.events import setup_link_ended


def created(link: SetupLink) -> Event:
    """A set-up link was created."""
    return _event("setup_link.created", link, kind=link.kind.value, parts=list(link.parts), expires_at=rfc3339(link.expires_at))


def opened(link: SetupLink) -> Event:
    """A set-up link was opened. The link works in this browser alone from now on."""
    return _event("setup_link.opened", link)


def part_changed(link: SetupLink, part: SetupPart, *, is_ready: bool) -> Event:
    """A set-up link's reader changed the proposal for a part."""
    return _event("setup_link.part.changed", link, part=part.value, is_ready=is_ready)


def part_applied(link: SetupLink, part: SetupPart) -> Event:
    """An admin applied a set-up link's proposal for a part."""
    return _event("setup_link.part.applied", link, part=part.value)


def ended(link: SetupLink) -> Event:
    """A set-up link ended before its expiry: its reader finished, an admin ended it, or too many codes were wrong."""
    return setup_link_ended(link.org_id, link.id, link.name, by=None if link.ended_by is None else link.ended_by.value)


def _event(name: str, link: SetupLink, **details: object) -> Event:
    named = {"setup_link_id": str(link.id), "name": link.name, **details}
    return Event(EVENT_KINDS[name], str(link.org_id), org_id=link.org_id, details=named)
