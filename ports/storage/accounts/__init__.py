"""Storage of accounts: accounts, second factors, devices, the email queue, attempt limits, one-time tokens, platform metrics."""

from typing import Protocol

from ports.storage.accounts.accounts import (
    Accounts,
    AccountsRead,
    EmailChanges,
    EmailChangesRead,
    OneTimeTokens,
    OneTimeTokensRead,
    PlatformRead,
    PlatformUsersRead,
)
from ports.storage.accounts.emails import EmailLeases, EmailQueue
from ports.storage.accounts.security import (
    AttemptLimits,
    AttemptReset,
    Devices,
    DevicesRead,
    Mfa,
    MfaLog,
    MfaRead,
    SecurityNotices,
    SecurityNoticesRead,
)


class AccountsReading(Protocol):
    """Read access to the repositories of accounts."""

    @property
    def accounts(self) -> AccountsRead: ...
    @property
    def devices(self) -> DevicesRead: ...
    @property
    def email_changes(self) -> EmailChangesRead: ...
    @property
    def security_notices(self) -> SecurityNoticesRead: ...
    @property
    def mfa(self) -> MfaRead: ...
    @property
    def one_time_tokens(self) -> OneTimeTokensRead: ...
    @property
    def platform(self) -> PlatformRead: ...
    @property
    def platform_users(self) -> PlatformUsersRead: ...


class AccountsTransaction(Protocol):
    """The repositories of accounts in a transaction."""

    @property
    def accounts(self) -> Accounts: ...
    @property
    def devices(self) -> Devices: ...
    @property
    def attempt_limits(self) -> AttemptReset: ...
    @property
    def email_changes(self) -> EmailChanges: ...
    @property
    def security_notices(self) -> SecurityNotices: ...
    @property
    def email_queue(self) -> EmailQueue: ...
    @property
    def mfa(self) -> Mfa: ...
    @property
    def one_time_tokens(self) -> OneTimeTokens: ...


class AccountsAutocommit(Protocol):
    """The repositories of accounts with autocommit: every statement commits by itself."""

    @property
    def attempt_limits(self) -> AttemptLimits: ...
    @property
    def email_queue(self) -> EmailLeases: ...
    @property
    def mfa(self) -> MfaLog: ...
