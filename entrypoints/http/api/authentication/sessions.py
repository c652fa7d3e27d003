"""Sign in with a password, a passkey or an email, refresh tokens, and sign out over the API."""

from typing import Any

from pydantic import Field
from quart import Blueprint

from core.authentication import sessions
from core.authentication.methods import passkey, second_factor
from core.authentication.methods.passkey import DiscoveredPasskey
from core.authentication.methods.password import Password
from core.authentication.model.login import PreAuthToken
from core.authentication.model.sessions import TokenPair
from core.federation import email_sign_in, sign_in
from core.federation import sign_in as sign_in_flow
from core.kernel import rate_limits
from core.kernel.values import Email
from entrypoints.http import kit
from entrypoints.http.api.accounts import webauthn
from entrypoints.http.base.context import client
from entrypoints.http.base.context import pre_auth as pre_auth_claims

routes = Blueprint("sessions", __name__)


class LoginRequest(kit.RequestModel):
    """An email address and a password, and the sign-in's target."""

    email: kit.EmailAddress = Field(description="The email address of the account.")
    password: kit.PasswordText = Field(description="The password of the account.")
    saml_state: kit.Text | None = Field(default=None, description="The state of a pending SAML sign-on that this sign-in completes.")
    org_slug: kit.Text | None = Field(
        default=None, description="The organization of the service to sign in to. Send it with `service_slug`."
    )
    service_slug: kit.Text | None = Field(
        default=None, description="The service to sign in to. Without it, the tokens are for the platform."
    )
    device_token: kit.Text | None = Field(default=None, description="The token of a trusted device. It skips the second factor.")


class TokenPairResponse(kit.ResponseModel):
    """An access token, and the refresh token that renews it."""

    access_token: str = Field(description="The access token, a JWT. Send it as `Authorization: Bearer`.")
    refresh_token: str = Field(description="The refresh token. It works once, at POST /api/auth/refresh.")
    expires_in: int = Field(description="The life of the access token in seconds.")


class SignInResponse(TokenPairResponse):
    """A new session's tokens, and the factor that a sign-in policy requires later."""

    enrolment_url: str | None = kit.absent_if_none(
        "The page on which a browser sets up a factor that the sign-in policy of the application requires from `enrolment_due_at` on. Only "
        "present in a grace period."
    )
    enrolment_due_at: kit.Timestamp | None = kit.absent_if_none("The start of the rule.")


class LoginResponse(SignInResponse):
    """The new session's tokens, or a pre-auth token if `mfa_required` is true."""

    access_token: str = Field(
        description="The access token. With `mfa_required`, this is a pre-auth token for POST /api/auth/mfa/verify only."
    )
    refresh_token: str = Field(description="The refresh token. It works once. With `mfa_required`, it is empty.")
    mfa_required: bool | None = kit.absent_if_none("True if the second factor is still required. Otherwise the field is absent.")
    methods: list[str] | None = kit.absent_if_none(
        "The second factors of the account, with `mfa_required`: `totp`, `passkey`, which is also a security key, and `backup_code`. Those "
        "that the sign-in policy of the application does not accept are left out, unless it accepts none."
    )
    passkey_options: dict[str, Any] | None = kit.absent_if_none(
        "PublicKeyCredentialRequestOptionsJSON for `navigator.credentials.get()`, if `methods` has `passkey`. Send the result as `passkey`."
    )
    redirect_url: str | None = kit.absent_if_none(
        "The URL where the browser of the SAML sign-on continues. Only present for a request with `saml_state`."
    )


class MfaVerificationResponse(SignInResponse):
    """The new session's tokens."""

    device_token: str | None = kit.absent_if_none(
        "The token of the trusted device, for the next login. Only present for a request with `trust_device`."
    )
    redirect_url: str | None = kit.absent_if_none(
        "The URL where the browser of the SAML sign-on continues. Only present if the login had a `saml_state`."
    )


@routes.post("/api/auth/login")
@kit.anyone(limit=rate_limits.LOGIN)
@kit.refuses(401, 403, 404)
async def login(data: LoginRequest) -> LoginResponse:
    """Sign in with an email address and a password.

    If the account has a second factor and the device is not trusted, the response contains a pre-auth token instead of
    tokens. Send it as the bearer token to POST /api/auth/mfa/verify. Clients should store a random device id with at
    least 22 characters and send it as `X-Device-Id`. Then strangers' guesses do not lock the user out there.
    """
    target = sign_in.ApiTarget(data.org_slug, data.service_slug, data.saml_state)
    password = Password(Email(data.email), data.password)
    return to_login_response(await sign_in_flow.sign_in_over_api(kit.ports(), kit.caller(), password, target, client(data.device_token)))


class MfaVerificationRequest(kit.RequestModel):
    """The second factor: either `code` or `passkey`."""

    code: kit.Text | None = Field(
        default=None,
        description="The 6-digit code of the authenticator app, or a backup code as issued.",
        examples=["123456", "ABCD-2345"],
    )
    passkey: webauthn.AuthenticationCredentialRequest | None = Field(
        default=None, description="The result of `navigator.credentials.get()`, as JSON, with the login's `passkey_options`."
    )
    trust_device: bool | None = Field(default=None, description="Whether this device can skip the second factor at the next logins.")
    device_name: kit.Name | None = Field(default=None, description="The device's name in the user's device list.")


@routes.post("/api/auth/mfa/verify")
@kit.pre_auth(limit=rate_limits.MFA_VERIFICATION)
@kit.refuses(400, 403, 404)
async def verify_second_factor(data: MfaVerificationRequest) -> MfaVerificationResponse:
    """Complete a sign-in with the second factor: a code, a passkey or a security key.

    Send the pre-auth token as the bearer token. It works once. It expires after 10 minutes or after 5 wrong codes.
    """
    credential = None if data.passkey is None else data.passkey.model_dump()
    second = second_factor.to_method(data.code, credential, trusts_device=data.trust_device is True)
    outcome = await sign_in_flow.complete_over_api(kit.ports(), kit.caller(), pre_auth_claims(), second, client(name=data.device_name))
    fields = {**_to_fields(outcome.tokens), **_enrolment(outcome)}
    return MfaVerificationResponse(**fields, device_token=outcome.device_token, redirect_url=_redirect_url(outcome))


class RefreshRequest(kit.RequestModel):
    """A refresh token."""

    refresh_token: kit.Text = Field(description="The refresh token of the session. This request uses it up.")


@routes.post("/api/auth/refresh")
@kit.anyone
@kit.refuses(401, 403)
async def refresh(data: RefreshRequest) -> TokenPairResponse:
    """Exchange a refresh token for a new access token and refresh token.

    Store the new refresh token: every refresh token works once. A refresh token that is used a second time ends the
    session.
    """
    return TokenPairResponse(**_to_fields(await sessions.refresh(kit.ports(), kit.caller(), data.refresh_token)))


@routes.post("/api/auth/logout")
@kit.person_anywhere(kit.SIGNS_OUT, applications=kit.ApplicationTokens.ALL, restricted=kit.Restricted.YES)
async def logout() -> kit.Message:
    """End this access token's session.

    Its access and refresh tokens stop working with the next request. The user's other sessions continue.
    """
    await sessions.logout(kit.ports(), kit.signed_in())
    return kit.Message(message="You are signed out.")


def to_login_response(outcome: sign_in.ApiSignIn | PreAuthToken) -> LoginResponse:
    if isinstance(outcome, PreAuthToken):
        return LoginResponse(
            access_token=outcome.token,
            refresh_token="",
            expires_in=outcome.expires_in,
            mfa_required=True,
            methods=list(outcome.options.methods),
            passkey_options=None if outcome.options.passkey_options is None else dict(outcome.options.passkey_options),
        )
    return LoginResponse(**_to_fields(outcome.tokens), **_enrolment(outcome), redirect_url=_redirect_url(outcome))


def _enrolment(outcome: sign_in.ApiSignIn) -> dict[str, Any]:
    due = outcome.enrollment
    return {} if due is None else {"enrolment_url": due.url, "enrolment_due_at": due.due_at}


def _redirect_url(outcome: sign_in.ApiSignIn) -> str | None:
    return None if outcome.next_path is None else kit.app_context().base_url + outcome.next_path


def _to_fields(pair: TokenPair) -> dict[str, Any]:
    return {"access_token": pair.access_token, "refresh_token": pair.refresh_token, "expires_in": pair.expires_in}


PASSKEY_PATH = "/api/auth/passkey"


@routes.post(f"{PASSKEY_PATH}/options")
@kit.anyone(limit=rate_limits.PASSKEY_OPTIONS)
@kit.refuses(400)
async def start_passkey() -> webauthn.RequestOptionsResponse:
    """Start a sign-in with a passkey.

    Give `publicKey` to `navigator.credentials.get()` in the browser, and send the result to
    `POST /api/auth/passkey` with the same `X-Device-Id`. The challenge works once, for 10 minutes. The
    options are the same for all users.
    """
    return webauthn.RequestOptionsResponse(publicKey=dict(await passkey.start(kit.ports(), client(), kit.app_context().stored_rp_id)))


class PasskeyLoginRequest(kit.RequestModel):
    """A passkey, and the sign-in's target."""

    credential: webauthn.AuthenticationCredentialRequest = Field(description="The result of `navigator.credentials.get()`, as JSON.")
    saml_state: kit.Text | None = Field(default=None, description="The state of a pending SAML sign-on that this sign-in completes.")
    org_slug: kit.Text | None = Field(
        default=None, description="The organization of the service to sign in to. Send it with `service_slug`."
    )
    service_slug: kit.Text | None = Field(
        default=None, description="The service to sign in to. Without it, the tokens are for the platform."
    )


@routes.post(PASSKEY_PATH)
@kit.anyone(limit=rate_limits.PASSKEY_SIGN_IN, taking=kit.Taking.WITH_FIRST_QUERY)
@kit.refuses(401, 403, 404)
async def login_with_passkey(data: PasskeyLoginRequest) -> LoginResponse:
    """Sign in with a passkey.

    It counts as the first and the second factor, so no code is asked after it.
    """
    target = sign_in.ApiTarget(data.org_slug, data.service_slug, data.saml_state)
    method = DiscoveredPasskey(data.credential.model_dump())
    return to_login_response(await sign_in_flow.sign_in_over_api(kit.ports(), kit.caller(), method, target, client()))


class EmailSignInRequest(kit.RequestModel):
    """An email address, and the sign-in's target."""

    email: kit.EmailAddress = Field(description="The email address of the account.")
    saml_state: kit.Text | None = Field(default=None, description="The state of a pending SAML sign-on that this sign-in completes.")
    org_slug: kit.Text | None = Field(
        default=None, description="The organization of the service to sign in to. Send it with `service_slug`."
    )
    service_slug: kit.Text | None = Field(
        default=None, description="The service to sign in to. Without it, the tokens are for the platform."
    )


class EmailSignInResponse(kit.ResponseModel):
    """The same response for every address, except for the token."""

    message: str = Field(description="A sentence that you can show to the user.")
    request_token: str = Field(description="The secret of this request. Send it with the code. Only the client that asked has it.")
    expires_in: int = Field(description="The life of the code in seconds.")


@routes.post("/api/auth/email-sign-in")
@kit.anyone(limit=rate_limits.EMAIL_SIGN_IN)
@kit.refuses(403, 404)
async def request_email_code(data: EmailSignInRequest) -> EmailSignInResponse:
    """Send an email with a code and a link to sign in.

    The response does not tell whether an account exists. The code works once, for 15 minutes, and only with the
    `request_token` in this response. A newer email replaces it. The link in the email opens our page and signs in the
    browser that opens it, which also uses the code up. 404 if the platform or the service does not offer sign-in by
    email.
    """
    target = sign_in.ApiTarget(data.org_slug, data.service_slug, data.saml_state)
    secret = await email_sign_in.request(kit.ports(), kit.caller(), Email(data.email), target)
    return EmailSignInResponse(
        message="If there is an account for this address, an email with a code is on its way.",
        request_token=secret,
        expires_in=int(kit.ports().policy.email_sign_in_ttl.total_seconds()),
    )


class EmailSignInVerificationRequest(kit.RequestModel):
    """The code in an email."""

    request_token: kit.Text = Field(description="The `request_token` of POST /api/auth/email-sign-in.")
    code: kit.Text = Field(description="The 6-digit code of the email.", examples=["123456"])
    device_token: kit.Text | None = Field(default=None, description="The token of a trusted device. It skips the second factor.")


@routes.post("/api/auth/email-sign-in/verify")
@kit.anyone(limit=rate_limits.EMAIL_SIGN_IN_VERIFICATION)
@kit.refuses(401, 403, 404)
async def verify_email_code(data: EmailSignInVerificationRequest) -> LoginResponse:
    """Sign in with the code from an email.

    The response is the same as from POST /api/auth/login: tokens, or a pre-auth token if the account has a second
    factor and the device is not trusted. The code also verifies the email address. After 5 wrong codes, request a new
    email.
    """
    presented = client(data.device_token)
    outcome = await email_sign_in.sign_in_with_code(kit.ports(), kit.caller(), data.request_token, data.code, presented)
    return to_login_response(outcome)
