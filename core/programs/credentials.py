"""Credentials for service accounts and API resources: creation and revocation. With theirs, APIs ask about received tokens (RFC 7662).

The use cases that call these functions lock the credential's program, and check the user's rights.
"""

from collections.abc import Mapping
from datetime import timedelta
from typing import Final
from uuid import UUID

from core.applications.model import client_settings
from core.kernel import scannable_secrets, uris, values
from core.kernel.callers import OrganizationCaller
from core.kernel.errors import refuse
from core.kernel.outbound import KeyPortNotAllowed
from core.programs import api_resources, events
from core.programs.model import credentials as credentials_model
from core.programs.model.api_resources import ApiResourceNotFound
from ports import Ports
from ports.storage import Transaction

MAX_LIFETIME: Final = timedelta(days=3650)


async def add(
    ports: Ports, tx: Transaction, org_id: UUID | None, client_id: UUID, request: credentials_model.NewCredential, created_by: UUID
) -> tuple[credentials_model.Credential, str | None]:
    """Add a credential to a locked program. Return it, with the secret if it is a secret.

    Raises: CredentialFieldsInvalid, CredentialExpiryInvalid, CredentialKeyInvalid, KeyPortNotAllowed, PrivateKeySent,
    TooManyCredentials, TooManyTrusts.
    """
    now, kind = ports.clock.now(), request.kind
    has_key, has_trust = request.public_key is not None, request.trust is not None
    if (has_key, has_trust) != (kind is credentials_model.CredentialKind.KEY, kind is credentials_model.CredentialKind.FEDERATED):
        raise credentials_model.CredentialFieldsInvalid
    if request.expires_at is not None and not now < request.expires_at <= now + MAX_LIFETIME:
        raise credentials_model.CredentialExpiryInvalid
    if request.trust is not None and not uris.has_port_of(request.trust.issuer, ports.policy.key_ports):
        raise KeyPortNotAllowed
    key = None if request.public_key is None else _parse_key(ports, request.public_key)
    credentials = await tx.credentials.of_client(org_id, client_id)
    live_kinds = [credential.kind for credential in credentials if credential.expires_at is None or credential.expires_at > now]
    trust_count = live_kinds.count(credentials_model.CredentialKind.FEDERATED)
    if kind is credentials_model.CredentialKind.FEDERATED and trust_count >= credentials_model.MAX_FEDERATED:
        raise credentials_model.TooManyTrusts
    if kind is not credentials_model.CredentialKind.FEDERATED and len(live_kinds) - trust_count >= credentials_model.MAX_STORED:
        raise credentials_model.TooManyCredentials
    secret = scannable_secrets.generate(scannable_secrets.CREDENTIAL_PREFIX) if kind is credentials_model.CredentialKind.SECRET else None
    hint = None if key is None else client_settings.thumbprint(key)
    credential = credentials_model.Credential(
        id=values.new_id(),
        client_id=client_id,
        org_id=org_id,
        kind=kind,
        name=request.name,
        hint=hint if secret is None else secret[: scannable_secrets.SHOWN_LENGTH],
        public_key=key,
        trust=request.trust,
        expires_at=request.expires_at,
        created_by=created_by,
        created_at=now,
    )
    await tx.credentials.add(credential, None if secret is None else values.digest(secret))
    return credential, secret


def _parse_key(ports: Ports, key: Mapping[str, object]) -> Mapping[str, str]:
    try:
        [parsed] = client_settings.parse_keys([key])
        ports.client_assertions.check_keys([parsed])
    except client_settings.ClientKeysInvalid:
        raise credentials_model.CredentialKeyInvalid from None
    return parsed


async def remove(tx: Transaction, org_id: UUID | None, client_id: UUID, credential_id: UUID) -> credentials_model.Credential:
    """Remove a locked program's credential, and return it."""
    credential = await tx.credentials.by_id(org_id, client_id, credential_id) or refuse(credentials_model.CredentialNotFound)
    await tx.credentials.remove(org_id, client_id, credential_id)
    return credential


async def create_for_resource(
    ports: Ports, caller: OrganizationCaller, resource_id: UUID, request: credentials_model.NewCredential
) -> tuple[credentials_model.Credential, str | None]:
    """Create a credential for an API resource. Return it, with its text if it is a secret, which cannot be read again."""
    if request.kind is credentials_model.CredentialKind.FEDERATED:
        raise credentials_model.NotForApiResources
    async with ports.storage.transaction(by=caller) as tx:
        resource = await api_resources.lock_organization_for(tx, caller, resource_id)
        credential, secret = await add(ports, tx, resource.org_id, resource.id, request, caller.actor_id)
        tx.record(events.resource_credential_created(resource, credential))
    return credential, secret


async def list_of_resource(ports: Ports, caller: OrganizationCaller, resource_id: UUID) -> list[credentials_model.Credential]:
    """Return an API resource's credentials, newest first."""
    async with ports.storage.reading() as read:
        resource = await read.api_resources.by_id(caller.acts_in.id, resource_id) or refuse(ApiResourceNotFound)
        return await read.credentials.of_client(resource.org_id, resource.id)


async def revoke_of_resource(ports: Ports, caller: OrganizationCaller, resource_id: UUID, credential_id: UUID) -> None:
    """Revoke an API resource's credential. The credential's next request is refused."""
    async with ports.storage.transaction(by=caller) as tx:
        resource = await api_resources.lock_organization_for(tx, caller, resource_id)
        credential = await remove(tx, resource.org_id, resource.id, credential_id)
        tx.record(events.resource_credential_revoked(resource, credential))
