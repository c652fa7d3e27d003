"""Services with an identity provider, and what they send: documents as text, so that nothing is repaired on the way."""

import base64
import html
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import urlencode
from uuid import UUID

from lxml import etree

from adapters.crypto import X509Certificates
from adapters.postgres.engine.pool import Pool
from core.federation.saml import messages as saml_messages
from core.federation.saml.configuration_rules import NameIdFormat, SamlCertificate, SamlConfiguration
from core.kernel.principals import SYSTEM
from core.kernel.values import new_id
from ports import Ports
from tests.support.builders import BASE_URL, Answer
from tests.support.services import add_service

NS: Final = {
    "samlp": "urn:oasis:names:tc:SAML:2.0:protocol",
    "saml": "urn:oasis:names:tc:SAML:2.0:assertion",
    "md": "urn:oasis:names:tc:SAML:2.0:metadata",
    "ds": "http://www.w3.org/2000/09/xmldsig#",
}
STATUS: Final = "urn:oasis:names:tc:SAML:2.0:status:"


_made: dict[tuple[datetime, str], SamlCertificate] = {}


async def new_certificate(now: datetime, organization: str = "acme") -> SamlCertificate:
    """One of its own id, whose key is made once for each of these, since that takes a tenth of a second."""
    if (now, organization) not in _made:
        _made[now, organization] = await X509Certificates().new(organization, "shop", now, 3)
    return replace(_made[now, organization], id=new_id())


@dataclass(frozen=True, slots=True)
class Application:
    """A service that has people signed in with SAML, and what it calls itself."""

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
        """What the identity provider calls itself."""
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


async def add_application(ports: Ports, pool: Pool, org: UUID, org_slug: str, slug: str = "shop", **changes: Any) -> Application:
    """A service whose identity provider is open; it is set up with `changes` from what is usual."""
    host = f"https://{slug}.example.com"
    usual: dict[str, Any] = {
        "enabled": True,
        "entity_id": f"{host}/metadata",
        "acs_url": f"{host}/acs",
        "slo_url": f"{host}/slo",
        "name_id_format": NameIdFormat.EMAIL,
    }
    configuration = SamlConfiguration(**{**usual, **changes})
    service = await add_service(pool, org, slug)
    certificate = await new_certificate(ports.clock.now())
    async with ports.storage.transaction(by=SYSTEM) as tx:
        await tx.saml.configure(org, service, configuration, ports.clock.now())
        await tx.saml.add_certificate(org, service, certificate)
    return Application(org, org_slug, service, slug, configuration, certificate)


# What services send


def instant(time: datetime) -> str:
    return f"{time.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


def authn_request(
    application: Application,
    now: datetime,
    *,
    inside: str = "",
    before: str = "",
    after: str = "",
    issuer: str | None = None,
    **changes: str | None,
) -> bytes:
    """A request that asks for nothing special. `changes` are attributes by name, None takes one away; `inside` stands behind the issuer,
    `before` and `after` around the root."""
    attributes: dict[str, str | None] = {
        "ID": saml_messages.new_message_id(),
        "Version": "2.0",
        "IssueInstant": instant(now),
        "Destination": f"{application.issuer}/sso",
        "ProtocolBinding": saml_messages.HTTP_POST,
        "AssertionConsumerServiceURL": application.acs_url,
    }
    return document("AuthnRequest", application, {**attributes, **changes}, inside, before, after, issuer)


def logout_request(
    application: Application,
    now: datetime,
    name_id: str,
    *session_indexes: str,
    issuer: str | None = None,
    inside: str = "",
    named: Mapping[str, str] = MappingProxyType({}),
    **changes: str | None,
) -> bytes:
    """`named` are the attributes of the name."""
    attributes = {
        "ID": saml_messages.new_message_id(),
        "Version": "2.0",
        "IssueInstant": instant(now),
        "Destination": f"{application.issuer}/slo",
    }
    indexes = "".join(f"<samlp:SessionIndex>{index}</samlp:SessionIndex>" for index in session_indexes)
    who = f"{name_id_element(name_id, **named)}{indexes}{inside}"
    return document("LogoutRequest", application, {**attributes, **changes}, who, issuer=issuer)


def name_id_element(name_id: str, **attributes: str) -> str:
    told = "".join(f' {key}="{html.escape(value)}"' for key, value in attributes.items())
    return f"<saml:NameID{told}>{html.escape(name_id)}</saml:NameID>"


def logout_response(
    application: Application, now: datetime, in_response_to: str, status: str = "Success", inner: str = "", **changes: str | None
) -> bytes:
    """`inner` is the second-level code, if there is one."""
    attributes = {
        "ID": saml_messages.new_message_id(),
        "Version": "2.0",
        "IssueInstant": instant(now),
        "Destination": f"{application.issuer}/slo",
        "InResponseTo": in_response_to,
    }
    second = inner and status_code(inner)
    return document("LogoutResponse", application, {**attributes, **changes}, f"<samlp:Status>{status_code(status, second)}</samlp:Status>")


def status_code(status: str, inside: str = "") -> str:
    return f'<samlp:StatusCode Value="{STATUS}{status}">{inside}</samlp:StatusCode>'


def document(
    name: str,
    application: Application,
    attributes: Mapping[str, str | None],
    inside: str,
    before: str = "",
    after: str = "",
    issuer: str | None = None,
) -> bytes:
    told = "".join(f' {key}="{html.escape(value)}"' for key, value in attributes.items() if value is not None)
    said = f"<saml:Issuer>{html.escape(application.entity_id)}</saml:Issuer>" if issuer is None else issuer
    spaces = f'xmlns:samlp="{NS["samlp"]}" xmlns:saml="{NS["saml"]}"'
    return f"{before}<samlp:{name} {spaces}{told}>{said}{inside}</samlp:{name}>{after}".encode()


def deflated(data: bytes) -> bytes:
    deflater = zlib.compressobj(9, zlib.DEFLATED, -15)
    return deflater.compress(data) + deflater.flush()


def inflated(text: str) -> bytes:
    """The message in a query."""
    return zlib.decompress(base64.b64decode(text, validate=True), -15)


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def redirected(path: str, message: bytes, name: str = "SAMLRequest", **more: str) -> str:
    """The address at which a message is sent by HTTP-Redirect."""
    return f"{path}?{urlencode({name: encoded(deflated(message)), **more})}"


# What comes back


@dataclass(frozen=True, slots=True)
class Posted:
    """What the page posts to the application."""

    url: str
    document: bytes
    relay_state: str | None

    @property
    def root(self) -> Any:
        return etree.fromstring(self.document)

    def find(self, path: str) -> Any:
        [found] = self.root.xpath(path, namespaces=NS)
        return found

    @property
    def name_id(self) -> str:
        return str(self.find("//saml:NameID").text)

    @property
    def statuses(self) -> list[str]:
        """The codes, the outer one first, without what they all begin with."""
        found = self.root.xpath("//samlp:StatusCode/@Value", namespaces=NS)
        return [str(value).removeprefix(STATUS) for value in found]

    @property
    def session_index(self) -> str:
        return str(self.find("//saml:AuthnStatement/@SessionIndex"))


def posted(answer: Answer) -> Posted:
    """What stands in the form of the page."""
    assert answer.status == 200, (answer.status, answer.text.rpartition("<main>")[2])
    fields = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', answer.text))
    [url] = re.findall(r'method="post" action="([^"]+)"', answer.text)
    relay_state = fields.get("RelayState")
    sent = base64.b64decode(fields["SAMLResponse"], validate=True)
    return Posted(html.unescape(url), sent, None if relay_state is None else html.unescape(relay_state))
