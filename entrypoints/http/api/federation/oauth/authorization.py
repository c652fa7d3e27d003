"""Signing people in for applications: the request, the page that asks about it, and the exchange of what comes of it for tokens
(identity.md section 4.9; decisions, points 86 to 94 and 100; security.md section 12; RFC 6749, RFC 7009, RFC 7636, RFC 8414).
"""

from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, Literal
from urllib.parse import unquote_plus, urlencode

from quart import Blueprint, Response, request
from quart_schema import validate_response

from core.authentication import browser
from core.authentication.sessions_rules import TokenPair
from core.federation.oauth import authorization as oauth
from core.federation.oauth import authorization_rules as oauth_rules
from core.federation.oauth import device_flow
from core.federation.oauth.authorization_rules import AUTHORIZE_PATH, Authorization, AuthorizationRequest, OAuthClient
from core.kernel.errors import ClientInvalid, Forbidden, GrantInvalid, Invalid, NotFound, SessionEnded, refuse
from core.kernel.principals import Visitor
from core.kernel.providers import Provider
from core.tenancy import branding
from entrypoints.http.edge import cookies
from entrypoints.http.edge.access import ACCOUNT, SIGN_IN, anyone, application, operations
from entrypoints.http.edge.bodies import RequestModel, ResponseModel, Text
from entrypoints.http.edge.context import app_context, caller, page_response, ports, request_record
from entrypoints.http.edge.forms import check_query, parameters, read_form
from entrypoints.http.edge.limits import admit, admit_client, admit_poll
from entrypoints.http.edge.openapi import describes, describes_page, refuses, speaks_oauth, takes
from entrypoints.http.pages import render
from entrypoints.http.pages.sign_in import form_targets, redirect, visitor_with_mfa

routes = Blueprint("oauth", __name__)

TOKEN: Final = "/auth/token"  # noqa: S105  (an address)
REVOKE: Final = "/auth/revoke"
# Of a request to sign somebody in (decisions, point 86).
WANTED: Final = {
    "org": "The organization, by its slug; with `service`.",
    "service": "The application, by its slug; with `org`.",
    "client_id": "The application, by its client id, instead of these.",
    "redirect_uri": "Where the browser goes afterwards: one that the application has registered. It may be left out if there is one only.",
    "state": "Comes back as it is: 1024 characters at most.",
    "code_challenge": "Of PKCE; mobile and desktop applications must send one.",
    "code_challenge_method": "`S256`, if there is a challenge.",
}
PARAMETERS: Final = {
    **WANTED,
    "response_type": "`code`, if it is sent.",
    "provider": "`codehost`, `websuite` or `officesuite`: the browser is sent on to this identity provider.",
}
DEVICE_CODE: Final = "urn:ietf:params:oauth:grant-type:device_code"  # RFC 8628 section 3.4
# Of what each grant is an exchange.
GRANTS: Final = {"authorization_code": "code", "refresh_token": "refresh_token", DEVICE_CODE: "device_code"}
NAMES: Final = {**GRANTS, "device_code": "device_code"}  # what people call the last one


class NotOurPage(Forbidden):
    """Only our own page sends a form here. An application sends the browser with GET, and what it wants in the address."""


class ProviderUnknown(NotFound):
    """There is no such identity provider."""


class GrantNotNamed(Invalid):
    """Send exactly one of code, refresh_token and device_code."""


class GrantUnknown(Invalid):
    """This grant_type is not supported: send authorization_code, refresh_token or urn:ietf:params:oauth:grant-type:device_code."""

    oauth_error = "unsupported_grant_type"


class GrantNotThatOne(Invalid):
    """The grant_type is not that of what is sent: a code, a refresh_token or a device_code. It may be left out."""


class CredentialsTwice(Invalid):
    """Say which application it is once: in the Authorization header, or as client_id and client_secret."""


# The person


@routes.get(AUTHORIZE_PATH)
@anyone
@refuses(400, 403, 404)
@describes_page(
    {
        200: "The page that asks whether the person wants to be signed in there.",
        303: "On to the redirect URI, with a code or an error; or to sign in first.",
    },
    optional=PARAMETERS,
    changes_state=True,
)
async def authorize() -> Response:
    """Sign the person in this browser in for an application.

    The application is named by org and service, or by its client_id; without these it is the platform itself. It gets a code, to exchange
    at POST /auth/token within a minute. Where a request is not sound, nobody is sent anywhere.
    """
    authorization = await _asked()
    if request.args.get("response_type", "code") != "code":
        if authorization.redirect_uri is None:
            raise Invalid
        return redirect(oauth_rules.error_uri(authorization, "unsupported_response_type", app_context().base_url))
    provider = request.args.get("provider")
    if provider:
        if provider not in frozenset(Provider):
            raise ProviderUnknown
        return redirect(f"/auth/{provider}?{authorization.request.query}")
    me = await visitor_with_mfa()
    if me is None:
        return _to_sign_in(authorization)
    if authorization.redirect_uri is None:
        return redirect(ACCOUNT)
    if not await oauth.is_allowed(ports(), me, authorization):
        return _denied(authorization)
    if await oauth.needs_consent(ports(), me, authorization):
        return await _question(me, authorization)
    return await _signed_in_there(me, authorization)


@routes.post(AUTHORIZE_PATH)
@anyone
@refuses(400, 403, 404)
@describes_page(
    {
        303: "On to the redirect URI, with a code, or with the error access_denied; or to sign in first.",
        403: "The form was not sent by our page.",
    },
    optional=WANTED,
    form=["form_token", "answer"],
)
async def answer() -> Response:
    """What the page sends that asks, and nobody else: continue, or anything else for no. Applications ask with GET."""
    form = await read_form()
    if "form_token" not in form:  # RFC 6749 section 3.1 leaves it open whether there is a POST for applications, too
        raise NotOurPage
    authorization = await _asked()
    me = await visitor_with_mfa()
    if me is None or authorization.redirect_uri is None:
        return _to_sign_in(authorization)
    browser.check_form_token(cookies.session_cookie() or "", form.get("form_token", ""))
    if form.get("answer") != "continue" or not await oauth.is_allowed(ports(), me, authorization):
        return _denied(authorization)
    return await _signed_in_there(me, authorization)


async def _asked() -> Authorization:
    check_query()
    authorization = await oauth.validate(ports(), AuthorizationRequest.from_fields(request.args))
    if authorization.context is not None:
        request_record().organization = authorization.context.org_slug
    return authorization


def _to_sign_in(authorization: Authorization) -> Response:
    return redirect(f"{SIGN_IN}?{urlencode({'next': authorization.request.path})}")


def _denied(authorization: Authorization) -> Response:
    return redirect(oauth_rules.error_uri(authorization, "access_denied", app_context().base_url))


async def _question(me: Visitor, authorization: Authorization) -> Response:
    assert authorization.service is not None, "the platform's own application asks nothing"
    design = await branding.get_design(ports(), authorization.service.org_id)
    page = render(
        "authorize.html",
        form_action=form_targets(authorization.redirect_uri),
        design=design,
        form_token=browser.form_token(cookies.session_cookie() or ""),
        action=authorization.request.path,
        service=authorization.service.name,
        organization=design.organization_name if design else "",
        email=me.email,
    )
    return page_response(page)


async def _signed_in_there(me: Visitor, authorization: Authorization) -> Response:
    request_record().caller = str(me.user_id)
    try:
        return redirect(await oauth.issue_code(ports(), me, authorization, app_context().base_url))
    except SessionEnded:  # meanwhile
        return _to_sign_in(authorization)


# Applications


class TokenRequest(RequestModel):
    """What is exchanged for tokens, and by which application.

    Exactly one of `code`, `refresh_token` and `device_code`; a `grant_type` need not be sent, but has to agree. With a code go its
    `redirect_uri` and, if it was asked for with a challenge, its `code_verifier`. An application with a client secret shows it here, or in
    an Authorization header of type Basic; for a device code, and the refresh tokens that it gave, it need not.
    """

    grant_type: Text | None = None
    code: Text | None = None
    refresh_token: Text | None = None
    device_code: Text | None = None
    redirect_uri: Text | None = None
    code_verifier: Text | None = None
    client_id: Text | None = None
    client_secret: Text | None = None


class TokenAnswer(ResponseModel):
    """An access token, how many seconds it lives, and the refresh token that renews it."""

    access_token: str
    token_type: Literal["Bearer"] = "Bearer"  # noqa: S105  (its kind)
    expires_in: int
    refresh_token: str


class RevocationRequest(RequestModel):
    """A token, refresh token or access token, and which application it is of. What is said of the token's kind is not needed."""

    token: Text
    token_type_hint: Text | None = None
    client_id: Text | None = None
    client_secret: Text | None = None


@routes.post(TOKEN)
@application
@refuses(400, 401, 403, 415, 429)
@speaks_oauth
@takes(TokenRequest)
@validate_response(TokenAnswer)
async def token() -> tuple[TokenAnswer, int, dict[str, str]]:
    """Exchange a code, a refresh token or a device code for tokens."""
    async with _counted_if_refused():
        asked = await parameters(TokenRequest)
        grant, who = _grant(asked), await _identify(asked)
    await (admit_poll() if grant == "device_code" else _admit(who))
    pair = await _exchanged(grant, asked, who)
    tokens = TokenAnswer(access_token=pair.access_token, expires_in=pair.expires_in, refresh_token=pair.refresh_token)
    return tokens, 200, {"Cache-Control": "no-store", "Pragma": "no-cache"}


async def _exchanged(grant: str, asked: TokenRequest, who: OAuthClient | None) -> TokenPair:
    match grant:
        case "code":
            return await oauth.exchange_code(
                ports(), who or refuse(ClientInvalid), asked.code or "", asked.redirect_uri, asked.code_verifier
            )
        case "refresh_token":
            return await oauth.refresh_tokens(ports(), caller(), who, asked.refresh_token or "")
    client_id = None if who is None else who.client_id or refuse(GrantInvalid)
    return await device_flow.redeem(ports(), caller(), asked.device_code or "", client_id, asked.code_verifier)


@routes.post(REVOKE)
@application
@refuses(400, 401, 415, 429)
@speaks_oauth
@takes(RevocationRequest)
@describes({200: "Whatever the token was: it is good for nothing any more, if it was this application's."})
async def revoke() -> Response:
    """Make a token worthless, and the session that it is of. Nothing is said about tokens that are unknown or another application's.

    What a code gave to an application with a client secret takes that secret, as renewing it does.
    """
    async with _counted_if_refused():
        asked = await parameters(RevocationRequest)
        who = await _identify(asked)
    await _admit(who)
    await oauth.revoke_token(ports(), caller(), who, asked.token)
    return Response(b"", 200, {"Cache-Control": "no-store"})


class Metadata(ResponseModel):
    """What a client of OAuth has to know of this server (RFC 8414)."""

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    token_endpoint_auth_methods_supported: list[str]
    revocation_endpoint: str
    revocation_endpoint_auth_methods_supported: list[str]
    device_authorization_endpoint: str
    jwks_uri: str
    response_types_supported: list[str]
    response_modes_supported: list[str]
    grant_types_supported: list[str]
    code_challenge_methods_supported: list[str]
    authorization_response_iss_parameter_supported: bool
    service_documentation: str


@routes.get("/.well-known/oauth-authorization-server")
@operations
@validate_response(Metadata)
async def metadata() -> tuple[Metadata, int, dict[str, str]]:
    """Show what a client of OAuth has to know of this server."""
    base = app_context().base_url
    methods = ["client_secret_basic", "client_secret_post", "none"]
    known = Metadata(
        issuer=base,
        authorization_endpoint=f"{base}{AUTHORIZE_PATH}",
        token_endpoint=f"{base}{TOKEN}",
        token_endpoint_auth_methods_supported=methods,
        revocation_endpoint=f"{base}{REVOKE}",
        revocation_endpoint_auth_methods_supported=methods,
        device_authorization_endpoint=f"{base}/auth/device/code",
        jwks_uri=f"{base}/.well-known/jwks.json",
        response_types_supported=["code"],
        response_modes_supported=["query"],
        grant_types_supported=list(GRANTS),
        code_challenge_methods_supported=["S256"],
        authorization_response_iss_parameter_supported=True,
        service_documentation=f"{base}/docs",
    )
    return known, 200, {"Cache-Control": "public, max-age=300"}


def _grant(asked: TokenRequest) -> str:
    """The field of what is exchanged (decisions, point 93)."""
    sent = [field for field in GRANTS.values() if getattr(asked, field) is not None]
    if asked.grant_type is not None and asked.grant_type not in NAMES:
        raise GrantUnknown
    if len(sent) != 1:
        raise GrantNotNamed
    if asked.grant_type is not None and sent != [NAMES[asked.grant_type]]:
        raise GrantNotThatOne
    return sent[0]


@asynccontextmanager
async def _counted_if_refused() -> AsyncIterator[None]:
    """What is refused in the block takes a token from the bucket of its address, since nobody has shown a client secret."""
    try:
        yield
    except Exception:
        await admit(())
        raise


async def _identify(asked: TokenRequest | RevocationRequest) -> OAuthClient | None:
    """The application that the Authorization header or the body names. Raises CredentialsTwice, ClientInvalid."""
    client_id, client_secret = credentials(asked.client_id, asked.client_secret)
    found = await oauth.identify_client(ports(), client_id, client_secret)
    if found is not None:
        request_record().caller = client_id
        request_record().organization = found.context.org_slug if found.context else None
    return found


async def _admit(who: OAuthClient | None) -> None:
    """Take a token from the bucket of the application that has shown its client secret, else from that of the address (decisions, point
    100). Raises Limited."""
    if who is not None and who.client_id is not None and not who.relies_on_pkce:
        await admit_client(who.client_id)
    else:
        await admit(())


def credentials(client_id: str | None, client_secret: str | None) -> tuple[str | None, str | None]:
    """What the Authorization header, or else the body, says the application is. Raises CredentialsTwice, ClientInvalid."""
    header = _basic()
    if header is None:
        return client_id, client_secret
    if client_secret is not None or client_id not in (None, header[0]):
        raise CredentialsTwice
    return header


def _basic() -> tuple[str, str | None] | None:
    """What the Authorization header names, and shows, if it is of this kind; each of the two is encoded as in a form (RFC 6749 section
    2.3.1). Access tokens say nothing of applications.

    Raises ClientInvalid.
    """
    scheme, _, encoded = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        named, colon, shown = b64decode(encoded.strip(), validate=True).decode("utf-8").partition(":")
    except (NotBase64, ValueError):
        raise ClientInvalid from None
    if not colon:
        raise ClientInvalid
    return unquote_plus(named), unquote_plus(shown) or None
