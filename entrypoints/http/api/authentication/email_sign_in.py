"""Sign in by email over the API: request an email, and verify its code."""

from pydantic import Field
from quart import Blueprint

from core.federation import email_sign_in
from core.federation.sign_in import ApiTarget
from core.kernel.rate_limits import EMAIL_SIGN_IN, EMAIL_SIGN_IN_VERIFICATION
from core.kernel.values import Email
from entrypoints.http.api.authentication.sessions import LoginResponse, to_login_response
from entrypoints.http.base.context import caller, client, ports
from entrypoints.http.edge.access import anyone
from entrypoints.http.edge.bodies import EmailAddress, RequestModel, ResponseModel, Text
from entrypoints.http.edge.openapi import refuses

routes = Blueprint("email_sign_in", __name__)


class EmailSignInRequest(RequestModel):
    """An email address, and the sign-in's target."""

    email: EmailAddress = Field(description="The email address of the account.")
    saml_state: Text | None = Field(default=None, description="The state of a pending SAML sign-on that this sign-in completes.")
    org_slug: Text | None = Field(default=None, description="The organization of the service to sign in to. Send it with `service_slug`.")
    service_slug: Text | None = Field(default=None, description="The service to sign in to. Without it, the tokens are for the platform.")


class EmailSignInResponse(ResponseModel):
    """The same response for every address, except for the token."""

    message: str = Field(description="A sentence that you can show to the user.")
    request_token: str = Field(description="The secret of this request. Send it with the code. Only the client that asked has it.")
    expires_in: int = Field(description="The life of the code in seconds.")


@routes.post("/api/auth/email-sign-in")
@anyone(limit=EMAIL_SIGN_IN)
@refuses(403, 404)
async def request_code(data: EmailSignInRequest) -> EmailSignInResponse:
    """Send an email with a code and a link to sign in.

    The response does not tell whether an account exists. The code works once, for 15 minutes, and only with the
    `request_token` in this response. A newer email replaces it. The link in the email opens our page and signs in the
    browser that opens it, which also uses the code up. 404 if the platform or the service does not offer sign-in by
    email.
    """
    target = ApiTarget(data.org_slug, data.service_slug, data.saml_state)
    secret = await email_sign_in.request(ports(), caller(), Email(data.email), target)
    return EmailSignInResponse(
        message="If there is an account for this address, an email with a code is on its way.",
        request_token=secret,
        expires_in=int(ports().policy.email_sign_in_ttl.total_seconds()),
    )


class EmailSignInVerificationRequest(RequestModel):
    """The code in an email."""

    request_token: Text = Field(description="The `request_token` of POST /api/auth/email-sign-in.")
    code: Text = Field(description="The 6-digit code of the email.", examples=["123456"])
    device_token: Text | None = Field(default=None, description="The token of a trusted device. It skips the second factor.")


@routes.post("/api/auth/email-sign-in/verify")
@anyone(limit=EMAIL_SIGN_IN_VERIFICATION)
@refuses(401, 403, 404)
async def verify(data: EmailSignInVerificationRequest) -> LoginResponse:
    """Sign in with the code from an email.

    The response is the same as from POST /api/auth/login: tokens, or a pre-auth token if the account has a second
    factor and the device is not trusted. The code also verifies the email address. After 5 wrong codes, request a new
    email.
    """
    presented = client(data.device_token)
    outcome = await email_sign_in.sign_in_with_code(ports(), caller(), data.request_token, data.code, presented)
    return to_login_response(outcome)
