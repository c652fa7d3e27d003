"""The userinfo endpoint (OpenID Connect Core section 5.3)."""

import json

from quart import Blueprint, Response, request

from core.authentication.openid_rules import USERINFO_PATH
from core.authentication.tokens.dpop_rules import PresentedToken
from core.federation.oauth import userinfo
from core.kernel.errors import Invalid, Unauthenticated, refuse
from entrypoints.http.edge.access import anyone, presented_token
from entrypoints.http.edge.context import ports
from entrypoints.http.edge.forms import FORM, read_fields
from entrypoints.http.edge.openapi import any_origin, authenticates, describes, refuses, speaks_oauth

routes = Blueprint("userinfo", __name__)


class TokenRepeated(Invalid):
    """Send the access token once: in the Authorization header, or as access_token (RFC 6750 section 2)."""


@routes.get(USERINFO_PATH)
@anyone
@authenticates({"bearer": ["openid"]}, {"dpop": ["openid"]})
@any_origin
@refuses(401, 403, 429)
@speaks_oauth
@describes({200: "The claims, as a JSON object."})
async def get_userinfo() -> Response:
    """Show the claims about the user.

    The access token is in the Authorization header. The claims are those of the granted scopes, as
    they are now.
    """
    return await _answer(await presented_token())


@routes.post(USERINFO_PATH)
@anyone
@authenticates({"bearer": ["openid"]}, {"dpop": ["openid"]})
@any_origin
@refuses(400, 401, 403, 429)
@speaks_oauth
@describes({200: "The claims, as a JSON object."})
async def post_userinfo() -> Response:
    """Show the claims about the user, with the access token in a form.

    The access token is in the Authorization header, or in the field `access_token` (RFC 6750
    section 2.2).
    """
    token = (await read_fields()).get("access_token") if request.mimetype == FORM else None
    if "Authorization" not in request.headers:
        return await _answer(PresentedToken(token or refuse(Unauthenticated)))
    if token:
        raise TokenRepeated
    return await _answer(await presented_token())


async def _answer(presented: PresentedToken) -> Response:
    claims = await userinfo.load(ports(), presented)
    return Response(json.dumps(claims, ensure_ascii=False), 200, {"Cache-Control": "no-store"}, content_type="application/json")
