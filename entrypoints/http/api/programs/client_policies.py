"""API resources' external clients: the policy that admits them."""

from typing import Annotated
from uuid import UUID

from pydantic import Field
from quart import Blueprint

from core.applications.model.users import AccessPolicy
from core.kernel.roles import Capability
from core.programs import api_resources
from core.programs.model import client_policy
from entrypoints.http import kit
from entrypoints.http.api.programs.api_resources import existing_resource

routes = Blueprint("client_policies", __name__)


class ExternalClientsRequest(kit.RequestModel):
    """The external clients that may ask for an API resource."""

    admit: Annotated[client_policy.ClientAdmission, Field(strict=False)] = Field(
        description="The clients that may ask. `none`: no client. `listed`: clients with an address at one of the "
        "`hosts`. `any`: all clients.",
        examples=["listed"],
    )
    hosts: kit.Texts = Field(
        default=[],
        description="The clients' hosts, with a port other than 443, at most 50. International hosts are stored in their xn-- form.",
        examples=[["claude.ai", "claude.com"]],
    )
    scopes: kit.Texts | None = Field(
        default=None,
        description="The scopes that these clients may ask for: the API resource's scopes, and `profile` and `email` from"
        " OpenID Connect. Null means all scopes, also later scopes.",
    )
    accepts_token_endpoint_audience: bool = Field(
        default=False,
        description="Whether the `aud` in a client's assertion may be the token endpoint's address. Otherwise, it must be the issuer.",
    )
    registration: bool = Field(
        default=False, description="Whether clients that registered themselves may ask, too. Such a client has no host."
    )
    access: Annotated[AccessPolicy | None, Field(strict=False)] = Field(
        default=None,
        description="Takes the place of the API resource's access policy `anyone`. It is required to admit the first "
        "clients while this policy is `anyone`: then everyone who signs up can connect a client. 409 if it "
        "has another policy, which stays.",
        examples=["members"],
    )


class ExternalClientsResponse(kit.ResponseModel):
    """The external clients that may ask for an API resource."""

    admit: client_policy.ClientAdmission = Field(description="The clients that may ask.")
    hosts: list[str] = Field(description="The hosts of clients, in lower case. They count if `admit` is `listed`.")
    scopes: list[str] | None = Field(description="The scopes that these clients may ask for. Null means all of them.")
    accepts_token_endpoint_audience: bool = Field(
        description="Whether the `aud` in a client's assertion may be the token endpoint's address."
    )
    registration: bool = Field(description="Whether clients that registered themselves may ask, too.")


def to_policy(data: ExternalClientsRequest) -> client_policy.ExternalClientPolicy:
    """Return the policy in a request."""
    return client_policy.ExternalClientPolicy(
        admit=data.admit,
        hosts=tuple(data.hosts),
        scopes=None if data.scopes is None else tuple(data.scopes),
        accepts_token_endpoint_audience=data.accepts_token_endpoint_audience,
        registration=data.registration,
    )


@routes.get("/api/organizations/<org_slug>/api-resources/<resource_id>/external-clients")
@kit.member(Capability.RESOURCES_VIEW)
async def get(org_slug: str, resource_id: UUID) -> ExternalClientsResponse:
    """Get the external clients that may ask for an API resource.

    External clients are programs that no organization registered, such as assistants. A new API resource admits none.
    """
    return ExternalClientsResponse.of((await api_resources.find(kit.ports(), kit.acting(), resource_id)).external_clients)


@routes.put("/api/organizations/<org_slug>/api-resources/<resource_id>/external-clients")
@kit.member(Capability.RESOURCES_MANAGE, kit.GIVES)
@existing_resource
@kit.refuses(409)
async def replace(org_slug: str, resource_id: UUID, data: ExternalClientsRequest) -> ExternalClientsResponse:
    """Replace the external clients that may ask for an API resource.

    A client that is no longer admitted gets no further tokens, and introspection calls its tokens inactive at once. The API resource's
    access policy decides about users, and `access` replaces `anyone`.
    """
    resource = await api_resources.save_external_clients(kit.ports(), kit.acting(), resource_id, to_policy(data), data.access)
    return ExternalClientsResponse.of(resource.external_clients)
