"""The pages for an application's SAML configuration: settings, metadata import, check, and certificates."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from quart import Blueprint, Response

from core.applications import services
from core.applications.model.services import Service
from core.federation.saml import configuration as saml
from core.federation.saml import metadata
from core.federation.saml.configuration import ServiceProviderSettings
from core.federation.saml.model import configuration as model
from core.federation.saml.model.configuration import NOT_CONFIGURED, AttributeFormat, NameIdFormat, SamlConfiguration, endpoint_path
from core.federation.saml.model.metadata import (
    MetadataInvalid,
    MetadataNotFetched,
    NoServiceProvider,
    SamlProblem,
    SeveralServiceProviders,
    replace_described,
)
from core.kernel.callers import Member
from core.kernel.errors import Refusal
from core.kernel.outbound import TargetInvalid
from core.kernel.roles import Capability
from entrypoints.http import kit
from entrypoints.http.api.federation.saml.configuration import SAML as API
from entrypoints.http.api.federation.saml.configuration import SamlConfigurationRequest, SamlMetadataRequest
from entrypoints.http.edge.reauthentication import ADDED_FIELDS
from entrypoints.http.pages import consequences, console, console_forms, form_values
from entrypoints.http.pages.applications.applications import APPLICATION, application_path, application_values
from entrypoints.http.pages.form_values import quoted, unquoted
from entrypoints.http.pages.notices import NOTICES
from ports import Ports

routes = Blueprint("saml_configuration_pages", __name__)

PAGE: Final = f"{APPLICATION}/saml"
METADATA_URL: Final = "metadata_url"
MAPPING: Final = "attribute_mapping"
FURTHER: Final = "further_attributes"
JOINED: Final = " joined by "
CONFIRMED: Final = "replace_slo_certificate"  # the field with which the question's form is sent
FIELDS: Final[console_forms.Fields] = {
    model.EntityIdMissing: "entity_id",
    model.EntityIdInvalid: "entity_id",
    model.AcsUrlMissing: "acs_url",
    model.AcsUrlInvalid: "acs_url",
    model.SloUrlInvalid: "slo_url",
    model.SloResponseUrlInvalid: "slo_response_url",
    model.SloCertificateInvalid: "slo_certificate",
    model.AttributeNameInvalid: MAPPING,
    **dict.fromkeys((model.AttributeSourceUnknown, model.AttributeFormatInvalid), FURTHER),
    model.SignatureRequired: "sign_assertions",
    **dict.fromkeys((MetadataInvalid, NoServiceProvider, SeveralServiceProviders), "metadata"),
    **dict.fromkeys((MetadataNotFetched, TargetInvalid), METADATA_URL),
}
FORMATS: Final = [(each.value, each.short_name) for each in NameIdFormat]
OPERATIONS: Final = (
    *(f"GET {API}", f"POST {API}", f"POST {API}/metadata", f"GET {API}/check", f"POST {API}/certificate", f"DELETE {API}"),
    *(f"{method} {API}/certificate/next" for method in ("GET", "POST", "DELETE")),
    *(f"POST {API}/certificate/{action}" for action in ("activate", "undo")),
)
SWITCHES: Final = dict.fromkeys(("enabled", "sign_assertions", "sign_response"), form_values.is_checked)
METADATA_ANSWERS: Final = console_forms.answers_with("The settings that the metadata describes.")


def _to_typed(configuration: SamlConfiguration) -> dict[str, str]:
    mapping = configuration.attribute_mapping or {}
    return {
        # The form for an application without SAML turns it on.
        "enabled": "yes" if configuration.enabled or configuration == NOT_CONFIGURED else "",
        "entity_id": configuration.entity_id or "",
        "acs_url": configuration.acs_url or "",
        "slo_url": configuration.slo_url or "",
        "slo_response_url": configuration.slo_response_url or "",
        "slo_certificate": configuration.slo_certificate or "",
        "name_id_format": str(configuration.name_id_format or NameIdFormat.EMAIL),
        "email_attribute": mapping.get("email", ""),
        "id_attribute": mapping.get("id", ""),
        FURTHER: _further_text(configuration),
        "sign_assertions": "yes" if configuration.sign_assertions else "",
        "sign_response": "yes" if configuration.sign_response else "",
    }


async def _values(typed: console_forms.Form, service_slug: str) -> dict[str, Any]:
    service = await services.find(kit.ports(), kit.acting_member(), service_slug)
    configuration, _ = await saml.get_configuration(kit.ports(), kit.acting_member(), service.slug)
    endpoints = {"Entity ID": "", "Metadata URL": "metadata", "Sign-on URL": "sso", "Logout URL": "slo"}
    org_slug = kit.acting_member().acts_in.slug
    return {
        "configuration": configuration,
        "certificates": await saml.list_certificates(kit.ports(), kit.acting_member(), service.slug),
        "undo_days": model.PREVIOUS_KEPT.days,
        "typed": typed or _to_typed(configuration),
        "problems": (),
        "imported": False,
        "saved": None,
        "formats": FORMATS,
        "login": f"/api/organizations/{org_slug}/services/{service.slug}/saml/login",
        "endpoints": {name: kit.app_context().base_url + endpoint_path(org_slug, service.slug, end) for name, end in endpoints.items()},
        **application_values(service),
    }


@routes.get(PAGE)
@kit.member_page(Capability.SERVICES_VIEW)
@console.shows(*OPERATIONS)
async def show_saml(org_slug: str, service_slug: str) -> Response:
    """Show an application's SAML configuration, and the values to copy into it."""
    values = {**await _values({}, service_slug), "problems": await metadata.check(kit.ports(), kit.acting_member(), service_slug)}
    return await console.console_page("applications/saml.html", **values)


def _further_text(configuration: SamlConfiguration) -> str:
    """Return the attributes that have another source than the address or the id, one per line."""
    formats, lines = configuration.attribute_formats or {}, list[str]()
    for source, name in (configuration.attribute_mapping or {}).items():
        if source not in ("email", "id"):
            written = formats.get(name, AttributeFormat())
            lines.append(f"{name} = {source}" + ("" if written.separator is None else f"{JOINED}{quoted(written.separator, unquoted)}"))
    return "\n".join(lines)


def _further(form: console_forms.Form) -> list[tuple[str, str, str | None]]:
    """Return name, source and separator for every further attribute, one per line."""
    further = list[tuple[str, str, str | None]]()
    for line in form_values.to_lines(form.get(FURTHER, "")):
        pair, joined, separator = line.partition(JOINED)
        name, sign, source = pair.rpartition("=")
        if not sign or not name.strip() or not source.strip():
            raise form_values.FieldInvalid(
                f"Write each line as a name, an equals sign and a source. This line has another form: {line[:100]}", FURTHER
            )
        further.append((name.strip(), source.strip(), unquoted(separator) if joined else None))
    if len({source for _, source, _ in further}) < len(further):
        raise form_values.FieldInvalid("Name each source only once.", FURTHER)
    return further


def _mapping(form: console_forms.Form) -> dict[str, str] | None:
    names = {source: form.get(f"{source}_attribute", "").strip() for source in ("email", "id")}
    names |= {source: name for name, source, _ in _further(form)}
    return {source: name for source, name in names.items() if name} or None


def _formats(form: console_forms.Form, stored: SamlConfiguration) -> dict[str, dict[str, str | None]] | None:
    """Return the form's formats. A name format that only the API can set stays."""
    formats = {name: each.name_format for name, each in (stored.attribute_formats or {}).items() if each.name_format}
    separators = {name: separator for name, _, separator in _further(form) if separator is not None}
    names = (_mapping(form) or {}).values()
    merged = {name: {"name_format": formats.get(name), "separator": separators.get(name)} for name in names}
    return {name: each for name, each in merged.items() if any(each.values())} or None


def wrong_setting(refusal: Refusal, form: console_forms.Form) -> str | None:
    """Return the field in `read_settings` that a refusal is about, or None."""
    field = console_forms.wrong_field(refusal, FIELDS)
    if field == "url":  # the metadata URL
        return METADATA_URL
    if field != MAPPING:
        return field
    wrong = (source for source, name in (_mapping(form) or {}).items() if not model.is_name(name, model.MAX_ATTRIBUTE_NAME_LENGTH))
    source = next(wrong, "email")  # or two have the same name
    return f"{source}_attribute" if source in ("email", "id") else FURTHER


def _slo_replacement(service: Service, form: Mapping[str, str]) -> consequences.Question:
    fields = {name: value for name, value in form.items() if name not in ADDED_FIELDS}
    verb = "Replace" if form.get("slo_certificate", "").strip() else "Remove"
    return consequences.Question(
        verb=f"{verb} the certificate from",
        target=service.name,
        consequences=(
            consequences.sentence(
                "We refuse logout requests that {} signs with its present certificate. Users stay signed in here then.", service.name
            ),
        ),
        button=f"{verb} certificate",
        keep="Keep certificate",
        back=("SAML", f"{application_path(service.slug)}/saml"),
        answered={**fields, CONFIRMED: "yes"},
    )


@routes.post(PAGE)
@kit.member_page(Capability.INTEGRATIONS_MANAGE, kit.GIVES)
@console_forms.accepts(
    f"POST {API}",
    answers={
        200: "The question whether the certificate of the application is replaced, or the problems of its metadata.",
        **console_forms.ANSWERS_TO_FORM,
    },
)
@kit.refuses(429)
@console_forms.on_refusal("applications/saml.html", _values, wrong_setting)
async def configure(org_slug: str, service_slug: str, form: console_forms.Form) -> Response:
    """Change an application's SAML configuration.

    Metadata replaces the values that it has, and the page shows its problems. If the application has no certificate yet, it gets a
    certificate.
    """
    service = await services.find(kit.ports(), kit.acting_member(), service_slug)
    stored, _ = await saml.get_configuration(kit.ports(), kit.acting_member(), service.slug)
    settings = read_settings(form, stored)
    try:
        problems = await saml.set_up(kit.ports(), kit.acting_member(), service_slug, settings, replaces_slo_certificate=CONFIRMED in form)
    except model.SloCertificateReplaced:
        return await consequences.ask(_slo_replacement(service, form))
    if problems:
        return await saved_page("saml-saved", service.slug, problems)
    return console.redirect_with_notice("saml-saved", f"{application_path(service.slug)}/saml")


async def saved_page(notice: str, service_slug: str, problems: Sequence[SamlProblem]) -> Response:
    """Return the page after a save, with the problems that only the metadata has. `notice` is a key in NOTICES."""
    problems = [*problems, *await metadata.check(kit.ports(), kit.acting_member(), service_slug)]
    return await console.console_page(
        "applications/saml.html", **{**await _values({}, service_slug), "problems": problems, "saved": NOTICES[notice]}
    )


def read_settings(form: console_forms.Form, stored: SamlConfiguration = NOT_CONFIGURED) -> ServiceProviderSettings:
    """Return the settings in a form with the fields for a SAML configuration, and with metadata or its URL."""
    mapping = {"attribute_mapping": lambda _: _mapping(form), "attribute_formats": lambda _: _formats(form, stored)}
    data = form_values.to_model(SamlConfigurationRequest, form, {**SWITCHES, **mapping})
    source = form_values.to_model(SamlMetadataRequest, form, {"url": lambda _: form.get(METADATA_URL, "").strip()})
    return ServiceProviderSettings(configuration=data.build(), metadata=source.metadata.strip(), metadata_url=source.url)


async def _metadata_values(form: console_forms.Form, service_slug: str) -> dict[str, Any]:
    values = await _values({}, service_slug)
    return {**values, "typed": {**values["typed"], **{name: form.get(name, "") for name in ("metadata", METADATA_URL)}}}


@routes.post(f"{PAGE}/metadata")
@kit.member_page(Capability.INTEGRATIONS_MANAGE, kit.SHOWS)
@console_forms.accepts(f"POST {API}/metadata", answers=METADATA_ANSWERS)
@kit.refuses(429)
@console_forms.on_refusal("applications/saml.html", _metadata_values, wrong_setting)
async def read_metadata(org_slug: str, service_slug: str, form: console_forms.Form) -> Response:
    """Show the settings that an application's metadata describes. They are not saved yet."""
    settings = read_settings({**form, "enabled": ""})
    text = await metadata.read_source(kit.ports(), kit.acting_member(), settings.metadata, settings.metadata_url)
    described, problems = await metadata.read_metadata(kit.ports(), kit.acting_member(), service_slug, text)
    values = await _values({}, service_slug)
    typed = {**_to_typed(replace_described(values["configuration"], described)), "enabled": "yes"}
    values |= {"typed": typed, "problems": problems, "imported": True}
    return await console.console_page("applications/saml.html", **values)


@routes.get(f"{PAGE}/certificate")
@kit.member_page(Capability.INTEGRATIONS_MANAGE)
@console.shows(f"POST {API}/certificate")
async def show_replacement(org_slug: str, service_slug: str) -> Response:
    """Ask before the certificate for signatures is replaced. 404 without a certificate."""
    service = await services.find(kit.ports(), kit.acting_member(), service_slug)
    await saml.get_certificate(kit.ports(), kit.acting_member(), service_slug)  # there is a certificate to replace
    return await consequences.ask(_replacement(service))


def _replacement(service: Service) -> consequences.Question:
    return consequences.Question(
        verb="Replace the certificate of",
        target=service.name,
        consequences=(
            consequences.sentence(
                "Users can't sign in to {} with SAML until it has the new certificate: it refuses our new signatures.", service.name
            ),
            "The present certificate ends at once and can't come back. The next and the previous one end, too, if there are any.",
        ),
        button="Replace certificate",
        keep="Keep certificate",
        back=("SAML", f"{application_path(service.slug)}/saml"),
    )


@routes.post(f"{PAGE}/certificate")
@kit.member_page(Capability.INTEGRATIONS_MANAGE, kit.GIVES)
@console_forms.accepts(f"POST {API}/certificate")
@console_forms.once(PAGE, "Open SAML", "The certificate is on the page.")
async def create_certificate(org_slug: str, service_slug: str) -> Response:
    """Create the certificate for signatures, or replace all at once."""
    return await _change_certificates(saml.create_certificate, service_slug, "certificate-created")


@routes.post(f"{PAGE}/certificate/next")
@kit.member_page(Capability.INTEGRATIONS_MANAGE, kit.GIVES)
@console_forms.accepts(f"POST {API}/certificate/next", page=PAGE)
@console_forms.once(PAGE, "Open SAML", "The certificate is on the page.")
async def create_next_certificate(org_slug: str, service_slug: str) -> Response:
    """Create the certificate that will replace the active certificate."""
    return await _change_certificates(saml.create_next_certificate, service_slug, "next-certificate-created")


@routes.post(f"{PAGE}/certificate/next/delete")
@kit.member_page(Capability.INTEGRATIONS_MANAGE, kit.GIVES)
@console_forms.accepts(f"DELETE {API}/certificate/next")
@console_forms.once(PAGE, "Open SAML", "The page shows the certificates.")
async def delete_next_certificate(org_slug: str, service_slug: str) -> Response:
    """Delete the next certificate."""
    return await _change_certificates(saml.delete_next_certificate, service_slug, "next-certificate-deleted")


@routes.post(f"{PAGE}/certificate/activate")
@kit.member_page(Capability.INTEGRATIONS_MANAGE, kit.GIVES)
@console_forms.accepts(f"POST {API}/certificate/activate")
@console_forms.once(PAGE, "Open SAML", "The page shows the certificates.")
async def activate_certificate(org_slug: str, service_slug: str) -> Response:
    """Sign with the next certificate from now on."""
    return await _change_certificates(saml.activate_certificate, service_slug, "certificate-activated")


@routes.post(f"{PAGE}/certificate/undo")
@kit.member_page(Capability.INTEGRATIONS_MANAGE, kit.GIVES)
@console_forms.accepts(f"POST {API}/certificate/undo")
@console_forms.once(PAGE, "Open SAML", "The page shows the certificates.")
async def undo_activation(org_slug: str, service_slug: str) -> Response:
    """Sign with the previous certificate again."""
    return await _change_certificates(saml.undo_activation, service_slug, "activation-undone")


async def _change_certificates(change: Callable[[Ports, Member, str], Awaitable[object]], service_slug: str, notice: str) -> Response:
    try:
        await change(console_forms.ports_once(), kit.acting_member(), service_slug)
    except Refusal as refusal:
        return await console_forms.refused_console_page(refusal, "applications/saml.html", **await _values({}, service_slug))
    return console.redirect_with_notice(notice, f"{application_path(service_slug)}/saml")


@routes.post(f"{PAGE}/disable")
@kit.member_page(Capability.INTEGRATIONS_MANAGE, kit.GIVES)
@console_forms.accepts(f"DELETE {API}")
async def disable(org_slug: str, service_slug: str) -> Response:
    """Turn SAML off for an application."""
    await saml.disable(kit.ports(), kit.acting_member(), service_slug)
    return console.redirect_with_notice("saml-disabled", f"{application_path(service_slug)}/saml")
