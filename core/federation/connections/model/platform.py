"""Platform connections: our client at the provider, the request, and the identity in an answer (security O-5, O-8)."""

from collections.abc import Mapping
from datetime import datetime
from typing import Final
from urllib.parse import urlsplit

from core.authentication.flow.model import FlowTarget, ProviderRequest
from core.federation.connections.model import openid
from core.federation.connections.model.settings import ProviderAuthentication
from core.federation.model.sign_in import derive_secret
from core.kernel import connections, values

ALGORITHMS: Final = ("RS256", "PS256", "ES256")
# The scopes that identify the user, and give access to nothing else.
IDENTIFYING_SCOPES: Final[Mapping[connections.ConnectionProtocol, tuple[str, ...]]] = {
    connections.ConnectionProtocol.OAUTH: ("read:user", "user:email"),
    connections.ConnectionProtocol.OIDC: ("email",),
}


def to_client(connection: connections.Connection, client: connections.ProviderClient) -> openid.OpenIdClient:
    """Return our client at a connection's provider, with the operator's endpoints."""
    settings, profile = connection.settings, urlsplit(connection.settings.userinfo_url)
    # Plain OAuth has no issuer. The origin stays as typed: identities are stored under this name.
    issuer = settings.issuer or f"{profile.scheme}://{profile.netloc}"
    return openid.OpenIdClient(
        connection_id=connection.id,
        provider=connection.slug,
        issuer=issuer,
        client_id=client.client_id,
        authentication=ProviderAuthentication.POST,  # all three providers accept it
        client_secret=client.client_secret,
        metadata=openid.OpenIdProviderMetadata(
            issuer=issuer,
            authorization_endpoint=settings.authorize_url,
            token_endpoint=settings.token_url,
            jwks_uri=settings.jwks_url,
            userinfo_endpoint=settings.userinfo_url,
            end_session_endpoint=None,
            algorithms=ALGORITHMS,
            authentications=frozenset(),
            names_issuer=False,
            emails_endpoint=settings.emails_url,
        ),
    )


def make_request(
    connection: connections.Connection, provider_request: ProviderRequest, state: str, device_cookie: str, base_url: str
) -> openid.CodeRequest:
    """Return the request to the provider. It is the same before the redirect and after it."""
    # In a flow that has been open for hours, the provider may have asked the user before this request.
    asks_again = provider_request.flow.wants_fresh or provider_request.flow.target is FlowTarget.REAUTHENTICATION
    return openid.CodeRequest(
        redirect_uri=f"{base_url}/auth/{connection.slug}/callback",
        state=state,
        nonce=derive_secret("nonce", state, device_cookie),
        code_verifier=derive_secret("verifier", state, device_cookie),
        scopes=(
            *IDENTIFYING_SCOPES[connection.protocol],
            *(connection.settings.scopes if provider_request.scopes is None else provider_request.scopes),
        ),
        fresh_since=provider_request.begun_at if asks_again and connection.can_reauthenticate else None,
        accepts_silent=True,  # `to_identity` checks `auth_time`, if there is one
    )


def to_identity(
    connection: connections.Connection, issuer: str, request: openid.CodeRequest, answer: openid.OpenIdAnswer, now: datetime
) -> connections.FederatedIdentity:
    """Return the user's identity at the provider. Not every provider says when it authenticated the user.

    Raises: ReauthenticationNotConfirmed if the provider authenticated the user before the time in the request.
    """
    claims, since = answer.claims, request.fresh_since
    # A time in the future is refused, because every application would accept it as recent.
    if since is not None and "auth_time" in claims and not openid.is_new_sign_in(openid.read_time(claims["auth_time"]), since, now):
        raise connections.ReauthenticationNotConfirmed
    assert answer.tokens is not None, "a platform provider returns tokens"
    email = _email(claims.get("email"))
    is_verified = connection.settings.verifies_emails and claims.get("email_verified") is True and email is not None
    return connections.FederatedIdentity(
        connection.slug, issuer, claims["sub"], email, is_verified, answer.tokens, is_fresh=since is not None
    )


def _email(value: object) -> values.Email | None:
    try:
        return values.Email.parse(value) if isinstance(value, str) else None
    except values.EmailInvalid:
        return None
