"""Webhooks: the entity, its event types and its signing secrets."""

from __future__ import annotations

import base64
import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from core.kernel.errors import Invalid, NotFound
from core.kernel.event_catalog import EVENT_KINDS, EventKind

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from uuid import UUID


# After a rotation, the old secret signs beside the new one for this time, so that receivers can
# switch without losing a delivery.
OVERLAP: Final = timedelta(hours=24)
# The limit keeps the signature header small when a member rotates the secret again and again.
FORMER_SECRETS_KEPT: Final = 10
SECRET_PREFIX: Final = "whsec_"  # noqa: S105  (of Standard Webhooks)

# The event types that webhooks can subscribe to.
SUBSCRIBABLE: Final[Mapping[str, EventKind]] = MappingProxyType(
    {name: kind for name, kind in EVENT_KINDS.items() if not kind.platform_only}
)


class WebhookNotFound(NotFound):
    """This webhook does not exist."""


class WebhookNameTaken(Invalid):
    """A webhook of the organization already has this name. Choose another one."""


class NoEvents(Invalid):
    """A webhook needs at least one event type. List the ones to send."""


class EventTypeUnknown(Invalid):
    """This event type does not exist."""

    def __init__(self) -> None:
        super().__init__(f"This event type does not exist. The event types are: {', '.join(SUBSCRIBABLE)}.")


class TooManyWebhooks(Invalid):
    """The organization already has the maximum number of webhooks. Delete a webhook first."""

    audited = True

    def __init__(self, most: int) -> None:
        super().__init__(f"The organization already has the maximum of {most} webhooks. Delete one that you no longer need.")


class NoWebhookChanges(Invalid):
    """The request changes nothing. Send at least one of name, url, events and is_active."""


class WebhookInactive(Invalid):
    """The webhook is not active, so nothing is sent to it. Turn it on first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook:
    """A webhook of an organization, without its secret. Times are UTC."""

    id: UUID
    org_id: UUID
    name: str
    url: str
    events: tuple[str, ...]
    is_active: bool
    created_at: datetime
    updated_at: datetime


def new_signing_secret() -> str:
    """Return a new secret of 256 random bits in the format of Standard Webhooks (security W-5)."""
    return SECRET_PREFIX + base64.b64encode(secrets.token_bytes(32)).decode()


def parse_event_types(names: Sequence[str]) -> tuple[str, ...]:
    """Return the event types without duplicates.

    Raises: NoEvents, EventTypeUnknown.
    """
    if not names:
        raise NoEvents
    if not set(names) <= SUBSCRIBABLE.keys():
        raise EventTypeUnknown
    return tuple(dict.fromkeys(names))
