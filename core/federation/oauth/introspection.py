"""Token introspection for applications (RFC 7662)."""

from datetime import datetime
from typing import Any
from uuid import UUID

from core.authentication.model import claim_rules
from core.authentication.model.openid import Scope
from core.authentication.model.sessions import IntrospectedSession
from core.authentication.tokens import signing_keys
from core.federation.oauth.model.clients import OAuthClient
from core.federation.oauth.model.external_clients import is_external
from core.kernel import errors
from core.kernel.claims import Accepts, Claims, ProgramClaims
from core.kernel.values import digest
from core.programs.model import credentials
from ports import Ports

INACTIVE = {"active": False}


async def introspect(ports: Ports, client: OAuthClient | credentials.ProgramClient | None, token: str, base_url: str) -> dict[str, Any]:
    """Return the state of an access token or a refresh token, as RFC 7662 section 2.2 names it.

    A client sees only tokens that were issued to it, and an API resource only access tokens for it.
    All other tokens are inactive, and so are tokens that would be refused: expired, used, revoked, or of
    a blocked user, a former user or an inactive organization.

    Raises: ClientInvalid unless the client authenticated with a secret or an assertion.
    """
    claims = await _read(ports, token)
    if isinstance(client, credentials.ProgramClient):
        return await _introspect_for_program(ports, client, claims, token, base_url)
    if client is None or client.service is None or client.relies_on_pkce:
        raise errors.ClientInvalid
    if claims is not None and claims.client_id != client.client_id:
        return INACTIVE
    if isinstance(claims, ProgramClaims):
        return await _describe_program_token(ports, claims, base_url)
    now = ports.clock.now()
    async with ports.storage.reading() as read:
        session = await read.refresh_tokens.introspect(client.service.id, claims.session_id if claims else None, digest(token), now)
    return INACTIVE if session is None else _describe(session, claims, client.service.client_name, base_url, now)


async def _introspect_for_program(
    ports: Ports, program: credentials.ProgramClient, claims: Claims | ProgramClaims | None, token: str, base_url: str
) -> dict[str, Any]:
    """Return the state of a service account's own token, or of an access token for an API resource."""
    now = ports.clock.now()
    if isinstance(claims, ProgramClaims):
        if program.kind is credentials.ProgramKind.API_RESOURCE:
            return await _describe_program_token(ports, claims, base_url, resource_id=program.client_id)
        return await _describe_program_token(ports, claims, base_url) if claims.client_id == program.client_id else INACTIVE
    if claims is None or program.kind is not credentials.ProgramKind.API_RESOURCE:  # no API gets refresh tokens
        return INACTIVE
    async with ports.storage.reading() as read:
        session = await read.refresh_tokens.introspect(None, claims.session_id, digest(token), now, api_resource_id=program.client_id)
    return INACTIVE if session is None else _describe(session, claims, claims.client_name, base_url, now)


def _describe(session: IntrospectedSession, claims: Claims | None, client_id: str, base_url: str, now: datetime) -> dict[str, Any]:
    """Return the state of a user's active token, with the present claims that the application has chosen.

    Without claims, it is a refresh token.
    """
    answer: dict[str, Any] = {"active": True, "client_id": client_id, "sub": str(session.user_id), "sid": str(session.id), "iss": base_url}
    # A refresh can leave the scope `email` out. External clients need it.
    shows_email = Scope.EMAIL in session.openid.scope if is_external(client_id) else session.openid.shows_email
    if shows_email and (claims is None or claims.email is not None):
        answer["username"] = session.email
    if claims is None:  # not Bearer: a resource server must not take it for an access token
        scope, kind = session.scope, "refresh_token"
        issued_at, expires_at = session.refresh_token_created_at or now, session.expires_at
    else:
        scope = tuple(name for name in claims.scope if name in session.scope)  # an API resource can lose a scope
        kind, issued_at, expires_at = "Bearer", claims.issued_at, claims.expires_at
        if claims.key_thumbprint is not None:
            kind, answer["cnf"] = "DPoP", {"jkt": claims.key_thumbprint}
        answer |= {"aud": claims.audience or str(claims.client_id), "jti": str(claims.token_id)}
    answer |= {"token_type": kind, "iat": int(issued_at.timestamp()), "exp": int(expires_at.timestamp())}
    # Tokens for an API resource have none of these scopes, so those of the session count.
    openid = session.openid.narrow(scope) if session.api_scope is None else session.openid
    further = {name: value for name, value in claim_rules.introspection_claims(session.facts, openid).items() if name not in answer}
    return further | answer | ({"scope": " ".join(scope)} if scope else {})


async def _describe_program_token(ports: Ports, claims: ProgramClaims, base_url: str, *, resource_id: UUID | None = None) -> dict[str, Any]:
    """Return the state of a program's token, which has no user. With `resource_id`, it must be for this API resource."""
    async with ports.storage.reading() as read:
        if not await read.program_clients.is_token_active(claims, resource_id, ports.clock.now()):
            return INACTIVE
    answer: dict[str, Any] = {
        "active": True,
        "client_id": str(claims.client_id),
        "sub": str(claims.client_id),
        "iss": base_url,
        "aud": claims.audience,
        "jti": str(claims.token_id),
        "token_type": "Bearer" if claims.key_thumbprint is None else "DPoP",
        "scope": " ".join(claims.scope),
        "iat": int(claims.issued_at.timestamp()),
        "exp": int(claims.expires_at.timestamp()),
    }
    return answer if claims.key_thumbprint is None else answer | {"cnf": {"jkt": claims.key_thumbprint}}


async def _read(ports: Ports, token: str) -> Claims | ProgramClaims | None:
    """Return the claims of an access token, or None for any other text, which can be a refresh token."""
    try:
        return await signing_keys.read_token(ports, token, accepts=Accepts.RESOURCES)
    except errors.Unauthenticated:
        return None
