"""The signed-in user's consents to applications, and users' grants to external clients per API resource."""

from uuid import UUID

from pydantic import Field
from quart import Blueprint

from core.authentication.model.openid import Scope
from core.federation.oauth import consents
from core.kernel.api_scopes import Area
from core.kernel.roles import Capability
from entrypoints.http import kit
from entrypoints.http.api.applications.service_access import ApplicationOrganizationResponse
from entrypoints.http.api.tenancy.assignments import AssignmentsQuery

routes = Blueprint("consents", __name__)


class ConsentedScopeResponse(kit.ResponseModel):
    """An API resource's scope."""

    name: str = Field(description="The scope.")
    description: str = Field(description="What it allows.")


class ConsentedResourceResponse(kit.ResponseModel):
    """An API resource that the application uses on your behalf."""

    id: UUID = Field(description="The id of the API resource.")
    identifier: str = Field(description="The identifier of the API resource.")
    name: str = Field(description="The name of the API.")
    scopes: list[ConsentedScopeResponse] = Field(description="The scopes that you agreed to and that the API resource still has.")


class ConsentResponse(kit.ResponseModel):
    """Your consent to an application."""

    service_id: UUID = Field(description="The id of the application.")
    slug: str = Field(description="The slug of the application.")
    name: str = Field(description="The name of the application.")
    organization: ApplicationOrganizationResponse = Field(description="The organization of the application.")
    scopes: list[Scope] = Field(description="The scopes that you agreed to, and scopes of claims that the application asked for by name.")
    api_resources: list[ConsentedResourceResponse] = Field(description="The API resources that you agreed to, by name.")
    granted_at: kit.Timestamp = Field(description="When you last agreed to a new scope.")
    last_sign_in_at: kit.Timestamp | None = Field(description="When you last signed in to the application, or null.")
    last_used_at: kit.Timestamp | None = Field(
        description="When the application last got a token, or null if its sessions have ended long ago."
    )
    client_uri: str | None = Field(
        description="The client id of an external client, which the organization did not register, or null for an application."
    )


class ConsentListResponse(kit.ResponseModel):
    """Your consents to applications."""

    consents: list[ConsentResponse] = Field(description="Your consents, by organization and application. At most 200.")


@routes.get("/api/user/consents")
@kit.person_anywhere(area=Area.ACCOUNT)
async def list_own() -> ConsentListResponse:
    """List your consents to applications.

    An application is listed when you have agreed on the page in an OpenID Connect sign-in, or to its use of an API
    resource. Your own organization's trusted application does not ask, and is not listed.
    """
    responses = [
        ConsentResponse.of(
            consent,
            slug=consent.service_slug,
            name=consent.service,
            organization=ApplicationOrganizationResponse(slug=consent.org_slug, name=consent.organization, logo_url=consent.logo_url),
            scopes=list(consent.scope),
            api_resources=[
                ConsentedResourceResponse.of(access, scopes=ConsentedScopeResponse.list_of(access.scopes)) for access in consent.apis
            ],
        )
        for consent in await consents.list_own(kit.ports(), kit.signed_in())
    ]
    return ConsentListResponse(consents=responses)


@routes.delete("/api/user/consents/<service_id>")
@kit.person_anywhere(kit.MINE, area=Area.ACCOUNT)
@kit.describes({204: "The consent is withdrawn."})
async def withdraw(service_id: UUID) -> None:
    """Withdraw your consent to an application.

    Your sessions there that have scopes end. At the next sign-in, the application asks you again.
    """
    await consents.withdraw(kit.ports(), kit.signed_in(), service_id)


class ExternalGrantResponse(kit.ResponseModel):
    """An external client's access to an API resource that a user has agreed to."""

    user_id: UUID = Field(description="The id of the user.")
    email: str = Field(description="The email address of the user.")
    client_id: UUID = Field(description="The id of the client in this organization.")
    client_uri: str = Field(
        description="The `client_id` in its tokens: the address of the client, or a sealed client id if it registered itself."
    )
    client_name: str = Field(description="The name that the client gives itself.")
    scopes: list[str] = Field(description="The scopes that the user has agreed to and that the API resource still has.")
    granted_at: kit.Timestamp = Field(description="When the user last agreed to a new scope.")
    last_used_at: kit.Timestamp | None = Field(description="When the client last got a token, or null if its sessions have ended long ago.")


class ExternalGrantListResponse(kit.ResponseModel):
    """A page of users' grants to external clients."""

    grants: list[ExternalGrantResponse] = Field(description="The grants, by email address and client.")
    pagination: kit.Pagination = Field(description="The position of this page in the list.")


@routes.get("/api/organizations/<org_slug>/api-resources/<resource_id>/external-clients/grants")
@kit.member(Capability.RESOURCES_VIEW)
async def list_grants(org_slug: str, resource_id: UUID, query_args: AssignmentsQuery) -> ExternalGrantListResponse:
    """List the users who have connected an external client to an API resource.

    A grant has its client, its scopes and its last use. 403 if your role does not see the organization's end users.
    """
    result = await consents.list_grants(kit.ports(), kit.acting(), resource_id, query_args.page_request(), search=query_args.search)
    return ExternalGrantListResponse(grants=ExternalGrantResponse.list_of(result.items), pagination=query_args.pagination(result.total))


@routes.delete("/api/organizations/<org_slug>/api-resources/<resource_id>/external-clients/grants/<user_id>/<client_id>")
@kit.member(Capability.END_USERS_MANAGE, kit.GIVES)
@kit.describes({204: "The grant has ended."})
async def end_grant(org_slug: str, resource_id: UUID, user_id: UUID, client_id: UUID) -> None:
    """End a user's grant to an external client at an API resource.

    The client gets no further tokens, and introspection calls its tokens inactive at once. It can ask the
    user again. To prevent that, change which external clients the API resource admits.
    """
    await consents.end_grant(kit.ports(), kit.acting(), resource_id, user_id, client_id)
