"""External clients of API resources, managed by the members of an organization."""

from dataclasses import replace
from uuid import UUID

from core.kernel.callers import OrganizationCaller
from core.programs import api_resources, events
from core.programs.model.api_resources import ApiResource
from core.programs.model.external_clients import ExternalClientPolicy, check_policy
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
            await tx.api_resources.save(new)
            tx.record(events.external_client_policy_updated(old, new))
    return new
