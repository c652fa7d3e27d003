"""SAML single sign-on.

Covers security A-9, A-10, X-3, X-5, X-6, X-7, X-8 and X-10, and decisions 173, 174, 175, 176, 177,
178, 179, 180, 181 and 182.
"""

from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from adapters.saml.documents import XmlDocuments
from core.accounts.accounts_rules import Account
from core.federation.saml.configuration_rules import NameIdFormat, SamlIdentityProvider
from core.federation.saml.messages import SamlResponse
from core.federation.saml.sign_on_rules import STATE_TTL
from core.kernel.errors import Limited
from core.kernel.principals import SYSTEM
from core.kernel.values import digest, new_secret
from ports import Ports
from tests.fakes.outside import FakeClock, FakeMetrics
from tests.support.browser import ACCOUNT, CODE, SIGN_IN, FakeBrowser, form_token, leads_to, set_cookies
from tests.support.builders import BASE_URL, EMAIL, PASSWORD, Answer, Api, add_account, add_member, everyone, run_sql, sign_in
from tests.support.mfa import Authenticator
from tests.support.saml import NS, STATUS, SamlApplication, add_application, authn_request, new_certificate, posted_response, redirect_url
from tests.support.saml_browser import SamlApplications, SamlBrowser
from tests.support.services import add_service_user
from tests.support.tenants import Tenant

# Sign-in during a sign-on


async def test_a_user_signs_in_and_continues_to_the_application(browser: SamlBrowser, shop: SamlApplication) -> None:
    after = await browser.start_sign_on(shop, "a & b", ID="_asked")
    assert urlsplit(after).path == f"{shop.path}/authenticate"
    assert await browser.sign_in_at(after) == after
    answer = await browser.open(after)
    response = posted_response(answer)
    assert (response.url, response.relay_state, response.name_id) == (shop.acs_url, "a & b", EMAIL)
    assert response.root.get("InResponseTo") == "_asked"
    assert await browser.is_in(), "the browser stays signed in"
    assert [name for name in browser.cookies if "saml" in name] == [], "the cookie of the sign-on is deleted"


async def test_the_page_works_without_scripts_and_posts_only_to_the_application(
    browser: SamlBrowser, shop: SamlApplication, user: Account
) -> None:
    await browser.sign_in()
    answer = await browser.open(await browser.start_sign_on(shop, '"><script>alert(1)</script>'))
    policy = dict(part.strip().partition(" ")[::2] for part in answer.headers["Content-Security-Policy"].split(";"))
    assert policy["form-action"] == "https://shop.example.com"
    assert policy["default-src"] == "'none'"
    nonce = policy["script-src"].removeprefix("'nonce-").removesuffix("'")
    assert f'<script nonce="{nonce}">' in answer.text
    assert '<button class="button" type="submit">' in answer.text
    assert "<script>alert" not in answer.text
    assert posted_response(answer).relay_state == '"><script>alert(1)</script>'
    assert answer.headers["Cache-Control"] == "no-store"


async def test_a_cross_site_form_without_cookies_starts_a_sign_on(browser: SamlBrowser, shop: SamlApplication, user: Account) -> None:
    await browser.sign_in()
    response = posted_response(await browser.open(await browser.start_sign_on_by_post(shop, "there", ID="_asked")))
    assert (response.relay_state, response.name_id, response.root.get("InResponseTo")) == ("there", EMAIL, "_asked")


async def test_one_session_serves_several_applications(
    browser: SamlBrowser, shop: SamlApplication, ports: Ports, pool: Pool, acme: Tenant, user: Account
) -> None:
    blog = await add_application(ports, pool, acme.org, acme.slug, "blog")
    await add_service_user(ports, blog.id, user.id)
    await browser.sign_in()
    first, second = await browser.sign_on(shop), await browser.sign_on(blog)
    assert (first.url, second.url) == (shop.acs_url, blog.acs_url)
    assert first.session_index != second.session_index
    assert (await browser.sign_on(shop)).session_index == first.session_index, "the session is the same"


async def test_two_sign_ons_in_one_browser_are_independent(browser: SamlBrowser, shop: SamlApplication, user: Account) -> None:
    one, other = await browser.start_sign_on(shop, "one"), await browser.start_sign_on(shop, "other")
    await browser.sign_in_at(other)
    assert posted_response(await browser.open(other)).relay_state == "other"
    assert posted_response(await browser.open(one)).relay_state == "one"


async def test_cookies_of_old_unfinished_sign_ons_are_deleted(browser: SamlBrowser, shop: SamlApplication, user: Account) -> None:
    await browser.sign_in()
    browser.cookies["gatehouse-saml-logout"] = new_secret()
    paths = [await browser.start_sign_on_by_post(shop, str(number)) for number in range(30)]

    def cookie_count() -> int:
        return len([name for name in browser.cookies if name.startswith("gatehouse-saml-") and name != "gatehouse-saml-logout"])

    assert cookie_count() == 30
    assert posted_response(await browser.open(paths[3])).relay_state == "3", "the current sign-on"
    assert cookie_count() == 19
    assert "gatehouse-saml-logout" in browser.cookies
    assert (await browser.open(paths[10])).status == 400
    for number in (11, 29):
        assert posted_response(await browser.open(paths[number])).relay_state == str(number)


async def test_cookies_of_failed_sign_ons_are_deleted_too(browser: SamlBrowser, shop: SamlApplication, ports: Ports) -> None:
    await add_account(ports, "stranger@example.com")
    await browser.sign_in("stranger@example.com")
    for _ in range(25):
        assert (await browser.open(await browser.start_sign_on_by_post(shop))).status == 403
    assert len([name for name in browser.cookies if name.startswith("gatehouse-saml-")]) == 20


async def test_the_second_factor_is_required(browser: SamlBrowser, shop: SamlApplication, factor: Authenticator) -> None:
    after = await browser.start_sign_on(shop)
    code = await browser.sign_in_at(after)
    assert code.startswith(f"{CODE}?next=")
    assert '<form method="post" action="/app/sign-in">' in (await browser.open(after)).text, "there is no assertion yet"
    page = await browser.open(code)
    assert leads_to(await browser.send(CODE, form_token=form_token(page), next=after, code=factor.code())) == after
    assert posted_response(await browser.open(after)).name_id == EMAIL


async def test_a_wrong_password_shows_the_form_again(browser: SamlBrowser, shop: SamlApplication) -> None:
    after = await browser.start_sign_on(shop)
    page = await browser.open(after)
    refused = await browser.send(SIGN_IN, form_token=form_token(page), next=after, email=EMAIL, password="wrong")
    assert refused.status == 401
    assert f'name="next" value="{after}"' in refused.text
    assert "<h1>Sign in to <bdi>Shop</bdi></h1>" in refused.text


async def test_every_page_names_the_application_and_has_its_design(
    api: Api, browser: SamlBrowser, shop: SamlApplication, acme: Tenant, factor: Authenticator
) -> None:
    chosen = {"logo_url": "https://cdn.acme.example/logo.svg", "primary_color": "#7a1fa2", "product_name": "Acme Portal"}
    assert (await api.patch(f"{acme.path}/branding", chosen, token=acme.token("owner"))).status == 200

    def is_designed(page: Answer) -> bool:
        checks = {
            "<bdi>Acme Portal</bdi></span></header>" in page.text,
            "--button: #7a1fa2;" in page.text,
            "img-src 'self' data: https://cdn.acme.example;" in page.headers["Content-Security-Policy"],
        }
        assert len(checks) == 1
        return checks == {True}

    after = await browser.start_sign_on(shop)
    for path in (after, f"{SIGN_IN}?{urlencode({'next': after})}"):
        page = await browser.open(path)
        assert "<h1>Sign in to <bdi>Shop</bdi></h1>" in page.text
        assert is_designed(page)
        assert "form-action 'self';" in page.headers["Content-Security-Policy"]
    assert is_designed(await browser.open(await browser.sign_in_at(after)))
    # No sign-on, and one of another service.
    for other in (f"{shop.path}/authenticate?saml_state={new_secret()}", after.replace("/shop/", "/blog/"), f"{shop.path}/authenticate"):
        page = await browser.open(f"{SIGN_IN}?{urlencode({'next': other})}")
        assert "<h1>Sign in</h1>" in page.text
        assert not is_designed(page)


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
    again = await browser.sign_on(shop)
    assert again.root.get("ID") not in ids


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


@pytest.mark.parametrize(
    ("flags", "signed"), [((True, True), ["Response", "Assertion"]), ((True, False), ["Assertion"]), ((False, True), ["Response"])]
)
async def test_the_configuration_selects_the_signatures(
    browser: SamlBrowser, ports: Ports, pool: Pool, acme: Tenant, user: Account, flags: tuple[bool, bool], signed: list[str]
) -> None:
    assertions, response = flags
    shop = await add_application(ports, pool, acme.org, acme.slug, sign_assertions=assertions, sign_response=response)
    await add_service_user(ports, shop.id, user.id)
    await browser.sign_in()
    posted = await browser.sign_on(shop)
    parents = [signature.getparent().tag.rpartition("}")[2] for signature in posted.root.iter(f"{{{NS['ds']}}}Signature")]
    assert parents == signed


@pytest.mark.parametrize("format_", NameIdFormat)
async def test_the_name_has_the_configured_format(
    browser: SamlBrowser, ports: Ports, pool: Pool, acme: Tenant, user: Account, format_: NameIdFormat
) -> None:
    shop = await add_application(ports, pool, acme.org, acme.slug, name_id_format=format_)
    blog = await add_application(ports, pool, acme.org, acme.slug, "blog", name_id_format=format_)
    for application in (shop, blog):
        await add_service_user(ports, application.id, user.id)
    await browser.sign_in()
    first, again, elsewhere = [await browser.sign_on(application) for application in (shop, shop, blog)]
    assert first.find("//saml:NameID/@Format") == format_.value
    names = [response.name_id for response in (first, again, elsewhere)]
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
    await add_service_user(ports, shop.id, user.id)
    await browser.sign_in()
    attributes = (await browser.sign_on(shop)).root.iter(f"{{{NS['saml']}}}Attribute")
    sent = {attribute.get("Name"): str(attribute[0].text).replace(str(user.id), "ID") for attribute in attributes}
    assert sent == expected


async def test_an_unverified_address_is_never_sent(
    browser: SamlBrowser, shop: SamlApplication, ports: Ports, pool: Pool, acme: Tenant, user: Account, metrics: FakeMetrics
) -> None:
    blog = await add_application(ports, pool, acme.org, acme.slug, "blog", name_id_format=NameIdFormat.UNSPECIFIED)
    await add_service_user(ports, blog.id, user.id)
    await browser.sign_in()
    await run_sql(pool, "update users set email_verified_at = null")
    path = await browser.start_sign_on(shop)
    refused = await browser.open(path)
    assert refused.status == 403
    assert "SAMLResponse" not in refused.text
    assert "Verify your email address" in refused.text
    assert metrics.login_failures == {"saml": 1}
    response = await browser.sign_on(blog)
    assert EMAIL not in response.document.decode()
    assert response.name_id == str(user.id)


# Access


async def test_members_need_no_registration(browser: SamlBrowser, shop: SamlApplication, ports: Ports, pool: Pool, acme: Tenant) -> None:
    member = await add_account(ports, "member@example.com")
    await add_member(pool, acme.org, member.id)
    await browser.sign_in("member@example.com")
    assert (await browser.sign_on(shop)).name_id == "member@example.com"
    uses = await run_sql(pool, "select last_login_at from service_users where user_id = %s", member.id)
    assert uses == [(ports.clock.now(),)]


async def test_other_users_get_no_assertion(
    browser: SamlBrowser, shop: SamlApplication, ports: Ports, pool: Pool, other_tenant: Tenant
) -> None:
    await add_account(ports, "stranger@example.com")
    await add_member(pool, other_tenant.org, (await add_account(ports, "foreign@example.com")).id)
    for email in ("stranger@example.com", "foreign@example.com"):
        browser.cookies.clear()
        await browser.sign_in(email)
        refused = await browser.open(await browser.start_sign_on(shop))
        assert refused.status == 403
        assert "SAMLResponse" not in refused.text
    assert await run_sql(pool, "select count(*) from service_users") == [(1,)], "only the first user is a user of the service"
    assert await run_sql(pool, "select count(*) from login_events where provider = 'saml'") == [(0,)]


async def test_a_password_login_confirms_the_membership(
    browser: SamlBrowser, shop: SamlApplication, user: Account, pool: Pool, acme: Tenant
) -> None:
    await add_member(pool, acme.org, user.id)
    await browser.sign_in()
    await browser.sign_on(shop)
    taking_part = "select confirmed_at is not null from memberships where user_id = %s"
    assert await run_sql(pool, taking_part, user.id) == [(False,)]
    await browser.sign_in_at(await browser.start_sign_on(shop, ForceAuthn="true"))
    assert await run_sql(pool, taking_part, user.id) == [(True,)]


async def test_a_sign_in_through_the_api_confirms_the_membership(
    api: Api, browser: SamlBrowser, shop: SamlApplication, user: Account, pool: Pool, acme: Tenant
) -> None:
    await add_member(pool, acme.org, user.id)
    assert (await log_in(api, await browser.start_sign_on(shop))).status == 200
    assert await run_sql(pool, "select confirmed_at is not null from memberships where user_id = %s", user.id) == [(True,)]


async def test_a_user_without_access_can_sign_in_as_another_user(browser: SamlBrowser, shop: SamlApplication, ports: Ports) -> None:
    await add_account(ports, "stranger@example.com")
    await browser.sign_in("stranger@example.com")
    path = await browser.start_sign_on(shop, "there")
    page = await browser.open(path)
    assert page.status == 403
    assert "You don&#39;t have access to this application." in page.text
    assert "stranger@example.com" in page.text
    assert f'name="next" value="{path}"' in page.text
    onward_ = leads_to(await browser.send("/app/sign-out", form_token=form_token(page), next=path))
    assert onward_ == f"{SIGN_IN}?{urlencode({'next': path})}"
    assert "You&#39;re signed out." in (await browser.open(onward_)).text
    assert await browser.sign_in_at(path) == path
    response = posted_response(await browser.open(path))
    assert (response.name_id, response.relay_state) == (EMAIL, "there")


async def test_a_user_with_an_unverified_address_can_sign_in_as_another_user(
    browser: SamlBrowser, shop: SamlApplication, user: Account, pool: Pool
) -> None:
    await browser.sign_in()
    await run_sql(pool, "update users set email_verified_at = null where id = %s", user.id)
    page = await browser.open(await browser.start_sign_on(shop))
    assert page.status == 403
    assert "Verify your email address first" in page.text
    assert 'action="/app/sign-out"' in page.text


async def test_a_sign_on_is_recorded(browser: SamlBrowser, shop: SamlApplication, acme: Tenant, user: Account, pool: Pool) -> None:
    await browser.sign_in()
    await browser.sign_on(shop)
    await browser.sign_on(shop)
    logins = await run_sql(pool, "select user_id, org_id, service_id, success from login_events where provider = 'saml'")
    assert logins == [(user.id, shop.org, shop.id, True)] * 2
    assert await run_sql(pool, "select sum(total)::int from login_totals where service_id = %s", shop.id) == [(2,)]
    events = [(name, target, data) for name, target, data in await acme.told() if name == "user.login.success"]
    assert events == [("user.login.success", str(user.id), {"provider": "saml", "service_id": str(shop.id)})] * 2


@pytest.mark.parametrize("change", ["deactivated_at = now()", "anonymized_at = now()"])
async def test_a_closed_account_gets_no_assertion(
    browser: SamlBrowser, shop: SamlApplication, user: Account, pool: Pool, change: str
) -> None:
    await browser.sign_in()
    path = await browser.start_sign_on(shop)
    await run_sql(pool, f"update users set {change}")  # noqa: S608
    assert '<form method="post" action="/app/sign-in">' in (await browser.open(path)).text


# ForceAuthn and IsPassive


async def test_force_authn_accepts_a_sign_in_after_the_request(
    browser: SamlBrowser, shop: SamlApplication, user: Account, clock: FakeClock
) -> None:
    await browser.sign_in()
    before = browser.cookies["gatehouse-session"]
    clock.advance(timedelta(minutes=1))
    path = await browser.start_sign_on(shop, ForceAuthn="true")
    clock.advance(timedelta(seconds=1))
    assert await browser.sign_in_at(path) == path
    assert browser.cookies["gatehouse-session"] != before
    response = posted_response(await browser.open(path))
    assert response.find("//saml:AuthnStatement/@AuthnInstant") == "2026-03-14T15:10:27.535Z"


async def test_force_authn_refuses_a_session_from_before_the_request(browser: SamlBrowser, shop: SamlApplication, user: Account) -> None:
    await browser.sign_in()
    for value in ("true", "1"):
        page = await browser.open(await browser.start_sign_on(shop, ForceAuthn=value))
        assert "SAMLResponse" not in page.text
        assert '<form method="post" action="/app/sign-in">' in page.text


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


# Too many documents in the signing queue


class Busy:
    """SAML documents that raise Limited until `free` is set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.free, sign = False, XmlDocuments.response

        async def response(documents: XmlDocuments, provider: SamlIdentityProvider, message: SamlResponse) -> bytes:
            if not self.free:
                raise Limited(1)
            return await sign(documents, provider, message)

        monkeypatch.setattr(XmlDocuments, "response", response)


@pytest.mark.parametrize("options", [{}, {"IsPassive": "true", "ForceAuthn": "true"}])
async def test_reloading_the_page_gets_the_response(
    browser: SamlBrowser, shop: SamlApplication, user: Account, monkeypatch: pytest.MonkeyPatch, options: dict[str, str]
) -> None:
    busy = Busy(monkeypatch)
    await browser.sign_in()
    path = await browser.start_sign_on(shop, "there", **options)
    refused = await browser.open(path)
    assert (refused.status, refused.headers["Retry-After"]) == (429, "1")
    busy.free = True
    assert posted_response(await browser.open(path)).relay_state == "there"
    assert await refused_with_400(await browser.open(path))


async def test_reloading_the_page_after_an_api_login_gets_the_response(
    api: Api, browser: SamlBrowser, shop: SamlApplication, user: Account, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy = Busy(monkeypatch)
    answer = await log_in(api, await browser.start_sign_on(shop))
    path = answer.json["redirect_url"].removeprefix(BASE_URL)
    assert (await browser.open(path)).status == 429
    assert not await browser.is_in()
    busy.free = True
    assert posted_response(await browser.open(path)).name_id == EMAIL
    assert await browser.is_in()
    assert await run_sql(pool, "select count(*) from sessions where browser_hash is not null and ended_at is null") == [(1,)]


# The state


@pytest.fixture
async def waiting(browser: SamlBrowser, shop: SamlApplication, user: Account) -> str:
    """Return the path of a pending sign-on that would get an assertion."""
    await browser.sign_in()
    return await browser.start_sign_on(shop)


async def refused_with_400(answer: Answer) -> bool:
    return answer.status == 400 and "SAMLResponse" not in answer.text and "Start again at the application" in answer.text


async def test_a_state_works_once(browser: SamlBrowser, waiting: str) -> None:
    assert (await browser.open(waiting)).status == 200
    assert await refused_with_400(await browser.open(waiting))


async def test_a_state_expires_after_15_minutes(browser: SamlBrowser, waiting: str, clock: FakeClock) -> None:
    clock.advance(STATE_TTL)
    assert await refused_with_400(await browser.open(waiting))


async def test_a_state_works_only_in_its_own_browser(app: QuartTrio, browser: SamlBrowser, waiting: str, clock: FakeClock) -> None:
    victim = SamlBrowser(app, clock)
    await victim.sign_in()
    assert await refused_with_400(await victim.open(waiting))
    [name] = [name for name in browser.cookies if "saml" in name]
    victim.cookies[name] = new_secret()
    assert await refused_with_400(await victim.open(waiting))
    assert (await browser.open(waiting)).status == 200, "in its own browser it still works"


async def test_a_state_works_only_for_its_own_service(
    browser: SamlBrowser, shop: SamlApplication, waiting: str, ports: Ports, pool: Pool, acme: Tenant, user: Account
) -> None:
    blog = await add_application(ports, pool, acme.org, acme.slug, "blog")
    await add_service_user(ports, blog.id, user.id)
    assert await refused_with_400(await browser.open(waiting.replace(shop.path, blog.path)))
    for query in ("", "?saml_state=", f"?saml_state={new_secret()}"):
        assert await refused_with_400(await browser.open(f"{shop.path}/authenticate{query}"))


async def test_states_and_cookies_are_stored_as_hashes(browser: SamlBrowser, waiting: str, pool: Pool) -> None:
    [state] = parse_qs(urlsplit(waiting).query)["saml_state"]
    [cookie] = [value for name, value in browser.cookies.items() if "saml" in name]
    assert await run_sql(pool, "select state_hash, browser_hash from saml_sign_ons") == [(digest(state), digest(cookie))]


async def test_a_head_request_does_not_finish_a_sign_on(
    browser: SamlBrowser, shop: SamlApplication, waiting: str, clock: FakeClock, pool: Pool
) -> None:
    assert (await browser.open(waiting, method="HEAD")).status == 200
    assert (await browser.open(redirect_url(f"{shop.path}/sso", authn_request(shop, clock.now())), method="HEAD")).status == 200
    assert await run_sql(pool, "select count(*) from saml_sign_ons") == [(1,)]
    assert (await browser.open(waiting)).status == 200


@pytest.mark.slow
async def test_of_twenty_parallel_requests_one_gets_the_response(browser: SamlBrowser, waiting: str, pool: Pool) -> None:
    answers = await everyone(20, lambda _: browser.open(waiting))
    assert sorted(answer.status for answer in answers) == [200] + [400] * 19
    assert await run_sql(pool, "select count(*) from login_events where provider = 'saml'") == [(1,)]


@pytest.mark.slow
async def test_of_twenty_parallel_copies_of_a_request_one_is_accepted(
    browser: SamlBrowser, shop: SamlApplication, clock: FakeClock
) -> None:
    address = redirect_url(f"{shop.path}/sso", authn_request(shop, clock.now()))
    answers = await everyone(20, lambda _: browser.open(address))
    assert sorted(answer.status for answer in answers) == [302] + [400] * 19


# Sign-in through the API


async def log_in(api: Api, path: str, **more: Any) -> Answer:
    [state] = parse_qs(urlsplit(path).query)["saml_state"]
    return await api.post("/api/auth/login", {"email": EMAIL, "password": PASSWORD, "saml_state": state, **more})


async def test_a_frontend_signs_a_user_in_for_a_sign_on(
    api: Api, browser: SamlBrowser, shop: SamlApplication, user: Account, pool: Pool
) -> None:
    answer = await log_in(api, await browser.start_sign_on(shop))
    assert answer.status == 200, answer.text
    assert answer.json["access_token"]
    path = answer.json["redirect_url"].removeprefix(BASE_URL)
    assert not await browser.is_in()
    page = await browser.open(path)
    assert posted_response(page).name_id == EMAIL
    assert await browser.is_in(), "the browser is signed in too"
    [login_device, browser_device] = await run_sql(
        pool, "select device_id from sessions where user_id = %s order by created_at desc limit 2", user.id
    )
    assert login_device == browser_device != (None,), "on the device of the API login, so that it ends with that device"
    assert (await browser.open(path)).status == 400


async def test_the_assertion_has_the_time_of_the_api_login(
    api: Api, browser: SamlBrowser, shop: SamlApplication, applications: SamlApplications, user: Account, pool: Pool, clock: FakeClock
) -> None:
    """SAML core section 2.7.2.

    A later request with ForceAuthn does not accept that login (section 3.4.1).
    """
    answer = await log_in(api, await browser.start_sign_on(shop))
    clock.advance(timedelta(minutes=1))
    blog = await applications.add("blog")
    fresh = await browser.start_sign_on(blog, ForceAuthn="true")
    clock.advance(timedelta(minutes=1))
    response = posted_response(await browser.open(answer.json["redirect_url"].removeprefix(BASE_URL)))
    assert response.find("//saml:AuthnStatement/@AuthnInstant") == "2026-03-14T15:09:26.535Z"
    assert response.root.get("IssueInstant") == "2026-03-14T15:11:26.535Z"
    started, ends = "2026-03-14 15:09:26.535897+00", "2026-06-12 15:09:26.535897+00"
    assert await run_sql(pool, "select created_at = %s, ends_at = %s from sessions where browser_hash is not null", started, ends) == [
        (True, True)
    ]
    assert '<form method="post" action="/app/sign-in">' in (await browser.open(fresh)).text


async def test_a_frontend_sends_the_second_factor_for_a_sign_on(
    api: Api, browser: SamlBrowser, shop: SamlApplication, factor: Authenticator
) -> None:
    path = await browser.start_sign_on(shop)
    answer = await log_in(api, path)
    assert answer.json["mfa_required"] is True
    assert "redirect_url" not in answer.json
    assert '<form method="post" action="/app/sign-in">' in (await browser.open(path)).text
    verified = await api.post("/api/auth/mfa/verify", {"code": factor.code()}, token=answer.json["access_token"])
    assert posted_response(await browser.open(verified.json["redirect_url"].removeprefix(BASE_URL))).name_id == EMAIL


async def test_an_attacker_gains_nothing_from_a_victim_who_signs_in_with_their_state(
    api: Api, app: QuartTrio, browser: SamlBrowser, shop: SamlApplication, user: Account, clock: FakeClock
) -> None:
    attacker = browser
    path = await attacker.start_sign_on(shop)
    answer = await log_in(api, path)  # the victim signs in there
    page = await attacker.open(path)
    assert "SAMLResponse" not in page.text
    assert not await attacker.is_in()
    ada_there = SamlBrowser(app, clock)
    assert await refused_with_400(await ada_there.open(answer.json["redirect_url"].removeprefix(BASE_URL)))
    assert not await ada_there.is_in()


async def test_an_api_session_that_has_ended_gives_no_assertion(
    api: Api, browser: SamlBrowser, shop: SamlApplication, user: Account
) -> None:
    answer = await log_in(api, await browser.start_sign_on(shop))
    await api.post("/api/auth/logout", token=answer.json["access_token"])
    assert await refused_with_400(await browser.open(answer.json["redirect_url"].removeprefix(BASE_URL)))


async def test_an_api_session_ended_by_the_organization_gives_no_assertion(
    api: Api, browser: SamlBrowser, shop: SamlApplication, user: Account, acme: Tenant
) -> None:
    """The sign-on is pending again (security S-4)."""
    waiting = await browser.start_sign_on(shop)
    answer = await log_in(api, waiting)
    ended = await api.delete(f"{acme.path}/users/{user.id}/sessions", token=acme.token("owner"))
    assert ended.status == 200
    page = await browser.open(answer.json["redirect_url"].removeprefix(BASE_URL))
    assert '<form method="post" action="/app/sign-in">' in page.text
    assert not await browser.is_in()
    again = await log_in(api, waiting)
    assert posted_response(await browser.open(again.json["redirect_url"].removeprefix(BASE_URL))).name_id == EMAIL


async def test_a_frontend_cannot_complete_an_unknown_sign_on(api: Api, browser: SamlBrowser, waiting: str, clock: FakeClock) -> None:
    unknown = await log_in(api, f"?saml_state={new_secret()}")
    assert (unknown.status, unknown.code) == (400, "BAD_REQUEST")
    both = await log_in(api, waiting, org_slug="acme", service_slug="shop")
    assert both.status == 400
    clock.advance(STATE_TTL)
    late = await log_in(api, waiting)
    assert (late.status, late.code) == (400, "BAD_REQUEST")


@pytest.mark.parametrize("status", ["suspended", "pending"])
async def test_a_frontend_cannot_complete_a_sign_on_of_an_inactive_organization(
    api: Api, browser: SamlBrowser, shop: SamlApplication, user: Account, pool: Pool, status: str
) -> None:
    path = await browser.start_sign_on(shop)
    await run_sql(pool, f"update organizations set status = '{status}' where slug = 'acme'")  # noqa: S608
    refused = await log_in(api, path)
    assert (refused.status, refused.code) == (403, "ORGANIZATION_NOT_ACTIVE")
    assert await run_sql(pool, "select count(*) from sessions where user_id = %s", user.id) == [(0,)]


async def test_nor_with_the_second_factor_after_it_becomes_inactive(
    api: Api, browser: SamlBrowser, shop: SamlApplication, user: Account, factor: Authenticator, pool: Pool
) -> None:
    answer = await log_in(api, await browser.start_sign_on(shop))
    await run_sql(pool, "update organizations set status = 'suspended' where slug = 'acme'")
    refused = await api.post("/api/auth/mfa/verify", {"code": factor.code()}, token=answer.json["access_token"])
    assert (refused.status, refused.code) == (403, "ORGANIZATION_NOT_ACTIVE")
    assert await run_sql(pool, "select count(*) from sessions where user_id = %s and ended_at is null", user.id) == [(0,)]
    await run_sql(pool, "update organizations set status = 'active' where slug = 'acme'")
    assert (await api.post("/api/auth/mfa/verify", {"code": factor.code()}, token=answer.json["access_token"])).status == 200


async def test_an_api_login_replaces_the_session_of_the_browser(
    api: Api, browser: SamlBrowser, shop: SamlApplication, user: Account, ports: Ports, pool: Pool
) -> None:
    await add_account(ports, "other@example.com")
    await browser.sign_in("other@example.com")
    answer = await log_in(api, await browser.start_sign_on(shop))
    assert posted_response(await browser.open(answer.json["redirect_url"].removeprefix(BASE_URL))).name_id == EMAIL
    live = "select user_id from sessions where browser_hash is not null and ended_at is null"
    assert await run_sql(pool, live) == [(user.id,)]


async def test_an_api_login_of_the_same_user_keeps_the_saml_sessions(
    api: Api, browser: SamlBrowser, shop: SamlApplication, user: Account
) -> None:
    await browser.sign_in()
    before = await browser.sign_on(shop)
    answer = await log_in(api, await browser.start_sign_on(shop))
    response = posted_response(await browser.open(answer.json["redirect_url"].removeprefix(BASE_URL)))
    assert response.name_id == EMAIL
    assert response.session_index != before.session_index


# Sign-ins that start here


async def test_a_member_starts_a_sign_in_here(api: Api, shop: SamlApplication, acme: Tenant) -> None:
    answer = await api.get(f"{shop.management}/login?RelayState=there", token=acme.token("member"))
    assert answer.headers["Content-Type"].startswith("text/html")
    response = posted_response(answer)
    assert (response.url, response.relay_state, response.name_id) == (shop.acs_url, "there", acme.people["member"].email)
    assert "InResponseTo" not in response.document.decode()
    assert "form-action https://shop.example.com;" in answer.headers["Content-Security-Policy"]


async def test_an_api_client_gets_the_fields_as_json(api: Api, shop: SamlApplication, acme: Tenant) -> None:
    answer = await api.get(f"{shop.management}/login", token=acme.token("member"), headers={"Accept": "application/json"})
    assert answer.json.keys() == {"acs_url", "saml_response", "relay_state"}
    assert (answer.json["acs_url"], answer.json["relay_state"]) == (shop.acs_url, None)
    assert answer.headers["Cache-Control"] == "no-store"


async def test_sign_ins_that_start_here_need_a_member(
    api: Api, shop: SamlApplication, acme: Tenant, other_tenant: Tenant, user: Account, ports: Ports, pool: Pool
) -> None:
    path = f"{shop.management}/login"
    session = await sign_in(ports, user)
    assert (await api.get(path, token=session.access_token)).status == 403, "an end user is not a member"
    assert (await api.get(path, token=other_tenant.token("owner"))).status == 403
    long = await api.get(f"{path}?RelayState={'x' * 1025}", token=acme.token("member"))
    assert (long.status, long.code) == (400, "BAD_REQUEST")
    await run_sql(pool, "update users set email_verified_at = null")
    assert (await api.get(path, token=acme.token("member"))).status == 403
    await run_sql(pool, "update saml_configurations set enabled = false")
    off = await api.get(path, token=acme.token("member"))
    assert (off.status, off.code) == (404, "NOT_FOUND")


# Disabled identity providers


CLOSED = {
    "disabled": ("update saml_configurations set enabled = false", 404),
    "never set up": ("delete from saml_configurations", 404),
    "without a certificate": ("update saml_certificates set deactivated_at = now(), private_key = null", 404),
    "with a certificate that has expired": ("update saml_certificates set valid_until = valid_from + interval '1 second'", 404),
    "suspended": ("update organizations set status = 'suspended' where slug = 'acme'", 403),
    "pending": ("update organizations set status = 'pending' where slug = 'acme'", 403),
    "deleted": ("delete from services", 404),
}


@pytest.mark.parametrize("why", CLOSED)
async def test_a_disabled_identity_provider_finishes_no_sign_on(
    browser: SamlBrowser, shop: SamlApplication, waiting: str, clock: FakeClock, pool: Pool, why: str
) -> None:
    statement, status = CLOSED[why]
    clock.advance(timedelta(minutes=1))
    await run_sql(pool, statement)
    request_path = redirect_url(f"{shop.path}/sso", authn_request(shop, clock.now()))
    for path in (waiting, request_path, f"{shop.path}/metadata", f"{shop.path}/slo"):
        answer = await browser.open(path)
        assert (answer.status, "SAMLResponse" in answer.text) == (status, False), path
    assert (await browser.post_cross_site(f"{shop.path}/sso", SAMLRequest="x")).status == status


async def test_a_new_certificate_is_used_immediately(
    browser: SamlBrowser, shop: SamlApplication, waiting: str, ports: Ports, clock: FakeClock
) -> None:
    def key_of(document: str) -> str:
        return document.partition("X509Certificate>")[2].partition("<")[0]

    before = key_of((await browser.open(f"{shop.path}/metadata")).text)
    clock.advance(timedelta(seconds=1))
    other = await new_certificate(clock.now())
    async with ports.storage.transaction(by=SYSTEM) as tx:
        await tx.saml.deactivate_certificate(shop.org, shop.id, clock.now())
        await tx.saml.add_certificate(shop.org, shop.id, other)
    after = key_of((await browser.open(f"{shop.path}/metadata")).text)
    assert before != after
    assert after in posted_response(await browser.open(waiting)).document.decode()


async def test_unknown_organizations_and_services_are_not_found(browser: FakeBrowser, shop: SamlApplication) -> None:
    for path in ("/saml/nobody/shop", "/saml/acme/nothing", "/saml/twin/shop"):
        for what in ("metadata", "sso?SAMLRequest=x", "slo", "authenticate?saml_state=x"):
            assert (await browser.open(f"{path}/{what}")).status == 404


async def test_cookies_are_not_readable_by_scripts(browser: SamlBrowser, shop: SamlApplication, clock: FakeClock) -> None:
    answer = await browser.open(redirect_url(f"{shop.path}/sso", authn_request(shop, clock.now())))
    [cookie] = set_cookies(answer).values()
    assert cookie["httponly"]
    assert (cookie["samesite"], cookie["path"], cookie["max-age"]) == ("Lax", "/", "900")
    assert ACCOUNT not in answer.headers["Location"]
