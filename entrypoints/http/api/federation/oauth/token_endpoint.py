"""The OAuth endpoints for applications: token, revocation and introspection.

Sources: RFC 6749, RFC 7009 and RFC 7662.
"""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Literal

from pydantic import ConfigDict, Field
from quart import Blueprint, Response

from core.authentication.model.dpop import ProofUse
from core.authentication.model.openid import split_scope
from core.authentication.model.sessions import TokenPair
from core.authentication.tokens import dpop
from core.federation.oauth import authorization as oauth
from core.federation.oauth import client_credentials, device_flow, introspection
from core.federation.oauth.model import clients
from core.federation.oauth.model.authorization import RequestedAccess
from core.federation.oauth.model.client_metadata import DEVICE_CODE
from core.federation.oauth.model.external_clients import ExternalGrantUnknown
from core.kernel import errors
from core.kernel.rate_limits import Bucket
from core.programs.model.credentials import ProgramClient
from entrypoints.http import kit
from entrypoints.http.api.federation.oauth import client_authentication
from entrypoints.http.edge.limits import take_poll_token

routes = Blueprint("oauth", __name__)

TOKEN: Final = clients.TOKEN_PATH
REVOKE: Final = "/auth/revoke"
INTROSPECT: Final = "/auth/introspect"


class GrantMissing(errors.Invalid):
    """Send exactly one of code, refresh_token and device_code, or grant_type=client_credentials."""


class GrantUnknown(errors.Invalid):
    """This grant_type is not supported. The metadata of the server lists the supported ones."""

    oauth_error = "unsupported_grant_type"


class GrantMismatch(errors.Invalid):
    """The grant_type does not fit the code, refresh_token or device_code that you sent. You can leave it out."""


def _if_known(description: str) -> Any:
    return kit.absent_if_none(f"{description} Left out if it has none.")


class TokenRequest(client_authentication.ClientRequest):
    """A code to exchange for tokens, and the client that exchanges it.

    Send exactly one parameter: `code`, `refresh_token` or `device_code`, or `grant_type=client_credentials` for the
    client's own token. A confidential client must authenticate, with a secret here or in HTTP Basic, or with an
    assertion. Device codes, and devices' refresh tokens, need no secret.
    """

    model_config = kit.AT_LEAST_ONE_FIELD
    repeatable = frozenset({"resource"})

    grant_type: kit.Text | None = Field(
        None,
        description="`authorization_code`, `refresh_token`, `client_credentials` or `urn:ietf:params:oauth:grant-type:device_code`. "
        "Optional beside a code or token, but it must fit.",
    )
    code: kit.Text | None = Field(None, description="The authorization code from the redirect.")
    refresh_token: kit.Text | None = Field(None, description="The refresh token to rotate.")
    device_code: kit.Text | None = Field(None, description="The device code from `POST /auth/device/code`.")
    redirect_uri: kit.Text | None = Field(None, description="The redirect URI of the authorization request. Goes with `code`.")
    code_verifier: kit.Text | None = Field(None, description="The PKCE verifier, required if the request had a `code_challenge`.")
    scope: kit.Text | None = Field(
        None,
        description="Fewer scopes than were granted. All other scopes are left out, but a refresh refuses scopes that the"
        " authorization request did not ask for.",
    )
    resource: kit.RepeatableText | None = Field(
        None, description="The granted resource, or none (RFC 8707). Another resource, or more than one, is refused."
    )


class TokenResponse(kit.ResponseModel):
    """A session's tokens."""

    access_token: str = Field(description="The access token, a JWT.")
    token_type: Literal["Bearer", "DPoP"] = Field(
        description="How to send the access token: `DPoP` if it is bound to the key of the request's proof (RFC 9449), or else `Bearer`."
    )
    expires_in: int = Field(description="The lifetime of the access token in seconds.")
    refresh_token: str | None = kit.absent_if_none(
        "The refresh token. It works once: each refresh returns a new one. Left out with `client_credentials`."
    )
    id_token: str | None = kit.absent_if_none("The ID token, a JWT (OpenID Connect). Left out without the scope `openid`.")
    scope: str | None = kit.absent_if_none("The granted scopes. Left out if there are none.")


class RevocationRequest(client_authentication.ClientRequest):
    """A token to revoke, and the client that it was issued to."""

    token: kit.TokenText = Field(description="The access token or refresh token.")
    token_type_hint: kit.Text | None = Field(None, description="Accepted and ignored (RFC 7009 section 2.1).")


@routes.post(TOKEN)
@kit.application
@kit.authenticates(*kit.CLIENT_SECURITY)
@kit.refuses(400, 401, 403, 415, 429)
@kit.any_origin
@kit.speaks_oauth
@kit.takes(TokenRequest)
async def exchange() -> tuple[TokenResponse, int, dict[str, str]]:
    """Exchange a code or a refresh token for tokens.

    Accepts an authorization code, a refresh token or a device code, as a form or as JSON. With `client_credentials`, a
    client that keeps a secret gets an access token for itself. An authorization code works once: a second use ends the
    session that it started. Before the user approves a device, its polls get the error `authorization_pending`. With a
    DPoP proof in the header `DPoP`, the tokens are bound to its key (RFC 9449). Every proof needs the nonce from the
    last response header `DPoP-Nonce`.
    """
    async with kit.limited_if_refused():
        body = await kit.parameters(TokenRequest)
        grant = _grant(body)
        # First, because a client that needs a nonce repeats its request, and an assertion works once.
        proof = await kit.read_proof()
        client = await grant.identify(body, () if grant.polls else kit.app_context().limits.of_client)
        await dpop.use(kit.ports(), proof)
    await (take_poll_token() if grant.polls else client_authentication.count_request(client))
    return _to_response(await grant.issue(body, client, proof))


def _to_response(tokens: TokenPair | clients.ProgramToken) -> tuple[TokenResponse, int, dict[str, str]]:
    response = TokenResponse.of(
        tokens,
        token_type="DPoP" if tokens.is_bound else "Bearer",
        refresh_token=tokens.refresh_token if isinstance(tokens, TokenPair) else None,
        id_token=tokens.id_token if isinstance(tokens, TokenPair) else None,
    )
    return response, 200, {"Cache-Control": "no-store", "Pragma": "no-cache"}


@dataclass(frozen=True, slots=True)
class Grant:
    """How a grant type issues tokens to a request's client, and identifies the client."""

    field: str | None  # the request's field with the code or token that is exchanged
    issue: Callable[[TokenRequest, Any, ProofUse | None], Awaitable[TokenPair | clients.ProgramToken]]
    identify: Callable[[client_authentication.ClientRequest, tuple[Bucket, ...]], Awaitable[clients.OAuthClient | ProgramClient | None]] = (
        client_authentication.identify_client
    )
    polls: bool = False  # polls have their own limit, and do not count for the client


async def _exchange_code(body: TokenRequest, client: clients.OAuthClient | None, proof: ProofUse | None) -> TokenPair:
    client = client or errors.refuse(errors.ClientInvalid)
    code, requested = body.code or "", _requested(body)
    return await oauth.exchange_code(kit.ports(), kit.caller(), client, code, body.redirect_uri, body.code_verifier, requested, proof)


async def _refresh(body: TokenRequest, client: clients.OAuthClient | None, proof: ProofUse | None) -> TokenPair:
    return await oauth.refresh_tokens(kit.ports(), kit.caller(), client, body.refresh_token or "", _requested(body), proof)


async def _redeem(body: TokenRequest, client: clients.OAuthClient | None, proof: ProofUse | None) -> TokenPair:
    return await device_flow.redeem(kit.ports(), kit.caller(), body.device_code or "", client, body.code_verifier, _requested(body), proof)


async def _issue(body: TokenRequest, client: clients.OAuthClient | ProgramClient | None, proof: ProofUse | None) -> clients.ProgramToken:
    return await client_credentials.issue(kit.ports(), client, body.scope, body.resource, proof)


def _requested(body: TokenRequest) -> RequestedAccess:
    return RequestedAccess(body.resource, None if body.scope is None else split_scope(body.scope))


GRANTS: Final[Mapping[str, Grant]] = {
    "authorization_code": Grant("code", _exchange_code),
    "refresh_token": Grant("refresh_token", _refresh),
    DEVICE_CODE: Grant("device_code", _redeem, polls=True),
    "client_credentials": Grant(None, _issue, client_authentication.identify_client_or_program),
}


@routes.post(REVOKE)
@kit.application
@kit.authenticates(*kit.CLIENT_SECURITY)
@kit.refuses(400, 401, 415, 429)
@kit.any_origin
@kit.speaks_oauth
@kit.takes(RevocationRequest)
@kit.describes({200: "The token is revoked, or it was unknown or belongs to another client."})
async def revoke() -> Response:
    """Revoke a token and end its session.

    Unknown tokens and other clients' tokens get status 200 as well. A client with a client secret needs it to revoke
    its tokens, as it does to refresh them. Service accounts' tokens end with their credential, so a service account
    gets the error `unsupported_token_type`.
    """
    async with kit.limited_if_refused():
        body = await kit.parameters(RevocationRequest)
        with suppress(ExternalGrantUnknown):  # an unknown token is not an error (RFC 7009 section 2.2)
            client = await client_authentication.identify_client_or_program(body, kit.app_context().limits.of_client)
            await client_authentication.count_request(client)
            await oauth.revoke_token(kit.ports(), kit.caller(), client, body.token)
            return Response(b"", 200, {"Cache-Control": "no-store"})
    await client_authentication.count_request(None)
    return Response(b"", 200, {"Cache-Control": "no-store"})


class IntrospectionRequest(client_authentication.ClientRequest):
    """A token, and the client that asks about it."""

    token: kit.TokenText = Field(description="The access token or refresh token.")
    token_type_hint: kit.Text | None = Field(None, description="Accepted and ignored (RFC 7662 section 2.1).")


class ConfirmationResponse(kit.ResponseModel):
    """The key that an access token's presenter must prove to have (RFC 7800)."""

    jkt: str = Field(description="The thumbprint of the key with SHA-256 (RFC 7638).")


class IntrospectionResponse(kit.ResponseModel):
    """A token's state (RFC 7662), and the claims that the application has chosen. An inactive token has only `active`."""

    model_config = ConfigDict(extra="allow")

    active: bool = Field(description="Whether the token can be used now.")
    token_type: str | None = _if_known("`Bearer` or `DPoP` for an access token, or `refresh_token`.")
    scope: str | None = _if_known("The granted scopes.")
    client_id: str | None = _if_known("The client id of the application.")
    username: str | None = _if_known("The email address of the user.")
    sub: str | None = _if_known("The id of the user.")
    aud: str | None = _if_known("The audience of an access token.")
    iss: str | None = _if_known("The issuer.")
    exp: int | None = _if_known("The time of expiry, in seconds since 1970.")
    iat: int | None = _if_known("The time of issue, in seconds since 1970.")
    jti: str | None = _if_known("The id of an access token.")
    sid: str | None = _if_known("The id of the session.")
    cnf: ConfirmationResponse | None = _if_known("The key that an access token is bound to (RFC 9449 section 6.2).")


@routes.post(INTROSPECT)
@kit.application
@kit.authenticates(*kit.CLIENT_SECURITY)
@kit.refuses(400, 401, 415, 429)
@kit.speaks_oauth
@kit.takes(IntrospectionRequest)
async def introspect() -> tuple[IntrospectionResponse, int, dict[str, str]]:
    """Ask whether a token is active.

    The client must authenticate with a secret or an assertion. An application or a service account sees only tokens
    that were issued to it, and an API resource only access tokens for it. All other tokens are inactive.
    """
    async with kit.limited_if_refused():
        body = await kit.parameters(IntrospectionRequest)
        client = await client_authentication.identify_client_or_program(body, kit.app_context().limits.of_client)
    await client_authentication.count_request(client)
    answer = await introspection.introspect(kit.ports(), client, body.token, kit.app_context().base_url)
    return IntrospectionResponse(**answer), 200, {"Cache-Control": "no-store"}


def _grant(body: TokenRequest) -> Grant:
    """Return a request's grant. Without `grant_type`, its code or token tells which."""
    sent = [grant for grant in GRANTS.values() if grant.field is not None and getattr(body, grant.field) is not None]
    name = body.grant_type
    named = None if name is None else GRANTS.get(DEVICE_CODE if name == "device_code" else name) or errors.refuse(GrantUnknown)
    if named is not None and named.field is None:
        if sent:
            raise GrantMismatch
        return named
    if len(sent) != 1:
        raise GrantMissing
    if named not in (None, sent[0]):
        raise GrantMismatch
    return sent[0]
