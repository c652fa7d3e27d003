"""Emails about a way into an account, with a link that undoes it (security A-13)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from core.kernel.errors import Invalid

if TYPE_CHECKING:
    from uuid import UUID

    from core.accounts.email_queue_rules import EmailKind
    from core.kernel.values import Email

UNDO_TTL: Final = timedelta(hours=72)


class UndoLinkInvalid(Invalid):
    """This link is incomplete, has expired, or has already been used. If you cannot sign in, ask the operator of Gatehouse."""


@dataclass(frozen=True, slots=True)
class SecurityNotice:
    """An email to the verified address of an account about a change to its security. Times are UTC."""

    id: UUID
    user_id: UUID
    session_id: UUID | None  # the session that made the change, or None
    kind: EmailKind
    address: Email
    created_at: datetime  # the time of the change
    undo_until: datetime
    detail: str | None = None  # of IDENTITY_LINKED, the name of the identity provider
    undone_at: datetime | None = None

    def can_be_undone(self, now: datetime) -> bool:
        """Return whether the link in the email still works."""
        return self.undone_at is None and now < self.undo_until


@dataclass(frozen=True, slots=True)
class UndoneChanges:
    """The result of an undo: the address of the account, and what was undone."""

    email: Email
    is_reopened: bool  # the account was to be deleted


@dataclass(frozen=True, slots=True)
class AddedSignInMethod:
    """A linked account or a second factor that was added a short time ago, for its user to recognize. `added_at` is UTC."""

    id: UUID  # of the notice
    name: str | None  # of the identity provider, or None for a second factor
    added_at: datetime
