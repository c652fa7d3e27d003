"""Entities, refusals and pure rules of `core.eventing.webhooks`."""

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


# How long a secret that was replaced goes on signing beside the new one, so that nothing is lost while receivers learn that.
OVERLAP: Final = timedelta(hours=24)
# So that whoever rotates all day long does not have us sign, and send, without bounds.
FORMER_SECRETS_KEPT: Final = 10
SECRET_PREFIX: Final = "whsec_"  # noqa: S105  (of Standard Webhooks)

# What webhooks can be told of (decisions, points 216 and 226).
SUBSCRIBABLE: Final[Mapping[str, EventKind]] = MappingProxyType({name: kind for name, kind in EVENT_KINDS.items() if not kind.platform_only})


class WebhookNotFound(NotFound):
    """There is no such webhook."""


class WebhookNameTaken(Invalid):
    """A webhook of the organization has this name already. Choose another one."""


class NoEvents(Invalid):
    """A webhook is told of one type of event at least. Name which."""


class EventTypeUnknown(Invalid):
    """There is no such type of event."""

    def __init__(self) -> None:
        super().__init__(f"There is no such type of event. There are: {', '.join(SUBSCRIBABLE)}.")


class TooManyWebhooks(Invalid):
    """The organization has as many webhooks as it can have."""

    def __init__(self, most: int) -> None:
        super().__init__(f"The organization has as many webhooks as it can have, which is {most}. Delete one that is not needed any more.")


class NoWebhookChanges(Invalid):
    """Say what to change: name, url, events or is_active."""


class WebhookInactive(Invalid):
    """The webhook is not active, so nothing is sent to it. Set is_active first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook:
    """Whom an organization has told of events of these types. Times are UTC. Its secret is nobody's but the receiver's."""

    id: UUID
    org_id: UUID
    name: str
    url: str
    events: tuple[str, ...]
    is_active: bool
    created_at: datetime
    updated_at: datetime


def new_signing_secret() -> str:
    """256 bits in the form of Standard Webhooks (security.md W-5)."""
    return SECRET_PREFIX + base64.b64encode(secrets.token_bytes(32)).decode()


def subscribable(names: Sequence[str]) -> tuple[str, ...]:
    """The types of these names, each once. Raises NoEvents, EventTypeUnknown."""
    if not names:
        raise NoEvents
    if not set(names) <= SUBSCRIBABLE.keys():
        raise EventTypeUnknown
    return tuple(dict.fromkeys(names))
