"""Storage of logins, sign-ins that are not complete, and reauthentications with their forms."""

from datetime import datetime
from typing import Protocol
from uuid import UUID

from core.accounts.model.attempt_limits import AttemptLimit
from core.accounts.model.devices import Device, KnownBy, Location
from core.authentication.model.login import EmailCodeAttempt, EmailSignIn
from core.authentication.model.sessions import (
    EmailedCode,
    KeptForm,
    PendingReauthentication,
    Session,
)
from core.kernel.connections import ConnectionSlug
from core.kernel.values import Email


class Logins(Protocol):
    """Login records."""

    async def begin_session(self, session: Session, refresh_hash: bytes, device: Device | None) -> None:
        """Add the session of a login, as `Sessions.begin` does, and record the login, as `record_success` does."""

    async def begin_browser_session(self, session: Session, browser_hash: bytes, device: Device | None) -> None:
        """Add the browser session of a login, as `Sessions.begin_in_browser` does, and record the login."""

    async def record_success(self, session: Session, provider: str, device: Device | None = None) -> None:
        """Record the login that started this session, with the risk and the location of the device.

        A login to a service is also counted in the service's total of the day.
        """

    async def remove(self, user_id: UUID, service_id: UUID | None = None) -> None:
        """Delete the user's login records, or those of one service, and subtract them from the totals."""


class FailedLogins(Protocol):
    """Records of failed logins."""

    async def record_failure(
        self, user_id: UUID, provider: str, now: datetime, address: str | None, agent: str | None, location: Location | None = None
    ) -> None:
        """Record a failed login without waiting for the disk, so that the response time does not reveal the account (security B-2)."""


class EmailSignInsRead(Protocol):
    """Read access to requests to sign in by email. They are found until they are used or expire."""

    async def by_request(self, request_hash: bytes, now: datetime) -> EmailSignIn | None:
        """Return the request of the browser with the secret of this hash."""

    async def by_link(self, link_hash: bytes, now: datetime) -> EmailSignIn | None:
        """Return the request of the email that has the link with this hash."""


class EmailSignIns(EmailSignInsRead, Protocol):
    """Write access to requests to sign in by email."""

    async def add(self, sign_in: EmailSignIn, request_hash: bytes) -> bool:
        """Add a request. Return False, and add nothing, if its service was deleted."""

    async def find(self, sign_in_id: UUID, now: datetime) -> tuple[EmailSignIn, str | None, str | None] | None:
        """Return a request with the name of its service and its code, if any. Raises: SealBroken."""

    async def issue(self, sign_in_id: UUID, user_id: UUID | None, link_hash: bytes | None, code: str) -> None:
        """Store the account, the link and the code of a request. The code is encrypted. Without an account, it opens nothing."""

    async def remove_older(self, email: Email, created_at: datetime) -> None:
        """Delete the requests for this address that were made before this time."""

    async def redeem(self, sign_in_id: UUID, now: datetime) -> bool:
        """Use up a request. Of several concurrent calls, exactly one returns True. Lock the account first."""

    async def void(self, user_id: UUID) -> None:
        """Delete the requests that led to an email to the user. Lock the account first."""


class EmailCodeAttempts(Protocol):
    """The count of attempts at the codes of sign-ins by email."""

    async def count_attempt(
        self, request_hash: bytes, in_browser: bool, known: KnownBy, tries: int, attempt_limit: AttemptLimit, now: datetime
    ) -> EmailCodeAttempt | None:
        """Count one attempt at this request and at its address, and return the data to check the code.

        If the account knows a device by these values, it is counted for that device, and not for the address.

        This is atomic. Return None, and count nothing, if the request was used, has expired or has had
        `tries` attempts. An attempt that `attempt_limit` blocks is not counted either.

        Raises: SealBroken.
        """


class ReauthenticationsRead(Protocol):
    """Read access to reauthentications that are not complete yet."""

    async def load(self, session_id: UUID) -> PendingReauthentication | None:
        """Return the sign-in at an identity provider that the second factor must follow, or None."""


class Reauthentications(ReauthenticationsRead, Protocol):
    """Write access. Callers lock the account first."""

    async def save_code(self, session_id: UUID, code: EmailedCode) -> None:
        """Store the code that was emailed for a session. It replaces an earlier one."""

    async def save_provider(self, session_id: UUID, provider: ConnectionSlug, now: datetime) -> None: ...

    async def consume_code(self, session_id: UUID, code_hash: bytes, now: datetime) -> bool:
        """Use up the emailed code of a session. Return whether it could still be used."""

    async def remove(self, session_id: UUID) -> None:
        """Forget what the session has verified."""


class ReauthenticationCodeAttempts(Protocol):
    """Attempts at emailed codes, which commit by themselves."""

    async def count_code_attempt(self, session_id: UUID, tries: int, now: datetime) -> EmailedCode | None:
        """Count an attempt at the code of a session, and return the code, or None if there is none, or no attempt is left."""


class SentFormsRead(Protocol):
    """Read access to the one-time keys of forms that were sent."""

    async def contains(self, form_hash: bytes) -> bool:
        """Return whether the key with this hash was used."""


class SentForms(SentFormsRead, Protocol):
    """The one-time keys of forms that were sent."""

    async def add(self, form_hash: bytes, expires_at: datetime) -> bool:
        """Use up the key with this hash, and return whether it was unused. The row can be deleted at `expires_at`."""


class KeptFormsRead(Protocol):
    """Read access to forms that wait for a reauthentication."""

    async def find(self, session_id: UUID, form_id: UUID, now: datetime) -> KeptForm | None:
        """Return a form that this session sent, unless it was taken or has expired."""


class KeptForms(KeptFormsRead, Protocol):
    """Write access to forms that wait for a reauthentication."""

    async def add(self, form: KeptForm, limit: int) -> bool:
        """Keep a form, and return whether its session is still alive. Of the forms of the session, the newest `limit` stay."""

    async def take(self, session_id: UUID, form_id: UUID, path: str, now: datetime) -> KeptForm | None:
        """Return and forget a form that this session sent to `path`. Of several concurrent calls, exactly one gets it."""
