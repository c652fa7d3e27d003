"""Signing in, staying signed in, signing out (identity.md sections 4.1 and 4.9)."""

from typing import Any

from pydantic import Field
from quart import Blueprint
from quart_schema import validate_request, validate_response

from core import login as signing_in
from core import sessions
from core.errors import Invalid
from core.limits import LOGIN, MFA_VERIFICATION
from core.login import PreAuth
from core.sessions import TokenPair
from core.values import Email
from entrypoints.http.access import anyone, person_anywhere, pre_auth
from entrypoints.http.bodies import Body, EmailAddress, Message, Name, PasswordText, Shown, Text
from entrypoints.http.context import caller, client, ports, signed_in
from entrypoints.http.context import pre_auth as waiting
from entrypoints.http.openapi import refuses

routes = Blueprint("sessions", __name__)


class Credentials(Body):
    """An e-mail address and a password; `saml_state` continues a SAML sign-on.

    `org_slug` and `service_slug`, both or neither, sign in to a service: the tokens are then for that application. `device_token` is what a
    trusted device was given, and lets it do without the second factor.
    """

    email: EmailAddress
    password: PasswordText
    saml_state: Text | None = None
    org_slug: Text | None = None
    service_slug: Text | None = None
    device_token: Text | None = None


class Tokens(Shown):
    """An access token, the refresh token that renews it, and how many seconds the access token lives."""

    access_token: str
    refresh_token: str
    expires_in: int


class LoginAnswer(Tokens):
    """The tokens. With `mfa_required` the access token is a pre-auth token, good for POST /api/auth/mfa/verify alone, and there is no
    refresh token yet."""

    mfa_required: bool | None = Field(default=None, exclude_if=lambda required: required is None)


class VerifiedAnswer(Tokens):
    """The tokens; and for a device that is to be trusted, what it presents at the next login."""

    device_token: str | None = Field(default=None, exclude_if=lambda token: token is None)


class UnknownSamlState(Invalid):
    """The SAML sign-on is unknown or has expired. Start again at the application."""


class ServiceHalfNamed(Invalid):
    """To sign in to a service, send both org_slug and service_slug; to sign in to your account, neither."""


@routes.post("/api/auth/login")
@anyone(limit=LOGIN)
@refuses(401, 403, 404)
@validate_request(Credentials)
@validate_response(LoginAnswer)
async def login(data: Credentials) -> LoginAnswer:
    """Sign in with e-mail address and password."""
    if data.saml_state is not None:
        raise UnknownSamlState
    service = None
    if data.org_slug is not None or data.service_slug is not None:
        if data.org_slug is None or data.service_slug is None:
            raise ServiceHalfNamed
        service = await signing_in.service_to_sign_in_to(ports(), data.org_slug, data.service_slug)
    found = await signing_in.with_password(ports(), caller(), Email(data.email), data.password, client(data.device_token), service)
    if isinstance(found, PreAuth):
        return LoginAnswer(access_token=found.token, refresh_token="", expires_in=found.expires_in, mfa_required=True)
    return LoginAnswer(**_tokens(signing_in.tokens(ports(), found)))


class SecondFactor(Body):
    """The six digits of an authenticator app, or a backup code. With `trust_device` the device need not be asked for one for a while; it is
    called `device_name` then."""

    code: Text
    trust_device: bool | None = None
    device_name: Name | None = None


@routes.post("/api/auth/mfa/verify")
@pre_auth(limit=MFA_VERIFICATION)
@refuses(400, 403, 404)
@validate_request(SecondFactor)
@validate_response(VerifiedAnswer)
async def verify_second_factor(data: SecondFactor) -> VerifiedAnswer:
    """Show the second factor: exchange a pre-auth token, and a code, for tokens."""
    shown = client(name=data.device_name)
    found = await signing_in.with_code(ports(), caller(), waiting(), data.code, shown, trust=data.trust_device is True)
    return VerifiedAnswer(**_tokens(signing_in.tokens(ports(), found)), device_token=found.device_token)


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
    return Tokens(**_tokens(await sessions.refresh(ports(), caller(), data.refresh_token)))


@routes.post("/api/auth/logout")
@person_anywhere(applications=True)
@validate_response(Message)
async def logout() -> Message:
    """End the session of this token."""
    await sessions.logout(ports(), signed_in())
    return Message(message="You are signed out.")


def _tokens(pair: TokenPair) -> dict[str, Any]:
    return {"access_token": pair.access_token, "refresh_token": pair.refresh_token, "expires_in": pair.expires_in}
