"""Test sign-ins at the identity provider that a set-up link proposes."""

import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final
from urllib.parse import parse_qs, urlencode, urlsplit
from uuid import UUID

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, NoEncryption, PrivateFormat
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.federation.saml.model.configuration import NameIdFormat
from core.kernel.rate_limits import METADATA_FETCH
from core.kernel.roles import ADMIN
from ports import Ports
from tests.fakes.openid_issuers import CLIENT_ID, SECRET, FakeIssuer, OpenIdIssuers
from tests.fakes.outside import FakeClock
from tests.federation.connections.saml.saml_case import SSO_URL, SamlCase, arrive, connect, read_request
from tests.setup.test_links import STEPS, embedded, everything, look, path_of, token_of
from tests.support.browser import FakeBrowser, main_of
from tests.support.builders import EMAIL, Answer, Api, add_account, add_member, run_sql, with_loopback_sender
from tests.support.connections import make_connection
from tests.support.direct import change_ports
from tests.support.saml import identity_provider_metadata, new_certificate
from tests.support.saml.identity_provider import ENTITY_ID, GCM, new_identity_provider
from tests.support.tenants import Tenant
from tests.tenancy.api.groups.test_group_role_pages import browser_of

CERTIFICATE: Final = f"{STEPS}/certificate"
TEST: Final = f"{STEPS}/connection/test"
VALUES: Final = f"{STEPS}/connection/values"


@pytest.fixture
def ports(ports: Ports) -> Ports:
    """Ports that also reach the tests' identity provider."""
    return with_loopback_sender(ports)


@pytest.fixture
def issuer(clock: FakeClock) -> Iterator[FakeIssuer]:
    with OpenIdIssuers(now=lambda: clock.now().timestamp()) as server:
        yield server.add("globex")


async def open_embedded(app: QuartTrio, acme: Tenant, **values: Any) -> FakeBrowser:
    link, reader = await embedded(acme, **values), FakeBrowser(app)
    await reader.fill(await reader.open(path_of(link)), token=token_of(link))
    return reader


async def open_link(app: QuartTrio, acme: Tenant, protocol: str) -> FakeBrowser:
    """Open a link, and choose a product for this protocol. Return the reader's browser."""
    reader = await open_embedded(app, acme)
    assert (await reader.submit(f"{STEPS}/connection", STEPS, preset="", protocol=protocol)).status == 303
    assert (await reader.open(TEST)).status == 409, "it has no values"
    return reader


async def begin(reader: FakeBrowser, issuer: FakeIssuer) -> str:
    """Begin a test, and sign in at the provider. Return the path to which the browser returns."""
    started = await reader.open(TEST)
    assert started.status == 303, started.text
    location = started.headers["Location"]
    [redirect_uri] = parse_qs(urlsplit(location).query)["redirect_uri"]
    return f"{urlsplit(redirect_uri).path}?{urlencode(issuer.authorize(location))}"


async def test_a_test_shows_what_arrives_and_no_account(app: QuartTrio, acme: Tenant, pool: Pool, issuer: FakeIssuer) -> None:
    """The page is the same for an address with an account and an address without an account. The database keeps nothing about it."""
    reader = await open_link(app, acme, "oidc")
    values = {"issuer": issuer.url, "client_id": CLIENT_ID, "client_secret": SECRET}
    assert (await reader.submit(VALUES, STEPS, **values)).status == 303
    assert 'href="/setup/steps/connection/test"' in (await reader.open(STEPS)).text
    before = await everything(pool) | {"sign_in_flows": []}

    async def result(email: str) -> Answer:
        issuer.email, issuer.claims = email, {"groups": ["<b>staff"], "given_name": "Ada"}
        return await reader.open(await begin(reader, issuer))

    known, unknown = await result(EMAIL), await result("nemo@globex.example")
    assert (known.status, unknown.status) == (200, 200)
    heading = "<h1>Test sign-in at <bdi>your identity provider</bdi></h1>"
    [brand] = re.findall("(?s)<header>.*?</header>", (await reader.open(STEPS)).text)
    assert (heading in known.text, brand in known.text) == (True, True), known.text
    assert main_of(known).replace(EMAIL, "") == main_of(unknown).replace("nemo@globex.example", "")
    for shown in ("4711", EMAIL, "not verified", "&lt;b&gt;staff", "family_name", f'href="{STEPS}"'):
        assert shown in known.text, shown
    assert (await everything(pool) | {"sign_in_flows": []}) == before
    assert await run_sql(pool, "select 1 from sign_in_flows f where strpos(f::text, %s) > 0", EMAIL) == []

    issuer.refuses = "access_denied"
    refused = await reader.open(await begin(reader, issuer))
    assert (refused.status, "Code:" in refused.text) == (200, True)


async def test_a_save_shows_the_problems_of_the_values_and_keeps_them(
    app: QuartTrio, acme: Tenant, ports: Ports, issuer: FakeIssuer, clock: FakeClock
) -> None:
    change_ports(app, sender=ports.sender)
    reader = await open_link(app, acme, "oidc")
    values = {"issuer": issuer.url, "client_id": CLIENT_ID}
    admin = await browser_of(app, acme, "admin")
    [link] = (await acme.api.get(f"{acme.path}/setup-links", token=acme.token("admin"))).json["setup_links"]

    async def of_admin() -> tuple[list[str], str]:
        """Return the codes for the problems that an admin gets, and their page."""
        [proposal] = (await look(acme, link))["proposals"]
        return [each["code"] for each in proposal["problems"]], (await admin.open(f"/app/organizations/acme/setup-links/{link['id']}")).text

    wrong = await reader.submit(VALUES, STEPS, **values, client_secret="guessed")
    assert (wrong.status, "does not accept our credentials" in wrong.text, "Your values are saved." in wrong.text) == (200, True, True)
    codes, page = await of_admin()
    for shown in (wrong.text, (await reader.open(STEPS)).text, page):
        assert shown.count("does not accept our credentials") == 1
    assert codes == ["client"]
    assert (await reader.submit(VALUES, STEPS, **values, client_secret=SECRET)).status == 303
    assert "The last check found no problem." in (await reader.open(STEPS)).text
    codes, page = await of_admin()
    assert (codes, "does not accept our credentials" in page) == ([], False)
    for _ in range(METADATA_FETCH.burst):
        limited = await reader.submit(VALUES, STEPS, **values, client_secret=SECRET)
    assert (limited.status, "The check was not made" in limited.text) == (200, True)
    assert (await of_admin())[0] == ["not_checked"]
    clock.advance(timedelta(minutes=2))
    assert (await reader.submit(f"{STEPS}/connection", STEPS, preset="", protocol="saml", confirmed="yes")).status == 303
    ends_soon, valid = [await new_certificate(clock.now() + timedelta(days=days)) for days in (20 - 3 * 365, 0)]
    metadata = identity_provider_metadata(ENTITY_ID, certificates=[valid.certificate])
    of_other_format = identity_provider_metadata(ENTITY_ID, certificates=[valid.certificate], formats=[NameIdFormat.EMAIL])
    for text, status in ((of_other_format, 200), (metadata, 303)):
        assert (await reader.submit(f"{STEPS}/connection/metadata", STEPS, metadata=text, metadata_url="")).status == status
    checked = await reader.submit(f"{STEPS}/connection/check", STEPS)
    assert "The last check found no problem." in checked.text
    values = {"entity_id": ENTITY_ID, "sso_url": SSO_URL}
    expiring = await reader.submit(VALUES, STEPS, **values, certificate=ends_soon.certificate)
    assert (expiring.status, "expires soon" in expiring.text) == (200, True)


def spell(key: bytes, certificate: str) -> dict[str, str]:
    """Return texts with a private key in PEM, as users paste them."""
    pem = key.decode()
    begin, *lines, end = pem.splitlines()
    base64 = "\n".join(lines)
    return {
        "PEM": pem,
        "base64": base64,
        "in one line": "".join(lines),
        "after a certificate": f"{certificate}{base64}",
        "in small letters": "\n".join([begin.lower(), base64, end.lower()]),
        "with four dashes": pem.replace("-----", "----"),
        "as a certificate": f"-----BEGIN CERTIFICATE-----\n{base64}\n-----END CERTIFICATE-----\n",
    }


async def test_a_private_key_that_is_typed_in_any_field_is_never_shown(
    app: QuartTrio, acme: Tenant, ports: Ports, clock: FakeClock
) -> None:
    await connect(ports, acme.org)
    reader = await open_embedded(app, acme, connection="okta", parts=["certificate", "connection", "domain", "siem"])
    own = await new_certificate(clock.now())
    curve = ec.generate_private_key(ec.SECP256R1())
    keys = {
        "RSA": own.private_key(),
        "EC": curve.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption()),
        "Ed25519": Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
        "OpenSSH": curve.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()),
        "encrypted": curve.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"passphrase")),
    }
    saml, openid = (
        {"entity_id": ENTITY_ID, "sso_url": SSO_URL, "certificate": ""},
        {"issuer": "", "client_id": CLIENT_ID, "client_secret": SECRET},
    )
    admin, connection = await browser_of(app, acme, "admin"), "/app/organizations/acme/connections/okta"
    settings = {
        "name": "Okta",
        "entity_id": ENTITY_ID,
        "sso_url": SSO_URL,
        "sso_binding": "redirect",
        "name_id_format": NameIdFormat.PERSISTENT,
    }
    forms: list[tuple[FakeBrowser, str, str, str, dict[str, str]]] = [
        *((reader, VALUES, STEPS, name, {**saml, "certificate": ""}) for name in ("certificate", "entity_id", "sso_url")),
        (reader, f"{STEPS}/connection/metadata", STEPS, "metadata_url", {"metadata": ""}),
        (reader, f"{STEPS}/connection/metadata", STEPS, "metadata", {"metadata_url": ""}),
        (reader, CERTIFICATE, STEPS, "new_certificate", {}),
        (reader, f"{CERTIFICATE}/metadata", STEPS, "new_metadata_url", {"new_metadata": ""}),
        (reader, f"{STEPS}/domain", STEPS, "domain", {}),
        (reader, f"{STEPS}/siem", STEPS, "endpoint_url", {"provider": "http", "token": "secret"}),
        (admin, f"{connection}/keys/certificates", f"{connection}/keys", "certificate", {}),
        *((admin, f"{connection}/metadata", connection, name, {"metadata": "", "url": ""}) for name in ("metadata", "url")),
        *((admin, connection, connection, name, settings) for name in ("sso_url", "metadata_url")),
        (reader, VALUES, STEPS, "issuer", openid),
    ]
    found = []
    await reader.submit(f"{STEPS}/connection", STEPS, preset="okta", protocol="saml")
    for browser, path, page, name, form in forms:
        if form is openid:
            await reader.submit(f"{STEPS}/connection", STEPS, preset="", protocol="oidc", confirmed="yes")
        for kind, key in keys.items():
            for spelling, text in spell(key, own.certificate).items():
                refused = await browser.submit(path, page, **{**form, name: text})
                # The console reads the first certificate alone.
                answers = {303, 400, 409} if spelling == "after a certificate" else {400}
                if refused.status not in answers or key.decode().splitlines()[1][-30:] in refused.text:
                    found.append((path, name, kind, spelling, refused.status))
    assert found == []


async def test_only_the_browser_of_the_reader_sees_the_result(app: QuartTrio, acme: Tenant, issuer: FakeIssuer) -> None:
    reader = await open_link(app, acme, "oidc")
    values = {"issuer": issuer.url, "client_id": CLIENT_ID, "client_secret": SECRET}
    await reader.submit(VALUES, STEPS, **values)
    path = await begin(reader, issuer)
    assert (await FakeBrowser(app).open(path)).status == 400
    own, other = dict(reader.cookies), await open_link(app, acme, "oidc")
    reader.cookies |= {name: value for name, value in other.cookies.items() if "setup" in name}
    assert (await reader.open(path)).status == 401, "another link is open in this browser"
    reader.cookies |= own
    assert (await reader.open(path)).status == 400, "an answer works once"

    path = await begin(reader, issuer)
    asked = await reader.submit(f"{STEPS}/connection", STEPS, preset="okta", protocol="saml")
    assert (asked.status, "Start again with Okta, SAML 2.0?" in asked.text) == (200, True)
    assert (await reader.fill(asked, preset="", protocol="oidc", confirmed="yes")).status == 303
    assert (await reader.open(path)).status == 409, "another connection is proposed"


async def test_a_test_over_saml_shows_what_arrives(app: QuartTrio, acme: Tenant, api: Api, ports: Ports, pool: Pool) -> None:
    reader, provider = await open_link(app, acme, "saml"), await new_identity_provider()
    metadata = identity_provider_metadata(ENTITY_ID, certificates=[provider.certificate.certificate])
    assert (await reader.submit(f"{STEPS}/connection/metadata", STEPS, metadata=metadata, metadata_url="")).status == 303
    before = await everything(pool) | {"sign_in_flows": []}
    started = await reader.open(TEST)
    request = read_request(started)
    id_ = request.get("AssertionConsumerServiceURL").split("/")[-2]
    saml_case = SamlCase(ports, provider, make_connection(acme.org, id=UUID(id_)))
    result = await arrive(reader, saml_case.acs, saml_case.respond(request.get("ID")))
    assert (result.status, "7f3a" in result.text, "Ada Lovelace" in result.text) == (200, True, True), result.text
    again = await reader.open(TEST)
    forged = saml_case.respond(str(read_request(again).get("ID")), bearer='Recipient="https://evil.example/acs"')
    wrong = await arrive(reader, saml_case.acs, forged)
    assert (wrong.status, "<code>recipient</code>" in wrong.text) == (200, True), wrong.text

    # With our key, the request is signed, and the assertion can be encrypted.
    assert certificates_of(await reader.open(f"{STEPS}/connection/metadata")) == []
    for _ in range(2):  # the second request changes nothing
        assert (await reader.submit(f"{STEPS}/connection/key", STEPS)).status == 303
        shown = await reader.open(f"{STEPS}/connection/metadata")
    [own] = {*certificates_of(shown)}
    started = await reader.open(TEST)
    assert "Signature=" in started.headers["Location"]
    ours = replace(provider.ours, certificate=f"-----BEGIN CERTIFICATE-----\n{own}\n-----END CERTIFICATE-----\n")
    encrypting = replace(saml_case, provider=replace(provider, ours=ours))
    encrypted = encrypting.respond(str(read_request(started).get("ID")), encryption=GCM)
    assert "7f3a" in (await arrive(reader, saml_case.acs, encrypted)).text
    assert (await everything(pool) | {"sign_in_flows": []}) == before

    published = f"/auth/connections/{id_}/metadata"
    assert (await api.get(published)).status == 404
    [link] = (await api.get(f"{acme.path}/setup-links", token=acme.token("admin"))).json["setup_links"]
    assert (await api.post(f"{acme.path}/setup-links/{link['id']}/parts/connection/apply", token=acme.token("admin"))).status == 200
    assert {*certificates_of(await api.get(published))} == {own}
    connection = (await api.get(f"{acme.path}/connections/globex", token=acme.token("admin"))).json
    assert (connection["saml"]["signs_requests"], connection["preset"], connection["missing"]) == (True, None, [])


def certificates_of(metadata: Answer) -> list[str]:
    return re.findall("<ds:X509Certificate>([^<]+)", metadata.text)


async def test_a_renewed_certificate_verifies_test_sign_ins_alone(app: QuartTrio, acme: Tenant, ports: Ports, pool: Pool) -> None:
    saml_case = await connect(ports, acme.org)
    present, new = saml_case.provider.certificate, saml_case.provider.others[1]
    renewed = replace(saml_case, provider=replace(saml_case.provider, certificate=new))
    reader = await open_embedded(app, acme, connection="okta", parts=["certificate"])
    assert (await reader.open(f"{CERTIFICATE}/test")).status == 409, "no certificate is proposed"
    again = await reader.submit(CERTIFICATE, STEPS, new_certificate=present.certificate)
    assert (again.status, "already has this certificate" in again.text) == (409, True)
    for entity_id, status in (("another", 400), (ENTITY_ID, 303)):
        metadata = identity_provider_metadata(entity_id, certificates=[present.certificate, new.certificate])
        answer = await reader.submit(f"{CERTIFICATE}/metadata", STEPS, new_metadata=metadata, new_metadata_url="")
        assert (answer.status, "another identity provider" in answer.text) == (status, status == 400)
    before = await everything(pool) | {"sign_in_flows": []}

    async def begin_and_return(browser: FakeBrowser, start: str, signer: SamlCase) -> str:
        request = read_request(await browser.open(start))
        return (await arrive(browser, saml_case.acs, signer.respond(str(request.get("ID"))))).text

    assert "7f3a" in await begin_and_return(reader, f"{CERTIFICATE}/test", renewed)
    unchanged = await begin_and_return(reader, f"{CERTIFICATE}/test", saml_case)
    assert "<code>signature_wrong</code>" in unchanged, "a test shows whether the provider signs with the new certificate"
    assert (await everything(pool) | {"sign_in_flows": []}) == before
    admin = FakeBrowser(app)
    await add_member(pool, acme.org, (await add_account(ports)).id, ADMIN, confirmed=True)
    await admin.sign_in()
    untrusted = await begin_and_return(admin, f"{saml_case.page}/start", renewed)
    assert "<code>signature_wrong</code>" in untrusted, "no other provider request trusts the proposed certificate"
