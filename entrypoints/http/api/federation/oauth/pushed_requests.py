"""The endpoint for pushed authorization requests (RFC 9126)."""

from typing import Final

from pydantic import Field
from quart import Blueprint

from core.authentication.tokens import dpop
from core.federation.oauth import authorization
from core.federation.oauth.model.authorization import PAR_PATH, PRESENTED_WITHIN, AuthorizationRequest
from entrypoints.http import kit
from entrypoints.http.api.federation.oauth import client_authentication

routes = Blueprint("pushed_requests", __name__)

_AS_THERE: Final = "As at `GET /auth/authorize`."


class PushedAuthorizationRequest(client_authentication.ClientRequest):
    """The parameters for `GET /auth/authorize`, and the client that sends them."""

    model_config = kit.AT_LEAST_ONE_FIELD
    repeatable = frozenset({"resource"})

    org: kit.TokenText | None = Field(None, description=_AS_THERE)
    service: kit.TokenText | None = Field(None, description=_AS_THERE)
    redirect_uri: kit.TokenText | None = Field(None, description=_AS_THERE)
    state: kit.TokenText | None = Field(None, description=_AS_THERE)
    code_challenge: kit.TokenText | None = Field(None, description=_AS_THERE)
    code_challenge_method: kit.TokenText | None = Field(None, description=_AS_THERE)
    response_type: kit.TokenText | None = Field(None, description=_AS_THERE)
    response_mode: kit.TokenText | None = Field(None, description=_AS_THERE)
    scope: kit.TokenText | None = Field(None, description=_AS_THERE)
    nonce: kit.TokenText | None = Field(None, description=_AS_THERE)
    prompt: kit.TokenText | None = Field(None, description=_AS_THERE)
    max_age: kit.TokenText | None = Field(None, description=_AS_THERE)
    login_hint: kit.TokenText | None = Field(None, description=_AS_THERE)
    domain_hint: kit.TokenText | None = Field(None, description=_AS_THERE)
    organization: kit.TokenText | None = Field(None, description=_AS_THERE)
    connection: kit.TokenText | None = Field(None, description=_AS_THERE)
    ui_locales: kit.TokenText | None = Field(None, description=_AS_THERE)
    acr_values: kit.TokenText | None = Field(None, description=_AS_THERE)
    id_token_hint: kit.TokenText | None = Field(None, description=_AS_THERE)
    claims: kit.TokenText | None = Field(None, description=_AS_THERE)
    resource: kit.RepeatableText | None = Field(None, description=f"{_AS_THERE} A second one is refused.")
    dpop_jkt: kit.TokenText | None = Field(
        None, description=f"{_AS_THERE} With a DPoP proof, it must be the thumbprint of the proof's key."
    )
    request: kit.TokenText | None = Field(None, description=_AS_THERE)
    registration: kit.TokenText | None = Field(None, description=_AS_THERE)
    request_uri: kit.TokenText | None = Field(None, description="Refused: a pushed request cannot refer to another request.")


class PushedRequestResponse(kit.ResponseModel):
    """The reference to a pushed request."""

    request_uri: str = Field(description="Send it to `GET /auth/authorize`, with the `client_id` and nothing else.")
    expires_in: int = Field(description="The number of seconds within which the browser must arrive there.")


@routes.post(PAR_PATH)
@kit.application
@kit.authenticates(*kit.CLIENT_SECURITY)
@kit.refuses(400, 401, 403, 404, 415, 429)
@kit.any_origin
@kit.speaks_oauth
@kit.takes(PushedAuthorizationRequest)
@kit.returns(201)
async def push() -> tuple[PushedRequestResponse, int, dict[str, str]]:
    """Push an authorization request.

    The application sends its authorization request's parameters here, and authenticates as at `POST /auth/token`. Then
    it sends the browser to `GET /auth/authorize` with its `client_id` and the `request_uri`. The request belongs to the
    first browser that arrives, for 24 hours after the last step that was stored, and works until a code or an error
    goes to the application.
    """
    async with kit.limited_if_refused():
        body, proof = await kit.parameters(PushedAuthorizationRequest), await kit.read_proof()
        client = await client_authentication.identify_client_or_program(body, kit.app_context().limits.of_client)
        await dpop.use(kit.ports(), proof)
    await client_authentication.count_request(client)
    sent = AuthorizationRequest.from_fields(body.model_dump())
    uri = await authorization.push_request(kit.ports(), client, sent, proof, kit.app_context().base_url)
    return PushedRequestResponse(request_uri=uri, expires_in=int(PRESENTED_WITHIN.total_seconds())), 201, {"Cache-Control": "no-store"}
