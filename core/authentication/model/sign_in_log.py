"""The sign-in log: records about sign-ins and failed attempts, and the log filters."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from ipaddress import IPv6Address, ip_address, ip_network
from math import ceil
from typing import Final
from uuid import UUID

from core.accounts.model.devices import Location
from core.authentication.model.login import LoginFailure
from core.kernel.proofs import Method
from core.kernel.values import is_printable

# The number of attempts that have pages. Older attempts are found with a filter or an export.
MAX_LISTED: Final = 1000
OWN_PERIOD: Final = timedelta(days=90)  # of the attempts that users see at their own account
EXPORT_BATCH: Final = 500  # attempts of an export that are read at once
# How many failures have rows. 1 million attempts at an application in a day, at any accounts and from any addresses,
# add less than 100,000 rows (`counted_rows_a_minute`).
MAX_FAILURES: Final = 20  # per account and hour; the newest row counts the rest
MAX_LOCKED: Final = 5  # of these, while the account was blocked, so that they leave rows for the attempts that count as a risk
# Among MAX_FAILURES, at applications in organizations that do not know the account, so that rows are left for attempts elsewhere.
MAX_ELSEWHERE: Final = 10
MAX_NAMED_FAILURES: Final = 2400  # at accounts that the log names, per organization and hour
MAX_COUNTED_NETWORKS: Final = 10  # with a row for their attempts at unknown accounts, per organization and minute
# The reason of attempts at accounts that a log must not name, with or without an account. It replaces every reason that
# depends on the account.
UNKNOWN_ACCOUNT: Final = "unknown_account"
MANY_ATTEMPTS: Final = "many"  # the reason in the row that counts the rest of a minute
# Failures before the application or the provider named a user.
_BEFORE_USER: Final = frozenset(
    {LoginFailure.PROVIDER, LoginFailure.STATE, LoginFailure.ADDRESS, LoginFailure.AUTHORIZATION_CODE, LoginFailure.DEVICE_CODE}
    | {LoginFailure.LOGOUT}
)


def counted_rows_a_minute() -> int:
    """Return how many rows without a user the failures in a minute at one application can add, at most.

    The organization and the platform have separate rows for unknown accounts, and every kind has one row for the rest
    of the minute.
    """
    return 2 * MAX_COUNTED_NETWORKS + 3


def to_network(address: str | None) -> str | None:
    """Return the network that counts as one client: the IPv4 address, or an IPv6 address's /64 network."""
    try:
        parsed = None if address is None else ip_address(address)
    except ValueError:
        return address
    return str(ip_network((parsed, 64), strict=False)) if isinstance(parsed, IPv6Address) else address


# Claims and attributes that stand in for the groups of a user who has too many (OpenID Connect Core section 5.6.2; Entra ID).
GROUPS_LEFT_OUT: Final = frozenset({"_claim_names", "hasgroups", "http://schemas.microsoft.com/claims/groups.link"})
MAX_NAMES: Final = 50  # claims per sign-in
MAX_NAME_LENGTH: Final = 100


def logged_names(names: Sequence[str]) -> list[str]:
    """Return the names of received claims as the log has them. An identity provider chooses them, also names that cannot be stored."""
    return [name[:MAX_NAME_LENGTH] for name in names if is_printable(name)][:MAX_NAMES]


@dataclass(frozen=True, slots=True)
class ConnectionAttempt:
    """A failed sign-in through a connection, as the sign-in log has it."""

    connection_id: UUID
    org_id: UUID
    fault: str | None = None  # from a fixed set; None: the answer of the identity provider was right
    received: tuple[str, ...] = ()  # names of claims or attributes, never their values
    seconds_off: int | None = None  # by which a refused time is ahead of our clock, or if negative behind it


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedLogin:
    """A failed attempt to sign in. `user_id` may belong to no account. The time is UTC."""

    id: UUID
    user_id: UUID | None
    reason: LoginFailure
    provider: str  # the method, as in the sessions
    at: datetime
    org_id: UUID | None = None  # of the application that waits, or None for the platform itself
    service_id: UUID | None = None
    external_client: str | None = None  # its host, or that it registered itself
    address: str | None = None
    agent: str | None = None
    location: Location | None = None
    request_id: str | None = None
    blocked_until: datetime | None = None  # if wrong attempts before have blocked the account
    connection: ConnectionAttempt | None = None

    @property
    def depends_on_account(self) -> bool:
        """Return whether the attempt failed at an account. Otherwise the user was never known."""
        return self.user_id is not None or self.reason not in _BEFORE_USER

    @property
    def blocked_seconds(self) -> int | None:
        """Return how long the account was still blocked, rounded up."""
        return None if self.blocked_until is None else max(1, ceil((self.blocked_until - self.at) / timedelta(seconds=1)))


@dataclass(frozen=True, slots=True, kw_only=True)
class SignIn:
    """A sign-in or a failed attempt, as the reader of the log sees it. The time is UTC.

    A record without a user counts the attempts from a network in a minute. Its `address` is an IPv4 address, an IPv6
    network, or None for the rest of a minute with many networks.
    """

    id: UUID
    created_at: datetime
    user_id: UUID | None
    email: str | None  # of today; None if the account is gone, or no longer belongs to the organization
    org_id: UUID | None  # of the application
    service_id: UUID | None  # None for the platform itself
    service_name: str | None  # the host of an external client
    provider: str
    success: bool
    reason: str | None  # of LoginFailure, UNKNOWN_ACCOUNT or MANY_ATTEMPTS; None for a success
    blocked_seconds: int | None
    attempts: int
    request_id: str | None
    address: str | None
    agent: str | None
    city: str | None
    country: str | None
    connection: str | None = None  # the slug; None for connections outside the organization, and removed connections
    connection_name: str | None = None
    fault: str | None = None  # why the answer of the identity provider was refused
    received: tuple[str, ...] = ()  # the names of the claims or attributes that came
    seconds_off: int | None = None  # by which a refused time is ahead of our clock, or if negative behind it

    @property
    def groups_left_out(self) -> bool:
        """Whether the identity provider left out the groups of the user."""
        return not GROUPS_LEFT_OUT.isdisjoint(self.received)

    @property
    def is_of_unknown_client(self) -> bool:
        """Whether this failed on the way to an external client that no user had agreed to, so that it was not stored."""
        return self.org_id is not None and self.service_id is None and not self.success and self.provider != Method.CONNECTION


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceActivity:
    """The last sign-in to an application, and the last failed attempt that the log still has. None if there is none."""

    last_success: SignIn | None
    last_failure: SignIn | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SignInFilter:
    """A filter of the sign-in log. An attempt must match every field that is not None. Times are UTC."""

    user_id: UUID | None = None
    email: str | None = None  # the whole address; storage takes only `user_id`
    service_id: UUID | None = None
    connection: str | None = None  # the slug, or for the platform the id; storage takes only `connection_id`
    connection_id: UUID | None = None
    success: bool | None = None
    reason: str | None = None
    request_id: str | None = None  # of a failure
    since: datetime | None = None
    until: datetime | None = None  # not included
