"""What SAML assertions contain, ForceAuthn and IsPassive (security X-6, X-7, X-8)."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
import xmlsec

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from core.federation.saml.model.configuration import NameIdFormat
from ports import Ports
from tests.fakes.outside import FakeClock, FakeMetrics
from tests.support.browser import action_of, is_step
from tests.support.builders import EMAIL, Api, run_sql
from tests.support.saml import NS, STATUS, PostedResponse, SamlApplication, add_application, posted_response
from tests.support.saml.browser import SamlBrowser
from tests.support.services import add_service_user
from tests.support.tenants import Tenant

# Assertions


async def test_the_contents_of_an_assertion(browser: SamlBrowser, shop: SamlApplication, user: Account, clock: FakeClock) -> None:
    began = clock.now()
    await browser.sign_in()
    clock.advance(timedelta(minutes=30))
    response = await browser.sign_on(shop, ID="_asked")
    now, until = "2026-03-14T15:39:26.535Z", "2026-03-14T15:44:26.535Z"
    root, assertion = response.root, response.find("/samlp:Response/saml:Assertion")
    assert dict(root.attrib) == {
        "ID": root.get("ID"), "Version": "2.0", "IssueInstant": now, "Destination": shop.acs_url, "InResponseTo": "_asked",
    }  # fmt: skip
    assert response.find("/samlp:Response/samlp:Status/samlp:StatusCode/@Value") == f"{STATUS}Success"
    assert {str(issuer.text) for issuer in root.iter(f"{{{NS['saml']}}}Issuer")} == {shop.issuer}
    assert dict(response.find("//saml:SubjectConfirmationData").attrib) == {
        "NotOnOrAfter": until, "Recipient": shop.acs_url, "InResponseTo": "_asked",
    }  # fmt: skip
    assert response.find("//saml:SubjectConfirmation/@Method") == "urn:oasis:names:tc:SAML:2.0:cm:bearer"
    assert dict(response.find("//saml:Conditions").attrib) == {"NotBefore": "2026-03-14T15:38:26.535Z", "NotOnOrAfter": until}
    assert response.find("//saml:Audience").text == shop.entity_id
    assert response.find("//saml:AuthnStatement/@AuthnInstant") == "2026-03-14T15:09:26.535Z"
    assert began < clock.now()
    assert response.find("//saml:AuthnContextClassRef").text == "urn:oasis:names:tc:SAML:2.0:ac:classes:PasswordProtectedTransport"
    ids = [root.get("ID"), assertion.get("ID"), response.session_index]
    assert len(set(ids)) == 3
    assert all(id_.startswith("_") and len(id_) >= 33 for id_ in ids)
    second_session = await browser.sign_on(shop)
    assert second_session.root.get("ID") not in ids


async def test_assertion_and_response_are_signed_as_required(browser: SamlBrowser, shop: SamlApplication, user: Account) -> None:
    await browser.sign_in()
    response = await browser.sign_on(shop)
    for signed in ("/samlp:Response", "/samlp:Response/saml:Assertion"):
        element = response.find(signed)
        assert element[1].tag == f"{{{NS['ds']}}}Signature", "after the Issuer, as the schema requires"
        algorithms = [str(value) for value in response.find(f"{signed}/ds:Signature/ds:SignedInfo").xpath(".//@Algorithm")]
        assert algorithms == [
            "http://www.w3.org/2001/10/xml-exc-c14n#",
            "http://www.w3.org/2001/04/xmldsig-more#rsa-sha256",
            "http://www.w3.org/2000/09/xmldsig#enveloped-signature",
            "http://www.w3.org/2001/10/xml-exc-c14n#",
            "http://www.w3.org/2001/04/xmlenc#sha256",
        ]
        assert response.find(f"{signed}/ds:Signature/ds:SignedInfo/ds:Reference/@URI") == f"#{element.get('ID')}"


@pytest.mark.slow
async def test_a_new_certificate_or_configuration_is_used_by_the_next_response(
    api: Api, browser: SamlBrowser, shop: SamlApplication, acme: Tenant, user: Account
) -> None:
    """The first response has put the key into this process's cache; every process has such a cache."""
    await browser.sign_in()
    first = await browser.sign_on(shop)
    answer = await api.call("POST", f"{shop.management}/certificate", token=acme.token("owner"))
    new = answer.json["public_key"]
    second = await browser.sign_on(shop)
    assert shop.certificate is not None
    verify_signatures(first, shop.certificate.certificate)
    verify_signatures(second, new)
    with pytest.raises(xmlsec.Error):
        verify_signatures(second, shop.certificate.certificate)
    changed: dict[str, Any] = {
        "enabled": True,
        "entity_id": 'urn:ä <new> & "name"',
        "acs_url": shop.acs_url,
        "attribute_mapping": {"id": "ü"},
    }
    await api.call("POST", shop.management, changed, token=acme.token("owner"))
    third = await browser.sign_on(replace(shop, configuration=replace(shop.configuration, entity_id=changed["entity_id"])))
    assert third.find("//saml:Audience").text == changed["entity_id"]
    assert third.find("//saml:Attribute/@Name") == "ü"
    verify_signatures(third, new)


def verify_signatures(response: PostedResponse, certificate: str) -> None:
    """Verify both signatures with xmlsec. Raises: xmlsec.Error."""
    signatures = list(response.root.iter(f"{{{NS['ds']}}}Signature"))
    assert len(signatures) == 2
    for signature in signatures:
        context = xmlsec.SignatureContext()
        context.key = xmlsec.Key.from_memory(certificate, xmlsec.constants.KeyDataFormatCertPem)
        context.register_id(signature.getparent(), "ID")
        context.verify(signature)


@pytest.mark.parametrize(
    ("flags", "signed"), [((True, True), ["Response", "Assertion"]), ((True, False), ["Assertion"]), ((False, True), ["Response"])]
)
async def test_the_configuration_selects_the_signatures(
    browser: SamlBrowser, ports: Ports, pool: Pool, acme: Tenant, user: Account, flags: tuple[bool, bool], signed: list[str]
) -> None:
    assertions, response = flags
    shop = await add_application(ports, pool, acme.org, acme.slug, sign_assertions=assertions, sign_response=response)
    await add_service_user(ports, shop.id, user.id, signed_in=False)
    await browser.sign_in()
    posted = await browser.sign_on(shop)
    parents = [signature.getparent().tag.rpartition("}")[2] for signature in posted.root.iter(f"{{{NS['ds']}}}Signature")]
    assert parents == signed


async def test_a_response_without_an_assertion_is_always_signed(browser: SamlBrowser, ports: Ports, pool: Pool, acme: Tenant) -> None:
    shop = await add_application(ports, pool, acme.org, acme.slug, sign_assertions=True, sign_response=False)
    posted = posted_response(await browser.open(await browser.start_sign_on(shop, IsPassive="true")))
    assert posted.statuses == ["Responder", "NoPassive"]
    assert posted.find("/samlp:Response/ds:Signature") is not None


@pytest.mark.parametrize("format_", NameIdFormat)
async def test_the_name_has_the_configured_format(
    browser: SamlBrowser, ports: Ports, pool: Pool, acme: Tenant, user: Account, format_: NameIdFormat
) -> None:
    shop = await add_application(ports, pool, acme.org, acme.slug, name_id_format=format_)
    blog = await add_application(ports, pool, acme.org, acme.slug, "blog", name_id_format=format_)
    for application in (shop, blog):
        await add_service_user(ports, application.id, user.id, signed_in=False)
    await browser.sign_in()
    first, second, other = [await browser.sign_on(application) for application in (shop, shop, blog)]
    assert first.find("//saml:NameID/@Format") == format_.value
    names = [response.name_id for response in (first, second, other)]
    match format_:
        case NameIdFormat.EMAIL:
            assert names == [EMAIL] * 3
        case NameIdFormat.UNSPECIFIED:
            assert names == [str(user.id)] * 3
        case NameIdFormat.TRANSIENT:
            assert len(set(names)) == 3
        case NameIdFormat.PERSISTENT:
            assert names[0] == names[1] != names[2], "different applications get different names"
            assert str(user.id) not in names[0]
            assert first.find("//saml:NameID/@SPNameQualifier") == shop.entity_id


@pytest.mark.parametrize(
    ("mapping", "expected"),
    [
        (None, {"email": EMAIL, "id": "ID"}),
        ({"email": "urn:oid:0.9.2342.19200300.100.1.3"}, {"urn:oid:0.9.2342.19200300.100.1.3": EMAIL}),
        ({"id": "User <ID>", "email": "mail"}, {"User <ID>": "ID", "mail": EMAIL}),
        ({}, {}),
    ],
)
async def test_attributes_have_the_configured_names(
    browser: SamlBrowser, ports: Ports, pool: Pool, acme: Tenant, user: Account, mapping: dict[str, str] | None, expected: dict[str, str]
) -> None:
    shop = await add_application(ports, pool, acme.org, acme.slug, attribute_mapping=mapping)
    await add_service_user(ports, shop.id, user.id, signed_in=False)
    await browser.sign_in()
    attributes = (await browser.sign_on(shop)).root.iter(f"{{{NS['saml']}}}Attribute")
    sent = {attribute.get("Name"): str(attribute[0].text).replace(str(user.id), "ID") for attribute in attributes}
    assert sent == expected


async def test_an_unverified_address_is_never_sent(
    browser: SamlBrowser, shop: SamlApplication, ports: Ports, pool: Pool, acme: Tenant, user: Account, metrics: FakeMetrics
) -> None:
    blog = await add_application(ports, pool, acme.org, acme.slug, "blog", name_id_format=NameIdFormat.UNSPECIFIED)
    await add_service_user(ports, blog.id, user.id, signed_in=False)
    await browser.sign_in()
    await run_sql(pool, "update users set email_verified_at = null")
    path = await browser.start_sign_on(shop)
    page = await browser.open(path)
    assert page.status == 403
    assert "SAMLResponse" not in page.text
    assert "Verify your email address" in page.text
    assert metrics.login_failures == {"unverified": 1}
    response = await browser.sign_on(blog)
    assert EMAIL not in response.document.decode()
    assert response.name_id == str(user.id)


# ForceAuthn and IsPassive


async def test_force_authn_accepts_a_sign_in_after_the_request(
    browser: SamlBrowser, shop: SamlApplication, user: Account, clock: FakeClock
) -> None:
    await browser.sign_in()
    before = browser.cookies["gatehouse-session"]
    clock.advance(timedelta(minutes=1))
    path = await browser.start_sign_on(shop, ForceAuthn="true")
    clock.advance(timedelta(seconds=1))
    path = await browser.sign_in_at(path)
    assert browser.cookies["gatehouse-session"] != before
    response = posted_response(await browser.open(path))
    assert response.find("//saml:AuthnStatement/@AuthnInstant") == "2026-03-14T15:10:27.535Z"


async def test_force_authn_refuses_a_session_from_before_the_request(browser: SamlBrowser, shop: SamlApplication, user: Account) -> None:
    await browser.sign_in()
    for value in ("true", "1"):
        page = await browser.open(await browser.start_sign_on(shop, ForceAuthn=value))
        assert "SAMLResponse" not in page.text
        assert is_step(action_of(page), "sign-in")


@pytest.mark.parametrize(("signed_in", "force"), [(False, "false"), (False, "true"), (True, "true")])
async def test_is_passive_without_a_session_is_no_passive(
    browser: SamlBrowser, shop: SamlApplication, user: Account, signed_in: bool, force: str
) -> None:
    if signed_in:
        await browser.sign_in()
    path = await browser.start_sign_on(shop, "there", ID="_asked", IsPassive="true", ForceAuthn=force)
    response = posted_response(await browser.open(path))
    assert (response.url, response.relay_state, response.root.get("InResponseTo")) == (shop.acs_url, "there", "_asked")
    assert response.root.xpath("//samlp:StatusCode/@Value", namespaces=NS) == [f"{STATUS}Responder", f"{STATUS}NoPassive"]
    assert not response.root.xpath("//saml:Assertion", namespaces=NS)
    assert response.find("/samlp:Response/ds:Signature") is not None
    assert (await browser.open(path)).status == 400, "the sign-on is finished"


async def test_is_passive_with_a_session_gets_an_assertion(browser: SamlBrowser, shop: SamlApplication, user: Account) -> None:
    await browser.sign_in()
    assert (await browser.sign_on(shop, IsPassive="1")).name_id == EMAIL
