"""Test sign-ins by a set-up link's reader, at the proposed connection or with a renewed certificate.

A test signs no user in, looks no account up, and stores nothing but the browser's provider request.
"""

from uuid import UUID

from core.authentication.flow.model import FlowTarget, ProviderRequest, new_flow
from core.federation.connections import provider_requests
from core.federation.connections.model.saml import ProviderRedirect
from core.federation.model.sign_in import STATE_TTL
from core.federation.saml.metadata import charge_fetch_of
from core.kernel import callers
from core.kernel.causes import Caller
from core.kernel.errors import refuse
from core.kernel.page_paths import SETUP_STEPS_PATH
from core.kernel.values import digest
from core.setup import connection, opening, renewal
from core.setup.model.links import SetupSessionMissing
from ports import Ports


async def begin(
    ports: Ports, caller: callers.SetupLinkCaller, part: callers.SetupPart, device_cookie: str, base_url: str
) -> ProviderRedirect:
    """Return the place at the identity provider at which the reader tests the proposed connection, or the proposed certificate.

    Raises: SetupProductMissing, SetupNotReady, Limited, OpenIdAnswerRefused, OpenIdProviderUnreachable.
    """
    proposed = await _load(ports, caller, part)
    await charge_fetch_of(ports, caller.org_id)
    now = ports.clock.now()
    ends_at = now + STATE_TTL
    flow = new_flow(now, FlowTarget.SETUP_TEST, f"{caller.link_id} {part}", digest(device_cookie), expires_at=ends_at)
    provider_request = ProviderRequest(flow=flow, connection_id=proposed.connection.id, begun_at=now, expires_at=ends_at)
    return await provider_requests.start(ports, caller, proposed, provider_request, device_cookie, base_url)


async def finish(
    ports: Ports,
    caller: Caller,
    cookie: str | None,
    provider_request: ProviderRequest,
    returned: provider_requests.ConnectionReturn,
    base_url: str,
) -> provider_requests.ConnectionTestResult:
    """Return a test's result, for the browser that has opened the link. `provider_request` was taken.

    Raises: SetupSessionMissing, SetupProductMissing, SetupNotReady.
    """
    reader = await opening.authenticate(ports, caller, cookie or refuse(SetupSessionMissing))
    # Another link, or another product, may be open in this browser since then. The values are for this test's reader alone.
    link_id, _, part = provider_request.flow.request.partition(" ")
    if link_id != str(reader.link_id):
        raise SetupSessionMissing
    proposed = await _load(ports, reader, callers.SetupPart(part), provider_request.connection_id)
    return await provider_requests.read_test(ports, reader, proposed, provider_request, returned, base_url, way_back=SETUP_STEPS_PATH)


async def _load(
    ports: Ports, reader: callers.SetupLinkCaller, part: callers.SetupPart, connection_id: UUID | None = None
) -> provider_requests.RequestedConnection:
    if part is callers.SetupPart.CERTIFICATE:
        return await renewal.load_proposed(ports, reader)
    return await connection.load_proposed(ports, reader, connection_id)
