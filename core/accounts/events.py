"""The events of the area accounts."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from uuid import UUID

from core.kernel.event_catalog import EVENT_KINDS, Event


def signed_up(user_id: UUID, org_id: UUID | None = None, service_id: UUID | None = None) -> Event:
    """An account came to be (organizations.md section 6.1). Told to the organization of the service whose API key made it, or at which the
    person signed up; about one that came by registration no organization hears (decisions, point 112)."""
    if org_id is None or service_id is None:
        return Event(EVENT_KINDS["user.signup.success"], str(user_id))
    return Event(EVENT_KINDS["user.signup.success"], str(user_id), org_id=org_id, data={"service_id": str(service_id)})


def email_changed(user_id: UUID) -> Event:
    """A user changed their email address. Neither address is in the event."""
    return Event(EVENT_KINDS["user.email_changed"], str(user_id), of_person=user_id)


def password_changed(user_id: UUID, method: str) -> Event:
    """`method` is `change`, `set` or `reset` (decisions, point 62)."""
    return Event(EVENT_KINDS["security.password.changed"], str(user_id), of_person=user_id, details={"method": method})


def mfa_enabled(user_id: UUID) -> tuple[Event, ...]:
    """The second factor is asked for from now on: for webhooks, and for the logs."""
    return tuple(Event(EVENT_KINDS[name], str(user_id), of_person=user_id) for name in ("user.mfa.enabled", "security.mfa.enabled"))


def mfa_disabled(user_id: UUID, *, forced: bool = False) -> tuple[Event, ...]:
    """The second factor is asked for no more, by the person's own doing or by that of a platform owner."""
    names, details = ("user.mfa.disabled", "security.mfa.disabled"), {"forced": forced}
    return tuple(Event(EVENT_KINDS[name], str(user_id), of_person=user_id, details=details) for name in names)


def anonymized(org_id: UUID, user_id: UUID) -> Event:
    """Nobody can say any more who this member was (identity.md section 4.7). Told to each organization that the person belongs to."""
    return Event(EVENT_KINDS["user.anonymized"], str(user_id), org_id=org_id)


def platform_owner_promoted(user_id: UUID) -> Event:
    """Somebody became a platform owner."""
    return Event(EVENT_KINDS["platform.owner.promoted"], str(user_id))


def platform_owner_demoted(user_id: UUID) -> Event:
    """Somebody is a platform owner no more."""
    return Event(EVENT_KINDS["platform.owner.demoted"], str(user_id))
