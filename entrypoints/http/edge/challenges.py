"""The `WWW-Authenticate` header of a refusal, which tells a client how to authenticate (RFC 9110 section 11.6.1).

Sources: RFC 6750 section 3, RFC 9449 section 7.1, RFC 9470 and RFC 9728 section 5.1.
"""

from typing import Final

from core.applications.model.api_keys import ApiKeyInvalid
from core.authentication.model.dpop import PROOF_ALGORITHMS, BoundTokenAsBearer, NonceRequired, ProofRefused
from core.billing.model.provider_events import SignatureInvalid
from core.kernel.api_scopes import ScopeInsufficient
from core.kernel.errors import ClientInvalid, Refusal, Unauthenticated
from core.kernel.sign_in_age import AuthenticationInsufficient
from entrypoints.http.edge.access import Access

RESOURCE_METADATA_PATH: Final = "/.well-known/oauth-protected-resource/api"  # RFC 9728 section 3.1


def challenge(refusal: Refusal, access: Access | None, method: str, base_url: str, *, is_bound: bool = False) -> str | None:
    """Return the value of the header for this refusal on a route with this access rule, or None if it has none.

    `is_bound`: the token was sent with the scheme DPoP, and so is its successor (RFC 9449 section 7.1).
    """
    match refusal:
        case ClientInvalid():
            return 'Basic realm="gatehouse", charset="UTF-8"'  # RFC 6749 section 5.2
        case ApiKeyInvalid():
            # 401 must name a scheme (RFC 9110 section 15.5.2). No registered scheme uses a custom
            # header, so this is ours.
            return 'ApiKey realm="gatehouse", header="X-Api-Key"'
        case SignatureInvalid():
            return 'Signature realm="gatehouse", header="billing-signature"'
        case ScopeInsufficient():
            parameters = {"error": refusal.oauth_error, "scope": " ".join(refusal.scopes)}
        case AuthenticationInsufficient():
            parameters = {"error": refusal.oauth_error, **refusal.needed}
        case ProofRefused() | NonceRequired():
            parameters = {"error": refusal.oauth_error}
        case Unauthenticated():
            # Without a token, no error is named (RFC 6750 section 3).
            parameters = {"error": "invalid_token"} if refusal.token_sent else {}
            scope = None if access is None else access.requirement(method).scope
            if scope is not None:
                parameters["scope"] = scope
        case _:
            return None
    if access is not None and access.is_of_api:
        parameters["resource_metadata"] = f"{base_url}{RESOURCE_METADATA_PATH}"
    scheme = "Bearer"
    if is_bound or isinstance(refusal, BoundTokenAsBearer):
        scheme, parameters["algs"] = "DPoP", " ".join(PROOF_ALGORITHMS)
    return " ".join([scheme, ", ".join(f'{name}="{value}"' for name, value in parameters.items())]).rstrip()
