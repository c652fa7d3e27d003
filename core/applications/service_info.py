"""The service interface: a service, as the programs that hold its API keys see and change it (identity.md section 4.5; decisions, 118)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from core.applications import api_keys, services, services_rules
from core.applications.api_keys_rules import ApiKeyInvalid
from core.kernel.errors import refuse
from core.kernel.principals import Permission

if TYPE_CHECKING:
    from core.applications.services_rules import Service, Settings
    from core.kernel.principals import ServiceKey
    from ports import Ports


async def current(ports: Ports, caller: ServiceKey) -> Service:
    """The service of the key. Raises ApiKeyInvalid."""
    async with ports.storage.reading() as read:
        return await read.services.by_id(caller.service.org_id, caller.service.id) or refuse(ApiKeyInvalid)


async def update(ports: Ports, caller: ServiceKey, settings: Settings) -> Service:
    """The service of the key with these settings, which leave its type alone. Raises what services.configured and api_keys.enter raise."""
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        _, old = await api_keys.enter(tx, caller, Permission.WRITE_SERVICE, now)
        return await services.change(tx, old, services_rules.configured(old, settings), now)
