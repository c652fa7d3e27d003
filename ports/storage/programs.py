"""Storage for API resources, service accounts, and programs' credentials."""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Protocol
from uuid import UUID

from core.accounts.model import email_queue
from core.accounts.model.accounts import AccountSummary
from core.applications.model.analytics import CredentialToReview
from core.kernel import roles, values
from core.kernel.claims import ProgramClaims
from core.kernel.rate_limits import Bucket
from core.programs.model import api_resources, registration_tokens, service_accounts
from core.programs.model.credentials import Credential, ProgramClient, StoredCredential
from core.tenancy.model.groups import AssignedGroup
from ports.storage import kernel


class ApiResourcesRead(Protocol):
    """Read access to API resources, their clients and the users that are assigned to them."""

    async def of_org(self, org_id: UUID) -> list[api_resources.ApiResource]:
        """Return the organization's API resources, oldest first."""

    async def by_id(self, org_id: UUID, resource_id: UUID) -> api_resources.ApiResource | None: ...
    async def count(self, org_id: UUID) -> int: ...

    async def requested(self, service_id: UUID, canonical: str) -> api_resources.ApiResource | None:
        """Return the active API resource with this identifier, after normalization, if the service is its client.

        The service and the API resource belong to the same organization.
        """

    async def find_for_external(self, canonical: str) -> api_resources.ExternalTarget | None:
        """Return the active API resource with this identifier, after normalization, in any active organization."""

    async def may_use(self, org_id: UUID, resource_id: UUID, user_id: UUID) -> bool:
        """Return whether the user has access to the API resource. The result is false if there is no such API resource."""

    async def clients(self, org_id: UUID, resource_id: UUID, page: values.Page) -> values.PageResult[api_resources.ResourceClient]:
        """Return a page with the applications that may ask for the resource, by name."""

    async def client(self, org_id: UUID, resource_id: UUID, client_id: UUID) -> api_resources.ResourceClient | None: ...

    async def granted_to(self, org_id: UUID, client_id: UUID, canonical: str) -> tuple[api_resources.ApiResource, tuple[str, ...]] | None:
        """Return the active API resource with this identifier, after normalization, if this program of the same organization is a client.

        The texts are the scopes that the program gets for itself. `client_id` belongs to an application or a service account.
        """

    async def of_account(self, org_id: UUID, account_id: UUID) -> list[service_accounts.AccountResource]:
        """Return the API resources that have given a service account scopes, by name."""

    async def granted_to_account(self, org_id: UUID, resource_id: UUID, account_id: UUID) -> service_accounts.AccountResource | None: ...

    async def assignments(
        self, org_id: UUID, resource_id: UUID, page: values.Page, *, search: str | None = None
    ) -> values.PageResult[api_resources.ResourceAssignment]:
        """Return a page with the users that are assigned to the resource, earliest first.

        `search` is a lower-case part of an email address.
        """

    async def groups(self, org_id: UUID, resource_id: UUID) -> list[AssignedGroup]:
        """Return the groups that are assigned to the resource, by name."""


class ApiResources(ApiResourcesRead, Protocol):
    """Write access to API resources. Callers lock the organization before calling any method but `lock`."""

    async def lock(self, org_id: UUID, resource_id: UUID) -> api_resources.ApiResource | None:
        """Return the API resource, and let concurrent transactions change it only after this transaction ends."""

    async def add(self, resource: api_resources.ApiResource, identifier: api_resources.ResourceIdentifier) -> None:
        """Add an API resource with this identifier. Raises: IdentifierTaken."""

    async def save(self, resource: api_resources.ApiResource) -> None:
        """Save all fields that can change in an API resource.

        The resource's clients and service accounts lose the scopes that it no longer has.
        """

    async def remove(self, org_id: UUID, resource_id: UUID) -> None:
        """Delete an API resource with its clients, assignments and consents."""

    async def save_client(self, org_id: UUID, resource_id: UUID, client: api_resources.ResourceClient) -> None: ...
    async def remove_client(self, org_id: UUID, resource_id: UUID, service_id: UUID) -> None: ...
    async def origins_of_external_clients(self, org_id: UUID, resource_id: UUID) -> list[str | None]:
        """Return the origins of external clients that may ask for the resource, without duplicates.

        The origin is None for clients without an address.
        """

    async def remove_external_clients(self, org_id: UUID, resource_id: UUID, origins: Collection[str | None]) -> None:
        """Forbid external clients with these origins to ask for the resource."""

    async def save_account(self, org_id: UUID, account_id: UUID, resource: service_accounts.AccountResource, now: datetime) -> None: ...

    async def remove_account(self, org_id: UUID, resource_id: UUID, account_id: UUID) -> bool:
        """Take away a service account's scopes. Return False if the account has none."""

    async def assign(self, org_id: UUID, resource_id: UUID, user_id: UUID, now: datetime) -> bool:
        """Assign a user. The caller has locked the user's account. Return False if the user is already assigned."""

    async def unassign(self, org_id: UUID, resource_id: UUID, user_id: UUID) -> bool:
        """End a user's assignment. Return False if there is no assignment."""

    async def assign_group(self, org_id: UUID, resource_id: UUID, group_id: UUID, now: datetime) -> bool:
        """Assign a group. Return False if the group is already assigned."""

    async def unassign_group(self, org_id: UUID, resource_id: UUID, group_id: UUID) -> bool:
        """End a group's assignment. Return False if there is no assignment."""


class ServiceAccountsRead(Protocol):
    """Read access to service accounts. `org_id` is None for the platform's service accounts.

    An account is live if the named credential is valid, and if its owner could create it now: an organization's account
    needs an owner with a role that allows it, and the platform's account needs a platform owner. An account that goes
    on after its owner left is live until `ends_at`.
    """

    async def page(self, org_id: UUID | None, page: values.Page, now: datetime) -> values.PageResult[service_accounts.ListedServiceAccount]:
        """Return a page with the accounts, newest first."""

    async def by_id(self, org_id: UUID | None, account_id: UUID, now: datetime) -> service_accounts.ListedServiceAccount | None: ...
    async def count(self, org_id: UUID | None) -> int: ...

    async def goes_on(self, org_id: UUID, owner_id: UUID, now: datetime) -> bool:
        """Return whether an account of this owner goes on after the owner has left."""

    async def of_owner(self, owner_id: UUID, org_id: UUID | None) -> list[str]:
        """Return the names of this owner's live accounts, in a single organization or with None in all."""

    async def next_end(self, now: datetime) -> tuple[UUID, UUID] | None:
        """Return the organization and owner with the account that ended first, if `forget_ends` has not settled its end."""

    async def load_context(
        self, account_id: UUID, credential_id: UUID, slug: str | None, now: datetime
    ) -> service_accounts.ServiceAccountContext | None:
        """Return the account, with the organization that has `slug`, or None if the account is not live."""

    async def summary(self, org_id: UUID, account_id: UUID) -> AccountSummary | None:
        """Return the account as invitations show it in place of a user."""


class ServiceAccounts(ServiceAccountsRead, Protocol):
    """Write access to service accounts.

    Callers lock the organization before calling any method. For the platform's service accounts, they lock the accounts
    of the platform owners who are involved, and then the service account.
    """

    async def lock(self, org_id: UUID | None, account_id: UUID) -> service_accounts.ServiceAccount | None:
        """Lock an account against its programs' requests and concurrent changes, and return it."""

    async def lock_live(self, org_id: UUID | None, account_id: UUID, credential_id: UUID) -> roles.Authority | None:
        """Keep the account and its credential from being changed or revoked.

        Return the account's role and rights, or None if the account is not live.

        A credential that has expired during the request counts as valid. The platform's account (`org_id` is None) has
        rights on the platform.
        """

    async def with_role(self, org_id: UUID, role: roles.RoleName) -> Sequence[tuple[UUID, roles.Rights]]:
        """Lock the accounts with this role, and return their ids with their granted capabilities."""

    async def set_role(self, org_id: UUID, account_id: UUID, role: roles.RoleName, granted: roles.Rights, now: datetime) -> None:
        """Store a locked account's new role, and its granted capabilities."""

    async def inviting_above(self, org_id: UUID, role: roles.RoleName) -> Sequence[UUID]:
        """Return the accounts that invited to this role, with the invitation pending, and have a role with fewer rights."""

    async def add(self, account: service_accounts.ServiceAccount) -> None: ...

    async def save(self, account: service_accounts.ServiceAccount) -> None:
        """Save all fields that can change in an account."""

    async def remove(self, org_id: UUID | None, account_id: UUID) -> None: ...

    async def stopped_of(self, org_id: UUID, owner_id: UUID, now: datetime) -> list[tuple[UUID, str]]:
        """Return the ids and names of this owner's service accounts that have stopped."""

    async def go_on(self, owner_id: UUID, org_id: UUID | None, until: datetime) -> list[tuple[UUID, UUID, str]]:
        """Let this owner's live accounts, in a single organization or with None in all, go on until this time.

        The accounts never get more than their present rights then. Return the accounts' organizations, ids and names. If the owner
        had joined again, the accounts ended then, and do not go on again before `forget_ends` has settled this end.
        """

    async def end_going_on(
        self, owner_id: UUID, org_id: UUID | None, now: datetime, account_id: UUID | None = None, *, within: roles.Rights | None = None
    ) -> int:
        """End this owner's accounts that go on, and return their number.

        `org_id` and `account_id` limit this to an organization or an account, and `within` to accounts with no rights beyond these.
        """

    async def forget_ends(self, org_id: UUID, owner_id: UUID, now: datetime) -> list[tuple[UUID, str]]:
        """Forget the past ends that this owner's accounts had. Return the ids and names of accounts that the owner cannot own now."""

    async def givers(self, org_id: UUID, user_id: UUID) -> dict[UUID, UUID]:
        """Return the service accounts that a member's role depends on, with their owners.

        The first account gave the role. The next account gave the role of the first account's owner, and so on.
        """

    async def may_promote(self, org_id: UUID, account_id: UUID) -> bool | None:
        """Return whether a service account can still give roles above member.

        Return None if the account is not a service account in this organization.
        """


class CredentialsRead(Protocol):
    """Read access to the credentials that service accounts and API resources have. `org_id` is None for the platform's credentials."""

    async def of_client(self, org_id: UUID | None, client_id: UUID) -> list[Credential]:
        """Return a program's credentials, newest first, including expired credentials that are not removed yet."""

    async def by_id(self, org_id: UUID | None, client_id: UUID, credential_id: UUID) -> Credential | None: ...


class Credentials(CredentialsRead, Protocol):
    """Write access to credentials. Callers lock the organization, or the platform's service account."""

    async def add(self, credential: Credential, secret_hash: bytes | None) -> None: ...

    async def end_created_by(
        self, user_id: UUID, org_id: UUID | None, now: datetime, *, everywhere: bool, of_roles: Collection[roles.RoleName] | None = None
    ) -> list[email_queue.EndedCredential]:
        """Remove and return the credentials that a user made for programs in this organization, or on the platform if it is None.

        `everywhere` covers all organizations and the platform. `of_roles` limits this to service accounts with these
        roles. The user's rights are locked, and have changed.
        """

    async def end_of_former_owner(self, org_id: UUID | None, account_id: UUID, owner_id: UUID, ends_at: datetime) -> None:
        """Let a service account's credentials that a former owner created expire at this time, if they do not expire earlier."""

    async def end_created_by_others(self, org_id: UUID, account_id: UUID, rights: roles.Rights) -> list[email_queue.EndedCredential]:
        """Remove and return a locked service account's credentials, unless an active member with all these rights made them.

        An account that goes on keeps its credentials, because it gets no further rights.
        """

    async def remove(self, org_id: UUID | None, client_id: UUID, credential_id: UUID) -> None:
        """Revoke a credential. Requests that use the credential now end first."""


class ProgramClientsRead(Protocol):
    """Service accounts and API resources as OAuth clients. A service account that is not live is no client."""

    async def credentials(self, client_id: UUID, now: datetime) -> list[StoredCredential]:
        """Return the live keys and trusts that the program with this client id has, oldest first."""

    async def is_token_active(self, claims: ProgramClaims, resource_id: UUID | None, now: datetime) -> bool:
        """Return whether a program would still get a token with these claims.

        The credential and the program are live, its organization is active and, for an API resource, the
        program still has these scopes there. With `resource_id`, the token must be for this API resource.
        """


class ProgramClients(ProgramClientsRead, Protocol):
    """The statements that authenticate programs. The statements commit separately."""

    async def by_secret(
        self, client_id: UUID, secret_hashes: Sequence[bytes], buckets: tuple[Bucket, ...], now: datetime
    ) -> ProgramClient | None:
        """Return the program with this client id and a live secret that has a hash in `secret_hashes`, or None.

        The use of the secret is recorded, and a token is taken from all the program's buckets. The program's `wait` is
        as in `Rates.take`, or None without buckets.
        """

    async def count_use(self, credential_id: UUID, client_id: UUID, buckets: tuple[Bucket, ...], now: datetime) -> float | None:
        """Record that a credential was used, and take a token from every bucket. Return the wait, or None without buckets."""


class CreatedSecretsRead(Protocol):
    """Read access to API keys and SCIM tokens by their creator."""

    async def of_creator(self, org_id: UUID, creator_id: UUID, now: datetime) -> list[email_queue.CreatedSecret]:
        """Return the live keys or tokens that this service account created, oldest first. The service account may be deleted."""

    async def to_review(
        self, org_id: UUID, kinds: Collection[email_queue.NoticedSecret], now: datetime, limit: int
    ) -> list[CredentialToReview]:
        """Return the oldest live keys or tokens of these kinds if their creator has left or may not create them now (security J-12)."""

    async def has_creator(self, org_id: UUID, creator_id: UUID) -> bool:
        """Return whether the organization has this service account, or had it."""

    async def creator(self, org_id: UUID, secret_id: UUID) -> roles.Authority | None:
        """Return the role and the rights that the creator of this API key or SCIM token has now, or None if they act no longer.

        A service account has only the rights that remain when it is gone.
        """


class CreatedSecrets(CreatedSecretsRead, Protocol):
    """Write access. Callers lock the organization first."""

    async def end(self, org_id: UUID, creator_id: UUID) -> list[email_queue.CreatedSecret]:
        """Delete all that this service account created, also expired keys and tokens, and return them."""


class RegistrationTokensRead(kernel.OrganizationTokensRead[registration_tokens.RegistrationToken], Protocol):
    """Read access to the organizations' registration tokens."""

    async def by_hash(self, token_hash: bytes, now: datetime) -> registration_tokens.RegistrationTokenRecord | None:
        """Return the token with this hash if it works now, as in `use`."""


class RegistrationTokens(kernel.OrganizationTokens[registration_tokens.RegistrationToken], RegistrationTokensRead, Protocol):
    """Write access to registration tokens. Callers lock the organization first."""

    async def use(self, org_id: UUID, token_id: UUID, now: datetime) -> bool:
        """Use the token once, and return whether it works: it has uses left, has not expired, and its creator may create applications."""
