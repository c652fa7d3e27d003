"""The page for an organization's mail server: settings, test, and removal."""

from typing import Any, Final

from quart import Blueprint, Response

from core.kernel.roles import Capability
from core.mailing import preparation
from core.tenancy import mail_server
from core.tenancy.model import settings as model
from core.tenancy.model.settings import MailServerCheck, MailServerNotSet, SmtpSettings
from entrypoints.http import kit
from entrypoints.http.api.tenancy.mail_server import MailServerRequest
from entrypoints.http.pages import console, console_forms, form_values

routes = Blueprint("mail_server_pages", __name__)

PAGE: Final = "/app/organizations/<org_slug>/mail-server"
API: Final = "/api/organizations/<org_slug>/smtp"
FIELDS: Final[console_forms.Fields] = {
    model.MailHostInvalid: "host",
    model.MailPortInvalid: "port",
    model.MailCredentialsIncomplete: "password",
    model.MailUsernameInvalid: "username",
    model.MailPasswordInvalid: "password",
}
TESTED: Final = {200: "The result of the test."}


async def _values(typed: console_forms.Form) -> dict[str, Any]:
    settings = await _settings()
    stored = {"port": str(model.DEFAULT_PORT), "tls": "yes"} if settings is None else _to_typed(settings)
    path = console.organization_path("/mail-server")
    return {"path": path, "settings": settings, "result": None, "typed": typed or stored}


async def _settings() -> SmtpSettings | None:
    try:
        return await mail_server.get_settings(kit.ports(), kit.acting_member())
    except MailServerNotSet:
        return None


def _to_typed(settings: SmtpSettings) -> dict[str, str]:
    return {
        "host": settings.host,
        "port": str(settings.port),
        "username": settings.username or "",
        "from_email": settings.from_email,
        "from_name": settings.from_name or "",
        "tls": "yes" if settings.tls else "",
    }


@console_forms.serves_form(routes, PAGE, f"GET {API}", f"POST {API}", f"POST {API}/test", f"DELETE {API}")
@kit.member_page(Capability.INTEGRATIONS_MANAGE, kit.GIVES)
@console_forms.accepts(f"POST {API}")
@console_forms.on_refusal("tenancy/mail_server.html", _values, FIELDS)
async def configure(org_slug: str, form: console_forms.Form) -> Response:
    """Set an organization's mail server."""
    data = form_values.to_model(MailServerRequest, form, {"port": form_values.to_number, "tls": form_values.is_checked})
    await mail_server.configure(kit.ports(), kit.acting_member(), data.build(kit.acting_member().acts_in.id))
    return console.redirect_with_notice("mail-server-saved", console.organization_path("/mail-server"))


@routes.post(f"{PAGE}/test")
@kit.member_page(Capability.INTEGRATIONS_MANAGE, kit.SHOWS_PEOPLE)
@console_forms.accepts(f"POST {API}/test", answers=TESTED)
async def test(org_slug: str) -> Response:
    """Send an email to your own address through the mail server."""
    trial = await preparation.send_test(kit.ports(), kit.acting_member())
    return await console.console_page(
        "tenancy/mail_server.html", **{**await _values({}), "result": (trial.result is MailServerCheck.GOOD, trial.message)}
    )


@routes.post(f"{PAGE}/remove")
@kit.member_page(Capability.INTEGRATIONS_MANAGE, kit.GIVES)
@console_forms.accepts(f"DELETE {API}")
async def remove(org_slug: str) -> Response:
    """Remove an organization's mail server."""
    await mail_server.remove(kit.ports(), kit.acting_member())
    return console.redirect_with_notice("mail-server-removed", console.organization_path("/mail-server"))
