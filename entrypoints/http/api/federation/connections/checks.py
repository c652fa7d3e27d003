"""How an organization's connection is checked, and the keys with which we authenticate at identity providers."""

import json

from pydantic import Field
from quart import Blueprint, Response

from core.federation.connections import checks, openid
from core.federation.connections.model.connections import OrganizationConnectionNotFound
from core.kernel.errors import refuse
from core.kernel.roles import Capability
from core.kernel.values import parse_id
from entrypoints.http import kit
from entrypoints.http.api.federation.connections.connections import CONNECTION

routes = Blueprint("connection_checks", __name__)


class ConnectionProblemResponse(kit.ResponseModel):
    """A connection's problem."""

    code: str = Field(description="The kind of the problem.")
    is_error: bool = Field(description="Whether users cannot sign in because of it. Otherwise it is a warning.")
    message: str = Field(description="The problem, and what to do.")


class ConnectionCheckResponse(kit.ResponseModel):
    """A connection's problems."""

    problems: list[ConnectionProblemResponse] = Field(description="The problems. Empty if there are none.")


@routes.post(f"{CONNECTION}/check")
@kit.member(Capability.INTEGRATIONS_MANAGE, kit.SHOWS)
@kit.refuses(409, 429)
async def check(org_slug: str, connection_slug: str) -> ConnectionCheckResponse:
    """Check the organization's connection.

    With OpenID Connect, fetches the identity provider's metadata and keys, and sends a wrong code to its token endpoint, to find out
    whether it accepts our credentials. With SAML, looks at the certificates, and fetches the metadata if they have an address. Nothing is
    stored. An organization can have ten checks a minute.
    """
    problems = await checks.check(kit.ports(), kit.acting(), connection_slug, kit.app_context().base_url)
    return ConnectionCheckResponse(problems=ConnectionProblemResponse.list_of(problems))


@routes.get("/auth/connections/<connection_id>/jwks.json")
@kit.anyone
@kit.refuses(404)
@kit.describes({200: "A JWK set (RFC 7517)."}, content_type="application/jwk-set+json")
async def keys(connection_id: str) -> Response:
    """Return our public keys for a connection's identity provider.

    The identity provider verifies our client assertions with these keys (`private_key_jwt`).
    """
    published = await openid.published_keys(kit.ports(), parse_id(connection_id) or refuse(OrganizationConnectionNotFound))
    headers = {"Cache-Control": "public, max-age=300"}
    return Response(json.dumps({"keys": published}), 200, headers, content_type="application/jwk-set+json")
