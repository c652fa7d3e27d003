"""The page about forwarding to a SIEM: configuration, state, test, and removal."""

from typing import Any, Final

from quart import Blueprint, Response

from core.eventing import siem
from core.eventing.model.siem import PENDING_CAP, SiemNotConfigured, SiemProvider, SiemResult, SiemStatus, SiemTokenInvalid
from core.kernel.outbound import TargetInvalid
from core.kernel.roles import Capability
from entrypoints.http.api.eventing.siem import SiemRequest
from entrypoints.http.base.context import acting_member, ports
from entrypoints.http.edge.access import GIVES, SHOWS, member_page
from entrypoints.http.pages.console import console_page, organization_path, redirect_with_notice
from entrypoints.http.pages.console_forms import Fields, Form, accepts, on_refusal, serves_form
from entrypoints.http.pages.form_values import is_checked, to_model

routes = Blueprint("siem_pages", __name__)

PAGE: Final = "/app/organizations/<org_slug>/siem"
API: Final = "/api/organizations/<org_slug>/siem"
FIELDS: Final[Fields] = {SiemTokenInvalid: "token", TargetInvalid: "endpoint_url"}
PROVIDERS: Final = [
    (SiemProvider.HTTP.value, "Any server that accepts JSON"),
    (SiemProvider.SPLUNK_HEC.value, "Splunk (HTTP Event Collector)"),
    (SiemProvider.DATADOG.value, "Datadog"),
]
TESTED: Final = {200: "The result of the test."}


async def _values(typed: Form) -> dict[str, Any]:
    status = await _status()
    stored = {"provider": "http", "enabled": "yes"}
    if status is not None:
        stored = {"provider": status.provider.value, "endpoint_url": status.endpoint_url, "enabled": "yes" if status.enabled else ""}
    return {
        "path": organization_path("/siem"),
        "siem": status,
        "result": None,
        "typed": typed or stored,
        "providers": PROVIDERS,
        "most_counted": PENDING_CAP,
    }


async def _status() -> SiemStatus | None:
    try:
        return await siem.get_status(ports(), acting_member())
    except SiemNotConfigured:
        return None


@serves_form(routes, PAGE, f"GET {API}", f"POST {API}", f"POST {API}/test", f"DELETE {API}")
@member_page(Capability.INTEGRATIONS_MANAGE, GIVES)
@accepts(f"POST {API}")
@on_refusal("eventing/siem.html", _values, FIELDS)
async def configure(org_slug: str, form: Form) -> Response:
    """Forward the audit log to a SIEM."""
    data = to_model(SiemRequest, form, {"enabled": is_checked})
    await siem.configure(
        ports(), acting_member(), provider=data.provider, endpoint_url=data.endpoint_url, token=data.token, enabled=data.enabled
    )
    return redirect_with_notice("siem-saved", organization_path("/siem"))


@routes.post(f"{PAGE}/test")
@member_page(Capability.INTEGRATIONS_MANAGE, SHOWS)
@accepts(f"POST {API}/test", answers=TESTED)
async def test(org_slug: str) -> Response:
    """Send a test entry to the SIEM."""
    tested = await siem.send_test_entry(ports(), acting_member())
    return await console_page("eventing/siem.html", **{**await _values({}), "result": (tested is SiemResult.GOOD, tested.value)})


@routes.post(f"{PAGE}/remove")
@member_page(Capability.INTEGRATIONS_MANAGE, GIVES)
@accepts(f"DELETE {API}")
async def remove(org_slug: str) -> Response:
    """Stop forwarding the audit log."""
    await siem.remove(ports(), acting_member())
    return redirect_with_notice("siem-removed", organization_path("/siem"))
