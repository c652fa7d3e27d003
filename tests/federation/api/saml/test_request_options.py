"""AuthnRequest options: NameIDPolicy, Subject, RequestedAuthnContext and IsPassive.

The application gets the requested option, or an error status at its ACS URL (SAML core sections
3.3.2.2.1 and 3.4.1, SAML profiles section 4.1.4.1).
"""

from typing import Any

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from core.federation.saml.model.configuration import NameIdFormat
from core.federation.saml.model.messages import new_message_id
from ports import Ports
from tests.fakes.outside import FakeClock, FakeMetrics
from tests.support.builders import EMAIL, add_account, one_factor, run_sql
from tests.support.connections.proofs import write_proofs
from tests.support.saml import PostedResponse, SamlApplication, name_id_element, posted_response
from tests.support.saml.browser import SamlApplications, SamlBrowser
from tests.support.services import add_service_user

FORMAT = "urn:oasis:names:tc:SAML:{}:nameid-format:{}"
UNSPECIFIED = NameIdFormat.UNSPECIFIED.value
CLASSES = "urn:oasis:names:tc:SAML:2.0:ac:classes:"


async def refused(browser: SamlBrowser, application: SamlApplication, **request: Any) -> list[str]:
    """Return the status codes that the application gets instead of an assertion."""
    id_ = new_message_id()
    path = await browser.start_sign_on(application, "there", ID=id_, **request)
    page = await browser.open(path)
    assert "You're signed in" not in page.text
    response = posted_response(page)
    assert (response.url, response.relay_state, response.root.get("InResponseTo")) == (application.acs_url, "there", id_)
    assert response.find("/samlp:Response/ds:Signature") is not None
    assert b"Assertion>" not in response.document
    assert EMAIL not in response.document.decode()
    assert (await browser.open(path)).status == 400, "the sign-on is finished"
    return response.statuses


# NameIDPolicy


def policy(**attributes: str) -> str:
    return "<samlp:NameIDPolicy" + "".join(f' {name}="{value}"' for name, value in attributes.items()) + "/>"


@pytest.mark.parametrize("format_", NameIdFormat)
async def test_the_configured_format_can_be_requested(browser: SamlBrowser, applications: SamlApplications, format_: NameIdFormat) -> None:
    shop = await applications.add(name_id_format=format_)
    await browser.sign_in()
    for attributes in (
        {},
        {"Format": UNSPECIFIED},
        {"Format": format_.value},
        {"Format": format_.value, "SPNameQualifier": shop.entity_id},
    ):
        for create in ({}, {"AllowCreate": "true"}, {"AllowCreate": "false"}):
            response = await browser.sign_on(shop, inside=policy(**attributes, **create))
            assert response.find("//saml:NameID/@Format") == format_.value


OTHER_FORMATS = (
    {"Format": FORMAT.format("2.0", "persistent")},
    {"Format": FORMAT.format("2.0", "transient"), "AllowCreate": "true"},
    {"Format": FORMAT.format("2.0", "encrypted")},
    {"Format": FORMAT.format("2.0", "emailAddress")},
    {"Format": FORMAT.format("1.1", "WindowsDomainQualifiedName")},
    {"Format": "emailAddress"},
    {"Format": NameIdFormat.EMAIL.value, "SPNameQualifier": "https://blog.example.com/metadata"},
)


async def test_another_format_is_an_error(browser: SamlBrowser, shop: SamlApplication, user: Account) -> None:
    """This holds with and without a browser session."""
    findings = []
    for signed_in in (False, True):
        if signed_in:
            await browser.sign_in()
        for attributes in OTHER_FORMATS:
            codes = await refused(browser, shop, inside=policy(**attributes))
            if codes != ["Requester", "InvalidNameIDPolicy"]:
                findings.append((signed_in, attributes, codes))
    assert findings == []


async def test_an_email_address_is_an_error_where_users_have_pseudonyms(
    browser: SamlBrowser, applications: SamlApplications, pool: Pool
) -> None:
    shop = await applications.add(name_id_format=NameIdFormat.PERSISTENT)
    await browser.sign_in()
    assert await refused(browser, shop, inside=policy(Format=NameIdFormat.EMAIL.value)) == ["Requester", "InvalidNameIDPolicy"]
    assert await run_sql(pool, "select count(*) from saml_name_ids") == [(0,)]


# Subject


def subject(name_id: str, **attributes: str) -> str:
    return f"<saml:Subject>{name_id_element(name_id, **attributes)}</saml:Subject>"


@pytest.mark.parametrize("format_", [NameIdFormat.EMAIL, NameIdFormat.PERSISTENT, NameIdFormat.UNSPECIFIED, NameIdFormat.TRANSIENT])
async def test_the_requested_user_gets_an_assertion(browser: SamlBrowser, applications: SamlApplications, format_: NameIdFormat) -> None:
    shop = await applications.add(name_id_format=format_)
    await browser.sign_in()
    name = (await browser.sign_on(shop)).name_id
    whole = {"Format": format_.value, "NameQualifier": shop.issuer, "SPNameQualifier": shop.entity_id}
    for attributes in ({}, {"Format": UNSPECIFIED}, {"Format": format_.value}, whole):
        response = await browser.sign_on(shop, inside=subject(name, **attributes))
        assert response.statuses == ["Success"]
        assert response.find("//saml:NameID/@Format") == format_.value
    if format_ is not NameIdFormat.UNSPECIFIED:
        other = NameIdFormat.EMAIL if format_ is not NameIdFormat.EMAIL else NameIdFormat.PERSISTENT
        assert await refused(browser, shop, inside=subject(name, Format=other.value)) == ["Requester", "UnknownPrincipal"]


CONFIRMATION = '<saml:SubjectConfirmation Method="urn:oasis:names:tc:SAML:2.0:cm:bearer"/>'


@pytest.mark.parametrize(
    "content", [f"<saml:Subject>{CONFIRMATION}</saml:Subject>", subject(EMAIL).replace("</saml:S", CONFIRMATION + "</saml:S")]
)
async def test_the_subject_confirmation_is_ignored(browser: SamlBrowser, shop: SamlApplication, user: Account, content: str) -> None:
    await browser.sign_in()
    assert (await browser.sign_on(shop, inside=content)).name_id == EMAIL


OTHER_SUBJECTS = (
    subject("grace@example.com"),
    subject("grace@example.com", Format=NameIdFormat.EMAIL.value),
    subject(EMAIL, Format=NameIdFormat.PERSISTENT.value),
    subject(EMAIL, Format="urn:x"),
    subject(EMAIL, NameQualifier="https://other.example.com/"),
    subject(EMAIL, SPNameQualifier="https://blog.example.com/metadata"),
    subject(""),
    subject("x" * 257),
    "<saml:Subject><saml:EncryptedID/></saml:Subject>",
    "<saml:Subject><saml:BaseID/></saml:Subject>",
)


async def test_another_user_gets_unknown_principal(browser: SamlBrowser, shop: SamlApplication, pool: Pool) -> None:
    await browser.sign_in()
    findings = []
    for element in OTHER_SUBJECTS:
        for is_passive in ("false", "true"):
            codes = await refused(browser, shop, inside=element, IsPassive=is_passive)
            if codes != ["Requester", "UnknownPrincipal"]:
                findings.append((element, is_passive, codes))
    assert findings == []
    assert await run_sql(pool, "select count(*) from login_events where provider = 'saml' and success") == [(0,)]
    assert await run_sql(pool, "select count(*) from saml_sessions") == [(0,)]


async def test_the_user_who_signs_in_is_compared_with_the_subject(
    browser: SamlBrowser, shop: SamlApplication, ports: Ports, metrics: FakeMetrics
) -> None:
    grace = await add_account(ports, "grace@example.com")
    await add_service_user(ports, shop.id, grace.id, signed_in=False)
    path = await browser.start_sign_on(shop, inside=subject(EMAIL))
    assert posted_response(await browser.open(await browser.sign_in_at(path, "grace@example.com"))).statuses == [
        "Requester",
        "UnknownPrincipal",
    ]
    assert metrics.login_failures == {"saml": 1}
    assert await browser.is_in(), "the user is signed in here"
    browser.cookies.clear()
    path = await browser.start_sign_on(shop, inside=subject(EMAIL))
    assert posted_response(await browser.open(await browser.sign_in_at(path))).name_id == EMAIL


async def test_a_user_without_a_name_at_the_service_does_not_match(
    browser: SamlBrowser, shop: SamlApplication, ports: Ports, pool: Pool
) -> None:
    await add_account(ports, "stranger@example.com")
    await browser.sign_in("stranger@example.com")
    assert await refused(browser, shop, inside=subject(EMAIL)) == ["Requester", "UnknownPrincipal"]
    assert await run_sql(pool, "select count(*) from service_users") == [(1,)], "only the first user has a name there"


@pytest.mark.parametrize("format_", [NameIdFormat.PERSISTENT, NameIdFormat.TRANSIENT])
async def test_pseudonyms_of_other_users_do_not_match(
    browser: SamlBrowser, app: QuartTrio, clock: FakeClock, applications: SamlApplications, ports: Ports, format_: NameIdFormat
) -> None:
    shop = await applications.add(name_id_format=format_)
    grace = await add_account(ports, "grace@example.com")
    await add_service_user(ports, shop.id, grace.id, signed_in=False)
    other = SamlBrowser(app, clock)
    await other.sign_in("grace@example.com")
    graces = (await other.sign_on(shop)).name_id
    await browser.sign_in()
    assert await refused(browser, shop, inside=subject(graces)) == ["Requester", "UnknownPrincipal"]


# RequestedAuthnContext


def context(*classes: str, comparison: str | None = None) -> str:
    refs = "".join(f"<saml:AuthnContextClassRef>{CLASSES}{name}</saml:AuthnContextClassRef>" for name in classes)
    comparison_attribute = "" if comparison is None else f' Comparison="{comparison}"'
    return f"<samlp:RequestedAuthnContext{comparison_attribute}>{refs}</samlp:RequestedAuthnContext>"


def context_class_of(response: PostedResponse) -> str:
    return str(response.find("//saml:AuthnContextClassRef").text).removeprefix(CLASSES)


@pytest.mark.parametrize(
    ("element", "expected"),
    [
        (context("PasswordProtectedTransport"), "PasswordProtectedTransport"),
        (context("Password"), "Password"),
        (context("unspecified", comparison="exact"), "unspecified"),
        (context("X509", "PasswordProtectedTransport"), "PasswordProtectedTransport"),
        (context("Password", comparison="minimum"), "PasswordProtectedTransport"),
        (context("Password", comparison="maximum"), "Password"),
        (context("Password", comparison="better"), "PasswordProtectedTransport"),
        ("<samlp:RequestedAuthnContext/>", "PasswordProtectedTransport"),
    ],
)
async def test_a_sign_in_with_a_password_states_the_requested_class(
    browser: SamlBrowser, shop: SamlApplication, user: Account, element: str, expected: str
) -> None:
    await browser.sign_in()
    assert context_class_of(await browser.sign_on(shop, inside=element)) == expected


async def test_other_sign_ins_state_the_real_class(
    browser: SamlBrowser, shop: SamlApplication, user: Account, pool: Pool, clock: FakeClock
) -> None:
    """Libraries request a password by default, and most services accept every user anyway."""
    await browser.sign_in()
    await write_proofs(pool, user.id, one_factor(clock.now(), "codehost"))
    for element in (context("PasswordProtectedTransport"), context("Password", comparison="minimum"), context("unspecified")):
        assert context_class_of(await browser.sign_on(shop, inside=element)) == "unspecified"


@pytest.mark.parametrize(
    "element",
    [
        context("X509"),
        context("Kerberos", "SmartcardPKI", comparison="minimum"),
        context("PasswordProtectedTransport", comparison="better"),
        "<samlp:RequestedAuthnContext><saml:AuthnContextDeclRef>urn:x</saml:AuthnContextDeclRef></samlp:RequestedAuthnContext>",
    ],
)
@pytest.mark.parametrize("signed_in", [False, True])
async def test_an_unsupported_class_is_an_error(browser: SamlBrowser, shop: SamlApplication, element: str, signed_in: bool) -> None:
    if signed_in:
        await browser.sign_in()
    assert await refused(browser, shop, inside=element) == ["Responder", "NoAuthnContext"]


# IsPassive


async def test_is_passive_for_a_user_without_access_is_no_passive(
    browser: SamlBrowser, shop: SamlApplication, ports: Ports, pool: Pool, metrics: FakeMetrics
) -> None:
    await add_account(ports, "stranger@example.com")
    await browser.sign_in("stranger@example.com")
    assert await refused(browser, shop, IsPassive="true") == ["Responder", "NoPassive"]
    browser.cookies.clear()
    await browser.sign_in()
    await run_sql(pool, "update users set email_verified_at = null")
    assert await refused(browser, shop, IsPassive="true") == ["Responder", "NoPassive"]
    assert metrics.login_failures == {"access": 1, "unverified": 1}
