"""A third-party SAML identity provider signs users in at a connection: pysaml2, which verifies and signs with Debian's xmlsec1."""

import base64
import shutil
import warnings
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

import pytest

from adapters.postgres.engine.pool import Pool
from tests.fakes.outside import FakeClock
from tests.federation.connections.saml.visits import arrive
from tests.proof.clients.service_providers import POST, REDIRECT, RSA_SHA256, SHA256
from tests.support.browser import FakeBrowser, hidden_fields
from tests.support.builders import BASE_URL, run_sql
from tests.support.saml import new_certificate

pytestmark = [pytest.mark.slow, pytest.mark.skipif(shutil.which("xmlsec1") is None, reason="xmlsec1 of Debian is not here; see ./run")]

SSO: Final = "https://idp.example.com/sso"
PAGES: Final = "/app/organizations/acme/connections"


@pytest.fixture
def clock() -> FakeClock:
    """The clock of the machine, which pysaml2 uses."""
    return FakeClock(datetime.now(UTC))


class Pysaml2Provider:
    """https://github.com/IdentityPython/pysaml2 as identity provider."""

    def __init__(self, folder: Path, key: bytes, certificate: str, metadata: tuple[str, ...] = ()) -> None:
        from saml2.config import IdPConfig  # takes a second, so other tests do not wait for it

        (folder / "key.pem").write_bytes(key)
        (folder / "certificate.pem").write_text(certificate)
        endpoints = {"single_sign_on_service": [(SSO, REDIRECT), (SSO, POST)]}
        names = "urn:oasis:names:tc:SAML:2.0:attrname-format:uri"
        policy = {"default": {"lifetime": {"minutes": 5}, "attribute_restrictions": None, "name_form": names}}
        self.config = IdPConfig().load(
            {
                "entityid": "https://idp.example.com/pysaml2",
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

    def _server(self) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of cryptography, about a cipher that pysaml2 names
            from saml2.server import Server
        return Server(config=self.config)

    def respond(self, request: Any, **options: Any) -> str:
        """Return the form field with the response to a request."""
        message = request.message
        response = self._server().create_authn_response(
            {"mail": ["ada@example.com"], "givenName": ["Ada"]},
            message.id,
            message.assertion_consumer_service_url,
            message.issuer.text,
            name_id_policy=message.name_id_policy,
            userid="ada",
            authn={
                "class_ref": "urn:oasis:names:tc:SAML:2.0:ac:classes:PasswordProtectedTransport",
                "authn_auth": "https://idp.example.com",
            },
            sign_alg=RSA_SHA256,
            digest_alg=SHA256,
            **options,
        )
        return base64.b64encode(str(response).encode()).decode()

    def read_redirect(self, url: str) -> Any:
        """Return the AuthnRequest in the query, after verifying its signature."""
        fields = dict(parse_qsl(urlsplit(url).query))
        return self._server().parse_authn_request(fields["SAMLRequest"], REDIRECT, sigalg=fields["SigAlg"], signature=fields["Signature"])

    def read_post(self, form: dict[str, str]) -> Any:
        """Return the AuthnRequest in the form, after verifying its signature."""
        return self._server().parse_authn_request(form["SAMLRequest"], POST)


async def test_pysaml2_reads_our_metadata_and_requests_and_we_its_responses(
    owner_browser: FakeBrowser, pool: Pool, clock: FakeClock, tmp_path: Path
) -> None:
    """Through the pages: create, import its metadata, create a key, and test, by both bindings."""
    certificate = await new_certificate(clock.now().replace(microsecond=0, hour=0), "pysaml2")
    provider = Pysaml2Provider(tmp_path, certificate.private_key(), certificate.certificate)
    made = await owner_browser.submit(f"{PAGES}/new", f"{PAGES}/new", name="pysaml2", slug="pysaml2", protocol="saml")
    assert made.status == 303, made.text
    page = f"{PAGES}/pysaml2"
    assert (await owner_browser.submit(f"{page}/metadata", page, document=provider.metadata)).status == 303
    assert (await owner_browser.submit(f"{page}/keys", f"{page}/keys")).status == 303
    [(id_,)] = await run_sql(pool, "select id from connections where slug = 'pysaml2'")
    entity_id = f"{BASE_URL}/auth/connections/{id_}"
    ours = (await owner_browser.open(entity_id.removeprefix(BASE_URL) + "/metadata")).text
    provider = Pysaml2Provider(tmp_path, certificate.private_key(), certificate.certificate, (ours,))
    start = await owner_browser.open(f"{page}/test/start")
    request = provider.read_redirect(start.headers["Location"])
    assert request.message.issuer.text == entity_id
    result = await arrive(owner_browser, f"/auth/connections/{id_}/acs", provider.respond(request, sign_assertion=True))
    assert (result.status, "answer is valid" in result.text, "ada@example.com" in result.text) == (200, True, True), result.text
    settings = """update connections set settings = settings || '{"sso_binding": "post"}' where org_id is not null"""
    await run_sql(pool, settings)
    request = provider.read_post(hidden_fields(await owner_browser.open(f"{page}/test/start")))
    both = provider.respond(request, sign_assertion=True, sign_response=True)
    result = await arrive(owner_browser, f"/auth/connections/{id_}/acs", both)
    assert (result.status, "answer is valid" in result.text) == (200, True), result.text
