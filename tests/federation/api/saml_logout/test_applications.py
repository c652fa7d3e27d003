"""Single logout that an application starts (security X-9)."""

from datetime import timedelta

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from core.federation.saml.model.configuration import NameIdFormat
from core.federation.saml.model.sign_on import LOGOUT_TTL
from ports import Ports
from tests.fakes.outside import FakeClock
from tests.support.builders import EMAIL, run_sql
from tests.support.saml import SamlApplication, add_application, encode_base64, logout_request, logout_response, redirect_url
from tests.support.saml.browser import RedirectedMessage, SamlApplications, SamlBrowser, redirect_target, request_logout, sign_out
from tests.support.services import add_service_user
from tests.support.tenants import Tenants


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
    session, other_session = await browser.sign_on(shop), await browser.sign_on(blog)
    message = RedirectedMessage(redirect_target(await request_logout(browser, shop, session.name_id, session.session_index)))
    assert (message.url, message.kind) == ("https://blog.example.com/slo", "LogoutRequest")
    assert [index.text for index in message.find("//samlp:SessionIndex")] == [other_session.session_index]
    assert [name.text for name in message.find("//saml:NameID")] == [other_session.name_id]
    assert message.query.keys() == {"SAMLRequest", "SigAlg", "Signature"}
    assert not await browser.is_in(), "the session here has ended already"
    response = logout_response(blog, browser.now(), message.root.get("ID"))
    next_path = redirect_target(await browser.open(redirect_url(f"{blog.path}/slo", response, "SAMLResponse")))
    message = RedirectedMessage(redirect_target(await browser.open(next_path)))
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
    response = logout_response(blog, browser.now(), message.root.get("ID"), status, inner)
    if by_form:
        next_path = redirect_target(
            await browser.open(
                redirect_target(await browser.post_cross_site(f"{blog.path}/slo", SAMLResponse=encode_base64(response)), 303)
            )
        )
    else:
        next_path = redirect_target(await browser.open(redirect_url(f"{blog.path}/slo", response, "SAMLResponse")))
    assert RedirectedMessage(redirect_target(await browser.open(next_path))).statuses == statuses


async def test_an_application_that_does_not_answer_makes_the_logout_partial(
    browser: SamlBrowser, shop: SamlApplication, blog: SamlApplication, user: Account
) -> None:
    await browser.sign_in()
    session, _ = await browser.sign_on(shop), await browser.sign_on(blog)
    path = redirect_target(await request_logout(browser, shop, session.name_id, session.session_index))
    repeated_message = RedirectedMessage(redirect_target(await browser.open(f"{shop.path}/slo")))  # the user went back
    assert (repeated_message.kind, repeated_message.root.get("ID")) == ("LogoutRequest", RedirectedMessage(path).root.get("ID")), (
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
    response = logout_response(blog, browser.now(), request.root.get("ID"))
    next_path = redirect_target(await browser.open(redirect_url(f"{blog.path}/slo", response, "SAMLResponse")))
    assert RedirectedMessage(redirect_target(await browser.open(next_path))).statuses == ["Success"]


@pytest.mark.parametrize(
    "change",
    [
        "update saml_configurations set slo_url = null where strpos(slo_url, 'blog') > 0",
        "update saml_configurations set enabled = false where strpos(slo_url, 'blog') > 0",
    ],
)
async def test_an_application_without_slo_url_makes_the_logout_partial(
    browser: SamlBrowser, shop: SamlApplication, blog: SamlApplication, user: Account, pool: Pool, change: str
) -> None:
    await browser.sign_in()
    session, _ = await browser.sign_on(shop), await browser.sign_on(blog)
    await run_sql(pool, change)
    message = RedirectedMessage(redirect_target(await request_logout(browser, shop, session.name_id, session.session_index)))
    assert (message.kind, message.statuses) == ("LogoutResponse", ["Success", "PartialLogout"])


async def test_a_request_ends_no_other_sessions(
    app: QuartTrio, browser: SamlBrowser, shop: SamlApplication, blog: SamlApplication, user: Account, clock: FakeClock
) -> None:
    """Another name does not match, nor does the index of another session or application."""
    await browser.sign_in()
    session, other_session = await browser.sign_on(shop), await browser.sign_on(blog)
    other = SamlBrowser(app, clock)
    await other.sign_in()
    other_browser_session = await other.sign_on(shop)
    mismatches = [
        (EMAIL, ("_guessed",)),
        (EMAIL, (other_browser_session.session_index,)),
        (EMAIL, (other_session.session_index,)),
        ("stranger@example.com", (session.session_index,)),
        ("stranger@example.com", ()),
    ]
    for name_id, indexes in mismatches:
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
    """SAML core section 2.2.3 and security X-9 require this."""
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
    other_session = await other.sign_on(shop)
    await browser.sign_in()
    first, second, _ = [await browser.sign_on(shop) for _ in range(3)]
    assert first.name_id != second.name_id
    message = RedirectedMessage(redirect_target(await request_logout(browser, shop, other_session.name_id, first.session_index)))
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
    page = await browser.open(redirect_url(f"{shop.path}/slo", message))
    assert page.status == 400
    assert "no registered address" in page.text
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
    response = logout_response(blog, browser.now(), message.root.get("ID"))
    for stranger in (other, SamlBrowser(app, clock)):
        if by_form:
            page = await stranger.open(
                redirect_target(await stranger.post_cross_site(f"{blog.path}/slo", SAMLResponse=encode_base64(response)), 303)
            )
        else:
            page = await stranger.open(redirect_url(f"{blog.path}/slo", response, "SAMLResponse"))
        assert page.status == 400
    next_path = redirect_target(await browser.open(redirect_url(f"{blog.path}/slo", response, "SAMLResponse")))
    assert RedirectedMessage(redirect_target(await browser.open(next_path))).statuses == ["Success"], "another browser did not use it up"


# The changes while the browser is at an application, with the following response.
CLOSINGS = {
    "suspended": ("update organizations set status = 'suspended' where slug = 'other'", 403),
    "disabled": ("update saml_configurations set enabled = false where strpos(slo_url, 'blog') > 0", 404),
    "without a certificate": ("update saml_certificates set deactivated_at = now(), private_key = null where service_id = '{blog}'", 404),
}


@pytest.mark.parametrize("by_form", [False, True])
@pytest.mark.parametrize("case", CLOSINGS)
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
    case: str,
    by_form: bool,
) -> None:
    other = await tenants.add("other")
    blog = await add_application(ports, pool, other.org, other.slug, "blog")
    await add_service_user(ports, blog.id, user.id, signed_in=False)
    await browser.sign_in()
    await browser.sign_on(blog)
    clock.advance(timedelta(seconds=1))
    await browser.sign_on(shop)
    await sign_out(browser)
    # The order is random: the change affects the application where the browser is.
    statement, status = CLOSINGS[case]
    step, notified = await browser.open(f"{shop.path}/slo"), []
    while step.status == 302:
        message = RedirectedMessage(redirect_target(step))
        notified.append(message.url)
        application = shop if "shop" in message.url else blog
        response = logout_response(application, browser.now(), message.root.get("ID"))
        if application is blog:
            await run_sql(pool, statement.format(blog=blog.id))
        if by_form:
            next_path = redirect_target(await browser.post_cross_site(f"{application.path}/slo", SAMLResponse=encode_base64(response)), 303)
        else:
            next_path = redirect_url(f"{application.path}/slo", response, "SAMLResponse")
        step = await browser.open(next_path)
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
    response = logout_response(blog, browser.now(), message.root.get("ID"))
    page = await browser.open(redirect_url(f"{blog.path}/slo", response, "SAMLResponse"))
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
    response = redirect_url(f"{blog.path}/slo", message, "SAMLResponse")
    redirect_target(await browser.open(response))
    if by_form:
        response = redirect_target(await browser.post_cross_site(f"{blog.path}/slo", SAMLResponse=encode_base64(message)), 303)
    for repeated_message in (redirect_url(f"{blog.path}/slo", other, "SAMLResponse"), response):
        next_path = redirect_target(await browser.open(repeated_message))
    assert RedirectedMessage(redirect_target(await browser.open(next_path))).statuses == ["Success"], "the first response counts"
    assert (await browser.open(response)).status == 400, "no logout is in progress"


async def test_a_logout_belongs_to_one_browser_and_expires(
    app: QuartTrio, browser: SamlBrowser, shop: SamlApplication, blog: SamlApplication, user: Account, clock: FakeClock
) -> None:
    await browser.sign_in()
    session, _ = await browser.sign_on(shop), await browser.sign_on(blog)
    redirect_target(await request_logout(browser, shop, session.name_id, session.session_index))
    assert (await SamlBrowser(app, clock).open(f"{shop.path}/slo")).status == 400
    clock.advance(LOGOUT_TTL)
    assert (await browser.open(f"{shop.path}/slo")).status == 400
