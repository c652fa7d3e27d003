"""An organization's service accounts, their credentials, and their API resource scopes. Every route needs a person."""

from collections.abc import Sequence
from typing import Literal
from uuid import UUID

from pydantic import Field
from quart import Blueprint

from core.accounts.model import email_queue
from core.kernel import api_scopes, values
from core.kernel.roles import Capability
from core.programs import service_accounts
from core.programs.model.service_accounts import AccountResource, ListedServiceAccount, in_declared_order, scopes_in_order
from entrypoints.http import kit
from entrypoints.http.api.programs.credentials import (
    CreatedCredentialResponse,
    CredentialListResponse,
    CredentialRequest,
    to_created_response,
    to_credential_request,
    to_credential_response,
)
from entrypoints.http.api.tenancy.roles import Role

ROLE = "`owner`, `admin`, `member`, or a role of the organization. You need every right that it gives."
OWNER = "The id of the user who answers for it: a member of the organization, or a platform owner."
NEW_OWNER = f"{OWNER} Name yourself, or leave the owner as it is. Only the owner of an organization can name another user."
SCOPES = (
    "The scopes that its tokens can have, such as `members:read`, or `platform_users:read` on the platform. "
    "Null: all that its role allows, or all scopes of the platform."
)
GRANTED = (
    "Capabilities for routes that need a user, or have an effect that outlives the service account, such as `api_keys.manage`, "
    "or `platform_users.manage` on the platform. Only owners grant them."
)


class PlatformServiceAccountRequest(kit.RequestModel):
    """A new service account for the platform."""

    name: kit.Name = Field(description="The name of the service account, which the audit log shows.", examples=["Nightly export"])
    owner_id: kit.Id | None = Field(
        default=None, description=f"{OWNER} By default you. Only the owner of an organization can name another user."
    )
    scopes: kit.Texts | None = Field(default=None, description=SCOPES)
    granted_capabilities: kit.Texts = Field(default=[], description=GRANTED)


class ServiceAccountRequest(PlatformServiceAccountRequest):
    """A new service account for an organization."""

    role: kit.Text = Field(description=ROLE, examples=["member"])


class PlatformServiceAccountUpdateRequest(kit.RequestModel):
    """The platform service account's fields to change."""

    model_config = kit.AT_LEAST_ONE_FIELD

    name: kit.Name | values.Keep = kit.optional(description="The name of the service account.")
    owner_id: kit.Id | values.Keep = kit.optional(description=NEW_OWNER)
    scopes: kit.Texts | values.Keep | None = kit.optional(description=SCOPES)
    granted_capabilities: kit.Texts | values.Keep = kit.optional(description=GRANTED)


class ServiceAccountUpdateRequest(PlatformServiceAccountUpdateRequest):
    """The fields to change in an organization's service account."""

    role: kit.Text | values.Keep = kit.optional(description=ROLE)


class PlatformServiceAccountResponse(kit.ResponseModel):
    """A service account of the platform."""

    id: UUID = Field(description="The id of the service account, which is also its client id.")
    name: str = Field(description="The name of the service account.")
    owner_id: UUID = Field(description=OWNER)
    owner_email: str | None = Field(
        description="The email address of that user. Null if they have left the organization or the platform owners."
    )
    is_active: bool = Field(description="False if its owner could not create it now. Then all its requests are refused.")
    scopes: list[api_scopes.ApiScope] | None = Field(description=SCOPES)
    granted_capabilities: list[Capability] = Field(description="The capabilities that an owner granted by name.")
    credentials_notice: str | None = kit.absent_if_none(
        "Only after a change of the owner: what became of the credentials, such as that they have ended. Left out if nothing is to be done."
    )
    created_by: UUID = Field(description="The id of the user who created it.")
    created_at: kit.Timestamp = Field(description="The time at which it was created, in UTC.")


class ServiceAccountResponse(PlatformServiceAccountResponse):
    """An organization's service account."""

    role: Role = Field(description="The role of the service account.")
    ends_at: kit.Timestamp | None = Field(
        description="The time at which the service account ends, because its owner has left or deleted their account. A new owner keeps it."
    )


class PlatformServiceAccountListResponse(kit.ResponseModel):
    """A page of the platform's service accounts."""

    service_accounts: list[PlatformServiceAccountResponse] = Field(description="The service accounts, newest first.")
    pagination: kit.Pagination = Field(description="The position of this page in the list.")


class ServiceAccountListResponse(kit.ResponseModel):
    """A page of an organization's service accounts."""

    service_accounts: list[ServiceAccountResponse] = Field(description="The service accounts, newest first.")
    pagination: kit.Pagination = Field(description="The position of this page in the list.")


def to_new_account(data: PlatformServiceAccountRequest) -> service_accounts.NewServiceAccount:
    """Return the service account that a request asks for."""
    return service_accounts.NewServiceAccount(
        name=data.name,
        role=data.role if isinstance(data, ServiceAccountRequest) else None,
        owner_id=data.owner_id,
        scopes=_to_scopes(data.scopes),
        granted=data.granted_capabilities,
    )


def to_changes(data: PlatformServiceAccountUpdateRequest) -> service_accounts.ServiceAccountChanges:
    """Return the changes that a request asks for."""
    return service_accounts.ServiceAccountChanges(
        name=data.name,
        role=data.role if isinstance(data, ServiceAccountUpdateRequest) else values.KEEP,
        owner_id=data.owner_id,
        scopes=values.KEEP if isinstance(data.scopes, values.Keep) else _to_scopes(data.scopes),
        granted=data.granted_capabilities,
    )


def to_response(listed: ListedServiceAccount) -> ServiceAccountResponse:
    """Return the response for an organization's service account."""
    assert listed.account.role is not None, "the account is one of an organization"
    return ServiceAccountResponse.of(listed.account, **_differing_fields(listed))


def to_platform_response(listed: ListedServiceAccount) -> PlatformServiceAccountResponse:
    """Return the response for a platform service account."""
    return PlatformServiceAccountResponse.of(listed.account, **_differing_fields(listed))


def _differing_fields(listed: ListedServiceAccount) -> dict[str, object]:
    return {
        "owner_email": listed.owner_email,
        "is_active": listed.is_active,
        "credentials_notice": None if listed.taken_over is None else listed.taken_over.value,
        "scopes": scopes_in_order(listed.account.scopes),
        "granted_capabilities": in_declared_order(listed.account.granted),
    }


def _to_scopes(names: Sequence[str] | None) -> frozenset[api_scopes.ApiScope] | None:
    return None if names is None else api_scopes.parse_scopes(names)


routes = Blueprint("service_accounts", __name__)


@kit.before_body
async def existing_account(account_id: UUID, **_: object) -> None:
    """Answer 404 if there is no service account `<account_id>`.

    It belongs to the path's organization, or to the platform if the path has no organization.
    """
    await service_accounts.find(kit.ports(), kit.signed_in(), account_id)


@routes.get("/api/organizations/<org_slug>/service-accounts")
@kit.member(Capability.SERVICE_ACCOUNTS_MANAGE, kit.SHOWS_PEOPLE)
async def list_accounts(org_slug: str, query_args: kit.PageQuery) -> ServiceAccountListResponse:
    """List the organization's service accounts.

    Every service account has its role, its owner and its scopes.
    """
    result = await service_accounts.list_page(kit.ports(), kit.acting_member(), query_args.page_request())
    return ServiceAccountListResponse(
        service_accounts=[to_response(listed) for listed in result.items], pagination=query_args.pagination(result.total)
    )


@routes.post("/api/organizations/<org_slug>/service-accounts")
@kit.member(Capability.SERVICE_ACCOUNTS_MANAGE, kit.BY_PEOPLE)
@kit.returns(201)
async def create(org_slug: str, data: ServiceAccountRequest) -> ServiceAccountResponse:
    """Create a service account.

    A service account is a program that calls this API for the organization. It gets access tokens with the grant
    `client_credentials` and its credential. Its role is not above yours, and it stops when its owner may no longer
    create it.
    """
    return to_response(await service_accounts.create(kit.ports(), kit.acting_member(), to_new_account(data)))


@routes.get("/api/organizations/<org_slug>/service-accounts/<account_id>")
@kit.member(Capability.SERVICE_ACCOUNTS_MANAGE, kit.SHOWS_PEOPLE)
async def get(org_slug: str, account_id: UUID) -> ServiceAccountResponse:
    """Get a service account.

    Another organization's service account is 404.
    """
    return to_response(await service_accounts.find(kit.ports(), kit.acting_member(), account_id))


@routes.patch("/api/organizations/<org_slug>/service-accounts/<account_id>")
@kit.member(Capability.SERVICE_ACCOUNTS_MANAGE, kit.BY_PEOPLE)
@existing_account
async def update(org_slug: str, account_id: UUID, data: ServiceAccountUpdateRequest) -> ServiceAccountResponse:
    """Change a service account.

    The change counts from its next request on. With another owner, credentials of the former owner have ended or end later: see
    `credentials_notice`. With a lower role, it loses the granted capabilities that
    the role does not have. Its pending invitations to roles above member are canceled. Users who got a
    higher role from it become members again, unless a user has set their role since.
    """
    return to_response(await service_accounts.update(kit.ports(), kit.acting_member(), account_id, to_changes(data)))


@routes.delete("/api/organizations/<org_slug>/service-accounts/<account_id>")
@kit.member(Capability.SERVICE_ACCOUNTS_MANAGE, kit.BY_PEOPLE)
@kit.describes({204: "The service account is deleted."})
async def delete(org_slug: str, account_id: UUID) -> None:
    """Delete a service account with its credentials.

    Its next request is refused. Its pending invitations to roles above member are canceled. Users who got a
    higher role from it become members again, unless a user has set their role since.
    """
    await service_accounts.delete(kit.ports(), kit.acting_member(), account_id)


@routes.post("/api/organizations/<org_slug>/service-accounts/<account_id>/end")
@kit.member(Capability.SERVICE_ACCOUNTS_MANAGE, kit.BY_PEOPLE)
@kit.describes({204: "The service account has ended, or has an owner."})
async def end(org_slug: str, account_id: UUID) -> None:
    """End a former owner's service account now.

    Its next request is refused. An account without `ends_at` stays as it is.
    """
    await service_accounts.end_now(kit.ports(), kit.acting_member(), account_id)


@routes.get("/api/organizations/<org_slug>/service-accounts/<account_id>/credentials")
@kit.member(Capability.SERVICE_ACCOUNTS_MANAGE, kit.SHOWS_PEOPLE)
async def list_credentials(org_slug: str, account_id: UUID) -> CredentialListResponse:
    """List a service account's credentials.

    Expired credentials are listed for 30 days. Secrets are not returned.
    """
    credentials = await service_accounts.list_credentials(kit.ports(), kit.acting_member(), account_id)
    return CredentialListResponse(credentials=[to_credential_response(credential) for credential in credentials])


@routes.post("/api/organizations/<org_slug>/service-accounts/<account_id>/credentials")
@kit.member(Capability.SERVICE_ACCOUNTS_MANAGE, kit.BY_PEOPLE)
@existing_account
@kit.returns(201)
async def create_credential(org_slug: str, account_id: UUID, data: CredentialRequest) -> CreatedCredentialResponse:
    """Create a credential for a service account.

    At most two secrets and keys work at a time. To replace a credential without downtime, create a new credential,
    change your program's configuration, and revoke the old credential. With `federated`, nothing secret is stored: the
    program presents the token that GitHub Actions or GitLab CI gives it.
    """
    request = to_credential_request(data)
    credential, secret = await service_accounts.create_credential(kit.ports(), kit.acting_member(), account_id, request)
    return to_created_response(credential, secret)


@routes.delete("/api/organizations/<org_slug>/service-accounts/<account_id>/credentials/<credential_id>")
@kit.member(Capability.SERVICE_ACCOUNTS_MANAGE, kit.BY_PEOPLE)
@kit.describes({204: "The credential is revoked."})
async def revoke_credential(org_slug: str, account_id: UUID, credential_id: UUID) -> None:
    """Revoke a service account's credential.

    It gets no further access tokens. Access tokens that it got before are refused from the next request on.
    """
    await service_accounts.revoke_credential(kit.ports(), kit.acting_member(), account_id, credential_id)


class CreatedSecretResponse(kit.ResponseModel):
    """An API key or a SCIM token that a service account created. Its secret is not returned."""

    kind: Literal[email_queue.NoticedSecret.API_KEY, email_queue.NoticedSecret.SCIM_TOKEN] = Field(description="The kind of the secret.")
    id: UUID = Field(description="The id of the API key or the SCIM token.")
    name: str = Field(description="Its name.", examples=["Okta"])
    prefix: str = Field(description="The first characters of the secret, to recognize it.", examples=["scim_live_k2v7qa"])
    application: str | None = Field(description="The name of an API key's application, or null for a SCIM token.")


class CreatedSecretsResponse(kit.ResponseModel):
    """What a service account created and what works on without it."""

    secrets: list[CreatedSecretResponse] = Field(description="All of them, oldest first.")


def _to_created_secrets(secrets: Sequence[email_queue.CreatedSecret]) -> CreatedSecretsResponse:
    return CreatedSecretsResponse(secrets=[CreatedSecretResponse.of(each, application=each.holder) for each in secrets])


@routes.get("/api/organizations/<org_slug>/service-accounts/<account_id>/created-secrets")
@kit.member(Capability.ORGANIZATION_OWN, kit.SHOWS_PEOPLE)
async def list_created_secrets(org_slug: str, account_id: UUID) -> CreatedSecretsResponse:
    """List the API keys and SCIM tokens that a service account created and that still work.

    They keep working after the service account has stopped or was deleted. Its id stays valid here.
    """
    return _to_created_secrets(await service_accounts.list_created(kit.ports(), kit.acting_member(), account_id))


@routes.delete("/api/organizations/<org_slug>/service-accounts/<account_id>/created-secrets")
@kit.member(Capability.ORGANIZATION_OWN, kit.BY_PEOPLE)
async def end_created_secrets(org_slug: str, account_id: UUID) -> CreatedSecretsResponse:
    """End all API keys and SCIM tokens that a service account created, and return them.

    Requests with such a secret are refused from now on.
    """
    return _to_created_secrets(await service_accounts.end_created(kit.ports(), kit.acting_member(), account_id))


class AccountResourceRequest(kit.RequestModel):
    """A service account's scopes at an API resource."""

    scopes: kit.Texts = Field(description="Scopes of the API resource. They replace the scopes that the service account had there.")


class AccountResourceResponse(kit.ResponseModel):
    """An API resource that a service account gets tokens for."""

    id: UUID = Field(description="The id of the API resource.")
    identifier: str = Field(description="The API resource's identifier, which is the `resource` in a token request.")
    name: str = Field(description="The name of the API.")
    scopes: list[str] = Field(description="The scopes that the service account has there.")


class AccountResourceListResponse(kit.ResponseModel):
    """The API resources that a service account gets tokens for."""

    api_resources: list[AccountResourceResponse] = Field(description="The API resources, by name.")


def _to_resource(resource: AccountResource) -> AccountResourceResponse:
    return AccountResourceResponse.of(resource, id=resource.resource_id)


@routes.get("/api/organizations/<org_slug>/service-accounts/<account_id>/api-resources")
@kit.member(Capability.SERVICE_ACCOUNTS_MANAGE, kit.SHOWS_PEOPLE)
async def list_resources(org_slug: str, account_id: UUID) -> AccountResourceListResponse:
    """List the API resources that a service account gets tokens for.

    Every API resource has the scopes that an admin gave to the service account there.
    """
    resources = await service_accounts.list_resources(kit.ports(), kit.acting_member(), account_id)
    return AccountResourceListResponse(api_resources=[_to_resource(resource) for resource in resources])


@routes.put("/api/organizations/<org_slug>/service-accounts/<account_id>/api-resources/<resource_id>")
@kit.member(Capability.SERVICE_ACCOUNTS_MANAGE, kit.BY_PEOPLE)
@existing_account
async def save_resource(org_slug: str, account_id: UUID, resource_id: UUID, data: AccountResourceRequest) -> AccountResourceResponse:
    """Give a service account an API resource's scopes.

    With the grant `client_credentials` and the parameter `resource`, it gets access tokens for the API
    resource with these scopes.
    """
    resource = await service_accounts.save_resource(kit.ports(), kit.acting_member(), account_id, resource_id, data.scopes)
    return _to_resource(resource)


@routes.delete("/api/organizations/<org_slug>/service-accounts/<account_id>/api-resources/<resource_id>")
@kit.member(Capability.SERVICE_ACCOUNTS_MANAGE, kit.BY_PEOPLE)
@kit.describes({204: "The service account gets no further tokens for the API resource."})
async def remove_resource(org_slug: str, account_id: UUID, resource_id: UUID) -> None:
    """Take away a service account's scopes at an API resource.

    Introspection calls its tokens inactive from now on; an API that checks tokens by itself accepts them
    until they expire.
    """
    await service_accounts.remove_resource(kit.ports(), kit.acting_member(), account_id, resource_id)
