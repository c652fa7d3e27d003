"""How applications authenticate at the token, revocation and introspection endpoints (RFC 6749 section 2.3)."""

from __future__ import annotations

from hmac import compare_digest
from typing import TYPE_CHECKING

from core.federation.oauth.clients_rules import OAuthClient
from core.kernel.errors import ClientInvalid, refuse
from core.kernel.principals import FRONTEND_CLIENT_ID
from core.kernel.values import digest, parse_id

if TYPE_CHECKING:
    from core.kernel.rate_limits import Bucket
    from ports import Ports


async def identify_client(
    ports: Ports, client_id: str | None, client_secret: str | None, limit: tuple[Bucket, ...] = ()
) -> OAuthClient | None:
    """Return the client with these credentials, or None if the request has none.

    A client secret is verified even if the client needs none (RFC 6749 section 2.3). If it is right,
    the request is counted against `limit`, the client's own limit (decision 100).

    Raises: ClientInvalid.
    """
    if client_id is None:
        return None if client_secret is None else refuse(ClientInvalid)
    if client_id == FRONTEND_CLIENT_ID and client_secret is None and ports.policy.frontend_url is not None:
        return OAuthClient(None, None, authenticated=True, relies_on_pkce=True)
    service_client_id = parse_id(client_id) or refuse(ClientInvalid)
    secret_hash, wait = None if client_secret is None else digest(client_secret), None
    if secret_hash is None or not limit:
        async with ports.storage.reading() as read:
            service, context = await read.services.by_client_id(service_client_id) or refuse(ClientInvalid)
    else:  # look up the client and charge its limit in one round trip
        async with ports.storage.autocommit() as statements:
            client = await statements.services.charge_client(service_client_id, secret_hash, limit, ports.clock.now())
        service, context, wait = client or refuse(ClientInvalid)
    if secret_hash is None:
        needs_no_secret = context.is_public or service.pkce_without_secret
        return OAuthClient(service, context, authenticated=needs_no_secret, relies_on_pkce=True)
    if not compare_digest(secret_hash, service.client_secret_hash or b""):
        raise ClientInvalid
    return OAuthClient(service, context, authenticated=True, relies_on_pkce=False, wait=wait)
