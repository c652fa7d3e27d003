"""Pushed authorization requests (RFC 9126).

A client sends its authorization request here first, and authenticates. The browser gets only a
reference to it. So users cannot change the request, and its length does not matter.

A request must be presented within 60 seconds. It is used up when a code or an error goes to the client, or
when a sign-in begins with it, which then keeps it (`requests.begin`).
"""

from dataclasses import replace

from core.authentication.model.dpop import ProofInvalid, ProofUse
from core.federation.oauth import requests
from core.federation.oauth.model.authorization import AuthorizationRequest
from core.federation.oauth.model.clients import OAuthClient, client_id_text
from core.federation.oauth.model.pushed_requests import (
    PREFIX,
    PRESENTED_WITHIN,
    PushedRedirectUriMissing,
    PushedRequest,
    PushRefused,
    RequestUriPushed,
    StoredRequest,
)
from core.kernel.errors import ClientInvalid
from core.kernel.values import digest, new_secret
from core.programs.model.credentials import ProgramClient
from ports import Ports


async def push(
    ports: Ports, client: OAuthClient | ProgramClient | None, request: AuthorizationRequest, proof: ProofUse | None, base_url: str
) -> str:
    """Store the authorization request of a client, and return its request_uri.

    The request is checked as at the authorization endpoint. With a DPoP proof, only the key of the
    proof can redeem the code (RFC 9449 section 10.1).

    Raises: ClientInvalid, PushRefused, RequestUriPushed, PushedRedirectUriMissing; ProofInvalid if
    `dpop_jkt` names another key than the proof.
    """
    if isinstance(client, ProgramClient):
        raise PushRefused
    if client is None or not client.authenticated:
        raise ClientInvalid
    if request.request_uri is not None:
        raise RequestUriPushed
    if request.client_id not in (None, client_id_text(client)):
        raise ClientInvalid
    if request.redirect_uri is None:
        raise PushedRedirectUriMissing
    if proof is not None:
        if request.dpop_jkt not in (None, proof.thumbprint):
            raise ProofInvalid("its key is not that of dpop_jkt")
        request = replace(request, dpop_jkt=proof.thumbprint)
    secret, now = new_secret(), ports.clock.now()
    own = replace(request, client_id=client_id_text(client))
    pushed = PushedRequest(**{name: getattr(own, name) for name in own.__slots__} | {"request_uri": PREFIX + secret})
    if (refusal := (await requests.check(ports, pushed, base_url, pushed_by=client.service)).refusal) is not None:
        raise refusal
    stored = StoredRequest(digest(secret), client.context, pushed.parameters, now, now + PRESENTED_WITHIN)
    async with ports.storage.autocommit() as statements:
        if not await statements.pushed_requests.add(stored):
            raise ClientInvalid
    return PREFIX + secret
