"""Service accounts of the platform, and their credentials. Every route needs a person."""

from functools import wraps
from typing import Any
from uuid import UUID

from pydantic import Field
from quart import Blueprint, Response

from core.kernel.api_scopes import ApiScope
from core.kernel.principals import Capability
from core.kernel.values import KEEP, Keep
from core.programs import platform_service_accounts
from core.programs.platform_service_accounts import NewPlatformServiceAccount, PlatformServiceAccountChanges
from core.programs.service_accounts_rules import ListedServiceAccount, in_declared_order, scopes_in_order
from entrypoints.http.api.programs.credential_models import (
    CreatedCredentialResponse,
    CredentialListResponse,
    CredentialRequest,
    to_created_response,
    to_credential_request,
    to_credential_response,
)
from entrypoints.http.api.programs.service_accounts import to_scopes
from entrypoints.http.edge.access import View, platform_owner
from entrypoints.http.edge.bodies import (
    AT_LEAST_ONE_FIELD,
    Id,
    Name,
    RequestModel,
    ResponseModel,
    Texts,
    Timestamp,
    optional,
    validate_request,
)
from entrypoints.http.edge.context import no_content, ports, signed_in
from entrypoints.http.edge.openapi import describes, refuses
from entrypoints.http.edge.queries import PageQuery, Pagination, pagination, path_id, validate_querystring
from entrypoints.http.edge.responses import returns

routes = Blueprint("platform_service_accounts", __name__)

SCOPES = "The scopes that its tokens can have, such as `platform_users:read`. Null: all scopes of the platform."
GRANTED = "Capabilities for routes whose effect outlives the service account, such as `platform_users.manage`."


def existing_account(view: View) -> View:
    """Answer 404 before the body is read if there is no service account `<account_id>` (decision 16)."""

    @wraps(view)
    async def check_account(account_id: str, **arguments: Any) -> Any:
        await platform_service_accounts.find(ports(), path_id(account_id))
        return await view(account_id=account_id, **arguments)

    return check_account


class PlatformServiceAccountRequest(RequestModel):
    """A new service account of the platform."""

    name: Name = Field(description="The name of the service account, which the log shows.", examples=["Provisioning"])
    owner_id: Id | None = Field(default=None, description="The id of the platform owner who answers for it. By default you.")
    scopes: Texts | None = Field(default=None, description=SCOPES, examples=[["platform_users:read"]])
    granted_capabilities: Texts = Field(default=[], description=GRANTED)


class PlatformServiceAccountUpdateRequest(RequestModel):
    """The fields of a service account of the platform to change."""

    model_config = AT_LEAST_ONE_FIELD

    name: Name | Keep = optional(description="The name of the service account.")
    owner_id: Id | Keep = optional(description="The id of the platform owner who answers for it.")
    scopes: Texts | Keep | None = optional(description=SCOPES)
    granted_capabilities: Texts | Keep = optional(description=GRANTED)


class PlatformServiceAccountResponse(ResponseModel):
    """A service account of the platform."""

    id: UUID = Field(description="The id of the service account, which is also its client id.")
    name: str = Field(description="The name of the service account.")
    owner_id: UUID = Field(description="The id of the user who answers for it.")
    owner_email: str | None = Field(description="The email address of that user, or null if they are no longer a platform owner.")
    is_active: bool = Field(description="False if its owner could not create it now. Then all its requests are refused.")
    scopes: list[ApiScope] | None = Field(description=SCOPES)
    granted_capabilities: list[Capability] = Field(description="The capabilities that a platform owner granted by name.")
    created_by: UUID = Field(description="The id of the user who created it.")
    created_at: Timestamp = Field(description="The time at which it was created, in UTC.")


class PlatformServiceAccountListResponse(ResponseModel):
    """A page of the platform's service accounts."""

    service_accounts: list[PlatformServiceAccountResponse] = Field(description="The service accounts, newest first.")
    pagination: Pagination = Field(description="The position of this page in the list.")


def _to_response(listed: ListedServiceAccount) -> PlatformServiceAccountResponse:
    account = listed.account
    return PlatformServiceAccountResponse(
        id=account.id,
        name=account.name,
        owner_id=account.owner_id,
        owner_email=listed.owner_email,
        is_active=listed.is_active,
        scopes=scopes_in_order(account.scopes),
        granted_capabilities=in_declared_order(account.granted),
        created_by=account.created_by,
        created_at=account.created_at,
    )


def to_changes(data: PlatformServiceAccountUpdateRequest) -> PlatformServiceAccountChanges:
    """Return the changes that a request asks for. Raises: ApiScopeUnknown."""
    return PlatformServiceAccountChanges(
        name=data.name,
        owner_id=data.owner_id,
        scopes=KEEP if isinstance(data.scopes, Keep) else to_scopes(data.scopes),
        granted=data.granted_capabilities,
    )


@routes.get("/api/platform/service-accounts")
@platform_owner(Capability.PLATFORM_OWN, needs_person=True)
@refuses(400)
@validate_querystring(PageQuery)
@returns(PlatformServiceAccountListResponse)
async def list_accounts(query_args: PageQuery) -> PlatformServiceAccountListResponse:
    """List the service accounts of the platform."""
    page = query_args.page_request()
    result = await platform_service_accounts.list_page(ports(), page)
    return PlatformServiceAccountListResponse(
        service_accounts=[_to_response(listed) for listed in result.items], pagination=pagination(page, result.total)
    )


@routes.post("/api/platform/service-accounts")
@platform_owner(Capability.PLATFORM_OWN, outlives=True, needs_person=True)
@validate_request(PlatformServiceAccountRequest)
@returns(PlatformServiceAccountResponse, 201)
async def create(data: PlatformServiceAccountRequest) -> tuple[PlatformServiceAccountResponse, int]:
    """Create a service account of the platform.

    It is a program that calls the routes of the platform with scopes of the platform. It stops when its
    owner is no longer a platform owner.
    """
    request = NewPlatformServiceAccount(
        name=data.name,
        owner_id=data.owner_id,
        scopes=to_scopes(data.scopes),
        granted=data.granted_capabilities,
    )
    return _to_response(await platform_service_accounts.create(ports(), signed_in(), request)), 201


@routes.get("/api/platform/service-accounts/<account_id>")
@platform_owner(Capability.PLATFORM_OWN, needs_person=True)
@returns(PlatformServiceAccountResponse)
async def get(account_id: str) -> PlatformServiceAccountResponse:
    """Get a service account of the platform."""
    return _to_response(await platform_service_accounts.find(ports(), path_id(account_id)))


@routes.patch("/api/platform/service-accounts/<account_id>")
@platform_owner(Capability.PLATFORM_OWN, outlives=True, needs_person=True)
@existing_account
@validate_request(PlatformServiceAccountUpdateRequest)
@returns(PlatformServiceAccountResponse)
async def update(account_id: str, data: PlatformServiceAccountUpdateRequest) -> PlatformServiceAccountResponse:
    """Change a service account of the platform. The change counts from its next request on."""
    return _to_response(await platform_service_accounts.update(ports(), signed_in(), path_id(account_id), to_changes(data)))


@routes.delete("/api/platform/service-accounts/<account_id>")
@platform_owner(Capability.PLATFORM_OWN, outlives=True, needs_person=True)
@describes({204: "The service account is deleted."})
async def delete(account_id: str) -> Response:
    """Delete a service account of the platform with its credentials. Its next request is refused."""
    await platform_service_accounts.delete(ports(), signed_in(), path_id(account_id))
    return no_content()


@routes.get("/api/platform/service-accounts/<account_id>/credentials")
@platform_owner(Capability.PLATFORM_OWN, needs_person=True)
@returns(CredentialListResponse)
async def list_credentials(account_id: str) -> CredentialListResponse:
    """List the credentials of a service account of the platform."""
    found = await platform_service_accounts.list_credentials(ports(), path_id(account_id))
    return CredentialListResponse(credentials=[to_credential_response(credential) for credential in found])


@routes.post("/api/platform/service-accounts/<account_id>/credentials")
@platform_owner(Capability.PLATFORM_OWN, outlives=True, needs_person=True)
@existing_account
@validate_request(CredentialRequest)
@returns(CreatedCredentialResponse, 201)
async def create_credential(account_id: str, data: CredentialRequest) -> tuple[CreatedCredentialResponse, int]:
    """Create a credential of a service account of the platform.

    At most two secrets and keys work at a time. To replace one without downtime, create the new one,
    change the configuration of your program, and revoke the old one.
    """
    request = to_credential_request(data)
    credential, secret = await platform_service_accounts.create_credential(ports(), signed_in(), path_id(account_id), request)
    return to_created_response(credential, secret), 201


@routes.delete("/api/platform/service-accounts/<account_id>/credentials/<credential_id>")
@platform_owner(Capability.PLATFORM_OWN, outlives=True, needs_person=True)
@describes({204: "The credential is revoked."})
async def revoke_credential(account_id: str, credential_id: str) -> Response:
    """Revoke a credential of a service account of the platform.

    It gets no further access tokens, and those that it got are refused from the next request on.
    """
    await platform_service_accounts.revoke_credential(ports(), signed_in(), path_id(account_id), path_id(credential_id))
    return no_content()
