"""Signing in, staying signed in, signing out (identity.md sections 4.1 and 4.9)."""

from typing import Any

from pydantic import Field
from quart import Blueprint
from quart_schema import validate_request, validate_response

from core.authentication import login as signing_in
from core.authentication import sessions
from core.authentication.login_rules import PreAuthToken, SignedIn
from core.authentication.sessions_rules import TokenPair
from core.federation.oauth.authorization_rules import OrgOrServiceMissing
from core.federation.saml import pending as saml_pending
from core.kernel.errors import Invalid
from core.kernel.rate_limits import LOGIN, MFA_VERIFICATION
from core.kernel.values import Email
from entrypoints.http.edge.access import anyone, person_anywhere, pre_auth
from entrypoints.http.edge.bodies import EmailAddress, Message, Name, PasswordText, RequestModel, ResponseModel, Text
from entrypoints.http.edge.context import app_context, caller, client, ports, signed_in
from entrypoints.http.edge.context import pre_auth as waiting
from entrypoints.http.edge.openapi import refuses

routes = Blueprint("sessions", __name__)


class Credentials(RequestModel):
    """An email address and a password; `saml_state` continues a SAML sign-on.

    `org_slug` and `service_slug`, both or neither, sign in to a service: the tokens are then for that application. `device_token` is what a
    trusted device was given, and lets it do without the second factor.
    """

    email: EmailAddress
    password: PasswordText
    saml_state: Text | None = None
    org_slug: Text | None = None
    service_slug: Text | None = None
    device_token: Text | None = None


class Tokens(ResponseModel):
    """An access token, the refresh token that renews it, and how many seconds the access token lives."""

    access_token: str
    refresh_token: str
    expires_in: int


class LoginAnswer(Tokens):
    """The tokens. With `mfa_required` the access token is a pre-auth token, good for POST /api/auth/mfa/verify alone, and there is no
    refresh token yet. With `saml_state`, `redirect_url` is where the browser that brought it goes on to the application."""

    mfa_required: bool | None = Field(default=None, exclude_if=lambda required: required is None)
    redirect_url: str | None = Field(default=None, exclude_if=lambda url: url is None)


class VerifiedAnswer(Tokens):
    """The tokens; for a device that is to be trusted, what it presents at the next login; and where the browser goes on to the application,
    if the login was for a SAML sign-on."""

    device_token: str | None = Field(default=None, exclude_if=lambda token: token is None)
    redirect_url: str | None = Field(default=None, exclude_if=lambda url: url is None)


class SamlStateAndService(Invalid):
    """A SAML sign-on says itself which service it is for: send saml_state without org_slug and service_slug."""


@routes.post("/api/auth/login")
@anyone(limit=LOGIN)
@refuses(401, 403, 404)
@validate_request(Credentials)
@validate_response(LoginAnswer)
async def login(data: Credentials) -> LoginAnswer:
    """Sign in with email address and password."""
    if data.saml_state is not None:
        if data.org_slug is not None or data.service_slug is not None:
            raise SamlStateAndService
        await saml_pending.check_pending(ports(), data.saml_state)
    service = None
    if data.org_slug is not None or data.service_slug is not None:
        if data.org_slug is None or data.service_slug is None:
            raise OrgOrServiceMissing("To sign in to a service, send both org_slug and service_slug; to sign in to your account, neither.")
        service = await signing_in.service_to_sign_in_to(ports(), data.org_slug, data.service_slug)
    email, device = Email(data.email), client(data.device_token)
    found = await signing_in.with_password(ports(), caller(), email, data.password, device, service, saml_state=data.saml_state)
    if isinstance(found, PreAuthToken):
        return LoginAnswer(access_token=found.token, refresh_token="", expires_in=found.expires_in, mfa_required=True)
    redirect_url = await _onward(data.saml_state, found)
    return LoginAnswer(**_tokens(signing_in.tokens(ports(), found)), redirect_url=redirect_url)


class SecondFactor(RequestModel):
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
    if (saml_state := waiting().saml_state) is not None:
        await saml_pending.check_pending(ports(), saml_state)
    shown = client(name=data.device_name)
    found = await signing_in.with_code(ports(), caller(), waiting(), data.code, shown, trust=data.trust_device is True)
    redirect_url = await _onward(saml_state, found)
    return VerifiedAnswer(**_tokens(signing_in.tokens(ports(), found)), device_token=found.device_token, redirect_url=redirect_url)


class RefreshToken(RequestModel):
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


async def _onward(saml_state: str | None, found: SignedIn) -> str | None:
    """Where the browser goes on for which somebody has signed in. Raises StateUnknown."""
    return None if saml_state is None else app_context().base_url + await saml_pending.complete_login(ports(), caller(), saml_state, found)


def _tokens(pair: TokenPair) -> dict[str, Any]:
    return {"access_token": pair.access_token, "refresh_token": pair.refresh_token, "expires_in": pair.expires_in}
