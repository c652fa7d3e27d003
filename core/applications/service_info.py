"""How the service API shows the service itself, for programs that hold its API key."""

from core.applications import api_keys, services
from core.applications.model import services as services_model
from core.applications.model.api_keys import ApiKeyInvalid
from core.applications.model.services import Service, SettingChanges
from core.kernel.callers import ServiceKey
from core.kernel.errors import refuse
from core.kernel.roles import Permission
from ports import Ports


async def find(ports: Ports, caller: ServiceKey) -> Service:
    """Return the key's service."""
    async with ports.storage.reading() as read:
        return await read.services.by_id(caller.service.org_id, caller.service.id) or refuse(ApiKeyInvalid)


async def update(ports: Ports, caller: ServiceKey, settings: SettingChanges) -> Service:
    """Apply these settings to the key's service. `settings` must not contain a service type."""
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        _, old = await api_keys.lock_organization_for(tx, caller, Permission.WRITE_SERVICE, now)
        return await services.save_changes(tx, old, services_model.apply_settings(old, settings), now)
