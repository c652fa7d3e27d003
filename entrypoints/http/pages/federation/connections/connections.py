"""The pages of an organization's connections, its own identity providers: settings, client secrets, keys and certificates."""

from typing import Any

from pydantic import Field
from quart import Blueprint, Response

from core.federation.connections import connections, metadata
from core.federation.connections.model.connections import MAX_CERTIFICATES, MAX_CONNECTIONS, CertificateSource, ProviderCertificateNotFound
from core.federation.connections.model.presets import PRESETS, first_settings
from core.federation.connections.model.settings import OidcSettings, SamlSettings
from core.kernel.connections import TEST_PROVIDER, ConnectionProtocol
from core.kernel.errors import refuse
from core.kernel.roles import Capability
from core.kernel.values import KEEP, Keep
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
from entrypoints.http.base.context import acting_member, ports
from entrypoints.http.edge.access import GIVES, member_page
from entrypoints.http.edge.openapi import refuses
from entrypoints.http.edge.queries import Query
from entrypoints.http.pages.consequences import Question, accepts_answer, asks
from entrypoints.http.pages.console import console_page, redirect_with_notice, shows
from entrypoints.http.pages.console_forms import Form, accepts, check_typed_name, on_refusal, once, ports_once, serves_form
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
from entrypoints.http.pages.form_values import is_checked, to_model, to_optional

routes = Blueprint("organization_connection_pages", __name__)


class NewConnectionQuery(Query):
    """A new connection's product."""

    preset: str = Field(default="", description="A product of the list, such as `okta`. The form is filled in for it.")


@routes.get(LIST)
@member_page(Capability.INTEGRATIONS_MANAGE)
@shows(f"GET {API}", f"POST {API}")
async def show_connections(org_slug: str) -> Response:
    """List an organization's connections."""
    return await console_page(
        "federation/connections.html",
        path=path_of(),
        connections=await connections.list_own(ports(), acting_member()),
        healths=await connections.list_health(ports(), acting_member()),
        presets=PRESETS,
        most=MAX_CONNECTIONS,
    )


async def _new_values(form: Form, query_args: NewConnectionQuery | None = None) -> dict[str, Any]:
    preset = query_args.preset if query_args else form.get("preset", "")
    product = PRESETS.get(preset)
    proposed = {"preset": preset, "name": product.name, "slug": preset} if product is not None else {"preset": ""}
    if preset == TEST_PROVIDER:
        proposed = {"preset": preset, "name": "Test provider", "slug": "test-provider"}
    return {"path": path_of(), "chosen": product, "typed": form or {**proposed, "protocol": ConnectionProtocol.OIDC}}


@serves_form(routes, f"{LIST}/new", query=NewConnectionQuery)
@member_page(Capability.INTEGRATIONS_MANAGE, GIVES)
@accepts(f"POST {API}")
@refuses(409)
@once(LIST, "Open single sign-on", "The connection is in the list.")
@on_refusal("federation/new_connection.html", _new_values, choose_field)
async def create(org_slug: str, form: Form) -> Response:
    """Create a connection."""
    data = to_model(ConnectionRequest, form)
    protocol = ConnectionProtocol.SAML if form.get("protocol") == ConnectionProtocol.SAML else ConnectionProtocol.OIDC
    added = await connections.create(ports_once(), acting_member(), data.to_draft(first_settings(data.preset, protocol)))
    if added.uses_test_provider:
        return redirect_with_notice("connection-for-tests-created", path_of(f"{added.slug}/test"))
    return redirect_with_notice("connection-created", path_of(added.slug))


async def _stored_values(_: Form, connection_slug: str) -> dict[str, Any]:
    return await connection_values({}, connection_slug)  # the form that was sent has no settings


@serves_form(
    routes,
    ONE,
    *(f"GET {API_OF_ONE}", f"PATCH {API_OF_ONE}", f"DELETE {API_OF_ONE}"),
    *(f"POST {API_OF_ONE}/{action}" for action in ("metadata", "activate", "deactivate")),
)
@member_page(Capability.INTEGRATIONS_MANAGE, GIVES)
@accepts(f"PATCH {API_OF_ONE}", answers=ANSWERS_TO_SAVED)
@refuses(409)
@on_refusal("federation/connection.html", connection_values, choose_field)
async def change(org_slug: str, connection_slug: str, form: Form) -> Response:
    """Change a connection's settings."""
    details = await connections.find(ports(), acting_member(), connection_slug)
    name = to_model(ConnectionUpdateRequest, form).name
    trusts = {"trusts_email": is_checked, "trusts_second_factor": is_checked}
    settings: OidcSettings | SamlSettings | Keep
    # The form then has the name alone. A form that was opened before has all fields, and the change is refused.
    if is_fixed(details.connection) and form.keys().isdisjoint(("issuer", "entity_id")):
        settings = KEEP
    elif details.connection.protocol is ConnectionProtocol.SAML:
        checks = dict.fromkeys(("signs_requests", "unsolicited"), is_checked)
        optional = dict.fromkeys(("subject", "slo_url", "slo_response_url", "metadata_url"), to_optional)
        settings = to_model(SamlSettingsRequest, form, {**checks, "targets": str.split, **optional, **trusts}).build()
    else:
        settings = to_model(OidcSettingsRequest, form, {"scopes": str.split, "targets": str.split, **trusts}).build()
    changed = await connections.change(ports(), acting_member(), connection_slug, name=name, settings=settings)
    had_secret, has_secret = details.connection.client_secret_set_at is not None, changed.client_secret_set_at is not None
    return await check_saved(connection_slug, "connection-secret-removed" if had_secret and not has_secret else "connection-saved")


async def _metadata_values(form: Form, connection_slug: str) -> dict[str, Any]:
    values = await connection_values({}, connection_slug)
    return {**values, "typed": {**values["typed"], **{name: form.get(name, "") for name in ("url", "metadata")}}}


@routes.post(f"{ONE}/metadata")
@member_page(Capability.INTEGRATIONS_MANAGE, GIVES)
@accepts(f"POST {API_OF_ONE}/metadata", answers=ANSWERS_TO_IMPORTED)
@refuses(409, 429)
@on_refusal("federation/connection.html", _metadata_values, choose_field)
async def import_metadata(org_slug: str, connection_slug: str, form: Form) -> Response:
    """Import the identity provider's metadata."""
    data = to_model(ProviderMetadataRequest, form)
    problems = await metadata.import_metadata(ports(), acting_member(), connection_slug, data.metadata.strip(), data.url.strip())
    if problems:
        return await check_page(connection_slug, problems, is_saved=True)
    return redirect_with_notice("connection-metadata-imported", path_of(connection_slug))


@routes.post(f"{ONE}/activate")
@member_page(Capability.INTEGRATIONS_MANAGE, GIVES)
@accepts(f"POST {API_OF_ONE}/activate")
@refuses(409)
@on_refusal("federation/connection.html", _stored_values, choose_field)
async def activate(org_slug: str, connection_slug: str, form: Form) -> Response:
    """Let users sign in through a connection."""
    data = to_model(ConnectionActivationRequest, form)
    await connections.activate(ports(), acting_member(), connection_slug, data.version)
    return redirect_with_notice("connection-activated", path_of(connection_slug))


@routes.post(f"{ONE}/deactivate")
@member_page(Capability.INTEGRATIONS_MANAGE, GIVES)
@accepts(f"POST {API_OF_ONE}/deactivate")
@refuses(409)
@on_refusal("federation/connection.html", _stored_values, choose_field)
async def deactivate(org_slug: str, connection_slug: str, form: Form) -> Response:
    """Let no user sign in through a connection."""
    await connections.deactivate(ports(), acting_member(), connection_slug)
    return redirect_with_notice("connection-deactivated", path_of(connection_slug))


@routes.post(f"{ONE}/remove")
@member_page(Capability.INTEGRATIONS_MANAGE, GIVES)
@accepts(f"DELETE {API_OF_ONE}")
@refuses(409)
@on_refusal("federation/connection.html", _stored_values, choose_field)
async def remove(org_slug: str, connection_slug: str, form: Form) -> Response:
    """Remove a connection."""
    details = await connections.find(ports(), acting_member(), connection_slug)
    check_typed_name(form, details.connection.name)
    await connections.remove(ports(), acting_member(), connection_slug)
    return redirect_with_notice("connection-removed", path_of())


# Mapping


async def _mapping_values(form: Form, connection_slug: str) -> dict[str, Any]:
    values = await connection_values(form, connection_slug)
    stored = {CLAIM + name: claim for name, claim in values["connection"].mapping.document.items()}
    return {**values, "typed": form or stored}


@serves_form(routes, f"{ONE}/mapping", f"GET {API_OF_ONE}", f"PATCH {API_OF_ONE}")
@member_page(Capability.INTEGRATIONS_MANAGE, GIVES)
@accepts(f"PATCH {API_OF_ONE}")
@refuses(409)
@on_refusal("federation/connection_mapping.html", _mapping_values, choose_field)
async def change_mapping(org_slug: str, connection_slug: str, form: Form) -> Response:
    """Change the claims that a connection reads."""
    claims = {name.removeprefix(CLAIM): text for name, text in form.items() if name.startswith(CLAIM)}
    optional = dict.fromkeys(("name", "given_name", "family_name", "groups", "picture", "locale"), to_optional)
    mapping = to_model(ClaimMappingRequest, claims, optional).build()
    await connections.change(ports(), acting_member(), connection_slug, mapping=mapping)
    return redirect_with_notice("connection-saved", path_of(f"{connection_slug}/mapping"))


# Health


@routes.get(f"{ONE}/health")
@member_page(Capability.INTEGRATIONS_MANAGE)
@shows(f"GET {API_OF_ONE}")
async def show_health(org_slug: str, connection_slug: str) -> Response:
    """Show whether users can sign in through a connection."""
    return await console_page("federation/connection_health.html", **await connection_values({}, connection_slug))


async def _key_values(form: Form, connection_slug: str, **_: object) -> dict[str, Any]:
    return {**await connection_values(form, connection_slug), "typed": form, "most": MAX_CERTIFICATES}


@routes.post(f"{ONE}/keys/client-secret")
@member_page(Capability.INTEGRATIONS_MANAGE, GIVES)
@accepts(f"PUT {API_OF_CONNECTION}/client-secret", answers=ANSWERS_TO_SAVED)
@refuses(409)
@on_refusal("federation/connection_keys.html", _key_values, choose_field)
async def set_client_secret(org_slug: str, connection_slug: str, form: Form) -> Response:
    """Set a connection's client secret."""
    data = to_model(ClientSecretRequest, form)
    await connections.put_client_secret(ports(), acting_member(), connection_slug, data.client_secret, data.issuer)
    return await check_saved(connection_slug, "connection-secret-set", "/keys")


@serves_form(
    routes,
    f"{ONE}/keys",
    f"GET {API_OF_CONNECTION}",
    f"PUT {API_OF_CONNECTION}/client-secret",
    f"POST {API_OF_CONNECTION}/keys",
    f"POST {API_OF_CONNECTION}/keys/activate",
    f"POST {API_OF_CONNECTION}/certificates",
    f"DELETE {API_OF_CONNECTION}/certificates/<fingerprint>",
)
@member_page(Capability.INTEGRATIONS_MANAGE, GIVES)
@accepts(f"POST {API_OF_CONNECTION}/keys")
@refuses(409)
@once(f"{ONE}/keys", "Open keys", "The key is in the list.")
@on_refusal("federation/connection_keys.html", _key_values, choose_field)
async def create_key(org_slug: str, connection_slug: str, form: Form) -> Response:
    """Create a key for a connection."""
    await connections.create_key(ports_once(), acting_member(), connection_slug)
    return redirect_with_notice("connection-key-created", path_of(f"{connection_slug}/keys"))


@routes.post(f"{ONE}/keys/activate")
@member_page(Capability.INTEGRATIONS_MANAGE, GIVES)
@accepts(f"POST {API_OF_CONNECTION}/keys/activate")
@on_refusal("federation/connection_keys.html", _key_values, choose_field)
async def activate_key(org_slug: str, connection_slug: str, form: Form) -> Response:
    """Use a connection's next key."""
    await connections.activate_key(ports(), acting_member(), connection_slug)
    return redirect_with_notice("connection-key-activated", path_of(f"{connection_slug}/keys"))


@routes.post(f"{ONE}/keys/certificates")
@member_page(Capability.INTEGRATIONS_MANAGE, GIVES)
@accepts(f"POST {API_OF_CONNECTION}/certificates")
@refuses(409)
@on_refusal("federation/connection_keys.html", _key_values, choose_field)
async def add_certificate(org_slug: str, connection_slug: str, form: Form) -> Response:
    """Add the identity provider's certificate."""
    pem = to_model(ProviderCertificateRequest, form).certificate
    await connections.add_certificate(ports(), acting_member(), connection_slug, pem)
    return redirect_with_notice("connection-certificate-added", path_of(f"{connection_slug}/keys"))


async def _certificate_removal(connection_slug: str, fingerprint: str) -> Question:
    details = await connections.find(ports(), acting_member(), connection_slug)
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
@member_page(Capability.INTEGRATIONS_MANAGE, GIVES)
@accepts_answer(f"DELETE {API_OF_CONNECTION}/certificates/<fingerprint>", _certificate_removal)
async def remove_certificate(org_slug: str, connection_slug: str, fingerprint: str, form: Form) -> Response:
    """Remove the identity provider's certificate."""
    await connections.remove_certificate(ports(), acting_member(), connection_slug, fingerprint)
    return redirect_with_notice("connection-certificate-removed", path_of(f"{connection_slug}/keys"))
