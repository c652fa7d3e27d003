"""External clients of API resources, managed by the members of an organization."""

from dataclasses import replace
from uuid import UUID

from core.applications.model.client_names import client_host
from core.kernel.callers import OrganizationCaller
from core.programs import api_resources, events
from core.programs.model.api_resources import ApiResource
from core.programs.model.external_clients import ExternalClientPolicy, admits, check_policy
from ports import Ports


async def save_policy(ports: Ports, caller: OrganizationCaller, resource_id: UUID, policy: ExternalClientPolicy) -> ApiResource:
    """Set the external clients that may ask for an API resource. A client that the policy no longer admits gets no further tokens.

    Raises: ApiResourceNotFound; the errors of `check_policy`.
    """
    async with ports.storage.transaction(by=caller) as tx:
        old = await api_resources.lock_organization_for(tx, caller, resource_id)
        new = replace(old, external_clients=check_policy(policy, old.scope_names))
        if new != old:
            new = replace(new, updated_at=ports.clock.now())
            # Lock order: first the API resource, whose lock `save` takes. A client that is stored at the same time holds it,
            # and so the next statements see this client.
            await tx.api_resources.save(new)
            origins = await tx.api_resources.origins_of_external_clients(new.org_id, new.id)
            refused = [origin for origin in origins if not admits(new.external_clients, origin and client_host(origin))]
            await tx.api_resources.remove_external_clients(new.org_id, new.id, refused)
            tx.record(events.external_client_policy_updated(old, new))
    return new
