"""The device flow's device authorization endpoint (RFC 8628 section 3.1).

Devices get their tokens at POST /auth/token.
"""

from pydantic import Field
from quart import Blueprint

from core.federation.oauth import clients, device_flow
from core.federation.oauth.model import device_flow as device_flow_model
from core.federation.oauth.model.authorization import AuthorizationRequest
from core.federation.oauth.model.client_documents import is_address
from core.federation.oauth.model.clients import client_id_text
from core.federation.oauth.model.device_flow import CODE_TTL, POLL_INTERVAL, VERIFY_PATH, DeviceAuthorization
from core.kernel.rate_limits import DEVICE
from entrypoints.http import kit
from entrypoints.http.api.federation.oauth import client_authentication
from entrypoints.http.base.context import app_context

routes = Blueprint("device_flow", __name__)


class DeviceCodeRequest(client_authentication.ClientRequest):
    """The application on the device. Send `client_id`, or `org` and `service`.

    A client secret or an assertion is not needed, but a wrong secret or assertion is refused.
    """

    model_config = kit.AT_LEAST_ONE_FIELD
    repeatable = frozenset({"resource"})

    org: kit.Text | None = Field(None, description="The slug of the organization, together with `service`.")
    service: kit.Text | None = Field(None, description="The slug of the application, together with `org`.")
    scope: kit.Text | None = Field(None, description="The scopes, separated by spaces. With `openid`, the device gets an ID token.")
    resource: kit.RepeatableText | None = Field(
        None, description="The access token's audience (RFC 8707): an API resource, or the userinfo endpoint. A second audience is refused."
    )
    code_challenge: kit.Text | None = Field(None, description="The PKCE challenge. Required for applications without a client secret.")
    code_challenge_method: kit.Text | None = Field(None, description="`S256`, together with `code_challenge`.")


class DeviceCodeResponse(kit.ResponseModel):
    """A device's codes."""

    device_code: str = Field(description="The code with which the device polls `POST /auth/token`. Keep it secret.")
    user_code: str = Field(description="The code to show to the user.", examples=["BCDF-GHJK"])
    verification_uri: str = Field(description="The page where the user enters the code.")
    verification_uri_complete: str = Field(description="The same page with the code filled in, for a QR code or a link.")
    expires_in: int = Field(description="The lifetime of the device code and the user code, in seconds.")
    interval: int = Field(description="The minimum number of seconds between two polls.")


@routes.post("/auth/device/code")
@kit.anyone(limit=DEVICE)
@kit.refuses(400, 401, 403, 404)
@kit.speaks_oauth
@kit.takes(DeviceCodeRequest)
async def request_codes() -> tuple[DeviceCodeResponse, int, dict[str, str]]:
    """Request a device code and a user code.

    Show the user code and the verification URI to the user. Then poll `POST /auth/token` with the
    device code, at most once per `interval`, until the user approves or denies the device or the
    codes expire.
    """
    body = await kit.parameters(DeviceCodeRequest)
    request = AuthorizationRequest(
        org=body.org,
        service=body.service,
        client_id=await _client_id(body),
        scope=body.scope,
        resource=body.resource,
        code_challenge=body.code_challenge,
        code_challenge_method=body.code_challenge_method,
    )
    return _to_response(await device_flow.request_codes(kit.ports(), kit.caller(), request)), 200, {"Cache-Control": "no-store"}


async def _client_id(body: DeviceCodeRequest) -> str | None:
    """Return the client id.

    Credentials are not needed, but wrong credentials are refused (RFC 6749 section 5.2).

    An external client with keys signs its request: only they prove its host (security #external-clients).
    """
    credentials = client_authentication.client_credentials(body)
    if not credentials.are_proof and not is_address(credentials.client_id):
        return credentials.client_id
    client = await clients.identify_client(kit.ports(), credentials, app_context().base_url)
    return None if client is None else client_id_text(client)


def _to_response(codes: DeviceAuthorization) -> DeviceCodeResponse:
    uri = codes.verification_uri or f"{app_context().base_url}{VERIFY_PATH}"
    return DeviceCodeResponse(
        device_code=codes.device_code,
        user_code=codes.user_code,
        verification_uri=uri,
        verification_uri_complete=device_flow_model.verification_url(codes.user_code, uri),
        expires_in=int(CODE_TTL.total_seconds()),
        interval=POLL_INTERVAL,
    )
