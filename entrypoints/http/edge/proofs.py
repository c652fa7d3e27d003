"""A request's DPoP proof, and the nonce for the client's next proof (RFC 9449)."""

from typing import Any, Final

from quart import after_this_request

from core.authentication.model.dpop import ProofUse, SentProof
from core.authentication.tokens import dpop
from entrypoints.http.base import context

NONCE_HEADER: Final = "DPoP-Nonce"


async def read_proof(access_token: str | None = None) -> ProofUse | None:
    """Verify the proof in the request's header, for the access token that it goes with.

    Return None if there is none.

    The caller uses it up. The middleware has refused a second header.

    Raises: ProofInvalid, NonceMissing.
    """
    request = context.current_request()
    text = request.headers.get("DPoP")
    if text is None:
        return None
    url = context.app_context().base_url + request.scope["raw_path"].decode("ascii", "replace")
    proof = await dpop.read_proof(context.ports(), SentProof(text, request.method, url), access_token)
    if (nonce := proof.next_nonce) is not None:

        @after_this_request
        async def send_nonce(response: Any) -> Any:
            response.headers[NONCE_HEADER] = nonce
            return response

    return proof
