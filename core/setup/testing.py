"""Test sign-ins by a set-up link's reader, at the proposed connection or with a renewed certificate.

A test signs no user in, looks no account up, and stores nothing but the browser's trip.
"""

from uuid import UUID

from core.authentication.flow.model import ConnectionTrip, FlowTarget, new_flow
from core.federation.connections import trips
from core.federation.connections.model.saml import ProviderVisit
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


async def begin(ports: Ports, caller: callers.SetupLinkCaller, part: callers.SetupPart, device_cookie: str, base_url: str) -> ProviderVisit:
    """Return the place at the identity provider at which the reader tests the proposed connection, or the proposed certificate.

    Raises: SetupProductMissing, SetupNotReady, Limited, OpenIdAnswerRefused, OpenIdProviderUnreachable.
    """
    proposed = await _load(ports, caller, part)
    await charge_fetch_of(ports, caller.org_id)
    now = ports.clock.now()
    ends_at = now + STATE_TTL
    flow = new_flow(now, FlowTarget.SETUP_TEST, f"{caller.link_id} {part}", digest(device_cookie), expires_at=ends_at)
    trip = ConnectionTrip(flow=flow, connection_id=proposed.connection.id, begun_at=now, expires_at=ends_at)
    return await trips.start(ports, caller, proposed, trip, device_cookie, base_url)


async def finish(
    ports: Ports, caller: Caller, cookie: str | None, trip: ConnectionTrip, returned: trips.ConnectionReturn, base_url: str
) -> trips.ConnectionTestResult:
    """Return a test's result, for the browser that has opened the link. `trip` was taken.

    Raises: SetupSessionMissing, SetupProductMissing, SetupNotReady.
    """
    reader = await opening.authenticate(ports, caller, cookie or refuse(SetupSessionMissing))
    # Another link, or another product, may be open in this browser since then. The values are for this test's reader alone.
    link_id, _, part = trip.flow.request.partition(" ")
    if link_id != str(reader.link_id):
        raise SetupSessionMissing
    proposed = await _load(ports, reader, callers.SetupPart(part), trip.connection_id)
    return await trips.read_test(ports, reader, proposed, trip, returned, base_url, way_back=SETUP_STEPS_PATH)


async def _load(
    ports: Ports, reader: callers.SetupLinkCaller, part: callers.SetupPart, connection_id: UUID | None = None
) -> trips.TripConnection:
    if part is callers.SetupPart.CERTIFICATE:
        return await renewal.load_proposed(ports, reader)
    return await connection.load_proposed(ports, reader, connection_id)
