"""Sign-in with a passkey over the API."""

from pydantic import Field
from quart import Blueprint

from core.authentication.methods import passkey
from core.authentication.methods.passkey import DiscoveredPasskey
from core.federation import sign_in as sign_in_flow
from core.federation.sign_in import ApiTarget
from core.kernel.rate_limits import PASSKEY_OPTIONS, PASSKEY_SIGN_IN
from entrypoints.http.api.accounts.webauthn import AuthenticationCredentialRequest, RequestOptionsResponse
from entrypoints.http.api.authentication.sessions import LoginResponse, to_login_response
from entrypoints.http.base.context import app_context, caller, client, ports
from entrypoints.http.edge.access import anyone
from entrypoints.http.edge.access.declaration import Taking
from entrypoints.http.edge.bodies import RequestModel, Text
from entrypoints.http.edge.openapi import refuses

routes = Blueprint("passkey_sign_in", __name__)

PATH = "/api/auth/passkey"


@routes.post(f"{PATH}/options")
@anyone(limit=PASSKEY_OPTIONS)
@refuses(400)
async def start() -> RequestOptionsResponse:
    """Start a sign-in with a passkey.

    Give `publicKey` to `navigator.credentials.get()` in the browser, and send the result to
    `POST /api/auth/passkey` with the same `X-Device-Id`. The challenge works once, for 10 minutes. The
    options are the same for all users.
    """
    return RequestOptionsResponse(publicKey=dict(await passkey.start(ports(), client(), app_context().stored_rp_id)))


class PasskeyLoginRequest(RequestModel):
    """A passkey, and the sign-in's target."""

    credential: AuthenticationCredentialRequest = Field(description="The result of `navigator.credentials.get()`, as JSON.")
    saml_state: Text | None = Field(default=None, description="The state of a pending SAML sign-on that this sign-in completes.")
    org_slug: Text | None = Field(default=None, description="The organization of the service to sign in to. Send it with `service_slug`.")
    service_slug: Text | None = Field(default=None, description="The service to sign in to. Without it, the tokens are for the platform.")


@routes.post(PATH)
@anyone(limit=PASSKEY_SIGN_IN, taking=Taking.WITH_FIRST_QUERY)
@refuses(401, 403, 404)
async def login(data: PasskeyLoginRequest) -> LoginResponse:
    """Sign in with a passkey.

    It counts as the first and the second factor, so no code is asked after it.
    """
    target = ApiTarget(data.org_slug, data.service_slug, data.saml_state)
    method = DiscoveredPasskey(data.credential.model_dump())
    return to_login_response(await sign_in_flow.sign_in_over_api(ports(), caller(), method, target, client()))
