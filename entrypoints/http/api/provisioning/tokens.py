"""SCIM tokens of an organization (identity.md section 4.6)."""

from uuid import UUID

from quart import Blueprint, Response
from quart_schema import validate_request, validate_response

from core.kernel.principals import Capability
from core.provisioning import tokens as scim_tokens
from core.provisioning.tokens_rules import ScimToken
from entrypoints.http.edge.access import member
from entrypoints.http.edge.bodies import DateTime, Name, RequestModel, ResponseModel, Timestamp
from entrypoints.http.edge.context import acting_member, no_content, ports
from entrypoints.http.edge.openapi import describes
from entrypoints.http.edge.queries import path_id

routes = Blueprint("scim_tokens", __name__)


class NewScimToken(RequestModel):
    """What the token is called, and until when it is good; for ever unless that is given."""

    name: Name
    expires_at: DateTime | None = None


class ScimTokenShown(ResponseModel):
    """A token, without its secret."""

    id: UUID
    name: str
    prefix: str
    created_at: Timestamp
    expires_at: Timestamp | None


class ScimTokenCreated(ScimTokenShown):
    """A new token; `token` is the secret itself, which is told only here."""

    token: str


def _show(token: ScimToken) -> ScimTokenShown:
    return ScimTokenShown(id=token.id, name=token.name, prefix=token.prefix, created_at=token.created_at, expires_at=token.expires_at)


@routes.post("/api/organizations/<org_slug>/scim-tokens")
@member(Capability.INTEGRATIONS_MANAGE, impersonated=False)
@validate_request(NewScimToken)
@validate_response(ScimTokenCreated)
async def create(org_slug: str, data: NewScimToken) -> ScimTokenCreated:
    """Make a token for a directory that provisions your people at `/scim/v2`. Its text is in this answer, and nowhere else."""
    token, text = await scim_tokens.create(ports(), acting_member(), data.name, data.expires_at)
    return ScimTokenCreated(**dict(_show(token)), token=text)


class ScimTokensListed(ResponseModel):
    """And tokens, the oldest first, expired ones too, and how many there are."""

    tokens: list[ScimTokenShown]
    total: int


@routes.get("/api/organizations/<org_slug>/scim-tokens")
@member(Capability.INTEGRATIONS_MANAGE)
@validate_response(ScimTokensListed)
async def listed(org_slug: str) -> ScimTokensListed:
    """List the SCIM tokens of the organization."""
    found = await scim_tokens.listed(ports(), acting_member())
    return ScimTokensListed(tokens=[_show(token) for token in found], total=len(found))


@routes.delete("/api/organizations/<org_slug>/scim-tokens/<token_id>")
@member(Capability.INTEGRATIONS_MANAGE)
@describes({204: "The token opens nothing any more."})
async def revoke(org_slug: str, token_id: str) -> Response:
    """Revoke a token for good. Whoever holds it is refused from the next request on."""
    await scim_tokens.revoke(ports(), acting_member(), path_id(token_id))
    return no_content()
