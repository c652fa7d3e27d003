"""Reauthentication over the API: a session's user proves that they are there."""

from urllib.parse import urlencode

from pydantic import Field
from quart import Blueprint

from core.authentication import reauthentication
from core.authentication.model.sessions import ReauthenticationProof
from core.authentication.reauthentication import load_next_options
from core.kernel import rate_limits
from core.kernel.page_paths import ACCOUNT_PATH
from core.kernel.sign_in_age import LastSignIn
from entrypoints.http import kit
from entrypoints.http.api.accounts import webauthn
from entrypoints.http.api.authentication.identities import LinkStartResponse
from entrypoints.http.base.context import app_context

routes = Blueprint("reauthentication", __name__)

PATH = "/api/auth/reauthenticate"


class ReauthenticationOptionsResponse(kit.ResponseModel):
    """The ways in which you can confirm that it's you."""

    needs_first_factor: bool = Field(
        description="Whether a method is needed. A sign-in in the last minutes is repeated only by another method."
    )
    methods: list[str] = Field(
        description="`password`, `email` for a code in an email, `passkey`, which needs no second factor, and linked identity providers.",
        examples=[["password", "email"]],
    )
    needs_second_factor: bool = Field(description="Whether a method in `second_methods` is needed too.")
    second_methods: list[str] = Field(
        description="The ways to show the second factor: `totp` and `backup_code` in `code`, and `passkey`.",
        examples=[["totp", "passkey", "backup_code"]],
    )
    authenticated_at: kit.Timestamp = Field(description="The time of the last sign-in in this session.")


@routes.get(PATH)
@kit.person_anywhere(kit.PROTOCOL, restricted=kit.Restricted.YES)
async def get_options() -> ReauthenticationOptionsResponse:
    """Return how you can confirm that it's you in this session.

    The answer lists the ways that your account has, such as the password, a code by email or an identity provider, and
    says whether a second factor is needed too. It leaves out the ways that your sign-in policies do not accept. After a
    sign-in in the last 10 minutes, it lists the ways that a sign-in policy still asks for. If your token's organization
    requires a connection that did not confirm that it asked you, it lists the ways that count beside this sign-in.
    """
    user = kit.signed_in()
    options = await load_next_options(kit.ports(), user)
    ways = (("password", options.password), ("email", options.email_code), ("passkey", options.passkey))
    assert user.sign_in is not None, "the session of a user begins with a sign-in"
    return ReauthenticationOptionsResponse(
        needs_first_factor=options.needs_first_factor,
        methods=[name for name, is_offered in ways if is_offered] + [place.provider for place in options.providers],
        needs_second_factor=options.needs_second_factor,
        second_methods=list(options.second_methods),
        authenticated_at=user.sign_in.at,
    )


class ReauthenticationRequest(kit.RequestModel):
    """Your account's factors.

    The first factor is `password` or `email_code`.

    `passkey` stands for all factors if its authenticator verified you. Otherwise, and for a security key, it is the second factor.
    """

    password: kit.PasswordText | None = Field(default=None, description="Your password.")
    email_code: kit.Text | None = Field(
        default=None, description="The code that `POST /api/auth/reauthenticate/email` has sent.", examples=["271828"]
    )
    code: kit.Text | None = Field(
        default=None, description="A code of your authenticator app, or a backup code as issued.", examples=["314159"]
    )
    passkey: webauthn.AuthenticationCredentialRequest | None = Field(
        default=None, description="The result of `navigator.credentials.get()`, as JSON, with the options from `POST …/passkey/options`."
    )


class ReauthenticationResponse(kit.ResponseModel):
    """The session's new last sign-in."""

    authenticated_at: kit.Timestamp = Field(description="The time of this sign-in.")
    fresh_until: kit.Timestamp = Field(description="Until then, it is enough for requests that need a fresh sign-in.")
    recent_until: kit.Timestamp = Field(description="Until then, it is enough for requests that need a recent sign-in.")


def _to_response(sign_in: LastSignIn) -> ReauthenticationResponse:
    policy, since = kit.ports().policy, sign_in.oldest_at
    return ReauthenticationResponse(
        authenticated_at=sign_in.at, fresh_until=since + policy.fresh_sign_in_ttl, recent_until=since + policy.recent_sign_in_ttl
    )


@routes.post(PATH)
@kit.person_anywhere(kit.PROTOCOL, limit=(rate_limits.LOGIN, rate_limits.MFA_VERIFICATION), restricted=kit.Restricted.YES)
@kit.refuses(400)
async def reauthenticate(data: ReauthenticationRequest) -> ReauthenticationResponse:
    """Confirm that it's you, with all your account's factors.

    Do this after a 401 with `insufficient_user_authentication` (RFC 9470), and repeat that request. Your
    session and its tokens stay. A wrong password or code counts as a failed attempt.
    """
    passkey = None if data.passkey is None else data.passkey.model_dump()
    proof = ReauthenticationProof(password=data.password, email_code=data.email_code, code=data.code, passkey=passkey)
    return _to_response(await reauthentication.reauthenticate(kit.ports(), kit.signed_in(), proof))


@routes.post(f"{PATH}/email")
@kit.person_anywhere(kit.PROTOCOL, limit=rate_limits.EMAIL_SIGN_IN, restricted=kit.Restricted.YES)
@kit.refuses(400)
async def send_code() -> kit.Message:
    """Send a code to your verified email address, to confirm that it's you.

    The code works once, for 15 minutes, in this session. A newer code replaces it.
    """
    await reauthentication.send_email_code(kit.ports(), kit.signed_in())
    return kit.Message(message="An email with a code is on its way.")


@routes.post(f"{PATH}/passkey/options")
@kit.person_anywhere(kit.PROTOCOL, limit=rate_limits.LOGIN, restricted=kit.Restricted.YES)
@kit.refuses(400)
async def start_with_passkey() -> webauthn.RequestOptionsResponse:
    """Start to confirm with a passkey that it's you.

    Give `publicKey` to `navigator.credentials.get()` in the browser, and send the result as `passkey` to
    `POST /api/auth/reauthenticate` in the same session. The challenge works once, for 10 minutes.
    """
    options = await load_next_options(kit.ports(), kit.signed_in())
    request, _ = await reauthentication.start_passkey(kit.ports(), kit.signed_in(), options)
    return webauthn.RequestOptionsResponse(publicKey=dict(request))


@routes.post(f"{PATH}/<provider>")
@kit.person_anywhere(kit.PROTOCOL, restricted=kit.Restricted.YES)
@kit.refuses(400)
async def start_at_provider(provider: str) -> LinkStartResponse:
    """Start a sign-in at a linked identity provider, to confirm that it's you.

    Open the URL in the browser in which you signed in to this session. If your account has a second
    factor, send its code afterwards.
    """
    options = await load_next_options(kit.ports(), kit.signed_in())
    ticket = await reauthentication.start_at_provider(kit.ports(), kit.signed_in(), options, provider, ACCOUNT_PATH)
    return LinkStartResponse(authorization_url=f"{app_context().base_url}/auth/{provider}?{urlencode({'link': ticket})}")
