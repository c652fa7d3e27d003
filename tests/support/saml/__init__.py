"""SAML services and their messages.

Documents are written as text, so that no library corrects them.
"""

import base64
import html
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import urlencode
from uuid import UUID

from lxml import etree

from adapters.crypto import X509Certificates
from adapters.postgres.engine.pool import Pool
from core.federation.saml.model import messages as saml_messages
from core.federation.saml.model.configuration import NameIdFormat, SamlCertificate, SamlConfiguration
from core.kernel.causes import SYSTEM
from core.kernel.values import new_id
from ports import Ports
from tests.support.browser import hidden_fields
from tests.support.builders import BASE_URL, Answer
from tests.support.services import add_service

NS: Final = {
    "samlp": "urn:oasis:names:tc:SAML:2.0:protocol",
    "saml": "urn:oasis:names:tc:SAML:2.0:assertion",
    "md": "urn:oasis:names:tc:SAML:2.0:metadata",
    "ds": "http://www.w3.org/2000/09/xmldsig#",
}
RECORDED: Final = Path(__file__).parents[2] / "federation" / "connections" / "saml" / "recorded"
PROVIDER_CERTIFICATE: Final = (RECORDED / "identity_provider.crt").read_text()
STATUS: Final = "urn:oasis:names:tc:SAML:2.0:status:"


_certificates: dict[tuple[datetime, str], SamlCertificate] = {}


async def new_certificate(now: datetime, organization: str = "acme") -> SamlCertificate:
    """Return a certificate with a new id.

    Its key is generated once per argument, because that takes 0.1 seconds.
    """
    if (now, organization) not in _certificates:
        _certificates[now, organization] = await X509Certificates().create(organization, "shop", now, 3)
    return replace(_certificates[now, organization], id=new_id())


@dataclass(frozen=True, slots=True)
class SamlApplication:
    """A service with SAML enabled."""

    org: UUID
    org_slug: str
    id: UUID
    slug: str
    configuration: SamlConfiguration
    certificate: SamlCertificate | None = field(repr=False)
    base_url: str = BASE_URL

    @property
    def path(self) -> str:
        return f"/saml/{self.org_slug}/{self.slug}"

    @property
    def issuer(self) -> str:
        """The entity id for the service's identity provider."""
        return self.base_url + self.path

    @property
    def management(self) -> str:
        return f"/api/organizations/{self.org_slug}/services/{self.slug}/saml"

    @property
    def entity_id(self) -> str:
        assert self.configuration.entity_id is not None
        return self.configuration.entity_id

    @property
    def acs_url(self) -> str:
        assert self.configuration.acs_url is not None
        return self.configuration.acs_url


async def add_application(ports: Ports, pool: Pool, org: UUID, org_slug: str, slug: str = "shop", **changes: Any) -> SamlApplication:
    """Add a service with SAML enabled and a certificate.

    `changes` override the default configuration.
    """
    host = f"https://{slug}.example.com"
    defaults: dict[str, Any] = {
        "enabled": True,
        "entity_id": f"{host}/metadata",
        "acs_url": f"{host}/acs",
        "slo_url": f"{host}/slo",
        "name_id_format": NameIdFormat.EMAIL,
    }
    configuration = SamlConfiguration(**{**defaults, **changes})
    service = await add_service(pool, org, slug)
    certificate = await new_certificate(ports.clock.now())
    async with ports.storage.transaction(by=SYSTEM) as tx:
        await tx.saml.configure(org, service, configuration, ports.clock.now())
        await tx.saml.add_certificate(org, service, certificate)
    return SamlApplication(org, org_slug, service, slug, configuration, certificate)


def service_provider_metadata(
    *services: str,
    entity_id: str = "https://shop.example.com/metadata",
    acs: str = '<md:AssertionConsumerService Binding="{post}" Location="https://shop.example.com/acs" index="0"/>',
    role: str = "SPSSODescriptor",
    certificates: Sequence[str] = (),
    formats: Sequence[str] = (),
) -> str:
    """Return a service provider's metadata, with the texts of its logout services, and certificates in base64."""
    keys = "".join(
        f'<md:KeyDescriptor use="signing"><ds:KeyInfo><ds:X509Data><ds:X509Certificate>\n{certificate}\n</ds:X509Certificate>'
        "</ds:X509Data></ds:KeyInfo></md:KeyDescriptor>"
        for certificate in certificates
    )
    names = "".join(f"<md:NameIDFormat>{name}</md:NameIDFormat>" for name in formats)
    body = f"{keys}{''.join(services)}{names}{acs}".replace("{post}", saml_messages.HTTP_POST)
    return (
        f'<?xml version="1.0" encoding="UTF-8"?><md:EntityDescriptor xmlns:md="{NS["md"]}" xmlns:ds="{NS["ds"]}" entityID="{entity_id}">'
        f'<md:{role} protocolSupportEnumeration="{NS["samlp"]}">{body}</md:{role}></md:EntityDescriptor>'
    )


def identity_provider_metadata(
    entity_id: str = "https://idp.example.com/metadata",
    *,
    sso: Mapping[str, str] = MappingProxyType({"HTTP-Redirect": "https://idp.example.com/sso"}),
    slo: str | None = "https://idp.example.com/slo",
    certificates: Sequence[str] = (PROVIDER_CERTIFICATE,),
    formats: Sequence[str] = (),
) -> str:
    """Return an identity provider's metadata, with certificates in PEM, and the URNs of NameID formats."""
    bindings = "urn:oasis:names:tc:SAML:2.0:bindings"
    addresses = "".join(f'<md:SingleSignOnService Binding="{bindings}:{name}" Location="{url}"/>' for name, url in sso.items())
    return service_provider_metadata(
        *(() if slo is None else (f'<md:SingleLogoutService Binding="{bindings}:HTTP-Redirect" Location="{slo}"/>',)),
        entity_id=entity_id,
        acs=addresses,
        role="IDPSSODescriptor",
        formats=formats,
        certificates=["".join(line for line in pem.splitlines() if not line.startswith("-----")) for pem in certificates],
    )


def with_validity(metadata: str, *ends: str) -> str:
    """Return metadata in an EntitiesDescriptor.

    The ends are the `validUntil` of the EntityDescriptor, of the EntitiesDescriptor around it, and of the role.
    """
    own, around, role = (f' validUntil="{end}"' if end else "" for end in (*ends, "", "", "")[:3])
    text = metadata.partition("?>")[2].replace("<md:EntityDescriptor", f"<md:EntityDescriptor{own}", 1)
    text = re.sub("<md:(SP|IDP)SSODescriptor", lambda match: match[0] + role, text, count=1)
    return f'<md:EntitiesDescriptor xmlns:md="{NS["md"]}"{around}>{text}</md:EntitiesDescriptor>'


# Messages by services


def format_instant(time: datetime) -> str:
    return f"{time.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


def authn_request(
    application: SamlApplication,
    now: datetime,
    *,
    inside: str = "",
    before: str = "",
    after: str = "",
    issuer: str | None = None,
    **changes: str | None,
) -> bytes:
    """Return an AuthnRequest without special options.

    `changes` are XML attributes by name. None removes an attribute. `inside` follows the issuer, and `before` and
    `after` surround the root.
    """
    attributes: dict[str, str | None] = {
        "ID": saml_messages.new_message_id(),
        "Version": "2.0",
        "IssueInstant": format_instant(now),
        "Destination": f"{application.issuer}/sso",
        "ProtocolBinding": saml_messages.HTTP_POST,
        "AssertionConsumerServiceURL": application.acs_url,
    }
    return document("AuthnRequest", application, {**attributes, **changes}, inside, before, after, issuer)


def logout_request(
    application: SamlApplication,
    now: datetime,
    name_id: str,
    *session_indexes: str,
    issuer: str | None = None,
    inside: str = "",
    name_attributes: Mapping[str, str] = MappingProxyType({}),
    **changes: str | None,
) -> bytes:
    """Return a LogoutRequest. `name_attributes` are the attributes on its NameID."""
    attributes = {
        "ID": saml_messages.new_message_id(),
        "Version": "2.0",
        "IssueInstant": format_instant(now),
        "Destination": f"{application.issuer}/slo",
    }
    indexes = "".join(f"<samlp:SessionIndex>{index}</samlp:SessionIndex>" for index in session_indexes)
    content = f"{name_id_element(name_id, **name_attributes)}{indexes}{inside}"
    return document("LogoutRequest", application, {**attributes, **changes}, content, issuer=issuer)


def name_id_element(name_id: str, **attributes: str) -> str:
    written = "".join(f' {key}="{html.escape(value)}"' for key, value in attributes.items())
    return f"<saml:NameID{written}>{html.escape(name_id)}</saml:NameID>"


def logout_response(
    application: SamlApplication, now: datetime, in_response_to: str, status: str = "Success", inner: str = "", **changes: str | None
) -> bytes:
    """Return a LogoutResponse. `inner` is the second-level status code, if any."""
    attributes = {
        "ID": saml_messages.new_message_id(),
        "Version": "2.0",
        "IssueInstant": format_instant(now),
        "Destination": f"{application.issuer}/slo",
        "InResponseTo": in_response_to,
    }
    second = inner and status_code(inner)
    return document("LogoutResponse", application, {**attributes, **changes}, f"<samlp:Status>{status_code(status, second)}</samlp:Status>")


def status_code(status: str, inside: str = "") -> str:
    return f'<samlp:StatusCode Value="{STATUS}{status}">{inside}</samlp:StatusCode>'


def document(
    name: str,
    application: SamlApplication,
    attributes: Mapping[str, str | None],
    inside: str,
    before: str = "",
    after: str = "",
    issuer: str | None = None,
) -> bytes:
    written = "".join(f' {key}="{html.escape(value)}"' for key, value in attributes.items() if value is not None)
    issuer_element = f"<saml:Issuer>{html.escape(application.entity_id)}</saml:Issuer>" if issuer is None else issuer
    spaces = f'xmlns:samlp="{NS["samlp"]}" xmlns:saml="{NS["saml"]}"'
    return f"{before}<samlp:{name} {spaces}{written}>{issuer_element}{inside}</samlp:{name}>{after}".encode()


def deflate(data: bytes) -> bytes:
    deflater = zlib.compressobj(9, zlib.DEFLATED, -15)
    return deflater.compress(data) + deflater.flush()


def inflate(text: str) -> bytes:
    """Return the message in a query value."""
    return zlib.decompress(base64.b64decode(text, validate=True), -15)


def encode_base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def redirect_url(path: str, message: bytes, name: str = "SAMLRequest", **more: str) -> str:
    """Return the path and query that sends a message with HTTP-Redirect."""
    return f"{path}?{urlencode({name: encode_base64(deflate(message)), **more})}"


# Responses


@dataclass(frozen=True, slots=True)
class PostedResponse:
    """The form that our page posts to the application."""

    url: str
    document: bytes
    relay_state: str | None

    @property
    def root(self) -> Any:
        return etree.fromstring(self.document)

    def find(self, path: str) -> Any:
        [element] = self.root.xpath(path, namespaces=NS)
        return element

    @property
    def name_id(self) -> str:
        return str(self.find("//saml:NameID").text)

    @property
    def statuses(self) -> list[str]:
        """The last parts of the status codes, the top-level code first."""
        codes = self.root.xpath("//samlp:StatusCode/@Value", namespaces=NS)
        return [str(value).removeprefix(STATUS) for value in codes]

    @property
    def session_index(self) -> str:
        return str(self.find("//saml:AuthnStatement/@SessionIndex"))


def posted_response(answer: Answer) -> PostedResponse:
    """Return the form on the page."""
    assert answer.status == 200, (answer.status, answer.text.rpartition("<main>")[2])
    fields = hidden_fields(answer)
    [url] = re.findall(r'method="post" action="([^"]+)"', answer.text)
    return PostedResponse(html.unescape(url), base64.b64decode(fields["SAMLResponse"], validate=True), fields.get("RelayState"))
