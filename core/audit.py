"""The audit log of an organization: entries, filters, pages (organizations.md sections 2.8, 4.9 and 6.3; decisions, points 226 to 232)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

if TYPE_CHECKING:
    from core.values import Email


@dataclass(frozen=True, slots=True)
class Actor:
    """Who did it, as far as the account still exists."""

    id: UUID
    email: Email
    is_platform_owner: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One entry. Times are UTC. `actor_id` is None for the service itself and for whoever was not signed in; `actor` also where the account
    is gone."""

    id: UUID
    org_id: UUID
    actor_id: UUID | None
    actor: Actor | None
    impersonator_id: UUID | None
    impersonator: Actor | None
    action: str
    target_type: str
    target_id: str
    address: str | None
    agent: str | None
    success: bool
    details: Mapping[str, Any]
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Which entries: all that match everything that is not None. `actions` are names of the catalogue; `target_id` goes with a type."""

    actions: frozenset[str] | None = None
    target_type: str | None = None
    target_id: str | None = None
    actor_id: UUID | None = None
