"""The control that an organization has over an account.

The rules are those of decisions 110, 111, 132 (docs/specification/security.md, Terms).

API keys and SCIM use the same rules. They are pure rules on one value, which one SQL statement
reads.
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

    They hold while the account is locked.
    """

    org_id: UUID
    origin: AccountOrigin
    origin_org_id: UUID | None  # the organization that created the account, None if the user did
    is_platform_owner: bool
    has_password: bool
    has_identity: bool  # an identity at any identity provider
    at_verified_domain: bool  # the account's address is at a domain that the organization has verified
    role: Role | None  # in this organization; a member that the directory deactivated still has one
    confirmed: bool  # whether that membership is confirmed
    member_elsewhere: bool  # a member of another organization, or known to its directory
    end_user_elsewhere: bool  # an end user of another existing organization

    @property
    def created_by_org(self) -> bool:
        """Return whether an API key, SCIM or a sign-up of the organization created the account."""
        return self.origin is not AccountOrigin.PLATFORM and self.origin_org_id == self.org_id

    @property
    def used_elsewhere(self) -> bool:
        """Return whether the account is used outside this organization."""
        return self.member_elsewhere or self.end_user_elsewhere or self.is_platform_owner

    @property
    def may_change_email(self) -> bool:
        """Return whether the organization may change the account's address (security K-4, C-4).

        A password or an identity means that the user controls the account. The organization may
        then change the address only if it is at a domain of the organization.
        """
        provisioned = self.created_by_org and self.origin in (AccountOrigin.API_KEY, AccountOrigin.SCIM)
        can_sign_in = self.has_password or self.has_identity
        return provisioned and not self.used_elsewhere and (not can_sign_in or self.at_verified_domain)

    @property
    def is_manager(self) -> bool:
        """Return whether the user is an owner or admin of the organization.

        A new address takes over the account and its permissions. A manager has more permissions
        than any API key.
        """
        return self.role in (Role.OWNER, Role.ADMIN)

    @property
    def directory_controls_account(self) -> bool:
        """Return whether the directory controls the account, and not only the membership.

        Then it deactivates and deletes the whole account (security C-5).
        """
        return ((self.created_by_org and self.origin is AccountOrigin.SCIM) or self.confirmed) and not self.used_elsewhere

    @property
    def api_key_deletes_account(self) -> bool:
        """Return whether an API key that deletes the user deletes the account (security K-4)."""
        return self.created_by_org and not self.used_elsewhere and self.role is not Role.OWNER
