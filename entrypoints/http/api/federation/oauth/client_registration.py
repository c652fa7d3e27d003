"""The registration endpoint for clients (RFC 7591)."""

from typing import Any, Final

from pydantic import Field
from quart import Blueprint, request

from core.applications.model.client_settings import LINKS
from core.federation.oauth import client_registration
from core.federation.oauth.client_registration import RegisteredClient
from core.federation.oauth.model import client_metadata
from core.federation.oauth.model.client_registration import REGISTER_PATH
from core.federation.oauth.model.openid_requests import RESPONSE_TYPE
from core.kernel.errors import refuse
from core.kernel.rate_limits import CLIENT_REGISTRATION
from core.programs.model.registration_tokens import RegistrationTokenInvalid
from entrypoints.http import kit

routes = Blueprint("client_registration", __name__)

TEXTS: Final[dict[str, Any]] = {"type": "array", "items": {"type": "string"}}
METADATA: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["client_name", "redirect_uris"],
    "properties": {
        "client_name": {
            "type": "string",
            "maxLength": client_metadata.MAX_NAME_LENGTH,
            "description": "The name that users see.",
            "examples": ["Assistant"],
        },
        "redirect_uris": {
            **TEXTS,
            "minItems": 1,
            "maxItems": client_metadata.MAX_REDIRECT_URIS,
            "description": "The redirect URIs. On the loopback interface, any port works.",
            "examples": [["http://127.0.0.1/callback"]],
        },
        "application_type": {
            "type": "string",
            "enum": ["web", "native"],
            "description": "`web` allows https redirect URIs only. Without it, the redirect URIs tell the type. With a registration "
            "token, a redirect URI on the loopback interface alone does not make the application native.",
        },
        "grant_types": {**TEXTS, "description": "With `authorization_code`. Grants that the client cannot have are left out."},
        "response_types": {**TEXTS, "description": "With `code`."},
        "token_endpoint_auth_method": {
            "type": "string",
            "description": "With a registration token `client_secret_basic` (the default), `client_secret_post`, `private_key_jwt` or "
            "`none`, else `none`. A native application has `none`. Another method is refused, or replaced by the default: see the "
            "response.",
        },
        **{
            name: {
                "type": "string",
                "description": f"With a registration token: the URL of the client's {what}. The consent page links to it.",
            }
            for name, what in (("policy_uri", "privacy policy"), ("tos_uri", "terms of service"), ("logo_uri", "logo"))
        },
        "jwks": {"type": "object", "description": "The public keys, for `private_key_jwt`."},
        "jwks_uri": {"type": "string", "description": "The URL of the public keys, instead of `jwks`."},
    },
    "description": "The metadata of the client. Other members are ignored, but a `software_statement` is refused.",
}


class ClientRegistrationResponse(kit.ResponseModel):
    """A registered client, with all metadata that were registered."""

    client_id: str = Field(description="The client id. Without a registration token, it has up to 2,000 characters.")
    client_id_issued_at: int = Field(description="The time of the registration, in seconds since 1970.")
    client_secret: str | None = kit.absent_if_none("The client secret, which is returned only once. Left out if the client has none.")
    client_secret_expires_at: int | None = kit.absent_if_none("`0`: the client secret does not expire. Left out if the client has none.")
    client_name: str = Field(description="The name that users see.")
    redirect_uris: list[str] = Field(description="The redirect URIs.")
    application_type: str = Field(description="`web` or `native`.")
    grant_types: list[str] = Field(description="The grants that the client can use.")
    response_types: list[str] = Field(description="Always `code`.")
    token_endpoint_auth_method: str = Field(description="How the client authenticates. It can differ from the method in the request.")
    jwks: dict[str, Any] | None = kit.absent_if_none("The registered keys. Left out if there are none.")
    jwks_uri: str | None = kit.absent_if_none("The URL of the client's keys. Left out if there is none.")
    policy_uri: str | None = kit.absent_if_none("The URL of the privacy policy. Left out if none is registered.")
    tos_uri: str | None = kit.absent_if_none("The URL of the terms of service. Left out if none is registered.")
    logo_uri: str | None = kit.absent_if_none("The URL of the logo. Left out if none is registered.")


@routes.post(REGISTER_PATH)
@kit.anyone(limit=CLIENT_REGISTRATION)
@kit.authenticates({"registration_token": []}, {})
@kit.refuses(400, 401, 403, 413, 415)
@kit.any_origin
@kit.speaks_oauth
@kit.describes({}, request_schema=METADATA)
@kit.returns(201)
async def register() -> tuple[ClientRegistrationResponse, int, dict[str, str]]:
    """Register a client.

    With an organization's registration token (an initial access token), the client becomes the organization's application. Only members may
    sign in to it, and they are asked for their consent every time, until an admin changes its settings.

    Without a registration token, the platform must allow it. Then nothing is stored: the client id is a sealed copy of the metadata. It
    works for 24 hours, and from a user's first consent on for as long as it is used. The client is public and uses PKCE, and an API
    resource decides whether such clients may come.
    """
    registered = await client_registration.register(kit.ports(), kit.caller(), await request.get_json(), _token())
    return _to_response(registered), 201, {"Cache-Control": "no-store", "Pragma": "no-cache"}


def _token() -> str | None:
    """Return the request's registration token, or None if it has no credentials."""
    header = request.headers.get("Authorization")
    if header is None:
        return None
    scheme, _, token = header.partition(" ")
    return token.strip() if scheme.lower() == "bearer" else refuse(RegistrationTokenInvalid)


def _to_response(client: RegisteredClient) -> ClientRegistrationResponse:
    registration = client.registration
    return ClientRegistrationResponse(
        client_id=client.client_id,
        client_id_issued_at=int(client.registered_at.timestamp()),
        client_secret=client.client_secret,
        client_secret_expires_at=None if client.client_secret is None else 0,
        client_name=registration.metadata.name,
        redirect_uris=list(registration.metadata.redirect_uris),
        application_type=registration.application_type,
        grant_types=list(registration.grant_types),
        response_types=[RESPONSE_TYPE],
        token_endpoint_auth_method=registration.method,
        jwks=None if registration.jwks is None else {"keys": [dict(key) for key in registration.jwks]},
        jwks_uri=registration.jwks_uri,
        **{name: registration.links.get(name) for name in LINKS},
    )
