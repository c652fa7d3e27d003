"""The pages of an organization's connections, its own identity providers: settings, client secrets, keys and certificates."""

from typing import Any

from pydantic import Field
from quart import Blueprint, Response

from core.federation.connections import connections, metadata
from core.federation.connections.model import presets
from core.federation.connections.model.connections import MAX_CERTIFICATES, MAX_CONNECTIONS, CertificateSource, ProviderCertificateNotFound
from core.federation.connections.model.settings import DEFAULT_SKEW_SECONDS, OidcSettings, SamlSettings
from core.kernel.connections import TEST_PROVIDER, ConnectionProtocol
from core.kernel.errors import refuse
from core.kernel.roles import Capability
from core.kernel.values import KEEP, Keep
from entrypoints.http import kit
from entrypoints.http.api.federation.connections.connections import CONNECTION as API_OF_CONNECTION
from entrypoints.http.api.federation.connections.connections import CONNECTION as API_OF_ONE
from entrypoints.http.api.federation.connections.connections import PATH as API
from entrypoints.http.api.federation.connections.connections import (
    ClientSecretRequest,
    ConnectionActivationRequest,
    ConnectionRequest,
    ConnectionUpdateRequest,
    ProviderCertificateRequest,
)
from entrypoints.http.api.federation.connections.metadata import ProviderMetadataRequest
from entrypoints.http.api.federation.connections.settings import ClaimMappingRequest, OidcSettingsRequest, SamlSettingsRequest
from entrypoints.http.pages import console, console_forms, form_values
from entrypoints.http.pages.consequences import Question, accepts_answer, asks
from entrypoints.http.pages.federation.connections.values import (
    ANSWERS_TO_IMPORTED,
    ANSWERS_TO_SAVED,
    CLAIM,
    LIST,
    ONE,
    check_page,
    check_saved,
    choose_field,
    connection_values,
    is_fixed,
    path_of,
)

routes = Blueprint("organization_connection_pages", __name__)


class NewConnectionQuery(kit.Query):
    """A new connection's product."""

    preset: str = Field(default="", description="A product of the list, such as `okta`. The form is filled in for it.")


@routes.get(LIST)
@kit.member_page(Capability.INTEGRATIONS_MANAGE)
@console.shows(f"GET {API}", f"POST {API}")
async def show_connections(org_slug: str) -> Response:
    """List an organization's connections."""
    return await console.console_page(
        "federation/connections.html",
        path=path_of(),
        connections=await connections.list_own(kit.ports(), kit.acting_member()),
        healths=await connections.list_health(kit.ports(), kit.acting_member()),
        presets=presets.PRESETS,
        most=MAX_CONNECTIONS,
    )


async def _new_values(form: console_forms.Form, query_args: NewConnectionQuery | None = None) -> dict[str, Any]:
    preset = query_args.preset if query_args else form.get("preset", "")
    product = presets.PRESETS.get(preset)
    proposed = {"preset": preset, "name": product.name, "slug": preset} if product is not None else {"preset": ""}
    if preset == TEST_PROVIDER:
        proposed = {"preset": preset, "name": "Test provider", "slug": "test-provider"}
    return {"path": path_of(), "chosen": product, "typed": form or {**proposed, "protocol": ConnectionProtocol.OIDC}}


@console_forms.serves_form(routes, f"{LIST}/new", query=NewConnectionQuery)
@kit.member_page(Capability.INTEGRATIONS_MANAGE, kit.GIVES)
@console_forms.accepts(f"POST {API}")
@kit.refuses(409)
@console_forms.once(LIST, "Open single sign-on", "The connection is in the list.")
@console_forms.on_refusal("federation/new_connection.html", _new_values, choose_field)
async def create(org_slug: str, form: console_forms.Form) -> Response:
    """Create a connection."""
    data = form_values.to_model(ConnectionRequest, form)
    protocol = ConnectionProtocol.SAML if form.get("protocol") == ConnectionProtocol.SAML else ConnectionProtocol.OIDC
    added = await connections.create(
        console_forms.ports_once(), kit.acting_member(), data.to_draft(presets.first_settings(data.preset, protocol))
    )
    if added.uses_test_provider:
        return console.redirect_with_notice("connection-for-tests-created", path_of(f"{added.slug}/test"))
    return console.redirect_with_notice("connection-created", path_of(added.slug))


async def _stored_values(_: console_forms.Form, connection_slug: str) -> dict[str, Any]:
    return await connection_values({}, connection_slug)  # the form that was sent has no settings


@console_forms.serves_form(
    routes,
    ONE,
    *(f"GET {API_OF_ONE}", f"PATCH {API_OF_ONE}", f"DELETE {API_OF_ONE}"),
    *(f"POST {API_OF_ONE}/{action}" for action in ("metadata", "activate", "deactivate")),
)
@kit.member_page(Capability.INTEGRATIONS_MANAGE, kit.GIVES)
@console_forms.accepts(f"PATCH {API_OF_ONE}", answers=ANSWERS_TO_SAVED)
@kit.refuses(409)
@console_forms.on_refusal("federation/connection.html", connection_values, choose_field)
async def change(org_slug: str, connection_slug: str, form: console_forms.Form) -> Response:
    """Change a connection's settings."""
    details = await connections.find(kit.ports(), kit.acting_member(), connection_slug)
    name = form_values.to_model(ConnectionUpdateRequest, form).name
    trusts = {
        "trusts_email": form_values.is_checked,
        "trusts_second_factor": form_values.is_checked,
        "clock_skew_seconds": lambda text: DEFAULT_SKEW_SECONDS if (seconds := form_values.to_number(text)) is None else seconds,
    }
    settings: OidcSettings | SamlSettings | Keep
    # The form then has the name alone. A form that was opened before has all fields, and the change is refused.
    if is_fixed(details.connection) and form.keys().isdisjoint(("issuer", "entity_id")):
        settings = KEEP
    elif details.connection.protocol is ConnectionProtocol.SAML:
        checks = dict.fromkeys(("signs_requests", "unsolicited"), form_values.is_checked)
        optional = dict.fromkeys(("subject", "slo_url", "slo_response_url", "metadata_url"), form_values.to_optional)
        settings = form_values.to_model(SamlSettingsRequest, form, {**checks, "targets": str.split, **optional, **trusts}).build()
    else:
        settings = form_values.to_model(OidcSettingsRequest, form, {"scopes": str.split, "targets": str.split, **trusts}).build()
    changed = await connections.change(kit.ports(), kit.acting_member(), connection_slug, name=name, settings=settings)
    had_secret, has_secret = details.connection.client_secret_set_at is not None, changed.client_secret_set_at is not None
    return await check_saved(connection_slug, "connection-secret-removed" if had_secret and not has_secret else "connection-saved")


async def _metadata_values(form: console_forms.Form, connection_slug: str) -> dict[str, Any]:
    values = await connection_values({}, connection_slug)
    return {**values, "typed": {**values["typed"], **{name: form.get(name, "") for name in ("url", "metadata")}}}


@routes.post(f"{ONE}/metadata")
@kit.member_page(Capability.INTEGRATIONS_MANAGE, kit.GIVES)
@console_forms.accepts(f"POST {API_OF_ONE}/metadata", answers=ANSWERS_TO_IMPORTED)
@kit.refuses(409, 429)
@console_forms.on_refusal("federation/connection.html", _metadata_values, choose_field)
async def import_metadata(org_slug: str, connection_slug: str, form: console_forms.Form) -> Response:
    """Import the identity provider's metadata."""
    data = form_values.to_model(ProviderMetadataRequest, form)
    problems = await metadata.import_metadata(kit.ports(), kit.acting_member(), connection_slug, data.metadata.strip(), data.url.strip())
    if problems:
        return await check_page(connection_slug, problems, is_saved=True)
    return console.redirect_with_notice("connection-metadata-imported", path_of(connection_slug))


@routes.post(f"{ONE}/activate")
@kit.member_page(Capability.INTEGRATIONS_MANAGE, kit.GIVES)
@console_forms.accepts(f"POST {API_OF_ONE}/activate")
@kit.refuses(409)
@console_forms.on_refusal("federation/connection.html", _stored_values, choose_field)
async def activate(org_slug: str, connection_slug: str, form: console_forms.Form) -> Response:
    """Let users sign in through a connection."""
    data = form_values.to_model(ConnectionActivationRequest, form)
    await connections.activate(kit.ports(), kit.acting_member(), connection_slug, data.version)
    return console.redirect_with_notice("connection-activated", path_of(connection_slug))


@routes.post(f"{ONE}/deactivate")
@kit.member_page(Capability.INTEGRATIONS_MANAGE, kit.GIVES)
@console_forms.accepts(f"POST {API_OF_ONE}/deactivate")
@kit.refuses(409)
@console_forms.on_refusal("federation/connection.html", _stored_values, choose_field)
async def deactivate(org_slug: str, connection_slug: str, form: console_forms.Form) -> Response:
    """Let no user sign in through a connection."""
    await connections.deactivate(kit.ports(), kit.acting_member(), connection_slug)
    return console.redirect_with_notice("connection-deactivated", path_of(connection_slug))


@routes.post(f"{ONE}/remove")
@kit.member_page(Capability.INTEGRATIONS_MANAGE, kit.GIVES)
@console_forms.accepts(f"DELETE {API_OF_ONE}")
@kit.refuses(409)
@console_forms.on_refusal("federation/connection.html", _stored_values, choose_field)
async def remove(org_slug: str, connection_slug: str, form: console_forms.Form) -> Response:
    """Remove a connection."""
    details = await connections.find(kit.ports(), kit.acting_member(), connection_slug)
    console_forms.check_typed_name(form, details.connection.name)
    await connections.remove(kit.ports(), kit.acting_member(), connection_slug)
    return console.redirect_with_notice("connection-removed", path_of())


# Mapping


async def _mapping_values(form: console_forms.Form, connection_slug: str) -> dict[str, Any]:
    values = await connection_values(form, connection_slug)
    stored = {CLAIM + name: claim for name, claim in values["connection"].mapping.document.items()}
    return {**values, "typed": form or stored}


@console_forms.serves_form(routes, f"{ONE}/mapping", f"GET {API_OF_ONE}", f"PATCH {API_OF_ONE}")
@kit.member_page(Capability.INTEGRATIONS_MANAGE, kit.GIVES)
@console_forms.accepts(f"PATCH {API_OF_ONE}")
@kit.refuses(409)
@console_forms.on_refusal("federation/connection_mapping.html", _mapping_values, choose_field)
async def change_mapping(org_slug: str, connection_slug: str, form: console_forms.Form) -> Response:
    """Change the claims that a connection reads."""
    claims = {name.removeprefix(CLAIM): text for name, text in form.items() if name.startswith(CLAIM)}
    optional = dict.fromkeys(("name", "given_name", "family_name", "groups", "picture", "locale"), form_values.to_optional)
    mapping = form_values.to_model(ClaimMappingRequest, claims, optional).build()
    await connections.change(kit.ports(), kit.acting_member(), connection_slug, mapping=mapping)
    return console.redirect_with_notice("connection-saved", path_of(f"{connection_slug}/mapping"))


# Health


@routes.get(f"{ONE}/health")
@kit.member_page(Capability.INTEGRATIONS_MANAGE)
@console.shows(f"GET {API_OF_ONE}")
async def show_health(org_slug: str, connection_slug: str) -> Response:
    """Show whether users can sign in through a connection."""
    return await console.console_page("federation/connection_health.html", **await connection_values({}, connection_slug))


async def _key_values(form: console_forms.Form, connection_slug: str, **_: object) -> dict[str, Any]:
    return {**await connection_values(form, connection_slug), "typed": form, "most": MAX_CERTIFICATES}


@routes.post(f"{ONE}/keys/client-secret")
@kit.member_page(Capability.INTEGRATIONS_MANAGE, kit.GIVES)
@console_forms.accepts(f"PUT {API_OF_CONNECTION}/client-secret", answers=ANSWERS_TO_SAVED)
@kit.refuses(409)
@console_forms.on_refusal("federation/connection_keys.html", _key_values, choose_field)
async def set_client_secret(org_slug: str, connection_slug: str, form: console_forms.Form) -> Response:
    """Set a connection's client secret."""
    data = form_values.to_model(ClientSecretRequest, form)
    await connections.put_client_secret(kit.ports(), kit.acting_member(), connection_slug, data.client_secret, data.issuer)
    return await check_saved(connection_slug, "connection-secret-set", "/keys")


@console_forms.serves_form(
    routes,
    f"{ONE}/keys",
    f"GET {API_OF_CONNECTION}",
    f"PUT {API_OF_CONNECTION}/client-secret",
    f"POST {API_OF_CONNECTION}/keys",
    f"POST {API_OF_CONNECTION}/keys/activate",
    f"POST {API_OF_CONNECTION}/certificates",
    f"DELETE {API_OF_CONNECTION}/certificates/<fingerprint>",
)
@kit.member_page(Capability.INTEGRATIONS_MANAGE, kit.GIVES)
@console_forms.accepts(f"POST {API_OF_CONNECTION}/keys")
@kit.refuses(409)
@console_forms.once(f"{ONE}/keys", "Open keys", "The key is in the list.")
@console_forms.on_refusal("federation/connection_keys.html", _key_values, choose_field)
async def create_key(org_slug: str, connection_slug: str, form: console_forms.Form) -> Response:
    """Create a key for a connection."""
    await connections.create_key(console_forms.ports_once(), kit.acting_member(), connection_slug)
    return console.redirect_with_notice("connection-key-created", path_of(f"{connection_slug}/keys"))


@routes.post(f"{ONE}/keys/activate")
@kit.member_page(Capability.INTEGRATIONS_MANAGE, kit.GIVES)
@console_forms.accepts(f"POST {API_OF_CONNECTION}/keys/activate")
@console_forms.on_refusal("federation/connection_keys.html", _key_values, choose_field)
async def activate_key(org_slug: str, connection_slug: str, form: console_forms.Form) -> Response:
    """Use a connection's next key."""
    await connections.activate_key(kit.ports(), kit.acting_member(), connection_slug)
    return console.redirect_with_notice("connection-key-activated", path_of(f"{connection_slug}/keys"))


@routes.post(f"{ONE}/keys/certificates")
@kit.member_page(Capability.INTEGRATIONS_MANAGE, kit.GIVES)
@console_forms.accepts(f"POST {API_OF_CONNECTION}/certificates")
@kit.refuses(409)
@console_forms.on_refusal("federation/connection_keys.html", _key_values, choose_field)
async def add_certificate(org_slug: str, connection_slug: str, form: console_forms.Form) -> Response:
    """Add the identity provider's certificate."""
    pem = form_values.to_model(ProviderCertificateRequest, form).certificate
    await connections.add_certificate(kit.ports(), kit.acting_member(), connection_slug, pem)
    return console.redirect_with_notice("connection-certificate-added", path_of(f"{connection_slug}/keys"))


async def _certificate_removal(connection_slug: str, fingerprint: str) -> Question:
    details = await connections.find(kit.ports(), kit.acting_member(), connection_slug)
    certificate = next((each for each in details.certificates if each.fingerprint == fingerprint), None) or refuse(
        ProviderCertificateNotFound
    )
    consequences = ["Responses that the identity provider signs with it are refused."]
    if certificate.source is CertificateSource.METADATA:
        consequences.append("The next import of the metadata can add it again.")
    return Question(
        verb="Remove the certificate",
        target=f"{fingerprint[:16]}…",
        consequences=consequences,
        button="Remove certificate",
        keep="Keep certificate",
        back=("Keys", path_of(f"{connection_slug}/keys")),
    )


@asks(routes, f"{ONE}/keys/certificates/<fingerprint>/remove")
@kit.member_page(Capability.INTEGRATIONS_MANAGE, kit.GIVES)
@accepts_answer(f"DELETE {API_OF_CONNECTION}/certificates/<fingerprint>", _certificate_removal)
async def remove_certificate(org_slug: str, connection_slug: str, fingerprint: str, form: console_forms.Form) -> Response:
    """Remove the identity provider's certificate."""
    await connections.remove_certificate(kit.ports(), kit.acting_member(), connection_slug, fingerprint)
    return console.redirect_with_notice("connection-certificate-removed", path_of(f"{connection_slug}/keys"))
