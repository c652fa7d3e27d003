"""Service accounts of an organization, and their credentials. Every route needs a person."""

from collections.abc import Sequence
from functools import wraps
from typing import Any
from uuid import UUID

from pydantic import Field
from quart import Blueprint, Response

from core.kernel.api_scopes import ApiScope, parse_scopes
from core.kernel.principals import Capability, Role
from core.kernel.values import KEEP, Keep
from core.programs import service_accounts
from core.programs.service_accounts import NewServiceAccount, ServiceAccountChanges
from core.programs.service_accounts_rules import ListedServiceAccount, in_declared_order, scopes_in_order
from entrypoints.http.api.programs.credential_models import (
    CreatedCredentialResponse,
    CredentialListResponse,
    CredentialRequest,
    to_created_response,
    to_credential_request,
    to_credential_response,
)
from entrypoints.http.edge.access import View, member
from entrypoints.http.edge.bodies import (
    AT_LEAST_ONE_FIELD,
    Id,
    Name,
    RequestModel,
    ResponseModel,
    Text,
    Texts,
    Timestamp,
    optional,
    validate_request,
)
from entrypoints.http.edge.context import acting_member, no_content, ports
from entrypoints.http.edge.openapi import describes, refuses
from entrypoints.http.edge.queries import PageQuery, Pagination, pagination, path_id, validate_querystring
from entrypoints.http.edge.responses import returns

routes = Blueprint("service_accounts", __name__)

SCOPES = "The scopes that its tokens can have, such as `members:read`. Null: all that its role allows."
GRANTED = (
    "Capabilities for routes whose effect outlives the service account, or that need a user, such as `api_keys.manage`. "
    "Only the owner of the organization grants them."
)


def existing_account(view: View) -> View:
    """Answer 404 before the body is read if there is no service account `<account_id>` (decision 16)."""

    @wraps(view)
    async def check_account(account_id: str, **arguments: Any) -> Any:
        await service_accounts.find(ports(), acting_member(), path_id(account_id))
        return await view(account_id=account_id, **arguments)

    return check_account


class ServiceAccountRequest(RequestModel):
    """A new service account."""

    name: Name = Field(description="The name of the service account, which the audit log shows.", examples=["Nightly export"])
    role: Text = Field(description="`owner`, `admin` or `member`, not above your own role.", examples=["member"])
    owner_id: Id | None = Field(default=None, description="The id of the member who answers for it. By default you.")
    scopes: Texts | None = Field(default=None, description=SCOPES, examples=[["members:read"]])
    granted_capabilities: Texts = Field(default=[], description=GRANTED)


class ServiceAccountUpdateRequest(RequestModel):
    """The fields of a service account to change."""

    model_config = AT_LEAST_ONE_FIELD

    name: Name | Keep = optional(description="The name of the service account.")
    role: Text | Keep = optional(description="`owner`, `admin` or `member`, not above your own role.")
    owner_id: Id | Keep = optional(description="The id of the member who answers for it.")
    scopes: Texts | Keep | None = optional(description=SCOPES)
    granted_capabilities: Texts | Keep = optional(description=GRANTED)


class ServiceAccountResponse(ResponseModel):
    """A service account of an organization."""

    id: UUID = Field(description="The id of the service account, which is also its client id.")
    name: str = Field(description="The name of the service account.")
    role: Role = Field(description="The role of the service account.")
    owner_id: UUID = Field(description="The id of the user who answers for it.")
    owner_email: str | None = Field(description="The email address of that user, or null if they are no longer a member.")
    is_active: bool = Field(description="False if its owner could not create it now. Then all its requests are refused.")
    scopes: list[ApiScope] | None = Field(description=SCOPES)
    granted_capabilities: list[Capability] = Field(description="The capabilities that an owner granted by name.")
    created_by: UUID = Field(description="The id of the user who created it.")
    created_at: Timestamp = Field(description="The time at which it was created, in UTC.")


class ServiceAccountListResponse(ResponseModel):
    """A page of an organization's service accounts."""

    service_accounts: list[ServiceAccountResponse] = Field(description="The service accounts, newest first.")
    pagination: Pagination = Field(description="The position of this page in the list.")


def _to_response(listed: ListedServiceAccount) -> ServiceAccountResponse:
    account = listed.account
    assert account.role is not None, "the account is one of an organization"
    return ServiceAccountResponse(
        id=account.id,
        name=account.name,
        role=account.role,
        owner_id=account.owner_id,
        owner_email=listed.owner_email,
        is_active=listed.is_active,
        scopes=scopes_in_order(account.scopes),
        granted_capabilities=in_declared_order(account.granted),
        created_by=account.created_by,
        created_at=account.created_at,
    )


def to_scopes(names: Sequence[str] | None) -> frozenset[ApiScope] | None:
    """Return the scopes with these names, or None for all. Raises: ApiScopeUnknown."""
    return None if names is None else parse_scopes(names)


def to_changes(data: ServiceAccountUpdateRequest) -> ServiceAccountChanges:
    """Return the changes that a request asks for. Raises: ApiScopeUnknown."""
    return ServiceAccountChanges(
        name=data.name,
        role=data.role,
        owner_id=data.owner_id,
        scopes=KEEP if isinstance(data.scopes, Keep) else to_scopes(data.scopes),
        granted=data.granted_capabilities,
    )


@routes.get("/api/organizations/<org_slug>/service-accounts")
@member(Capability.SERVICE_ACCOUNTS_MANAGE, needs_person=True)
@refuses(400)
@validate_querystring(PageQuery)
@returns(ServiceAccountListResponse)
async def list_accounts(org_slug: str, query_args: PageQuery) -> ServiceAccountListResponse:
    """List the service accounts of the organization."""
    page = query_args.page_request()
    result = await service_accounts.list_page(ports(), acting_member(), page)
    return ServiceAccountListResponse(
        service_accounts=[_to_response(listed) for listed in result.items], pagination=pagination(page, result.total)
    )


@routes.post("/api/organizations/<org_slug>/service-accounts")
@member(Capability.SERVICE_ACCOUNTS_MANAGE, outlives=True, needs_person=True)
@validate_request(ServiceAccountRequest)
@returns(ServiceAccountResponse, 201)
async def create(org_slug: str, data: ServiceAccountRequest) -> tuple[ServiceAccountResponse, int]:
    """Create a service account.

    A service account is a program that calls this API for the organization. It gets access tokens with
    the grant `client_credentials` and one of its credentials. Its role is not above yours, and it stops
    when its owner may no longer create it.
    """
    request = NewServiceAccount(
        name=data.name,
        role=data.role,
        owner_id=data.owner_id,
        scopes=to_scopes(data.scopes),
        granted=data.granted_capabilities,
    )
    return _to_response(await service_accounts.create(ports(), acting_member(), request)), 201


@routes.get("/api/organizations/<org_slug>/service-accounts/<account_id>")
@member(Capability.SERVICE_ACCOUNTS_MANAGE, needs_person=True)
@returns(ServiceAccountResponse)
async def get(org_slug: str, account_id: str) -> ServiceAccountResponse:
    """Get a service account."""
    return _to_response(await service_accounts.find(ports(), acting_member(), path_id(account_id)))


@routes.patch("/api/organizations/<org_slug>/service-accounts/<account_id>")
@member(Capability.SERVICE_ACCOUNTS_MANAGE, outlives=True, needs_person=True)
@existing_account
@validate_request(ServiceAccountUpdateRequest)
@returns(ServiceAccountResponse)
async def update(org_slug: str, account_id: str, data: ServiceAccountUpdateRequest) -> ServiceAccountResponse:
    """Change a service account.

    The change counts from its next request on. With a lower role, it loses the granted capabilities that
    the role does not have. Its pending invitations to roles above member are canceled, and members to
    whom it gave such a role are members again, unless a user has set their role since.
    """
    return _to_response(await service_accounts.update(ports(), acting_member(), path_id(account_id), to_changes(data)))


@routes.delete("/api/organizations/<org_slug>/service-accounts/<account_id>")
@member(Capability.SERVICE_ACCOUNTS_MANAGE, outlives=True, needs_person=True)
@describes({204: "The service account is deleted."})
async def delete(org_slug: str, account_id: str) -> Response:
    """Delete a service account with its credentials.

    Its next request is refused. Its pending invitations to roles above member are canceled, and members
    to whom it gave such a role are members again, unless a user has set their role since.
    """
    await service_accounts.delete(ports(), acting_member(), path_id(account_id))
    return no_content()


@routes.get("/api/organizations/<org_slug>/service-accounts/<account_id>/credentials")
@member(Capability.SERVICE_ACCOUNTS_MANAGE, needs_person=True)
@returns(CredentialListResponse)
async def list_credentials(org_slug: str, account_id: str) -> CredentialListResponse:
    """List the credentials of a service account."""
    found = await service_accounts.list_credentials(ports(), acting_member(), path_id(account_id))
    return CredentialListResponse(credentials=[to_credential_response(credential) for credential in found])


@routes.post("/api/organizations/<org_slug>/service-accounts/<account_id>/credentials")
@member(Capability.SERVICE_ACCOUNTS_MANAGE, outlives=True, needs_person=True)
@existing_account
@validate_request(CredentialRequest)
@returns(CreatedCredentialResponse, 201)
async def create_credential(org_slug: str, account_id: str, data: CredentialRequest) -> tuple[CreatedCredentialResponse, int]:
    """Create a credential of a service account.

    At most two secrets and keys work at a time. To replace one without downtime, create the new one,
    change the configuration of your program, and revoke the old one. With `federated`, nothing secret is
    stored: the program presents the token that GitHub Actions or GitLab CI gives it.
    """
    request = to_credential_request(data)
    credential, secret = await service_accounts.create_credential(ports(), acting_member(), path_id(account_id), request)
    return to_created_response(credential, secret), 201


@routes.delete("/api/organizations/<org_slug>/service-accounts/<account_id>/credentials/<credential_id>")
@member(Capability.SERVICE_ACCOUNTS_MANAGE, outlives=True, needs_person=True)
@describes({204: "The credential is revoked."})
async def revoke_credential(org_slug: str, account_id: str, credential_id: str) -> Response:
    """Revoke a credential of a service account.

    It gets no further access tokens, and those that it got are refused from the next request on.
    """
    await service_accounts.revoke_credential(ports(), acting_member(), path_id(account_id), path_id(credential_id))
    return no_content()
