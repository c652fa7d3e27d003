"""Single logout with a SAML identity provider: its requests end sessions here, and a sign-out here goes on there."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Final
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
from lxml import etree
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from adapters.saml import verification
from core.federation.saml.model.configuration import SamlCertificate
from core.federation.saml.model.messages import decode_redirect, new_message_id, query_signature
from ports import Ports
from tests.fakes.outside import FakeClock
from tests.federation.connections.people.conftest import DOMAIN
from tests.federation.connections.saml.saml_case import SamlCase, arrive, connect, read_request
from tests.support.browser import FakeBrowser, leads_to
from tests.support.builders import BASE_URL, PASSWORD, Answer, add_account, add_organization, run_sql
from tests.support.saml import NS, encode_base64, format_instant, redirect_url
from tests.support.saml.identity_provider import ENTITY_ID, PERSISTENT
from tests.support.saml.signatures import signed_document, signed_url

pytestmark = pytest.mark.slow

SLO: Final = "https://idp.example.com/slo"
ACTIVE: Final = "update connections set state = 'active' where org_id is not null"


@dataclass(slots=True)
class LogoutCase:
    """An active connection, and a user who is signed in through it, with the NameID 7f3a and the SessionIndex _s."""

    saml_case: SamlCase
    app: QuartTrio
    pool: Pool
    browser: FakeBrowser

    @property
    def path(self) -> str:
        return f"/auth/connections/{self.saml_case.connection.id}/slo"

    async def sign_in(self) -> None:
        """Sign the user in, and put their session into the browser."""
        request_id = read_request(await self.browser.open(f"{self.path.removesuffix('slo')}start?next=/app")).get("ID")
        answer = await arrive(
            self.browser, self.saml_case.acs, self.saml_case.respond(request_id, attributes=(("email", ["grace@example.com"]),))
        )
        assert answer.status == 303, answer.text

    def request(self, *indexes: str, name_id: str = "7f3a", inside: str = "", issuer: str = ENTITY_ID, **changes: str) -> bytes:
        """Return a LogoutRequest from the identity provider, as of now."""
        now = format_instant(self.saml_case.ports.clock.now())
        usual = {"ID": new_message_id(), "Version": "2.0", "IssueInstant": now, "Destination": f"{BASE_URL}{self.path}"}
        attributes = " ".join(f'{name}="{value}"' for name, value in (usual | changes).items() if value)
        sessions = "".join(f"<samlp:SessionIndex>{index}</samlp:SessionIndex>" for index in indexes)
        return (
            f'<samlp:LogoutRequest xmlns:samlp="{NS["samlp"]}" xmlns:saml="{NS["saml"]}" {attributes}><saml:Issuer>{issuer}</saml:Issuer>'
            f"{inside}<saml:NameID>{name_id}</saml:NameID>{sessions}</samlp:LogoutRequest>"
        ).encode()

    async def redirect(self, message: bytes, key: SamlCertificate | None = None, **options: Any) -> Answer:
        """Deliver a signed request with HTTP-Redirect, in a browser that knows nothing."""
        url = signed_url(self.path, message, key or self.saml_case.provider.certificate, **options)
        return await FakeBrowser(self.app, "https://idp.example.com").open(url, follows=False)

    async def post(self, document: bytes, path: str | None = None) -> Answer:
        """Deliver a document with HTTP-POST, in a browser that knows nothing."""
        return await FakeBrowser(self.app, "https://idp.example.com").send(path or self.path, SAMLRequest=encode_base64(document))

    async def live(self) -> int:
        """Return how many sessions through the connection are live."""
        [(count,)] = await run_sql(self.pool, "select count(*) from sessions where restricted_to is not null and ended_at is null")
        return int(count)


@pytest.fixture
async def logout(app: QuartTrio, ports: Ports, pool: Pool, clock: FakeClock) -> LogoutCase:
    org_id = await add_organization(pool, "acme")
    await run_sql(pool, DOMAIN, org_id, "example.com")
    saml_case = await connect(ports, org_id, slo_url=SLO)
    await run_sql(pool, ACTIVE)
    made = LogoutCase(saml_case, app, pool, FakeBrowser(app))
    await made.sign_in()
    return made


def read_message(url: str, name: str) -> Any:
    """Return the signed message in a URL, after verifying nothing."""
    return etree.fromstring(decode_redirect(parse_qs(urlsplit(url).query)[name][0]))


async def test_a_request_of_the_provider_ends_the_session_and_gets_a_signed_response(logout: LogoutCase) -> None:
    key = logout.saml_case.provider.certificate
    deliveries: tuple[Callable[[], Awaitable[Answer]], ...] = (
        lambda: logout.redirect(logout.request("_s")),
        lambda: logout.redirect(logout.request()),
        lambda: logout.post(signed_document(logout.request("_other", "_s"), key)),
    )
    for number, deliver in enumerate(deliveries):
        answer = await deliver()
        assert (answer.status in (302, 303), await logout.live()) == (True, 0), (number, answer.text)
        url = answer.headers["Location"]
        assert url.startswith(f"{SLO}?")
        response = read_message(url, "SAMLResponse")
        assert response.find("samlp:Status/samlp:StatusCode", NS).get("Value").endswith(":Success")
        assert response.get("Destination") == SLO
        signature = query_signature(urlsplit(url).query)
        assert signature is not None
        verification.verify_query(signature, logout.saml_case.provider.ours.certificate)
        assert parse_qs(urlsplit(url).query).get("RelayState") == (None if number == 2 else ["a b"])
        await logout.sign_in()
    settings = "update connections set settings = settings || %s where org_id is not null"
    await run_sql(logout.pool, settings, '{"slo_response_url": "https://idp.example.com/done"}')
    assert (await logout.redirect(logout.request("_s"))).headers["Location"].startswith("https://idp.example.com/done?SAMLResponse=")
    await logout.sign_in()
    await run_sql(logout.pool, settings, '{"slo_url": null, "slo_response_url": null}')
    assert ((await logout.redirect(logout.request("_s"))).status, await logout.live()) == (200, 0)


async def test_a_request_that_is_not_the_providers_ends_nothing(logout: LogoutCase, ports: Ports, pool: Pool, clock: FakeClock) -> None:
    org_id, provider = logout.saml_case.connection.org_id, logout.saml_case.provider
    sibling = await connect(ports, org_id, "sibling", slo_url=SLO)
    elsewhere = await connect(ports, await add_organization(pool, "other"), slo_url=SLO)
    await run_sql(pool, ACTIVE)
    now, key = clock.now(), provider.certificate
    used = signed_url(logout.path, logout.request("_nothing", ID="_used"), key)
    assert (await FakeBrowser(logout.app).open(used, follows=False)).status == 302
    signed = signed_document(logout.request("_s"), key)

    def of(connection: SamlCase) -> str:
        return f"/auth/connections/{connection.connection.id}/slo"

    later, before = format_instant(now + timedelta(minutes=6)), format_instant(now - timedelta(minutes=6))
    stripped = etree.fromstring(signed)
    stripped.remove(stripped.find("ds:Signature", NS))
    changed = signed.replace(b"7f3a", b"7f3b").replace(b"_s<", b"_t<")
    cases: dict[str, tuple[int, Callable[[], Awaitable[Answer]]]] = {
        "unsigned": (400, lambda: FakeBrowser(logout.app).open(redirect_url(logout.path, logout.request("_s")))),
        "unsigned, as a form": (400, lambda: logout.post(logout.request("_s"))),
        "the signature stripped": (400, lambda: logout.post(etree.tostring(stripped))),
        "changed after signing": (400, lambda: logout.post(changed)),
        "another certificate": (400, lambda: logout.redirect(logout.request("_s"), provider.attacker)),
        "our own certificate": (400, lambda: logout.redirect(logout.request("_s"), provider.ours)),
        "another certificate, as a form": (400, lambda: logout.post(signed_document(logout.request("_s"), provider.attacker))),
        "SHA-1": (400, lambda: logout.redirect(logout.request("_s"), algorithm=f"{NS['ds']}rsa-sha1")),
        "signed for another connection": (400, lambda: logout.post(signed, of(sibling))),
        "signed for another organization": (400, lambda: logout.post(signed, of(elsewhere))),
        "at another connection": (302, lambda: replaced(logout, sibling)),
        "without Destination": (400, lambda: logout.redirect(logout.request("_s", Destination=""))),
        "another Destination": (400, lambda: logout.redirect(logout.request("_s", Destination=f"{BASE_URL}{of(sibling)}"))),
        "another issuer": (400, lambda: logout.redirect(logout.request("_s", issuer="https://other.example"))),
        "too old": (400, lambda: logout.redirect(logout.request("_s", IssueInstant=before))),
        "from the future": (400, lambda: logout.redirect(logout.request("_s", IssueInstant=later))),
        "expired": (400, lambda: logout.redirect(logout.request("_s", NotOnOrAfter=before))),
        "replayed": (400, lambda: FakeBrowser(logout.app).open(used)),
        "its ID used": (400, lambda: logout.redirect(logout.request("_s", ID="_used"))),
        "a foreign subject": (302, lambda: logout.redirect(logout.request(name_id="7f3b"))),
        "a foreign subject with the session": (302, lambda: logout.redirect(logout.request("_s", name_id="7f3b"))),
        "a foreign session": (302, lambda: logout.redirect(logout.request("_t"))),
        "no XML": (400, lambda: logout.post(b"<x")),
        "a DOCTYPE": (400, lambda: logout.post(b"<!DOCTYPE x>" + signed)),
        "no message": (400, lambda: FakeBrowser(logout.app).open(logout.path)),
        "an unknown connection": (404, lambda: logout.post(signed, f"/auth/connections/{org_id}/slo")),
    }
    findings = []
    for name, (status, attempt) in cases.items():
        answer = await attempt()
        findings += [(name, answer.status)] if answer.status != status or await logout.live() != 1 else []
    assert findings == []
    logged = await run_sql(pool, "select distinct reason, fault from login_events where not success")
    assert {reason for reason, _ in logged} == {"logout"}
    assert {"signature_wrong", "unsigned", "destination", "issuer", "time", "used"} <= {fault for _, fault in logged}
    await run_sql(pool, "update connections set state = 'inactive' where org_id is not null")
    assert (await logout.redirect(logout.request("_s"))).status == 404


async def replaced(logout: LogoutCase, other: SamlCase) -> Answer:
    """Deliver a valid request to another connection with the same identity provider."""
    there = replace(logout, saml_case=other)
    return await there.redirect(there.request("_s"))


async def test_users_known_by_an_attribute_sign_out_by_their_session(logout: LogoutCase) -> None:
    """The users' NameID is no subject, so it ends nothing alone."""
    await run_sql(logout.pool, 'update connections set settings = settings || \'{"subject": "uid"}\' where org_id is not null')
    response = read_message((await logout.redirect(logout.request())).headers["Location"], "SAMLResponse")
    codes = [each.get("Value").rpartition(":")[2] for each in response.iter(f"{{{NS['samlp']}}}StatusCode")]
    assert (codes, await logout.live()) == (["Requester", "UnknownPrincipal"], 1)
    await logout.redirect(logout.request("_s"))
    assert await logout.live() == 0


async def test_the_first_session_of_a_link_signs_out_at_the_provider(logout: LogoutCase, ports: Ports) -> None:
    """The user signed in with a password to make the link."""
    await add_account(ports, "ada@example.com", PASSWORD)
    browser, start = FakeBrowser(logout.app), logout.path.removesuffix("slo")
    request_id = read_request(await browser.open(f"{start}start?next=/app")).get("ID")
    response = logout.saml_case.respond(request_id, name_id=f'<saml:NameID Format="{PERSISTENT}">ada</saml:NameID>')
    question = await browser.open(leads_to(await arrive(browser, logout.saml_case.acs, response)))
    page = await browser.open(leads_to(await browser.answer(question, "continue")))
    assert leads_to(await browser.fill(page, email="ada@example.com", password=PASSWORD)) == "/app"
    assert f"url={start}sign-out" in (await browser.submit("/app/sign-out", "/app/account")).text
    request = read_message(leads_to(await browser.open(f"{start}sign-out", follows=False)), "SAMLRequest")
    named = request.findtext("saml:NameID", namespaces=NS), request.findtext("samlp:SessionIndex", namespaces=NS)
    assert named == ("ada", "_s")


async def test_a_sign_out_here_goes_on_at_the_provider_and_comes_back(logout: LogoutCase, clock: FakeClock) -> None:
    account = "/app/account/organizations"
    start = logout.path.removesuffix("slo") + "sign-out"
    page = await logout.browser.submit("/app/sign-out", account, next="/app/account")
    assert (f"url={start}" in page.text, await logout.live()) == (True, 0), "a provider that fails changes nothing here"
    url = leads_to(await logout.browser.open(start, follows=False))
    assert url.startswith(f"{SLO}?SAMLRequest=")
    signature = query_signature(urlsplit(url).query)
    assert signature is not None
    verification.verify_query(signature, logout.saml_case.provider.ours.certificate)
    request = read_message(url, "SAMLRequest")
    assert request.findtext("saml:NameID", namespaces=NS) == "7f3a"
    assert request.find("saml:NameID", NS).get("Format").endswith(":persistent")
    assert request.findtext("samlp:SessionIndex", namespaces=NS) == "_s"
    assert (request.get("Destination"), request.findtext("saml:Issuer", namespaces=NS)) == (SLO, logout.saml_case.entity_id)

    def respond(in_response_to: str) -> str:
        status = '<samlp:StatusCode Value="urn:oasis:names:tc:SAML:2.0:status:Success"/>'
        return encode_base64(
            f'<samlp:LogoutResponse xmlns:samlp="{NS["samlp"]}" xmlns:saml="{NS["saml"]}" ID="_r" Version="2.0"'
            f' InResponseTo="{in_response_to}" IssueInstant="{format_instant(clock.now())}"><saml:Issuer>{ENTITY_ID}</saml:Issuer>'
            f"<samlp:Status>{status}</samlp:Status></samlp:LogoutResponse>".encode()
        )

    foreign = FakeBrowser(logout.app, "https://idp.example.com")
    ours, stranger = request.get("ID"), FakeBrowser(logout.app)
    for browser, id_, continues in ((logout.browser, "_other", False), (stranger, ours, False), (logout.browser, ours, True)):
        place = leads_to(await foreign.send(logout.path, SAMLResponse=respond(id_)))
        assert place == f"{start.removesuffix('sign-out')}signed-out?{urlencode({'state': id_})}"
        assert ("next=%2Fapp%2Faccount" in (await browser.open(place)).text) is continues, id_
