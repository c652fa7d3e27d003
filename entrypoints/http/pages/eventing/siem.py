"""The page about forwarding to a SIEM: configuration, state, test, and removal."""

from typing import Any, Final

from quart import Blueprint, Response

from core.eventing import siem
from core.eventing.model.siem import PENDING_CAP, SiemNotConfigured, SiemProvider, SiemResult, SiemStatus, SiemTokenInvalid
from core.kernel.outbound import TargetInvalid
from core.kernel.roles import Capability
from entrypoints.http import kit
from entrypoints.http.api.eventing.siem import SiemRequest
from entrypoints.http.pages import console, console_forms, form_values

routes = Blueprint("siem_pages", __name__)

PAGE: Final = "/app/organizations/<org_slug>/siem"
API: Final = "/api/organizations/<org_slug>/siem"
FIELDS: Final[console_forms.Fields] = {SiemTokenInvalid: "token", TargetInvalid: "endpoint_url"}
PROVIDERS: Final = [
    (SiemProvider.HTTP.value, "Any server that accepts JSON"),
    (SiemProvider.SPLUNK_HEC.value, "Splunk (HTTP Event Collector)"),
    (SiemProvider.DATADOG.value, "Datadog"),
]
TESTED: Final = {200: "The result of the test."}


async def _values(typed: console_forms.Form) -> dict[str, Any]:
    status = await _status()
    stored = {"provider": "http", "enabled": "yes"}
    if status is not None:
        stored = {"provider": status.provider.value, "endpoint_url": status.endpoint_url, "enabled": "yes" if status.enabled else ""}
    return {
        "path": console.organization_path("/siem"),
        "siem": status,
        "result": None,
        "typed": typed or stored,
        "providers": PROVIDERS,
        "most_counted": PENDING_CAP,
    }


async def _status() -> SiemStatus | None:
    try:
        return await siem.get_status(kit.ports(), kit.acting_member())
    except SiemNotConfigured:
        return None


@console_forms.serves_form(routes, PAGE, f"GET {API}", f"POST {API}", f"POST {API}/test", f"DELETE {API}")
@kit.member_page(Capability.INTEGRATIONS_MANAGE, kit.GIVES)
@console_forms.accepts(f"POST {API}")
@console_forms.on_refusal("eventing/siem.html", _values, FIELDS)
async def configure(org_slug: str, form: console_forms.Form) -> Response:
    """Forward the audit log to a SIEM."""
    data = form_values.to_model(SiemRequest, form, {"enabled": form_values.is_checked})
    await siem.configure(
        kit.ports(), kit.acting_member(), provider=data.provider, endpoint_url=data.endpoint_url, token=data.token, enabled=data.enabled
    )
    return console.redirect_with_notice("siem-saved", console.organization_path("/siem"))


@routes.post(f"{PAGE}/test")
@kit.member_page(Capability.INTEGRATIONS_MANAGE, kit.SHOWS)
@console_forms.accepts(f"POST {API}/test", answers=TESTED)
async def test(org_slug: str) -> Response:
    """Send a test entry to the SIEM."""
    tested = await siem.send_test_entry(kit.ports(), kit.acting_member())
    return await console.console_page("eventing/siem.html", **{**await _values({}), "result": (tested is SiemResult.GOOD, tested.value)})


@routes.post(f"{PAGE}/remove")
@kit.member_page(Capability.INTEGRATIONS_MANAGE, kit.GIVES)
@console_forms.accepts(f"DELETE {API}")
async def remove(org_slug: str) -> Response:
    """Stop forwarding the audit log."""
    await siem.remove(kit.ports(), kit.acting_member())
    return console.redirect_with_notice("siem-removed", console.organization_path("/siem"))
