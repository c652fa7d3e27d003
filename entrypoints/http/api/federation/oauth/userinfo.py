"""The userinfo endpoint (OpenID Connect Core section 5.3)."""

import json

from quart import Blueprint, Response, request

from core.authentication.model.dpop import PresentedToken
from core.authentication.model.openid import USERINFO_PATH
from core.federation.oauth import userinfo
from core.federation.oauth.userinfo import UserInfo
from core.kernel import errors
from entrypoints.http import kit
from entrypoints.http.edge import limits

routes = Blueprint("userinfo", __name__)


class TokenRepeated(errors.Invalid):
    """Send the access token once: in the Authorization header, or as access_token (RFC 6750 section 2)."""


@routes.get(USERINFO_PATH)
@kit.application
@kit.authenticates({"bearer": ["openid"]}, {"dpop": ["openid"]})
@kit.any_origin
@kit.refuses(401, 403, 429)
@kit.speaks_oauth
@kit.describes({200: "The claims, as a JSON object. For a token from `_claim_sources`, the claims that were too large, as a JWT."})
async def get_userinfo() -> Response:
    """Show the claims about the user.

    The access token is in the Authorization header. The response has the claims for the granted scopes, with their
    present values.
    """
    async with kit.limited_if_refused():
        found = await userinfo.load(kit.ports(), await kit.presented_token())
    return await _answer(found)


@routes.post(USERINFO_PATH)
@kit.application
@kit.authenticates({"bearer": ["openid"]}, {"dpop": ["openid"]})
@kit.any_origin
@kit.refuses(400, 401, 403, 429)
@kit.speaks_oauth
@kit.describes({200: "The claims, as a JSON object. For a token from `_claim_sources`, the claims that were too large, as a JWT."})
async def post_userinfo() -> Response:
    """Show the claims about the user, with the access token in a form.

    The access token is in the Authorization header, or in the field `access_token` (RFC 6750
    section 2.2).
    """
    async with kit.limited_if_refused():
        found = await userinfo.load(kit.ports(), await _sent_token())
    return await _answer(found)


async def _sent_token() -> PresentedToken:
    token = (await kit.read_fields()).get("access_token") if request.mimetype == kit.FORM else None
    if "Authorization" not in request.headers:
        return PresentedToken(token or errors.refuse(errors.Unauthenticated))
    if token:
        raise TokenRepeated
    return await kit.presented_token()


async def _answer(found: UserInfo) -> Response:
    """Return the claims, and count the request for its application or its session."""
    await (limits.take_session_token(found.session_id) if found.client_id is None else limits.take_userinfo_token(found.client_id))
    body, kind = (json.dumps(found.claims, ensure_ascii=False), "json") if found.jwt is None else (found.jwt, "jwt")
    return Response(body, 200, {"Cache-Control": "no-store"}, content_type=f"application/{kind}")
