"""A change of an account's email address that its user requested, and the rules for it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from core.accounts.model.accounts import EmailNotFree
from core.accounts.model.security_notices import UNDO_TTL
from core.kernel.errors import Limited
from core.kernel.values import Email, new_id

if TYPE_CHECKING:
    from uuid import UUID

    from core.accounts.model.accounts import Account

# The longest time to prove the new address. It is shorter than UNDO_TTL: the old address then has
# two days or more to undo a change that took effect.
PROOF_TTL: Final = timedelta(hours=24)
LIMIT_WINDOW: Final = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class EmailChange:
    """A requested change of an account's email address. Times are UTC.

    It is pending until the user proves the new address, cancels or replaces it, or it expires. Until
    `undo_until`, the old address can undo it, pending or not.
    """

    id: UUID
    user_id: UUID
    session_id: UUID  # the session that requested the change: it continues when the change takes effect
    old_email: Email  # that of the account after an undo
    new_email: Email
    requested_at: datetime
    expires_at: datetime
    undo_until: datetime | None  # None if the old address was not verified: its owner has no right to the account
    proved_at: datetime | None = None
    cancelled_at: datetime | None = None
    undone_at: datetime | None = None

    def is_pending(self, now: datetime) -> bool:
        """Return whether a proof of the new address still completes the change."""
        return self.proved_at is None and self.cancelled_at is None and now < self.expires_at


class NewEmailTaken(EmailNotFree):
    """Another account has this address. If both are yours, sign in to that one or reset its password, delete it, and request this again."""


class TooManyEmailChanges(Limited):
    """You have requested too many changes of your email address. Retry-After says when you can request the next one."""

    def __init__(self, retry_after: float) -> None:
        super().__init__(retry_after, type(self).__doc__)


def new_email_change(
    account: Account, undo_address: Email | None, session_id: UUID, email: Email, proof_ttl: timedelta, now: datetime
) -> EmailChange:
    """Return a pending change of the account's address to `email`. An undo gives the account `undo_address`.

    If this is None, the present address is not verified, and the change cannot be undone. Its owner could
    otherwise take over the account of a user who mistyped their address: undo the correction, and reset
    the password.
    """
    return EmailChange(
        id=new_id(),
        user_id=account.id,
        session_id=session_id,
        old_email=undo_address or account.email,
        new_email=email,
        requested_at=now,
        expires_at=now + min(proof_ttl, PROOF_TTL),
        undo_until=None if undo_address is None else now + UNDO_TTL,
    )
