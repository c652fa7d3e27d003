"""The control that an organization has over an account.

The rules are those of decision 111 (docs/specification/security.md, Terms).

API keys and SCIM share these rules. One SQL statement reads all facts that the rules need.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from core.accounts.accounts_rules import AccountOrigin
from core.kernel.principals import Role

if TYPE_CHECKING:
    from uuid import UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountControl:
    """The facts that decide what an organization may do with an account.

    Except for the domain, they do not change while the account is locked.
    """

    org_id: UUID
    origin: AccountOrigin
    origin_org_id: UUID | None  # the organization that created the account, or None if the user did
    is_platform_owner: bool
    has_password: bool
    has_identity: bool  # an identity at any identity provider
    at_verified_domain: bool  # the account's address is at a domain that the organization has verified
    role: Role | None  # in this organization
    member_elsewhere: bool  # a member of another organization
    end_user_elsewhere: bool  # an end user or a subscriber of another organization that still exists
    closed_by_others: bool = False  # the platform deactivated the account, or it was deleted and is not erased yet

    @property
    def created_by_org(self) -> bool:
        """Return whether an API key, SCIM or a sign-up of the organization created the account."""
        return self.origin is not AccountOrigin.PLATFORM and self.origin_org_id == self.org_id

    @property
    def can_sign_in(self) -> bool:
        """Return whether the user has a password, or an identity at an identity provider."""
        return self.has_password or self.has_identity

    @property
    def used_elsewhere(self) -> bool:
        """Return whether another organization or the platform itself uses the account, too."""
        return self.member_elsewhere or self.end_user_elsewhere or self.is_platform_owner

    @property
    def may_change_email(self) -> bool:
        """Return whether the organization may change the account's address (security K-4, C-4).

        With a password or an identity, the user controls the account. Then the organization may
        change the address only if the present address is at a domain that it has verified.

        The address of an owner or admin never changes. The owner of the new mailbox could take over the
        account, and would have more permissions than an API key or a directory. The address of an account
        that the platform has deactivated, or that was deleted, stays, too: with the old address, the
        organization could create another account for the user.
        """
        if self.role in (Role.OWNER, Role.ADMIN) or self.closed_by_others:
            return False
        provisioned = self.created_by_org and self.origin in (AccountOrigin.API_KEY, AccountOrigin.SCIM)
        return provisioned and not self.used_elsewhere and (not self.can_sign_in or self.at_verified_domain)

    @property
    def controls_account(self) -> bool:
        """Return whether the organization controls the account, and not only what belongs to the organization.

        An organization controls an account that it created and that no other organization uses, unless
        it is the account of its owner. Its directory deactivates and deletes the whole account, and its
        API keys delete it (security C-5, K-4).
        """
        return self.created_by_org and not self.used_elsewhere and self.role is not Role.OWNER

    @property
    def may_delete_account(self) -> bool:
        """Return whether the organization may delete the whole account.

        It may not while the platform has deactivated the account. It could create the account again, and
        the user would be back. Nor may it delete an account that its user can still open again.
        """
        return self.controls_account and not self.closed_by_others
