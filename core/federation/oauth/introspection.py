"""Token introspection for applications (RFC 7662)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from core.authentication.tokens import signing_keys
from core.kernel.errors import ClientInvalid, Unauthenticated
from core.kernel.principals import Claims
from core.kernel.values import digest

if TYPE_CHECKING:
    from core.federation.oauth.clients_rules import OAuthClient
    from ports import Ports

INACTIVE = {"active": False}


async def introspect(ports: Ports, client: OAuthClient | None, token: str, base_url: str) -> dict[str, Any]:
    """Return the state of an access token or a refresh token, as RFC 7662 section 2.2 names it.

    A client sees only tokens that were issued to it. Every other token is inactive, and so is one
    that would be refused: expired, used or revoked, of a user who is blocked or has left the
    application, or of an organization that is not active.

    Raises: ClientInvalid unless the client authenticated with a secret or an assertion.
    """
    if client is None or client.service is None or client.relies_on_pkce:
        raise ClientInvalid
    claims, now = await _read(ports, token), ports.clock.now()
    if claims is not None and claims.client_id != client.client_id:
        return INACTIVE
    async with ports.storage.reading() as read:
        session = await read.sessions.introspect(client.service.id, claims.session_id if claims else None, digest(token), now)
    if session is None:
        return INACTIVE
    answer: dict[str, Any] = {
        "active": True,
        "client_id": str(client.client_id),
        "sub": str(session.user_id),
        "username": session.email,
        "sid": str(session.id),
        "iss": base_url,
    }
    if claims is None:  # not Bearer: a resource server must not take it for an access token
        scope, kind = session.scope, "refresh_token"
        issued_at, expires_at = session.refresh_token_created_at or now, session.expires_at
    else:
        scope, kind, issued_at, expires_at = claims.scope, "Bearer", claims.issued_at, claims.expires_at
        if claims.key_thumbprint is not None:
            kind, answer["cnf"] = "DPoP", {"jkt": claims.key_thumbprint}
        answer |= {"aud": claims.audience or str(claims.client_id), "jti": str(claims.token_id)}
    answer |= {"token_type": kind, "iat": int(issued_at.timestamp()), "exp": int(expires_at.timestamp())}
    return answer | ({"scope": " ".join(scope)} if scope else {})


async def _read(ports: Ports, token: str) -> Claims | None:
    """Return the claims of a user's access token, or None for any other text, which can be a refresh token."""
    try:
        claims = await signing_keys.read_any_token(ports, token, for_any_audience=True)
    except Unauthenticated:
        return None
    return claims if isinstance(claims, Claims) else None
