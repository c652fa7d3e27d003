"""The pages for webhooks: the list, a webhook with its settings, and its secret."""

from typing import Any, Final
from uuid import UUID

from quart import Blueprint, Response

from core.eventing import webhooks
from core.eventing.model import webhooks as webhooks_model
from core.eventing.model.webhooks import SUBSCRIBABLE, Webhook
from core.eventing.webhooks import WebhookChanges
from core.kernel.access import require_view
from core.kernel.event_catalog import EventKind
from core.kernel.outbound import TargetInvalid
from core.kernel.roles import Capability
from entrypoints.http import kit
from entrypoints.http.api.eventing.webhooks import WebhookRequest
from entrypoints.http.pages import console, console_forms, form_values

routes = Blueprint("webhook_pages", __name__)

LIST: Final = "/app/organizations/<org_slug>/webhooks"
ONE: Final = f"{LIST}/<webhook_id>"
API: Final = "/api/organizations/<org_slug>/webhooks"
API_OF_ONE: Final = f"{API}/<webhook_id>"
FIELDS: Final[console_forms.Fields] = {
    webhooks_model.WebhookNameTaken: "name",
    TargetInvalid: "url",
    webhooks_model.NoEvents: "events",
    webhooks_model.EventTypeUnknown: "events",
}
EVENT: Final = "event:"  # the checkbox name for an event type begins with this
AREA: Final = "all-of:"  # the checkbox name for a whole area begins with this


def _groups() -> dict[str, list[EventKind]]:
    """Return the event types by category."""
    groups: dict[str, list[EventKind]] = {}
    for kind in SUBSCRIBABLE.values():
        groups.setdefault(kind.category, []).append(kind)
    return dict(sorted(groups.items()))


GROUPS: Final = _groups()


def _chosen(form: console_forms.Form) -> list[str]:
    """Return the event types with a checked box or in a checked area. An area leaves out event types that must be chosen alone."""
    areas = form_values.checked(form, AREA)
    whole = [kind.name for area in areas for kind in GROUPS.get(area, ()) if not kind.by_choice]
    return list(dict.fromkeys([*form_values.checked(form, EVENT), *whole]))


def webhooks_path() -> str:
    """Return the list's path in the caller's organization."""
    return console.organization_path("/webhooks")


async def _form_values(typed: console_forms.Form) -> dict[str, Any]:
    return {"typed": typed, "chosen": frozenset(_chosen(typed)), "groups": GROUPS, "list_path": webhooks_path()}


@routes.get(LIST)
@kit.member_page(Capability.WEBHOOKS_MANAGE)
@console.shows(f"GET {API}")
async def show_webhooks(org_slug: str) -> Response:
    """List an organization's webhooks."""
    rows = await webhooks.list_webhooks(kit.ports(), kit.acting_member())
    return await console.console_page(
        "eventing/webhooks.html",
        webhooks=[(webhook, health, health.state(is_active=webhook.is_active)) for webhook, health in rows],
        path=webhooks_path(),
    )


async def _new_values(typed: console_forms.Form) -> dict[str, Any]:
    require_view(kit.acting_member(), Capability.AUDIT_VIEW)
    return await _form_values(typed)


@console_forms.serves_form(routes, f"{LIST}/new")
@kit.member_page(Capability.WEBHOOKS_MANAGE, kit.GIVES)
@console_forms.accepts(f"POST {API}", answers=console_forms.answers_with("The secret."))
@console_forms.once(LIST, "Open webhooks", "Its secret was shown once. If you didn't copy it, replace it in the settings of the webhook.")
@console_forms.on_refusal("eventing/new_webhook.html", _new_values, FIELDS)
async def create(org_slug: str, form: console_forms.Form) -> Response:
    """Create a webhook."""
    data = form_values.to_model(WebhookRequest, form, {"events": lambda _: _chosen(form)})
    webhook, secret = await webhooks.create(console_forms.ports_once(), kit.acting_member(), data.name, data.url, data.events)
    return await _secret(webhook, secret, "Webhook created", "Your receiver verifies the signature of each delivery with it.")


async def _secret(webhook: Webhook, secret: str, heading: str, advice: str) -> Response:
    path = f"{webhooks_path()}/{webhook.id}/deliveries"  # the button that sends a test is there
    return await console.secret_page(heading, {"Signing secret": secret}, advice=advice, done=("I've copied the secret", path))


async def _values(typed: console_forms.Form, webhook_id: UUID) -> dict[str, Any]:
    webhook = await webhooks.find(kit.ports(), kit.acting_member(), webhook_id)
    stored = {"name": webhook.name, "url": webhook.url, "is_active": "yes" if webhook.is_active else ""}
    stored |= dict.fromkeys((f"{EVENT}{event}" for event in webhook.events), "yes")
    values = await _form_values(typed or stored)
    return {**values, "webhook": webhook, "path": f"{webhooks_path()}/{webhook.id}"}


@console_forms.serves_form(
    routes, ONE, f"GET {API_OF_ONE}", f"PATCH {API_OF_ONE}", f"POST {API_OF_ONE}/rotate-secret", f"DELETE {API_OF_ONE}"
)
@kit.member_page(Capability.WEBHOOKS_MANAGE, kit.GIVES)
@console_forms.accepts(f"PATCH {API_OF_ONE}")
@console_forms.on_refusal("eventing/webhook.html", _values, FIELDS)
async def change(org_slug: str, webhook_id: UUID, form: console_forms.Form) -> Response:
    """Change a webhook."""
    data = form_values.to_model(WebhookRequest, form, {"events": lambda _: _chosen(form)})
    changes = WebhookChanges(name=data.name, url=data.url, event_types=data.events, is_active="is_active" in form)
    await webhooks.update(kit.ports(), kit.acting_member(), webhook_id, changes)
    return console.redirect_with_notice("webhook-saved", f"{webhooks_path()}/{webhook_id}")


@routes.post(f"{ONE}/secret")
@kit.member_page(Capability.WEBHOOKS_MANAGE, kit.GIVES)
@console_forms.accepts(f"POST {API_OF_ONE}/rotate-secret", answers=console_forms.answers_with("The secret."))
@console_forms.once(ONE, "Open the webhook", "The new secret was shown once. If you didn't copy it, replace it again.")
async def replace_secret(org_slug: str, webhook_id: UUID) -> Response:
    """Replace a webhook's secret."""
    webhook, secret = await webhooks.rotate_secret(console_forms.ports_once(), kit.acting_member(), webhook_id)
    return await _secret(webhook, secret, "Copy the new secret", "For 24 hours, deliveries also have the signature of the old secret.")


async def _unchanged(_: console_forms.Form, webhook_id: UUID) -> dict[str, Any]:
    return await _values({}, webhook_id)


@routes.post(f"{ONE}/delete")
@kit.member_page(Capability.WEBHOOKS_MANAGE, kit.GIVES)
@console_forms.accepts(f"DELETE {API_OF_ONE}")
@console_forms.on_refusal("eventing/webhook.html", _unchanged, FIELDS)
async def delete(org_slug: str, webhook_id: UUID, form: console_forms.Form) -> Response:
    """Delete a webhook and its deliveries."""
    webhook = await webhooks.find(kit.ports(), kit.acting_member(), webhook_id)
    console_forms.check_typed_name(form, webhook.name)
    await webhooks.delete(kit.ports(), kit.acting_member(), webhook.id)
    return console.redirect_with_notice("webhook-deleted", webhooks_path())
