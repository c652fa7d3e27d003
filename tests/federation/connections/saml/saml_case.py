"""A draft connection with a SAML test identity provider, and browsers that sign in there."""

import base64
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit
from uuid import UUID

from lxml import etree

from core.federation.connections.model.connections import CertificateSource, ConnectionState, OrganizationConnection, ProviderCertificate
from core.federation.connections.model.settings import ClaimMapping, SamlSettings
from core.federation.saml.model.configuration import CertificateState
from core.federation.saml.model.messages import decode_post, decode_redirect
from core.kernel.causes import SYSTEM
from core.kernel.values import new_id
from ports import Ports
from tests.support.browser import FakeBrowser, hidden_fields
from tests.support.builders import BASE_URL, Answer
from tests.support.connections import add_connection
from tests.support.saml import format_instant
from tests.support.saml.identity_provider import ENTITY_ID, PERSISTENT, Content, Encryption, IdentityProvider, new_identity_provider

SSO_URL: Final = "https://idp.example.com/sso"
DRAFT: Final = {"state": ConnectionState.DRAFT, "first_activated_at": None}


@dataclass(slots=True)
class SamlCase:
    """A connection, its identity provider, and the page that tests it."""

    ports: Ports
    provider: IdentityProvider
    connection: OrganizationConnection
    org_slug: str = "acme"

    @property
    def page(self) -> str:
        return f"/app/organizations/{self.org_slug}/connections/{self.connection.slug}/test"

    @property
    def entity_id(self) -> str:
        return f"{BASE_URL}/auth/connections/{self.connection.id}"

    @property
    def acs(self) -> str:
        return f"/auth/connections/{self.connection.id}/acs"

    def content(self, request_id: str, **changes: Any) -> Content:
        """Return what a response to a request contains, as of now."""
        now, acs_url = self.ports.clock.now(), BASE_URL + self.acs
        usual: dict[str, Any] = {
            "response_id": f"_r{request_id}",
            "assertion_id": f"_a{request_id}",
            "response_attributes": f'Destination="{acs_url}" InResponseTo="{request_id}"',
            "issued": format_instant(now),
            "name_id": f'<saml:NameID Format="{PERSISTENT}">7f3a</saml:NameID>',
            "bearer": f'Recipient="{acs_url}" InResponseTo="{request_id}" NotOnOrAfter="{format_instant(now + timedelta(minutes=5))}"',
            "conditions": f'NotOnOrAfter="{format_instant(now + timedelta(minutes=10))}"',
            "restrictions": f"<saml:AudienceRestriction><saml:Audience>{self.entity_id}</saml:Audience></saml:AudienceRestriction>",
            "statement": (
                f'<saml:AuthnStatement AuthnInstant="{format_instant(now)}" SessionIndex="_s" SessionNotOnOrAfter="'
                f'{format_instant(now + timedelta(hours=8))}"><saml:AuthnContext><saml:AuthnContextClassRef>https://refeds.org/profile/mfa'
                "</saml:AuthnContextClassRef></saml:AuthnContext></saml:AuthnStatement>"
            ),
            "attributes": (("email", ["ada@example.com"]), ("name", ["Ada Lovelace"]), ("groups", ["staff", "<b>R&D</b>"])),
        }
        return Content(**(usual | changes))

    def respond(
        self, request_id: str, *, signed: Sequence[str] = ("assertion",), encryption: Encryption | None = None, **changes: Any
    ) -> str:
        """Return the form field with the response to a request."""
        return base64.b64encode(self.provider.respond(self.content(request_id, **changes), signed=signed, encryption=encryption)).decode()

    def unsolicited(self, number: str = "_x") -> str:
        """Return the form field with a response that answers no request."""
        usual, named = self.content(number), f' InResponseTo="{number}"'
        changes: dict[str, Any] = {
            "response_attributes": usual.response_attributes.replace(named, ""),
            "bearer": usual.bearer.replace(named, ""),
        }
        return self.respond(number, **changes)

    async def begin(self, browser: FakeBrowser) -> str:
        """Begin a test sign-in. Return the id of the request that the browser takes to the identity provider."""
        return str(read_request(await browser.open(f"{self.page}/start")).get("ID"))

    async def test(self, browser: FakeBrowser, **options: Any) -> Answer:
        """Return the page with a test sign-in's result."""
        return await arrive(browser, self.acs, self.respond(await self.begin(browser), **options))


def read_request(answer: Answer) -> Any:
    """Return the AuthnRequest that this answer sends to the identity provider."""
    if answer.status in (302, 303):
        [text] = parse_qs(urlsplit(answer.headers["Location"]).query)["SAMLRequest"]
        return etree.fromstring(decode_redirect(text))
    return etree.fromstring(decode_post(hidden_fields(answer)["SAMLRequest"]))


async def arrive(browser: FakeBrowser, path: str, text: str) -> Answer:
    """Post a response from the identity provider's site, without cookies, and then as our page does. Return the last answer."""
    foreign = FakeBrowser(browser._app, "https://idp.example.com")
    page = await foreign.send(path, SAMLResponse=text)
    if page.status != 200:
        return page
    assert foreign.cookies == {}
    return await browser.send(path, **hidden_fields(page))


async def connect(ports: Ports, org_id: UUID, slug: str = "okta", **changes: Any) -> SamlCase:
    """Add a connection with our keys and an identity provider's certificate."""
    provider, now = await new_identity_provider(), ports.clock.now()
    usual: dict[str, Any] = {"entity_id": ENTITY_ID, "sso_url": SSO_URL, "trusts_second_factor": True}
    settings = SamlSettings(**(usual | changes))
    mapping = ClaimMapping(groups="groups")
    connection = await add_connection(ports.storage, org_id, slug, settings=settings, mapping=mapping, **DRAFT)
    facts = await ports.certificates.facts(provider.certificate.certificate)
    certificate = ProviderCertificate(**asdict(facts), source=CertificateSource.ADMIN, is_active=True, added_at=now)
    async with ports.storage.transaction(by=SYSTEM) as tx:
        await tx.connection_keys.add(org_id, connection.id, replace(provider.ours, id=new_id()), CertificateState.ACTIVE)
        await tx.connection_keys.add(org_id, connection.id, replace(provider.our_next, id=new_id()), CertificateState.NEXT)
        await tx.connection_keys.add_certificate(org_id, connection.id, certificate)
    return SamlCase(ports, provider, connection)
