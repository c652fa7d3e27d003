"""An organization's service accounts, and their credentials. Every route needs a person."""

from collections.abc import Sequence
from typing import Literal
from uuid import UUID

from pydantic import Field
from quart import Blueprint

from core.accounts.model.secret_notices import CreatedSecret, NoticedSecret
from core.kernel.roles import Capability
from core.programs import created_secrets, service_accounts
from entrypoints.http.api.programs.credential_models import (
    CreatedCredentialResponse,
    CredentialListResponse,
    CredentialRequest,
    to_created_response,
    to_credential_request,
    to_credential_response,
)
from entrypoints.http.api.programs.service_account_models import (
    ServiceAccountListResponse,
    ServiceAccountRequest,
    ServiceAccountResponse,
    ServiceAccountUpdateRequest,
    to_changes,
    to_new_account,
    to_response,
)
from entrypoints.http.base.context import acting_member, ports, signed_in
from entrypoints.http.edge.access import BY_PEOPLE, SHOWS_PEOPLE, member
from entrypoints.http.edge.bodies import ResponseModel
from entrypoints.http.edge.openapi import describes
from entrypoints.http.edge.queries import PageQuery
from entrypoints.http.edge.signatures import before_body, returns

routes = Blueprint("service_accounts", __name__)


@before_body
async def existing_account(account_id: UUID, **_: object) -> None:
    """Answer 404 if there is no service account `<account_id>`.

    It belongs to the path's organization, or to the platform if the path has no organization.
    """
    await service_accounts.find(ports(), signed_in(), account_id)


@routes.get("/api/organizations/<org_slug>/service-accounts")
@member(Capability.SERVICE_ACCOUNTS_MANAGE, SHOWS_PEOPLE)
async def list_accounts(org_slug: str, query_args: PageQuery) -> ServiceAccountListResponse:
    """List the organization's service accounts.

    Every service account has its role, its owner and its scopes.
    """
    result = await service_accounts.list_page(ports(), acting_member(), query_args.page_request())
    return ServiceAccountListResponse(
        service_accounts=[to_response(listed) for listed in result.items], pagination=query_args.pagination(result.total)
    )


@routes.post("/api/organizations/<org_slug>/service-accounts")
@member(Capability.SERVICE_ACCOUNTS_MANAGE, BY_PEOPLE)
@returns(201)
async def create(org_slug: str, data: ServiceAccountRequest) -> ServiceAccountResponse:
    """Create a service account.

    A service account is a program that calls this API for the organization. It gets access tokens with the grant
    `client_credentials` and its credential. Its role is not above yours, and it stops when its owner may no longer
    create it.
    """
    return to_response(await service_accounts.create(ports(), acting_member(), to_new_account(data)))


@routes.get("/api/organizations/<org_slug>/service-accounts/<account_id>")
@member(Capability.SERVICE_ACCOUNTS_MANAGE, SHOWS_PEOPLE)
async def get(org_slug: str, account_id: UUID) -> ServiceAccountResponse:
    """Get a service account.

    Another organization's service account is 404.
    """
    return to_response(await service_accounts.find(ports(), acting_member(), account_id))


@routes.patch("/api/organizations/<org_slug>/service-accounts/<account_id>")
@member(Capability.SERVICE_ACCOUNTS_MANAGE, BY_PEOPLE)
@existing_account
async def update(org_slug: str, account_id: UUID, data: ServiceAccountUpdateRequest) -> ServiceAccountResponse:
    """Change a service account.

    The change counts from its next request on. With a lower role, it loses the granted capabilities that
    the role does not have. Its pending invitations to roles above member are canceled. Users who got a
    higher role from it become members again, unless a user has set their role since.
    """
    return to_response(await service_accounts.update(ports(), acting_member(), account_id, to_changes(data)))


@routes.delete("/api/organizations/<org_slug>/service-accounts/<account_id>")
@member(Capability.SERVICE_ACCOUNTS_MANAGE, BY_PEOPLE)
@describes({204: "The service account is deleted."})
async def delete(org_slug: str, account_id: UUID) -> None:
    """Delete a service account with its credentials.

    Its next request is refused. Its pending invitations to roles above member are canceled. Users who got a
    higher role from it become members again, unless a user has set their role since.
    """
    await service_accounts.delete(ports(), acting_member(), account_id)


@routes.post("/api/organizations/<org_slug>/service-accounts/<account_id>/end")
@member(Capability.SERVICE_ACCOUNTS_MANAGE, BY_PEOPLE)
@describes({204: "The service account has ended, or has an owner."})
async def end(org_slug: str, account_id: UUID) -> None:
    """End a former owner's service account now.

    Its next request is refused. An account without `ends_at` stays as it is.
    """
    await service_accounts.end_now(ports(), acting_member(), account_id)


@routes.get("/api/organizations/<org_slug>/service-accounts/<account_id>/credentials")
@member(Capability.SERVICE_ACCOUNTS_MANAGE, SHOWS_PEOPLE)
async def list_credentials(org_slug: str, account_id: UUID) -> CredentialListResponse:
    """List a service account's credentials.

    Expired credentials are listed for 30 days. Secrets are not returned.
    """
    credentials = await service_accounts.list_credentials(ports(), acting_member(), account_id)
    return CredentialListResponse(credentials=[to_credential_response(credential) for credential in credentials])


@routes.post("/api/organizations/<org_slug>/service-accounts/<account_id>/credentials")
@member(Capability.SERVICE_ACCOUNTS_MANAGE, BY_PEOPLE)
@existing_account
@returns(201)
async def create_credential(org_slug: str, account_id: UUID, data: CredentialRequest) -> CreatedCredentialResponse:
    """Create a credential for a service account.

    At most two secrets and keys work at a time. To replace a credential without downtime, create a new credential,
    change your program's configuration, and revoke the old credential. With `federated`, nothing secret is stored: the
    program presents the token that GitHub Actions or GitLab CI gives it.
    """
    request = to_credential_request(data)
    credential, secret = await service_accounts.create_credential(ports(), acting_member(), account_id, request)
    return to_created_response(credential, secret)


@routes.delete("/api/organizations/<org_slug>/service-accounts/<account_id>/credentials/<credential_id>")
@member(Capability.SERVICE_ACCOUNTS_MANAGE, BY_PEOPLE)
@describes({204: "The credential is revoked."})
async def revoke_credential(org_slug: str, account_id: UUID, credential_id: UUID) -> None:
    """Revoke a service account's credential.

    It gets no further access tokens. Access tokens that it got before are refused from the next request on.
    """
    await service_accounts.revoke_credential(ports(), acting_member(), account_id, credential_id)


class CreatedSecretResponse(ResponseModel):
    """An API key or a SCIM token that a service account created. Its secret is not returned."""

    kind: Literal[NoticedSecret.API_KEY, NoticedSecret.SCIM_TOKEN] = Field(description="The kind of the secret.")
    id: UUID = Field(description="The id of the API key or the SCIM token.")
    name: str = Field(description="Its name.", examples=["Okta"])
    prefix: str = Field(description="The first characters of the secret, to recognize it.", examples=["scim_live_k2v7qa"])
    application: str | None = Field(description="The name of an API key's application, or null for a SCIM token.")


class CreatedSecretsResponse(ResponseModel):
    """What a service account created and what works on without it."""

    secrets: list[CreatedSecretResponse] = Field(description="All of them, oldest first.")


def _to_created_secrets(secrets: Sequence[CreatedSecret]) -> CreatedSecretsResponse:
    return CreatedSecretsResponse(secrets=[CreatedSecretResponse.of(each, application=each.holder) for each in secrets])


@routes.get("/api/organizations/<org_slug>/service-accounts/<account_id>/created-secrets")
@member(Capability.ORGANIZATION_OWN, SHOWS_PEOPLE)
async def list_created_secrets(org_slug: str, account_id: UUID) -> CreatedSecretsResponse:
    """List the API keys and SCIM tokens that a service account created and that still work.

    They keep working after the service account has stopped or was deleted. Its id stays valid here.
    """
    return _to_created_secrets(await created_secrets.list_created(ports(), acting_member(), account_id))


@routes.delete("/api/organizations/<org_slug>/service-accounts/<account_id>/created-secrets")
@member(Capability.ORGANIZATION_OWN, BY_PEOPLE)
async def end_created_secrets(org_slug: str, account_id: UUID) -> CreatedSecretsResponse:
    """End all API keys and SCIM tokens that a service account created, and return them.

    Requests with such a secret are refused from now on.
    """
    return _to_created_secrets(await created_secrets.end_created(ports(), acting_member(), account_id))
