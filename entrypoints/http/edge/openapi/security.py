"""The security schemes in the API description, and a route's security schemes. They follow from its access decorator."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from core.federation.oauth.model.clients import TOKEN_PATH
from core.kernel import api_scopes
from entrypoints.http.edge.access import declaration

SECURITY_SCHEMES: Final[Mapping[str, Mapping[str, Any]]] = {
    "bearer": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT", "description": "An access token that is bound to no key."},
    "dpop": {
        "type": "http",
        "scheme": "DPoP",
        "description": "An access token that is bound to a key (RFC 9449). The header `DPoP` has a proof of the key for this request.",
    },
    "service_account": {
        "type": "oauth2",
        "description": "An access token that a service account gets with its credentials.",
        "flows": {
            "clientCredentials": {
                "tokenUrl": TOKEN_PATH,
                # The account scopes are for personal access tokens only.
                "scopes": {scope.value: scope.description for scope in api_scopes.ApiScope if scope.area is not api_scopes.Area.ACCOUNT},
            }
        },
    },
    "personal_token": {"type": "http", "scheme": "bearer", "description": "A personal access token, with which a program acts as a user."},
    "client": {
        "type": "http",
        "scheme": "basic",
        "description": "The client id and a secret of an application, a service account or an API resource. They can also be in the body: "
        "`client_id` with `client_secret`, or `client_assertion` (RFC 7523).",
    },
    "registration_token": {
        "type": "http",
        "scheme": "bearer",
        "description": "A registration token of an organization.",
    },
    "scim_token": {"type": "http", "scheme": "bearer", "description": "A SCIM token, with which a directory calls."},
    "setup_cookie": {"type": "apiKey", "name": "gatehouse-setup", "in": "cookie", "description": "A set-up link that this browser opened."},
    "api_key": {"type": "apiKey", "name": "X-Api-Key", "in": "header", "description": "An API key of a service."},
    "api_key_as_bearer": {"type": "http", "scheme": "bearer", "description": "An API key of a service, as AuthZEN clients send it."},
    "billing_signature": {
        "type": "apiKey",
        "name": "billing-signature",
        "in": "header",
        "description": "The payment provider's signature over the body.",
    },
    # With https the name starts with `__Host-` (security G-2). The description is the same for all
    # installations.
    "cookie": {"type": "apiKey", "name": "gatehouse-session", "in": "cookie", "description": "A session on our own pages."},
}
# An OAuth client has its credentials in the header or in the body. A public client has none.
CLIENT_SECURITY: Final[Sequence[Mapping[str, Sequence[str]]]] = ({"client": []}, {})
# The alternatives to an access token.
FURTHER: Final[Mapping[declaration.Credentials, list[dict[str, list[str]]]]] = {
    declaration.Credentials.ACCESS_TOKEN_OR_COOKIE: [{"cookie": []}],
    declaration.Credentials.OPTIONAL_ACCESS_TOKEN: [{}],
}


def alternatives_of(access: declaration.Access, method: str) -> list[dict[str, list[str]]]:
    """Return the alternatives that authenticate a caller, with the scope that tokens with scopes need.

    An empty alternative stands for a caller without credentials.
    """
    if access.credentials.scheme is None:
        return []
    schemes, scopes = [access.credentials.scheme], []
    if access.is_of_api:
        schemes.append("dpop")
        scope = access.requirement(method).scope
        if scope is not None:
            scopes.append(scope.value)
            schemes += ["service_account"] if access.opens_to_service_accounts(method) else []
            schemes += ["personal_token"] if access.opens_to_personal_tokens(method) else []
    return [*({scheme: scopes} for scheme in schemes), *FURTHER.get(access.credentials, [])]
