"""The platform's service accounts, and their credentials. Every route needs a person."""

from uuid import UUID

from quart import Blueprint

from core.kernel.roles import Capability
from core.programs import service_accounts
from entrypoints.http import kit
from entrypoints.http.api.programs.credentials import (
    CreatedCredentialResponse,
    CredentialListResponse,
    CredentialRequest,
    to_created_response,
    to_credential_request,
    to_credential_response,
)
from entrypoints.http.api.programs.service_accounts import (
    PlatformServiceAccountListResponse,
    PlatformServiceAccountRequest,
    PlatformServiceAccountResponse,
    PlatformServiceAccountUpdateRequest,
    existing_account,
    to_changes,
    to_new_account,
    to_platform_response,
)

routes = Blueprint("platform_service_accounts", __name__)


@routes.get("/api/platform/service-accounts")
@kit.platform_owner(Capability.PLATFORM_OWN, kit.SHOWS_PEOPLE)
async def list_accounts(query_args: kit.PageQuery) -> PlatformServiceAccountListResponse:
    """List the platform's service accounts.

    They act for the installation, and in no organization.
    """
    result = await service_accounts.list_page(kit.ports(), kit.signed_in(), query_args.page_request())
    return PlatformServiceAccountListResponse(
        service_accounts=[to_platform_response(listed) for listed in result.items], pagination=query_args.pagination(result.total)
    )


@routes.post("/api/platform/service-accounts")
@kit.platform_owner(Capability.PLATFORM_OWN, kit.OWNS)
@kit.returns(201)
async def create(data: PlatformServiceAccountRequest) -> PlatformServiceAccountResponse:
    """Create a service account for the platform.

    It is a program that calls the platform's routes with the platform's scopes. It stops when its owner is no longer a
    platform owner.
    """
    return to_platform_response(await service_accounts.create(kit.ports(), kit.signed_in(), to_new_account(data)))


@routes.get("/api/platform/service-accounts/<account_id>")
@kit.platform_owner(Capability.PLATFORM_OWN, kit.SHOWS_PEOPLE)
async def get(account_id: UUID) -> PlatformServiceAccountResponse:
    """Get a service account of the platform.

    An organization's service account is 404.
    """
    return to_platform_response(await service_accounts.find(kit.ports(), kit.signed_in(), account_id))


@routes.patch("/api/platform/service-accounts/<account_id>")
@kit.platform_owner(Capability.PLATFORM_OWN, kit.OWNS)
@existing_account
async def update(account_id: UUID, data: PlatformServiceAccountUpdateRequest) -> PlatformServiceAccountResponse:
    """Change a service account of the platform. The change counts from its next request on."""
    return to_platform_response(await service_accounts.update(kit.ports(), kit.signed_in(), account_id, to_changes(data)))


@routes.delete("/api/platform/service-accounts/<account_id>")
@kit.platform_owner(Capability.PLATFORM_OWN, kit.OWNS)
@kit.describes({204: "The service account is deleted."})
async def delete(account_id: UUID) -> None:
    """Delete a service account of the platform with its credentials. Its next request is refused."""
    await service_accounts.delete(kit.ports(), kit.signed_in(), account_id)


@routes.get("/api/platform/service-accounts/<account_id>/credentials")
@kit.platform_owner(Capability.PLATFORM_OWN, kit.SHOWS_PEOPLE)
async def list_credentials(account_id: UUID) -> CredentialListResponse:
    """List the credentials of a platform service account.

    Expired credentials are listed for 30 days. Secrets are not returned.
    """
    credentials = await service_accounts.list_credentials(kit.ports(), kit.signed_in(), account_id)
    return CredentialListResponse(credentials=[to_credential_response(credential) for credential in credentials])


@routes.post("/api/platform/service-accounts/<account_id>/credentials")
@kit.platform_owner(Capability.PLATFORM_OWN, kit.OWNS)
@existing_account
@kit.returns(201)
async def create_credential(account_id: UUID, data: CredentialRequest) -> CreatedCredentialResponse:
    """Create a credential for a platform service account.

    At most two secrets and keys work at a time. To replace a credential without downtime, create a new credential,
    change your program's configuration, and revoke the old credential.
    """
    request = to_credential_request(data)
    credential, secret = await service_accounts.create_credential(kit.ports(), kit.signed_in(), account_id, request)
    return to_created_response(credential, secret)


@routes.delete("/api/platform/service-accounts/<account_id>/credentials/<credential_id>")
@kit.platform_owner(Capability.PLATFORM_OWN, kit.OWNS)
@kit.describes({204: "The credential is revoked."})
async def revoke_credential(account_id: UUID, credential_id: UUID) -> None:
    """Revoke a platform service account's credential.

    It gets no further access tokens. Access tokens that it got before are refused from the next request on.
    """
    await service_accounts.revoke_credential(kit.ports(), kit.signed_in(), account_id, credential_id)
