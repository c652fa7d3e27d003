"""The targets of sign-ins in a browser. `pages.flow.steps` has their pages."""

from collections.abc import Mapping
from typing import Final, Protocol
from uuid import UUID

from core.applications.model.services import Service
from core.authentication.flow import flows
from core.authentication.flow.model import Flow, FlowTarget
from core.federation.destination import Destination
from core.federation.oauth import requests
from core.federation.saml import target as saml_target
from ports import Ports


class _TargetArea(Protocol):
    """A module with the requests of one target."""

    async def find_destination(self, ports: Ports, flow: Flow, base_url: str, /) -> Destination: ...
    def address(self, flow: Flow, /) -> str | None: ...


# Our own pages are missing: their path is the request, and nothing waits there.
TARGETS: Final[Mapping[FlowTarget, _TargetArea]] = {FlowTarget.OAUTH: requests, FlowTarget.SAML: saml_target}


async def find_destination(ports: Ports, flow: Flow, base_url: str) -> Destination:
    """Return the destination that the pages of the sign-in name. Raises: FlowEnded if the application no longer accepts the request."""
    return Destination() if flow.target is FlowTarget.PAGE else await TARGETS[flow.target].find_destination(ports, flow, base_url)


def address(flow: Flow) -> str | None:
    """Return the address of the request itself, at which another browser begins again, or None if the request is used once."""
    return flow.request if flow.target is FlowTarget.PAGE else TARGETS[flow.target].address(flow)


async def find_application(ports: Ports, flow_id: UUID, device_cookie: str | None) -> Service | None:
    """Return the application that waited for a flow of the browser with this device cookie, if any."""
    flow = await flows.load(ports, flow_id, device_cookie)
    if flow is None or flow.org_id is None or flow.service_id is None:
        return None
    async with ports.storage.reading() as read:
        return await read.services.by_id(flow.org_id, flow.service_id)
