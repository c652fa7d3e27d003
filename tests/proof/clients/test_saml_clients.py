"""Third-party service providers accept our responses and refuse tampered responses."""

import shutil
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from ports import Ports
from tests.fakes.outside import FakeClock
from tests.proof.clients.saml_tampering import EVIL, tampered, with_assertion_of, with_comment
from tests.proof.clients.service_providers import CLIENTS, AcceptedUser, NodeSaml, Pysaml2, Python3Saml, Refused, ServiceProvider
from tests.support.builders import BASE_URL, EMAIL, Api, one_factor, run_sql
from tests.support.connections.proofs import write_proofs
from tests.support.saml import PostedResponse, SamlApplication, add_application, posted_response
from tests.support.saml.browser import SamlBrowser, redirect_target
from tests.support.services import add_service_user
from tests.support.tenants import Tenant

pytestmark = pytest.mark.slow

needs_xmlsec1 = pytest.mark.skipif(shutil.which("xmlsec1") is None, reason="xmlsec1 of Debian is not here; see ./run")
needs_node = pytest.mark.skipif(
    shutil.which("node") is None or not (CLIENTS / "node_modules").exists(), reason="node-saml is not here; see ./run"
)
ALL = [
    pytest.param(Pysaml2, id="pysaml2", marks=needs_xmlsec1),
    pytest.param(Python3Saml, id="python3-saml"),
    pytest.param(NodeSaml, id="node-saml", marks=needs_node),
]


@pytest.fixture
def clock() -> FakeClock:
    """The machine's clock, which the service providers use."""
    return FakeClock(datetime.now(UTC))


async def provider_of(kind: type[ServiceProvider], browser: SamlBrowser, application: SamlApplication) -> ServiceProvider:
    return kind(application, (await browser.open(f"{application.path}/metadata")).text)


async def sign_on_again(browser: SamlBrowser, service: ServiceProvider) -> PostedResponse:
    """Return the response for a user who is already signed in."""
    address = service.ask("there").removeprefix(BASE_URL)
    return posted_response(await browser.open(redirect_target(await browser.open(address))))


@pytest.mark.parametrize("kind", ALL)
async def test_users_sign_in_and_out(kind: type[ServiceProvider], browser: SamlBrowser, shop: SamlApplication, user: Account) -> None:
    service = await provider_of(kind, browser, shop)
    after = redirect_target(await browser.open(service.ask("there & back").removeprefix(BASE_URL)))
    await browser.sign_in_at(after)
    response = posted_response(await browser.open(after))
    assert response.relay_state == "there & back"
    arrived = service.take(response.document)
    assert arrived == AcceptedUser(EMAIL, response.session_index, {"email": [EMAIL], "id": [str(user.id)]})
    service.signed_out(redirect_target(await browser.open(service.sign_out(arrived).removeprefix(BASE_URL))))
    assert not await browser.is_in()


@pytest.mark.parametrize("kind", ALL)
async def test_users_sign_in_with_http_post(
    kind: type[ServiceProvider], browser: SamlBrowser, shop: SamlApplication, user: Account
) -> None:
    service = await provider_of(kind, browser, shop)
    await browser.sign_in()
    path = redirect_target(await browser.post_cross_site(f"{shop.path}/sso", **service.ask_by_form("there")), 303)
    response = posted_response(await browser.open(path))
    assert response.relay_state == "there"
    assert service.take(response.document).name_id == EMAIL


@pytest.mark.parametrize("kind", ALL)
async def test_a_login_without_a_password_is_accepted(
    kind: type[ServiceProvider], browser: SamlBrowser, shop: SamlApplication, user: Account, pool: Pool, clock: FakeClock
) -> None:
    """Two libraries request a password by default."""
    service = await provider_of(kind, browser, shop)
    await browser.sign_in()
    await write_proofs(pool, user.id, one_factor(clock.now(), "codehost"))
    response = await sign_on_again(browser, service)
    assert response.find("//saml:AuthnContextClassRef").text == "urn:oasis:names:tc:SAML:2.0:ac:classes:unspecified"
    assert service.take(response.document).name_id == EMAIL


@pytest.mark.parametrize("kind", ALL)
async def test_the_metadata_from_before_an_activation_is_enough(
    kind: type[ServiceProvider], api: Api, browser: SamlBrowser, shop: SamlApplication, user: Account, acme: Tenant
) -> None:
    """Before it, after it, and after it was undone. A certificate that replaces all at once is refused."""

    async def change(action: str) -> None:
        answer = await api.call("POST", f"{shop.management}/certificate{action}", token=acme.token("admin"))
        assert answer.status == 200, answer.text

    await browser.sign_in()
    await change("/next")
    service = await provider_of(kind, browser, shop)
    certificates = set()
    for action in ("", "/activate", "/undo", "/activate"):
        if action:
            await change(action)
        response = await sign_on_again(browser, service)
        assert service.take(response.document).name_id == EMAIL
        certificates.add(response.document.partition(b"X509Certificate>")[2].partition(b"<")[0])
    assert len(certificates) == 2
    await change("")
    response = await sign_on_again(browser, service)
    with pytest.raises(Refused):
        service.take(response.document)


async def test_python3_saml_can_request_a_subject(browser: SamlBrowser, shop: SamlApplication, user: Account) -> None:
    service = Python3Saml(shop, (await browser.open(f"{shop.path}/metadata")).text)
    await browser.sign_in()
    for name_id, is_accepted in ((EMAIL, True), ("grace@example.com", False)):
        path = redirect_target(await browser.open(service.ask("there", name_id).removeprefix(BASE_URL)))
        [outcome] = service.take_all([posted_response(await browser.open(path)).document])
        assert isinstance(outcome, AcceptedUser) is is_accepted
        if isinstance(outcome, Refused):
            assert "Requester" in str(outcome) and "UnknownPrincipal" in str(outcome)  # noqa: PT018


@pytest.mark.parametrize("kind", ALL)
async def test_tampered_responses_are_refused(
    kind: type[ServiceProvider], browser: SamlBrowser, shop: SamlApplication, user: Account
) -> None:
    service = await provider_of(kind, browser, shop)
    await browser.sign_in()
    other = await sign_on_again(browser, service)
    good = await sign_on_again(browser, service)
    bad = {**tampered(good.document), "the assertion of another response": with_assertion_of(good.document, other.document)}
    outcomes = dict(zip(bad, service.take_all(list(bad.values())), strict=True))
    accepted = {how: outcome for how, outcome in outcomes.items() if not isinstance(outcome, Refused)}
    assert not accepted
    [outcome] = service.take_all([with_comment(good.document)])
    assert isinstance(outcome, Refused) or outcome.name_id == EMAIL
    assert service.take(good.document).name_id == EMAIL, "the original response is accepted"
    assert EVIL not in good.document.decode()


@pytest.mark.parametrize("kind", ALL)
async def test_old_and_foreign_responses_are_refused(
    kind: type[ServiceProvider],
    browser: SamlBrowser,
    shop: SamlApplication,
    user: Account,
    ports: Ports,
    pool: Pool,
    acme: Tenant,
    clock: FakeClock,
) -> None:
    service = await provider_of(kind, browser, shop)
    await browser.sign_in()
    # An application with the same entity id and another key.
    clock.advance(timedelta(seconds=-1))
    impostor = await add_application(
        ports, pool, acme.org, acme.slug, "impostor", entity_id=shop.entity_id, acs_url=shop.acs_url, slo_url=shop.configuration.slo_url
    )
    await add_service_user(ports, impostor.id, user.id, signed_in=False)
    clock.advance(timedelta(seconds=1))
    forged = await browser.sign_on(impostor)
    clock.advance(timedelta(minutes=-10))
    await run_sql(pool, "update saml_certificates set valid_from = valid_from - interval '1 day'")
    browser.cookies.clear()
    await browser.sign_in()
    old = await browser.sign_on(shop)
    assert [type(outcome) for outcome in service.take_all([forged.document, old.document])] == [Refused, Refused]


@needs_xmlsec1
async def test_the_xmlsec1_command_verifies_both_signatures(
    browser: SamlBrowser, shop: SamlApplication, user: Account, tmp_path: Path
) -> None:
    await browser.sign_in()
    posted = await browser.sign_on(shop)
    response, certificate = tmp_path / "response.xml", tmp_path / "certificate.pem"
    assert shop.certificate is not None
    certificate.write_text(shop.certificate.certificate)

    def verify(signature: str) -> int:
        ids = [
            "--id-attr:ID",
            "urn:oasis:names:tc:SAML:2.0:assertion:Assertion",
            "--id-attr:ID",
            "urn:oasis:names:tc:SAML:2.0:protocol:Response",
        ]
        command = ["xmlsec1", "--verify", "--pubkey-cert-pem", str(certificate), *ids, "--node-xpath", signature, str(response)]
        return subprocess.run(command, capture_output=True, check=False).returncode

    signatures = ["/*/*[local-name()='Signature']", "/*/*[local-name()='Assertion']/*[local-name()='Signature']"]
    response.write_bytes(posted.document)
    assert [verify(signature) for signature in signatures] == [0, 0]
    response.write_bytes(posted.document.replace(EMAIL.encode(), EVIL.encode()))
    assert 0 not in [verify(signature) for signature in signatures]
