"""Reading sign-ins in progress."""

from dataclasses import replace
from typing import Final
from uuid import UUID

from core.applications.model.services import ServiceNotFound
from core.authentication.flow.model import Flow, FlowEnded, FlowTarget
from core.kernel.errors import refuse
from core.kernel.values import digest
from ports import Ports

NOT_ON_PAGES: Final = frozenset({FlowTarget.LINK, FlowTarget.REAUTHENTICATION, FlowTarget.TEST})


async def load(ports: Ports, flow_id: UUID, device_cookie: str | None) -> Flow | None:
    """Return the flow of the browser with this device cookie, also after it has ended, or None."""
    if device_cookie is None:
        return None
    async with ports.storage.reading() as read:
        return await read.flows.load(flow_id, digest(device_cookie))


async def load_open(ports: Ports, flow_id: UUID, device_cookie: str | None) -> Flow:
    """Return the open flow, with pages, of the browser with this device cookie. Raises: FlowEnded."""
    flow = await load(ports, flow_id, device_cookie)
    if flow is None or not flow.is_open(ports.clock.now()) or flow.target in NOT_ON_PAGES:
        raise FlowEnded
    return flow


async def close(ports: Ports, flow: Flow) -> None:
    """End a flow. Raises: FlowEnded if it has ended."""
    async with ports.storage.autocommit() as statements:
        if not await statements.flows.close(flow, ports.clock.now()):
            raise FlowEnded


async def with_service(ports: Ports, flow: Flow) -> Flow:
    """Return the flow with the service of the session that it starts for an API client, if any. Raises: ServiceNotFound.

    With a pending SAML sign-on, which is its request, the client gets a session of the platform.
    """
    if flow.in_browser or flow.service_id is None or flow.request:
        return flow
    async with ports.storage.reading() as read:
        return replace(flow, service=await read.services.context_by_id(flow.service_id) or refuse(ServiceNotFound))
