"""Storage of service accounts and of the credentials of programs."""

from datetime import datetime
from typing import Protocol
from uuid import UUID

from core.accounts.accounts_rules import AccountSummary
from core.kernel.principals import Role
from core.programs.service_accounts_rules import ServiceAccountContext


class ServiceAccountsRead(Protocol):
    """Read access to service accounts.

    An account is live if the named credential is valid, and if its owner could create it now: an
    account of an organization needs an owner whose role there allows it, and an account of the
    platform needs a platform owner.
    """

    async def load_context(self, account_id: UUID, credential_id: UUID, slug: str | None, now: datetime) -> ServiceAccountContext | None:
        """Return the account, with the organization of `slug`, or None if the account is not live."""
        ...

    async def summary(self, org_id: UUID, account_id: UUID) -> AccountSummary | None:
        """Return the account as invitations show it in place of a user's account."""
        ...


class ServiceAccounts(ServiceAccountsRead, Protocol):
    """Write access to service accounts. Callers lock the organization before calling any method."""

    async def lock_live(self, org_id: UUID | None, account_id: UUID, credential_id: UUID) -> Role | None:
        """Keep the account and its credential from being changed or revoked. Return its role, or None if it is not live.

        A credential that has expired during the request counts as valid. An account of the platform
        (`org_id` is None) has the role `owner` here.
        """
        ...


# The repositories of this area, by the kind of access


class ProgramsReading(Protocol):
    """Read access to the repositories of programs."""

    @property
    def service_accounts(self) -> ServiceAccountsRead: ...


class ProgramsTransaction(Protocol):
    """The repositories of programs in a transaction."""

    @property
    def service_accounts(self) -> ServiceAccounts: ...
