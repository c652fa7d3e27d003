"""An organization's SCIM tokens, and the last requests with them."""

from uuid import UUID

from pydantic import Field
from quart import Blueprint

from core.kernel.roles import Capability
from core.provisioning import tokens
from core.provisioning import tokens as scim_tokens
from entrypoints.http import kit

routes = Blueprint("scim_tokens", __name__)

DIRECTORY_GROUPS = "Whether the directory may create groups in the organization, and change and delete groups of directories."


@kit.before_body
async def existing_token(org_slug: str, token_id: UUID) -> None:
    await scim_tokens.describe_end(kit.ports(), kit.acting(), token_id)


class ScimTokenRequest(kit.RequestModel):
    """A new SCIM token."""

    name: kit.Name = Field(description="The name of the token.", examples=["Okta"])
    expires_at: kit.DateTime | None = Field(default=None, description="The time when the token expires. Without it, it does not expire.")
    directory_groups: bool = Field(default=False, description=DIRECTORY_GROUPS)


class ScimTokenUpdateRequest(kit.RequestModel):
    """The change to a SCIM token."""

    directory_groups: bool = Field(description=DIRECTORY_GROUPS)


class ScimTokenResponse(kit.ResponseModel):
    """A SCIM token without its secret."""

    id: UUID = Field(description="The id of the token.")
    name: str = Field(description="The name of the token.", examples=["Okta"])
    prefix: str = Field(description="The first characters of the secret, to recognize the token.", examples=["scim_live_k2v7qa"])
    created_at: kit.Timestamp = Field(description="The time when the token was created.")
    created_by: UUID = Field(description="The id of the member or service account that created the token. It may no longer exist.")
    expires_at: kit.Timestamp | None = Field(description="The time when the token expires, or null if it does not expire.")
    directory_groups: bool = Field(description=DIRECTORY_GROUPS)


class CreatedScimTokenResponse(ScimTokenResponse):
    """A new SCIM token with its secret. Only this response contains the secret."""

    token: str = Field(description="The secret. Your directory sends it as `Authorization: Bearer`.")


@routes.post("/api/organizations/<org_slug>/scim-tokens")
@kit.member(Capability.INTEGRATIONS_MANAGE, kit.GIVES)
async def create(org_slug: str, data: ScimTokenRequest) -> CreatedScimTokenResponse:
    """Create a SCIM token.

    Your directory uses it to provision users at `/scim/v2`. The secret is returned only once. An organization can have
    100 tokens. A directory changes and removes admins, so you need every right that an admin has.
    """
    token, secret = await scim_tokens.create(kit.ports(), kit.acting(), data.name, data.expires_at, directory_groups=data.directory_groups)
    return CreatedScimTokenResponse.of(token, token=secret)


class ScimTokenListResponse(kit.ResponseModel):
    """An organization's SCIM tokens."""

    tokens: list[ScimTokenResponse] = Field(description="All tokens, including expired tokens, oldest first.")
    total: int = Field(description="The number of tokens.")


@routes.get("/api/organizations/<org_slug>/scim-tokens")
@kit.member(Capability.INTEGRATIONS_MANAGE)
async def list_tokens(org_slug: str) -> ScimTokenListResponse:
    """List the organization's SCIM tokens.

    The list is complete; it has no pages. Secrets are not returned.
    """
    tokens = await scim_tokens.list_tokens(kit.ports(), kit.acting())
    return ScimTokenListResponse(tokens=ScimTokenResponse.list_of(tokens), total=len(tokens))


@routes.patch("/api/organizations/<org_slug>/scim-tokens/<token_id>")
@kit.member(Capability.INTEGRATIONS_MANAGE, kit.GIVES)
@existing_token
@kit.refuses(409)
async def update(org_slug: str, token_id: UUID, data: ScimTokenUpdateRequest) -> ScimTokenResponse:
    """Let a directory create groups, or no longer.

    This counts from the next request on. To switch it on, you need every right that an admin has, and every right in the roles that
    directory groups give. Groups that the directory created stay when this is switched off. Admins can change them then, unless another
    token has the switch. 409: the token's creator lacks such a right. Create another token.
    """
    token = await scim_tokens.set_directory_groups(kit.ports(), kit.acting(), token_id, directory_groups=data.directory_groups)
    return ScimTokenResponse.of(token)


@routes.delete("/api/organizations/<org_slug>/scim-tokens/<token_id>")
@kit.member(Capability.INTEGRATIONS_MANAGE, kit.GIVES)
@kit.describes({204: "The token is revoked."})
async def revoke(org_slug: str, token_id: UUID) -> None:
    """Revoke a SCIM token.

    It stops working with the next request.
    """
    await scim_tokens.revoke(kit.ports(), kit.acting(), token_id)


class ScimRequestResponse(kit.ResponseModel):
    """A SCIM request, without values."""

    at: kit.Timestamp = Field(description="The time of the request.")
    token_id: UUID = Field(description="The id of the SCIM token. The token may be revoked.")
    method: str = Field(description="The HTTP method.", examples=["PATCH"])
    path: str = Field(
        description="The path, with the id of the resource and without the query.",
        examples=["/scim/v2/Users/3f0c8a52-6f0e-4a53-9d43-1f1a3c5d7e90"],
    )
    attributes: list[str] = Field(
        description="Up to 50 names of attributes in the body or in the filter.", examples=[["active", "emails.value"]]
    )
    status: int = Field(description="The HTTP status of the response. 499: the directory closed the connection.", examples=[400])
    scim_type: str | None = Field(description="The `scimType` of the error (RFC 7644 section 3.12), or null.", examples=["invalidFilter"])
    error: str | None = Field(description="The kind of error, or the part of the request that was ignored, in one sentence; or null.")


class ScimRequestListResponse(kit.ResponseModel):
    """An organization's last SCIM requests."""

    requests: list[ScimRequestResponse] = Field(description="The last 100 requests, newest first.")


class ScimRequestsQuery(kit.Query):
    """The filter for the requests."""

    failed: kit.Flag | None = Field(None, description="Return only requests that failed, or with false only requests that succeeded.")


@routes.get("/api/organizations/<org_slug>/scim-requests")
@kit.member(Capability.INTEGRATIONS_MANAGE)
async def list_requests(org_slug: str, query_args: ScimRequestsQuery) -> ScimRequestListResponse:
    """List the organization's last SCIM requests.

    The list is complete and contains no values, only attribute names. Requests with an unknown or revoked token are not
    listed. A request appears shortly after its response.
    """
    requests = await tokens.list_last_requests(kit.ports(), kit.acting(), failed=query_args.failed)
    return ScimRequestListResponse(requests=ScimRequestResponse.list_of(requests))
