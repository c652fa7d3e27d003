"""The pages for an organization's applications: the list, the values to copy into an application, and its settings (decision 264).

They call the same use cases as the services API, for the same members.
"""

from typing import Any, Final

from pydantic import Field
from quart import Blueprint, Response

from core.applications import services
from core.applications.model.client_settings import MIN_TOKEN_SECONDS
from core.applications.model.services import (
    POST_LOGOUT_REDIRECT_URIS,
    REDIRECT_URIS,
    FormerSecretWorks,
    NoClientSecret,
    Service,
    ServiceOrder,
    ServiceType,
    UnregisteredUri,
)
from core.authentication import sign_in_log
from core.federation.oauth.model.end_session import END_SESSION_PATH
from core.kernel import errors
from core.kernel.display import format_utc
from core.kernel.rate_limits import IMAGE_UPLOAD
from core.kernel.roles import Capability
from core.tenancy.model.groups import SharedNameTaken
from entrypoints.http import kit
from entrypoints.http.pages import console, console_forms
from entrypoints.http.pages.applications import client_settings

routes = Blueprint("applications", __name__)

APPLICATIONS: Final = "/app/organizations/<org_slug>/applications"
APPLICATION: Final = f"{APPLICATIONS}/<service_slug>"
PAGE_SIZE: Final = 50
SERVICE: Final = "/api/organizations/<org_slug>/services/<service_slug>"  # in the API
ROTATION: Final = f"POST {SERVICE}/rotate-secret"
SECRET: Final = f"{APPLICATION}/secret"
OVERLAPS: Final = {"": 0, "1 hour": 3600, "1 day": 86_400, "7 days": 7 * 86_400}  # seconds for which the old secret still works
DEFAULT_OVERLAP: Final = "1 day"


# The groups on the first settings page, and the page names for the further groups.
GROUP_NAMES: Final = {
    "consent": "Consent",
    "security": "Security",
    "keys": "Keys",
    "lifetimes": "Token lifetimes",
    "scopes": "Scopes",
}


def application_path(service_slug: str) -> str:
    """Return the path to an application's page in the caller's organization."""
    return console.organization_path(f"/applications/{service_slug}")


def application_values(service: Service) -> dict[str, Any]:
    """Return the values that all pages about an application have."""
    return {
        "applications_path": console.organization_path("/applications"),
        "path": application_path(service.slug),
        "application": {
            "id": service.id,
            "name": service.name,
            "type": kit.label(service.service_type),
            "is_public": service.service_type.is_public,
            "logo_url": service.logo_url,
        },
    }


def values_to_copy(service: Service) -> list[tuple[str, str, str]]:
    """Return the values that an application's own settings need: label, value and hint."""
    base = kit.app_context().base_url
    if service.service_type.is_public:
        authentication = ("none", "This application has no secret. It uses PKCE with S256.")
    elif service.has_keys:
        authentication = ("private_key_jwt", "The client secret works, too: client_secret_basic or client_secret_post.")
    else:
        authentication = ("client_secret_basic", "Or client_secret_post. Add PKCE with S256 if your library supports it.")
    return [
        ("Issuer", base, "Most libraries find the rest with it."),
        ("Discovery URL", f"{base}/.well-known/openid-configuration", ""),
        ("Client ID", str(service.client_id), ""),
        ("Token endpoint authentication", *authentication),
        ("End-session URL", f"{base}{END_SESSION_PATH}", "Send users here to sign them out."),
    ]


class ApplicationsQuery(kit.Query):
    """The search, the filter, the order, and the position in the list."""

    search: kit.Text | None = Field(None, description="A part of the name or the slug, or the client id.")
    service_type: ServiceType | None = Field(None, description="Only applications of this type.")
    sort: ServiceOrder = Field(ServiceOrder.NAME, description="The order: `name` or `created`.")
    offset: kit.Offset = 0


@routes.get(APPLICATIONS)
@kit.member_page(Capability.SERVICES_VIEW)
@kit.refuses(403)
@console.shows("GET /api/organizations/<org_slug>/services")
async def show_applications(org_slug: str, query_args: ApplicationsQuery) -> Response:
    """List an organization's applications."""
    batches, quota = await services.list_services(
        kit.ports(),
        kit.acting_member(),
        query_args.service_type,
        PAGE_SIZE + 1,  # an extra row tells whether there is a next page
        query_args.offset,
        search=query_args.search,
        order=query_args.sort,
    )
    result = [summary.service async for batch in batches for summary in batch]
    last = (
        await sign_in_log.load_last_sign_ins(kit.ports(), kit.acting_member(), [each.id for each in result])
        if console.may(Capability.SIGN_INS_VIEW)
        else None
    )
    return await console.console_page(
        "applications/applications.html",
        path=console.organization_path("/applications"),
        applications=[
            {
                "name": each.name,
                "type": kit.label(each.service_type),
                "path": application_path(each.slug),
                "created": each.created_at,
                "last_sign_in": last.get(each.id) if last is not None else None,
                "logo_url": each.logo_url,
            }
            for each in result[:PAGE_SIZE]
        ],
        shows_sign_ins=last is not None,
        quota=quota,
        types=[("", "All types"), *kit.LABELS[ServiceType].items()],
        query=query_args,
        previous=console.with_query(offset=max(0, query_args.offset - PAGE_SIZE) or None) if query_args.offset else None,
        next=console.with_query(offset=query_args.offset + PAGE_SIZE) if len(result) > PAGE_SIZE else None,
    )


def _settings(service: Service) -> dict[str, list[dict[str, Any]]]:
    """Return the fields in every settings group."""
    policy, longest = kit.ports().policy, client_settings.longest_lifetimes()
    labels = {f"{provider}_scopes": f"Scopes at {name}" for provider, name in policy.provider_names.items()}
    email = ("", f"As on this platform ({'on' if policy.email_sign_in else 'off'})")
    options = {
        "service_type": list(kit.LABELS[ServiceType].items()),
        "email_sign_in": [email, ("yes", "On"), ("no", "Off")],
        "required_acr": [("", "As the application asks"), ("mfa", "Two-factor authentication"), ("phr", "A passkey")],
    }

    def to_field(name: str) -> dict[str, Any]:
        setting = client_settings.ON_PAGE[name]
        return {
            "name": name,
            "label": labels.get(name, setting.label),
            "hint": setting.hint and setting.hint.format(shortest=MIN_TOKEN_SECONDS, longest=longest.get(name)),
            "is_switch": name in client_settings.SWITCHES,
            "options": options.get(name),
            "lines": setting.lines,
            "inputmode": setting.inputmode,
        }

    return {group: [to_field(name) for name in client_settings.group_fields(group, service)] for group in client_settings.GROUPS}


async def _page_values(service: Service, group: str = "", sent: UnregisteredUri | None = None) -> dict[str, Any]:
    """Return the values for the page with a settings group.

    Members who cannot change settings get no forms.

    `sent` stands in a field, not saved.
    """
    groups = _settings(service) if console.may("services.manage") else {}
    shown = group if group in GROUP_NAMES and groups.get(group) else ""
    return {
        **application_values(service),
        "shown": shown,
        "subpages": [("", "Basics"), *((name, text) for name, text in GROUP_NAMES.items() if groups.get(name))],
        "values": values_to_copy(service),
        "groups": groups,
        "labels": {field["name"]: field["label"] for fields in groups.values() for field in fields},
        "former_secret_until": _former_secret_until(service),
        "confirmation": console.confirmation_path(console.organization_path(f"/applications/{service.slug}")),
        "registered_with": service.registered_with,
        **({"activity": None} if shown else await activity_values(service, waits=False)),
        "sent": None if sent is None else {"setting": sent.setting, "new_host": sent.new_host},
    }


class SettingsGroupNotFound(errors.NotFound):
    """This application has no such settings. Open its page to see its settings."""


class SentUriQuery(kit.Query):
    """A URI that an application's request had, and that is not registered. It stands in its field, and is not saved."""

    redirect_uris: kit.Text | None = Field(None, description="The redirect URI that was sent.")
    post_logout_redirect_uris: kit.Text | None = Field(None, description="The post-logout redirect URI that was sent.")


@routes.get(APPLICATION)
@kit.member_page(Capability.SERVICES_VIEW)
@kit.refuses(400, 403)
@console.shows(f"GET {SERVICE}", f"PATCH {SERVICE}")
async def show_application(org_slug: str, service_slug: str, query_args: SentUriQuery) -> Response:
    """Show an organization's application.

    The page has the values to copy into the application. For admins, it also has its basic settings.
    """
    service = await services.find(kit.ports(), kit.acting_member(), service_slug)
    typed, sent = client_settings.stored_values(service), None
    for name in (REDIRECT_URIS, POST_LOGOUT_REDIRECT_URIS):
        uri = (getattr(query_args, name) or "").strip()
        unregistered = UnregisteredUri(uri, name, service)
        if uri and uri not in service.setting(name) and unregistered.flaw is None:
            typed[name], sent = f"{typed[name]}\n{uri}".strip(), unregistered
    return await console.console_page("applications/application.html", typed=typed, **await _page_values(service, sent=sent))


@routes.get(f"{APPLICATION}/settings/<group>")
@kit.member_page(Capability.SERVICES_MANAGE)
@kit.refuses(403, 404)
@console.shows(f"PATCH {SERVICE}")
async def show_settings(org_slug: str, service_slug: str, group: str) -> Response:
    """Show a group of an application's settings, such as `security`. Their form is sent to the application's page."""
    service = await services.find(kit.ports(), kit.acting_member(), service_slug)
    if group not in GROUP_NAMES or not client_settings.group_fields(group, service):
        raise SettingsGroupNotFound
    typed = client_settings.stored_values(service)
    return await console.console_page("applications/application.html", typed=typed, **await _page_values(service, group))


@routes.post(APPLICATION)
@kit.member_page(Capability.SERVICES_MANAGE, kit.GIVES)
@console_forms.accepts(f"PATCH {SERVICE}", form=["form_token", "group"])
@console_forms.restores
async def change_application(org_slug: str, service_slug: str, form: console_forms.Form) -> Response:
    """Change a group of an application's settings. The form has all fields in the group. Settings in other groups stay as they are."""
    service = await services.find(kit.ports(), kit.acting_member(), service_slug)
    group = form.get("group", "")
    typed = client_settings.typed_values(form, client_settings.group_fields(group, service))
    if console_forms.is_restored():
        values = {**await _page_values(service, group), "typed": {**client_settings.stored_values(service), **typed}}
        return await console_forms.restored_console_page("applications/application.html", **values)
    try:
        await services.update(kit.ports(), kit.acting_member(), service_slug, client_settings.parse_settings(typed))
    except (errors.Invalid, SharedNameTaken) as refusal:
        return await _refused_settings(refusal, service, group, typed)
    path = application_path(service.slug)
    return console.redirect_with_notice(f"settings-{group}", f"{path}/settings/{group}" if group in GROUP_NAMES else path)


async def _refused_settings(refusal: errors.Invalid | SharedNameTaken, service: Service, group: str, typed: dict[str, Any]) -> Response:
    wrong = "name" if isinstance(refusal, SharedNameTaken) else client_settings.refused_field(refusal, group, typed)
    values = {**await _page_values(service, group), "typed": {**client_settings.stored_values(service), **typed}}
    return await console_forms.refused_console_page(refusal, "applications/application.html", wrong=wrong, **values)


# The logo


async def _logo_values(_: console_forms.Form, service_slug: str) -> dict[str, Any]:
    service = await services.find(kit.ports(), kit.acting_member(), service_slug)
    return {**await _page_values(service), "typed": client_settings.stored_values(service)}


@routes.post(f"{APPLICATION}/logo")
@kit.member_page(Capability.SERVICES_MANAGE, kit.CHANGES, limit=IMAGE_UPLOAD)
@console_forms.accepts_image(f"PUT {SERVICE}/logo", "applications/application.html", _logo_values)
async def upload_logo(org_slug: str, service_slug: str, form: console_forms.Form) -> Response:
    """Upload an application's logo. Users see it on the pages on which they sign in."""
    await services.set_logo(kit.ports(), kit.acting_member(), service_slug, kit.uploaded_file())
    return console.redirect_with_notice("logo-saved", application_path(service_slug))


@routes.post(f"{APPLICATION}/logo/remove")
@kit.member_page(Capability.SERVICES_MANAGE, kit.CHANGES)
@console_forms.accepts(f"DELETE {SERVICE}/logo")
async def remove_logo(org_slug: str, service_slug: str) -> Response:
    """Remove an application's logo."""
    await services.remove_logo(kit.ports(), kit.acting_member(), service_slug)
    return console.redirect_with_notice("logo-removed", application_path(service_slug))


# The client secret


def _former_secret_until(service: Service) -> str | None:
    until = service.former_secret_expires_at
    return format_utc(until) if until is not None and service.former_secret_works(kit.ports().clock.now()) else None


async def _secret_values(typed: console_forms.Form, service_slug: str) -> dict[str, Any]:
    service = await services.find(kit.ports(), kit.acting_member(), service_slug)
    chosen = typed.get("overlap", "") if typed else DEFAULT_OVERLAP
    values = {"overlaps": list(OVERLAPS)[1:], "chosen": chosen, "former_secret_until": _former_secret_until(service)}
    return {**application_values(service), **values}


@routes.get(SECRET)
@kit.member_page(Capability.SERVICES_MANAGE)
@kit.refuses(400, 403)
@kit.describes_page({200: "The form."}, api=[ROTATION])
async def show_secret_form(org_slug: str, service_slug: str) -> Response:
    """Show the form that replaces the client secret."""
    service = await services.find(kit.ports(), kit.acting_member(), service_slug)
    if service.service_type.is_public:
        raise NoClientSecret
    return await console.console_page("applications/application_secret.html", **await _secret_values({}, service_slug))


@routes.post(SECRET)
@kit.member_page(Capability.SERVICES_MANAGE, kit.GIVES)
@console_forms.accepts(ROTATION, answers=console_forms.answers_with("The new secret."), form=["form_token", "overlap"])
@console_forms.once(APPLICATION, "Open the application", "The new secret was shown once. If you didn't copy it, replace it again.")
@console_forms.on_refusal(
    "applications/application_secret.html",
    _secret_values,
    lambda refusal, _: "ends_former" if isinstance(refusal, FormerSecretWorks) else "overlap",
    refusals=(errors.Invalid,),
)
async def replace_secret(org_slug: str, service_slug: str, form: console_forms.Form) -> Response:
    """Replace the client secret."""
    overlap = form.get("overlap", "")
    secret = await services.rotate_secret(
        console_forms.ports_once(), kit.acting_member(), service_slug, OVERLAPS.get(overlap, -1), ends_former="ends_former" in form
    )
    return await console.secret_page(
        "Copy the new secret",
        {"Client secret": secret},
        advice=f"The old secret works for {overlap} more." if overlap else "The old secret has stopped working.",
        done=("I've copied the secret", application_path(service_slug)),
    )


async def activity_values(service: Service, *, waits: bool) -> dict[str, Any]:
    """Return the values for `applications/_activity.html`.

    The user sees the activity if they may see the sign-in log.

    If the page `waits` for the first sign-in, a script looks again, and a link does the same.
    """
    visible = console.may(Capability.SIGN_INS_VIEW)
    return {
        "activity": await sign_in_log.load_activity(kit.ports(), kit.acting_member(), service.id) if visible else None,
        "failure_label": kit.failure_label,
        "polls": waits,
        "setup": console.organization_path(f"/applications/{service.slug}/setup") if waits else None,
    }
