"""The `WWW-Authenticate` header on a refusal, which tells a client how to authenticate (RFC 9110 section 11.6.1).

Sources: RFC 6750 section 3, RFC 9449 section 7.1, RFC 9470 and RFC 9728 section 5.1.
"""

from collections.abc import Mapping
from typing import Final

from core.applications.model.api_keys import ApiKeyInvalid
from core.authentication.model.dpop import PROOF_ALGORITHMS, BoundTokenAsBearer, NonceRequired, ProofRefused
from core.billing.model.provider_events import SignatureInvalid
from core.kernel.api_scopes import ScopeInsufficient
from core.kernel.errors import ClientInvalid, Refusal, Unauthenticated
from core.kernel.sign_in_age import AuthenticationInsufficient
from entrypoints.http.edge.access.declaration import Access

RESOURCE_METADATA_PATH: Final = "/.well-known/oauth-protected-resource/api"  # RFC 9728 section 3.1


# The refusals for credentials that are not access tokens. 401 must name a scheme (RFC 9110 section 15.5.2). No
# registered scheme uses a custom header, so the last two are ours.
FIXED: Final[Mapping[type[Refusal], str]] = {
    ClientInvalid: 'Basic realm="gatehouse", charset="UTF-8"',  # RFC 6749 section 5.2
    ApiKeyInvalid: 'ApiKey realm="gatehouse", header="X-Api-Key"',
    SignatureInvalid: 'Signature realm="gatehouse", header="billing-signature"',
}


def challenge(refusal: Refusal, access: Access | None, method: str, base_url: str, *, is_bound: bool = False) -> str | None:
    """Return the header's value for this refusal on a route with this access rule, or None if it has no challenge.

    `is_bound`: the token was sent with the scheme DPoP, and so is its successor (RFC 9449 section 7.1).
    """
    for kind, header in FIXED.items():
        if isinstance(refusal, kind):
            return header
    parameters = _parameters(refusal, access, method)
    if parameters is None:
        return None
    if access is not None and access.is_of_api:
        parameters["resource_metadata"] = f"{base_url}{RESOURCE_METADATA_PATH}"
    scheme = "Bearer"
    if is_bound or isinstance(refusal, BoundTokenAsBearer):
        scheme, parameters["algs"] = "DPoP", " ".join(PROOF_ALGORITHMS)
    return " ".join([scheme, ", ".join(f'{name}="{value}"' for name, value in parameters.items())]).rstrip()


def _parameters(refusal: Refusal, access: Access | None, method: str) -> dict[str, str] | None:
    """Return the challenge's parameters, or None if the refusal is not about the access token."""
    match refusal:
        case ScopeInsufficient():
            return {"error": refusal.oauth_error, "scope": " ".join(refusal.scopes)}
        case AuthenticationInsufficient():
            return {"error": refusal.oauth_error, **refusal.needed}
        case ProofRefused() | NonceRequired():
            return {"error": refusal.oauth_error}
        case Unauthenticated():
            # Without a token, no error is named (RFC 6750 section 3).
            scope = None if access is None else access.own_scope or access.requirement(method).scope
            return ({"error": "invalid_token"} if refusal.token_sent else {}) | ({} if scope is None else {"scope": scope})
    return None
