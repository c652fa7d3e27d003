"""Secrets of programs that end with the rights of the person who made them, and secrets that programs made (security J-12)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from uuid import UUID

    from core.accounts.model.email_queue import NoticedSecret
    from core.kernel.values import Email


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedCredential:
    """A credential of a service account or an API resource that just ended."""

    id: UUID
    client_id: UUID
    org_id: UUID | None  # None for a service account of the platform
    is_account: bool  # otherwise it is of an API resource
    name: str
    kind: str
    hint: str | None  # its first characters, or the thumbprint of its key
    holder: str  # the name of the service account or API resource
    organization: str | None
    org_slug: str | None
    recipient: Email | None  # who replaces it, if anyone with a verified address can


@dataclass(frozen=True, slots=True)
class CreatedSecret:
    """An API key or a SCIM token that a service account created, and that works on its own."""

    kind: NoticedSecret
    id: UUID
    name: str
    prefix: str
    holder: str | None  # the name of the application of an API key
