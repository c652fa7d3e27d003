"""The targets of sign-ins in a browser. This is the only list of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Protocol
from uuid import UUID

from core.applications.model.services import Service
from core.authentication.flow import flows
from core.authentication.flow.model import Flow, FlowEnded, Target, new_flow
from core.federation.model.targets import Destination
from core.federation.oauth import target as oauth_target
from core.federation.saml import target as saml_target
from core.kernel.callers import OrganizationStatus
from core.kernel.causes import Caller
from core.kernel.errors import Refusal, refuse

if TYPE_CHECKING:
    from ports import Ports


class _TargetArea(Protocol):
    """A module with the requests of one target."""

    @property
    def address(self) -> Callable[[Flow], str]: ...
    async def find_destination(self, ports: Ports, flow: Flow, base_url: str, /) -> Destination: ...


@dataclass(frozen=True, slots=True)
class _ServicePage:
    """One of our own pages, or a SAML sign-on. The application that waits for it has no sign-up."""

    address: Callable[[Flow], str]

    async def find_destination(self, ports: Ports, flow: Flow, _base_url: str) -> Destination:
        if flow.service_id is None:
            return Destination()
        return Destination(service=await _service_of(ports, flow) or refuse(FlowEnded), offers_sign_up=False)


TARGETS: Final[Mapping[Target, _TargetArea]] = {
    Target.PAGE: _ServicePage(lambda flow: flow.request),
    Target.OAUTH: oauth_target,
    Target.SAML: _ServicePage(saml_target.address),
}


async def find_destination(ports: Ports, flow: Flow, base_url: str) -> Destination:
    """Return what the pages of the sign-in show. Raises: FlowEnded if the application no longer accepts the request."""
    try:
        return await TARGETS[flow.target].find_destination(ports, flow, base_url)
    except Refusal:
        raise FlowEnded from None


async def begin_at_page(ports: Ports, caller: Caller, path: str, browser_hash: bytes, org_slug: str, service_slug: str) -> Flow | None:
    """Begin a sign-in to one of our pages that belongs to a service, and return the flow.

    Return None, and begin nothing, if there is no such service, or its organization is not active.
    """
    async with ports.storage.reading() as read:
        client = await read.services.client_by_slug(org_slug, service_slug)
    if client is None or client[1].status is not OrganizationStatus.ACTIVE:
        return None
    flow = new_flow(ports.clock.now(), Target.PAGE, path, browser_hash, org_id=client[1].org_id, service_id=client[1].id)
    async with ports.storage.transaction(by=caller) as tx:
        await tx.flows.add(flow)
    return replace(flow, is_stored=True)


def address(flow: Flow) -> str:
    """Return the address of the request itself, at which another browser begins again."""
    return TARGETS[flow.target].address(flow)


async def find_application(ports: Ports, flow_id: UUID, device_cookie: str | None) -> Service | None:
    """Return the application that waited for a flow of the browser with this device cookie, if any."""
    flow = await flows.load(ports, flow_id, device_cookie)
    return None if flow is None else await _service_of(ports, flow)


async def _service_of(ports: Ports, flow: Flow) -> Service | None:
    if flow.org_id is None or flow.service_id is None:
        return None
    async with ports.storage.reading() as read:
        return await read.services.by_id(flow.org_id, flow.service_id)
