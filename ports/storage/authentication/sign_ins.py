"""Storage for logins, sign-ins that are not complete, reauthentications with their forms, recoveries, and answers of sign-in policies."""

from collections.abc import Awaitable, Collection, Mapping
from datetime import datetime
from typing import Protocol
from uuid import UUID

from core.accounts.model.devices import Device
from core.authentication.model import policy, sessions, sign_in_log
from core.authentication.model.recovery import AccountRecovery, CountedAttempt
from core.kernel import values
from core.kernel.callers import PolicyState
from core.kernel.connections import ConnectionSlug


class Logins(Protocol):
    """Login records."""

    async def begin_session(
        self, session: sessions.Session, refresh_hash: bytes, device: Device | None, *, for_application: bool = False
    ) -> None:
        """Add a login's session, as `Sessions.begin` does, and record the login, as `record_success` does.

        If an application waits for a session that is not its own, no organization's log has the record: it would tell
        the user's other organizations about the application.
        """

    async def begin_browser_session(
        self, session: sessions.Session, browser_hash: bytes, device: Device | None, *, for_application: bool = False
    ) -> None:
        """Add a login's browser session, as `Sessions.begin_in_browser` does, and record the login as `begin_session` does."""

    async def record_success(self, session: sessions.Session, provider: str, device: Device | None = None) -> None:
        """Record the login that started this session, with the device's risk and location.

        A login to a service is also counted in the service's total for the day.
        """

    async def remove(self, user_id: UUID, service_id: UUID | None = None) -> None:
        """Delete the user's login records, or only the records at a service, and subtract them from the totals."""


class FailedLogins(Protocol):
    """Records about failed logins."""

    async def record_failure(self, failure: sign_in_log.FailedLogin) -> None:
        """Record a failed login without waiting for the disk, so that the response time does not reveal the account (security B-2).

        The application's organization sees the account if it is a confirmed member or a user of the application.
        Otherwise the attempt counts as an attempt at an unknown account. The limits in
        `core.authentication.model.sign_in_log` hold: attempts over them are counted in a row that exists.

        An organization that sees a new row gets the event SIGN_IN_FAILED, if a webhook has chosen it.

        An answer that ends no sign-in (`LoginFailure.STATE`) takes its request's open rate-limit tokens first. Raises: Limited.
        """


class SignInLogRead(Protocol):
    """Read access to the organizations' sign-in logs, and the platform's log (`org_id` None)."""

    async def page(
        self, org_id: UUID | None, filter_: sign_in_log.SignInFilter, page: values.Page
    ) -> values.PageResult[sign_in_log.SignIn]:
        """Return a page with the newest MAX_LISTED matching attempts, newest first, with their number. Runs two statements."""

    async def batch(
        self, org_id: UUID | None, filter_: sign_in_log.SignInFilter, last: sign_in_log.SignIn | None, limit: int
    ) -> list[sign_in_log.SignIn]:
        """Return the next matching attempts, newest first. `last` is the last attempt in the batch before, or None."""

    async def find_user(self, org_id: UUID | None, email: values.Email) -> UUID | None:
        """Return the user that the log shows with this address today, or None.

        For an organization, this is a confirmed member, an application's user, or a user that its directory knows.
        """

    async def last_of_service(self, org_id: UUID, service_id: UUID) -> sign_in_log.ServiceActivity:
        """Return the last sign-in to a service and the last failed attempt, as its organization sees them."""

    async def last_successes(self, org_id: UUID, service_ids: Collection[UUID]) -> Mapping[UUID, datetime]:
        """Return when the last sign-in to every service was. Services without a sign-in are left out."""


class ReauthenticationsRead(Protocol):
    """Read access to reauthentications that are not complete yet."""

    async def load(self, session_id: UUID) -> sessions.PendingReauthentication | None:
        """Return the sign-in at an identity provider that the second factor must follow, or None."""


class Reauthentications(ReauthenticationsRead, Protocol):
    """Write access. Callers lock the account first."""

    async def save_code(self, session_id: UUID, code: sessions.EmailedCode) -> None:
        """Store the code that was emailed for a session. The new code replaces an earlier code."""

    async def save_provider(self, session_id: UUID, provider: ConnectionSlug, now: datetime) -> None: ...

    async def consume_code(self, session_id: UUID, code_hash: bytes, now: datetime) -> bool:
        """Use up a session's emailed code. Return whether the code could still be used."""

    async def remove(self, session_id: UUID) -> None:
        """Forget what the session has verified."""


class ReauthenticationCodeAttempts(Protocol):
    """Attempts at emailed codes, which commit by themselves."""

    async def count_code_attempt(self, session_id: UUID, tries: int, now: datetime) -> sessions.EmailedCode | None:
        """Count an attempt at a session's code, and return the code, or None if there is none, or no attempt is left."""


class SentFormsRead(Protocol):
    """Read access to the form keys of sent forms."""

    async def contains(self, form_hash: bytes) -> bool:
        """Return whether the key with this hash was used."""


class SentForms(SentFormsRead, Protocol):
    """Form keys of sent forms. A key works once."""

    async def add(self, form_hash: bytes, expires_at: datetime) -> bool:
        """Use up the key with this hash, and return whether it was unused. The row can be deleted at `expires_at`."""


class KeptFormsRead(Protocol):
    """Read access to forms that wait for a reauthentication."""

    async def find(self, session_id: UUID, form_id: UUID, now: datetime) -> sessions.KeptForm | None:
        """Return a form that this session sent, unless it was taken or has expired."""


class KeptForms(KeptFormsRead, Protocol):
    """Write access to forms that wait for a reauthentication."""

    async def add(self, form: sessions.KeptForm, limit: int) -> bool:
        """Keep a form, and return whether its session is still alive. The session's newest `limit` forms stay."""

    async def take(self, session_id: UUID, form_id: UUID, path: str, now: datetime) -> sessions.KeptForm | None:
        """Return and forget a form that this session sent to `path`. Exactly one concurrent call gets it."""


class PolicyPassesRead(Protocol):
    """Read access to sign-in policies, and to the facts that they judge. `org_id` None is the platform."""

    def load(
        self, org_id: UUID | None, service_id: UUID | None, user_id: UUID, session_id: UUID | None
    ) -> Awaitable[policy.PolicySubject | None]:
        """Return the user with the organization's policy and its application's policy, or None without a policy.

        The session's facts are included, if it exists.
        """

    async def state_on_platform(self, session_id: UUID, now: datetime) -> PolicyState | None:
        """Return whether the session has a pass from the platform's policy, or None without a policy."""


class PolicyPasses(PolicyPassesRead, Protocol):
    """Write access to passes."""

    async def save(self, new: policy.PolicyPass) -> None:
        """Store a pass, in place of the session's earlier pass in this organization. Nothing is stored without the session."""

    async def add_break_glass_use(self, org_id: UUID, session_id: UUID, now: datetime) -> bool:
        """Store that the session uses break glass.

        Return False if this was stored before, also for the browser session that the session comes from.
        """


class PolicyPassUse(Protocol):
    """Changes to passes that commit by themselves."""

    async def save(self, new: policy.PolicyPass) -> None:
        """As `PolicyPasses.save`."""

    async def claim_reminder(self, user_id: UUID, now: datetime, before: datetime) -> bool:
        """Store that the user is reminded now that a rule starts later. Return False if that was done after `before`."""


class RecoveriesRead(Protocol):
    """Read access to recoveries. Only unfinished recoveries are returned."""

    async def of_user(self, user_id: UUID, now: datetime, org_id: UUID | None = None) -> AccountRecovery | None:
        """Return an account's recovery, unless it has expired. With `org_id`, return it only if this organization issued it."""

    async def of_address(self, email: values.Email, now: datetime) -> AccountRecovery | None:
        """Return the recovery for the account with this address, unless it has expired or is open in a browser."""

    async def open_in(self, browser_hash: bytes, now: datetime) -> UUID | None:
        """Return the newest recovery that is open in this browser."""

    async def of_browser(self, recovery_id: UUID, browser_hash: bytes, now: datetime) -> tuple[AccountRecovery, str] | None:
        """Return a recovery that is open in this browser, with its secret for an authenticator app."""


class RecoveryAttempts(Protocol):
    """The counter for attempts at the code, which stays after a refusal."""

    async def count_attempt(self, recovery_id: UUID, limit: int, now: datetime) -> CountedAttempt | None:
        """Count an attempt, and return it, or None if the recovery takes no more attempts."""


class Recoveries(RecoveriesRead, Protocol):
    """Write access to recoveries. Callers lock the account first."""

    async def end(self, recovery_id: UUID) -> bool:
        """Remove this recovery, and return whether it was there."""

    async def put(self, recovery: AccountRecovery, code_hash: bytes) -> None:
        """Store the recovery in place of the account's earlier recovery."""

    async def open(self, recovery: AccountRecovery, browser_hash: bytes, secret: str, now: datetime) -> bool:
        """Open the recovery in this browser. Exactly one browser gets True."""

    async def remove(self, user_id: UUID, org_id: UUID | None = None) -> AccountRecovery | None:
        """Remove the account's recovery, and return it, or None. With `org_id`, return it only if this organization issued it."""

    async def take(self, recovery_id: UUID, browser_hash: bytes, now: datetime) -> UUID | None:
        """Use up a recovery that is open in this browser, and return its account's id. Exactly one concurrent call gets the id."""
