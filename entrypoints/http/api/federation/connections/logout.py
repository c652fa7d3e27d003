"""The endpoint at which organizations' OpenID providers report sign-outs (Back-Channel Logout section 2.5)."""

from pydantic import Field
from quart import Blueprint, Response

from core.federation.connections import sign_out
from core.federation.connections.model.connections import OrganizationConnectionNotFound
from core.kernel.errors import refuse
from core.kernel.rate_limits import PROVIDER_LOGOUT
from core.kernel.values import parse_id
from entrypoints.http import kit

routes = Blueprint("connection_logout", __name__)


class ProviderLogoutRequest(kit.RequestModel):
    """A sign-out at an identity provider."""

    logout_token: kit.TokenText = Field(description="The logout token of the identity provider, which works once.")


@routes.post("/auth/connections/<connection_id>/backchannel-logout")
@kit.anyone(limit=PROVIDER_LOGOUT)
@kit.refuses(400, 404, 415)
@kit.speaks_oauth
@kit.takes(ProviderLogoutRequest)
@kit.describes({200: "The sessions of the sign-in have ended, or there were none."})
async def receive_logout(connection_id: str) -> Response:
    """Report that a user signed out at a connection's identity provider.

    Register this URL there as the back-channel logout URI. The token has a `sub`, a `sid`, or both. With a `sid`, the sessions
    from that sign-in end. Applications with `offline_access` keep theirs. With a `sub` alone, all sessions end that the user has through
    the connection. The user's own sign-ins stay.
    """
    body = await kit.parameters(ProviderLogoutRequest)
    known_id = parse_id(connection_id) or refuse(OrganizationConnectionNotFound)
    await sign_out.receive_logout(kit.ports(), kit.caller(), known_id, body.logout_token)
    return Response(b"", 200, {"Cache-Control": "no-store"})
