"""The pages for an application's API keys."""

from typing import Any, Final
from uuid import UUID

from quart import Blueprint, Response

from core.applications import analytics, api_keys, services
from core.applications.model import api_keys as model
from core.eventing.audit import load_authors
from core.kernel.access import require_view
from core.kernel.display import format_utc
from core.kernel.roles import Capability
from entrypoints.http import kit
from entrypoints.http.api.applications.api_keys import ApiKeyRequest
from entrypoints.http.pages import consequences, console, console_forms, form_values
from entrypoints.http.pages.applications.applications import APPLICATION, SERVICE, application_path, application_values
from entrypoints.http.pages.presets import PresetQuery, boxes_of, of_permissions

routes = Blueprint("api_key_pages", __name__)

KEYS: Final = f"{APPLICATION}/api-keys"
API: Final = f"{SERVICE}/api-keys"
FIELDS: Final[console_forms.Fields] = {
    model.NoPermissions: "permissions",
    model.UnknownPermission: "permissions",
    model.DuplicatePermission: "permissions",
    model.ApiKeyAboveOwn: "permissions",
}
PERMISSION: Final = "permission:"  # the checkbox name for a permission begins with this
LISTED: Final = 1_000  # credentials to review
LIFETIMES: Final = [("", "Never"), ("30", "After 30 days"), ("90", "After 90 days"), ("365", "After a year")]


@routes.get(KEYS)
@kit.member_page(Capability.API_KEYS_VIEW)
@console.shows(f"GET {API}", f"DELETE {API}/<api_key_id>")
async def show_keys(org_slug: str, service_slug: str, query_args: kit.PartQuery) -> Response:
    """List an application's API keys."""
    service = await services.find(kit.ports(), kit.acting_member(), service_slug)
    result = await api_keys.list_keys(kit.ports(), kit.acting_member(), service_slug, query_args.limit, query_args.offset)
    return await console.console_page(
        "applications/api_keys.html",
        keys=result.items,
        to_review={each.id for each in await analytics.list_to_review(kit.ports(), kit.acting_member(), LISTED)},
        authors=await load_authors(kit.ports(), kit.acting_member(), {key.created_by for key in result.items}),
        now=kit.ports().clock.now(),
        **application_values(service),
        **console.neighbors(query_args, result.total),
    )


async def _form_values(typed: console_forms.Form, service_slug: str, query_args: PresetQuery | None = None) -> dict[str, Any]:
    service = await services.find(kit.ports(), kit.acting_member(), service_slug)
    permissions = model.grantable_permissions(kit.acting_member().acts_in.rights)
    presets = of_permissions(permissions, PERMISSION)
    typed = typed or boxes_of(presets, None if query_args is None else query_args.preset)
    values = {"typed": typed, "chosen": frozenset(form_values.checked(typed, PERMISSION)), "permissions": permissions, "presets": presets}
    return {**values, "lifetimes": LIFETIMES, **application_values(service)}


@console_forms.serves_form(routes, f"{KEYS}/new", query=PresetQuery)
@kit.member_page(Capability.API_KEYS_MANAGE, kit.GIVES)
@console_forms.accepts(f"POST {API}", answers=console_forms.answers_with("The key."))
@console_forms.once(KEYS, "Open API keys", "The key was shown once. If you didn't copy it, revoke it in the list and create another one.")
@console_forms.on_refusal("applications/new_api_key.html", _form_values, FIELDS)
async def create(org_slug: str, service_slug: str, form: console_forms.Form) -> Response:
    """Create an API key."""
    data = form_values.to_model(
        ApiKeyRequest, form, {"permissions": lambda _: form_values.checked(form, PERMISSION), "expires_in_days": form_values.to_number}
    )
    key, secret = await api_keys.create(
        console_forms.ports_once(), kit.acting_member(), service_slug, data.name, data.permissions, data.expires_in_days
    )
    return await console.secret_page(
        "API key created",
        {key.name: secret},
        advice="Programs send it in the header X-Api-Key.",
        done=("I've copied the key", f"{application_path(service_slug)}/api-keys"),
    )


async def _revocation(service_slug: str, api_key_id: UUID) -> consequences.Question:
    require_view(kit.acting_member(), Capability.API_KEYS_VIEW)
    service = await services.find(kit.ports(), kit.acting_member(), service_slug)
    key = await api_keys.find(kit.ports(), kit.acting_member(), service_slug, api_key_id)
    used = f"It was last used on {format_utc(key.last_used_at)}." if key.last_used_at else "It was never used."
    return consequences.Question(
        verb="Revoke",
        target=key.name,
        consequences=(
            consequences.sentence(
                "Programs with this key are refused at once. They can't manage the users and subscriptions of {}.", service.name
            ),
            used,
        ),
        button="Revoke key",
        keep="Keep key",
        back=("API keys", f"{application_path(service.slug)}/api-keys"),
    )


@consequences.asks(routes, f"{KEYS}/<api_key_id>/revoke")
@kit.member_page(Capability.API_KEYS_MANAGE, kit.GIVES)
@console_forms.accepts(f"DELETE {API}/<api_key_id>", f"GET {API}/<api_key_id>")
@consequences.ask_on_refusal(_revocation)
async def revoke(org_slug: str, service_slug: str, api_key_id: UUID, form: console_forms.Form) -> Response:
    """Revoke an API key."""
    await api_keys.delete(kit.ports(), kit.acting_member(), service_slug, api_key_id)
    return console.redirect_with_notice("key-revoked", f"{application_path(service_slug)}/api-keys")
