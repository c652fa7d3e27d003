"""A request's client: its credentials in the header or the body, and its rate limit (RFC 6749 section 2.3, RFC 7523)."""

from base64 import b64decode
from binascii import Error as NotBase64
from typing import Final
from urllib.parse import unquote_plus

from pydantic import Field
from quart import request

from core.applications.model.client_settings import client_label
from core.federation.oauth import clients
from core.federation.oauth.model.clients import ASSERTION_TYPE, ClientCredentials, OAuthClient, client_id_text
from core.kernel import errors, shares
from core.kernel.rate_limits import Bucket
from core.programs.model.credentials import ProgramClient
from entrypoints.http import kit

# The names in OpenID Connect Core section 9.
AUTHENTICATION_METHODS: Final = ("client_secret_basic", "client_secret_post", "private_key_jwt")


class CredentialsRepeated(errors.Invalid):
    """Send the client credentials once: in the Authorization header, as client_id and client_secret, or as a client_assertion."""


class AssertionTypeUnknown(errors.Invalid):
    """Send client_assertion together with the client_assertion_type urn:ietf:params:oauth:client-assertion-type:jwt-bearer."""


class ClientRequest(kit.RequestModel):
    """A client's credentials in the body."""

    client_id: kit.Text | None = Field(None, description="The client id, unless HTTP Basic or the assertion sends it.")
    client_secret: kit.Text | None = Field(None, description="The client secret, unless HTTP Basic sends it.")
    client_assertion: kit.TokenText | None = Field(None, description="A JWT that the client signed, instead of a secret (RFC 7523).")
    client_assertion_type: kit.Text | None = Field(None, description=f"`{ASSERTION_TYPE}`, together with `client_assertion`.")


def client_credentials(body: ClientRequest) -> ClientCredentials:
    """Return the credentials from the Authorization header, or else from the body."""
    if (body.client_assertion is None) != (body.client_assertion_type is None) or body.client_assertion_type not in (None, ASSERTION_TYPE):
        raise AssertionTypeUnknown
    header = _basic_credentials()
    in_body = body.client_secret is not None, body.client_assertion is not None
    if sum((header is not None, *in_body)) > 1 or (header is not None and body.client_id not in (None, header.client_id)):
        raise CredentialsRepeated
    secrets = () if body.client_secret is None else (body.client_secret,)
    presented = [getattr(body, name, None) for name in ("code", "refresh_token", "device_code", "token")]
    grant = next((text for text in presented if text is not None), None)
    return header or ClientCredentials(body.client_id, secrets, body.client_assertion, grant, getattr(body, "resource", None))


def _basic_credentials() -> ClientCredentials | None:
    """Return the client id and secret in an HTTP Basic header, or None if there is no such header.

    The client id and the secret are form-encoded (RFC 6749 section 2.3.1). Some clients do not encode the secret, so it
    is also tried as it is. An empty secret is wrong. A Bearer header does not identify a client.
    """
    scheme, _, encoded = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        client_id, colon, secret = b64decode(encoded.strip(), validate=True).decode("utf-8").partition(":")
    except (NotBase64, ValueError):
        raise errors.ClientInvalid from None
    if not colon:
        raise errors.ClientInvalid
    return ClientCredentials(unquote_plus(client_id), tuple(dict.fromkeys((unquote_plus(secret), secret))))


async def identify_client(body: ClientRequest, limit: tuple[Bucket, ...]) -> OAuthClient | None:
    """Return the client that the Authorization header or the body names. If it proves who it is, charge its `limit`."""
    client = await clients.identify_client(kit.ports(), client_credentials(body), kit.app_context().base_url, limit)
    if client is not None:
        _record(client)
    return client


async def identify_client_or_program(body: ClientRequest, limit: tuple[Bucket, ...]) -> OAuthClient | ProgramClient | None:
    """Return the application, service account or API resource that the request names, as `identify_client` does."""
    client = await clients.identify_client_or_program(kit.ports(), client_credentials(body), kit.app_context().base_url, limit)
    if isinstance(client, ProgramClient):
        kit.request_record().caller, kit.request_record().organization = str(client.client_id), client.org_slug
        shares.current_share.set(shares.of_organization(client.org_id))
    elif client is not None:
        _record(client)
    return client


def _record(client: OAuthClient) -> None:
    context = client.context
    client_uri = None if context is None else context.client_uri
    kit.request_record().caller = client_id_text(client) if client_uri is None else client_label(client_uri)
    kit.request_record().organization = None if context is None else context.org_slug
    if context is not None and client.authenticated:
        shares.current_share.set(shares.of_organization(context.org_id))


async def count_request(client: OAuthClient | ProgramClient | None) -> None:
    """Count the request against its IP address limit, unless its client has its own limit.

    A client has its own limit if it proved who it is. `identify_client` has charged it.
    """
    if client is None or client.wait is None:
        await kit.take_token(())
    elif client.wait > 0:
        raise errors.Limited(client.wait)
