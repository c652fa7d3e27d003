"""Emails about a way into an account, with a link that undoes it (security A-13), and secrets of programs that ended (security J-12)."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from core.accounts.model.email_queue import NoticedSecret
from core.kernel.errors import Invalid
from core.kernel.providers import Provider
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
    kind: str  # an `EmailKind`, or one of a newer release
    address: Email
    created_at: datetime  # the time of the change
    undo_until: datetime
    detail: str | None = None  # of IDENTITY_LINKED and IDENTITY_UNLINKED, the name of the identity provider
    undone_at: datetime | None = None

    def can_be_undone(self, now: datetime) -> bool:
        """Return whether the link in the email still works."""
        return self.undone_at is None and now < self.undo_until


@dataclass(frozen=True, slots=True)
class UndoableChanges:
    """The changes that an undo link can undo: its own, and the recent ones of the same session or emailed to the same address."""

    notice: SecurityNotice  # of the link
    starts: tuple[SecurityNotice, ...]  # the changes to start from, the oldest first


@dataclass(frozen=True, slots=True)
class UndoneChanges:
    """The result of an undo: the address of the account, and the changes that were undone, oldest first."""

    email: Email
    is_reopened: bool  # the account was to be deleted
    undone: tuple[SecurityNotice, ...]


def possible_starts(live: Sequence[SecurityNotice], notice: SecurityNotice) -> tuple[SecurityNotice, ...]:
    """Return the changes that an undo with the link of `notice` can start from. `live` are all that can be undone, the oldest first.

    They were mailed to the same address, or the same session made them: a thief may have changed
    several things, in several sessions. Nothing is returned if `notice` itself cannot be undone.
    """
    if notice not in live:
        return ()
    return tuple(other for other in live if other.address == notice.address or (other.session_id and other.session_id == notice.session_id))


@dataclass(frozen=True, slots=True)
class AddedSignInMethod:
    """A linked account or a second factor, for its user to recognize. `added_at` is UTC."""

    id: UUID  # of the identity, or of the user for the second factor
    provider: Provider | None  # None for a second factor
    added_at: datetime
    is_recent: bool  # it ends with a reset unless the user recognizes it


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
