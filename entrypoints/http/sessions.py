"""Signing in, staying signed in, signing out (identity.md sections 4.1 and 4.9)."""

from quart import Blueprint
from quart_schema import validate_request, validate_response

from core import sessions
from core.errors import Invalid
from core.limits import LOGIN
from core.sessions import TokenPair
from core.values import Email
from entrypoints.http.access import anyone, person_anywhere
from entrypoints.http.bodies import Body, EmailAddress, Message, PasswordText, Shown, Text
from entrypoints.http.context import caller, ports, signed_in
from entrypoints.http.openapi import refuses

routes = Blueprint("sessions", __name__)


class Credentials(Body):
    """An e-mail address and a password; `saml_state` continues a SAML sign-on.

    `org_slug` and `service_slug`, both or neither, sign in to a service: the tokens are then for that application.
    """

    email: EmailAddress
    password: PasswordText
    saml_state: Text | None = None
    org_slug: Text | None = None
    service_slug: Text | None = None


class Tokens(Shown):
    """An access token, the refresh token that renews it, and how many seconds the access token lives."""

    access_token: str
    refresh_token: str
    expires_in: int


class UnknownSamlState(Invalid):
    """The SAML sign-on is unknown or has expired. Start again at the application."""


class ServiceHalfNamed(Invalid):
    """To sign in to a service, send both org_slug and service_slug; to sign in to your account, neither."""


@routes.post("/api/auth/login")
@anyone(limit=LOGIN)
@refuses(401, 403, 404)
@validate_request(Credentials)
@validate_response(Tokens)
async def login(data: Credentials) -> Tokens:
    """Sign in with e-mail address and password."""
    if data.saml_state is not None:
        raise UnknownSamlState
    service = None
    if data.org_slug is not None or data.service_slug is not None:
        if data.org_slug is None or data.service_slug is None:
            raise ServiceHalfNamed
        service = await sessions.service_to_sign_in_to(ports(), data.org_slug, data.service_slug)
    return _tokens(await sessions.login(ports(), caller(), Email(data.email), data.password, service))


class RefreshToken(Body):
    """The refresh token; it is used up by this."""

    refresh_token: Text


@routes.post("/api/auth/refresh")
@anyone
@refuses(401, 403)
@validate_request(RefreshToken)
@validate_response(Tokens)
async def refresh(data: RefreshToken) -> Tokens:
    """Exchange a refresh token for a new pair of tokens."""
    return _tokens(await sessions.refresh(ports(), caller(), data.refresh_token))


@routes.post("/api/auth/logout")
@person_anywhere(applications=True)
@validate_response(Message)
async def logout() -> Message:
    """End the session of this token."""
    await sessions.logout(ports(), signed_in())
    return Message(message="You are signed out.")


def _tokens(pair: TokenPair) -> Tokens:
    return Tokens(access_token=pair.access_token, refresh_token=pair.refresh_token, expires_in=pair.expires_in)
