"""What is asked of storage about accounts."""

from datetime import datetime
from typing import Protocol
from uuid import UUID

from core.accounts import Account
from core.one_time_tokens import Purpose
from core.origins import Ties
from core.values import Email
from ports.storage.soon import Soon


class AccountsRead(Protocol):
    """Accounts, looked at."""

    async def by_email(self, email: Email) -> Account | None:
        """The account with this address, usable or not."""
        ...

    async def by_id(self, user_id: UUID) -> Account | None: ...
    async def platform_owner_exists(self) -> bool: ...


class Accounts(AccountsRead, Protocol):
    """Accounts, changed."""

    async def add(self, account: Account) -> None:
        """Raises EmailTaken."""
        ...

    async def add_if_free(self, account: Account) -> bool:
        """Add the account unless another one has its address; whether it was added."""
        ...

    async def lock(self, user_id: UUID) -> Account | None:
        """The account, locked until the transaction ends."""
        ...

    async def lock_by_email(self, email: Email) -> Account | None: ...

    async def lock_by_token(self, token_hash: bytes, purpose: Purpose) -> Account | None:
        """The account that a one-time token was made for, locked; whether the token is still good is another question."""
        ...

    def lock_usable(self, user_id: UUID) -> Soon[Account]:
        """The account, locked before the next statement, if anybody may sign in to it."""
        ...

    def lock_for_login(self, user_id: UUID, password_hash: str) -> Soon[Account]:
        """The account, locked before the next statement, if it may still sign in with the password that was checked: same hash, usable,
        address verified."""
        ...

    async def lock_platform_owners(self) -> None:
        """Make others who would change who is a platform owner wait."""
        ...

    async def mark_verified(self, user_id: UUID, now: datetime) -> None:
        """The address is proved; one that was proved before keeps its time."""
        ...

    async def set_password(self, user_id: UUID, password_hash: str, now: datetime) -> None: ...

    async def drop_password(self, user_id: UUID, now: datetime) -> None:
        """The account is locked before, and has no password then."""
        ...

    async def set_mfa(self, user_id: UUID, enabled_at: datetime | None, now: datetime) -> None:
        """Ask for the second factor from now on, or no more."""
        ...

    async def change_email(self, user_id: UUID, email: Email, now: datetime) -> None:
        """The new address is unverified, and the old one kept among the former ones. The account is locked before. Raises EmailTaken."""
        ...

    async def deactivate(self, user_id: UUID, now: datetime) -> None:
        """Nobody can sign in to the account from now on. Its sessions are the caller's to end."""
        ...

    async def reactivate(self, user_id: UUID, now: datetime) -> None: ...

    async def promote(self, user_id: UUID, now: datetime) -> None:
        """Make the account a platform owner."""
        ...

    async def demote(self, user_id: UUID, now: datetime) -> None:
        """Make the account a platform owner no more. `lock_platform_owners` comes before."""
        ...

    async def other_platform_owner_exists(self, user_id: UUID) -> bool:
        """Whether there is a platform owner in good standing besides this one. `lock_platform_owners` comes before."""
        ...

    async def lock_platform_owner(self, user_id: UUID) -> bool:
        """Whether the account is a platform owner in good standing, which it then stays until the transaction ends."""
        ...

    async def ties(self, user_id: UUID, org_id: UUID) -> Ties:
        """What ties a locked account to this organization, and what it is tied to besides."""
        ...

    async def remove(self, user_id: UUID) -> None:
        """Remove a locked account, with its one-time tokens, identities, sessions and logins; what is counted is removed before."""
        ...
