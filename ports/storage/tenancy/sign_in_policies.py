"""Storage of sign-in policies."""

from collections.abc import Collection, Sequence
from typing import Protocol
from uuid import UUID

from core.accounts.model.required_connections import ConnectionRequirement
from core.kernel.sign_in_policy.rules import EffectivePolicy, PolicyOfUser, Rules
from core.kernel.values import Domain, Email
from core.tenancy.model.sign_in_policies import ApplicationWays, BreakGlassUser, PolicyApplication, PolicyPerson, SignInPolicy


class SignInPoliciesRead(Protocol):
    """Read access to sign-in policies."""

    async def find(self, org_id: UUID | None, service_id: UUID | None = None) -> SignInPolicy | None:
        """Return the policy of an organization or of one of its applications. Without an organization: that of the platform."""

    async def imposed(self, org_id: UUID) -> Sequence[tuple[SignInPolicy, str | None]]:
        """Return the policies with imposed rules or an imposed break-glass list, with the slugs of their applications.

        The policy of the organization itself comes first, without a slug.
        """

    async def effective(self, org_id: UUID, service_id: UUID | None = None) -> EffectivePolicy | None:
        """Return the policies that a sign-in to the organization or this application has to meet, or None if there is none."""

    async def of_applications(self, org_id: UUID) -> Sequence[tuple[PolicyApplication, Rules]]:
        """Return the organization's applications with a policy, or with settings that limit sign-ins, ordered by slug, and their rules."""

    async def application(self, org_id: UUID, service_id: UUID) -> PolicyApplication | None:
        """Return the settings of an application that limit its sign-ins."""

    async def application_ways(self, org_id: UUID, service_id: UUID | None = None) -> ApplicationWays:
        """Return the ways to sign in that the settings of this application turn on, or those of all applications of the organization."""

    async def person(self, org_id: UUID, user_id: UUID) -> PolicyPerson | None:
        """Return a confirmed member of the organization, with the facts that a policy asks for."""

    async def platform_owner(self, user_id: UUID) -> PolicyPerson | None:
        """Return a platform owner, with the facts that a policy asks for."""

    async def platform_owners(self, last: UUID | None, limit: int) -> Sequence[PolicyPerson]:
        """Return the next platform owners, ordered by id. `last` is the owner at the end of the batch before, or None."""

    async def platform_owner_has_signed_in(self) -> bool:
        """Return whether there is a session or a login record of a platform owner."""

    async def people(
        self, org_id: UUID, service_id: UUID | None, last: UUID | None, limit: int, *, are_members: bool
    ) -> Sequence[PolicyPerson]:
        """Return the next confirmed members, or the other users of the organization's applications, ordered by id.

        With an application, only its users. `last` is the user at the end of the batch before, or None.
        """

    async def of_user(self, user_id: UUID) -> Sequence[PolicyOfUser]:
        """Return the policies of the organizations in which the user is a confirmed member, and of the platform for its owners."""

    async def requirements(self, user_id: UUID, email: Email) -> Sequence[ConnectionRequirement]:
        """Return the organizations of the user that require connections, with the facts for this address, ordered by id.

        The user is a member, uses an application of the organization, or is blocked there. The domain of the address is left out for
        blocked users.
        """

    async def requiring(self, org_id: UUID, connection_id: UUID) -> Sequence[SignInPolicy]:
        """Return the policies in the organization that require this connection, by their present rules or by the owner's rules."""

    async def requires_domain(self, org_id: UUID, domain: Domain) -> bool:
        """Return whether the policy of the organization requires a connection for the addresses at this domain."""

    async def break_glass_users(self, org_id: UUID) -> Sequence[BreakGlassUser]:
        """Return the members who are listed for break glass, ordered by email."""

    async def admins(self, org_id: UUID) -> Sequence[BreakGlassUser]:
        """Return the first 100 confirmed owners and admins, ordered by email."""

    async def anywhere(self, user_id: UUID, org_id: UUID | None) -> Sequence[PolicyOfUser]:
        """Return the policies of `of_user`, and those of applications, each with its organization's and the strength that it requires.

        These are the applications that the user uses, or may open as a confirmed member, by an assignment or by a role. They count
        in this organization alone, or in all of them if `org_id` is None. Two statements.
        """


class SignInPolicies(SignInPoliciesRead, Protocol):
    """Write access to sign-in policies. Lock order: the organization before any of these."""

    async def renew(self, org_id: UUID) -> None:
        """Give the policy of an organization a new version, so that each session is asked again. Without a policy, nothing changes."""

    async def put(self, policy: SignInPolicy) -> int:
        """Store the policy, and return its new version.

        A policy of an application also gives its organization's policy a new version, and adds an empty one if there is none.
        """

    async def put_break_glass_users(self, org_id: UUID, user_ids: Collection[UUID]) -> None:
        """Replace the list of break glass. All of these users are members."""

    async def end_break_glass(self, org_id: UUID) -> tuple[Collection[UUID], Collection[UUID]]:
        """Remove users who are no longer confirmed owners or admins, or have no usable account, from the list of break glass.

        Return the ids of the remaining and of the removed users.
        """

    async def remove(self, org_id: UUID, service_id: UUID) -> bool:
        """Remove the policy of an application, and return whether there was one. Its organization's policy gets a new version."""

    async def add_of_platform(self, policy: SignInPolicy) -> None:
        """Store the policy of the platform, if there is none."""

    async def mark_reminded(self, number: int) -> bool:
        """Store that this email about the start of the platform's policy is sent. Return False if it was before."""
