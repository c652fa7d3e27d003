"""The wizard that creates an application: its kind, its name and address, and then the values to copy."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from pydantic import Field
from quart import Blueprint, Response

from core.applications import access, services
from core.applications.model import services as model
from core.applications.model.services import POST_LOGOUT_REDIRECT_URIS, CreatedService, ServiceQuota, ServiceType
from core.applications.model.users import AccessPolicy, AccessSettings
from core.federation.saml import configuration
from core.kernel import errors, uris
from core.kernel.roles import Capability
from core.kernel.values import NameUsedTooOften
from entrypoints.http import kit
from entrypoints.http.api.applications.services import ServiceRequest
from entrypoints.http.pages import console, console_forms, form_values
from entrypoints.http.pages.applications import applications, frameworks, saml
from entrypoints.http.pages.applications.access import policy_options
from entrypoints.http.pages.applications.applications import application_path

routes = Blueprint("new_application_pages", __name__)

PAGE: Final = "/app/organizations/<org_slug>/applications/new"
API: Final = "POST /api/organizations/<org_slug>/services"
PROPOSED: Final = "proposed"  # the field that says that the user has seen proposed sign-out addresses


class PolicyUnknown(errors.Invalid):
    """Choose who may sign in."""


FIELDS: Final[console_forms.Fields] = {
    model.RedirectUriInvalid: "redirect_uris",
    model.DuplicateRedirectUri: "redirect_uris",
    model.PostLogoutRedirectUriInvalid: POST_LOGOUT_REDIRECT_URIS,
    NameUsedTooOften: "name",
    PolicyUnknown: "policy",
}
# Not `assigned`: it needs a free name, and admits no user at first. The page of the application has it.
OFFERED: Final = (AccessPolicy.MEMBERS, AccessPolicy.MEMBERS_AND_ASSIGNED, AccessPolicy.ANYONE)


@dataclass(frozen=True, slots=True)
class Kind:
    """An answer to the question what the user is connecting."""

    label: str
    protocol: str  # how it signs users in
    type: ServiceType
    address: str | None = None  # an example for its redirect URI; None if it needs none
    is_saml: bool = False


KINDS: Final[Mapping[str, Kind]] = MappingProxyType(
    {
        "web": Kind("A web application with a server", "OpenID Connect with a secret", ServiceType.WEB, "https://app.example.com/callback"),
        "spa": Kind(
            "An application that runs in the browser", "OpenID Connect with PKCE", ServiceType.SPA, "https://app.example.com/callback"
        ),
        "mobile": Kind("A mobile app", "OpenID Connect with PKCE", ServiceType.MOBILE, "com.example.app:/callback"),
        "desktop": Kind(
            "A desktop or command-line program",
            "OpenID Connect with PKCE, or the device flow",
            ServiceType.DESKTOP,
            "http://localhost/callback",
        ),
        "saml": Kind("A product that speaks SAML", "SAML 2.0", ServiceType.WEB, is_saml=True),
        "api": Kind("A program or an API without a sign-in page", "API keys, or tokens that your applications send", ServiceType.API),
    }
)


# Fields that the form does not have: the use case chooses the slug.
_FIXED: Final = {"slug": lambda _: "", "service_type": lambda _: ServiceType.WEB.value}


class KindUnknown(errors.Invalid):
    """Choose what you are connecting first."""


class KindQuery(kit.Query):
    """The answer to the first question."""

    kind: str = Field("", description="What the user is connecting. Without it, the page asks.")


@routes.get(PAGE)
@kit.member_page(Capability.SERVICES_CREATE)
@console.shows(API)
async def show_wizard(org_slug: str, query_args: KindQuery) -> Response:
    """Ask what the user is connecting, and then for its name and addresses.

    If the organization has reached its application limit, the page says so instead.
    """
    kind, quota = KINDS.get(query_args.kind), await services.load_quota(kit.ports(), kit.acting_member())
    if kind is None or quota.is_reached:
        return await console.console_page("applications/new_application.html", **_first_values(quota))
    return await console.console_page("applications/new_application_form.html", **await _form_values(query_args.kind, kind, {}))


def _first_values(quota: ServiceQuota) -> dict[str, Any]:
    return {"kinds": KINDS, "path": _list_path(), "quota": quota, "support": kit.ports().policy.support}


def _list_path() -> str:
    return console.organization_path("/applications")


async def _form_values(name: str, kind: Kind, typed: Mapping[str, str]) -> dict[str, Any]:
    audience = await access.load_audience(kit.ports(), kit.acting_member(), None)
    return {
        "kind_name": name,
        "kind": kind,
        "typed": {"policy": AccessPolicy.MEMBERS.value, **typed},
        "policies": [option for option in policy_options(audience) if option[0] in OFFERED],
        "path": _list_path(),
        "has_proposal": False,
    }


def _read_access(form: Mapping[str, str]) -> AccessSettings:
    policy = form.get("policy", AccessPolicy.MEMBERS.value)
    return AccessSettings(AccessPolicy(policy)) if policy in OFFERED else errors.refuse(PolicyUnknown)


def _propose(form: console_forms.Form) -> str:
    """Return sign-out addresses for the redirect URIs, if the user entered none and has not seen the proposal. It is "" otherwise."""
    if form.get(POST_LOGOUT_REDIRECT_URIS, "x").strip() or form.get(PROPOSED):
        return ""
    starts = map(uris.start_of, form_values.to_lines(form.get("redirect_uris", "")))
    return "\n".join(dict.fromkeys(start for start in starts if start is not None))


@routes.post(PAGE)
@kit.member_page(Capability.SERVICES_CREATE, kit.GIVES)
@console_forms.accepts(API, answers=console_forms.answers_with("The values to copy."))
@kit.refuses(429)
@console_forms.once(
    applications.APPLICATIONS,
    "Open applications",
    "A secret was shown once. If you didn't copy it, replace it on the page of the application.",
)
@console_forms.restores
async def create_application(org_slug: str, form: console_forms.Form) -> Response:
    """Create an application, by default for the members. Its secret is shown only once.

    A form without a sign-out address comes back once, with a proposal.
    """
    kind = KINDS.get(form.get("kind", ""))
    if kind is None:
        quota = await services.load_quota(kit.ports(), kit.acting_member())
        return await console_forms.refused_console_page(KindUnknown(), "applications/new_application.html", **_first_values(quota))
    if console_forms.is_restored():
        return await console_forms.restored_console_page(
            "applications/new_application_form.html", **await _form_values(form["kind"], kind, form)
        )
    if proposal := _propose(form):
        values = await _form_values(form["kind"], kind, {**form, POST_LOGOUT_REDIRECT_URIS: proposal})
        return await console.console_page("applications/new_application_form.html", **{**values, "has_proposal": True})
    try:
        if kind.is_saml:
            return await _create_with_saml(form)
        created = await _create(form, kind)
    except errors.Refusal as refusal:
        values = await _form_values(form["kind"], kind, form)
        wrong = saml.wrong_setting(refusal, form) if kind.is_saml else None
        return await console_forms.refused_console_page(
            refusal, "applications/new_application_form.html", wrong=wrong or console_forms.wrong_field(refusal, FIELDS), **values
        )
    return await _created_page(created)


async def _created_page(created: CreatedService) -> Response:
    values = {
        "values": applications.values_to_copy(created.service),
        "secret": created.client_secret,
        **applications.application_values(created.service),
        **frameworks.values_of(created.service, created.client_secret),
        **await applications.activity_values(created.service, waits=True),
    }
    return await console.console_page(
        "applications/created_application.html", has_redirect_uri=bool(created.service.redirect_uris), **values
    )


async def _create_with_saml(form: Mapping[str, str]) -> Response:
    """Create an application and its SAML configuration. Without values for SAML, its page asks for them."""
    settings = saml.read_settings({"enabled": "yes", "sign_assertions": "yes", "sign_response": "yes", **form})
    if settings.is_empty:
        created = await _create(form, KINDS["saml"])
        return console.redirect_with_notice("application-created", f"{application_path(created.service.slug)}/saml")
    name = form_values.to_model(ServiceRequest, form, _FIXED).name
    service, problems = await configuration.create_service(
        console_forms.ports_once(), kit.acting_member(), name, settings, _read_access(form)
    )
    if problems:
        return await saml.saved_page("saml-ready", service.slug, problems)
    return console.redirect_with_notice("saml-ready", f"{application_path(service.slug)}/saml")


async def _create(form: Mapping[str, str], kind: Kind) -> CreatedService:
    data = form_values.to_model(
        ServiceRequest,
        form,
        {
            **_FIXED,
            "service_type": lambda _: kind.type.value,
            "redirect_uris": form_values.to_lines,
            POST_LOGOUT_REDIRECT_URIS: form_values.to_lines,
        },
    )
    settings = {"redirect_uris": data.redirect_uris, POST_LOGOUT_REDIRECT_URIS: data.post_logout_redirect_uris}
    return await services.create_by_form(
        console_forms.ports_once(), kit.acting_member(), data.name, kind.type, settings, _read_access(form)
    )
