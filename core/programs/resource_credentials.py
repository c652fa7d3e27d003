"""API resources' credentials, with which an API asks about the tokens that it receives (RFC 7662)."""

from uuid import UUID

from core.kernel.callers import OrganizationCaller
from core.kernel.errors import refuse
from core.programs import api_resources, credentials, events
from core.programs.model.api_resources import ApiResourceNotFound
from core.programs.model.credentials import Credential, CredentialKind, NewCredential, NotForApiResources
from ports import Ports


async def create(ports: Ports, caller: OrganizationCaller, resource_id: UUID, request: NewCredential) -> tuple[Credential, str | None]:
    """Create a credential for an API resource. Return it, with its text if it is a secret, which cannot be read again."""
    if request.kind is CredentialKind.FEDERATED:
        raise NotForApiResources
    async with ports.storage.transaction(by=caller) as tx:
        resource = await api_resources.lock_organization_for(tx, caller, resource_id)
        credential, secret = await credentials.add(ports, tx, resource.org_id, resource.id, request, caller.actor_id)
        tx.record(events.resource_credential_created(resource, credential))
    return credential, secret


async def list_credentials(ports: Ports, caller: OrganizationCaller, resource_id: UUID) -> list[Credential]:
    """Return an API resource's credentials, newest first."""
    async with ports.storage.reading() as read:
        resource = await read.api_resources.by_id(caller.acts_in.id, resource_id) or refuse(ApiResourceNotFound)
        return await read.credentials.of_client(resource.org_id, resource.id)


async def revoke(ports: Ports, caller: OrganizationCaller, resource_id: UUID, credential_id: UUID) -> None:
    """Revoke an API resource's credential. The credential's next request is refused."""
    async with ports.storage.transaction(by=caller) as tx:
        resource = await api_resources.lock_organization_for(tx, caller, resource_id)
        credential = await credentials.remove(tx, resource.org_id, resource.id, credential_id)
        tx.record(events.resource_credential_revoked(resource, credential))
