"""A SAML identity provider on a real HTTP server: its metadata, and a sign-in page at which its user always agrees."""

import base64
import html
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

import trio
from lxml import etree

from adapters.crypto import X509Certificates
from core.federation.saml.model.messages import decode_redirect
from tests.fakes.http_server import Answer, FakeServer, ReceivedRequest
from tests.support.saml import format_instant, identity_provider_metadata
from tests.support.saml.identity_provider import PERSISTENT, Content, build, find, serialize, sign

PAGE: Final = """<!doctype html><title>Sign in</title><link rel="icon" href="data:,"><h1>Sign in</h1>
<form method="post" action="{action}"><input type="hidden" name="SAMLResponse" value="{response}"></form>
<script>document.forms[0].submit()</script>"""


class FakeSamlProvider(FakeServer):
    """It signs in the user with `subject` and `attributes`, for every service provider that asks."""

    def __init__(self) -> None:
        super().__init__()
        self.entity_id = f"{self.address}/metadata"
        self.subject = "7f3a"
        self.attributes: Sequence[tuple[str, Sequence[str]]] = ()
        self._certificate = trio.run(X509Certificates().create, "idp", "idp", datetime(2020, 1, 1, tzinfo=UTC), 100)
        sso = {"HTTP-Redirect": f"{self.address}/sso"}
        self.metadata = identity_provider_metadata(self.entity_id, sso=sso, slo=None, certificates=[self._certificate.certificate])

    def _reply(self, request: ReceivedRequest) -> Answer:
        if request.path == "/metadata":
            return Answer(200, self.metadata.encode(), {"Content-Type": "application/samlmetadata+xml"})
        asked = etree.fromstring(decode_redirect(request.sent["SAMLRequest"]))
        response, action = self._respond(asked), html.escape(asked.get("AssertionConsumerServiceURL"))
        page = PAGE.format(action=action, response=base64.b64encode(response).decode())
        return Answer(200, page.encode(), {"Content-Type": "text/html"})

    def _respond(self, asked: etree._Element) -> bytes:
        id_, acs_url, now = asked.get("ID"), asked.get("AssertionConsumerServiceURL"), datetime.fromtimestamp(self.now(), UTC)
        audience, ends = find(asked, "saml:Issuer").text, format_instant(now + timedelta(minutes=5))
        content = Content(
            response_id=f"_r{id_}",
            assertion_id=f"_a{id_}",
            response_attributes=f'Destination="{acs_url}" InResponseTo="{id_}"',
            issuer=self.entity_id,
            issued=format_instant(now),
            name_id=f'<saml:NameID Format="{PERSISTENT}">{self.subject}</saml:NameID>',
            bearer=f'Recipient="{acs_url}" InResponseTo="{id_}" NotOnOrAfter="{ends}"',
            conditions=f'NotOnOrAfter="{ends}"',
            restrictions=f"<saml:AudienceRestriction><saml:Audience>{audience}</saml:Audience></saml:AudienceRestriction>",
            statement=f'<saml:AuthnStatement AuthnInstant="{format_instant(now)}" SessionIndex="_s"/>',
            attributes=self.attributes,
        )
        response = build(content)
        sign(find(response, "saml:Assertion"), self._certificate)
        return serialize(response)
