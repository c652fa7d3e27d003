"""Where accounts were born, and what that lets an organization do with them (the terms of security.md; decisions, points 110, 111 and 132).

Pure rules over one value, which one statement reads. An API key and SCIM go by the very same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from core.accounts.accounts_rules import Origin
from core.kernel.principals import Role

if TYPE_CHECKING:
    from uuid import UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class Ties:
    """What ties an account to one organization, "here", and what it is tied to besides. It stands as long as the account is locked."""

    org_id: UUID
    origin: Origin
    origin_org_id: UUID | None
    is_platform_owner: bool
    has_password: bool
    has_identity: bool  # of a provider, linked anywhere
    at_verified_domain: bool  # the address is at a domain that has been verified for the organization
    role: Role | None  # in the organization, also of somebody whom its directory has deactivated
    confirmed: bool  # that membership
    member_elsewhere: bool  # or known to the directory of another organization
    end_user_elsewhere: bool  # of another organization that there is

    @property
    def born_here(self) -> bool:
        """Whether the organization made the account: by an API key, by SCIM, or by a sign-up at one of its services."""
        return self.origin is not Origin.PLATFORM and self.origin_org_id == self.org_id

    @property
    def used_elsewhere(self) -> bool:
        """Whether anybody but the organization would miss the account."""
        return self.member_elsewhere or self.end_user_elsewhere or self.is_platform_owner

    @property
    def is_managed(self) -> bool:
        """Whether the organization speaks for the person, so that it may change the address (security.md K-4, C-4).

        Who has a password or a linked identity has made the account their own, unless the address is one that the organization gave them.
        """
        made_here = self.born_here and self.origin in (Origin.API_KEY, Origin.SCIM)
        made_their_own = self.has_password or self.has_identity
        return made_here and not self.used_elsewhere and (not made_their_own or self.at_verified_domain)

    @property
    def manages_here(self) -> bool:
        """Whether the person manages the organization. Who has the address has the account, and through it what its holder may do, which is
        more than any API key may."""
        return self.role in (Role.OWNER, Role.ADMIN)

    @property
    def directory_rules(self) -> bool:
        """Whether the organization's directory deactivates and deletes the whole account, and not the membership alone (security.md
        C-5)."""
        return ((self.born_here and self.origin is Origin.SCIM) or self.confirmed) and not self.used_elsewhere

    @property
    def ends_with_its_use_here(self) -> bool:
        """Whether an API key that deletes the person deletes the account for good (security.md K-4)."""
        return self.born_here and not self.used_elsewhere and self.role is not Role.OWNER
