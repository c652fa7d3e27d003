"""Storage for sign-in policies."""

from collections.abc import Collection, Sequence
from typing import Protocol
from uuid import UUID

from core.accounts.model.required_connections import ConnectionRequirement
from core.kernel import values
from core.kernel.sign_in_policy import rules
from core.tenancy.model import sign_in_policies


class SignInPoliciesRead(Protocol):
    """Read access to sign-in policies."""

    async def find(self, org_id: UUID | None, service_id: UUID | None = None) -> sign_in_policies.SignInPolicy | None:
        """Return an organization's or an application's policy. Without an organization: the platform's policy."""

    async def imposed(self, org_id: UUID) -> Sequence[tuple[sign_in_policies.SignInPolicy, str | None]]:
        """Return the policies with imposed rules or an imposed break-glass list, with the slugs of their applications.

        The organization's own policy comes first, without a slug.
        """

    async def effective(self, org_id: UUID, service_id: UUID | None = None) -> rules.EffectivePolicy | None:
        """Return the policies that a sign-in to the organization or this application has to meet, or None if there is none."""

    async def of_applications(self, org_id: UUID) -> Sequence[tuple[sign_in_policies.PolicyApplication, rules.Rules]]:
        """Return the organization's applications with a policy, or with settings that limit sign-ins, ordered by slug, and their rules."""

    async def application(self, org_id: UUID, service_id: UUID) -> sign_in_policies.PolicyApplication | None:
        """Return an application's settings that limit its sign-ins."""

    async def application_ways(self, org_id: UUID, service_id: UUID | None = None) -> sign_in_policies.ApplicationWays:
        """Return the ways to sign in that this application's settings turn on, or that any application in the organization turns on."""

    async def person(self, org_id: UUID, user_id: UUID) -> sign_in_policies.PolicyPerson | None:
        """Return a confirmed member in the organization, with the facts that a policy asks for."""

    async def platform_owner(self, user_id: UUID) -> sign_in_policies.PolicyPerson | None:
        """Return a platform owner, with the facts that a policy asks for."""

    async def platform_owners(self, last: UUID | None, limit: int) -> Sequence[sign_in_policies.PolicyPerson]:
        """Return the next platform owners, ordered by id. `last` is the owner at the end of the batch before, or None."""

    async def platform_owner_has_signed_in(self) -> bool:
        """Return whether a platform owner has a session or a login record."""

    async def people(
        self, org_id: UUID, service_id: UUID | None, last: UUID | None, limit: int, *, are_members: bool
    ) -> Sequence[sign_in_policies.PolicyPerson]:
        """Return the next confirmed members, or the next application users without a membership, ordered by id.

        With an application, return only its users. `last` is the user at the end of the batch before, or None.
        """

    async def of_user(self, user_id: UUID) -> Sequence[rules.PolicyOfUser]:
        """Return the policies in the organizations that the user is a confirmed member of, and the platform's policy for its owners."""

    async def requirements(self, user_id: UUID, email: values.Email) -> Sequence[ConnectionRequirement]:
        """Return the user's organizations that require connections, with the facts for this address, ordered by id.

        The user is a member, uses an application in the organization, or is blocked there. The address's domain is left out for blocked
        users.
        """

    async def requiring(self, org_id: UUID, connection_id: UUID) -> Sequence[sign_in_policies.SignInPolicy]:
        """Return the policies in the organization that require this connection, by their present rules or by the owner's rules."""

    async def requires_domain(self, org_id: UUID, domain: values.Domain) -> bool:
        """Return whether the organization's policy requires a connection for the addresses at this domain."""

    async def break_glass_users(self, org_id: UUID) -> Sequence[sign_in_policies.BreakGlassUser]:
        """Return the members who are listed for break glass, ordered by email."""

    async def admins(self, org_id: UUID) -> Sequence[sign_in_policies.BreakGlassUser]:
        """Return the first 100 confirmed owners and admins, ordered by email."""

    async def anywhere(self, user_id: UUID, org_id: UUID | None) -> Sequence[rules.PolicyOfUser]:
        """Return the policies as `of_user` does, and application policies, with their organizations' policies and required strengths.

        The policies are for applications that the user uses, or may open as a confirmed member, by an assignment or by a role. The policies
        count in this organization alone, or everywhere if `org_id` is None. Two statements.
        """


class SignInPolicies(SignInPoliciesRead, Protocol):
    """Write access to sign-in policies. Lock order: the organization before any call."""

    async def renew(self, org_id: UUID) -> None:
        """Give an organization's policy a new version, so that every session is asked again. Without a policy, nothing changes."""

    async def put(self, policy: sign_in_policies.SignInPolicy) -> int:
        """Store the policy, and return its new version.

        A new application policy also gives its organization's policy a new version, and adds an empty policy if there is none.
        """

    async def put_break_glass_users(self, org_id: UUID, user_ids: Collection[UUID]) -> None:
        """Replace the break-glass list. All listed users are members."""

    async def end_break_glass(self, org_id: UUID) -> tuple[Collection[UUID], Collection[UUID]]:
        """Remove users who are no longer confirmed owners or admins, or have no usable account, from the break-glass list.

        Return the ids that remain and the ids that were removed.
        """

    async def remove(self, org_id: UUID, service_id: UUID) -> bool:
        """Remove an application's policy, and return whether it had a policy. The organization's policy gets a new version."""

    async def add_of_platform(self, policy: sign_in_policies.SignInPolicy) -> None:
        """Store the platform's policy, if there is none."""

    async def mark_reminded(self, number: int) -> bool:
        """Note that this email about the start of the platform's policy is sent. Return False if the email was sent before."""
