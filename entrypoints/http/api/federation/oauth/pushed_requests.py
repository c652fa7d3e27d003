"""The endpoint for pushed authorization requests (RFC 9126)."""

from typing import Final

from pydantic import Field
from quart import Blueprint

from core.authentication.tokens import dpop
from core.federation.oauth import authorization
from core.federation.oauth.model.authorization import PAR_PATH, PRESENTED_WITHIN, AuthorizationRequest
from entrypoints.http.api.federation.oauth.client_authentication import ClientRequest, count_request, identify_client_or_program
from entrypoints.http.base.context import app_context, ports
from entrypoints.http.edge.access import application
from entrypoints.http.edge.bodies import AT_LEAST_ONE_FIELD, RepeatableText, ResponseModel, TokenText
from entrypoints.http.edge.forms import parameters
from entrypoints.http.edge.limits import limited_if_refused
from entrypoints.http.edge.openapi import any_origin, authenticates, refuses, speaks_oauth, takes
from entrypoints.http.edge.openapi.security import CLIENT_SECURITY
from entrypoints.http.edge.proofs import read_proof
from entrypoints.http.edge.signatures import returns

routes = Blueprint("pushed_requests", __name__)

_AS_THERE: Final = "As at `GET /auth/authorize`."


class PushedAuthorizationRequest(ClientRequest):
    """The parameters for `GET /auth/authorize`, and the client that sends them."""

    model_config = AT_LEAST_ONE_FIELD
    repeatable = frozenset({"resource"})

    org: TokenText | None = Field(None, description=_AS_THERE)
    service: TokenText | None = Field(None, description=_AS_THERE)
    redirect_uri: TokenText | None = Field(None, description=_AS_THERE)
    state: TokenText | None = Field(None, description=_AS_THERE)
    code_challenge: TokenText | None = Field(None, description=_AS_THERE)
    code_challenge_method: TokenText | None = Field(None, description=_AS_THERE)
    response_type: TokenText | None = Field(None, description=_AS_THERE)
    response_mode: TokenText | None = Field(None, description=_AS_THERE)
    scope: TokenText | None = Field(None, description=_AS_THERE)
    nonce: TokenText | None = Field(None, description=_AS_THERE)
    prompt: TokenText | None = Field(None, description=_AS_THERE)
    max_age: TokenText | None = Field(None, description=_AS_THERE)
    login_hint: TokenText | None = Field(None, description=_AS_THERE)
    domain_hint: TokenText | None = Field(None, description=_AS_THERE)
    organization: TokenText | None = Field(None, description=_AS_THERE)
    connection: TokenText | None = Field(None, description=_AS_THERE)
    ui_locales: TokenText | None = Field(None, description=_AS_THERE)
    acr_values: TokenText | None = Field(None, description=_AS_THERE)
    id_token_hint: TokenText | None = Field(None, description=_AS_THERE)
    claims: TokenText | None = Field(None, description=_AS_THERE)
    resource: RepeatableText | None = Field(None, description=f"{_AS_THERE} A second one is refused.")
    dpop_jkt: TokenText | None = Field(None, description=f"{_AS_THERE} With a DPoP proof, it must be the thumbprint of the proof's key.")
    request: TokenText | None = Field(None, description=_AS_THERE)
    registration: TokenText | None = Field(None, description=_AS_THERE)
    request_uri: TokenText | None = Field(None, description="Refused: a pushed request cannot refer to another request.")


class PushedRequestResponse(ResponseModel):
    """The reference to a pushed request."""

    request_uri: str = Field(description="Send it to `GET /auth/authorize`, with the `client_id` and nothing else.")
    expires_in: int = Field(description="The number of seconds within which the browser must arrive there.")


@routes.post(PAR_PATH)
@application
@authenticates(*CLIENT_SECURITY)
@refuses(400, 401, 403, 404, 415, 429)
@any_origin
@speaks_oauth
@takes(PushedAuthorizationRequest)
@returns(201)
async def push() -> tuple[PushedRequestResponse, int, dict[str, str]]:
    """Push an authorization request.

    The application sends its authorization request's parameters here, and authenticates as at `POST /auth/token`. Then
    it sends the browser to `GET /auth/authorize` with its `client_id` and the `request_uri`. The request belongs to the
    first browser that arrives, for 24 hours after the last step that was stored, and works until a code or an error
    goes to the application.
    """
    async with limited_if_refused():
        body, proof = await parameters(PushedAuthorizationRequest), await read_proof()
        client = await identify_client_or_program(body, app_context().limits.of_client)
        await dpop.use(ports(), proof)
    await count_request(client)
    sent = AuthorizationRequest.from_fields(body.model_dump())
    uri = await authorization.push_request(ports(), client, sent, proof, app_context().base_url)
    return PushedRequestResponse(request_uri=uri, expires_in=int(PRESENTED_WITHIN.total_seconds())), 201, {"Cache-Control": "no-store"}
