"""Storage for SCIM tokens, and for the users that directories provision."""

from collections.abc import Awaitable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Protocol
from uuid import UUID

from core.accounts.model.accounts import Account
from core.kernel import values
from core.kernel.roles import Rights
from core.provisioning.model import directories, users
from core.provisioning.model.filters import ScimFilter
from core.provisioning.model.groups import GroupMember
from core.provisioning.model.profiles import ScimProfile
from core.tenancy.model.groups import DirectoryCreator
from core.tenancy.model.organizations import Membership
from ports.storage import kernel

# SCIM tokens


class ScimTokensRead(kernel.OrganizationTokensRead[directories.ScimToken], Protocol):
    """Read access to SCIM tokens."""

    async def by_hash(self, token_hash: bytes, now: datetime) -> directories.ScimTokenRecord | None:
        """Return the token with its organization, or None if it is unknown."""


class ScimTokens(kernel.OrganizationTokens[directories.ScimToken], ScimTokensRead, Protocol):
    """Write access to SCIM tokens. Callers lock the organization first."""

    def is_live(self, org_id: UUID, token_id: UUID, now: datetime, *, creates_groups: bool = False) -> Awaitable[bool]:
        """Return whether the token exists and has not expired, and with `creates_groups` may create groups."""

    async def creators(self, org_id: UUID, now: datetime) -> list[DirectoryCreator]:
        """Return the live tokens for directories that fill groups, with their creators' rights, oldest first."""

    async def set_directory_groups(self, org_id: UUID, token_id: UUID, *, directory_groups: bool) -> None: ...


# SCIM users


class ScimUsersRead(Protocol):
    """Read access to the users that an organization's directory knows.

    Known users are members, users the directory blocks without having deleted them, and users it provisioned and later
    removed from the group. A former member has the email address they had when they left. A user without a stored
    userName has the address as userName, or the id if another user has this userName.
    """

    async def page(self, org_id: UUID, filter_: ScimFilter | None, offset: int, limit: int) -> values.PageResult[users.ScimUser]:
        """Return a page with the matching users, oldest first, with the total number."""

    async def by_id(self, org_id: UUID, user_id: UUID) -> users.ScimUser | None: ...

    async def groups(self, org_id: UUID, user_ids: Collection[UUID]) -> Mapping[UUID, Sequence[users.GroupOfUser]]:
        """Return the directory's groups that these users are in, by name. Users without groups are left out."""

    async def group_ids(self, org_id: UUID, after: UUID | None, limit: int) -> list[UUID]:
        """Return the ids that follow this id in the group, in order."""

    async def group_members(self, org_id: UUID, user_ids: Collection[UUID]) -> list[GroupMember]:
        """Return these users' group states, for users that the directory knows. Anonymized users outside the group are left out."""

    async def all_group_members(self, org_id: UUID, after: UUID | None, limit: int) -> list[GroupMember]:
        """Return the group states of the next users after this id, in order. Otherwise as `group_members`."""

    async def group_external_ids(self, org_id: UUID) -> dict[UUID, str]:
        """Return the ids that the directory gave to the organization's group and to its services' groups, by group id."""


class ScimUsers(ScimUsersRead, Protocol):
    """Write access to the users that an organization's directory knows.

    Callers lock the organization and then the accounts before calling any method.
    """

    async def platform_owners(self, user_ids: Collection[UUID]) -> set[UUID]:
        """Return which of these locked users are platform owners now."""

    async def with_other_rights(self, org_id: UUID, user_ids: Collection[UUID], rights: Rights) -> set[UUID]:
        """Return which of these locked users are members, not owners, and have a right beyond these."""

    def welcome_context(self, org_id: UUID, email: values.Email, now: datetime) -> Awaitable[users.WelcomeContext | None]:
        """Return the names for the welcome email to the user with this address.

        Return None if the organization is not active.
        """

    async def lock(self, org_id: UUID, user_ids: Collection[UUID]) -> None:
        """Lock these users' memberships and then their accounts."""

    def count_non_members(self, org_id: UUID) -> Awaitable[int]:
        """Return how many known users are not members."""

    def claim_user_name(self, org_id: UUID, user_id: UUID, user_name: str) -> Awaitable[bool]:
        """Make this user the only user with this userName, in any case.

        The directory forgets former members who had this userName; their blocks stay. Return whether a member has this
        userName.
        """

    async def provision(self, account: Account, membership: Membership, profile: ScimProfile) -> None:
        """Add an account created by the directory, with its membership. The member count is incremented, too. Raises: UserNameTaken."""

    async def mark_provisioned(self, org_id: UUID, user_id: UUID, now: datetime) -> None:
        """Make the directory know this user as provisioned."""

    async def save_profile(self, org_id: UUID, user_id: UUID, profile: ScimProfile, email: values.Email, now: datetime) -> None:
        """Store the profile. `email` is stored only for users who are not members. Raises: UserNameTaken."""

    async def save_group_external_id(self, org_id: UUID, group_id: UUID, external_id: str | None, now: datetime) -> None:
        """Store the id that the directory gave to the organization's group or to a service's group."""

    async def forget_unprovisioned(self, org_id: UUID, user_id: UUID) -> None:
        """Remove a former member that the directory did not provision from the users that it knows."""

    async def reopen_accounts(self, org_id: UUID, now: datetime) -> None:
        """Lock and reactivate all accounts that the organization created and its directory blocks. The method runs two statements."""

    async def restore_members(self, org_id: UUID, user_ids: Collection[UUID], now: datetime) -> None:
        """Make these users members again, with the role member, and increment the member count.

        Blocked and anonymized users are left out. If the directory created the account, its membership is confirmed.
        """

    async def remove_members(self, org_id: UUID, user_ids: Collection[UUID], now: datetime) -> None:
        """End these users' memberships, and decrement the member count.

        The directory still knows users that it provisioned or blocked.
        """


# Blocks


class DirectoryBlocksRead(Protocol):
    """Read access to the users that an organization's directory blocks, by deactivating or deleting them.

    A blocked user has no membership in the organization, and cannot use its services.
    """

    async def exists(self, org_id: UUID, user_id: UUID) -> bool: ...

    async def page(self, org_id: UUID, page: values.Page) -> values.PageResult[users.DirectoryBlock]:
        """Return a page with the blocks, newest first, with the total number."""


class DirectoryBlocks(DirectoryBlocksRead, Protocol):
    """Write access to blocks. Callers lock the organization before calling any method."""

    async def add(self, org_id: UUID, user_id: UUID, since: datetime) -> None:
        """Block a user. A user who is blocked already stays so, since the earlier time."""

    async def remove(self, org_id: UUID, user_id: UUID) -> None: ...


# The request log


class ScimRequestsRead(Protocol):
    """Read access to the organizations' last SCIM requests."""

    async def last(self, org_id: UUID) -> list[directories.ScimRequest]:
        """Return the last MAX_ENTRIES requests, newest first."""


class ScimRequests(Protocol):
    """Write access to the last SCIM requests. A database crash may lose the requests."""

    async def add(self, org_id: UUID, requests: Sequence[directories.ScimRequest]) -> None:
        """Store at most MAX_ENTRIES requests, oldest first, and delete the requests before the last MAX_ENTRIES."""
