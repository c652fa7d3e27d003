"""The sign-in log: records of sign-ins and failed attempts, and the filters of the log."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

from core.accounts.model.devices import Location
from core.authentication.model.login import LoginFailure

# The number of attempts that have pages. Older ones are found with a filter or an export.
MAX_LISTED: Final = 1000
EXPORT_BATCH: Final = 500  # attempts of an export that are read at once
MAX_FAILURES: Final = 20  # that are recorded of one account in an hour
# The reason of attempts at accounts that a log must not name, whether there is an account or not. It replaces
# every other reason that depends on the account.
UNKNOWN_ACCOUNT: Final = "unknown_account"


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedLogin:
    """A failed attempt to sign in. `user_id` may belong to no account. The time is UTC."""

    user_id: UUID | None
    reason: LoginFailure
    provider: str  # the method, as in the sessions
    at: datetime
    org_id: UUID | None = None  # of the application that waits, or None for the platform itself
    service_id: UUID | None = None
    address: str | None = None
    agent: str | None = None
    location: Location | None = None

    @property
    def depends_on_account(self) -> bool:
        """Return whether the attempt failed at an account. Otherwise the user was never known."""
        return self.reason is not LoginFailure.PROVIDER


@dataclass(frozen=True, slots=True, kw_only=True)
class SignIn:
    """A sign-in or a failed attempt, as the reader of the log sees it. The time is UTC.

    A record without a user counts the attempts of one IP address in one minute.
    """

    id: UUID
    created_at: datetime
    user_id: UUID | None
    email: str | None  # of today; None if the account is gone, or no longer belongs to the organization
    org_id: UUID | None  # of the application
    service_id: UUID | None  # None for the platform itself
    service_name: str | None
    provider: str
    success: bool
    reason: str | None  # a value of LoginFailure, or UNKNOWN_ACCOUNT; None for a success, and for failures of earlier releases
    attempts: int
    address: str | None
    agent: str | None
    city: str | None
    country: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceActivity:
    """The last sign-in to an application, and the last failed attempt that the log still has. None: there is none."""

    last_success: SignIn | None
    last_failure: SignIn | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SignInFilter:
    """A filter of the sign-in log. An attempt must match every field that is not None. Times are UTC."""

    user_id: UUID | None = None
    service_id: UUID | None = None
    success: bool | None = None
    reason: str | None = None
    since: datetime | None = None
    until: datetime | None = None  # not included
