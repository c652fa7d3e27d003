"""The repositories of accounts."""

from adapters.postgres.accounts.accounts import Accounts
from adapters.postgres.accounts.attempt_limits import AttemptLimits
from adapters.postgres.accounts.devices import Devices
from adapters.postgres.accounts.email_changes import EmailChanges
from adapters.postgres.accounts.email_queue import EmailQueue
from adapters.postgres.accounts.mfa import Mfa
from adapters.postgres.accounts.one_time_tokens import OneTimeTokens
from adapters.postgres.accounts.platform import Platform
from adapters.postgres.accounts.platform_users import PlatformUsers
from adapters.postgres.accounts.security_notices import SecurityNotices
from adapters.postgres.engine.scope import Scope, repository


class AccountsRepositories(Scope):
    """The repositories of accounts, for every kind of access."""

    accounts = repository(Accounts)
    devices = repository(Devices)
    attempt_limits = repository(AttemptLimits)
    email_changes = repository(EmailChanges)
    security_notices = repository(SecurityNotices)
    email_queue = repository(EmailQueue)
    mfa = repository(Mfa)
    one_time_tokens = repository(OneTimeTokens)
    platform = repository(Platform)
    platform_users = repository(PlatformUsers)
