"""The client secret, the keys and the certificates for an organization's connections."""

from typing import Any

from quart import Blueprint, Response

from core.federation.connections import connections
from core.federation.connections.model.connections import MAX_CERTIFICATES, CertificateSource, ProviderCertificateNotFound
from core.kernel.errors import refuse
from core.kernel.roles import Capability
from entrypoints.http.api.federation.connections.connections import CONNECTION as API
from entrypoints.http.api.federation.connections.connections import ClientSecretRequest, ProviderCertificateRequest
from entrypoints.http.base.context import acting_member, ports
from entrypoints.http.edge.access import GIVES, member_page
from entrypoints.http.edge.openapi import refuses
from entrypoints.http.pages.consequences import Question, accepts_answer, asks
from entrypoints.http.pages.console import redirect_with_notice
from entrypoints.http.pages.console_forms import Form, accepts, on_refusal, once, ports_once, serves_form
from entrypoints.http.pages.federation.connections.places import ANSWERS_TO_SAVED, ONE, check_saved, path_of
from entrypoints.http.pages.federation.connections.values import choose_field, connection_values
from entrypoints.http.pages.form_values import to_model

routes = Blueprint("connection_key_pages", __name__)


async def _key_values(form: Form, connection_slug: str, **_: object) -> dict[str, Any]:
    return {**await connection_values(form, connection_slug), "typed": form, "most": MAX_CERTIFICATES}


@routes.post(f"{ONE}/keys/client-secret")
@member_page(Capability.INTEGRATIONS_MANAGE, GIVES)
@accepts(f"PUT {API}/client-secret", answers=ANSWERS_TO_SAVED)
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
    f"GET {API}",
    f"PUT {API}/client-secret",
    f"POST {API}/keys",
    f"POST {API}/keys/activate",
    f"POST {API}/certificates",
    f"DELETE {API}/certificates/<fingerprint>",
)
@member_page(Capability.INTEGRATIONS_MANAGE, GIVES)
@accepts(f"POST {API}/keys")
@refuses(409)
@once(f"{ONE}/keys", "Open keys", "The key is in the list.")
@on_refusal("federation/connection_keys.html", _key_values, choose_field)
async def create_key(org_slug: str, connection_slug: str, form: Form) -> Response:
    """Create a key for a connection."""
    await connections.create_key(ports_once(), acting_member(), connection_slug)
    return redirect_with_notice("connection-key-created", path_of(f"{connection_slug}/keys"))


@routes.post(f"{ONE}/keys/activate")
@member_page(Capability.INTEGRATIONS_MANAGE, GIVES)
@accepts(f"POST {API}/keys/activate")
@on_refusal("federation/connection_keys.html", _key_values, choose_field)
async def activate_key(org_slug: str, connection_slug: str, form: Form) -> Response:
    """Use a connection's next key."""
    await connections.activate_key(ports(), acting_member(), connection_slug)
    return redirect_with_notice("connection-key-activated", path_of(f"{connection_slug}/keys"))


@routes.post(f"{ONE}/keys/certificates")
@member_page(Capability.INTEGRATIONS_MANAGE, GIVES)
@accepts(f"POST {API}/certificates")
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
@accepts_answer(f"DELETE {API}/certificates/<fingerprint>", _certificate_removal)
async def remove_certificate(org_slug: str, connection_slug: str, fingerprint: str, form: Form) -> Response:
    """Remove the identity provider's certificate."""
    await connections.remove_certificate(ports(), acting_member(), connection_slug, fingerprint)
    return redirect_with_notice("connection-certificate-removed", path_of(f"{connection_slug}/keys"))
