"""How applications authenticate at the endpoints for programs (RFC 6749 section 2.3, RFC 7523; decision 92)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from core.federation.oauth.client_assertions_rules import AssertionKeyUnknown, ClientAssertionInvalid, check_claims
from core.federation.oauth.clients_rules import TOKEN_PATH, OAuthClient
from core.kernel.errors import ClientInvalid, refuse
from core.kernel.principals import FRONTEND_CLIENT_ID
from core.kernel.values import digest, parse_id

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from core.applications.services_rules import Service
    from core.federation.oauth.clients_rules import ClientCredentials
    from core.kernel.rate_limits import Bucket
    from ports import Ports


async def identify_client(
    ports: Ports, credentials: ClientCredentials, base_url: str, limit: tuple[Bucket, ...] = ()
) -> OAuthClient | None:
    """Return the client with these credentials, or None if the request has none.

    Credentials are verified even if the client needs none (RFC 6749 section 2.3). If they are right,
    the request is counted against `limit`, the client's own limit (decision 100).

    Raises: ClientInvalid, ClientAssertionInvalid.
    """
    client_id = credentials.client_id
    if credentials.assertion is not None:
        subject = ports.client_assertions.subject(credentials.assertion)
        if client_id not in (None, subject):
            raise ClientInvalid
        return await _authenticate_by_assertion(ports, subject or "", credentials.assertion, base_url, limit)
    if client_id is None:
        return refuse(ClientInvalid) if credentials.secrets else None
    if client_id == FRONTEND_CLIENT_ID and not credentials.secrets and ports.policy.frontend_url is not None:
        return OAuthClient(None, None, authenticated=True, relies_on_pkce=True)
    service_client_id = parse_id(client_id) or refuse(ClientInvalid)
    secret_hashes, now, wait = [digest(secret) for secret in credentials.secrets], ports.clock.now(), None
    if not secret_hashes or not limit:
        async with ports.storage.reading() as read:
            service, context = await read.services.by_client_id(service_client_id) or refuse(ClientInvalid)
    else:  # look up the client and charge its limit in one round trip
        async with ports.storage.autocommit() as statements:
            client = await statements.services.charge_client(service_client_id, secret_hashes, limit, now)
        service, context, wait = client or refuse(ClientInvalid)
    if not secret_hashes:
        needs_no_secret = context.is_public or service.pkce_without_secret
        return OAuthClient(service, context, authenticated=needs_no_secret, relies_on_pkce=True)
    if not any(service.has_secret(secret_hash, now) for secret_hash in secret_hashes):
        raise ClientInvalid
    return OAuthClient(service, context, authenticated=True, relies_on_pkce=False, wait=wait)


async def _authenticate_by_assertion(ports: Ports, client_id: str, assertion: str, base_url: str, limit: tuple[Bucket, ...]) -> OAuthClient:
    """Authenticate a client with its private key. The assertion works once, in all processes.

    Raises: ClientInvalid, ClientAssertionInvalid.
    """
    service_client_id = parse_id(client_id) or refuse(ClientInvalid)
    async with ports.storage.reading() as read:
        service, context = await read.services.by_client_id(service_client_id) or refuse(ClientInvalid)
    claims = await _read_assertion(ports, service, assertion)
    audiences = {base_url, f"{base_url}{TOKEN_PATH}"} if service.client.accepts_token_endpoint_audience else {base_url}
    now = ports.clock.now()
    token_id, expires_at = check_claims(claims, client_id, audiences, now)
    async with ports.storage.autocommit() as statements:
        wait = await statements.client_assertions.use(service_client_id, digest(token_id), expires_at, limit, now)
    if wait is None:
        raise ClientAssertionInvalid("its jti was used before")
    return OAuthClient(service, context, authenticated=True, relies_on_pkce=False, wait=wait if limit else None)


async def _read_assertion(ports: Ports, service: Service, assertion: str) -> Mapping[str, Any]:
    """Return the claims of an assertion that a key of the service signed.

    If none of the cached keys at `jwks_uri` did, the client may have replaced them.

    Raises: ClientInvalid, ClientAssertionInvalid.
    """
    settings = service.client
    if settings.jwks_uri is None:
        return ports.client_assertions.read(assertion, settings.jwks or refuse(ClientInvalid))
    keys, is_new = await ports.client_keys.get(settings.jwks_uri)
    try:
        return ports.client_assertions.read(assertion, keys)
    except AssertionKeyUnknown:
        newer = None if is_new else await ports.client_keys.get_newer(settings.jwks_uri, keys)
        if newer is None:
            raise
        return ports.client_assertions.read(assertion, newer)
