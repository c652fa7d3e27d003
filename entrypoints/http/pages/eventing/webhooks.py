"""The pages of webhooks: the list, a webhook with its settings, and its secret."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from quart import Blueprint, Response

from core.eventing import webhooks
from core.eventing.model import webhooks as webhooks_model
from core.eventing.model.webhooks import SUBSCRIBABLE, Webhook
from core.eventing.webhooks import WebhookChanges
from core.kernel.errors import Refusal
from core.kernel.outbound import TargetInvalid
from core.kernel.roles import Capability
from entrypoints.http.api.eventing.webhooks import WebhookRequest
from entrypoints.http.edge.access import member_page
from entrypoints.http.edge.context import acting_member, ports
from entrypoints.http.edge.queries import path_id
from entrypoints.http.pages.console import (
    FOREIGN_FORM,
    NOT_ACCEPTED,
    accepts,
    check_typed_name,
    console_page,
    once,
    organization_path,
    ports_once,
    read_console_form,
    redirect_with_notice,
    refused_console_page,
    secret_page,
    shows,
    to_model,
    wrong_field,
)

routes = Blueprint("webhook_pages", __name__)

LIST: Final = "/app/organizations/<org_slug>/webhooks"
ONE: Final = f"{LIST}/<webhook_id>"
API: Final = "/api/organizations/<org_slug>/webhooks"
API_OF_ONE: Final = f"{API}/<webhook_id>"
FIELDS: Final[Mapping[type[Refusal], str]] = {
    webhooks_model.WebhookNameTaken: "name",
    TargetInvalid: "url",
    webhooks_model.NoEvents: "events",
    webhooks_model.EventTypeUnknown: "events",
}
EVENT: Final = "event:"  # the name of the checkbox of an event type begins with this
SHOWN_ONCE: Final = {200: "The secret.", 400: NOT_ACCEPTED, 403: FOREIGN_FORM}


def _groups() -> dict[str, list[tuple[str, str]]]:
    """Return the event types by category: name and label."""
    groups: dict[str, list[tuple[str, str]]] = {}
    for kind in SUBSCRIBABLE.values():
        groups.setdefault(kind.category, []).append((kind.name, kind.label))
    return dict(sorted(groups.items()))


GROUPS: Final = _groups()


def webhooks_path() -> str:
    """Return the path of the list in the caller's organization."""
    return organization_path("/webhooks")


def _chosen(form: Mapping[str, str]) -> list[str]:
    return [name.removeprefix(EVENT) for name in form if name.startswith(EVENT)]


def _form_values(typed: Mapping[str, Any], chosen: Sequence[str]) -> dict[str, Any]:
    return {"typed": typed, "chosen": frozenset(chosen), "groups": GROUPS, "list_path": webhooks_path()}


@routes.get(LIST)
@member_page(Capability.WEBHOOKS_MANAGE)
@shows(f"GET {API}")
async def show_webhooks(org_slug: str) -> Response:
    """List the webhooks of an organization."""
    return await console_page(
        "eventing/webhooks.html", webhooks=await webhooks.list_webhooks(ports(), acting_member()), path=webhooks_path()
    )


@routes.get(f"{LIST}/new")
@member_page(Capability.WEBHOOKS_MANAGE)
@shows(f"POST {API}")
async def show_form(org_slug: str) -> Response:
    """Show the form that creates a webhook."""
    return await console_page("eventing/new_webhook.html", **_form_values({}, ()))


@routes.post(f"{LIST}/new")
@member_page(Capability.WEBHOOKS_MANAGE, outlives=True)
@accepts(f"POST {API}", answers=SHOWN_ONCE)
@once(
    LIST,
    "Open webhooks",
    "Its secret was shown once. If you didn't copy it, replace it in the settings of the webhook.",
)
async def create(org_slug: str) -> Response:
    """Create a webhook.

    Its secret is shown only once.
    """
    form = await read_console_form()
    chosen = _chosen(form)
    try:
        data = to_model(WebhookRequest, form, {"events": lambda _: chosen})
        webhook, secret = await webhooks.create(ports_once(), acting_member(), data.name, data.url, data.events)
    except Refusal as refusal:
        values = {"wrong": wrong_field(refusal, FIELDS), **_form_values(form, chosen)}
        return await refused_console_page(refusal, "eventing/new_webhook.html", **values)
    return await _secret(webhook, secret, "Webhook created", "Your receiver verifies the signature of each delivery with it.")


async def _secret(webhook: Webhook, secret: str, heading: str, advice: str) -> Response:
    path = f"{webhooks_path()}/{webhook.id}"
    return await secret_page(heading, {"Signing secret": secret}, advice=advice, done=("I've copied the secret", path))


async def _values(webhook: Webhook, typed: Mapping[str, Any] | None = None, chosen: Sequence[str] | None = None) -> dict[str, Any]:
    stored = {"name": webhook.name, "url": webhook.url, "is_active": "yes" if webhook.is_active else ""}
    values = _form_values(stored if typed is None else typed, webhook.events if chosen is None else chosen)
    return {**values, "webhook": webhook, "path": f"{webhooks_path()}/{webhook.id}"}


@routes.get(ONE)
@member_page(Capability.WEBHOOKS_MANAGE)
@shows(f"GET {API_OF_ONE}", f"PATCH {API_OF_ONE}", f"POST {API_OF_ONE}/rotate-secret", f"DELETE {API_OF_ONE}")
async def show_webhook(org_slug: str, webhook_id: str) -> Response:
    """Show the settings of a webhook."""
    webhook = await webhooks.find(ports(), acting_member(), path_id(webhook_id))
    return await console_page("eventing/webhook.html", **await _values(webhook))


@routes.post(ONE)
@member_page(Capability.WEBHOOKS_MANAGE, outlives=True)
@accepts(f"PATCH {API_OF_ONE}")
async def change(org_slug: str, webhook_id: str) -> Response:
    """Change a webhook."""
    webhook = await webhooks.find(ports(), acting_member(), path_id(webhook_id))
    form = await read_console_form()
    chosen = _chosen(form)
    try:
        data = to_model(WebhookRequest, form, {"events": lambda _: chosen})
        changes = WebhookChanges(name=data.name, url=data.url, event_types=data.events, is_active="is_active" in form)
        await webhooks.update(ports(), acting_member(), webhook.id, changes)
    except Refusal as refusal:
        values = {"wrong": wrong_field(refusal, FIELDS), **await _values(webhook, form, chosen)}
        return await refused_console_page(refusal, "eventing/webhook.html", **values)
    return redirect_with_notice("webhook-saved", f"{webhooks_path()}/{webhook.id}")


@routes.post(f"{ONE}/secret")
@member_page(Capability.WEBHOOKS_MANAGE, outlives=True)
@accepts(f"POST {API_OF_ONE}/rotate-secret", answers=SHOWN_ONCE)
@once(ONE, "Open the webhook", "The new secret was shown once. If you didn't copy it, replace it again.")
async def replace_secret(org_slug: str, webhook_id: str) -> Response:
    """Replace the secret of a webhook.

    The new secret is shown only once.
    """
    await read_console_form()
    webhook, secret = await webhooks.rotate_secret(ports_once(), acting_member(), path_id(webhook_id))
    return await _secret(webhook, secret, "Copy the new secret", "For 24 hours, deliveries also have the signature of the old secret.")


@routes.post(f"{ONE}/delete")
@member_page(Capability.WEBHOOKS_MANAGE, outlives=True)
@accepts(f"DELETE {API_OF_ONE}")
async def delete(org_slug: str, webhook_id: str) -> Response:
    """Delete a webhook and its deliveries."""
    form = await read_console_form()
    webhook = await webhooks.find(ports(), acting_member(), path_id(webhook_id))
    try:
        check_typed_name(form, webhook.name)
        await webhooks.delete(ports(), acting_member(), webhook.id)
    except Refusal as refusal:
        values = {"wrong": wrong_field(refusal, FIELDS), **await _values(webhook)}
        return await refused_console_page(refusal, "eventing/webhook.html", **values)
    return redirect_with_notice("webhook-deleted", webhooks_path())
