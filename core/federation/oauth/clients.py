"""How applications authenticate at the endpoints for programs (RFC 6749 section 2.3, RFC 7523)."""

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any
from uuid import NAMESPACE_URL, UUID, uuid5

from core.applications.model.services import Service
from core.federation.oauth import external_clients
from core.federation.oauth.model import clients
from core.federation.oauth.model import clients as clients_model
from core.federation.oauth.model.clients import TOKEN_PATH
from core.federation.oauth.model.external_clients import is_external
from core.kernel import errors, scannable_secrets, shares, values
from core.kernel.callers import ServiceContext
from core.kernel.claims import FRONTEND_CLIENT_ID
from core.kernel.rate_limits import Bucket
from core.kernel.scannable_secrets import CREDENTIAL_PREFIX
from core.programs.model.credentials import ProgramClient, StoredCredential
from ports import Ports


async def identify_client(
    ports: Ports, credentials: clients.ClientCredentials, base_url: str, limit: tuple[Bucket, ...] = ()
) -> clients.OAuthClient | None:
    """Return the client with these credentials, or None if the request has none.

    Credentials are verified even if the client needs none (RFC 6749 section 2.3). If they are right,
    the request is counted against `limit`, the client's own limit.
    """
    client_id = credentials.client_id
    if credentials.assertion is not None:
        subject = ports.client_assertions.subject(credentials.assertion)
        if client_id not in (None, subject):
            raise errors.ClientInvalid
        if is_external(subject):
            return await _authenticate_external(ports, replace(credentials, client_id=subject), base_url, limit)
        return await _authenticate_by_assertion(ports, subject or "", credentials.assertion, base_url, limit)
    if is_external(client_id):
        return await _authenticate_external(ports, credentials, base_url, limit)
    if client_id is None:
        return errors.refuse(errors.ClientInvalid) if credentials.secrets else None
    if client_id == FRONTEND_CLIENT_ID and not credentials.secrets and ports.policy.frontend_url is not None:
        return clients.OAuthClient(None, None, authenticated=True, relies_on_pkce=True)
    service_client_id = values.parse_id(client_id) or errors.refuse(errors.ClientInvalid)
    secret_hashes, now, wait = [values.digest(secret) for secret in credentials.secrets], ports.clock.now(), None
    if not secret_hashes or not limit:
        async with ports.storage.reading() as read:
            service, context = await read.services.by_client_id(service_client_id) or errors.refuse(errors.ClientInvalid)
    else:  # look up the client and take its tokens in one round trip
        async with ports.storage.autocommit() as statements:
            client = await statements.services.charge_client(service_client_id, secret_hashes, limit, now)
        service, context, wait = client or errors.refuse(errors.ClientInvalid)
    if not secret_hashes:
        needs_no_secret = context.is_public or service.pkce_without_secret
        return clients.OAuthClient(service, context, authenticated=needs_no_secret, relies_on_pkce=True)
    if not any(service.has_secret(secret_hash, now) for secret_hash in secret_hashes):
        raise errors.ClientInvalid
    return clients.OAuthClient(service, context, authenticated=True, relies_on_pkce=False, wait=wait)


async def identify_client_or_program(
    ports: Ports, credentials: clients.ClientCredentials, base_url: str, limit: tuple[Bucket, ...] = ()
) -> clients.OAuthClient | ProgramClient | None:
    """Return the application, service account or API resource with these credentials, or None if the request has none.

    Programs' secrets have their own format, so one statement finds a secret's program.
    """
    is_program = any(scannable_secrets.is_well_formed(secret, CREDENTIAL_PREFIX) for secret in credentials.secrets)
    if is_program and credentials.client_id is not None:
        client_id, secret_hashes = values.parse_id(credentials.client_id), [values.digest(secret) for secret in credentials.secrets]
        async with ports.storage.autocommit() as statements:
            return await statements.program_clients.by_secret(
                client_id or errors.refuse(errors.ClientInvalid), secret_hashes, limit, ports.clock.now()
            ) or errors.refuse(errors.ClientInvalid)
    if credentials.assertion is not None and not is_external(ports.client_assertions.subject(credentials.assertion)):
        subject = ports.client_assertions.subject(credentials.assertion)
        client_id = values.parse_id(credentials.client_id or subject or "") or errors.refuse(errors.ClientInvalid)
        async with ports.storage.reading() as read:
            stored = await read.program_clients.credentials(client_id, ports.clock.now())
        if stored:
            return await _authenticate_program(ports, stored, credentials.assertion, base_url, limit)
    return await identify_client(ports, credentials, base_url, limit)


async def _authenticate_program(
    ports: Ports, stored: Sequence[StoredCredential], assertion: str, base_url: str, limit: tuple[Bucket, ...]
) -> ProgramClient:
    """Authenticate a program with one of its private keys, or with the token of a pipeline that it trusts."""
    issuer = ports.pipeline_tokens.issuer(assertion)
    trusts = [credential for credential in stored if credential.trust is not None and credential.trust.issuer == issuer]
    if trusts and issuer is not None and issuer != base_url:
        return await _authenticate_pipeline(ports, trusts, issuer, assertion, limit)
    is_own_assertion = issuer in (None, str(stored[0].client.client_id))
    if not is_own_assertion and any(credential.trust is not None for credential in stored):
        raise clients_model.PipelineTokenRefused("has another issuer than the credentials of this service account")
    return await _authenticate_by_key(ports, stored, assertion, base_url, limit)


async def _authenticate_by_key(
    ports: Ports, stored: Sequence[StoredCredential], assertion: str, base_url: str, limit: tuple[Bucket, ...]
) -> ProgramClient:
    """Authenticate a program with one of its private keys. The assertion works once, in all processes."""
    client_id, now = stored[0].client.client_id, ports.clock.now()
    for credential in stored:
        if credential.public_key is None:
            continue
        try:
            claims = ports.client_assertions.read(assertion, (credential.public_key,))
        except clients.AssertionKeyUnknown:
            continue
        wait = await _use_assertion(ports, claims, client_id, {base_url}, limit)
        async with ports.storage.autocommit() as statements:
            await statements.program_clients.count_use(credential.client.credential_id, client_id, (), now)
        return replace(credential.client, wait=wait)
    raise clients.AssertionKeyUnknown


async def _authenticate_pipeline(
    ports: Ports, trusts: Sequence[StoredCredential], issuer: str, token: str, limit: tuple[Bucket, ...]
) -> ProgramClient:
    """Authenticate a service account with the token of a pipeline. `trusts` are its credentials for this issuer.

    Only keys of this issuer are tried, so it cannot be a token of another issuer. The token works until
    it expires.
    """
    now = ports.clock.now()
    with shares.working_for(shares.of_organization(trusts[0].client.org_id)) as presenter:
        claims = await _read_pipeline_token(ports, issuer, token, presenter)
    clients_model.check_times(claims, now)
    for credential in trusts:
        if credential.trust is not None and clients_model.is_trusted(claims, credential.trust):
            client = credential.client
            async with ports.storage.autocommit() as statements:
                wait = await statements.program_clients.count_use(client.credential_id, client.client_id, limit, now)
            return replace(client, wait=wait)
    raise clients_model.PipelineTokenRefused("has another audience or subject than the credentials of this service account")


async def _read_pipeline_token(ports: Ports, issuer: str, token: str, presenter: shares.Share) -> Mapping[str, Any]:
    """Return the claims of a token that a key of the issuer signed. The issuer may have replaced the cached keys."""
    keys, is_new = await ports.issuer_keys.get(issuer)
    with suppress(clients.AssertionKeyUnknown):
        return ports.pipeline_tokens.read(token, keys)
    newer = None if is_new else await ports.issuer_keys.get_newer(issuer, keys, presenter)
    if newer is not None:
        with suppress(clients.AssertionKeyUnknown):
            return ports.pipeline_tokens.read(token, newer)
    raise clients_model.PipelineTokenRefused("is not signed with a key that its issuer publishes")


async def _authenticate_by_assertion(
    ports: Ports, client_id: str, assertion: str, base_url: str, limit: tuple[Bucket, ...]
) -> clients.OAuthClient:
    """Authenticate a client with its private key. The assertion works once, in all processes."""
    service_client_id = values.parse_id(client_id) or errors.refuse(errors.ClientInvalid)
    async with ports.storage.reading() as read:
        service, context = await read.services.by_client_id(service_client_id) or errors.refuse(errors.ClientInvalid)
    audiences = {base_url, f"{base_url}{TOKEN_PATH}"} if service.accepts_token_endpoint_audience else {base_url}
    return await _verify_assertion(ports, service, context, assertion, audiences, limit)


async def _authenticate_external(
    ports: Ports, credentials: clients.ClientCredentials, base_url: str, limit: tuple[Bucket, ...]
) -> clients.OAuthClient:
    """Authenticate an external client by the method of its stored document.

    Its keys are fetched only for a live code, token or consent. Otherwise anyone could make us call the server of a client.
    """
    if credentials.secrets:
        raise errors.ClientInvalid
    client = await external_clients.identify(ports, credentials)
    service, context = client.service, client.context
    if service.has_keys != (credentials.assertion is not None) or (service.has_keys and not client.is_live):
        raise errors.ClientInvalid
    if credentials.assertion is None:
        return clients.OAuthClient(service, context, authenticated=True, relies_on_pkce=True)
    audiences = {base_url, f"{base_url}{TOKEN_PATH}"} if client.accepts_token_endpoint else {base_url}
    return await _verify_assertion(ports, service, context, credentials.assertion, audiences, limit)


async def _verify_assertion(
    ports: Ports, service: Service, context: ServiceContext, assertion: str, audiences: Collection[str], limit: tuple[Bucket, ...]
) -> clients.OAuthClient:
    """Return the client that signed an assertion for one of these audiences."""
    claims = await _read_assertion(ports, service, assertion)
    wait = await _use_assertion(ports, claims, service.client_id, audiences, limit, service.client_uri)
    return clients.OAuthClient(service, context, authenticated=True, relies_on_pkce=False, wait=wait)


async def _use_assertion(
    ports: Ports,
    claims: Mapping[str, Any],
    client_id: UUID,
    audiences: Collection[str],
    limit: tuple[Bucket, ...],
    client_uri: str | None = None,
) -> float | None:
    """Check the claims of an assertion with a valid signature, and use it up. Return the wait, or None without a limit."""
    now = ports.clock.now()
    token_id, expires_at = clients.check_claims(claims, client_uri or str(client_id), audiences, now)
    # An external client has another id in each organization.
    issuer_id = client_id if client_uri is None else uuid5(NAMESPACE_URL, client_uri)
    async with ports.storage.autocommit() as statements:
        wait = await statements.client_assertions.use(issuer_id, values.digest(token_id), expires_at, client_id, limit, now)
    if wait is None:
        raise clients.ClientAssertionInvalid("its jti was used before")
    return wait if limit else None


async def _read_assertion(ports: Ports, service: Service, assertion: str) -> Mapping[str, Any]:
    """Return the claims of an assertion that a key of the service signed.

    If none of the cached keys at `jwks_uri` did, the client may have replaced them.
    """
    if service.jwks_uri is None:
        return ports.client_assertions.read(assertion, service.jwks or errors.refuse(errors.ClientInvalid))
    with shares.working_for(shares.of_organization(service.org_id)) as presenter:
        keys, is_new = await ports.client_keys.get(service.jwks_uri)
        try:
            return ports.client_assertions.read(assertion, keys)
        except clients.AssertionKeyUnknown:
            newer = None if is_new else await ports.client_keys.get_newer(service.jwks_uri, keys, presenter)
            if newer is None:
                raise
            return ports.client_assertions.read(assertion, newer)
