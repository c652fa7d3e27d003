"""Where the audit log of an organization is forwarded to (decisions, point 213)."""

from typing import Annotated

from pydantic import Field
from quart import Blueprint, Response
from quart_schema import validate_request, validate_response

from core.eventing import siem, siem_rules
from core.eventing.siem_rules import SiemProvider, SiemStatus
from core.kernel.principals import Capability
from entrypoints.http.edge.access import member
from entrypoints.http.edge.bodies import Body, PasswordText, Shown, Text, Timestamp
from entrypoints.http.edge.context import acting_member, no_content, ports
from entrypoints.http.edge.openapi import describes

routes = Blueprint("siem", __name__)

Kind = Annotated[SiemProvider, Field(strict=False)]


class NewSiem(Body):
    """All of the configuration; what was there before is gone, the token included.

    `http` is posted a JSON array of entries as the audit log shows them, with the token as `Authorization: Bearer`; `splunk_hec` events for
    its HTTP Event Collector, and `datadog` logs. `endpoint_url` is the whole address. Without `enabled` nothing is forwarded, and what
    happens meanwhile is not either, later; what waits already stays.
    """

    provider: Kind
    endpoint_url: Text
    token: PasswordText
    enabled: bool = True


class SiemShown(Shown):
    """Where the log is forwarded to, and how that goes. The token is told to nobody.

    `last_error` is why nothing was taken since `failing_since`; both are null while it goes well. `pending_count` is how many entries wait,
    and 10000 stands for that many or more.
    """

    provider: SiemProvider
    endpoint_url: str
    enabled: bool
    updated_at: Timestamp
    last_success_at: Timestamp | None
    last_error: str | None
    failing_since: Timestamp | None
    pending_count: int


def _show(standing: SiemStatus) -> SiemShown:
    return SiemShown(
        provider=standing.provider,
        endpoint_url=standing.endpoint_url,
        enabled=standing.enabled,
        updated_at=standing.updated_at,
        last_success_at=standing.last_success_at,
        last_error=None if standing.last_failure is None else standing.last_failure.value,
        failing_since=standing.failing_since,
        pending_count=standing.pending,
    )


@routes.post("/api/organizations/<org_slug>/siem")
@member(Capability.INTEGRATIONS_MANAGE)
@validate_request(NewSiem)
@validate_response(SiemShown)
async def configure(org_slug: str, data: NewSiem) -> SiemShown:
    """Forward the audit log to a SIEM of your own: each entry from now on, at least once and in order."""
    standing = await siem.configure(
        ports(), acting_member(), provider=data.provider, endpoint_url=data.endpoint_url, token=data.token, enabled=data.enabled
    )
    return _show(standing)


@routes.get("/api/organizations/<org_slug>/siem")
@member(Capability.INTEGRATIONS_MANAGE)
@validate_response(SiemShown)
async def configuration(org_slug: str) -> SiemShown:
    """Show where the audit log is forwarded to, and how that goes."""
    return _show(await siem.current(ports(), acting_member()))


@routes.delete("/api/organizations/<org_slug>/siem")
@member(Capability.INTEGRATIONS_MANAGE)
@describes({204: "The audit log is forwarded nowhere, and what waited is not either."})
async def remove(org_slug: str) -> Response:
    """Forward the audit log no more."""
    await siem.remove(ports(), acting_member())
    return no_content()


class SiemTried(Shown):
    """Whether the SIEM took the entry, and if not, why."""

    success: bool
    message: str


@routes.post("/api/organizations/<org_slug>/siem/test")
@member(Capability.INTEGRATIONS_MANAGE)
@validate_response(SiemTried)
async def test(org_slug: str) -> SiemTried:
    """Send one entry with the action siem.test, which is in no log."""
    result = await siem.try_out(ports(), acting_member())
    return SiemTried(success=result is siem_rules.SiemResult.GOOD, message=result.value)
