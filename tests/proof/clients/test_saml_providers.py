"""A third-party SAML identity provider signs users in at a connection: pysaml2, which verifies and signs with Debian's xmlsec1."""

import base64
import shutil
import warnings
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from tests.fakes.outside import FakeClock
from tests.federation.connections.saml.saml_case import arrive
from tests.proof.clients.service_providers import POST, REDIRECT, RSA_SHA256, SHA256
from tests.support.browser import FakeBrowser, hidden_fields, leads_to
from tests.support.builders import BASE_URL, run_sql
from tests.support.saml import encode_base64, new_certificate

pytestmark = [pytest.mark.slow, pytest.mark.skipif(shutil.which("xmlsec1") is None, reason="xmlsec1 of Debian is not here; see ./run")]

PROVIDER: Final = "https://idp.example.com"
SSO: Final = f"{PROVIDER}/sso"
SLO: Final = f"{PROVIDER}/slo"
PAGES: Final = "/app/organizations/acme/connections"
PAGE: Final = f"{PAGES}/pysaml2"
DOMAIN: Final = """
    insert into domains (org_id, domain, challenge, verified_at, created_at)
    select id, 'example.com', 'x', now(), now() from organizations where slug = 'acme'"""
ACTIVE: Final = """
    update connections set state = 'active', settings = settings || '{"trusts_email": true}',
        mapping = mapping || '{"email": "urn:oid:0.9.2342.19200300.100.1.3"}' where slug = 'pysaml2'"""


@pytest.fixture
def clock() -> FakeClock:
    """The machine's clock, which pysaml2 uses."""
    return FakeClock(datetime.now(UTC))


class Pysaml2Provider:
    """https://github.com/IdentityPython/pysaml2 as identity provider."""

    def __init__(self, folder: Path, key: bytes, certificate: str, metadata: tuple[str, ...] = ()) -> None:
        from saml2.config import IdPConfig  # takes a second, so no other tests wait for it

        (folder / "key.pem").write_bytes(key)
        (folder / "certificate.pem").write_text(certificate)
        endpoints = {"single_sign_on_service": [(SSO, REDIRECT), (SSO, POST)], "single_logout_service": [(SLO, REDIRECT)]}
        names = "urn:oasis:names:tc:SAML:2.0:attrname-format:uri"
        policy = {"default": {"lifetime": {"minutes": 5}, "attribute_restrictions": None, "name_form": names}}
        self.config = IdPConfig().load(
            {
                "entityid": f"{PROVIDER}/pysaml2",
                "service": {"idp": {"endpoints": endpoints, "want_authn_requests_signed": True, "policy": policy}},
                "key_file": str(folder / "key.pem"),
                "cert_file": str(folder / "certificate.pem"),
                "metadata": {"inline": list(metadata)},
                "xmlsec_binary": shutil.which("xmlsec1"),
            }
        )

    @property
    def metadata(self) -> str:
        from saml2.metadata import entity_descriptor

        return str(entity_descriptor(self.config))

    @cached_property
    def _server(self) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # from cryptography, about a cipher that pysaml2 names
            from saml2.server import Server
        return Server(config=self.config)

    def respond(self, request: Any, **options: Any) -> str:
        """Return the form field with the response to a request."""
        message = request.message
        response = self._server.create_authn_response(
            {"mail": ["lee@example.com"], "givenName": ["Lee"]},
            message.id,
            message.assertion_consumer_service_url,
            message.issuer.text,
            name_id_policy=message.name_id_policy,
            userid="lee",
            authn={
                "class_ref": "urn:oasis:names:tc:SAML:2.0:ac:classes:PasswordProtectedTransport",
                "authn_auth": PROVIDER,
            },
            sign_alg=RSA_SHA256,
            digest_alg=SHA256,
            **options,
        )
        return base64.b64encode(str(response).encode()).decode()

    def read_redirect(self, url: str) -> Any:
        """Return the AuthnRequest in the query, after verifying its signature."""
        fields = dict(parse_qsl(urlsplit(url).query))
        return self._server.parse_authn_request(fields["SAMLRequest"], REDIRECT, sigalg=fields["SigAlg"], signature=fields["Signature"])

    def request_logout(self, entity_id: str, address: str, *, signed: bool) -> str:
        """Return a LogoutRequest for the user: the signed document, or the URL with a signature over the query."""
        [name_id] = self._server.ident.find_nameid("lee")
        _, request = self._server.create_logout_request(
            address, entity_id, name_id=name_id, sign=signed, sign_alg=RSA_SHA256, digest_alg=SHA256
        )
        return str(request) if signed else self._url(request, address, "back")

    def _url(self, message: Any, address: str, relay_state: str = "", *, response: bool = False) -> str:
        made = self._server.apply_binding(REDIRECT, str(message), address, relay_state, response, sign=True, sigalg=RSA_SHA256)
        return str(dict(made["headers"])["Location"])

    def read_logout_response(self, url: str) -> Any:
        """Return the LogoutResponse in the query, after verifying its signature."""
        fields = dict(parse_qsl(urlsplit(url).query))
        from saml2.sigver import RSACrypto, verify_redirect_signature

        response = self._server.parse_logout_request_response(fields["SAMLResponse"], REDIRECT)
        [(_, certificate)] = self._server.metadata.certs(response.response.issuer.text, "spsso", "signing")
        assert verify_redirect_signature(fields, RSACrypto(None), certificate)
        return response

    def answer_logout(self, url: str) -> str:
        """Verify the LogoutRequest in the query, and return the URL with the signed response."""
        fields = dict(parse_qsl(urlsplit(url).query))
        request = self._server.parse_logout_request(
            fields["SAMLRequest"], REDIRECT, fields.get("RelayState"), fields["SigAlg"], fields["Signature"]
        )
        response = self._server.create_logout_response(request.message, [REDIRECT], sign=False)
        to = self._server.response_args(request.message, [REDIRECT])["destination"]
        return self._url(response, to, response=True)

    def read_post(self, form: dict[str, str]) -> Any:
        """Return the AuthnRequest in the form, after verifying its signature."""
        return self._server.parse_authn_request(form["SAMLRequest"], POST)


@dataclass(frozen=True, slots=True)
class Connected:
    """An active connection to the provider, which knows our metadata."""

    app: QuartTrio
    pool: Pool
    provider: Pysaml2Provider
    path: str

    async def sign_in(self) -> FakeBrowser:
        browser = FakeBrowser(self.app)
        request = self.provider.read_redirect((await browser.open(f"{self.path}/start?next=/app", follows=False)).headers["Location"])
        answer = await arrive(browser, f"{self.path}/acs", self.provider.respond(request, sign_assertion=True))
        assert (answer.status, await self.live()) == (303, 1), answer.text
        return browser

    async def live(self) -> int:
        """Return how many sessions there are through the connection."""
        [(count,)] = await run_sql(self.pool, "select count(*) from sessions where restricted_to is not null and ended_at is null")
        return int(count)


@pytest.fixture
async def connected(app: QuartTrio, owner_browser: FakeBrowser, pool: Pool, clock: FakeClock, tmp_path: Path) -> Connected:
    """Through the pages: create, import the provider's metadata, and create a key."""
    certificate = await new_certificate(clock.now().replace(microsecond=0, hour=0), "pysaml2")
    provider = Pysaml2Provider(tmp_path, certificate.private_key(), certificate.certificate)
    made = await owner_browser.submit(f"{PAGES}/new", f"{PAGES}/new", name="pysaml2", slug="pysaml2", protocol="saml")
    assert made.status == 303, made.text
    assert (await owner_browser.submit(f"{PAGE}/metadata", PAGE, metadata=provider.metadata)).status == 303
    assert (await owner_browser.submit(f"{PAGE}/keys", f"{PAGE}/keys")).status == 303
    [(id_,)] = await run_sql(pool, "select id from connections where slug = 'pysaml2'")
    path = f"/auth/connections/{id_}"
    ours = (await owner_browser.open(f"{path}/metadata")).text
    return Connected(app, pool, Pysaml2Provider(tmp_path, certificate.private_key(), certificate.certificate, (ours,)), path)


async def test_pysaml2_reads_our_metadata_and_requests_and_we_its_responses(connected: Connected, owner_browser: FakeBrowser) -> None:
    """Through an admin's test sign-in, by all bindings."""
    provider = connected.provider
    request = provider.read_redirect((await owner_browser.open(f"{PAGE}/test/start")).headers["Location"])
    assert request.message.issuer.text == BASE_URL + connected.path
    result = await arrive(owner_browser, f"{connected.path}/acs", provider.respond(request, sign_assertion=True))
    assert (result.status, "answer is valid" in result.text, "lee@example.com" in result.text) == (200, True, True), result.text
    settings = """update connections set settings = settings || '{"sso_binding": "post"}' where org_id is not null"""
    await run_sql(connected.pool, settings)
    request = provider.read_post(hidden_fields(await owner_browser.open(f"{PAGE}/test/start")))
    both = provider.respond(request, sign_assertion=True, sign_response=True)
    result = await arrive(owner_browser, f"{connected.path}/acs", both)
    assert (result.status, "answer is valid" in result.text) == (200, True), result.text


async def test_pysaml2_signs_users_out_and_takes_part_in_our_sign_out(connected: Connected, app: QuartTrio, pool: Pool) -> None:
    """Every message is signed, and pysaml2 verifies our messages."""
    provider, slo = connected.provider, f"{connected.path}/slo"
    await run_sql(pool, DOMAIN)
    await run_sql(pool, ACTIVE)
    for signed in (False, True):
        await connected.sign_in()
        message, stranger = provider.request_logout(BASE_URL + connected.path, BASE_URL + slo, signed=signed), FakeBrowser(app, PROVIDER)
        answer = await (
            stranger.send(slo, SAMLRequest=encode_base64(message.encode()))
            if signed
            else stranger.open(message.removeprefix(BASE_URL), follows=False)
        )
        assert answer.status in (302, 303), answer.text
        assert (provider.read_logout_response(answer.headers["Location"]).status_ok(), await connected.live()) == (True, 0), signed
    browser = await connected.sign_in()
    page = await browser.submit("/app/sign-out", "/app/account/organizations", next="/app/account")
    assert (f"{connected.path}/sign-out" in page.text, await connected.live()) == (True, 0)
    response = provider.answer_logout(leads_to(await browser.open(f"{connected.path}/sign-out", follows=False)))
    returned = await FakeBrowser(app, PROVIDER).open(response.removeprefix(BASE_URL), follows=False)
    assert "next=%2Fapp%2Faccount" in (await browser.open(returned.headers["Location"])).text
