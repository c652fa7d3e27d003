"""Single logout, started by applications and by our own page (decision 183, security X-9).

The module is longer than 400 lines, because all tests share the same two applications.
"""

from datetime import timedelta
from urllib.parse import urlsplit

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.accounts.accounts_rules import Account
from core.federation.saml.configuration_rules import NameIdFormat
from core.federation.saml.logout_rules import LOGOUT_TTL
from ports import Ports
from tests.fakes.outside import FakeClock
from tests.support.browser import ACCOUNT, SIGN_IN, form_token, leads_to
from tests.support.builders import BASE_URL, EMAIL, add_account, run_sql
from tests.support.saml import SamlApplication, add_application, encode_base64, logout_request, logout_response, redirect_url
from tests.support.saml_browser import RedirectedMessage, SamlApplications, SamlBrowser, redirect_target, request_logout, sign_out
from tests.support.services import add_service_user
from tests.support.tenants import Tenants


@pytest.fixture
async def blog(applications: SamlApplications) -> SamlApplication:
    return await applications.add("blog")


async def test_an_application_signs_a_user_out(browser: SamlBrowser, shop: SamlApplication, user: Account) -> None:
    await browser.sign_in()
    session = await browser.sign_on(shop)
    message = RedirectedMessage(
        redirect_target(await request_logout(browser, shop, session.name_id, session.session_index, RelayState="a & b"))
    )
    assert (message.url, message.kind, message.root.get("InResponseTo"), message.statuses) == (
        "https://shop.example.com/slo",
        "LogoutResponse",
        "_bye",
        ["Success"],
    )
    assert message.root.get("Destination") == message.url
    assert message.query["RelayState"] == "a & b"
    assert message.query["SigAlg"] == "http://www.w3.org/2001/04/xmldsig-more#rsa-sha256"
    assert message.query.keys() == {"SAMLResponse", "RelayState", "SigAlg", "Signature"}
    assert not await browser.is_in()
    assert "gatehouse-session" not in browser.cookies
    assert "gatehouse-saml-logout" not in browser.cookies


async def test_an_application_signs_a_user_out_with_http_post(browser: SamlBrowser, shop: SamlApplication, user: Account) -> None:
    await browser.sign_in()
    session = await browser.sign_on(shop)
    message = logout_request(shop, browser.now(), session.name_id, "_other", session.session_index)
    path = redirect_target(await browser.post_cross_site(f"{shop.path}/slo", SAMLRequest=encode_base64(message)), 303)
    assert await browser.is_in(), "the cross-site POST carries no cookies"
    assert RedirectedMessage(redirect_target(await browser.open(path))).statuses == ["Success"]
    assert not await browser.is_in()


async def test_other_applications_are_notified_before_the_response(
    browser: SamlBrowser, shop: SamlApplication, blog: SamlApplication, user: Account
) -> None:
    await browser.sign_in()
    session, there = await browser.sign_on(shop), await browser.sign_on(blog)
    message = RedirectedMessage(redirect_target(await request_logout(browser, shop, session.name_id, session.session_index)))
    assert (message.url, message.kind) == ("https://blog.example.com/slo", "LogoutRequest")
    assert [index.text for index in message.find("//samlp:SessionIndex")] == [there.session_index]
    assert [name.text for name in message.find("//saml:NameID")] == [there.name_id]
    assert message.query.keys() == {"SAMLRequest", "SigAlg", "Signature"}
    assert not await browser.is_in(), "the session here has ended already"
    done = logout_response(blog, browser.now(), message.root.get("ID"))
    back = redirect_target(await browser.open(redirect_url(f"{blog.path}/slo", done, "SAMLResponse")))
    message = RedirectedMessage(redirect_target(await browser.open(back)))
    assert (message.url, message.root.get("InResponseTo"), message.statuses) == ("https://shop.example.com/slo", "_bye", ["Success"])


@pytest.mark.parametrize("by_form", [False, True])
@pytest.mark.parametrize(
    ("status", "inner", "statuses"),
    [
        ("Success", "", ["Success"]),
        ("Responder", "", ["Success", "PartialLogout"]),
        ("Requester", "UnknownPrincipal", ["Success", "PartialLogout"]),
        ("Success", "PartialLogout", ["Success", "PartialLogout"]),
    ],
)
async def test_responses_of_other_applications_count(
    browser: SamlBrowser,
    shop: SamlApplication,
    blog: SamlApplication,
    user: Account,
    status: str,
    inner: str,
    statuses: list[str],
    by_form: bool,
) -> None:
    await browser.sign_in()
    session, _ = await browser.sign_on(shop), await browser.sign_on(blog)
    message = RedirectedMessage(redirect_target(await request_logout(browser, shop, session.name_id, session.session_index)))
    done = logout_response(blog, browser.now(), message.root.get("ID"), status, inner)
    if by_form:
        back = redirect_target(
            await browser.open(redirect_target(await browser.post_cross_site(f"{blog.path}/slo", SAMLResponse=encode_base64(done)), 303))
        )
    else:
        back = redirect_target(await browser.open(redirect_url(f"{blog.path}/slo", done, "SAMLResponse")))
    assert RedirectedMessage(redirect_target(await browser.open(back))).statuses == statuses


async def test_an_application_that_does_not_answer_makes_the_logout_partial(
    browser: SamlBrowser, shop: SamlApplication, blog: SamlApplication, user: Account
) -> None:
    await browser.sign_in()
    session, _ = await browser.sign_on(shop), await browser.sign_on(blog)
    path = redirect_target(await request_logout(browser, shop, session.name_id, session.session_index))
    again = RedirectedMessage(redirect_target(await browser.open(f"{shop.path}/slo")))  # the user went back
    assert (again.kind, again.root.get("ID")) == ("LogoutRequest", RedirectedMessage(path).root.get("ID")), (
        "the browser may not have reached it"
    )
    message = RedirectedMessage(redirect_target(await browser.open(f"{shop.path}/slo")))
    assert (message.url, message.statuses) == ("https://shop.example.com/slo", ["Success", "PartialLogout"])


@pytest.mark.parametrize("which", ["first", "second"])
async def test_an_application_asked_twice_can_answer_either_request(
    browser: SamlBrowser, shop: SamlApplication, blog: SamlApplication, user: Account, which: str
) -> None:
    await browser.sign_in()
    session, _ = await browser.sign_on(shop), await browser.sign_on(blog)
    first = RedirectedMessage(redirect_target(await request_logout(browser, shop, session.name_id, session.session_index)))
    second = RedirectedMessage(redirect_target(await browser.open(f"{shop.path}/slo")))
    request = first if which == "first" else second
    done = logout_response(blog, browser.now(), request.root.get("ID"))
    back = redirect_target(await browser.open(redirect_url(f"{blog.path}/slo", done, "SAMLResponse")))
    assert RedirectedMessage(redirect_target(await browser.open(back))).statuses == ["Success"]


@pytest.mark.parametrize(
    "why",
    [
        "update saml_configurations set slo_url = null where strpos(slo_url, 'blog') > 0",
        "update saml_configurations set enabled = false where strpos(slo_url, 'blog') > 0",
    ],
)
async def test_an_application_without_slo_url_makes_the_logout_partial(
    browser: SamlBrowser, shop: SamlApplication, blog: SamlApplication, user: Account, pool: Pool, why: str
) -> None:
    await browser.sign_in()
    session, _ = await browser.sign_on(shop), await browser.sign_on(blog)
    await run_sql(pool, why)
    message = RedirectedMessage(redirect_target(await request_logout(browser, shop, session.name_id, session.session_index)))
    assert (message.kind, message.statuses) == ("LogoutResponse", ["Success", "PartialLogout"])


async def test_a_request_ends_no_other_sessions(
    app: QuartTrio, browser: SamlBrowser, shop: SamlApplication, blog: SamlApplication, user: Account, clock: FakeClock
) -> None:
    """The name alone does not match, nor does the index of another session or of another application."""
    await browser.sign_in()
    session, elsewhere = await browser.sign_on(shop), await browser.sign_on(blog)
    other = SamlBrowser(app, clock)
    await other.sign_in()
    others = await other.sign_on(shop)
    wrong = [
        (EMAIL, ()),
        (EMAIL, ("_guessed",)),
        (EMAIL, (others.session_index,)),
        (EMAIL, (elsewhere.session_index,)),
        ("somebody@example.com", (session.session_index,)),
    ]
    for name_id, indexes in wrong:
        message = RedirectedMessage(redirect_target(await request_logout(browser, shop, name_id, *indexes)))
        assert (message.url, message.statuses) == ("https://shop.example.com/slo", ["Requester", "UnknownPrincipal"])
        assert await browser.is_in()
    assert await other.is_in()
    other_browser = SamlBrowser(app, clock)
    message = RedirectedMessage(redirect_target(await request_logout(other_browser, shop, session.name_id, session.session_index)))
    assert message.statuses == ["Requester", "UnknownPrincipal"]
    assert await browser.is_in()


@pytest.mark.parametrize("format_", [NameIdFormat.EMAIL, NameIdFormat.PERSISTENT])
async def test_the_attributes_of_the_name_must_match(
    browser: SamlBrowser, applications: SamlApplications, user: Account, format_: NameIdFormat
) -> None:
    """SAML core section 2.2.3, security X-9."""
    shop = await applications.add("shop", name_id_format=format_)
    whole = {"Format": format_.value, "NameQualifier": shop.issuer, "SPNameQualifier": shop.entity_id}
    await browser.sign_in()
    session = await browser.sign_on(shop)
    for wrong in (
        {"Format": NameIdFormat.TRANSIENT.value},
        {"Format": "urn:x"},
        {"NameQualifier": "https://other.example.com/"},
        {"SPNameQualifier": "https://blog.example.com/metadata"},
    ):
        answer = await request_logout(browser, shop, session.name_id, session.session_index, name_attributes={**whole, **wrong})
        assert RedirectedMessage(redirect_target(answer)).statuses == ["Requester", "UnknownPrincipal"], wrong
        assert await browser.is_in()
    for right in (whole, {"Format": NameIdFormat.UNSPECIFIED.value}):
        session = await browser.sign_on(shop)
        message = RedirectedMessage(
            redirect_target(await request_logout(browser, shop, session.name_id, session.session_index, name_attributes=right))
        )
        assert message.statuses == ["Success"]
        await browser.sign_in()


async def test_a_transient_name_is_valid_until_the_session_ends(
    app: QuartTrio, browser: SamlBrowser, applications: SamlApplications, user: Account, clock: FakeClock
) -> None:
    """The application may have missed later responses (SAML core section 8.3.8)."""
    shop = await applications.add("shop", name_id_format=NameIdFormat.TRANSIENT)
    other = SamlBrowser(app, clock)
    await other.sign_in()
    others = await other.sign_on(shop)
    await browser.sign_in()
    first, second, _ = [await browser.sign_on(shop) for _ in range(3)]
    assert first.name_id != second.name_id
    message = RedirectedMessage(redirect_target(await request_logout(browser, shop, others.name_id, first.session_index)))
    assert message.statuses == ["Requester", "UnknownPrincipal"]
    message = RedirectedMessage(redirect_target(await request_logout(browser, shop, first.name_id, first.session_index)))
    assert message.statuses == ["Success"]
    assert not await browser.is_in()
    assert await other.is_in()


async def test_the_number_of_former_names_is_limited(
    browser: SamlBrowser, applications: SamlApplications, user: Account, pool: Pool
) -> None:
    shop = await applications.add("shop", name_id_format=NameIdFormat.TRANSIENT)
    await browser.sign_in()
    names = [(await browser.sign_on(shop)).name_id for _ in range(23)]
    assert await run_sql(pool, "select name_id, former_names from saml_sessions") == [(names[-1], names[-2:1:-1])]


async def test_an_application_without_slo_url_signs_no_users_out(
    browser: SamlBrowser, applications: SamlApplications, user: Account
) -> None:
    shop = await applications.add("shop", slo_url=None)
    await browser.sign_in()
    session = await browser.sign_on(shop)
    message = logout_request(shop, browser.now(), session.name_id, session.session_index)
    refused = await browser.open(redirect_url(f"{shop.path}/slo", message))
    assert refused.status == 400
    assert "no registered address" in refused.text
    assert await browser.is_in()


async def test_the_number_of_session_indexes_is_limited(browser: SamlBrowser, shop: SamlApplication, user: Account) -> None:
    """Requests need no credentials (security N-5)."""
    await browser.sign_in()
    session = await browser.sign_on(shop)
    too_many = logout_request(shop, browser.now(), session.name_id, *["_x"] * 100, session.session_index)
    assert (await browser.open(redirect_url(f"{shop.path}/slo", too_many))).status == 400
    indexes = ["_" * 257, "_x", session.session_index]
    message = RedirectedMessage(redirect_target(await request_logout(browser, shop, session.name_id, *indexes)))
    assert message.statuses == ["Success"]


@pytest.mark.parametrize("by_form", [False, True])
async def test_a_response_counts_only_in_the_browser_that_was_redirected(
    app: QuartTrio, browser: SamlBrowser, shop: SamlApplication, blog: SamlApplication, user: Account, clock: FakeClock, by_form: bool
) -> None:
    await browser.sign_in()
    session, _ = await browser.sign_on(shop), await browser.sign_on(blog)
    message = RedirectedMessage(redirect_target(await request_logout(browser, shop, session.name_id, session.session_index)))
    other = SamlBrowser(app, clock)
    await other.sign_in()
    its_own = await other.sign_on(shop)
    await other.sign_on(blog)
    redirect_target(await request_logout(other, shop, its_own.name_id, its_own.session_index))
    done = logout_response(blog, browser.now(), message.root.get("ID"))
    for stranger in (other, SamlBrowser(app, clock)):
        if by_form:
            page = await stranger.open(
                redirect_target(await stranger.post_cross_site(f"{blog.path}/slo", SAMLResponse=encode_base64(done)), 303)
            )
        else:
            page = await stranger.open(redirect_url(f"{blog.path}/slo", done, "SAMLResponse"))
        assert page.status == 400
    back = redirect_target(await browser.open(redirect_url(f"{blog.path}/slo", done, "SAMLResponse")))
    assert RedirectedMessage(redirect_target(await browser.open(back))).statuses == ["Success"], "another browser did not use it up"


# The changes while the browser is at an application, with the following response.
CLOSING = {
    "suspended": ("update organizations set status = 'suspended' where slug = 'other'", 403),
    "disabled": ("update saml_configurations set enabled = false where strpos(slo_url, 'blog') > 0", 404),
    "without a certificate": ("update saml_certificates set deactivated_at = now(), private_key = null where service_id = '{blog}'", 404),
}


@pytest.mark.parametrize("by_form", [False, True])
@pytest.mark.parametrize("why", CLOSING)
async def test_an_application_disabled_during_the_logout_is_skipped(
    app: QuartTrio,
    browser: SamlBrowser,
    shop: SamlApplication,
    ports: Ports,
    pool: Pool,
    tenants: Tenants,
    user: Account,
    clock: FakeClock,
    applications: SamlApplications,
    why: str,
    by_form: bool,
) -> None:
    other = await tenants.add("other")
    blog = await add_application(ports, pool, other.org, other.slug, "blog")
    await add_service_user(ports, blog.id, user.id)
    await browser.sign_in()
    await browser.sign_on(blog)
    clock.advance(timedelta(seconds=1))
    await browser.sign_on(shop)
    await sign_out(browser)
    # The order is random: the change affects the application where the browser is.
    statement, status = CLOSING[why]
    step, notified = await browser.open(f"{shop.path}/slo"), []
    while step.status == 302:
        message = RedirectedMessage(redirect_target(step))
        notified.append(message.url)
        application = shop if "shop" in message.url else blog
        done = logout_response(application, browser.now(), message.root.get("ID"))
        if application is blog:
            await run_sql(pool, statement.format(blog=blog.id))
        if by_form:
            back = redirect_target(await browser.post_cross_site(f"{application.path}/slo", SAMLResponse=encode_base64(done)), 303)
        else:
            back = redirect_url(f"{application.path}/slo", done, "SAMLResponse")
        step = await browser.open(back)
        while step.status == 302 and redirect_target(step).startswith("/"):
            step = await browser.open(redirect_target(step))
    assert sorted(notified) == ["https://blog.example.com/slo", "https://shop.example.com/slo"]
    assert step.status == 200
    assert "Some applications didn't confirm" in step.text
    # No logout is in progress here, so the ordinary error follows.
    assert (await browser.open(f"{blog.path}/slo")).status == status
    assert (await browser.post_cross_site(f"{blog.path}/slo", SAMLRequest="x")).status == status


async def test_an_initiator_disabled_during_the_logout_gets_no_response(
    browser: SamlBrowser, shop: SamlApplication, blog: SamlApplication, user: Account, pool: Pool
) -> None:
    await browser.sign_in()
    session, _ = await browser.sign_on(shop), await browser.sign_on(blog)
    message = RedirectedMessage(redirect_target(await request_logout(browser, shop, session.name_id, session.session_index)))
    await run_sql(pool, "update organizations set status = 'suspended' where slug = 'acme'")
    done = logout_response(blog, browser.now(), message.root.get("ID"))
    page = await browser.open(redirect_url(f"{blog.path}/slo", done, "SAMLResponse"))
    assert page.status == 200
    assert "Some applications didn't confirm" in page.text
    assert "gatehouse-saml-logout" not in browser.cookies


@pytest.mark.parametrize("by_form", [False, True])
async def test_a_response_counts_once_and_only_from_the_application_asked(
    browser: SamlBrowser, shop: SamlApplication, blog: SamlApplication, user: Account, by_form: bool
) -> None:
    """A repeated response, for example after a double click, continues the logout."""
    await browser.sign_in()
    session, _ = await browser.sign_on(shop), await browser.sign_on(blog)
    request = RedirectedMessage(redirect_target(await request_logout(browser, shop, session.name_id, session.session_index)))
    id_ = request.root.get("ID")
    foreign = await browser.open(redirect_url(f"{shop.path}/slo", logout_response(shop, browser.now(), id_), "SAMLResponse"))
    assert foreign.status == 400
    message, other = logout_response(blog, browser.now(), id_), logout_response(blog, browser.now(), id_, "Responder")
    done = redirect_url(f"{blog.path}/slo", message, "SAMLResponse")
    redirect_target(await browser.open(done))
    if by_form:
        done = redirect_target(await browser.post_cross_site(f"{blog.path}/slo", SAMLResponse=encode_base64(message)), 303)
    for again in (redirect_url(f"{blog.path}/slo", other, "SAMLResponse"), done):
        back = redirect_target(await browser.open(again))
    assert RedirectedMessage(redirect_target(await browser.open(back))).statuses == ["Success"], "the first response counts"
    assert (await browser.open(done)).status == 400, "no logout is in progress"


async def test_a_logout_belongs_to_one_browser_and_expires(
    app: QuartTrio, browser: SamlBrowser, shop: SamlApplication, blog: SamlApplication, user: Account, clock: FakeClock
) -> None:
    await browser.sign_in()
    session, _ = await browser.sign_on(shop), await browser.sign_on(blog)
    redirect_target(await request_logout(browser, shop, session.name_id, session.session_index))
    assert (await SamlBrowser(app, clock).open(f"{shop.path}/slo")).status == 400
    clock.advance(LOGOUT_TTL)
    assert (await browser.open(f"{shop.path}/slo")).status == 400


# Our own page


async def test_signing_out_here_signs_out_at_all_applications(
    browser: SamlBrowser, shop: SamlApplication, blog: SamlApplication, user: Account, clock: FakeClock
) -> None:
    await browser.sign_in()
    await browser.sign_on(shop)
    clock.advance(timedelta(seconds=1))
    await browser.sign_on(blog)
    page = await sign_out(browser)
    assert page.status == 200
    assert f'<meta http-equiv="refresh" content="0;url={shop.path}/slo">' in page.text
    assert not await browser.is_in()
    step = await browser.open(f"{shop.path}/slo")
    notified = []
    for _ in range(2):
        message = RedirectedMessage(redirect_target(step))
        notified.append(message.url)
        application = shop if "shop" in message.url else blog
        done = logout_response(application, browser.now(), message.root.get("ID"))
        step = await browser.open(redirect_target(await browser.open(redirect_url(f"{application.path}/slo", done, "SAMLResponse"))))
    assert sorted(notified) == ["https://blog.example.com/slo", "https://shop.example.com/slo"]
    assert step.status == 200
    assert "You're signed out" in step.text
    assert f'href="{SIGN_IN}"' in step.text
    assert "Some applications didn't confirm" not in step.text
    assert "gatehouse-saml-logout" not in browser.cookies


async def test_the_page_mentions_an_application_that_did_not_answer(browser: SamlBrowser, shop: SamlApplication, user: Account) -> None:
    await browser.sign_in()
    await browser.sign_on(shop)
    await sign_out(browser, next="/app/account/devices")
    for _ in range(2):
        redirect_target(await browser.open(f"{shop.path}/slo"))
    page = await browser.open(f"{shop.path}/slo")
    assert "Some applications didn't confirm" in page.text
    assert "next=%2Fapp%2Faccount%2Fdevices" in page.text


async def test_without_applications_signing_out_redirects_to_the_sign_in_page(
    browser: SamlBrowser, applications: SamlApplications, user: Account
) -> None:
    await browser.sign_in()
    assert leads_to(await sign_out(browser)) == SIGN_IN
    assert "You&#39;re signed out." in (await browser.open(SIGN_IN)).text
    assert "You&#39;re signed out." not in (await browser.open(SIGN_IN)).text, "the notice is shown once"
    silent = await applications.add("silent", slo_url=None)
    await browser.sign_in()
    await browser.sign_on(silent)
    assert leads_to(await sign_out(browser)) == SIGN_IN


async def test_a_session_that_replaced_another_signs_out_of_both(
    browser: SamlBrowser, shop: SamlApplication, blog: SamlApplication, user: Account, clock: FakeClock
) -> None:
    await browser.sign_in()
    first = await browser.sign_on(shop)
    clock.advance(timedelta(minutes=1))
    path = await browser.start_sign_on(blog, ForceAuthn="true")
    clock.advance(timedelta(seconds=1))
    await browser.sign_in_at(path)
    await browser.open(path)
    assert (await browser.sign_on(shop)).session_index == first.session_index
    await sign_out(browser)
    urls = {RedirectedMessage(redirect_target(await browser.open(f"{shop.path}/slo"))).url for _ in range(4)}
    assert urls == {"https://blog.example.com/slo", "https://shop.example.com/slo"}


@pytest.mark.parametrize("how", ["on the page", "for an application"])
async def test_a_session_after_an_ended_one_signs_out_of_both(
    browser: SamlBrowser, shop: SamlApplication, blog: SamlApplication, user: Account, pool: Pool, how: str
) -> None:
    await browser.sign_in()
    await browser.sign_on(shop)
    await run_sql(pool, "update sessions set ended_at = now()")  # as when the user signs out on all other devices
    if how == "for an application":
        path = await browser.start_sign_on(blog)
        assert await browser.sign_in_at(path) == path
        await browser.open(path)
    else:
        await browser.sign_in()
        await browser.sign_on(blog)
    await sign_out(browser)
    urls = {RedirectedMessage(redirect_target(await browser.open(f"{shop.path}/slo"))).url for _ in range(4)}
    assert urls == {"https://blog.example.com/slo", "https://shop.example.com/slo"}


async def test_the_session_of_another_user_is_not_taken_over(
    browser: SamlBrowser, shop: SamlApplication, user: Account, ports: Ports, clock: FakeClock
) -> None:
    await add_account(ports, "other@example.com")
    await browser.sign_in()
    await browser.sign_on(shop)
    clock.advance(timedelta(minutes=1))
    path = await browser.start_sign_on(shop, ForceAuthn="true")
    page = await browser.open(path)
    fields = {"email": "other@example.com", "password": "correct horse battery staple", "next": ACCOUNT}
    assert leads_to(await browser.send(SIGN_IN, form_token=form_token(page), **fields)) == ACCOUNT
    assert leads_to(await sign_out(browser)) == SIGN_IN


async def test_slo_urls_keep_their_query(browser: SamlBrowser, applications: SamlApplications, user: Account) -> None:
    shop = await applications.add("shop", slo_url="https://shop.example.com/slo?tenant=acme")
    await browser.sign_in()
    session = await browser.sign_on(shop)
    address = redirect_target(await request_logout(browser, shop, session.name_id, session.session_index))
    assert address.startswith("https://shop.example.com/slo?tenant=acme&SAMLResponse=")
    assert urlsplit(address).netloc == "shop.example.com"
    assert not address.startswith(BASE_URL)
