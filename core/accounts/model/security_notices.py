"""Security notices: emails about a new way into an account, with a link that undoes it (security A-13)."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from core.accounts.model.email_queue import EmailKind
from core.kernel.connections import ConnectionSlug
from core.kernel.errors import Invalid
from core.kernel.proofs import FactorKind
from core.kernel.values import Email

UNDO_TTL: Final = timedelta(hours=72)
# If a factor was added within 72 hours after an earlier factor was removed, its link restores the earlier factor (security A-13).
FACTORS_KEPT: Final = 2 * UNDO_TTL
# Marks with which the detail of PASSWORD_CHANGED can end
RESTORES_BY_UNDO: Final = "!"
ASKS_FOR_FACTORS: Final = "+"
NEEDS_RECOVERY: Final = "?"
PASSWORD_REMOVED: Final = "removed"  # the detail in a PASSWORD_CHANGED notice  # noqa: S105
AFTER_WAIT: Final = ""  # the PASSKEY_REMOVED detail after a wait


class UndoLinkInvalid(Invalid):
    """This link is incomplete, has expired, or has already been used. If you cannot sign in, ask the operator of Gatehouse."""


@dataclass(frozen=True, slots=True)
class SecurityNotice:
    """An email to an account's verified address about a change to its security. Times are UTC."""

    id: UUID
    user_id: UUID
    session_id: UUID | None  # the session that made the change, or None
    kind: str  # an `EmailKind`, or a kind from a newer release
    address: Email
    created_at: datetime  # when the change was made
    undo_until: datetime
    # The name of the identity provider, for IDENTITY_LINKED and IDENTITY_UNLINKED. The product that keeps the passkey, for
    # PASSKEY_ADDED and PASSKEY_REMOVED, or AFTER_WAIT. The second factor, for MFA_ENABLED and MFA_DISABLED: `totp` or `passkey`, with
    # `:on` if another second factor stays. The number of passkeys that stay after a reset, with the marks above, or PASSWORD_REMOVED,
    # for PASSWORD_CHANGED.
    detail: str | None = None
    undone_at: datetime | None = None

    def can_be_undone(self, now: datetime) -> bool:
        """Return whether the link in the email still works."""
        return self.undone_at is None and now < self.undo_until

    @property
    def is_of_wait(self) -> bool:
        """Whether the change belongs to a wait for lost passkeys, for which the user showed password and mailbox (security PK-13)."""
        is_removal = self.kind == EmailKind.PASSKEY_REMOVED and self.detail == AFTER_WAIT
        return is_removal or self.kind in (EmailKind.PASSKEY_WAIT_STARTED, EmailKind.PASSKEY_WAIT_OVER)


@dataclass(frozen=True, slots=True)
class UndoableChanges:
    """The changes that an undo link can undo."""

    notice: SecurityNotice  # of the link
    live: Sequence[SecurityNotice]  # all changes to the account that can be undone, the oldest first

    @property
    def starts(self) -> tuple[SecurityNotice, ...]:
        """The changes to start from, the oldest first, or none if the link itself undoes nothing.

        The changes were mailed to the same address, or made in the same session: a thief may have made several changes in several sessions.
        """
        address, session = self.notice.address, self.notice.session_id
        found = (other for other in self.live if other.address == address or (session and other.session_id == session))
        return tuple(found) if self.notice in self.live else ()

    @property
    def default(self) -> SecurityNotice:
        """The oldest start, for users who do not choose. Changes of a wait do not count, unless the link belongs to a wait."""
        return next(each for each in self.starts if self.notice.is_of_wait or not each.is_of_wait)


@dataclass(frozen=True, slots=True)
class UndoneChanges:
    """The result of an undo: the account's address, and the undone changes, oldest first."""

    email: Email
    is_reopened: bool  # the account was to be deleted
    undone: tuple[SecurityNotice, ...]
    needs_recovery: bool  # for the factor that a sign-in policy asks for
    keeps_second: bool  # the undo restored an earlier second factor, or with `is_unchanged` left a present factor
    is_unchanged: bool


@dataclass(frozen=True, slots=True)
class AddedSignInMethod:
    """A linked account, a passkey or a second factor, for its user to recognize. `added_at` is UTC."""

    id: UUID  # of the identity or the passkey; the user's id for the app; derived from the user's id for keys as a second factor
    provider: ConnectionSlug | None  # None for a passkey and a second factor
    added_at: datetime
    is_recent: bool  # it ends with a reset unless the user recognizes it
    passkey: str | None = None  # the name of the passkey
    second: FactorKind | None = None  # the second factor: an app, or passkeys and security keys that the account had before
    needed_by: tuple[str, ...] = ()  # the sign-in policies that the account does not meet without it, by name
    signed_up_unproven: bool = False  # the sign-up did not verify the present address, so the linked account may be a squatter's

    @property
    def is_kept_by_policy(self) -> bool:
        """Whether the reset page cannot end the method, because a sign-in policy needs it."""
        return bool(self.needed_by) and not self.is_recent and not self.signed_up_unproven
