"""Storage of the area provisioning."""

from collections.abc import Collection
from datetime import datetime
from typing import Protocol
from uuid import UUID

from core.accounts.accounts_rules import Account
from core.kernel.deferred import Deferred
from core.kernel.values import Email, PageResult
from core.provisioning.filters import ScimFilter
from core.provisioning.groups_rules import GroupMember
from core.provisioning.tokens_rules import ScimToken, ScimTokenRecord
from core.provisioning.users_rules import ScimProfile, ScimUser
from core.tenancy.organizations_rules import Membership

# scim_tokens: What is asked of storage about SCIM tokens.


class ScimTokensRead(Protocol):
    """SCIM tokens, looked at; they are kept as SHA-256."""

    async def standing(self, token_hash: bytes, now: datetime) -> ScimTokenRecord | None:
        """Everything a request with this token is judged by, or None unless there is such a token and it has not expired."""
        ...

    async def of_org(self, org_id: UUID) -> list[ScimToken]:
        """Those of the organization, expired ones too, the oldest first."""
        ...

    async def by_id(self, org_id: UUID, token_id: UUID) -> ScimToken | None: ...


class ScimTokens(ScimTokensRead, Protocol):
    """SCIM tokens, changed. The organization is locked before any of these."""

    def is_live_deferred(self, org_id: UUID, token_id: UUID, now: datetime) -> Deferred[bool]:
        """Whether the organization has this token and it has not expired, with the next statement."""
        ...

    async def add(self, token: ScimToken, token_hash: bytes) -> None: ...
    async def remove(self, org_id: UUID, token_id: UUID) -> None: ...


# scim_users: What is asked of storage about whom directories provision (SCIM).


class ScimUsersRead(Protocol):
    """Whom the directory of an organization knows, looked at: members, those whom it has deactivated, those whom it has made and taken out
    of the group. Whoever is no member has the address of when they left."""

    async def page(self, org_id: UUID, found: ScimFilter | None, offset: int, limit: int) -> PageResult[ScimUser]:
        """Those of whom the filter holds, in the order in which they came."""
        ...

    async def by_id(self, org_id: UUID, user_id: UUID) -> ScimUser | None: ...

    async def is_blocked(self, org_id: UUID, user_id: UUID) -> bool:
        """Whether the directory has deactivated this person, or deleted them and keeps them out: they get into nothing of the organization
        then."""
        ...

    async def group(self, org_id: UUID, after: UUID | None, limit: int) -> list[UUID]:
        """Who is in the group, in the order of their ids, those after this one. That is the members, and whoever was one when the directory
        deactivated them."""
        ...

    async def group_members(self, org_id: UUID, user_ids: Collection[UUID]) -> list[GroupMember]:
        """Of those of these people whom the directory knows what they are to the group; less those who are out of it and whom it cannot
        take back."""
        ...

    async def all_group_members(self, org_id: UUID, after: UUID | None, limit: int) -> list[GroupMember]:
        """The same of everybody, in the order of their ids, those after this one."""
        ...


class ScimUsers(ScimUsersRead, Protocol):
    """The same, changed. The organization, and the accounts in question, are locked before any of these."""

    async def platform_owners(self, user_ids: Collection[UUID]) -> set[UUID]:
        """Who of these, who are locked, is a platform owner by now."""
        ...

    async def lock(self, org_id: UUID, user_ids: Collection[UUID]) -> None:
        """Lock the memberships and then the accounts of these people."""
        ...

    def count_non_members_deferred(self, org_id: UUID) -> Deferred[int]:
        """How many the directory knows who are no members, known with the next statement."""
        ...

    def claim_email_deferred(self, org_id: UUID, user_id: UUID, email: Email) -> Deferred[bool]:
        """This person is the one whom the organization knows by this address: with the next statement, the directory forgets whoever else
        left with it. Whether it has deactivated such a one, who then stays known, is known with that statement, too."""
        ...

    async def provision(self, account: Account, membership: Membership, description: ScimProfile) -> None:
        """A new account, which the directory has made, is a member from now on; counted. Raises UserNameTaken."""
        ...

    async def describe(self, org_id: UUID, user_id: UUID, description: ScimProfile, email: Email, now: datetime) -> None:
        """What the directory says of this person from now on. `email` is what it knows those by who are no members."""
        ...

    async def deactivate(self, org_id: UUID, user_id: UUID, now: datetime, *, whole_account: bool) -> None:
        """Put the person's membership away, if there is one, and count it out; where one is put away already, it stays so. `whole_account`
        is noted, and the caller's to see to."""
        ...

    async def reactivate(self, org_id: UUID, user_id: UUID, now: datetime) -> None:
        """Give the person the membership again that was put away, and count it."""
        ...

    async def reopen_accounts(self, org_id: UUID, now: datetime) -> None:
        """Open all accounts again that the directory has closed as a whole; they are locked for that."""
        ...

    async def forget(self, org_id: UUID, user_id: UUID) -> None:
        """The directory knows the person no more, unless they are a member."""
        ...

    async def block(self, org_id: UUID, user_id: UUID, now: datetime) -> None:
        """The directory knows the person no more, who is no member, and has them stay out of the organization's services all the same,
        until they are a member again."""
        ...

    async def admit(self, org_id: UUID, user_ids: Collection[UUID], now: datetime) -> None:
        """Make these people, who are known and not in the group, members of it, and count them; those who are deactivated, once they are
        not any more. The membership of an account that the directory has made counts as confirmed."""
        ...

    async def remove_members(self, org_id: UUID, user_ids: Collection[UUID], now: datetime) -> None:
        """End the memberships of these people, and count them out. Whoever is deactivated stays so, and has no membership any more that
        activating would give back."""
        ...


# The repositories of this area, by the kind of access


class ProvisioningReading(Protocol):
    """Read access to the repositories of provisioning."""

    @property
    def scim_tokens(self) -> ScimTokensRead: ...
    @property
    def scim_users(self) -> ScimUsersRead: ...


class ProvisioningTransaction(Protocol):
    """The repositories of provisioning in a transaction."""

    @property
    def scim_tokens(self) -> ScimTokens: ...
    @property
    def scim_users(self) -> ScimUsers: ...
