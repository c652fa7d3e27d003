"""Forwarding an organization's audit log to its SIEM."""

from typing import Annotated

from pydantic import Field
from quart import Blueprint

from core.eventing import siem
from core.eventing.model.siem import SiemProvider, SiemResult, SiemStatus
from core.kernel.outbound import LONGEST_URL
from core.kernel.roles import Capability
from entrypoints.http import kit

routes = Blueprint("siem", __name__)


class SiemRequest(kit.RequestModel):
    """A complete SIEM configuration. It replaces the present configuration, including the token."""

    provider: Annotated[SiemProvider, Field(strict=False)] = Field(
        description="The requests' format. `http`: a JSON array of entries as in the audit log, with the token as "
        "`Authorization: Bearer`. `splunk_hec`: events for Splunk's HTTP Event Collector. `datadog`: logs for"
        " Datadog."
    )
    endpoint_url: kit.Text = Field(
        description=f"The complete URL that receives the entries, of at most {LONGEST_URL} characters.",
        examples=["https://siem.example.com/collect"],
    )
    token: kit.PasswordText = Field(description="The token of the SIEM: printable ASCII characters without spaces. It is never returned.")
    enabled: bool = Field(
        default=True,
        description="Whether entries are forwarded. Entries that are recorded while this is false are not forwarded later. Entries that "
        "are already queued stay in the queue.",
    )


class SiemResponse(kit.ResponseModel):
    """A SIEM configuration without its token, and the forwarding state."""

    provider: SiemProvider = Field(description="The format of the requests.")
    endpoint_url: str = Field(description="The URL that receives the entries.")
    enabled: bool = Field(description="Whether entries are forwarded.")
    updated_at: kit.Timestamp = Field(description="The time of this configuration's last change.")
    last_success_at: kit.Timestamp | None = Field(description="The time when the SIEM last accepted entries, or null.")
    last_error: str | None = Field(description="The reason for the last failure, or null since the last success.")
    failing_since: kit.Timestamp | None = Field(description="The time of the first failure since the last success, or null.")
    pending_count: int = Field(description="The number of queued entries. 10000 means 10000 or more.")


def _to_response(status: SiemStatus) -> SiemResponse:
    return SiemResponse.of(
        status, last_error=None if status.last_failure is None else status.last_failure.value, pending_count=status.pending
    )


@routes.post("/api/organizations/<org_slug>/siem")
@kit.member(Capability.INTEGRATIONS_MANAGE, kit.GIVES)
async def configure(org_slug: str, data: SiemRequest) -> SiemResponse:
    """Forward the audit log to a SIEM.

    The SIEM receives every entry that is recorded from now on at least once, and in order. The request replaces the
    present configuration; queued entries then go to the new SIEM.
    """
    status = await siem.configure(
        kit.ports(), kit.acting(), provider=data.provider, endpoint_url=data.endpoint_url, token=data.token, enabled=data.enabled
    )
    return _to_response(status)


@routes.get("/api/organizations/<org_slug>/siem")
@kit.member(Capability.INTEGRATIONS_MANAGE)
async def get_status(org_slug: str) -> SiemResponse:
    """Get the SIEM configuration and the forwarding state.

    The token is not returned.
    """
    return _to_response(await siem.get_status(kit.ports(), kit.acting()))


@routes.delete("/api/organizations/<org_slug>/siem")
@kit.member(Capability.INTEGRATIONS_MANAGE, kit.GIVES)
@kit.describes({204: "The configuration is removed."})
async def remove(org_slug: str) -> None:
    """Stop forwarding the audit log.

    Removes the configuration. Queued entries are not sent.
    """
    await siem.remove(kit.ports(), kit.acting())


class SiemTestResponse(kit.ResponseModel):
    """A test's result."""

    success: bool = Field(description="Whether the SIEM accepted the entry.")
    message: str = Field(description="The result in a sentence, with the reason for a failure.")


@routes.post("/api/organizations/<org_slug>/siem/test")
@kit.member(Capability.INTEGRATIONS_MANAGE, kit.SHOWS)
async def send_test_entry(org_slug: str) -> SiemTestResponse:
    """Send a test entry to the SIEM.

    The entry has the action `siem.test` and is not in the audit log. It is sent even if forwarding is disabled. An
    organization can run one test at a time.
    """
    result = await siem.send_test_entry(kit.ports(), kit.acting())
    return SiemTestResponse(success=result is SiemResult.GOOD, message=result.value)
